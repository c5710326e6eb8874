"""Memory that NumPy arrays of the user show too, written to in the middle of compiled calls
(runtime/state/exposure.py)."""

import gc

import numpy as np
import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft import nn
from weft.runtime.replay.frame_usual import UsualFrame
from weft.runtime.replay.native import native_code_is_used
from weft.runtime.state import exposure


def arrays(*shapes, dtype=np.float32):
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


@twin
def test_micro_batches_through_one_buffer(compile):
    data, target = arrays((2, 6, 4))[0], weft.ones(6, 1)
    model = nn.Linear(4, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    buffer = np.zeros((6, 4), np.float32)
    x = weft.from_numpy(buffer)

    @compile
    def step():
        optimizer.zero_grad()
        losses = []
        for part in data:
            buffer[:] = part
            loss = nn.functional.mse_loss(model(x), target)
            loss.backward()
            losses.append(loss)
        optimizer.step()
        return losses

    for _ in range(9):
        yield step(), list(model.parameters())


@twin
def test_a_buffer_as_argument(compile):
    buffer = np.zeros((3, 2), np.float32)

    @compile
    def f(x, w):
        first = (x * w).sum()
        buffer.fill(3.0)
        second = (x * w).sum()
        return first, second, x + first

    for k in range(9):
        buffer[:] = k
        yield f(weft.from_numpy(buffer), weft.full((2,), 1.5))


@twin
def test_arrays_as_operands(compile):
    (array,) = arrays(4)

    @compile
    def f(x):
        a = x + array
        array.__iadd__(1.0)
        b = weft.as_tensor(array) * x
        return a, b, a + array

    for _ in range(8):
        yield f(weft.ones(4))


@twin
def test_a_value_that_comes_back(compile):
    """As in finite differences: at every read but one the memory is what it was at the beginning."""
    point = np.ones(3)
    x = weft.from_numpy(point)

    @compile
    def slopes():
        found = []
        for k in range(3):
            point[k] += 0.25
            above = (x * x).sum()
            point[k] -= 0.25
            found.append((above - (x * x).sum()) / 0.25)
        return found

    for _ in range(8):
        yield slopes()


def on_a_buffer_that_changes(compile):
    """A leaf on a buffer, and a function that reads it with other numbers in the middle."""
    buffer = np.ones(3, np.float32)
    w = weft.from_numpy(buffer).requires_grad_()

    @compile
    def f(x):
        first = (w * x).sum()
        buffer[1] = 7.0
        second = (w.exp() * x).sum()
        buffer[1] = 1.0
        return first, second

    return w, f


@twin
def test_a_leaf_on_a_buffer(compile):
    w, f = on_a_buffer_that_changes(compile)
    for _ in range(6):
        first, second = f(weft.full((3,), 2.0))
        yield first, second
        second.backward()
        yield w.grad


@twin
def test_a_leaf_on_a_buffer_whose_call_goes_over_to_nodes(compile):
    """They are made by computing again, which read what was in the buffer by then."""
    w, f = on_a_buffer_that_changes(compile)
    for k in range(8):
        w.grad = None
        first, second = f(weft.full((3,), 2.0))
        if k % 2:
            second.register_hook(lambda g: g * 3)
            second.retain_grad()
        second.backward(retain_graph=True)
        yield w.grad.clone()
        (first + second).backward()
        yield w.grad
        first, second = f(weft.full((3,), 2.0))
        slope = weft.autograd.grad(second, w, create_graph=True)[0]
        yield slope
        yield weft.autograd.grad(slope.sum(), w)


@twin
def test_views_of_a_buffer(compile):
    buffer = np.zeros((4, 3), np.float32)
    x = weft.from_numpy(buffer)

    @compile
    def f(step):
        row, turned = x[1], x.t()
        before = row * 2.0
        buffer[1] += 1.0
        row.add_(step)
        return before, row * 2.0, turned.sum(1), x

    for k in range(8):
        yield f(weft.full((3,), float(k)))
        yield buffer.tolist()


@twin
def test_memory_lent_in_the_call(compile):
    w = weft.ones(3)

    @compile
    def f(x):
        before, y = x * w, x.exp()
        weights, values = w.numpy(), y.numpy()
        weights += 1.0
        values *= 2.0
        after = x * w
        weights -= 0.5
        return before, after, x * w, y + 1.0, y

    for _ in range(8):
        yield f(weft.full((3,), 0.5)), w


@twin
def test_memory_lent_before_the_call(compile):
    w = weft.ones(3, requires_grad=True)
    held = []

    @compile
    def f(x):
        first = (x * w).sum()
        for array in held:
            array += 1.0
        return first, (x * w * w).sum()

    for k in range(12):
        if k == 5:
            held.append(w.detach().numpy())
        if k == 8:
            held.clear()
            gc.collect()
        first, second = f(weft.ones(3))
        second.backward()
        yield first, second, w.grad


@twin
def test_gradients_from_a_buffer(compile):
    cotangent = np.ones(3, np.float32)
    w = weft.ones(3, requires_grad=True)

    @compile
    def f(x):
        y = w * x
        y.backward(weft.from_numpy(cotangent), retain_graph=True)
        cotangent.__iadd__(1.0)
        (found,) = weft.autograd.grad(y, w, weft.from_numpy(cotangent))
        return found

    for k in range(8):
        yield f(weft.full((3,), 1.0 + k)), w.grad


@twin
def test_an_update_from_a_buffer(compile):
    gradient = np.ones(3, np.float32)
    w = nn.Parameter(weft.ones(3))
    optimizer = weft.optim.SGD([w], lr=0.1)

    @compile
    def f():
        w.grad = weft.from_numpy(gradient)
        optimizer.step()
        gradient.__iadd__(1.0)
        optimizer.step()
        return w.sum()

    for _ in range(6):
        yield f(), w


@twin
def test_strides_and_buffers_of_other_kinds(compile):
    whole = np.zeros((6, 8), np.float64)
    raw = bytearray(24)
    tensors = [weft.from_numpy(a) for a in (whole[::-2, 1::3], whole.T, np.frombuffer(raw, np.float32))]

    @compile
    def f():
        found = []
        for k in range(2):
            whole[:] += k + np.arange(8)
            raw[3] = 64 + k
            found += [t * 2 for t in tensors]
        return found

    for _ in range(6):
        yield f()


@twin
def test_large_memory(compile):
    buffer = np.zeros(exposure.MOST_BYTES // 4 + 1, np.float32)
    x = weft.from_numpy(buffer)

    @compile
    def f(k):
        buffer[:3] = 1.0
        a = x[:5] * k
        b = x.max() * k
        buffer[:3] = 2.0
        return a, b, x.max()

    for k in range(4):
        yield f(weft.full((), float(k)))


def test_memory_that_nobody_else_holds_is_not_copied(monkeypatch):
    monkeypatch.setattr(exposure, "copied", lambda array: pytest.fail("copied"))
    f = weft.compile(lambda x, w: (x * w).sum())
    w = weft.from_numpy(np.ones(3))
    for _ in range(6):
        result = f(weft.from_numpy(np.ones(3)), w)  # outside of the assertion, which holds what it is made of
        total = w.numpy().sum()
        assert result.item() == total == 3.0
    frozen = np.ones(3)
    frozen.flags.writeable = False
    assert f(weft.from_numpy(frozen), w).item() == 3.0


def test_calls_go_on_being_replayed():
    array = np.ones(3, np.float32)
    f = weft.compile(lambda x: (x * 2.0).sum())
    for k in range(8):
        array[:] = k
        assert f(weft.from_numpy(array)).item() == 6.0 * k
    assert "calls are replayed" in f.explain()


def test_explain_says_what_is_too_large():
    x = weft.from_numpy(array := np.ones(exposure.MOST_BYTES // 4 + 1, np.float32))
    f = weft.compile(lambda: x.sum())
    assert f().item() == len(array)
    assert "weft.tensor(array) is a copy of its own" in f.explain()


def test_what_an_in_place_op_reads_is_what_is_there():
    state = weft.zeros(3)

    def f(array, n):
        for _ in range(n):
            state.copy_(weft.from_numpy(array))
            array *= 2
            state.add_(weft.from_numpy(array))
            array[:] = 0
        return state * 2

    compiled = weft.compile(f)
    for k in range(12):
        array = np.full(3, k + 1.0, np.float32)
        assert compiled(array, 1).tolist() == [6 * (k + 1.0)] * 3 and state.tolist() == [3 * (k + 1.0)] * 3


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (7, 5), (40, 50), (200, 300)])
def test_copies_of_every_size_are_what_is_there(shape, dtype):
    def f(array):
        x = weft.from_numpy(array)
        y = x + 1
        array[...] = 0
        return y, x * 2, x * 2, (x + x).sum()

    compiled = weft.compile(f)
    for k in range(8):
        array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) + k, dtype)
        assert [v.tolist() for v in compiled(array.copy())] == [v.tolist() for v in f(array.copy())]


@pytest.mark.parametrize("change", ["by hand", "optimizer", "copy"])
def test_memory_that_was_shown_and_is_changed_later_in_the_call(change):
    """An op read a copy, since an array showed the memory then; the change is made in the memory itself."""

    def scenario(compile):
        w, shown = leaf(4), []
        optimizer = weft.optim.SGD([w], lr=0.1, momentum=0.5)

        @compile
        def step(x):
            w.grad = None
            loss = (w * x).square().sum()
            shown.clear()
            loss.backward()
            if change == "optimizer":
                optimizer.step()
            else:
                with weft.no_grad():
                    w.sub_(w.grad * 0.1) if change == "by hand" else w.copy_(x)
            return loss.detach()

        for _ in range(7):
            shown.append(w.detach().numpy())
            yield step(weft.randn(4)), w

    assert_same(scenario)


@pytest.mark.parametrize("new", ["data.clone()", "detach().view(2, 2)", "large"])
def test_a_shown_weight_is_looked_at_in_a_call_that_did_not_before(new):
    """The call that is like those before goes on in a frame that is recorded, in the middle of the op."""

    def scenario(compile):
        w, calls = leaf(4), []
        large = weft.from_numpy(np.ones((1 << 20) + 1, np.float32))

        @compile
        def step(shown):
            calls.append(1)
            if len(calls) % 5 == 4:
                if new == "data.clone()":
                    w.data = w.data.clone()
                elif new == "large":
                    return large.sum() + 1
                else:
                    return w.detach().view(2, 2) * 2

        for _ in range(12):
            yield step(w.detach().numpy()), w

    assert_same(scenario)


@pytest.mark.parametrize("replayed", [1, 4])
@pytest.mark.parametrize("change", ["in the call", "after it"])
def test_a_backward_goes_by_what_was_read_also_where_eager_mode_raises(change, replayed):
    """The copy that the op has read is there, whatever an in-place op has written since. Eager mode, which
    has no copy, must refuse: this difference is in differences.md."""

    def gradients(compile, shows):
        x, w = weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([[0.5], [2.0]], requires_grad=True)
        array = x.numpy() if shows else None

        def f(x):
            y = (x @ w).square()
            if change == "in the call":
                x[0] = 7.0
            return y

        f, found = compile(f), []
        for k in range(replayed):
            x.copy_(weft.tensor([[1.0 + k, 2.0], [3.0, 4.0]]))
            y, w.grad = f(x), None
            if change == "after it":
                x.add_(1.0)
            y.sum().backward()
            found.append(w.grad.tolist())
        assert array is None or array.tolist() == x.tolist()
        return found

    for compile, shows in ((as_it_is, True), (as_it_is, False), (weft.compile, False)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(compile, shows)
    read = [(weft.tensor([[1.0 + k, 2.0], [3.0, 4.0]]), weft.tensor([[0.5], [2.0]])) for k in range(replayed)]
    assert gradients(weft.compile, True) == [(x.t() @ (2.0 * (x @ w))).tolist() for x, w in read]


def as_it_is(function):
    return function


def standardized(x):
    return ((x - x.mean(0)) / (x.std(0) + 1)).numpy()


def of_parts(x):
    return ((x[:2] * x[2:4]).sum() + x[0].exp() * x[1] - x[-1]).numpy()


def written_between(x):
    first = (x * 2).sum()
    x.numpy()[1] += 1
    second = (x * 3).sum()
    part = x[1:]
    x.numpy()[1] += 1
    return (first + second + part.sum() + x.mean()).numpy()


def changed_between(x):
    first = x.exp()
    x.mul_(0.5)
    return (first + x + x[0] * x).numpy()


def two_of_one_array(x):
    y = weft.from_numpy(x.numpy())
    return (x * y + x + y[1] * x[0]).numpy()


READING = [standardized, of_parts, written_between, changed_between, two_of_one_array]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int8, bool])
@pytest.mark.parametrize("n", [4, 5, 7, 33])
@pytest.mark.parametrize("reads", READING)
def test_it_is_read_several_times(reads, n, dtype, inside):
    """The second and third op find the copy that the first one has made."""

    def scenario(compile):
        given = [(a * 3).astype(dtype) for a in arrays(*[(n,)] * 4, dtype=np.float64)]
        f = compile(lambda a: reads(weft.from_numpy(a) if inside else a))
        for k in range(12):
            array = given[k % 4]
            yield error_of(f, array if inside else weft.from_numpy(array)), array

    assert_same(scenario)


@pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")
def test_native_code_finds_the_copy(monkeypatch):
    f, given = weft.compile(standardized), arrays(*[(6, 3)] * 4)
    for k in range(8):
        f(weft.from_numpy(given[k % 4]))
    asked, before = [], UsualFrame.apply
    monkeypatch.setattr(UsualFrame, "apply", lambda *args: asked.append(1) or before(*args))
    f = weft.compile(standardized)
    for k in range(12):
        f(weft.from_numpy(given[k % 4]))
        if k == 7:
            asked.clear()
    assert not asked and "fast path: yes" in f.explain()
