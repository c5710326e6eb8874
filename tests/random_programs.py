"""Random programs from a seed, as Python source: what a user might write inside a compiled function. Not a test.

Statements are drawn one by one and run in eager mode at once, so that shapes are known and only statements that work
are kept. The source of a program is also its reproducer: run it as a script to see the first difference.
"""

import numpy as np

import weft

HEADER = """\
import numpy as np

import weft
from weft.nn import functional as F


def data(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    if dtype == "int64":
        return weft.tensor(rng.integers(0, 3, shape))
    return weft.tensor(rng.normal(0, 1.2, shape).astype(dtype))


def program(compile):
    weft.manual_seed({seed})
"""

FOOTER = """

if __name__ == "__main__":
    from compiled_twin import assert_same

    assert_same(program)
"""

UNARY = (
    "{x}.exp()", "{x}.tanh()", "{x}.sigmoid()", "{x}.relu()", "-{x}", "{x}.abs()", "{x}.sin()", "{x}.cos()",
    "({x}.abs() + 0.5).log()", "({x} * {x} + 1.0).sqrt()", "{x}.square()", "{x} ** 3", "{x}.clamp(-1.0, 1.0)",
    "F.gelu({x})", "F.softplus({x})", "F.silu({x})", "{x}.erf()", "{x}.floor()", "{x}.sign()", "{x}.expm1()",
    "({x}.abs() + 0.1).reciprocal()", "{x}.detach()", "{x}.clone()", "{x}.double()", "{x}.float()", "{x}.atan()",
)  # fmt: skip
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} * {y}", "{x} / ({y}.abs() + 1.0)", "weft.maximum({x}, {y})",
    "weft.minimum({x}, {y})", "weft.where({x} > {y}, {x}, {y})", "weft.where({x} > 0, {x}, {y} * 2.0)",
    "({x} > {y}) * {x}", "weft.atan2({x}, {y}.abs() + 0.5)", "{x}.lerp({y}, 0.25)",
)  # fmt: skip
NUMBERS = ("{x} * {n}", "{x} + {n}", "{n} - {x}", "{x} / {n}", "{n} / ({x}.abs() + 1.0)", "{x}.clamp(min={n})")
ANY_VIEW = (
    "{x}.reshape(-1)", "{x}.unsqueeze(0)", "{x}.unsqueeze(-1)", "{x}.squeeze()", "{x}[...]", "{x}.flatten()",
    "{x}.transpose(0, -1)", "{x}[None]", "{x}.detach()",
)  # fmt: skip
AXIS_VIEW = (
    "{x}[0]", "{x}[-1]", "{x}[1:]", "{x}[::2]", "{x}[..., :1]", "{x}[..., -1]", "{x}.mT", "{x}.t()",
    "{x}.flip(0)", "{x}.view(-1)", "{x}.view({x}.shape[0], -1)", "{x}.unbind(0)[0]", "{x}.chunk(2)[0]",
    "{x}.permute(*range({x}.ndim - 1, -1, -1))", "{x}.expand(2, *{x}.shape)", "{x}.narrow(-1, 0, 1)",
)  # fmt: skip
REDUCTIONS = (
    "{x}.sum()", "{x}.mean()", "{x}.sum({d})", "{x}.mean({d}, keepdim=True)", "{x}.amax({d})", "{x}.amin({d})",
    "{x}.max()", "{x}.softmax({d})", "{x}.log_softmax({d})", "{x}.logsumexp({d})", "{x}.var({d}, correction=0)",
    "{x}.norm()", "{x}.prod({d})", "{x}.argmax({d}) * 1.0", "({x} > 0).sum()", "({x} > 0).any({d})",
    "F.layer_norm({x}, {x}.shape[-1:])", "{x}.std({d}, correction=0)",
)  # fmt: skip
INDEXING = (
    "{x}[weft.tensor([0, 0])]", "{x}.index_select({d}, weft.tensor([0, 0, 0]))",
    "{x}.gather({d}, ({x} > 0).long() * 0)",
    "{x}.masked_fill({x} > 0.5, {n})", "{x}[{x} > -9.0]", "{x}.take_along_dim({x}.argmax({d}, keepdim=True), {d})",
    "weft.cat([{x}, {x}], {d})", "weft.stack([{x}, {x} * 2.0], {d})", "{x}.roll(1, {d})", "{x}.tril()",
    "weft.cat([{x}.reshape(-1), {y}.reshape(-1)])",
)  # fmt: skip
PRODUCTS = ("{x} @ {y}", "{x} @ {y}.t()", "{x}.t() @ {y}", "F.linear({x}, {y})", "{x} @ {x}.mT", "{x}.mT @ {x}")
INPLACE = (
    "{x}.add_({n})", "{x}.mul_({n})", "{x}.add_({y})", "{x}.mul_({y})", "{x}.zero_()", "{x}.copy_({y})", "{x}.exp_()",
    "{x}[0] = {n}", "{x}[0] = {y}[0]", "{x}[1:] = {n}", "{x}.view(-1)[0] = {n}", "{x}.sub_({y}, alpha=0.5)",
    "{x}.clamp_(-1.0, 1.0)", "{x}.relu_()", "{x} += {y}", "{x} *= {n}", "{x}.neg_()", "{x}.fill_({n})",
    "{x}.div_({y}.abs() + 1.0)", "{x}.masked_fill_({x} > 0, {n})",
)  # fmt: skip
CREATION = (
    "weft.ones({x}.shape, dtype={x}.dtype)", "weft.zeros_like({x})", "weft.arange(3.0)", "weft.full((2, 1), {n})",
    "weft.rand({x}.shape)", "F.dropout({x}, 0.5)", "weft.tensor([1.0, {n}])", "weft.randn(2)", "weft.eye(3)",
)  # fmt: skip
BLOCKS = (
    "if {x}.sum() > 0:\n    {t} = {x} * 2.0\nelse:\n    {t} = {x} - 1.0",
    "if ({x} > 1.0).any():\n    {t} = {x}.tanh()\nelse:\n    {t} = {x}.exp()",
    "with weft.no_grad():\n    {t} = {x} * 0.5 + {n}",
    "with weft.no_grad():\n    {t} = {x}.clone()\n    {t}.mul_({n})",
    "seen.append({x}.sum().item())\n{t} = {x} + 1.0",
    "seen.append({x}.detach().numpy().copy())\n{t} = {x} * {n}",
    "kept.append({x})\n{t} = {x}.sin()",
    "{t} = {x} * float({x}.detach().abs().mean() > 0.5)",
    "{t} = {x}\nfor k in range(3):\n    {t} = {t} * 0.5 + k",
    "{t} = {x}\nwhile ({t}.detach().abs() > 2.0).any():\n    {t} = {t} * 0.25",
    "{t} = sum([{x}, {x} * 2.0, {x}.tanh()])",
    "{t} = {x} + (calls[0] if calls[0] % 2 else 0.5)",
)
STEADY_BLOCKS = (
    "{t} = {x} * scale",
    "with weft.no_grad():\n    {t} = {x} * 0.5 + {n}",
    "{t} = {x}\nfor k in range(3):\n    {t} = {t} * 0.5 + k",
    "{t} = sum([{x}, {x} * 2.0, {x}.tanh()])",
    "{t} = {x} - 1.0 if calls[0] == 6 else {x} * 2.0",
    "{t} = {x}.cos()\nif calls[0] == 6:\n    kept.append({t})",
    "{t} = {x}.exp()\nif calls[0] == 6:\n    seen.append({t}.sum().item())",
)


class RandomProgram:
    """seed -> `source`. Modes: backward outside, backward inside, a whole training step inside, no gradients."""

    def __init__(self, seed, n_statements=12):
        self.seed = seed
        # Calls like the ones before take a way of their own (runtime/replay/frame_usual.py). Steady programs get there:
        # they are called more often, and hold little that has to run in the middle of a call.
        self.steady = seed % 2 == 1
        self.n_calls = 8 if self.steady else 3
        self.rng = np.random.default_rng(seed)
        self.dtype = self.pick(["float32", "float32", "float64"])
        self.mode = self.pick(["outside", "outside", "inside", "step", "none"])
        if self.steady:
            self.mode = self.pick(["inside", "step", "step", "none", self.mode])
        self.optimizer = self.mode == "step" and ("SGD", "Adam", None)[seed // 2 % 3]
        shape = tuple(self.pick([1, 2, 3, 5, 17]) for _ in range(self.rng.integers(1, 4)))
        self.leaves = [f"w{k}" for k in range(self.rng.integers(1, 3))]
        self.arguments = [f"x{k}" for k in range(self.rng.integers(1, 3))]
        self.made = {name: self.declaration(shape) for name in (*self.leaves, *self.arguments)}
        self.env = {"weft": weft, "np": np, "seen": [], "kept": [], "calls": [1], "scale": 0.75}
        exec(HEADER.split("def program")[0], self.env)
        for name, (shape, dtype, flag) in self.made.items():
            self.env[name] = self.env["data"](1, shape, dtype).requires_grad_(flag)
        self.names = list(self.made)
        self.lines = []
        for _ in range(20 * n_statements):
            if len(self.lines) < n_statements:
                self.add_statement()
        self.outputs = self.some_names()

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability):
        return self.rng.random() < probability

    def declaration(self, shape):
        """(shape, dtype, requires_grad) of an input that broadcasts against `shape`."""
        shape = tuple(1 if self.chance(0.2) else d for d in shape)[int(self.chance(0.3)) :]
        dtype = self.dtype if self.chance(0.85) else self.pick(["float32", "float64"])
        return shape, dtype, self.mode != "none" and self.chance(0.7)

    # --- statements ---------------------------------------------------------------------------------------------
    def add_statement(self):
        target = f"t{len(self.lines)}"
        words = {"x": self.recent(), "y": self.recent(), "t": target, "n": self.pick(["0.5", "2", "-1.25", "1.5"])}
        ndim = self.env[words["x"]].ndim
        words["d"] = str(int(self.rng.integers(-ndim, ndim))) if ndim else "0"
        rare = [INPLACE] * 2 + [BLOCKS] * 2 + [INDEXING]
        kind = self.pick(
            [UNARY] * 4 + [BINARY] * 6 + [NUMBERS] * 2 + [ANY_VIEW, AXIS_VIEW, AXIS_VIEW] + [REDUCTIONS] * 3
            + [INDEXING] + [PRODUCTS] * 2 + [CREATION] * 2 + [STEADY_BLOCKS] + rare * (not self.steady)
        )  # fmt: skip
        text = self.pick(kind).format(**words)
        if kind is INPLACE and words["x"] in self.made:
            return
        if kind not in (INPLACE, BLOCKS, STEADY_BLOCKS):
            text = f"{target} = {text}"
        self.try_statement(text, target)

    def try_statement(self, text, target):
        env = dict(self.env)
        try:
            with np.errstate(all="ignore"):
                exec(text, env)
        except Exception:
            return
        made = env.get(target)
        if made is not None and (not isinstance(made, weft.Tensor) or made.numel() > 5000 or made.ndim > 5):
            return
        self.lines.append(text)
        self.env = env
        if made is not None:
            self.names.append(target)

    def recent(self):
        """A variable, later ones more often, so that chains grow."""
        return self.names[int(len(self.names) * np.sqrt(self.rng.random()))]

    def some_names(self):
        chosen = sorted({self.recent() for _ in range(self.rng.integers(1, 4))})
        return [*chosen, self.names[-1]]

    # --- source ---------------------------------------------------------------------------------------------------
    def body(self):
        lines = [line for text in self.lines for line in text.split("\n")]
        if self.mode in ("inside", "step"):
            lines += [f"loss = sum([(o * 1.5).sum() for o in ({', '.join(self.outputs)},) if o.requires_grad])"]
            lines += ["if isinstance(loss, weft.Tensor):", "    loss.backward()"]
        if self.optimizer and self.trained:
            lines += ["optimizer.step()", "optimizer.zero_grad()"] if self.chance(0.5) else ["optimizer.step()"]
        elif self.mode == "step":
            lines += ["with weft.no_grad():"]
            for name in self.leaves:
                lines += [f"    if {name}.grad is not None:", f"        {name}.sub_(0.1 * {name}.grad)"]
                lines += [f"        {name}.grad = None"] if self.chance(0.5) else [f"        {name}.grad.zero_()"]
        return [*lines, f"return [{', '.join(self.outputs)}]"]

    @property
    def source(self):
        lines = [HEADER.format(seed=self.seed).rstrip("\n")]
        for k, name in enumerate(self.leaves):
            lines.append(f"    {name} = {self.maker(name, k)}")
        if self.optimizer and self.trained:
            options = {"SGD": "lr=0.1, momentum=0.9", "Adam": "lr=0.05"}[self.optimizer]
            lines.append(f"    optimizer = weft.optim.{self.optimizer}([{', '.join(self.trained)}], {options})")
        lines += ["    seen, kept, calls = [], [], [0]", "", f"    def f({', '.join(self.arguments)}, scale):"]
        lines += [f"        {line}" for line in self.body()]
        lines += ["", "    f = compile(f)", f"    for call in range({self.n_calls}):", "        calls[0] += 1"]
        for k, name in enumerate(self.arguments):
            lines.append(f"        {name} = {self.maker(name, f'{50 + 10 * k} + call')}")
        given = ", ".join(self.arguments)
        lines += [
            "        try:",
            f"            outputs = f({given}, 0.5 + call)",
            "        except Exception as error:",
            "            yield type(error).__name__",
            "            continue",
            "        yield outputs, seen, kept",
            *[f"        {line}" for line in self.outside()],
            f"        yield [p.grad for p in ({', '.join(self.made)},)], [{', '.join(self.leaves)}]",
        ]
        return "\n".join(lines) + "\n" + FOOTER

    @property
    def trained(self):
        return [name for name in self.leaves if self.made[name][2]]

    def maker(self, name, seed):
        shape, dtype, flag = self.made[name]
        return f"data({seed}, {shape}, {dtype!r})" + (".requires_grad_()" if flag else "")

    def outside(self):
        if self.mode != "outside":
            return []
        chosen = sorted({int(self.rng.integers(len(self.outputs))) for _ in self.outputs})
        retain = "retain_graph=True" if self.chance(0.3) else ""
        text = [
            f"parts = [(outputs[k] * (k + 1.5)).sum() for k in {chosen} if outputs[k].requires_grad]",
            "try:",
            f"    sum(parts, weft.zeros(())).backward({retain})",
            "    yield 'differentiated'",
        ]
        text += ["    sum([o.exp().sum() for o in outputs if o.requires_grad]).backward()"] if retain else []
        return [*text, "except Exception as error:", "    yield type(error).__name__"]
