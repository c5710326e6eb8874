"""Loops in Python whose number of steps changes, differentiated after the call: the forwards of all lengths share a
program, and so do their backwards, with the bits of eager mode."""

import pytest
from loops_at_random import loop_at_random

import weft
from weft import nn
from weft.nn import functional as F

# More calls than a function needs to be compiled that is made anew for every test.
LENGTHS = (7, 9, 8, 12, 3, 40, 11, 30, 5, 64, 10, *[9] * 16)


def bits(tensors):
    return [None if t is None else t.detach().numpy().tobytes() for t in tensors]


def programs_of(f):
    """(texts of code for several lengths, programs for one alone)"""
    families = [family for form in f._sizes.loops.forms.values() for family in form.families]
    several = sum(len(made) for family in families for made in family.programs.values())
    return several, sum("n" not in p.meta for r in f.recordings for p in r.programs)


def parameters(*shapes, dtype=None):
    weft.manual_seed(0)
    return [(weft.randn(*shape, dtype=dtype) * 0.3).requires_grad_() for shape in shapes]


def with_gradients(loss, leaves):
    """The loss, and what it adds to the gradients of leaves."""
    for leaf in leaves:
        leaf.grad = None
    loss.backward()
    return bits([loss, *(leaf.grad for leaf in leaves)])


# --- programs as strangers write them: make() gives (function, arguments of a length, loss of its results, leaves) ---
def rnn():
    w, u, b = parameters((4, 6), (6, 6), (6,))

    def loss(x):
        h = weft.zeros(3, 6)
        for t in range(x.shape[0]):
            h = weft.tanh(x[t] @ w + h @ u + b)
        return (h * h).sum()

    return loss, lambda n: (weft.randn(n, 3, 4),), lambda r: r, [w, u, b]


def outputs_in_a_list():
    w, u = parameters((4, 6), (6, 6))

    def outputs(x, h):
        found = []
        for part in x:
            h = weft.relu(part @ w + h @ u)
            found.append(h)
        return weft.stack(found)

    return outputs, lambda n: (weft.randn(n, 3, 4), weft.zeros(3, 6)), lambda r: (r * r).mean(), [w, u]


def cells_in_a_module():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(4, 6), nn.Linear(6, 5)

        def forward(self, x, *, start):
            h = c = start
            scores = []
            for t in range(x.shape[1]):
                h, c = self.cell(x[:, t], (h, c))
                scores.append(self.head(h))
            return {"scores": weft.stack(scores, 1), "last": h}

    weft.manual_seed(0)
    model = Tagger()

    def tag(x):
        return model(x, start=weft.zeros(3, 6))

    def loss(r):
        target = weft.arange(r["scores"].shape[1]) % 5
        return F.cross_entropy(r["scores"].flatten(0, 1), target.repeat(3)) + r["last"].sum()

    return tag, lambda n: (weft.randn(3, n, 4),), loss, list(model.parameters())


def one_of_two_results():
    w, u = parameters((4, 6), (6, 6))

    def run(x):
        h, outputs = weft.zeros(3, 6), []
        for part in x.unbind(0):
            h = weft.sigmoid(part @ w + h @ u)
            outputs.append(h)
        return (h * h).sum(), weft.stack(outputs)

    return run, lambda n: (weft.randn(n, 3, 4),), lambda r: r[0], [w, u]


def the_other_of_two_results():
    run, arguments, _, leaves = one_of_two_results()
    return run, arguments, lambda r: r[1].mean(), leaves


def weights_that_the_loss_reads_too():
    loss, arguments, _, leaves = rnn()
    return loss, arguments, lambda r: r + 0.1 * sum((leaf * leaf).sum() for leaf in leaves), leaves


def numbers_of_their_own():
    (w,) = parameters((6,))

    def run(x, rate):
        h = weft.zeros(6)
        for t in range(x.shape[0]):
            h = h + rate**t * weft.sin(x[t] * w + h)
        return h

    return run, lambda n: (weft.randn(n, 6), 0.9 + n / 1000), lambda r: (r * r).sum(), [w]


def leapfrog_of_what_is_learned():
    x, v = parameters((7,), (7,), dtype=weft.float64)

    def run(n_steps):
        y, w = x, v
        for _ in range(n_steps):
            y = y + 0.1 * w
            w = w - 0.1 * weft.sin(y)
        return y, w

    return run, lambda n: (n,), lambda r: (r[0] * r[0]).sum() + (r[1] * r[1]).sum(), [x, v]


MADE = (
    rnn, outputs_in_a_list, cells_in_a_module, one_of_two_results, the_other_of_two_results,
    weights_that_the_loss_reads_too, numbers_of_their_own, leapfrog_of_what_is_learned,
)  # fmt: skip


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_lengths_share_two_programs(make):
    run, arguments, loss, leaves = make()
    f = weft.compile(run)
    for n in LENGTHS:
        given = arguments(n)
        assert with_gradients(loss(f(*given)), leaves) == with_gradients(loss(run(*given)), leaves), n
    several, alone = programs_of(f)
    # The first length, and the one that is hardly a loop, have a forward and a backward for themselves. Where not all
    # results are differentiated that is another graph, of which the second length is the first.
    assert several == 2 and alone <= 5 and f.breaks == (), (several, alone, f._sizes.loops.refusals, f.explain())


def test_fifty_lengths_take_four_programs():
    run, arguments, loss, leaves = rnn()
    f = weft.compile(run)
    for n in range(60, 10, -1):
        given = arguments(n)
        assert with_gradients(loss(f(*given)), leaves) == with_gradients(loss(run(*given)), leaves), n
    assert programs_of(f) == (2, 2)
    assert "serves many numbers of steps" in f.explain() and f.breaks == ()


def test_lengths_that_are_hardly_loops_do_not_end_sharing():
    run, arguments, loss, leaves = cells_in_a_module()
    f = weft.compile(run)
    for n in (2, 9, 1, 12, 3, 2, 15, 4, 1, 3, 20, 18, *[4] * 16, 21, 22):
        given = arguments(n)
        assert with_gradients(loss(f(*given)), leaves) == with_gradients(loss(run(*given)), leaves), n
    assert programs_of(f)[0] == 2 and not f._sizes.loops.refusals
    assert all("has_loops" in p.meta for p in f.recordings[-1].programs), f.explain()


def test_training_on_lengths_as_they_come():
    def train(compiled):
        weft.manual_seed(3)
        cell, last = nn.GRUCell(4, 6), nn.Linear(6, 2)
        trained = [*cell.parameters(), *last.parameters()]
        optimizer = weft.optim.Adam(trained, lr=0.01)

        def predict(x):
            h = weft.zeros(x.shape[1], 6)
            for part in x:
                h = cell(part, h)
            return last(h)

        predict, losses = weft.compile(predict) if compiled else predict, []
        for n in LENGTHS:
            optimizer.zero_grad()
            loss = F.mse_loss(predict(weft.randn(n, 3, 4)), weft.randn(3, 2))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, bits(trained), predict

    (losses, trained, f), (eager, expected, _) = train(True), train(False)
    assert losses == eager and trained == expected
    assert programs_of(f)[0] == 2


def test_a_graph_that_is_kept_and_one_that_is_gone():
    run, arguments, _, leaves = rnn()
    f = weft.compile(run)

    def check(f, given):
        for leaf in leaves:
            leaf.grad = None
        loss = f(*given)
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="a second time") as error:
            loss.backward()
        return bits([leaf.grad for leaf in leaves]), str(error.value).partition(":")[0]

    for n in LENGTHS:
        given = arguments(n)
        assert check(f, given)[0] == check(run, given)[0], n


def test_gradients_that_are_differentiated_again():
    run, arguments, _, leaves = rnn()
    f = weft.compile(run)

    def penalty(f, given):
        slopes = weft.autograd.grad(f(*given), leaves, create_graph=True)
        return bits(weft.autograd.grad(sum((s * s).sum() for s in slopes), leaves))

    for n in LENGTHS[:14]:
        given = arguments(n)
        assert penalty(f, given) == penalty(run, given), n


def test_a_change_in_place_before_the_backward_is_the_error_of_eager_mode():
    run, arguments, _, leaves = rnn()
    f = weft.compile(run)
    for n in (7, 9, 8, *[9] * 16):
        loss = f(*arguments(n))
        with weft.no_grad():
            leaves[1].mul_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_what_a_call_saves_is_its_own():
    """Calls of several lengths whose backwards come later, in another order."""
    run, arguments, _, leaves = outputs_in_a_list()
    f = weft.compile(run)

    def gradients(f):
        weft.manual_seed(1)
        results = [f(*arguments(n)) for n in (8, 12, 10, 8, 11)]
        order = [results[k] for k in (3, 0, 4, 2, 1)]
        return bits([g for r in order for g in weft.autograd.grad(r.sin().sum(), leaves)])

    expected = gradients(run)
    for _ in range(6):
        assert gradients(f) == expected


def test_arguments_that_the_call_changes():
    (w,) = parameters((6,))

    def run(x, seen):
        h = weft.zeros(6)
        for t in range(x.shape[0]):
            h = weft.tanh(h * seen + x[t] * w)
        with weft.no_grad():
            seen += h
        return h

    f = weft.compile(run)
    for n in LENGTHS:
        x = weft.randn(n, 6)
        found = []
        for g in (f, run):
            w.grad, seen = None, weft.linspace(0.0, 1.0, 6)
            h = g(x, seen)
            # Eager mode refuses the backward, since it reads what was changed.
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                h.sum().backward()
            found.append(bits([h, seen]))
        assert found[0] == found[1], n


# --- loops made at random ---------------------------------------------------------------------------------------------
def made_at_random(seed):
    """A loop, and what is differentiated."""
    weights = parameters((3, 4), (3, 4))

    def loss(r):
        return r[0].sin().sum() + (0.5 * r[1][0]).sum()

    return loop_at_random(seed, weights, most_ops=5), lambda n: (weft.randn(n, 3, 4),), loss, weights


@pytest.mark.parametrize("seed", range(10))
def test_loops_made_at_random(seed):
    run, arguments, loss, leaves = made_at_random(seed)
    f = weft.compile(run)
    for n in (7, 9, 12, 8, *[8] * 16):
        given = arguments(n)
        assert with_gradients(loss(f(*given)), leaves) == with_gradients(loss(run(*given)), leaves), n
