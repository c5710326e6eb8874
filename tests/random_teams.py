"""Random functions from a seed, as Python source, with dimensions that threads share: dozens of rows and columns. Not a
test.

As in random_programs.py, statements are drawn one by one and run in eager mode at once. Here are fewer blocks and
surprises of Python, and more ops that touch memory in ways of their own: joins, slices in place, gathers and scatters,
extremes, statistics, products of batches that broadcast, gradients of gradients.
"""

import random

import numpy as np

import weft
from weft.nn import functional as F

SIZES = (1, 2, 3, 7, 16, 33, 64, 65, 80, 100, 128, 144, 200, 256)
MOST_ELEMENTS = 60_000
ELEMENTWISE = (
    "{x}.exp()", "{x}.tanh()", "{x} * 0.5", "{x} + 1.0", "{x}.relu()", "({x} > 0.0)", "{x}.clamp(-1.0, 1.0)",
    "{x}.clone()", "{x}.detach()", "{x}.float()", "{x}.double()", "({x} * 4.0).long()", "F.gelu({x})",
    "F.dropout({x}, 0.5)", "weft.rand({x}.shape)", "weft.arange({x}.shape[-1]) + {x}",
)  # fmt: skip
BINARY = (
    "{x} + {y}", "{x} * {y}", "{x} - {y}", "weft.maximum({x}, {y})", "weft.where({x} > {y}, {x}, {y})", "({x} > {y})",
    "{x} / ({y}.abs() + 1.0)",
)  # fmt: skip
NORMALISED = (
    "{x} - {x}.mean({d}, keepdim=True)", "{x} * {x}.amax({d}, keepdim=True)", "{x}.softmax({d})",
    "{x} + {x}.select({d}, 0).unsqueeze({d})", "{x} / ({x}.abs().sum({d}, keepdim=True) + 1.0)",
    "{x}.log_softmax({d})", "F.layer_norm({x}, {x}.shape[-1:])",
)  # fmt: skip
REDUCTIONS = (
    "{x}.sum({d})", "{x}.mean({d})", "{x}.amax({d})", "{x}.amin({d}, keepdim=True)", "{x}.var({d}, correction=0)",
    "{x}.logsumexp({d})", "{x}.argmax({d})", "{x}.argmin({d}, keepdim=True)", "({x} > 0.0).any({d})", "{x}.norm()",
    "({x} > 0.0).sum({d})", "{x}.prod({d})", "{x}.std({d}, correction=0)",
)  # fmt: skip
VIEWS = (
    "{x}.transpose(0, -1)", "{x}.mT", "{x}[1:]", "{x}[::2]", "{x}[..., ::2]", "{x}[..., 1:]", "{x}.flip({d})",
    "{x}.reshape(-1)", "{x}.unsqueeze({d})", "{x}.expand(3, *{x}.shape)", "{x}.reshape({x}.shape[0], -1)",
    "{x}.reshape(-1, {x}.shape[0])", "{x}.chunk(2, {d})[0]", "{x}.roll(1, {d})", "{x}[0]", "{x}.diagonal()",
    "{x}.permute(*range({x}.ndim - 1, -1, -1))", "{x}.repeat(2, *[1] * ({x}.ndim - 1))", "{x}.squeeze()",
)  # fmt: skip
INDEXING = (
    "weft.cat([{x}, {x}], {d})", "weft.cat([{x}, {y}], {d})", "weft.stack([{x}, {y}], {d})", "{x}.tril()",
    "{x}.index_select({d}, weft.tensor([0, 0, 0]))", "{x}[weft.randint(0, {x}.shape[0], (70,))]",
    "{x}.gather({d}, ({x} > 0.0).long() * 0)", "{x}.take_along_dim({x}.argmax({d}, keepdim=True), {d})",
    "weft.zeros_like({x}).scatter_add({d}, ({x} > 0.0).long() * 0, {x})", "{x}.masked_fill({x} > 0.5, 2.0)",
    "weft.zeros_like({x}).index_add(0, weft.randint(0, {x}.shape[0], ({x}.shape[0],)), {x})",
    "F.embedding(weft.randint(0, {x}.shape[0], (9, 8)), {x})", "F.one_hot({x}.argmax({d}), {x}.shape[{d}])",
)  # fmt: skip
PRODUCTS = (
    "{x} @ {y} * 0.1", "{x} @ {y}.mT * 0.1", "{x}.mT @ {y} * 0.1", "{x} @ {x}.mT * 0.01", "{x}.mT @ {x} * 0.01",
    "F.linear({x}, {y})", "{x}[0] @ {y}", "({x}.unsqueeze(1) @ {y}) * 0.1", "{x}.expand(3, *{x}.shape) @ {y}",
)  # fmt: skip
INPLACE = (
    "{x}.add_({y})", "{x}.mul_(0.5)", "{x}[0] = {y}[0]", "{x}[1:] = 0.5", "{x}[..., 0] = 1.0", "{x}.exp_()",
    "{x}[::2] = {x}[::2] * 2.0", "{x}.copy_({y})", "{x} += {x}.mean(0)", "{x} -= {x}.sum({d}, keepdim=True)",
    "{x}.masked_fill_({x} > 0, 0.5)", "{x} += {x}.select({d}, 0).unsqueeze({d})", "{x}[:, 0] += {x}[:, -1]",
    "{x}.index_add_(0, weft.randint(0, {x}.shape[0], ({x}.shape[0],)), {x} * 1.0)", "{x}.sub_({x}.softmax({d}))",
    "{x}.transpose(0, -1).mul_(0.5)",
)  # fmt: skip
GRADIENTS = (
    "weft.autograd.grad({x}.tanh().sum(), {w}, allow_unused=True, retain_graph=True)[0]",
    "weft.autograd.grad(({x} * {x}).mean(), {w}, create_graph=True, allow_unused=True)[0]",
)
KINDS = (
    [ELEMENTWISE] * 4 + [BINARY] * 5 + [NORMALISED] * 4 + [REDUCTIONS] * 3 + [VIEWS] * 3 + [INDEXING] * 4
    + [PRODUCTS] * 4 + [INPLACE] * 3
)  # fmt: skip


class RandomTeamwork:
    """seed -> `source`, of a function f, and `arguments()` for it."""

    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(seed)
        self.dtype = self.random.choice(("float32", "float32", "float64"))
        self.differentiates = self.random.random() < 0.5
        n_dims, sizes = self.random.choice((1, 2, 2, 2, 2, 3, 3, 4)), self.random.choices(SIZES, k=4)
        self.declared = {f"x{k}": self.declaration(n_dims, sizes) for k in range(self.random.choice((2, 3)))}
        weft.manual_seed(seed)
        self.env = {"weft": weft, "F": F, **dict(zip(self.declared, self.arguments()))}
        self.names, self.lines = list(self.declared), []
        self.trained = [name for name in self.names if self.env[name].requires_grad]
        n_statements = self.random.choice((6, 10, 16, 24))
        for _ in range(20 * n_statements):
            if len(self.lines) < n_statements:
                self.add_statement()
        self.outputs = sorted({self.recent() for _ in range(3)} | {self.names[-1]})
        self.source = "\n    ".join([f"def f({', '.join(self.declared)}):", *self.body()]) + "\n"

    def declaration(self, n_dims, sizes):
        """(shape, dtype, whether it gets a gradient) of an argument; most have dimensions in common."""
        shape = [self.random.choice(sizes[:2] * 3 + sizes) for _ in range(self.random.choice((n_dims, n_dims, 2)))]
        while np.prod(shape) > MOST_ELEMENTS:
            shape[shape.index(max(shape))] = 3
        dtype = self.random.choice([self.dtype] * 12 + ["float32", "float64", "int64"])
        return tuple(shape), dtype, self.differentiates and dtype != "int64" and self.random.random() < 0.7

    def arguments(self):
        made, rng = [], np.random.default_rng(self.seed)
        for shape, dtype, flag in self.declared.values():
            array = rng.integers(0, 3, shape) if dtype == "int64" else rng.normal(0, 1.2, shape).astype(dtype)
            made.append(weft.tensor(array).requires_grad_(flag))
        return made

    def recent(self):
        """A variable, later ones more often, so that chains grow."""
        return self.names[int(len(self.names) * self.random.random() ** 0.5)]

    def add_statement(self):
        kind = self.random.choice(KINDS + [GRADIENTS] * bool(self.trained))
        target, x, y = f"t{len(self.lines)}", self.recent(), self.recent()
        if self.random.random() < 0.7:
            y = self.random.choice([n for n in self.names if self.env[n].shape == self.env[x].shape])
        dim = self.random.randrange(self.env[x].ndim) if self.env[x].ndim else 0
        text = self.random.choice(kind).format(x=x, y=y, d=dim, w=self.trained and self.trained[0])
        if kind is not INPLACE:
            text = f"{target} = {text}"
        env = dict(self.env)
        try:
            exec(text, env)
        except Exception:
            return
        made = env.get(target)
        if target in env and not (isinstance(made, weft.Tensor) and 0 < made.numel() < 2 * MOST_ELEMENTS):
            return
        self.lines.append(text)
        self.names += [target] * (target in env)
        self.env = env

    def body(self):
        lines, outputs = list(self.lines), ", ".join(self.outputs)
        if self.trained and self.random.random() < 0.6:
            lines += [f"loss = sum([(o * 0.5).sum() for o in ({outputs},) if o.requires_grad])"]
            lines += ["if isinstance(loss, weft.Tensor):", "    loss.backward()", "with weft.no_grad():"]
            for name in self.trained:
                lines += [f"    if {name}.grad is not None:", f"        {name} -= 0.01 * {name}.grad"]
        return [*lines, f"return [{outputs}]"]
