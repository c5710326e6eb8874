"""An elementwise op is one place: its entry spells its names, from which all its public forms are made."""

import inspect

import numpy as np
import pytest

import weft
from weft.compiler.ops import TABLE, samples
from weft.compiler.ops.arithmetic import abs_, add, div, mul
from weft.compiler.ops.kinds import alias, elementwise, floating
from weft.compiler.ops.table import Spelling, unregister
from weft.runtime.code.cache import default_cache
from weft.spelled import names_of


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Code of ops from outside weft's sources is not kept: the next version of this file would meet it."""
    monkeypatch.setenv("WEFT_CACHE", "0")
    default_cache.cache_clear()
    yield
    default_cache.cache_clear()


def softsign_vjp(g, out, x):
    denominator = add(abs_(x), 1.0)
    return div(g, mul(denominator, denominator))


@pytest.fixture
def soft_sign():
    yield elementwise(
        "soft_sign",
        1,
        floating,
        vjp=(softsign_vjp,),
        lower=lambda b, x: b.div(x, b.add(b.abs(x), b.const(1, x.type))),
        samples=samples.unary(0.25, 2.0),
        doc="x / (1 + |x|).",
        spelling=Spelling("soft_sign squash", special="soft_sign"),
    )
    unregister("soft_sign")


@pytest.fixture
def sum_times():
    """Of two operands, the first of which is a tensor: (x + y) x, by its parts."""
    yield alias(
        "sum_times",
        lambda x, y: mul(add(x, y), x),
        samples=samples.binary(),
        spelling=Spelling(operands=2, numbers="other"),
    )
    unregister("sum_times")


def test_one_entry_makes_every_form(soft_sign):
    x = weft.tensor([-1.0, 0.5, 3.0])
    expected = x / (1 + x.abs())
    assert weft.soft_sign is weft.squash is weft.special.soft_sign
    for found in (weft.soft_sign(x), weft.squash(input=x), x.soft_sign(), x.squash(), weft.special.soft_sign(x)):
        assert found.equal(expected)
    out = weft.empty(3)
    assert weft.soft_sign(x, out=out) is out and out.equal(expected)
    changed = x.clone()
    assert changed.soft_sign_() is changed and changed.equal(expected)
    assert changed.squash_().equal(weft.soft_sign(expected))
    assert {"soft_sign", "squash"} <= set(dir(weft)) and "squash_" in dir(x)


def test_its_gradients_and_programs(soft_sign):
    def step(x):
        y = x * 2
        y.soft_sign_()
        loss = (weft.soft_sign(x) + x.squash() * y).sum()
        loss.backward()
        return loss

    def run(function):
        x = weft.tensor([-1.0, 0.5, 3.0], requires_grad=True)
        return function(x).item(), x.grad.tolist()

    expected, compiled = run(step), weft.compile(step)
    assert [run(compiled) for _ in range(4)] == [expected] * 4
    assert compiled.breaks == ()
    x = weft.tensor([-1.0, 0.5, 3.0], requires_grad=True)
    weft.soft_sign(x).sum().backward()
    assert x.grad.allclose(1 / (1 + x.abs()) ** 2)


def test_two_operands(sum_times):
    x, y = weft.tensor([0.5, 1.0]), weft.tensor([[2.0], [3.0]])
    expected = (x + y) * x
    assert weft.sum_times(x, y).equal(expected) and x.sum_times(other=y).equal(expected)
    assert weft.sum_times(x, 1).equal(weft.sum_times(x, weft.ones(2)))
    changed = y.expand(2, 2).clone()
    assert changed.sum_times_(x).equal(weft.sum_times(y, x))
    with pytest.raises(TypeError, match=r"argument 'input' \(position 1\) must be Tensor, not float"):
        weft.sum_times(1.0, x)
    assert str(inspect.signature(weft.sum_times)) == "(input, other, *, out=None)"


def test_errors_speak_of_the_name(soft_sign):
    with pytest.raises(TypeError, match=r"soft_sign\(\): argument 'input' must be Tensor, not float"):
        weft.soft_sign(1.0)
    with pytest.raises(RuntimeError, match="soft_sign: result type float32 can't be cast"):
        weft.soft_sign(weft.ones(2), out=weft.ones(2, dtype=weft.int64))
    with pytest.raises(RuntimeError, match="can't be cast"):
        weft.tensor([1, 2]).soft_sign_()


def test_documentation_comes_from_the_entry(soft_sign):
    text = weft.soft_sign.__doc__
    assert text.startswith("x / (1 + |x|). Element by element.") and "integers and bools are converted" in text


def test_names_go_with_the_entry():
    alias("twice", lambda x: add(x, x), spelling=Spelling("twice slice_inverse", special="twice"))
    assert weft.tensor([1.0]).twice().tolist() == [2.0] and weft.tensor([1.0]).slice_inverse().tolist() == [2.0]
    unregister("twice")
    for home in (weft, weft.special, weft.Tensor):
        assert not hasattr(home, "twice") and "twice" not in dir(home)
    # What is said of a name of PyTorch's that is missing is said again.
    with pytest.raises(AttributeError, match="Tensor.slice_inverse: PyTorch 2.13 has it, weft will not have it"):
        weft.ones(2).slice_inverse()


@pytest.mark.parametrize("name", ["relu", "Tensor", "round"])
def test_a_name_that_is_taken_is_refused(name):
    def entry():
        return alias("own_relu", abs_, spelling=Spelling(name, method=False, in_place=False))

    with pytest.raises(ValueError, match=f"op own_relu: weft has a '{name}' already; spell it otherwise"):
        entry()
    assert "own_relu" not in TABLE


# --- weft's own -------------------------------------------------------------------------------------------------------
SPELLED = [op for op in TABLE.values() if op.spelling]


def test_no_name_is_spelled_twice():
    names = [name for op in SPELLED for name in names_of(op)[0]]
    assert len(names) == len(set(names)) > 80


@pytest.mark.parametrize("name", ["exp", "erfc", "fmod", "igamma"])
def test_out_may_be_an_operand_and_not_a_part_of_one(name):
    x = weft.tensor([0.5, 1.5, 2.5])
    others = [weft.tensor([1.0, 2.0, 3.0])][: TABLE[name].spelling.operands - 1]
    function = getattr(weft, name)
    expected = function(x, *others)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        function(x[1:], *(y[1:] for y in others), out=x[:-1])
    assert function(x, *others, out=x) is x and x.equal(expected)


def test_out_of_a_value_that_is_not_computed_yet():
    """Whether memory overlaps does not make a compiled call compute early."""

    def f(x, out):
        weft.exp(x * 2, out=out)
        return weft.erfc(x[1:] + 1, out=x.new_empty(2)) + out[1:]

    x = weft.randn(3)
    out, compiled_out, compiled = weft.empty(3), weft.empty(3), weft.compile(f)
    expected = f(x, out)
    for _ in range(4):
        assert compiled(x, compiled_out).equal(expected) and compiled_out.equal(out)
    assert compiled.breaks == ()


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["acos", "logical_not", "bitwise_left_shift", "eq", "xlogy", "sinc"])
def test_in_place_forms_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    values = [1, 0, 2] if name.startswith("bitwise") else [0.25, 0.0, 0.75]

    def run(ns):
        x = ns.tensor(values)
        changed = getattr(x, f"{name}_")(*[ns.tensor(values)][: TABLE[name].spelling.operands - 1])
        assert changed is x
        return x.tolist(), str(x.dtype).partition(".")[2]

    found, expected = run(weft), run(torch)
    assert found[1] == expected[1] and found[0] == pytest.approx(expected[0])


def overlaps(call):
    try:
        call()
    except RuntimeError as error:
        return "refer to a single memory location" in str(error)
    return False


def test_results_over_a_part_of_an_operand_however_the_two_share_memory():
    x, array = weft.arange(6.0), np.arange(6.0)
    first, rest = weft.from_numpy(array), weft.from_numpy(array[1:])
    lent = weft.from_numpy(x.numpy()[1:])
    assert overlaps(lambda: weft.add(x[1:], 1, out=x[:-1])) and overlaps(lambda: weft.sub(x[1:], 1, out=x[:-1]))
    assert overlaps(lambda: weft.div(x[:5], 2, out=lent)) and overlaps(lambda: weft.exp(first[:5], out=rest))
    assert overlaps(lambda: weft.gather(x, 0, weft.arange(6), out=x.data))
    assert overlaps(lambda: weft.gather(x.detach(), 0, weft.arange(6), out=x))
    # The whole of it may be the result's, and what is apart is apart.
    assert not overlaps(lambda: weft.exp(x, out=x)) and not overlaps(lambda: weft.add(x[:3], 1, out=x[3:]))
    assert not overlaps(lambda: weft.mul(x, weft.ones(6), out=weft.empty(6)))


def _with_out(numbers):
    """(name, operands, out) of calls in which the result may be computed where it is wanted, and in which not."""
    x, y, row = weft.tensor(numbers), weft.tensor(numbers) * 2, weft.tensor(numbers[0])
    yield "mul", (x, y), weft.zeros(2, 3)
    yield "mul", (x, 0.5), weft.zeros(2, 3)
    yield "mul", (row, y), weft.zeros(2, 3)
    yield "mul", (row, row), weft.zeros(3)
    yield "exp", (x,), weft.zeros(2, 3)
    yield "exp", (x.t(),), weft.zeros(3, 2)
    yield "mul", (x, y), weft.zeros(3, 2).t()
    yield "mul", (x, y), weft.zeros(2, 3, dtype=weft.float64)
    yield "mul", (x.int(), 2), weft.zeros(2, 3)
    yield "lt", (x, y), weft.zeros(2, 3, dtype=weft.bool)
    yield "mul", (x, x), x
    yield "exp", (y,), y
    yield "mul", (row, y), y
    yield "exp", (weft.tensor(0.5),), weft.zeros(())
    whole = weft.zeros(4, 3)
    yield "mul", (x, y), whole[1:3]
    yield "mul", (x, whole[:2]), whole[2:]


def test_results_computed_where_they_are_wanted():
    numbers = [[0.5, -1.0, 2.0], [3.0, 0.25, 1.0]]
    for k in range(len([*_with_out(numbers)])):

        @weft.compile
        def written(operands, out, name):
            result = getattr(weft, name)(*operands, out=out)
            return result is out, out + 0

        for call in range(8):
            name, operands, out = [*_with_out(numbers)][k]
            wanted = getattr(weft, name)(*operands).to(out.dtype).tolist()
            version = out._version
            if call % 2:
                assert getattr(weft, name)(*operands, out=out) is out and out._version == version + 1
            else:
                is_out, copy = written(list(operands), out, name)
                assert is_out and copy.tolist() == wanted
            assert out.tolist() == wanted


def test_out_says_what_is_wrong_as_ever():
    x, w = weft.ones(3), weft.nn.Parameter(weft.ones(3))

    @weft.compile
    def written(x, y, out):
        weft.mul(x, y, out=out)
        return out * 1

    for _ in range(4):
        for call in (weft.mul, written):
            keyword = {} if call is written else {"out": weft.zeros(3)}
            place = (weft.zeros(3),) if call is written else ()
            with pytest.raises(RuntimeError, match="automatic differentiation"):
                call(x, w, *place, **keyword)
            assert written(x, x, weft.zeros(3)).tolist() == [1.0] * 3
        with weft.no_grad():
            assert written(x, w, weft.zeros(3)).tolist() == [1.0] * 3
        with pytest.raises(RuntimeError, match="do not broadcast|broadcast"):
            weft.mul(x, weft.ones(4), out=weft.zeros(4))
        with pytest.raises(RuntimeError, match="can't be cast"):
            weft.mul(x, x, out=weft.zeros(3, dtype=weft.int64))
        with pytest.raises(RuntimeError, match="single memory location"):
            weft.mul(weft.ones(3, 3), 2, out=weft.zeros(3, 1).expand(3, 3))
        with pytest.warns(UserWarning, match="was resized"):
            out = weft.zeros(2)
            weft.mul(x, x, out=out)
        assert out.shape == (3,)
    a = weft.ones(3)
    b = (a * w).detach()
    kept = w * b
    weft.mul(a, 2, out=b)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()
