"""autograd.grad inside compiled functions: one step of the recording, with the results and errors of eager mode."""

import pytest
from compiled_twin import error_of, leaf, twin

import weft
from weft import randn
from weft.autograd import grad
from weft.nn import functional as F

N_CALLS = 8


@twin
def test_of_leaves_and_arguments(compile):
    w, b = leaf(3, 2), leaf(2)

    def f(x):
        value = F.gelu(x @ w + b).sum()
        return value, *grad(value, (x, b, w))

    f = compile(f)
    for _ in range(N_CALLS):
        yield f(leaf(4, 3)), w, b


@twin
def test_of_values_of_the_call(compile):
    w = leaf(3)

    def f(x):
        y = (x * w).tanh()
        z = y.exp() * y
        value = (z * w).sum()
        return grad(value, (y, z, w, value), retain_graph=True), grad(value, y)

    f = compile(f)
    for _ in range(N_CALLS):
        yield f(leaf(3))


@twin
def test_with_cotangents_and_several_outputs(compile):
    w = leaf(3)

    def f(x, c):
        return grad((x * w, (x + w).sum()), (w, x), (c, None), retain_graph=True), grad((x * w).exp(), x, c)

    f = compile(f)
    for _ in range(N_CALLS):
        yield f(leaf(3), randn(3))


@twin
def test_unused_inputs(compile):
    w, unused = leaf(3), leaf(2)

    def f(x):
        value = (x * w).sum()
        return (
            grad(value, (w, unused), retain_graph=True, allow_unused=True),
            grad(value, (unused, x), retain_graph=True, materialize_grads=True),
            error_of(grad, value, unused, retain_graph=True),
        )

    f = compile(f)
    for _ in range(N_CALLS):
        yield f(leaf(3)), unused


@twin
def test_what_is_freed(compile):
    w = leaf(3)

    def f(x):
        y = x.exp()
        value = (y * w).sin().sum()
        (g,) = grad(value, y)  # frees what is between, not exp
        return g, error_of(grad, value, y), error_of(y.sum().backward), error_of(y.sum().backward)

    f = compile(f)
    for _ in range(N_CALLS):
        x = leaf(3)
        yield f(x), x


@twin
def test_gradients_in_a_loss(compile):
    # Gradients of gradients, and a step that trains on them.
    w = leaf(4)
    optimizer = weft.optim.SGD([w], lr=0.1)

    def f(x):
        optimizer.zero_grad()
        y = (x * w).tanh().sum()
        (g,) = grad(y, w, create_graph=True)
        loss = (g * g).sum() + y
        loss.backward()
        optimizer.step()
        return loss, g.detach()

    f = compile(f)
    for _ in range(N_CALLS):
        yield f(randn(4)), w


@twin
def test_update_by_hand(compile):
    w = leaf(4)

    def f(x):
        value = ((x - w) ** 2).sum()
        (g,) = grad(value, w)
        with weft.no_grad():
            w.sub_(0.1 * g)
        return value.detach(), g

    f = compile(f)
    for _ in range(N_CALLS):
        yield f(randn(4)), w


@twin
def test_backward_afterwards_outside(compile):
    w = leaf(4)
    f = compile(lambda x: (lambda y: (y, *grad(y, w, retain_graph=True)))((x * w).exp().sum()))
    for _ in range(N_CALLS):
        y, g = f(randn(4))
        y.backward()
        yield y, g, w


@twin
def test_the_same_input_twice_and_hooks(compile):
    w = leaf(3)
    hooked = leaf(3)
    hooked.register_hook(lambda g: g * 2)
    f = compile(lambda x: (grad((x * w).sum(), (w, w)), grad((x * hooked).sum(), hooked)))
    for _ in range(N_CALLS):
        yield f(randn(3))


@twin
def test_one_call_differs(compile):
    w, v, calls = leaf(3), leaf(3), [0]

    def f(x):
        calls[0] += 1
        y = (x * w * v).sum()
        return grad(y, (v, w) if calls[0] == 6 else (w, v))

    f = compile(f)
    for _ in range(N_CALLS):
        yield f(randn(3))


def test_it_is_one_step():
    w = leaf(3)
    f = weft.compile(lambda x: grad((x * w).tanh().sum(), w)[0])
    for _ in range(6):
        f(randn(3))
    (recording,) = f.recordings
    assert [str(step.op) for step in recording.usual.expectation.path if step.op == "gradients"] == ["gradients"]
    assert len(recording.programs) == 1 and not recording.fallbacks


def test_errors_stand_at_the_call():
    f = weft.compile(lambda x: grad(x * 2, x))
    with pytest.raises(RuntimeError, match="implicitly created only for scalar outputs"):
        f(leaf(3))
    g = weft.compile(lambda x: grad(x.sum(), weft.ones(3)))
    with pytest.raises(RuntimeError, match="does not require grad"):
        g(leaf(3))


@twin
def test_of_parts_with_negative_zeros(compile):
    """Sums of what is zero but for a part become joins, which must not keep -0.0 where a sum makes 0.0."""
    w = leaf(4, 6)

    def f(scale):
        of_rows = sum((row * scale).sum() for row in w.unbind(0))
        of_some = (w[1] * scale).sum() + (w[3] * scale).sum()
        of_columns = sum((part * scale[:3]).sum() for part in w.chunk(2, 1))
        mixed = (w * w).sum() + (w[:2] * scale).sum() + (w[2:] * scale).sum()
        return [
            grad(value, w, retain_graph=True)[0]
            for value in (of_rows, of_some, of_columns, mixed, of_rows + of_columns)
        ]

    f = compile(f)
    for _ in range(N_CALLS):
        yield f(weft.tensor([-0.0, 1.0, 0.0, -0.0, -1.0, 0.0]) * randn(1).abs())
