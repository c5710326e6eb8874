"""NumPy arrays made of results in replayed calls, and leaves made of arrays in them: how SciPy and notebooks call."""

import numpy as np
import pytest
from compiled_twin import error_of, look, twin

import weft

ROUNDS = 14
X = np.linspace(-1, 1, 12).reshape(4, 3)


def table():
    return weft.tensor(X)


def value_and_gradient(a, x):
    theta = weft.tensor(a, requires_grad=True)
    loss = (x @ theta).sin().square().sum()
    loss.backward()
    return loss.item(), theta.grad.numpy()


def by_grad(a, x):
    theta = weft.from_numpy(a).clone().requires_grad_()
    loss = (x @ theta).exp().sum()
    (gradient,) = weft.autograd.grad(loss, theta)
    return float(loss), gradient.numpy()


def flag_set_later(a, x):
    theta = weft.tensor(a)
    theta.requires_grad = True
    loss = (x @ theta).tanh().sum() * theta.sum()
    loss.backward()
    return loss.detach().numpy(), theta.grad.numpy().astype(float)


def prediction(a, x):
    with weft.no_grad():
        return (x @ weft.from_numpy(a)).softmax(0).numpy()


def of_two_layers(a, x):
    hidden = (x @ weft.tensor(a)).tanh()
    return (hidden * 2).numpy(), hidden.numpy()


def a_view(a, x):
    return (x @ weft.tensor(a)).reshape(2, 2).T.numpy()


def written_to_in_the_call(a, x):
    hidden = (x @ weft.tensor(a)).tanh()
    shown = hidden.numpy()
    shown[0] = 7
    return (hidden * 2).numpy(), shown


def written_to_after_the_last_op(a, x):
    hidden = (x @ weft.tensor(a)).tanh()
    shown = hidden.numpy()
    shown[0] = 7
    return hidden, shown


def read_by_a_backward(a, x):
    theta = weft.tensor(a, requires_grad=True)
    hidden = (x @ theta).exp()
    shown = hidden.detach().numpy()
    shown[1] = 3
    hidden.sum().backward()
    return theta.grad


def with_a_history(a, x):
    theta = weft.tensor(a, requires_grad=True)
    hidden = (x @ theta).exp()
    shown = hidden.detach().numpy()
    return hidden.sum(), theta, shown


def a_gradient_that_was_there(a, x):
    theta = weft.tensor(a, requires_grad=True)
    theta.grad = weft.ones(3, dtype=weft.float64)
    (x @ theta).square().sum().backward()
    return theta.grad.numpy()


def a_leaf_that_is_kept(a, x):
    theta = weft.tensor(a, requires_grad=True)
    (x @ theta).square().sum().backward()
    return theta, theta.grad


def a_leaf_with_a_hook(a, x):
    theta = weft.tensor(a, requires_grad=True)
    theta.register_hook(lambda g: g * 2)
    (x @ theta).square().sum().backward()
    return theta.grad.numpy()


BODIES = [
    value_and_gradient, by_grad, flag_set_later, prediction, of_two_layers, a_view, written_to_in_the_call,
    written_to_after_the_last_op, read_by_a_backward, with_a_history, a_gradient_that_was_there, a_leaf_that_is_kept,
    a_leaf_with_a_hook,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("after", ["nothing", "writes", "keeps"])
def test_the_same_arrays_as_in_eager_mode(body, after):
    def scenario(compile):
        f, x, kept = compile(body), table(), []
        for k in range(ROUNDS):
            result = f(np.array([0.5, -0.25 * k, 0.125]), x)
            parts = result if isinstance(result, tuple) else (result,)
            yield look(list(parts))
            for part in parts:
                if after == "writes" and isinstance(part, np.ndarray) and part.ndim:
                    part[...] = k
            if body is with_a_history:
                yield error_of(parts[0].backward), parts[1].grad
            if after == "keeps":
                kept.append(parts)
        yield [list(parts) for parts in kept]

    twin(scenario)()


@pytest.mark.parametrize(
    "body", [value_and_gradient, by_grad, flag_set_later, prediction, of_two_layers, a_leaf_that_is_kept]
)
def test_such_calls_are_replayed(body):
    f, x = weft.compile(body), table()
    for k in range(ROUNDS):
        f(np.array([0.5, -0.25 * k, 0.125]), x)
    (recording,) = f.recordings
    assert recording.not_replayed is None
    assert recording.n_followed < ROUNDS // 2


def test_a_new_leaf_that_numpy_shows_gets_its_gradient():
    """Not a copy of it, which calls read of what others may write to."""
    state = {"w": weft.zeros(3, requires_grad=True)}

    @weft.compile
    def step(x, y):
        loss = (x @ state["w"] - y).square().mean()
        slope = weft.autograd.grad(loss, state["w"])[0]
        state["w"] = (state["w"] - 0.1 * slope).detach().requires_grad_()
        return loss.item()

    x, y, w = weft.randn(20, 3), weft.randn(20), np.zeros(3)
    for _ in range(12):
        loss = ((x.numpy() @ w - y.numpy()) ** 2).mean()
        w = w - 0.1 * (2 * x.numpy().T @ (x.numpy() @ w - y.numpy()) / 20)
        assert abs(step(x, y) - loss) < 1e-5
        assert np.allclose(state["w"].detach().numpy().copy(), w, atol=1e-5)
