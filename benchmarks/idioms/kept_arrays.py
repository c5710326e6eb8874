"""Models of data that stays in NumPy arrays of the user's, which tensors of the same memory read."""

import numpy as np

from .registry import idiom
from .scipy_style import arrays


def gradients_of(T, s, loss, size, leaf=None, count=5):
    """A call of a minimizer: a new point, the loss there and its gradient by a backward pass outside. leaf: what makes
    a leaf of an array, if not a copy is one."""
    given = arrays(s, count, size)

    def call():
        theta = T.tensor(next(given) * 0.3, requires_grad=True) if leaf is None else leaf(next(given))
        value = loss(theta)
        value.backward()
        return [value, theta.grad]

    return call


@idiom
def regression_on_kept_arrays(T, s):
    inputs, wanted = s.rng.standard_normal((200, 5)), s.rng.standard_normal(200)
    x, y = T.from_numpy(inputs), T.from_numpy(wanted)
    return gradients_of(T, s, s.compile(lambda w: ((x @ w - y) ** 2).sum()), inputs.shape[1])


@idiom
def regression_on_large_kept_arrays(T, s):
    inputs, wanted = s.rng.standard_normal((20000, 8)), s.rng.standard_normal(20000)
    x, y = T.from_numpy(inputs), T.from_numpy(wanted)
    return gradients_of(T, s, s.compile(lambda w: ((x @ w - y) ** 2).mean()), inputs.shape[1])


@idiom
def arrays_read_in_the_function(T, s):
    inputs, wanted = s.rng.standard_normal((200, 5)), (s.rng.random(200) < 0.5).astype(float)

    @s.compile
    def loss(w):
        z = T.as_tensor(inputs) @ w
        return T.nn.functional.softplus(z).sum() - (T.as_tensor(wanted) * z).sum() + 0.5 * w.dot(w)

    return gradients_of(T, s, loss, inputs.shape[1])


@idiom
def leaf_of_an_array(T, s):
    inputs, wanted = s.rng.standard_normal((50, 4)), s.rng.standard_normal(50)
    x, y = T.from_numpy(inputs), T.from_numpy(wanted)
    loss = s.compile(lambda w: ((x @ w - y) ** 2).sum())
    return gradients_of(T, s, loss, inputs.shape[1], leaf=lambda array: T.from_numpy(array).requires_grad_())


@idiom
def series_read_one_by_one(T, s):
    series = s.rng.standard_normal(50)
    y = T.from_numpy(series)

    @s.compile
    def loss(theta):
        phi, scale = T.tanh(theta[0]), theta[1]
        total = 0.0
        for k in range(1, len(series)):
            error = y[k] - phi * y[k - 1]
            total = total + 0.5 * (error / scale.exp()) ** 2 + scale
        return total

    return gradients_of(T, s, loss, 2)


@idiom
def step_on_parts_of_a_series(T, s):
    series = s.rng.standard_normal(30)
    y, theta = T.from_numpy(series), T.zeros(2, dtype=T.float64, requires_grad=True)
    optimizer = T.optim.SGD([theta], lr=1e-3)

    @s.compile
    def step():
        level, total = theta[0], 0.0
        for k in range(1, len(series)):
            level = level + theta[1].sigmoid() * (y[k - 1] - level)
            total = total + (y[k] - level) ** 2
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total.detach()

    return lambda: [step(), theta]


@idiom
def columns_of_a_kept_array(T, s):
    inputs, wanted = s.rng.standard_normal((100, 3)), s.rng.standard_normal(100)
    x, y, w = T.from_numpy(inputs), T.from_numpy(wanted), T.zeros(3, dtype=T.float64, requires_grad=True)
    optimizer = T.optim.Adam([w], lr=0.01)

    @s.compile
    def step():
        optimizer.zero_grad()
        loss = ((w[0] * x[:, 0] + w[1] * x[:, 1] * x[:, 2] + w[2] - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda: [step(), w]


@idiom
def full_batches_of_kept_arrays(T, s):
    inputs, wanted = s.rng.standard_normal((300, 6)), (s.rng.random(300) < 0.4).astype(float)
    x, y, w = T.from_numpy(inputs), T.from_numpy(wanted), T.zeros(6, dtype=T.float64, requires_grad=True)
    optimizer = T.optim.Adam([w], lr=0.01)

    @s.compile
    def step():
        optimizer.zero_grad()
        loss = T.nn.functional.binary_cross_entropy_with_logits(x @ w, y)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: [step().detach(), w]


@idiom
def a_buffer_that_is_filled_anew(T, s):
    given, buffer = arrays(s, 5, 16, 4), np.zeros((16, 4))
    x, w = T.from_numpy(buffer), T.full((4,), 0.1, dtype=T.float64, requires_grad=True)

    @s.compile
    def loss():
        return (x @ w).tanh().square().mean()

    def call():
        buffer[:] = next(given)
        value = loss()
        (gradient,) = T.autograd.grad(value, w)
        return [value, gradient]

    return call


@idiom
def groups_of_an_index_array(T, s):
    group, inputs, wanted = s.rng.integers(0, 8, 120), s.rng.standard_normal(120), s.rng.standard_normal(120)
    g, x, y = T.from_numpy(group), T.from_numpy(inputs), T.from_numpy(wanted)
    D = T.distributions

    @s.compile
    def loss(theta):
        level, slope = theta[:8], theta[8:16]
        mean, spread = theta[16], theta[17].exp()
        prior = D.Normal(mean, spread).log_prob(level).sum() + D.Normal(0.0, 1.0).log_prob(slope).sum()
        return -(prior + D.Normal(level[g] + slope[g] * x, theta[18].exp()).log_prob(y).sum())

    return gradients_of(T, s, loss, 19)


@idiom
def partial_likelihood_of_survival(T, s):
    inputs, seen = s.rng.standard_normal((100, 4)), s.rng.random(100) < 0.7
    x, events = T.from_numpy(inputs), T.from_numpy(seen)

    @s.compile
    def loss(w):
        risk = x @ w
        return -T.where(events, risk - T.logcumsumexp(risk, 0), 0.0).sum()

    return gradients_of(T, s, loss, inputs.shape[1])


@idiom
def hidden_states_of_a_kept_series(T, s):
    series = s.rng.standard_normal(30)
    y = T.from_numpy(series)

    @s.compile
    def loss(theta):
        moves, first, levels = T.log_softmax(theta[:9].view(3, 3), 1), T.log_softmax(theta[9:12], 0), theta[12:15]
        seen = -0.5 * (y[:, None] - levels[None, :]) ** 2
        state = first + seen[0]
        for k in range(1, len(series)):
            state = T.logsumexp(state[:, None] + moves, 0) + seen[k]
        return -T.logsumexp(state, 0)

    return gradients_of(T, s, loss, 15)
