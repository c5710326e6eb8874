"""Loops in Python whose number of steps changes: lengths share programs, with the bits of eager mode."""

import math

import pytest
from loops_at_random import loop_at_random

import weft
from weft import nn
from weft.nn import functional as F

# More calls than a function needs to be compiled that is made anew for every test.
LENGTHS = (5, 7, 6, 9, 12, 8, 40, 100, 11, 30, 5, 64, *[9] * 16)


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


# --- what is left as it was -------------------------------------------------------------------------------------------
def with_tensors_made_in_steps():
    def run(x, n_steps):
        for _ in range(n_steps):
            x = weft.tanh(x @ weft.eye(3) + 1)
        return x

    return run, lambda n: (weft.randn(2, 3), n)


def with_layers_of_their_own():
    """Steps that are alike, each with a weight of its own."""
    weights = parameters(*[(3, 3)] * 120)

    def run(x, n_layers):
        for w in weights[:n_layers]:
            x = weft.tanh(x @ w)
        return with_gradients(x.sum(), weights[:3])

    return run, lambda n: (weft.randn(2, 3), n)


def with_two_steps_before():
    def run(x, n_steps):
        before, now = x, x * 0.5
        for _ in range(n_steps):
            before, now = now, weft.sin(now + before)
        return now

    return run, lambda n: (weft.randn(5), n)


def with_other_steps_in_turn():
    def run(x):
        h = weft.zeros(3)
        for t in range(x.shape[0]):
            h = weft.tanh(h + x[t]) if t % 2 else weft.relu(h - x[t])
        return h

    return run, lambda n: (weft.randn(n, 3),)


def with_rows_two_by_two():
    def run(x):
        h = weft.zeros(3)
        for t in range(0, x.shape[0] - 1, 2):
            h = weft.tanh(h * x[t] + x[t + 1])
        return h

    return run, lambda n: (weft.randn(n, 3),)


def with_rows_from_both_ends():
    def run(x):
        h, n = weft.zeros(3), x.shape[0]
        for t in range(n):
            h = weft.tanh(h * x[t] + x[n - 1 - t])
        return h

    return run, lambda n: (weft.randn(n, 3),)


def with_values_read():
    def run(x):
        h = weft.zeros(3)
        for t in range(x.shape[0]):
            h = weft.tanh(h + x[t])
            if h.sum().item() > 1.0:
                h = h * 0.5
        return h

    return run, lambda n: (weft.randn(n, 3),)


def with_changes_in_place():
    def run(x, out):
        h = weft.zeros(3)
        for t in range(x.shape[0]):
            h = weft.tanh(h + x[t])
            out += h
        return h, out * 1

    return run, lambda n: (weft.randn(n, 3), weft.zeros(3))


def with_several_types():
    def run(x):
        h, count = weft.zeros(3), weft.zeros(3, dtype=weft.int64)
        for t in range(x.shape[0]):
            h = weft.tanh(h + x[t])
            count = count + (h > 0).long()
        return h, count

    return run, lambda n: (weft.randn(n, 3),)


def with_zeros_that_have_signs():
    def run(x):
        x = (x * -0.0).requires_grad_()
        h = weft.zeros(3) * -1.0
        for t in range(x.shape[0]):
            h = h * x[t] - 0.0 * h
        return (h, *weft.autograd.grad((h * -0.0).sum(), [x]))

    return run, lambda n: (weft.randn(n, 3),)


OTHERS = (
    with_tensors_made_in_steps, with_layers_of_their_own, with_two_steps_before, with_other_steps_in_turn,
    with_rows_two_by_two, with_rows_from_both_ends, with_values_read, with_changes_in_place, with_several_types,
    with_zeros_that_have_signs,
)  # fmt: skip


@pytest.mark.parametrize("make", OTHERS, ids=lambda make: make.__name__)
def test_other_loops_have_the_bits_of_eager_mode(make):
    run, arguments = make()
    f = weft.compile(run)
    for n in (6, 8, 9, 11, 8, 14, *[8] * 16):
        given = arguments(n)
        found = bits(f(*[x.clone() if isinstance(x, weft.Tensor) else x for x in given]))
        assert found == bits(run(*given)), n


def test_explain_says_what_cannot_be_a_loop():
    run, arguments = with_layers_of_their_own()
    f = weft.compile(run)
    for n in (6, 8, 9, *[9] * 16):
        f(*arguments(n))
    text = f.explain()
    assert "loops compiled for every number of steps anew: what is repeated is not of equal form" in text


def test_explain_says_what_serves_many_numbers_of_steps():
    run, arguments = leapfrog()
    f = weft.compile(run)
    for n in (6, 8, 9, *[9] * 16):
        f(*arguments(n))
    assert "serves many numbers of steps, here" in f.explain()


def test_training_on_lengths_as_they_come():
    def train(compiled):
        weft.manual_seed(3)
        cell, last = nn.LSTMCell(4, 6), nn.Linear(6, 2)
        trained = [*cell.parameters(), *last.parameters()]
        optimizer = weft.optim.Adam(trained, lr=0.01)

        def step(x, y):
            h = c = weft.zeros(3, 6)
            for part in x.unbind(0):
                h, c = cell(part, (h, c))
            loss = F.mse_loss(last(h), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step) if compiled else step
        losses = [run(weft.randn(n, 3, 4), weft.randn(3, 2)).item() for n in LENGTHS]
        return losses, bits(trained), run

    (losses, trained, f), (eager, expected, _) = train(True), train(False)
    assert losses == eager and trained == expected
    several, alone = programs_of(f)
    # The optimizer makes its state in the first call.
    assert several == 1 and alone <= 3, f.explain()


def test_nothing_is_kept_for_every_length():
    run, arguments = leapfrog()
    f = weft.compile(run)
    for n in range(5, 105):
        f(*arguments(n))
    loops = f._sizes.loops
    (form,) = loops.forms.values()
    assert len(f.recordings) <= 64 and len(form.families) == 1 and form.sample is None
    assert sum(map(len, form.families[0].programs.values())) == 1


# --- loops made at random ---------------------------------------------------------------------------------------------
def made_at_random(seed):
    """A loop with its gradients."""
    weights = parameters((3, 4), (3, 4))
    steps = loop_at_random(seed, weights, most_ops=6)

    def run(x):
        out, states = steps(x)
        return (out, *weft.autograd.grad(out.sin().sum() + sum(s.sum() for s in states), [*weights], allow_unused=True))

    return run, lambda n: (weft.randn(n, 3, 4),)


@pytest.mark.parametrize("seed", range(10))
def test_loops_made_at_random(seed):
    run, arguments = made_at_random(seed)
    f = weft.compile(run)
    for n in (7, 9, 12, 8, *[8] * 16):
        given = arguments(n)
        eager, found = run(*given), f(*given)
        assert bits([t for t in found if t is not None]) == bits([t for t in eager if t is not None]), n


# --- the first length of a long loop ----------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [rnn, outputs_in_a_list, batch_first])
def test_the_first_length_of_a_long_loop_is_compiled_with_loops(make):
    run, arguments = make()
    compiled = weft.compile(run)
    for n in (150, 150, 150, 170):
        given = arguments(n)
        assert bits(compiled(*given)) == bits(run(*given))
    first = compiled.recordings[0].programs[0]
    assert first.meta["has_loops"] and first.of_many is None
    assert programs_of(compiled)[0] == 1


def test_a_long_loop_is_differentiated_after_the_call():
    w, u = parameters((4, 6), (6, 6))

    def run(x):
        h = weft.zeros(3, 6)
        for t in range(len(x)):
            h = weft.tanh(x[t] @ w + h @ u)
        return h.square().sum(), h

    compiled = weft.compile(run)
    for k in range(5):
        x = weft.randn(160, 3, 4)
        found = []
        for function in (compiled, run):
            loss, h = function(x)
            first = weft.autograd.grad(loss if k % 2 else loss + h.sum(), [w, u], create_graph=k == 3)
            found.append(first)
            if k == 3:
                found[-1] = (*first, *weft.autograd.grad(first[0].square().sum(), [w, u]))
        assert bits(found[0]) == bits(found[1])
    assert compiled.recordings[0].programs[0].meta["has_loops"]
