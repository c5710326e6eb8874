"""set_default_dtype inside a compiled call, and between a call and its backward: what floats without a type become is
part of what was recorded."""

import contextlib

import pytest
from compiled_twin import assert_same, leaf, twin

import weft
from weft import randn


@pytest.fixture(autouse=True)
def float32_again():
    yield
    weft.set_default_dtype(weft.float32)


@contextlib.contextmanager
def default(dtype):
    before = weft.get_default_dtype()
    weft.set_default_dtype(dtype)
    try:
        yield
    finally:
        weft.set_default_dtype(before)


FLAGS = [False, True, False, False, False, False, False, True, True, True, True, False]


@twin
def test_some_calls_have_another_default(compile):
    @compile
    def f(x, flag):
        if flag:
            weft.set_default_dtype(weft.float64)
        try:
            return x / 3
        finally:
            weft.set_default_dtype(weft.float32)

    for flag in FLAGS:
        yield f(weft.tensor([1, 2]), flag)


@pytest.mark.parametrize("native", [True, False])
def test_the_default_changes_in_the_middle(native, monkeypatch):
    if not native:
        monkeypatch.setattr("weft.runtime.replay.native.layout", lambda: None)

    def scenario(compile):
        @compile
        def f(x, flag):
            a = x / 3
            with default(weft.float64 if flag else weft.float32):
                b = x / 3 + weft.ones(2) + weft.rand(2)
            return a, b, x / 7, a + b

        for flag in FLAGS:
            yield f(weft.tensor([1, 2]), flag)

    assert_same(scenario)


@twin
def test_the_default_stays_changed(compile):
    @compile
    def f(x, dtype):
        weft.set_default_dtype(dtype)
        return x / 3

    for dtype in [weft.float32, weft.float64, weft.float64, weft.float32] * 3 + [weft.float64] * 6:
        yield f(weft.tensor([1, 2]), dtype), weft.get_default_dtype()


@twin
def test_training_with_another_default_in_the_middle(compile):
    """Ops, changes in place, backward and updates under the other default, and values of the call that meet it."""
    w, table = leaf(3), weft.zeros(3)
    optimizer = weft.optim.Adam([w], lr=0.1)

    @compile
    def step(x, flag):
        optimizer.zero_grad()
        loss = (x / 3 * w).sum()
        with default(weft.float64 if flag else weft.float32):
            loss = loss * 2 + (x / 3 * w).sum()
            with weft.no_grad():
                table.add_(x / 7)
            loss.backward()
            optimizer.step()
        return loss, weft.autograd.grad((w * w).sum(), [w])[0]

    for flag in FLAGS:
        yield step(weft.tensor([1, 2, 3]), flag), w, table, optimizer.state[w]


@twin
def test_values_are_read_under_another_default(compile):
    @compile
    def f(x, flag):
        a = x / 3
        with default(weft.float64 if flag else weft.float32):
            b = a * 2.0 if a.sum().item() > 0 else a
            c = (x / 7).sum().item()
        return b, x / 5, c

    for flag in FLAGS:
        yield f(weft.tensor([1, 2]), flag)


@twin
def test_types_of_tensors_set_the_default_too(compile):
    @compile
    def f(x, flag):
        weft.set_default_tensor_type(weft.DoubleTensor if flag else weft.FloatTensor)
        y = x / 3
        weft.set_default_tensor_type("weft.FloatTensor")
        return y

    for flag in FLAGS:
        yield f(weft.tensor([1, 2]), flag)


@twin
def test_errors_leave_the_default_to_the_user(compile):
    @compile
    def f(x):
        with default(weft.float64):
            x / 3
            raise ValueError

    for _ in range(4):
        with contextlib.suppress(ValueError):
            f(weft.tensor([1, 2]))
        yield weft.get_default_dtype()


@twin
def test_another_default_at_the_time_of_the_backward(compile):
    """The backward of a finished call computes what the call did, whatever the default is now."""
    f = compile(lambda x, w: (x / 3 * (x / 7) * w.sigmoid()).sum())
    for create_graph in (False, True, False, True):
        for dtype in (weft.float32, weft.float64):
            w, x = leaf(40), weft.arange(40)
            loss = f(x, w)
            with default(dtype):
                (g,) = weft.autograd.grad(loss, [w], create_graph=create_graph)
                yield loss, g
                if create_graph:
                    yield weft.autograd.grad(g.sum(), [w])


@twin
def test_a_hook_sets_the_default(compile):
    @compile
    def f(x):
        y = x * 2
        y.register_hook(lambda g: weft.set_default_dtype(weft.float64))
        y.sum().backward()
        z = weft.tensor([1, 2]) / 3
        weft.set_default_dtype(weft.float32)
        return z

    for _ in range(5):
        yield f(leaf(2))


@twin
def test_an_index_out_of_range_under_the_default_of_the_call(compile):
    """A failed program's steps are run again to raise the error: under the default they were recorded with."""

    @compile
    def f(x, index):
        y = (x / 3)[index]
        weft.set_default_dtype(weft.float64)
        return y

    for index in (0, 1, 7, 1, 7):
        with contextlib.suppress(IndexError):
            yield f(weft.tensor([1, 2]), weft.tensor([index]))
        weft.set_default_dtype(weft.float32)
        yield randn(2)


def test_explain_says_so():
    @weft.compile
    def f(x):
        with default(weft.float64):
            return x / 3

    f(weft.tensor([1, 2]))
    assert "set_default_dtype was called within the call" in f.explain()
