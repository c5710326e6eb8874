"""Loops in Python whose number of steps changes: lengths share programs, with the bits of eager mode."""

import math

import pytest

import weft
from weft import nn
from weft.nn import functional as F

LENGTHS = (5, 7, 6, 9, 12, 8, 40, 100, 11, 30, 5, 64)


def bits(results):
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [t.detach().numpy().tobytes() for t in results]


def programs_of(f):
    """(texts of code for several lengths, programs for one alone)"""
    families = [family for form in f._sizes.loops.forms.values() for family in form.families]
    several = sum(len(made) for family in families for made in family.programs.values())
    return several, sum("n" not in p.meta for r in f.recordings for p in r.programs)


def parameters(*shapes):
    weft.manual_seed(0)
    return [(weft.randn(*shape) * 0.3).requires_grad_() for shape in shapes]


def with_gradients(loss, leaves):
    return (loss, *weft.autograd.grad(loss, leaves))


# --- programs as strangers write them: make() gives (function of a length's arguments, arguments of a length) ---------
def rnn():
    w, u, b = parameters((4, 6), (6, 6), (6,))

    def run(x):
        h = weft.zeros(3, 6)
        for t in range(x.shape[0]):
            h = weft.tanh(x[t] @ w + h @ u + b)
        return with_gradients((h * h).sum(), [w, u, b])

    return run, lambda n: (weft.randn(n, 3, 4),)


def outputs_in_a_list():
    w, u = parameters((4, 6), (6, 6))

    def run(x, h):
        outputs = []
        for part in x:
            h = weft.relu(part @ w + h @ u)
            outputs.append(h)
        out = weft.stack(outputs)
        return (out, *with_gradients((out * out).mean(), [w, u]))

    return run, lambda n: (weft.randn(n, 3, 4), weft.randn(3, 6))


def batch_first():
    w, u = parameters((4, 6), (6, 6))

    def run(x):
        h, outputs = weft.zeros(3, 6), []
        for t in range(x.size(1)):
            h = weft.tanh(x[:, t] @ w + h @ u)
            outputs.append(h)
        out = weft.stack(outputs, dim=1)
        return (out, *with_gradients(out.sin().sum(), [w, u]))

    return run, lambda n: (weft.randn(3, n, 4),)


def joined():
    w, u = parameters((4, 6), (6, 6))

    def run(x):
        h, outputs = weft.zeros(3, 6), []
        for t in range(x.size(1)):
            h = weft.tanh(x[:, t, :] @ w + h @ u)
            outputs += [h.unsqueeze(1)]
        out = weft.cat(outputs, dim=1)
        return (out, *with_gradients(out.sin().sum(), [w, u]))

    return run, lambda n: (weft.randn(3, n, 4),)


def lstm_by_hand():
    w, u, b = parameters((4, 24), (6, 24), (24,))

    def run(x):
        h, c = weft.zeros(3, 6), weft.zeros(3, 6)
        for t in range(len(x)):
            i, f, g, o = (x[t] @ w + h @ u + b).chunk(4, dim=1)
            c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
            h = weft.sigmoid(o) * weft.tanh(c)
        return with_gradients((h * c).sum(), [w, u, b])

    return run, lambda n: (weft.randn(n, 3, 4),)


def cell_and_losses():
    cell, head = nn.GRUCell(4, 6), nn.Linear(6, 5)
    leaves = [*cell.parameters(), *head.parameters()]

    def run(x, target):
        h, loss = weft.zeros(3, 6), 0.0
        for t in range(x.shape[0]):
            h = cell(x[t], h)
            loss = loss + F.mse_loss(head(h), target[t])
        return with_gradients(loss / x.shape[0], leaves)

    return run, lambda n: (weft.randn(n, 3, 4), weft.randn(n, 3, 5))


def kalman_filter():
    (q,) = parameters((1,))

    def run(z):
        a, h, eye = weft.tensor([[1.0, 0.1], [0.0, 1.0]]), weft.tensor([[1.0, 0.0]]), weft.eye(2)
        x, p, loss = weft.zeros(2, 1), eye, weft.zeros(())
        for t in range(z.shape[0]):
            x, p = a @ x, a @ p @ a.T + weft.exp(q) * eye
            s = h @ p @ h.T + 0.5
            k = p @ h.T / s
            y = z[t] - h @ x
            x, p = x + k @ y, (eye - k @ h) @ p
            loss = loss + (y * y / s + weft.log(s)).sum()
        return with_gradients(loss, [q])

    return run, lambda n: (weft.randn(n, 1, 1),)


def leapfrog():
    def run(x, v, n_steps, dt):
        v = v - 0.5 * dt * x
        for _ in range(n_steps):
            x = x + dt * v
            v = v - dt * weft.sin(x)
        return x, v

    return run, lambda n: (weft.randn(7), weft.randn(7), n, 0.05)


def leapfrog_with_gradient():
    def run(x, v, n_steps):
        x = x.detach().requires_grad_()
        y, w = x, v
        for _ in range(n_steps):
            y = y + 0.1 * w
            w = w - 0.1 * weft.sin(y)
        return with_gradients((y * y + w * w).sum(), [x])

    return run, lambda n: (weft.randn(7), weft.randn(7), n)


def numbers_of_their_own():
    """Each step is given a number that is another one in each."""

    def run(x, n_steps):
        for t in range(n_steps):
            x = x * 0.9 + math.cos(t) * weft.tanh(x)
        return x

    return run, lambda n: (weft.randn(2, 5), n)


def sum_of_a_list():
    (w,) = parameters((4, 4))

    def run(x):
        losses = [((x[t] @ w) ** 2).mean() for t in range(x.shape[0])]
        return with_gradients(sum(losses) / len(losses), [w])

    return run, lambda n: (weft.randn(n, 3, 4),)


def attention_over_all_states():
    w, u = parameters((4, 6), (6, 6))

    def run(x):
        h, states = weft.zeros(3, 6), []
        for t in range(x.shape[0]):
            h = weft.tanh(x[t] @ w + h @ u)
            states.append(h)
        states = weft.stack(states, 1)
        weights = weft.softmax((states * h[:, None]).sum(-1), dim=1)
        return with_gradients((weights[..., None] * states).sum().square(), [w, u])

    return run, lambda n: (weft.randn(n, 3, 4),)


def in_double():
    w, u = (p.detach().double().requires_grad_() for p in parameters((4, 6), (6, 6)))

    def run(x):
        h = weft.zeros(3, 6, dtype=weft.float64)
        for t in range(x.shape[0]):
            h = weft.tanh(x[t] @ w + h @ u)
        return with_gradients(h.sum(), [w, u])

    return run, lambda n: (weft.randn(n, 3, 4, dtype=weft.float64),)


MADE = (
    rnn, outputs_in_a_list, batch_first, joined, lstm_by_hand, cell_and_losses, kalman_filter, leapfrog,
    leapfrog_with_gradient, numbers_of_their_own, sum_of_a_list, attention_over_all_states, in_double,
)  # fmt: skip


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_lengths_share_a_program(make):
    run, arguments = make()
    f = weft.compile(run)
    for n in LENGTHS:
        given = arguments(n)
        assert bits(f(*given)) == bits(run(*given)), n
    several, alone = programs_of(f)
    assert several == 1 and alone <= 2, (several, alone, f._sizes.loops.refusals, f.explain())
