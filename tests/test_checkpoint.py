"""utils.checkpoint: parts of a model run again in backward, with the same values, gradients and random numbers."""

import gc
import weakref

import numpy as np
import pytest

import weft
from weft.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_early_stop


def leaf(*values):
    return weft.tensor(list(values), dtype=weft.float64, requires_grad=True)


class Counted:
    """A function that counts its calls, and how far they come."""

    def __init__(self):
        self.begun = self.ended = 0

    def __call__(self, x, w):
        self.begun += 1
        y = (x * w).tanh().exp()
        self.ended += 1
        return y.clone()


def gradients(run):
    x, w = leaf(0.5, -1.0), leaf(1.0, 2.0)
    run(x, w).sum().backward()
    return x.grad.numpy().tobytes(), w.grad.numpy().tobytes()


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_part_runs_again_in_backward_with_the_same_bits(reentrant):
    part = Counted()
    plain = gradients(part)
    assert gradients(lambda x, w: checkpoint(part, x, w, use_reentrant=reentrant)) == plain
    # The plain call, the first run, and the second, which stops where backward has all it needs.
    assert (part.begun, part.ended) == (3, 2)
    with set_checkpoint_early_stop(False):
        gradients(lambda x, w: checkpoint(part, x, w, use_reentrant=reentrant))
    assert (part.begun, part.ended) == (5, 4)


def test_compiled_calls_run_the_part_once_with_the_same_bits():
    part = Counted()
    step = weft.compile(lambda x, w: checkpoint(part, x, w, use_reentrant=False))
    assert gradients(step) == gradients(step) == gradients(part)
    assert part.begun == 3


def test_nested_parts_and_second_derivatives():
    def inner(x):
        return x.sin().exp().sin()

    def outer(x):
        return checkpoint(inner, x, use_reentrant=False).cos() * x

    def second(function):
        x = leaf(0.3, 0.7)
        (first,) = weft.autograd.grad(function(x).sum(), x, create_graph=True)
        return weft.autograd.grad((first * first).sum(), x)[0].numpy()

    plain = second(lambda x: inner(x).cos() * x)
    assert np.array_equal(second(outer), plain)
    assert np.array_equal(second(lambda x: checkpoint(outer, x, use_reentrant=False)), plain)


def test_what_is_saved_is_let_go():
    kept = []

    def part(x):
        y = x * 2
        z = y * y
        kept.append(weakref.ref(y))
        return z

    x = leaf(1.0)
    gc.disable()
    try:
        out = checkpoint(part, x, use_reentrant=False)
        assert kept[0]() is None
        out.backward()
        assert x.grad.tolist() == [8]
    finally:
        gc.enable()


def test_random_numbers_are_drawn_again():
    weft.manual_seed(3)
    x = leaf(*([1.0] * 50))
    masks = []

    def part(x):
        mask = (weft.rand(50, dtype=weft.float64) > 0.5).double()
        masks.append(mask.tolist())
        return (x * mask).exp()

    checkpoint(part, x, use_reentrant=False).sum().backward()
    assert masks[0] == masks[1]


def test_keywords_and_results_of_any_kind():
    x = leaf(2.0)
    y, number, text = checkpoint(lambda a, scale: ((a * a) * scale, 1, "x"), x, scale=3, use_reentrant=False)
    y.sum().backward()
    assert (number, text) == (1, "x") and x.grad.tolist() == [12]


def test_a_part_that_does_something_else_is_an_error():
    turns = iter(range(10))
    with pytest.raises(CheckpointError, match="A different number of tensors was saved"):
        checkpoint(lambda x: x.exp() if next(turns) else x.exp().sin(), leaf(1.0), use_reentrant=False).backward()
    sizes = iter((2, 3))
    with pytest.raises(CheckpointError, match="have different metadata than during the forward pass"):
        checkpoint(
            lambda x: (x * weft.ones(next(sizes)).double()).exp().sum(), leaf(1.0), use_reentrant=False
        ).backward()


@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_a_reentrant_part_without_inputs_that_require_gradients_has_none(wrap):
    w = leaf(1.0)
    x = weft.ones(1, dtype=weft.float64)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not wrap(lambda x: checkpoint(lambda x: x * w, x, use_reentrant=True))(x).requires_grad
    assert checkpoint(lambda x: x * w, x, use_reentrant=False).requires_grad


def test_what_pytorch_asks_to_say():
    x = leaf(1.0)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(lambda x: x * 2, x)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint_sequential([weft.sin, weft.cos], 2, x)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: scale"):
        checkpoint(lambda x, scale: x * scale, x, scale=2, use_reentrant=True)


def test_a_sequence_in_parts():
    layers = weft.nn.Sequential(*[weft.nn.Linear(3, 3) for _ in range(5)])
    x = weft.ones(2, 3, requires_grad=True)
    found = []
    for run in (layers, lambda x: checkpoint_sequential(layers, 2, x, use_reentrant=False)):
        layers.zero_grad()
        run(x).sum().backward()
        found.append([p.grad.numpy().tobytes() for p in layers.parameters()])
    assert found[0] == found[1]


def test_a_reentrant_part_without_gradients_is_an_error():
    layer = weft.nn.Linear(2, 2)
    x = weft.ones(3, 2, requires_grad=True)

    def detached(y):
        with weft.no_grad():
            return layer(y)

    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        checkpoint(detached, x, use_reentrant=True)
    assert not checkpoint(detached, x, use_reentrant=False).requires_grad
    with weft.no_grad():
        assert not checkpoint(layer, x, use_reentrant=True).requires_grad
    value, label = checkpoint(lambda y: (detached(y), layer(y)), x, use_reentrant=True)
    assert not value.requires_grad and label.requires_grad
    assert checkpoint(lambda y: "done", x, use_reentrant=True) == "done"


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_a_parameter_that_is_changed_before_backward_is_an_error_through_a_compiled_call(use_reentrant, inside):
    """Eager mode runs the part again with what is there then: this difference is in differences.md."""

    def gradient(compile):
        layer = weft.nn.Linear(2, 2, bias=False)

        def change():
            with weft.no_grad():
                layer.weight.fill_(3.0)

        @compile
        def f(x):
            y = checkpoint(layer, x, use_reentrant=use_reentrant)
            if inside:
                change()
            return y

        for _ in range(4):
            x = weft.ones(1, 2, requires_grad=True)
            y = f(x)
            if not inside:
                change()
            y.sum().backward()
        return x.grad.tolist()

    assert gradient(lambda f: f) == [[6.0, 6.0]]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradient(weft.compile)
