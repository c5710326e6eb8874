"""Eager mode looks up what it found out before: the second and all later calls take another way than the first."""

import numpy as np
import pytest

import weft
from weft.compiler.ops import TABLE
from weft.compiler.ops.kinds import is_unknown
from weft.runtime.eager import plan, varied
from weft.runtime.eager.gate import apply
from weft.runtime.programs import fused
from weft.runtime.programs.large import LargeProgram
from weft.runtime.state.aligned import is_same_memory
from weft.runtime.state.tensor import Tensor, tensor_of

TIMES = 4  # a plan is made in the second call, its derivative in the second backward; then native code has it


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)


def bits(array):
    return array.dtype, array.shape, array.strides, array.tobytes()


def samples_of(op):
    return [(k, s) for k, s in enumerate(op.samples() if op.samples else ())]


def operands_of(op, sample, requires_grad):
    """Leaves but for those whose derivative nobody has written."""
    made = []
    for k, x in enumerate(sample.operands):
        if isinstance(x, np.ndarray):
            x = tensor_of(x.copy())
            x._requires_grad = requires_grad and x.dtype.is_floating_point and not is_unknown(op, k)
        made.append(x)
    return made


def forward(op, sample):
    operands = operands_of(op, sample, False)
    out = apply(op, tuple(operands), sample.attributes)
    base = next((k for k, x in enumerate(operands) if out._base is x), None)
    return bits(out.array), base, [bits(x.array) for x in operands if isinstance(x, Tensor)]


def gradients(op, sample):
    operands = operands_of(op, sample, True)
    out = apply(op, tuple(operands), sample.attributes)
    if not out.requires_grad:
        return None
    rng = np.random.default_rng(0)
    cotangent = tensor_of(rng.standard_normal(out.shape).astype(out.dtype.numpy))
    out.backward(cotangent)
    leaves = [x for x in operands if isinstance(x, Tensor)]
    found = [None if x.grad is None else bits(x.grad.array) for x in leaves]
    owned = [x.grad is None or not is_same_memory(x.grad.array, cotangent.array) for x in leaves]
    return type(out.grad_fn).__name__, found, owned, bits(cotangent.array)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_later_calls_give_the_same_bits_as_the_first(name):
    op = TABLE[name]
    for k, sample in samples_of(op):
        for what in (forward, gradients):
            first, *later = [what(op, sample) for _ in range(TIMES)]
            assert all(x == first for x in later), (name, k, what.__name__)


def test_errors_are_the_same_every_time():
    x, y = weft.ones(2, 3), weft.ones(4)
    messages = []
    for _ in range(TIMES):
        with pytest.raises(RuntimeError) as error:
            x + y
        messages.append(str(error.value))
    assert len(set(messages)) == 1 and "do not broadcast" in messages[0]
    for _ in range(TIMES):
        with pytest.raises(TypeError, match="needs a Tensor|Python number|expected"):
            weft.add(x, "y")


def test_attributes_that_are_equal_but_not_alike_are_told_apart():
    x = weft.tensor([1, 2, 3])
    for _ in range(TIMES):
        assert (x**2).dtype is weft.int64 and (x**2.0).dtype is weft.float32
        for value in (0.0, -0.0):
            assert np.signbit(weft.full((2,), value).numpy()).all() == np.signbit(value)


def test_numbers_are_read_in_every_call():
    x = weft.tensor([1.0, -2.0], requires_grad=True)
    for slope in (0.1, 0.5, 0.1, 0.25, 2.0):
        y = weft.nn.functional.leaky_relu(x, slope) * slope
        (gradient,) = weft.autograd.grad(y.sum(), [x])
        assert y.tolist() == [np.float32(slope), np.float32(-2.0) * np.float32(slope) * np.float32(slope)]
        assert gradient.tolist() == [np.float32(slope), np.float32(slope) * np.float32(slope)]


def test_a_result_of_a_composite_that_is_no_view_has_memory_of_its_own():
    x, one = weft.ones(1, 3), weft.ones(3)
    for _ in range(TIMES):
        y = weft.matmul(x, one)
        y.add_(1.0)
        assert x.tolist() == [[1.0, 1.0, 1.0]] and one.tolist() == [1.0, 1.0, 1.0] and y.tolist() == [4.0]


def test_views_are_views_every_time():
    x = weft.zeros(2, 3)
    for k in range(TIMES):
        x.reshape(3, 2)[0].add_(1.0)
        x.t()[0, 0].mul_(1.0)
        assert x[0, :2].tolist() == [k + 1.0, k + 1.0]


def test_a_change_in_place_is_noticed_every_time():
    for make in (lambda x: x.exp(), lambda x: x * x):
        for _ in range(TIMES):
            x = weft.ones(3, requires_grad=True) * 2.0
            y = make(x)
            (y if make(x).grad_fn.name().startswith("Exp") else x).detach().add_(1.0)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()


def test_memory_given_by_data_may_have_another_shape():
    for k in range(TIMES):
        x = weft.ones(3, requires_grad=True)
        y = x * 2.0
        x.data = weft.ones(3) * float(k)
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_hooks_of_nodes_may_give_gradients_of_another_type():
    for _ in range(TIMES):
        x = weft.ones(3, requires_grad=True)
        y = x * 2.0
        y.grad_fn.register_prehook(lambda gradients: (gradients[0].double() * 3.0,))
        y.sum().backward()
        assert x.grad.dtype is weft.float32 and x.grad.tolist() == [6.0, 6.0, 6.0]


def test_gradients_do_not_share_memory():
    for _ in range(TIMES):
        x, y = weft.ones(3, requires_grad=True), weft.ones(3, requires_grad=True)
        cotangent = weft.ones(3)
        (x + y).backward(cotangent)
        x.grad.add_(1.0)
        assert y.grad.tolist() == [1.0] * 3 and cotangent.tolist() == [1.0] * 3


def test_second_derivatives_after_first_ones():
    for _ in range(TIMES):
        x = weft.tensor([0.5, 2.0], requires_grad=True)
        (first,) = weft.autograd.grad((x * x * x).sum(), [x], create_graph=True)
        (second,) = weft.autograd.grad(first.sum(), [x])
        assert second.tolist() == [3.0, 12.0]
        (weft.nn.functional.softmax(x, 0) * x).sum().backward()


def test_the_default_type_is_part_of_what_is_looked_up():
    x = weft.tensor([1, 2])
    try:
        for _ in range(TIMES):
            for d in (weft.float32, weft.float64):
                weft.set_default_dtype(d)
                assert weft.exp(x).dtype is d and (x / 2).dtype is d and x.softmax(0, dtype=d).dtype is d
    finally:
        weft.set_default_dtype(weft.float32)


def test_subclasses_and_stripes_of_memory():
    base = weft.arange(12, dtype=weft.float32).reshape(3, 4)
    for _ in range(TIMES):
        for x in (base.t(), base[:, ::2], base[1], weft.nn.Parameter(base.clone())):
            expected = np.exp(np.float64(1)) if x is None else x.detach().clone()
            assert (x + 0.0).tolist() == expected.tolist() and (x + 0.0).is_contiguous()
            assert type(x + 0.0) is Tensor


# --- large operands: compiled programs in place of steps -----------------------------------------------------------
_FUSED = {
    "gelu": lambda x, _: weft.nn.functional.gelu(x),
    "softmax": lambda x, _: x.softmax(1),
    "log_softmax": lambda x, _: x.log_softmax(0),
    "layer_norm": lambda x, _: weft.nn.functional.layer_norm(x, (300,)),
    "var": lambda x, _: x.var(1),
    "cross_entropy": weft.nn.functional.cross_entropy,
    "linear": lambda x, _: weft.nn.functional.linear(x, x[:5].detach(), x[:5, 0].detach()),
    "leaky_relu": lambda x, _: weft.nn.functional.leaky_relu(x, 0.3),
}


@pytest.mark.parametrize("name", _FUSED)
def test_a_program_takes_the_place_of_steps_with_the_same_bits(monkeypatch, name):
    monkeypatch.setattr(fused, "FEWEST_ELEMENTS", 1)
    made = []
    monkeypatch.setattr(fused, "LargeProgram", lambda *args: made.append(name) or LargeProgram(*args))
    found = []
    for before in (1 << 60, 0):
        monkeypatch.setattr(fused, "ELEMENTS_BEFORE", before)
        plan.forget()
        rng = np.random.default_rng(3)
        array, y = rng.standard_normal((40, 300)).astype(np.float32), weft.tensor(rng.integers(0, 300, 40))
        for _ in range(TIMES):
            for x in (weft.tensor(array), weft.tensor(array.T.copy()).t()):
                x.requires_grad_()
                out = _FUSED[name](x, y)
                gradient = np.random.default_rng(4).standard_normal(out.shape).astype(np.float32)
                out.backward(weft.tensor(gradient))
                found.append((bits(out.detach().numpy()), bits(x.grad.numpy())))
    plan.forget()
    assert len(set(found)) == 1 and made


def test_an_index_out_of_range_is_the_error_of_eager_mode_in_a_program_too(monkeypatch):
    monkeypatch.setattr(fused, "FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(fused, "ELEMENTS_BEFORE", 0)
    plan.forget()
    x = weft.zeros(40, 300)
    messages = set()
    for _ in range(TIMES):
        assert weft.nn.functional.cross_entropy(x, weft.full((40,), 299)).shape == ()
        with pytest.raises(IndexError) as error:
            weft.nn.functional.cross_entropy(x, weft.full((40,), 300))
        messages.add(str(error.value))
    plan.forget()
    assert len(messages) == 1


def plans_of(name):
    return [p for p in plan._plans.values() if p.op.name == name]


def test_an_op_that_comes_with_other_shapes_has_plans_at_once():
    plan.forget()
    # Shapes that no other test has: native code may know those.
    for n in (3, 4, 5):
        assert weft.zeros(n, 1, 1, 1, 7).exp().sum() == 7 * n
    assert [p.meta.shape[0] for p in plans_of("exp")] == [4, 5]
    # Not where a number is another one each time.
    for n in (2.5, 3.5, 4.5):
        weft.full((2, 1, 1, 1, 7), 4.0).pow(n)
    assert plans_of("power") == []


def test_of_many_shapes_native_code_is_told_of_those_that_come_often(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 8)
    monkeypatch.setattr(varied, "CALLS_BEFORE", 1 << 20)  # before there is one plan for all
    plan.forget()
    few, many = plan._FEW_SHAPES, plan._FEW_SHAPES + 4
    for n in range(1, many + 1):
        x = weft.full((n, 1, 1, 1, 1, 3), 0.5)
        expected = np.full(x.shape, np.exp(np.float32(0.5))).tolist()
        assert [x.exp().tolist() for _ in range(9)] == [expected] * 9
    assert [p.native is not None for p in plans_of("exp")] == [True] * few + [False] * 4
    for _ in range(plan._CALLS_OF_MANY * 7):
        x.exp()
    assert [p.native is not None for p in plans_of("exp")] == [True] * few + [False] * 3 + [True]


def test_small_zeros_and_ranges_are_those_of_large_ones():
    """They are made without an op, which is looked for by shape."""
    for dtype in (weft.float32, weft.float64, weft.int64, weft.bool, weft.float16, weft.complex64, weft.int8):
        few, many = weft.zeros(3, 2, dtype=dtype), weft.zeros(3 << 12, 2, dtype=dtype)
        assert few.dtype is many.dtype is dtype and few.tolist() == many[:3].tolist()
        few[1, 1] = 1
        assert weft.zeros(3, 2, dtype=dtype).tolist() == many[:3].tolist()
    assert weft.zeros(2, 0).shape == (2, 0) and weft.zeros(()).item() == 0.0
    x = weft.zeros(3, requires_grad=True)
    (x * weft.arange(3)).sum().backward()
    assert x.is_leaf and x.grad.tolist() == [0.0, 1.0, 2.0]
    assert weft.arange(2, 11, 3).tolist() == weft.arange(2, 2 + 3 * (1 << 13), 3)[:3].tolist() == [2, 5, 8]
    assert weft.arange(0).dtype is weft.int64 and weft.arange(5, 5).tolist() == []
    with weft.inference_mode():
        assert weft.zeros(2).is_inference() and weft.arange(3).is_inference()


def test_views_of_other_parts_every_time():
    x = weft.arange(24.0).reshape(2, 3, 4).requires_grad_()
    found = [x[i, j : j + 2].t() for i in range(2) for j in range(2)]
    assert [y._base is x or y._base is x._base for y in found] == [True] * 4
    sum(k * y.sum() for k, y in enumerate(found, 1)).backward()
    rows = [[1, 3, 2], [3, 7, 4]]
    assert x.grad.tolist() == [[[float(n)] * 4 for n in row] for row in rows]
    with weft.no_grad():
        found[0].zero_()
    assert x[0, :2].sum() == 0 and x._version > 0
    with pytest.raises(RuntimeError, match="shape"):
        x.reshape(5, 5)
