"""Operators do the same in native code and in Python, whatever stands beside a tensor (native_operators.py)."""

import operator

import numpy as np
import pytest

import weft
from weft import functions
from weft.compiler.ops import TABLE
from weft.runtime.replay import native
from weft.runtime.state import marks

OPERATORS = {
    operator.add: weft.add,
    operator.sub: weft.sub,
    operator.mul: weft.mul,
    operator.truediv: weft.div,
    operator.lt: weft.lt,
    operator.le: weft.le,
    operator.eq: weft.eq,
    operator.ne: weft.ne,
    operator.gt: weft.gt,
    operator.ge: weft.ge,
}
TURNED = {operator.lt: weft.gt, operator.le: weft.ge, operator.gt: weft.lt, operator.ge: weft.le}
TURNED |= {operator.eq: weft.eq, operator.ne: weft.ne}
TIMES = 80  # from some dozens of calls on they are native


@pytest.fixture(autouse=True)
def operators_are_native():
    x = weft.ones(2)
    for _ in range(TIMES):
        x + x
    assert (type(weft.Tensor.__add__) is type(int.__add__)) == (native.layout() is not None)


def beside_a_tensor():
    tensors = [weft.tensor([0.5, -2.0]), weft.nn.Parameter(weft.tensor([2.0, 8.0])), weft.tensor([3, 4])]
    tensors += [weft.ones(2, 1), weft.ones(2, dtype=weft.float64)]
    return [*tensors, 3, -0.0, 1.5, 2**40, 1j, np.float64(0.1), np.int32(7), np.array([1.0, 4.0])]


def same(x, y):
    return x.dtype is y.dtype and x.requires_grad == y.requires_grad and repr(x.tolist()) == repr(y.tolist())


@pytest.mark.parametrize("apply", OPERATORS, ids=lambda apply: apply.__name__)
def test_whatever_stands_beside_a_tensor(apply):
    function = OPERATORS[apply]
    for x in (weft.tensor([1.5, 2.5]), weft.tensor([1.5, 2.5], requires_grad=True), weft.tensor([6, 8])):
        for other in beside_a_tensor():
            if apply in TURNED and isinstance(other, complex):
                continue  # has no order
            compiled = weft.compile(lambda x, y: apply(x, y))
            forward = function(x, functions.operand(other))
            for _ in range(4):
                assert same(apply(x, other), forward) and same(compiled(x, other), forward)
            if isinstance(other, np.ndarray):
                continue  # NumPy's operator
            first = functions.operand(other)
            if apply in TURNED:
                reflected = TURNED[apply](x, first)
            elif apply is operator.truediv and not isinstance(first, weft.Tensor):
                reflected = weft.mul(weft.reciprocal(x), first)
            else:
                reflected = function(first if isinstance(first, weft.Tensor) else weft.tensor(first), x)
            for _ in range(4):
                got = apply(other, x)
                assert repr(got.tolist()) == repr(reflected.tolist()) and same(compiled(other, x), got)


def test_the_graph_has_the_operands_in_the_order_of_python():
    x = weft.ones(2, requires_grad=True)
    for _ in range(TIMES):
        assert [y.grad_fn.name() for y in (2 - x, x - 2)] == ["RsubBackward1", "SubBackward0"]
        (gradient,) = weft.autograd.grad((2 - x).sum() + (2 * x + (1 + x)).sum(), x)
        assert gradient.tolist() == [2.0, 2.0]


def test_products_of_matrices():
    a, b = weft.randn(2, 3), weft.randn(3, 2)
    compiled = weft.compile(lambda a, b: -(a @ b))
    expected = weft.matmul(a, b).tolist()
    for _ in range(4):
        assert (a @ b).tolist() == expected and (-compiled(a, b)).tolist() == expected
        with weft.autocast("cpu", dtype=weft.bfloat16):
            assert (a @ b).dtype is weft.bfloat16 and compiled(a, b).dtype is weft.bfloat16
        with pytest.raises(TypeError, match="must be Tensor, not int"):
            a @ 2
        with pytest.raises(TypeError):
            2 @ a
        assert (a @ weft.nn.Parameter(b)).requires_grad


def test_comparisons_with_what_is_no_operand():
    x, y = weft.ones(()), weft.ones(())
    assert (x == None) is False and (x != "text") is True and (x in [y]) and x != object()  # noqa: E711
    assert len({x, y}) == 2 and hash(x) == hash(x)
    with pytest.raises(TypeError, match="'<' not supported between instances of 'Tensor' and 'str'"):
        operator.lt(x, "text")
    with pytest.raises(TypeError, match="'>=' not supported between instances of 'NoneType' and 'Tensor'"):
        operator.ge(None, x)
    assert x.__lt__("text") is NotImplemented and (x < 2) is not NotImplemented


def test_objects_that_know_tensors_are_asked():
    class Unit:
        def __radd__(self, other):
            return ("after", other)

        def __add__(self, other):
            return ("before", other)

        __rmul__ = __radd__

    x, unit = weft.ones(2), Unit()
    assert (x + unit)[0] == "after" == (x * unit)[0] and (unit + x)[0] == "before"
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for -: 'Tensor' and 'Unit'"):
        x - unit
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for -: 'Unit' and 'Tensor'"):
        unit - x
    assert x.__add__("text") is NotImplemented and x.__radd__(None) is NotImplemented
    with pytest.raises(TypeError):
        [1.0] + x


def test_subclasses_of_tensor_have_their_own_operators():
    class Logged(weft.nn.Parameter):
        def __add__(self, other):
            return ("added", super().__add__(other).tolist())

        def __rmul__(self, other):
            return ("multiplied", other)

    x, logged = weft.ones(2), Logged(weft.ones(2))
    for _ in range(3):
        assert logged + x == ("added", [2.0, 2.0]) == logged + 1
        assert (x + logged).tolist() == [2.0, 2.0] == (1 + logged).tolist()
        assert x * logged == ("multiplied", x) and 3 * logged == ("multiplied", 3)
        assert (logged * 3).tolist() == [3.0, 3.0]


def test_an_operator_that_somebody_replaces_is_the_one_that_is_called(monkeypatch):
    x = weft.ones(2)
    compiled = weft.compile(lambda x: x + 1)
    for _ in range(4):
        assert compiled(x).tolist() == [2.0, 2.0]
    with monkeypatch.context() as context:
        context.setattr(weft.Tensor, "__add__", lambda self, other: self.mul(10))
        assert (x + 1).tolist() == [10.0, 10.0] == compiled(x).tolist() and (1 + x).tolist() == [2.0, 2.0]
    assert (x + 1).tolist() == [2.0, 2.0] == compiled(x).tolist()


def test_errors_of_the_op_come_through():
    for _ in range(3):
        with pytest.raises(Exception, match="do not broadcast"):
            weft.ones(2) + weft.ones(3)
    assert (weft.ones(2) + 1).tolist() == [2.0, 2.0]


def test_an_operator_knows_its_op():
    assert marks.operators["mul"] == (TABLE["mul"], marks.TURNED)
    assert marks.operators["sub"] == (TABLE["sub"], marks.AS_IT_STANDS)
    assert marks.operators["truediv"] == (TABLE["div"], marks.IN_PYTHON)
