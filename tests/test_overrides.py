"""`__torch_function__`: types that are no tensors, subclasses of Tensor, modes."""

import copy
import pickle
import subprocess
import sys

import pytest
from override_programs import PROGRAMS

import weft
import weft.nn.functional as F
from weft import nn, overrides
from weft.nn.functional import softmax

ASKS = True


class Noting(weft.Tensor):
    """Counts what it is asked."""

    asked = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Noting.asked.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


class Counting(overrides.TorchFunctionMode):
    n = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.n += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_see_what_they_see_in_pytorch(name):
    torch = pytest.importorskip("torch")
    assert PROGRAMS[name](weft) == PROGRAMS[name](torch)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run(name):
    assert PROGRAMS[name](weft)


def test_keys_that_were_there_before_are_those_that_are_asked_about():
    """Tables are made in the bodies of classes: `weft.Tensor.add` and `weft.add` are two keys before the first class
    that has a say is there, and after it."""
    code = (
        "import weft\n"
        "keys = {weft.add: 1, weft.Tensor.add: 2, weft.Tensor.matmul: 3, weft.matmul: 4, weft.nn.functional.relu: 5}\n"
        "class Duck:\n"
        "    @classmethod\n"
        "    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
        "        return keys.get(func)\n"
        "x, d = weft.ones(2, 2), Duck()\n"
        "def seen():\n"
        "    return [weft.add(x, d), x + d, x.add(d), x @ d, weft.matmul(x, d), weft.nn.functional.relu(d)]\n"
        "print(seen())\n"
        "for _ in range(3000): y = x + x, x.sum(0), x.mean(), x[0], x.add_(0), x.reshape(4)\n"
        "print(seen(), weft.Tensor.add in keys)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["[1, 2, 2, 3, 4, 5]", "[1, 2, 2, 3, 4, 5] True"]


def test_functions_that_were_there_before_ask():
    """The module of this test has `softmax` from a time at which no class had a say."""
    printed = subprocess.run([sys.executable, "-c", _EARLY], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "True", "True", "softmax", "mean", "add", "True"]
    assert softmax is F.softmax


_EARLY = """
import weft
from weft.nn.functional import softmax
from weft import doors
mean, answers = weft.mean, {weft.add: "add"}
print(bool(doors.opened))
class Duck:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return answers.get(func) or func.__name__
print(bool(doors.opened), mean is weft.mean)
print(softmax(Duck()), mean(Duck()), weft.add(Duck(), 1))
import weft.linalg
print(weft.linalg.norm(Duck()) == "norm")
"""


def test_nobody_is_asked_as_long_as_nobody_has_a_say():
    code = (
        "import builtins, weft, weft.nn, weft.optim, weft.overrides, weft.distributions\n"
        "from weft import doors\n"
        "class Off(weft.nn.Parameter): pass\n"
        "class Off(weft.Tensor): __torch_function__ = weft._C._disabled_torch_function_impl\n"
        "print(bool(doors.opened), type(weft.nn.Linear(2, 2).weight * 2).__name__)\n"
        "class Plain(weft.Tensor): pass\n"
        "print(bool(doors.opened), builtins.__build_class__.__module__)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "Tensor", "True", "builtins"]


def test_signatures_and_names_stay():
    import inspect

    assert list(inspect.signature(weft.add).parameters)[:2] == ["input", "other"]
    assert weft.add.__name__ == weft.Tensor.add.__name__ == "add" and weft.add is not weft.Tensor.add
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'other'"):
        weft.add(weft.ones(1))


def compiled_and_eager(function, *args, calls=6):
    """[(result, what was asked)] of calls of a compiled function, and of the function."""
    both = []
    for f in (weft.compile(function), function):
        rows = []
        for _ in range(calls):
            Noting.asked.clear()
            result = f(*args)
            asked = list(Noting.asked)
            with weft._C.DisableTorchFunction():
                rows.append((type(result), result.tolist(), asked))
        both.append(rows)
    return both


def test_a_compiled_call_asks_as_well():
    lin, x = nn.Linear(3, 2), weft.ones(4, 3)
    s, w = weft.ones(2).as_subclass(Noting), weft.ones(2)

    def step(x, w):
        return ((lin(x) * w).tanh()).sum()

    for args in ((x, s), (x.as_subclass(Noting), w), (x, w)):
        compiled, eager = compiled_and_eager(step, *args)
        assert compiled == eager
    compiled, eager = compiled_and_eager(lambda x: (lin(x) * s).exp(), x)
    assert compiled == eager and eager[0][0] is Noting


def test_calls_that_are_replayed_do_not_take_a_subclass_for_a_tensor():
    lin, x = nn.Linear(3, 2), weft.ones(4, 3)
    step = weft.compile(lambda x: lin(x).tanh().sum())
    for _ in range(70):
        step(x)
    assert type(step(x.as_subclass(Noting))) is Noting and type(step(x)) is weft.Tensor
    assert "__torch_function__ of a class or a mode was asked (Noting)" in str(step.explain())


def test_modes_and_compiled_calls():
    x = weft.ones(3)

    def inside(x):
        y = x * 2
        with Counting() as counting:
            y = y + 1
        counted.append(counting.n)
        return (y * 3).sum()

    step, counted = weft.compile(inside), []
    assert [step(x).item() for _ in range(4)] == [27] * 4 and counted == [1] * 4
    double = weft.compile(lambda x: (x * 2).sum())
    double(x)
    with Counting() as counting:
        assert double(x).item() == 6
    assert counting.n == 3 and "in a block with Counting" in str(step.explain())
    assert "TorchFunctionMode" in str(double.explain())


def test_training_with_parameters_of_a_subclass():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            weft.manual_seed(0)
            self.w, self.last = nn.Parameter(weft.randn(3).as_subclass(Noting)), nn.Linear(3, 1)

        def forward(self, x):
            return self.last(x * self.w).tanh()

    def trained(wrap):
        net = Net()
        optimizer = weft.optim.Adam(net.parameters(), lr=0.1)

        @wrap
        def step(x, y):
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        weft.manual_seed(1)
        x, y = weft.randn(8, 3), weft.randn(8, 1)
        return [step(x, y).item() for _ in range(8)], net.w.tolist()

    assert trained(weft.compile) == trained(lambda f: f)


def test_copies_and_files_keep_the_class():
    x = Noting([1.0, 2.0]).requires_grad_()
    x.label = "m"
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(y) is Noting and y.requires_grad and y.label == "m" and y.tolist() == [1, 2]
    p = copy.deepcopy(nn.Parameter(x))
    assert type(p) is Noting and isinstance(p, nn.Parameter) and not isinstance(x, nn.Parameter)


def test_a_mode_ends_and_nothing_is_left():
    before = dict(vars(weft.Tensor))
    with pytest.raises(ZeroDivisionError), Counting():
        weft.ones(1) / (1 // 0)
    assert dict(vars(weft.Tensor)) == before and overrides._get_current_function_mode() is None


def test_other_threads_are_not_asked():
    import threading

    found = []
    with Counting() as counting:
        thread = threading.Thread(target=lambda: found.append((weft.ones(2) + 1).tolist()))
        thread.start()
        thread.join()
        assert counting.n == 0 and found == [[2, 2]]
        weft.ones(1)
    assert counting.n == 1


def test_an_answer_of_nobody_names_the_function():
    class Silent:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match=r"Multiple dispatch failed for '.*mul'; .*no implementation found .*Silent"):
        weft.mul(Silent(), weft.ones(1))

    class Method:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return 7

    with pytest.warns(DeprecationWarning, match="plain method is deprecated"):
        assert weft.ones(1) + Method() == 7


def test_properties_ask_that_native_code_answers_by_now():
    code = (
        "import weft\n"
        "from weft.runtime.eager import plan\n"
        "from weft.runtime.replay import native_making\n"
        "native_making.PAYS_AFTER, plan.CALLS_BEFORE_NATIVE = 0, 1\n"
        "x = weft.ones(6, 3)\n"
        "for _ in range(9): (x * x).sum()\n"
        "class Mode(weft.overrides.TorchFunctionMode):\n"
        "    def __torch_function__(self, func, types, args=(), kwargs=None):\n"
        "        print(func == weft.Tensor.shape.__get__, type(weft.Tensor.shape).__name__)\n"
        "        return func(*args, **(kwargs or {}))\n"
        "with Mode(): x.shape\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout in ("True getset_descriptor\n", "True property\n"), done.stdout
