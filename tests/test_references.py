"""Reference counts are compared in one module, in forms measured there: no interpreter's way of counting is guessed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.runtime.state import references

ROOT = Path(__file__).parent.parent
SOURCES = sorted(p for package in ("compiler", "runtime", "frontend") for p in (ROOT / package).rglob("*.py"))


# --- what is asked ----------------------------------------------------------------------------------------------------
def test_a_list_of_things_of_which_some_are_held():
    items = [object() for _ in range(5)]
    kept = items[1], items[3]
    assert references.held(items, range(5)) == [1, 3]
    assert references.held(items, (4, 3)) == [3]
    assert [references.is_held(items, k) for k in range(5)] == [False, True, False, True, False]
    assert [references.is_held(items, k, known=1) for k in (1, 2)] == [False, False]
    again = [items[1]]
    assert references.is_held(items, 1, known=1) and again[0] is kept[0]


def test_the_array_behind_a_view():
    whole = np.zeros(4)
    view, lonely = whole[1:], np.zeros(4)[1:]
    assert references.is_base_held(view) and not references.is_base_held(lonely)
    del whole
    assert not references.is_base_held(view)
    base = lonely.base
    assert references.is_base_held(lonely) and base.size == 4


def test_the_first_that_nobody_holds():
    items = [object() for _ in range(3)]
    first = references.first_unheld(items)
    second = references.first_unheld(items)
    assert first is items[0] and second is items[1]
    third = references.first_unheld(items)
    assert third is items[2] and references.first_unheld(items) is None
    del second
    assert references.first_unheld(items) is items[1]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_picked_from_a_list(n):
    from weft.runtime.replay.usual_end import picker

    items = [object() for _ in range(8)]
    kept = items[0]
    counts = references.counts_of_picked(picker(list(range(n)))(items))
    assert [c > references.PICKED for c in counts] == [True] + [False] * (n - 1) and kept is items[0]


# --- that it is asked there alone -------------------------------------------------------------------------------------
def _getrefcount_calls(tree):
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", None) == "getrefcount"]


def test_nobody_else_looks_at_counts():
    found = [p for p in SOURCES if re.search(r"\bgetrefcount\b", p.read_text())]
    assert [p.relative_to(ROOT).as_posix() for p in found] == ["runtime/state/references.py"]


def test_no_count_is_compared_with_a_number():
    tree = ast.parse((ROOT / "runtime/state/references.py").read_text())
    measured = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    }
    comparisons = [n for n in ast.walk(tree) if isinstance(n, ast.Compare) and _getrefcount_calls(n.left)]
    assert len(comparisons) == 4
    for comparison in comparisons:
        (right,) = comparison.comparators
        names = {n.id for n in ast.walk(right) if isinstance(n, ast.Name)}
        assert names & measured.keys() and not any(isinstance(n, ast.Constant) for n in ast.walk(right))


# --- interpreters that count otherwise --------------------------------------------------------------------------------
# CPython 3.14 reads a local variable without counting the reference on its stack; another may count all differently.
# A function in Python adds one reference to what it passes on, its argument.
COUNTING = {
    "all": """
import sys
real = sys.getrefcount
sys.getrefcount = lambda x: real(x) - 2
""",
    "more": """
import sys
real = sys.getrefcount
sys.getrefcount = lambda x: real(x) + 2
""",
    "variables": """
import dis, sys
real = sys.getrefcount

def count(x):
    code, now = sys._getframe(1).f_code, sys._getframe(1).f_lasti
    before = [i.opname for i in dis.get_instructions(code) if i.offset < now and i.opname not in ("CACHE", "PRECALL")]
    return real(x) - 1 - before[-1].startswith("LOAD_FAST")

sys.getrefcount = count
""",
}

HELD_RESULTS = """
import numpy as np
import weft

def same(kept, wanted):
    assert [float(k.numpy().ravel()[0]) for k in kept] == wanted, (kept, wanted)
    assert all((k.numpy() == k.numpy().ravel()[0]).all() for k in kept)

def large(value):
    return weft.ones(5000) * value

# What a user holds, by a name, in a list or as NumPy array, is not the next call's.
double = weft.compile(lambda x: x * 2.0)
kept = [double(large(float(k))) for k in range(12)]
same(kept, [2.0 * k for k in range(12)])
arrays = [double(large(float(k))).numpy() for k in range(12)]
assert [a[0] for a in arrays] == [2.0 * k for k in range(12)]
one = double(large(1.0))
other = double(large(2.0))
same([one, other], [2.0, 4.0])

def read_in_between(x):
    y = x * 2.0
    assert y.sum().item() == 5000 * 2.0 * x[0].item()
    z = y + 1.0
    return y, z

several = weft.compile(read_in_between)
kept = [t for k in range(8) for t in several(large(float(k)))]
same(kept, [v for k in range(8) for v in (2.0 * k, 2.0 * k + 1.0)])

# What nobody holds is used again.
places = set()
for k in range(40):
    places.add(double(large(float(k))).numpy().ctypes.data)
assert len(places) < 10, places

# The engine makes no copy of what only it holds, and a copy of what somebody else does.
from weft.runtime.eager import owned
copies, clone = [], owned.clone
owned.clone = lambda x: copies.append(x) or clone(x)
x = large(1.0).requires_grad_()
(x * x).sum().backward()
assert not copies
x.grad = None
weft.compile(lambda x: (x * x).exp().sum())(x).backward()
assert not copies

class Held(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        Held.gradient = g * 3.0
        return Held.gradient

x.grad = None
Held.apply(x).sum().backward()
# By native code, once that is there.
assert len(copies) <= 1 and not np.shares_memory(x.grad.numpy(), Held.gradient.numpy())
x.grad.add_(1.0)
same([Held.gradient, x.grad], [3.0, 4.0])

# Changed in place while a view that somebody holds sees it.
def change(x):
    y = x * 2.0
    view = y[1:]
    y.add_(1.0)
    return y, view

for f in (change, weft.compile(change)):
    for k in range(6):
        same(f(large(float(k))), [2.0 * k + 1.0] * 2)

# Memory that a NumPy array sees as well.
memory = np.zeros(5000, np.float32)
shared = weft.from_numpy(memory)
increase = weft.compile(lambda t: t.add_(1.0))
for k in range(6):
    increase(shared)
    assert memory[0] == k + 1

# Nodes for the living results of a call with hooks.
seen = []

def with_hook(x):
    y = x * 2.0
    y.register_hook(lambda g: seen.append(float(g[0])))
    z = y * 3.0
    return z

f = weft.compile(with_hook)
for k in range(6):
    f(x).sum().backward()
assert seen == [3.0] * 6, seen
print("held")
"""


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("how", ["as it is", *COUNTING])
def test_what_is_held_is_not_overwritten(how, native):
    program = COUNTING.get(how, "") + HELD_RESULTS
    environment = {**os.environ, "WEFT_NATIVE_REPLAY": native}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr[-3000:]


def test_native_replay_is_found_whatever_the_interpreter_counts():
    program = COUNTING["all"] + "from weft.runtime.replay import native\nprint(native.layout() is not None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(weft.runtime.replay.native.layout() is not None)], done.stderr[-3000:]
