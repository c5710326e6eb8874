"""Several sizes that change at once, such as how many sequences there are and how long they are: one program for all of
them, with the bits of eager mode."""

import random

import pytest

import weft
from weft import nn
from weft._dynamo import mark_dynamic
from weft.compiler.extent import Scope

functional = nn.functional


def bits(results):
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [t.detach().numpy().tobytes() for t in results]


def programs_of(f):
    """(those for many sizes, those for one alone)"""
    families = [family for form in f._sizes.forms.values() for family in form.families]
    several = sum(len(made) for family in families for made in family.programs.values())
    return several, sum("n" not in p.meta for r in f.recordings for p in r.programs)


def check(function, make, sizes, most=2, **options):
    """Bits of eager mode for all sizes, and at most so many programs that are not for one size alone."""
    f = weft.compile(function, **options)
    for size in sizes:
        arguments = make(*size)
        assert bits(f(*arguments)) == bits(function(*arguments)), size
    several, alone = programs_of(f)
    assert several <= most and alone <= 1 and not f.breaks, f.explain()
    return f


def pairs(n, first, second, seed=0):
    generator = random.Random(seed)
    return [(generator.randrange(*first), generator.randrange(*second)) for _ in range(n)]


SIZES = [(5, 31), (7, 44), (3, 90), (6, 17), (12, 23), (7, 44), *pairs(20, (3, 20), (21, 90))]


def test_rows_and_columns_of_a_product():
    f = check(lambda a, b: (a @ b).relu().sum(0), lambda n, m: (weft.randn(n, 8), weft.randn(8, m)), SIZES)
    assert "serves many sizes, here {'m': " in f.explain()


def test_distances_between_two_sets_of_points_and_their_gradient():
    scale = weft.zeros((), requires_grad=True)

    def step(x, y):
        scale.grad = None
        square = ((x[:, None] - y) ** 2).sum(-1)
        loss = (-square * scale.exp()).exp().mean()
        loss.backward()
        return loss, scale.grad

    check(step, lambda n, m: (weft.randn(n, 3), weft.randn(m, 3)), SIZES, most=3)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(20, 16), nn.Embedding(100, 16)
        self.project, self.last = nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, tokens):
        n, length = tokens.shape
        x = self.embed(tokens) + self.places(weft.arange(length))
        q, k, v = (part.view(n, length, 2, 8).transpose(1, 2) for part in self.project(x).split(16, dim=-1))
        mask = weft.tril(weft.ones(length, length))
        weights = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(mask == 0, float("-inf")).softmax(-1)
        return self.last(x + (weights @ v).transpose(1, 2).reshape(n, length, -1))


def test_a_decoder_is_trained_on_batches_of_any_size_and_length():
    """What it is given is one longer than what it computes with, and its loss flattens both sizes."""

    def train(compiled):
        weft.manual_seed(0)
        model = Decoder()
        optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)

        def step(tokens):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.reshape(-1, 20), tokens[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step) if compiled else step
        losses = [run(weft.randint(0, 20, size)).item() for size in SIZES]
        return losses, bits(list(model.parameters())), run

    (losses, parameters, f), (expected_losses, expected, _) = train(True), train(False)
    assert losses == expected_losses and parameters == expected
    several, alone = programs_of(f)
    assert several <= 2 and alone <= 1 and not f.breaks, f.explain()


def test_a_graph_of_any_number_of_nodes_and_edges():
    first, last = nn.Linear(4, 8), nn.Linear(8, 3)

    def step(x, source, target):
        first.zero_grad()
        hidden = first(x).relu()
        found = weft.zeros(x.shape[0], 8).index_add(0, target, hidden[source])
        loss = last(found).logsumexp(1).mean()
        loss.backward()
        return loss, first.weight.grad

    def make(n, m):
        return weft.randn(n, 4), weft.randint(0, n, (m,)), weft.randint(0, n, (m,))

    check(step, make, SIZES, most=3)


def test_one_size_changes_first_and_the_other_later():
    """A last batch that is smaller: the program for all lengths does not do, and one more is made for both."""
    sizes = [(8, 30), (8, 41), (8, 22), (5, 37), (8, 50), (3, 44), (8, 61), (4, 29)]
    check(lambda x: x.softmax(1).cumsum(1) * 2, lambda n, m: (weft.randn(n, m),), sizes, most=2)


def test_sizes_that_follow_from_others_are_no_sizes_of_their_own():
    def step(x, flat, shifted):
        return (x.reshape(-1) * flat).sum(), (x[:, 1:] * shifted).mean(1)

    f = check(step, lambda n, m: (weft.randn(n, m), weft.randn(n * m), weft.randn(n, m - 1)), SIZES)
    (family,) = [family for form in f._sizes.forms.values() for family in form.families]
    assert sorted(family.telling) == ["m", "n"]


def test_sizes_that_are_equal_in_a_call():
    sizes = [(4, 9), (6, 17), (6, 6), (7, 7), (9, 4), (11, 11)]
    check(lambda x, y: (x[:, None] * y).sum(1), lambda n, m: (weft.randn(n), weft.randn(m)), sizes)


def test_a_batch_of_one_among_others():
    """It is compiled for, and so may be the sizes of the other dimension beside it."""
    sizes = [(4, 19), (6, 26), (1, 31), (5, 40), (1, 22), (1, 50), (3, 33)]
    check(lambda x: x.tanh().sum(0), lambda n, m: (weft.randn(n, m),), sizes, most=3)


def test_marks_of_two_sizes():
    def make(n, m):
        x = weft.randn(n, m, 3)
        mark_dynamic(x, (0, 1))
        return (x,)

    f = check(lambda x: x.flatten(0, 1).exp().sum(0), make, SIZES, most=1)
    assert programs_of(f) == (1, 0)


def test_three_sizes():
    sizes = [(n, m, n + m // 2 + 3) for n, m in SIZES]
    check(lambda x: x.softmax(-1).sum(1) * 2, lambda n, m, k: (weft.randn(n, m, k),), sizes)


@pytest.mark.parametrize("now", (3, 40, 99, 100, 250))
def test_a_difference_that_falls_is_divided(now):
    """Whether it is turned depends on the number at hand; turned back and forth it was divided for ever."""
    n = Scope(now).n
    assert (100 - n) // 16 == (100 - now) // 16


@pytest.mark.parametrize("n_sizes", (4, 5))
def test_more_sizes_than_a_program_can_know(n_sizes):
    """Each changes by itself: the third call ended in an error about the name of the fourth size."""

    def total(*given):
        return sum((x * 2).tanh().sum() for x in given)

    step = weft.compile(total)
    for call in range(6):
        given = [weft.randn(3 + 7 * d + (d + 2) ** call % 13) for d in range(n_sizes)]
        assert bits(step(*given)) == bits(total(*given))
