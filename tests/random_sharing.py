"""Random programs from a seed in which memory is shared: functions that read and change tensors of a pool, views of
them, arrays and each other's results, called in any order. Not a test.

The source is also the reproducer, as in random_programs.py. Calls may fail, if they do so in both modes.
"""

import numpy as np

HEADER = """\
import numpy as np

import weft
from weft import randn
from weft.nn import functional as F


def program(compile):
    weft.manual_seed({seed})
    w, v = randn(3, 2, requires_grad=True), randn(2, requires_grad=True)
    a, b = randn(3, 2), randn(2)
    pool = {{"a": a, "b": b, "row": a[0], "flat": a.view(-1), "t": a.t(), "c": randn(3, 2), "z": randn(()).squeeze()}}
    pool.update(w=w, v=v, wd=w.detach(), d=randn(3, 2, dtype=weft.float64), m=randn(2, 2), u=randn(4)[1:3])
    array = np.ones((3, 2), np.float32)
    pool["n"] = weft.from_numpy(array)
    kept, seen = [], []
"""

FOOTER = """

if __name__ == "__main__":
    from compiled_twin import assert_same

    assert_same(program)
"""

# {x}, {y}: tensors of the function; {p}: one of the pool; {t}: a new name.
VALUES = (
    "{t} = {x} * 2.0",
    "{t} = {x} + {y}",
    "{t} = {x} * {y}",
    "{t} = {x}.exp()",
    "{t} = {x}.tanh()",
    "{t} = {x}.sum()",
    "{t} = {x}.detach()",
    "{t} = {x}.data",
    "{t} = {x}.data[0]",
    "{t} = w.data",
    "{t} = w.data * {x}",
    "{t} = {x}[0]",
    "{t} = {x}.t()",
    "{t} = {x}.reshape(-1)",
    "{t} = {x}[1:]",
    "{t} = {x} @ {y}",
    "{t} = {x}.clone()",
    "{t} = {x}.contiguous()",
    "{t} = {x}.float()",
    "{t} = {x}.unsqueeze(0)",
    "{t} = {x}.sigmoid() * {y}",
    "{t} = weft.where({x} > 0, {x}, {y})",
    "{t} = {x}.square().mean()",
    "{t} = {p} * {x}",
    "{t} = {p} + 1.0",
    "{t} = {p}[0] * {x}",
    "{t} = {x} @ w",
    "{t} = {x} * v",
    "{t} = (w * v).tanh()",
    "{t} = w * {x}",
    "{t} = weft.cat([{x}, {x}])",
    "{t} = {x}.softmax(-1)",
    "{t} = w",
    "{t} = {x}.expand(2, *{x}.shape)",
)
CHANGES = (
    "{x}.add_(1.0)",
    "{x}.mul_(0.5)",
    "{x}.add_({y})",
    "{x}.copy_({y})",
    "{x}[0] = 0.5",
    "{x}[0] = {y}[0]",
    "{x}.zero_()",
    "{p}.add_(1.0)",
    "{p}.copy_({x})",
    "{p}.mul_({x})",
    "{p}[0] = {x}[0]",
    "{x} += {y}",
    "{x} *= 2",
    "{x}.exp_()",
    "with weft.no_grad():\n    w.sub_(0.1 * {x})",
    "with weft.no_grad():\n    v.mul_(0.9)",
    "w.data.add_(0.1)",
    "w.data[0] = 0.25",
    "{p}.data = {x}.detach()",
    "{x}.data.add_(1.0)",
    "{x}.data[0] = 0.5",
    "{x}.data += {y}",
    "{x}.data = {x}.data * 0.5",
    "{p}.data.copy_({x})",
    "{p}.data = {x}",
    "with weft.no_grad():\n    {x}.add_({y})",
    "v.data = v.data * 0.5",
    "{x}.t().add_(1.0)",
    "with weft.no_grad():\n    {x}.view(-1)[0] = 2.0",
    "array += 1.0",
    "{x}.relu_()",
)
LOOKS = (
    "kept.append({x})",
    "seen.append({x}.sum().item())",
    "seen.append({x}.detach().numpy())",
    "pool['c'] = {x}",
    "seen.append({x}.tolist())",
    "kept.append({x}.detach())",
    "if {x}.sum() > 0:\n    {x} = {x} * 0.5",
    "pool['u'] = {x}",
    "seen.append(array.copy())",
    "kept.append({x}[0])",
    "seen.append({x}._version)",
    "{x}.requires_grad_()",
)
GRADIENTS = (
    "{x}.sum().backward()",
    "({x} * {y}).sum().backward()",
    "{x}.square().mean().backward(retain_graph=True)",
    "w.grad = None",
    "v.grad = None",
    "kept.append(w.grad)",
    "w.grad.mul_(0.5)",
    "w.data.sub_(0.1 * w.grad)",
    "kept.append(weft.autograd.grad({x}.sum(), [w], retain_graph=True)[0])",
    "pool['c'] = w.grad",
    "w.grad.zero_()",
)
OUTSIDE = (
    "{r}.sum().backward()",
    "{r}.add_(1.0)",
    "kept.append({r})",
    "pool['m'] = {r}",
    "del kept[:]",
    "{p}.add_(0.5)",
    "with weft.no_grad():\n    w.mul_(0.9)",
    "w.grad = None",
    "{r} = None",
    "array *= 0.5",
    "pool['a'] = {r}.detach()",
    "sum(k.sum() for k in kept if k is not None and k.requires_grad).backward()",
    "({r} * 2).sum().backward(retain_graph=True)",
    "del seen[:]",
    "pool['z'] = pool['a'][0]",
    "v.requires_grad_(not v.requires_grad)",
    "w.data = w.data.clone()",
    "w.data.add_(0.1)",
    "{r}.data.mul_(0.5)",
    "{p}.data = {r}.data",
    "v.data[0] = 1.0",
)
POOL = ("a", "b", "row", "flat", "t", "c", "z", "w", "v", "wd", "d", "m", "u", "n")


class RandomSharing:
    """seed -> `source`."""

    def __init__(self, seed, n_calls=14):
        self.seed, self.n_calls = seed, n_calls
        self.rng = np.random.default_rng(seed)
        self.n_functions = int(self.rng.integers(1, 4))
        # Steady programs call one function again and again with the same tensors.
        self.steady = self.rng.random() < 0.4

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def function(self, k):
        """The lines of a function of two tensors."""
        names, lines = ["x", "y"], [f"    def f{k}(x, y):"]
        for number in range(int(self.rng.integers(2, 8))):
            kinds = [VALUES] * 5 + [CHANGES] * 2 + [LOOKS, GRADIENTS]
            words = {"x": self.pick(names), "y": self.pick(names), "t": f"t{number}", "p": self.from_pool()}
            text = self.pick(self.pick(kinds))
            lines += [f"        {line}" for line in text.format(**words).split("\n")]
            if "{t}" in text:
                names.append(words["t"])
        return [*lines, f"        return {self.pick(names)}, {names[-1]}", ""]

    def from_pool(self):
        return f"pool[{self.pick(POOL)!r}]"

    def call(self, given):
        """The lines of a call, and of what happens to its results."""
        k = self.pick(range(self.n_functions))
        x, y = given if self.steady and self.rng.random() < 0.9 else (self.from_pool(), self.from_pool())
        if self.rng.random() < 0.2:
            x = "r"
        lines = [f"r, q = f{k}({x}, {y})", "yield r, q"]
        if self.rng.random() < 0.4:
            words = {"r": self.pick(["r", "q"]), "p": self.from_pool()}
            lines += self.pick(OUTSIDE).format(**words).split("\n")
        lines = ["try:", *[f"    {line}" for line in lines]]
        lines += ["except Exception as error:", "    yield type(error).__name__", "yield w, v, pool, array, kept, seen"]
        return [f"    {line}" for line in lines]

    @property
    def source(self):
        lines = [HEADER.format(seed=self.seed)]
        for k in range(self.n_functions):
            lines += self.function(k)
        lines += [f"    f{k} = compile(f{k})" for k in range(self.n_functions)] + ["    r = q = a"]
        given = self.from_pool(), self.from_pool()
        for _ in range(self.n_calls):
            lines += self.call(given)
        return "\n".join(lines) + "\n" + FOOTER
