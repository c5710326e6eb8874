"""Blocks around saved tensors that end where nobody expects it, and parts that are computed again, nested."""

import gc
import weakref

import pytest

import weft
from weft.autograd.graph import saved_tensors_hooks
from weft.utils.checkpoint import checkpoint, set_checkpoint_early_stop


def saved_of(x):
    return (x * 1).exp().grad_fn._raw_saved_result


def test_blocks_that_unpacking_leaves_open_end_with_the_pass():
    def program():
        inner = saved_tensors_hooks(lambda x: x, lambda x: outer_reference().__enter__() and x)
        outer_reference = weakref.ref(inner)
        with inner:
            weft.ones(3, requires_grad=True).sin().sum().backward()
        return weakref.ref(inner)

    enabled = gc.isenabled()
    gc.disable()
    try:
        assert program()() is None
    finally:
        if enabled:
            gc.enable()
    saved_of(weft.ones(2, requires_grad=True)).register_hooks(lambda x: x, lambda x: x)


def test_blocks_that_unpacking_ends_go_on_after_the_pass():
    packed = []
    block = saved_tensors_hooks(lambda x: packed.append(1) or x, lambda x: block.__exit__() or x)
    with block:
        weft.ones(3, requires_grad=True).sin().sum().backward()
        n = len(packed)
        weft.ones(3, requires_grad=True).sin()
        assert len(packed) == n + 1
    weft.ones(3, requires_grad=True).sin()
    assert len(packed) == n + 1


def test_the_innermost_block_ends_first():
    seen = []
    first = saved_tensors_hooks(lambda x: seen.append("first") or x, lambda x: x)
    second = saved_tensors_hooks(lambda x: seen.append("second") or x, lambda x: x)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    weft.ones(1, requires_grad=True).exp()
    second.__exit__(None, None, None)
    weft.ones(1, requires_grad=True).exp()
    assert seen == ["first"]


def slope(function):
    def of(x):
        with weft.enable_grad():
            return weft.autograd.grad(function(x), x, create_graph=True)[0]

    return of


def part(function):
    return lambda x: checkpoint(function, x, use_reentrant=False)


def wave(x):
    return x.sin().exp().sin()


NESTED = {
    "part of a slope": (part(slope(wave)), slope(wave)),
    "slope of a part of a slope": (slope(part(slope(wave))), slope(slope(wave))),
    "part of a curvature of a part": (part(slope(slope(part(wave)))), slope(slope(wave))),
    "three slopes, parts between": (slope(part(slope(slope(part(wave))))), slope(slope(slope(wave)))),
}


@pytest.mark.parametrize("stops_early", [True, False])
@pytest.mark.parametrize("case", NESTED)
@pytest.mark.parametrize("compiled", [False, True])
def test_slopes_of_parts_are_those_of_the_whole(case, stops_early, compiled):
    given, plain = NESTED[case]

    def of(function):
        x = weft.tensor(0.3, requires_grad=True, dtype=weft.float64)
        y = function(x)
        y.backward()
        return y.item(), x.grad.item()

    with set_checkpoint_early_stop(stops_early):
        run = weft.compile(given) if compiled else given
        assert [of(run) for _ in range(3)] == [of(plain)] * 3


def test_parts_that_were_computed_again_keep_no_graph():
    x = weft.tensor(0.3, requires_grad=True)
    mark = type("Mark", (), {})()
    y = slope(part(slope(wave)))(x)
    y.grad_fn.metadata["mark"] = mark
    reference = weakref.ref(mark)
    del y, mark
    gc.collect()
    assert reference() is None


def test_what_needs_no_gradients_is_saved_as_it_is():
    found = []

    class Passed(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(factor)
            return x * factor

        @staticmethod
        def backward(ctx, gradient):
            (factor,) = ctx.saved_tensors
            found.append(factor)
            return gradient * factor, None

    x, factor = weft.ones(2, requires_grad=True), weft.full((2,), 3.0)
    checkpoint(Passed.apply, x, factor, use_reentrant=False).sum().backward()
    assert found[0] is factor and x.grad.tolist() == [3, 3]


def test_what_was_computed_again_is_read_once():
    class Twice(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, gradient):
            assert len(ctx.saved_tensors) == 2
            with pytest.raises(RuntimeError, match="triggered for a tensor that was already unpacked once"):
                ctx.saved_tensors  # noqa: B018 (reading it is what raises)
            return gradient * 2

    x = weft.ones(2, requires_grad=True)
    y = checkpoint(lambda x: Twice.apply(x * 1), x, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 4]
