"""In-place changes that native code makes do what Python does: bits, versions, errors, what is saved and shown."""

import numpy as np
import pytest

import weft
from weft.runtime.eager import plan
from weft.runtime.replay import eager_native, native

IS_NATIVE = native.layout() is not None
TIMES = 5


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensors(library):
    """What is changed, with what, in one library."""
    x, y = library.tensor(numbers(4, 5)), library.tensor(numbers(4, 5, seed=1))
    return x, y, library.tensor(numbers(5, seed=2)), library.tensor(np.arange(20).reshape(4, 5))


CHANGES = {
    "add": lambda w, x, y, v, n: x.add_(y),
    "alpha": lambda w, x, y, v, n: x.add_(y, alpha=0.5),
    "number": lambda w, x, y, v, n: x.mul_(2.5),
    "broadcast": lambda w, x, y, v, n: x.sub_(v),
    "integers": lambda w, x, y, v, n: x.add_(n),
    "to integers": lambda w, x, y, v, n: n.mul_(3),
    "itself": lambda w, x, y, v, n: x.add_(x),
    "its rows": lambda w, x, y, v, n: x.add_(x[1]),
    "what lies behind": lambda w, x, y, v, n: x[1:].add_(x[:-1]),
    "its transposed": lambda w, x, y, v, n: x[:, :4].add_(x[:, :4].t()),
    "column": lambda w, x, y, v, n: x[:, 1].mul_(3.0),
    "row": lambda w, x, y, v, n: x[2].div_(4.0),
    "element": lambda w, x, y, v, n: x[1, 2].sub_(1.0),
    "transposed": lambda w, x, y, v, n: x.t().add_(v.reshape(5, 1)),
    "negative step": lambda w, x, y, v, n: x.add_(y.flip(0)),
    "fill": lambda w, x, y, v, n: x.fill_(2.0),
    "zero": lambda w, x, y, v, n: n.zero_(),
    "copy": lambda w, x, y, v, n: x.copy_(v),
    "exp": lambda w, x, y, v, n: x.exp_(),
    "clamp": lambda w, x, y, v, n: x.clamp_(-0.5, 0.5),
    "masked_fill": lambda w, x, y, v, n: x.masked_fill_(y > 0, 1.5),
    "empty": lambda w, x, y, v, n: x[:0].add_(1.0),
    "statement": lambda w, x, y, v, n: x.__iadd__(y),
    "data": lambda w, x, y, v, n: x.data.add_(y),
    "addcmul": lambda w, x, y, v, n: x.addcmul_(y, y, value=0.5),
    "lerp": lambda w, x, y, v, n: x.lerp_(y, 0.25),
    "row set": lambda w, x, y, v, n: put(x, 1, v),
    "column set": lambda w, x, y, v, n: put(x, (slice(None), -1), 2.0),
    "rows set": lambda w, x, y, v, n: put(x, slice(None, None, 2), y[:2]),
    "element set": lambda w, x, y, v, n: put(x, (2, 3), y[1, 1]),
    "row of a column set": lambda w, x, y, v, n: put(x.t(), 1, v[:4]),
    "integers set": lambda w, x, y, v, n: put(n, (slice(1, 3), 0), 7),
    "rows at an index": lambda w, x, y, v, n: put(x, w.tensor([3, 0, -1]), y[:3]),
    "rows at a list": lambda w, x, y, v, n: put(x, [3, 0, 3], 4.0),
    "elements at indices": lambda w, x, y, v, n: put(x, (w.tensor([3, 0]), w.tensor([-1, 2])), v[:2]),
    "elements of a mask": lambda w, x, y, v, n: put(x, y > 0, y[y > 0]),
    "rows of a mask": lambda w, x, y, v, n: put(x, y[:, 0] > 0, 1.0),
    "index_add": lambda w, x, y, v, n: x.index_add_(0, w.tensor([1, 1, 3]), y[:3]),
    "index_add, columns": lambda w, x, y, v, n: x.index_add_(1, w.tensor([4, 4, 0]), y[:, :3]),
    "index_copy": lambda w, x, y, v, n: x.index_copy_(0, w.tensor([2, 0]), y[:2]),
    "scatter": lambda w, x, y, v, n: x.scatter_(1, w.tensor([[1, 4], [0, 2]]), y),
    "scatter of a number": lambda w, x, y, v, n: x.scatter_(0, w.tensor([[1, 0, 3]]), 2.5),
    "scatter_add": lambda w, x, y, v, n: x.scatter_add_(1, w.tensor([[1, 1], [0, 2]]), y),
    "part of itself set": lambda w, x, y, v, n: put(x, slice(1, None), x[:-1]),
    "itself set at an index": lambda w, x, y, v, n: put(x, w.tensor([1, 0, 3, 2]), x),
    "itself added at an index": lambda w, x, y, v, n: x.index_add_(0, w.tensor([1, 0, 3, 2]), x),
}  # fmt: skip


def put(x, key, value):
    x[key] = value
    return x


@pytest.mark.parametrize("name", CHANGES)
def test_changes_have_the_bits_and_versions_of_python(name):
    found = []
    for _ in range(TIMES):
        given = tensors(weft)
        out = CHANGES[name](weft, *given)
        found.append((out.numpy().tobytes(), [(t._version, t.numpy().tobytes()) for t in given]))
    assert all(one == found[0] for one in found)


# PyTorch refuses these. Here all new values are computed before one is written.
OVERLAPPING = (
    "its rows", "what lies behind", "its transposed", "part of itself set", "itself set at an index",
    "itself added at an index",
)  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in CHANGES if name not in OVERLAPPING])
def test_changes_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    theirs = tensors(torch)
    CHANGES[name](torch, *theirs)
    for _ in range(TIMES):
        ours = tensors(weft)
        CHANGES[name](weft, *ours)
        for x, y in zip(ours, theirs):
            assert x._version == y._version
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6, atol=1e-7)


def test_changes_are_native():
    x, y, v, n = tensors(weft)
    p = weft.nn.Parameter(y.clone())
    weft.nn.functional.mse_loss(p, x).backward()

    def step():
        with weft.no_grad():
            p.sub_(p.grad).mul_(0.5)
        x.add_(y).mul_(2.0)
        x[1].add_(v)
        x.zero_()
        n.add_(1)

    for _ in range(TIMES):
        step()
    before = eager_native.taken("calls_taken")
    step()
    assert eager_native.taken("calls_taken") - before == (8 if IS_NATIVE else 0)  # a view among them


def test_what_was_saved_is_noticed_to_have_changed():
    for _ in range(TIMES):
        x = weft.ones(3, requires_grad=True)
        y = weft.ones(3)
        out = (x * y).sum()
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()


def test_history_is_kept():
    found = []
    for _ in range(TIMES):
        x, w = weft.ones(3, requires_grad=True), weft.full((3,), 2.0)
        y = w.clone()
        y.mul_(x).add_(w)
        y.mul_(2.0)
        y.sum().backward()
        found.append((type(y.grad_fn).__name__, x.grad.tolist(), y.tolist()))
    assert all(one == found[0] for one in found)


def test_errors_are_those_of_python():
    x, integers, leaf = weft.ones(2, 3), weft.ones(2, 3).long(), weft.ones(2, requires_grad=True)
    read_only = numbers(3)
    read_only.flags.writeable = False
    for _ in range(TIMES):
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            x[0].add_(x)
        with pytest.raises(RuntimeError, match="can't be cast"):
            integers.add_(1.5)
        with pytest.raises(RuntimeError, match="a leaf Variable"):
            leaf.add_(1.0)
        with pytest.raises(RuntimeError, match="single memory location"):
            x[0, :1].expand(3).add_(1.0)
        with pytest.raises(RuntimeError, match="read-only"):
            weft.from_numpy(read_only).add_(1.0)
    assert x.tolist() == [[1.0] * 3] * 2 and integers.tolist() == [[1] * 3] * 2


def test_parts_are_written_natively_where_they_are():
    x, part, index = weft.zeros(2000, 300), weft.ones(2, 300), weft.tensor([1999, 5])
    expected = np.zeros((2000, 300), np.float32)
    for _ in range(2 * TIMES):
        before, version = eager_native.taken("calls_taken"), x._version
        x[7] = part[0]
        x[:, 1] = 3.0
        x[index] = part
        x.index_add_(0, index, part)
        assert x._version == version + 4
        expected[7], expected[:, 1] = 1, 3
        expected[[1999, 5]] = 2
        assert x.numpy().tobytes() == expected.tobytes()
    # Four changes, and what is written: a view, a number in a column, the index counted from the beginning.
    assert eager_native.taken("calls_taken") - before >= (7 if IS_NATIVE else 0)


def test_an_index_that_is_too_large_changes_nothing():
    x, part = weft.zeros(4, 3), weft.ones(2, 3)
    for k in range(2 * TIMES):
        index = weft.tensor([0, 4]) if k % 2 else weft.tensor([0, -5])
        for change in (put, lambda x, index, part: x.index_add_(0, index, part)):
            version = x._version
            with pytest.raises(IndexError, match="out of bounds"):
                change(x, index, part)
            assert x._version == version and not x.numpy().any()
        x.index_add_(0, weft.tensor([0, 1]), part * 0.0)


def test_parts_written_into_what_was_saved_are_noticed():
    for _ in range(TIMES):
        x, y = weft.ones(3, requires_grad=True), weft.ones(3)
        out = (x * y).sum()
        y[1] = 2.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()


def test_compiled_calls_see_changes_made_between_them():
    x = weft.ones(3)
    f = weft.compile(lambda x: x * 2.0)
    for k in range(2 * TIMES):
        assert f(x).tolist() == [2.0 + 2.0 * k] * 3
        x.add_(1.0)


def test_large_tensors_are_changed_too():
    x, y = weft.tensor(numbers(500, 400)), weft.tensor(numbers(500, 400, seed=1))
    expected = x.numpy().copy()
    for _ in range(2 * TIMES):
        x.add_(y)
        expected += y.numpy()
        assert x.numpy().tobytes() == expected.tobytes()


def test_arrays_of_the_user_show_changes():
    array = numbers(4)
    x, shown = weft.from_numpy(array), array.copy()
    for _ in range(TIMES):
        x.mul_(2.0)
        shown *= 2
        assert array.tobytes() == shown.tobytes() == x.numpy().tobytes()


def test_zeros_are_written_natively_over_whatever_was_there():
    kept = weft.ones(2, 3)
    makes = {
        "floats": lambda: weft.full((2, 3), -0.0),
        "not a number": lambda: weft.full((2, 3), float("nan")).double(),
        "integers": lambda: weft.ones(3).long(),
        "a column": lambda: weft.ones(3, 2)[:, 1],
        "a part": lambda: weft.ones(4, 2)[1:3],
        "half": lambda: weft.ones(3).bfloat16(),
        "nothing": lambda: weft.ones(0, 3),
        "a number": lambda: weft.tensor(3.0),
    }
    for name, make in makes.items():
        x = make()
        version = x._version
        assert x.zero_() is x and x._version == version + 1, name
        assert x.float().numpy().tobytes() == np.zeros(x.shape, np.float32).tobytes(), name
        if x._base is not None:
            assert x._base.sum().item() == x._base.numel() - x.numel()
    assert kept.tolist() == [[1.0] * 3] * 2


def test_zeros_written_over_what_was_saved_are_noticed():
    x = weft.ones(3, requires_grad=True)
    y = weft.ones(3)
    out = (x * y).sum()
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()
    with pytest.raises(RuntimeError, match="a leaf Variable"):
        x.zero_()
    with weft.no_grad():
        assert x.zero_().tolist() == [0.0] * 3


def test_gradients_are_set_to_zero_in_one_call():
    model = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.Linear(4, 2))
    model(weft.ones(2, 3)).sum().backward()
    grads = [p.grad for p in model.parameters()]
    versions = [g._version for g in grads]
    model.zero_grad(set_to_none=False)  # before native code knows of any plan it may be Python's
    before = eager_native.taken("calls_taken")
    model.zero_grad(set_to_none=False)
    assert eager_native.taken("calls_taken") - before in (0, len(grads))
    assert all(p.grad is g and not g.numpy().any() for p, g in zip(model.parameters(), grads))
    assert [g._version for g in grads] == [version + 2 for version in versions]
    # Of several one may be another's business: none is forgotten.
    grads[1].requires_grad_()
    for g in grads:
        g.data.fill_(5.0)
    model[0].weight.grad = weft.ones(4, 3).t().contiguous().t()
    model.zero_grad(set_to_none=False)
    assert all(not p.grad.detach().numpy().any() for p in model.parameters())


def clipped(change, shapes=((3, 4), (5,), (), (2, 3, 2)), dtype=weft.float32):
    params = [weft.zeros(shape, dtype=dtype).requires_grad_() for shape in shapes]
    for k, p in enumerate(params):
        p.grad = weft.tensor(numbers(*p.shape, seed=k)).to(dtype)
    grads = [p.grad for p in params]
    out = change(params)
    assert all(p.grad is g and g._version == 1 for p, g in zip(params, grads))
    return [g.double().numpy().tobytes() for g in grads] + ([] if out is None else [out.double().numpy().tobytes()])


CLIPPED = {
    "norm": lambda params: weft.nn.utils.clip_grad_norm_((p for p in params), 0.5),
    "norm not reached": lambda params: weft.nn.utils.clip_grad_norm_(params, 1e6),
    "largest": lambda params: weft.nn.utils.clip_grad_norm_(iter(params), 0.5, norm_type=float("inf")),
    "given norm": lambda params: weft.nn.utils.clip_grads_with_norm_(params, 0.5, weft.tensor(2.0)),
    "value": lambda params: weft.nn.utils.clip_grad_value_((p for p in params), 0.5),
}


@pytest.mark.parametrize("dtype", (weft.float32, weft.float64, weft.bfloat16), ids=str)
@pytest.mark.parametrize("name", CLIPPED)
def test_clipping_has_the_same_bits_in_every_call(name, dtype):
    first = clipped(CLIPPED[name], dtype=dtype)
    for _ in range(TIMES):
        assert clipped(CLIPPED[name], dtype=dtype) == first


def test_clipping_takes_a_gradient_given_twice_twice():
    p, q = weft.zeros(2, requires_grad=True), weft.zeros(2, requires_grad=True)
    shared = weft.tensor([8.0, 0.0])
    for _ in range(TIMES):
        shared.copy_(weft.tensor([8.0, 0.0]))
        p.grad = q.grad = shared
        weft.nn.utils.clip_grads_with_norm_([p, q], 1.0, weft.tensor(4.0 - 1e-6))
        assert shared.tolist() == [0.5, 0.0]


def test_clipping_refuses_memory_that_is_several_elements():
    p = weft.zeros(3, requires_grad=True)
    for _ in range(TIMES):
        p.grad = weft.ones(1).expand(3)
        with pytest.raises(RuntimeError, match="single memory location"):
            weft.nn.utils.clip_grad_norm_([p], 0.5)
        with pytest.raises(RuntimeError, match="single memory location"):
            weft.nn.utils.clip_grad_value_([p], 0.5)


def test_shapes_asked_of_a_tensor_and_written_by_hand_have_one_plan():
    x = weft.ones(2, 5)
    for _ in range(TIMES):
        weft.full(x.shape, 2), weft.full((2, 5), 2), x.reshape((5, 2)), x.reshape(weft.ones(5, 2).shape)
    before = eager_native.taken("calls_taken")
    weft.full(x.shape, 2), weft.full((2, 5), 2), x.reshape((5, 2))
    assert eager_native.taken("calls_taken") - before == (3 if IS_NATIVE else 0)
    shape = weft.ones(5, 2).shape
    before = eager_native.taken("calls_taken")
    assert x.reshape(shape).shape == (5, 2)
    assert eager_native.taken("calls_taken") - before == (1 if IS_NATIVE else 0)


LARGE = {
    "fill": lambda x, y: x.fill_(2.0),
    "copy": lambda x, y: x.copy_(y),
    "copy of columns": lambda x, y: x.copy_(y.t()),
    "its own columns": lambda x, y: x.copy_(x.t()),
    "relu": lambda x, y: x.relu_(),
    "itself": lambda x, y: x.mul_(x),
    "its transposed": lambda x, y: x.add_(x.t()),
    "a row of it": lambda x, y: x.sub_(x[3]),
    "uniform": lambda x, y: x.copy_(weft.full_like(x, 3.0)),
    "rows at an index": lambda x, y: x.index_add_(0, weft.tensor([5, 5, 0]), y[:3]),
    "row": lambda x, y: put(x, 599, y[0]),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_changes_keep_their_bits_when_native_code_takes_over(name):
    a, b = numbers(600, 600), numbers(600, 600, seed=1)
    found = set()
    for _ in range(300 if name in ("copy", "relu") else 40):
        x = weft.tensor(a)
        assert LARGE[name](x, weft.tensor(b)) is x and x._version == 1
        found.add(x.numpy().tobytes())
    assert len(found) == 1


def test_large_tensors_made_of_nothing_have_memory_of_their_own():
    kept = []
    for k in range(30):
        kept.append(weft.full((600, 600), float(k)))
        weft.zeros(600, 600).add_(1.0)
        shown = weft.ones(600, 600).numpy()
        assert weft.zeros(600, 600).sum().item() == 0.0 and shown.min() == 1.0
    assert [x[0, 0].item() for x in kept] == [float(k) for k in range(30)]


# --- out= -------------------------------------------------------------------------------------------------------------
OUT = {
    "exp": (lambda a, b, o: weft.exp(a, out=o), lambda a, b: weft.exp(a)),
    "add": (lambda a, b, o: weft.add(a, b, out=o), lambda a, b: a + b),
    "sub of a number": (lambda a, b, o: weft.sub(a, 2.0, out=o), lambda a, b: a - 2.0),
    "maximum": (lambda a, b, o: weft.maximum(a, b, out=o), lambda a, b: weft.maximum(a, b)),
    "where": (lambda a, b, o: weft.where(a > 0, a, b, out=o), lambda a, b: weft.where(a > 0, a, b)),
    "cumsum": (lambda a, b, o: weft.cumsum(a, 1, out=o), lambda a, b: a.cumsum(1)),
    "matmul": (lambda a, b, o: weft.matmul(a, b, out=o), lambda a, b: a @ b),
}


@pytest.mark.parametrize("name", OUT)
def test_out_has_the_bits_of_the_result_and_counts_as_a_change(name):
    write, plain = OUT[name]
    a, b, out = (weft.tensor(numbers(4, 4, seed=k)) for k in range(3))
    shared = weft.from_numpy(numbers(4, 4, seed=3))
    for target in (out, shared, out[:], weft.zeros(4, 8)[:, ::2]):
        for _ in range(TIMES):
            before = target._version
            assert write(a, b, target) is target
            assert target.numpy().tobytes() == plain(a, b).numpy().tobytes()
            assert target._version > before


def test_out_over_a_part_of_an_operand_is_refused_each_time():
    memory = numbers(20)
    whole = weft.tensor(memory)
    of_arrays = weft.from_numpy(memory[:10]), weft.from_numpy(memory[5:15])
    for _ in range(TIMES):
        weft.exp(whole[:10], out=whole[10:])
        for x, out in ((whole[:10], whole[5:15]), of_arrays):
            with pytest.raises(RuntimeError, match="single memory location"):
                weft.exp(x, out=out)
            with pytest.raises(RuntimeError, match="single memory location"):
                weft.cumsum(x, 0, out=out)


def test_out_is_refused_where_gradients_are_recorded_also_after_calls_without():
    x, out = weft.tensor(numbers(3, 3)), weft.zeros(3, 3)
    for _ in range(TIMES):
        weft.exp(x, out=out)
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        weft.exp(x, out=out)
    with weft.no_grad():
        assert weft.exp(x, out=out) is out
