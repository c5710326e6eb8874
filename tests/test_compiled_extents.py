"""Calls with many shapes: ragged last batches, growing sequences, evaluation at another batch size."""

import gc
import pickle
import weakref

import numpy as np
import pytest

import weft
from weft import nn, signatures
from weft.compiler.dtypes import float32
from weft.compiler.extent import Coincidence, Fixed, Scope, divides, evaluate, filled, hold, marked
from weft.compiler.ops.arithmetic import add, mul
from weft.compiler.ops.kinds import composite
from weft.compiler.ops.table import Meta, unregister
from weft.compiler.ops.view import reshape, slice_
from weft.runtime.eager.needs import needs_of
from weft.utils.data import DataLoader, TensorDataset


@pytest.fixture
def recorded_anew(monkeypatch):
    """Every size is: this is about recordings."""
    monkeypatch.setattr("weft.runtime.replay.many_learning.LEAST_SIZES", float("inf"))


@pytest.fixture
def few(monkeypatch, recorded_anew):
    monkeypatch.setattr(signatures, "MAX_SIGNATURES", 4)
    return 4


def equal_bits(a, b):
    return a.numpy().tobytes() == b.numpy().tobytes()


def sizes_of(function):
    return [signature[0][0][0][0] for signature, _ in function._recordings.items()]


# --- signatures make room for others ----------------------------------------------------------------------------------
def test_more_signatures_than_are_kept_all_run_compiled(few):
    def double(x):
        return x * 2 + 1

    f = weft.compile(double)
    for n in range(1, 12):
        x = weft.randn(n)
        assert equal_bits(f(x), double(x))
    assert len(f.recordings) == few
    assert all(len(r.programs) == 1 and r.programs[0].calls == 1 for r in f.recordings)
    text = f.explain()
    assert "7 signature(s) that were not used lately have made room for others" in text
    assert "eager" not in text and "x: float32[10] -> float32[11]" in text


def test_a_size_that_comes_often_is_kept(few):
    f = weft.compile(lambda x: (x * x).sum())
    for n in range(1, 20):
        f(weft.randn(64))
        f(weft.randn(n))
    assert 64 in sizes_of(f)
    (recording,) = [r for s, r in f._recordings.items() if s[0][0][0] == (64,)]
    assert recording.calls == 19 and recording.usual is not None


def test_a_size_that_comes_back_is_recorded_again_and_correct(few):
    def mean(x):
        return x.mean(0)

    f = weft.compile(mean)
    for n in [3, 4, 5, 6, 7, 8, 9, 3, 3, 3, 3, 4, 12, 13, 14, 15, 16, 3]:
        x = weft.randn(n, 3)
        assert equal_bits(f(x), mean(x)), n


def test_what_was_dropped_gives_its_memory_back(few):
    f = weft.compile(lambda x: x.exp())
    programs = []
    for n in range(40_000, 40_008):
        for _ in range(4):
            f(weft.zeros(n))
        (program,) = f.recordings[-1].programs
        programs.append(weakref.ref(program))
        assert [len(pool) for pool in program.pools] != [0]
        del program
    dropped = [p() for p in programs[:-few]]
    assert all(p is None or p.pools == ([],) for p in dropped)
    del dropped
    gc.collect()
    assert [p() is not None for p in programs] == [False] * few + [True] * few


def test_a_result_outlives_its_signature(few):
    """Its backward runs after the recording has made room for others."""
    w = weft.randn(3, requires_grad=True)

    def loss(x):
        return ((x * w).tanh() ** 2).sum()

    f = weft.compile(loss)
    x = weft.randn(5, 3)
    kept = f(x)
    for n in range(6, 16):
        f(weft.randn(n, 3))
    gc.collect()
    kept.backward()
    found, w.grad = w.grad, None
    loss(x).backward()
    assert equal_bits(found, w.grad)


def test_training_over_many_batch_sizes_equals_eager_mode(few):
    def train(compiled):
        weft.manual_seed(1)
        model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 2))
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step) if compiled else step
        losses = [run(weft.randn(n, 5), weft.randn(n, 2)).item() for n in [4, 7, 4, 9, 8, 17, 4, 7, 1, 33, 9, 4]]
        return losses, [p.detach().numpy().copy() for p in model.parameters()]

    (losses, found), (eager_losses, expected) = train(True), train(False)
    assert losses == eager_losses
    assert all(np.array_equal(a, b) for a, b in zip(found, expected))


# --- extents ----------------------------------------------------------------------------------------------------------
def test_extents_are_polynomials():
    n = Scope(200).n
    assert str(n * 32 + 5 - n) == "⟦31*n+5⟧"
    assert (n * 32) // 32 == n and (n * 32 * 4) // (n * 4) == 32 and (n * 6 + 12) // (n + 2) == 6
    assert (n * 32) % 16 == 0 and divides(16, n * 32) and not divides(16, n) and not divides(n, 200)
    assert filled([n.__repr__(), {"a": f"{n}, {n * n}"}, (3, "n")], 5) == [5, {"a": "5, 25"}, (3, "n")]


@pytest.mark.parametrize("now", (2, 7, 64, 201))
def test_extents_are_what_ints_would_be_for_every_n(now):
    n = Scope(now).n
    results = [
        n - 9,
        -(-n // 16),
        -(-(n - 1) // 16) * 16,
        n % 5,
        (3 * n + 7) // 4,
        (7 - n) * n,
        n // 2 // 3,
        divmod(n, 7)[1],
    ]
    for k in (2, 3, 15, 16, 17, 1000):
        expected = [
            k - 9,
            -(-k // 16),
            -(-(k - 1) // 16) * 16,
            k % 5,
            (3 * k + 7) // 4,
            (7 - k) * k,
            k // 2 // 3,
            k % 7,
        ]
        assert [evaluate(marked(str(x)), k) for x in results] == expected


def test_questions_about_extents_are_answered_for_now_and_noted():
    scope = Scope(200)
    n = scope.n
    assert n > 1 and n != 0 and n * 4 <= n * 128 and -(-n // 64) * 64 >= n and n != n + 1
    assert not scope.guards
    assert n * 32 > 4096 and max(n, 7) is n and n != 32 and {n: 1}.get(32) is None
    with pytest.raises(Coincidence, match="is 400"):
        assert n * 2 == 400
    guards = [[text, comparison, answer] for (text, comparison), answer in scope.guards.items()]
    assert [k for k in (0, 1, 2, 7, 32, 128, 129, 200, 10**6) if hold(guards, k)] == [129, 200, 10**6]


def test_an_extent_is_not_mistaken_for_a_number():
    n = Scope(200).n
    for use in (range, int, float, lambda x: [0] * x, lambda x: 5 // x, lambda x: x // (x + 1), np.empty, bytes):
        with pytest.raises(Fixed, match="n"):
            use(n)
    with pytest.raises(TypeError):
        n * 0.5


# --- one program for many sizes ---------------------------------------------------------------------------------------
def families(f):
    return [family for form in f._sizes.forms.values() for family in form.families]


def n_compiled(f):
    """How many programs serve several sizes; that none was refused."""
    assert not f._sizes.refusals, f._sizes.refusals
    return sum(len(programs) for family in families(f) for programs in family.programs.values())


SIZES = (20, 24, 3, 2, 1, 16, 17, 33, 130, 300)


def bits(result):
    if isinstance(result, (tuple, list)):
        return [b for x in result for b in bits(x)]
    return [result.detach().numpy().tobytes()]


def check(function, *make, most=2, sizes=SIZES):
    """Bits of eager mode for every size, and at most so many programs for several."""
    f = weft.compile(function)
    for n in sizes:
        given = [m(n) for m in make]
        for _ in range(2):
            assert bits(f(*given)) == bits(function(*given)), n
    assert n_compiled(f) <= most
    return f


def rows(width=8):
    return lambda n: weft.randn(n, width)


def test_elementwise_and_rows():
    check(lambda x: ((x * 2 + 1).tanh() * x).exp(), rows())
    check(lambda x: nn.functional.softmax(x, -1) - x.mean(1, keepdim=True), rows(40))


def test_sums_over_the_extent_have_eagers_order():
    """Blocks of 2048 along a row, of 128 rows in a column."""
    sizes = (200, 204, 127, 128, 129, 2047, 2048, 2049, 5000)
    check(lambda x: (x.sum(), x.mean(0), x.sum(1), x.var(0)), rows(), sizes=sizes)
    check(lambda x: (x.sum(1), x.amax(1), x.std()), lambda n: weft.randn(3, n), sizes=sizes)
    check(lambda x: (x.sum(), (-x).sum(), x.prod()), lambda n: weft.zeros(n) * -1.0, sizes=sizes)


def test_indices_positions_and_checks():
    table = weft.randn(50, 8)
    check(lambda i: table[i].sum(1), lambda n: weft.randint(0, 50, (n, 3)))
    check(lambda x: (x.argmax(0), x.argmax(1), x.argmin()), rows(), most=3)
    check(lambda x: weft.where(x > 0, x, weft.arange(x.shape[0])), weft.randn)
    f = weft.compile(lambda x, i: x[i] * 2)
    for n in (9, 12, 15):
        x = weft.randn(n)
        assert weft.equal(f(x, weft.tensor([n - 1])), x[[n - 1]] * 2)
        with pytest.raises(IndexError):
            f(x, weft.tensor([n]))
    assert n_compiled(f) == 1


def test_views_joins_and_differences():
    check(lambda x: x.t().contiguous().reshape(-1) * x.reshape(-1), rows(24))
    check(lambda x, y: weft.cat([x, y], 0) * 2, rows(), lambda n: weft.randn(3, 8))
    check(lambda x: (x[1:] - x[:-1], x[:, -1] * 2, x.flip(0) + 1), rows())
    check(lambda x: nn.functional.pad(x, (1, 2)) + 1, lambda n: weft.randn(3, n))


def test_products_with_any_side_open():
    w = weft.randn(16, 16)
    check(lambda x: x @ w, rows(16))
    check(lambda x: x.t() @ x, rows(16))
    check(lambda x: w @ x, lambda n: weft.randn(16, n))
    check(lambda x: x @ x.transpose(1, 2), lambda n: weft.randn(n, 4, 8))


def test_sequences_that_grow():
    """Scores are n by n: attention over all that came before."""
    w = weft.randn(8, 24)

    def attend(x):
        q, k, v = (x @ w).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / 8**0.5
        causal = weft.ones(x.shape[1], x.shape[1]).tril() == 0
        return nn.functional.softmax(scores.masked_fill(causal, -1e9), -1) @ v

    check(attend, lambda n: weft.randn(2, n, 8), most=4, sizes=range(5, 40, 3))


def test_a_cache_that_grows_outside_of_the_arguments():
    """Each call meets tensors of another size: they take the places of those that came before, and share programs."""
    w = weft.randn(8, 24)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = self.v = weft.zeros(2, 0, 8)

        def forward(self, x):
            q, k, v = (x @ w).chunk(3, -1)
            self.k, self.v = weft.cat([self.k, k], 1), weft.cat([self.v, v], 1)
            return nn.functional.scaled_dot_product_attention(q, self.k, self.v)

    eager = Decoder()
    f = weft.compile(compiled := Decoder())
    with weft.no_grad():
        for n in range(40):
            x = weft.randn(2, 1, 8)
            assert bits(f(x)) == bits(eager(x)), n
    assert bits(compiled.k) == bits(eager.k)
    (recording,) = f.recordings
    assert recording.n_branches == 16 and len(recording.programs) == 16 and not recording.fallbacks
    assert n_compiled(f) <= 2


def test_long_programs_with_loops_over_steps():
    """What differs from step to step, addresses that depend on the batch too, is in a table."""
    w = weft.randn(6, 6, requires_grad=True)

    def unrolled(x):
        h = x
        for _ in range(40):
            h = (h @ w).tanh()
        w.grad = None
        h.sum().backward()
        return h, w.grad * 1

    f = check(unrolled, lambda n: weft.randn(n, 6), sizes=(8, 12, 14, 3, 40))
    assert "serves many sizes" in f.explain()


def model_and_step(compiled, **options):
    weft.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 4))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, weft.compile(step, **options) if compiled else step


def test_the_last_batch_of_a_loader_is_ragged():
    """And evaluation uses another batch size."""
    data = TensorDataset(weft.randn(100, 8), weft.randint(0, 4, (100,)))

    def train(compiled):
        model, step = model_and_step(compiled)
        evaluate = weft.compile(model) if compiled else model
        seen = []
        for epoch in range(3):
            seen += [step(x, y).item() for x, y in DataLoader(data, batch_size=32)]
            model.eval()
            with weft.no_grad():
                seen += [evaluate(x).sum().item() for x, _ in DataLoader(data, batch_size=64 + epoch)]
            model.train()
        return seen, bits(list(model.parameters())), step

    (seen, parameters, step), (eager_seen, eager_parameters, _) = train(True), train(False)
    assert seen == eager_seen and parameters == eager_parameters
    n_compiled(step)


def test_a_thousand_batch_sizes_take_few_programs():
    f = weft.compile(lambda x: ((x @ x.new_ones(8, 4)).tanh() * 2).sum(0))
    for n in range(1, 1001):
        x = weft.full((n, 8), 0.1)
        found = f(x)
        if n % 97 == 0:
            assert equal_bits(found, ((x @ x.new_ones(8, 4)).tanh() * 2).sum(0))
    assert n_compiled(f) <= 3 and len(f.recordings) <= signatures.MAX_SIGNATURES
    assert all(not r.fallbacks for r in f.recordings)


def test_gradients_of_results_go_through_programs_for_the_same_sizes():
    weft.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.LayerNorm(40), nn.Linear(40, 3))
    f = weft.compile(model)
    for n in (20, 20, 24, 24, 7, 64, 130, 33, 20, 7):
        x = weft.randn(n, 8, requires_grad=True)
        found = []
        for run in (f, model):
            model.zero_grad()
            x.grad = None
            (run(x) ** 2).mean().backward()
            found.append(bits([x.grad, *(p.grad for p in model.parameters())]))
        assert found[0] == found[1], n
    assert n_compiled(f) <= 4 and all(not r.fallbacks for r in f.recordings)


def test_batch_statistics_and_changes_in_place():
    def make():
        weft.manual_seed(3)
        return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6))

    model, eager = make(), make()
    f = weft.compile(model)
    for n in (20, 24, 5, 130, 2, 31):
        x = weft.randn(n, 8)
        assert bits(f(x)) == bits(eager(x)), n
        assert bits(list(model.buffers())) == bits(list(eager.buffers())), n
    n_compiled(f)


def test_numbers_that_no_one_n_explains_compile_for_themselves():
    f = weft.compile(lambda x: x * 2)
    for shape in ((3, 4), (5, 6), (7, 9), (3, 9), (4, 4), (2, 11), (9, 9)):
        x = weft.randn(*shape)
        assert equal_bits(f(x), x * 2)
    assert n_compiled(f) <= 4


@pytest.fixture
def added_up():
    """An op of a user's, which writes out a step for every row."""

    def decompose(x):
        total = reshape(slice_(x, spec=((0, 1, 1), (0, 1, x.shape[1]))), shape=x.shape[1:])
        for k in range(1, x.shape[0]):
            total = add(total, reshape(slice_(x, spec=((k, 1, 1), (0, 1, x.shape[1]))), shape=x.shape[1:]))
        return total

    yield composite("added_up", lambda operands, *_: Meta(operands[0].shape[1:], operands[0].dtype), decompose)
    unregister("added_up")


def test_what_needs_the_number_is_compiled_for_each_and_says_so(added_up):
    f = weft.compile(lambda x: added_up(x) * 2)
    for n in (5, 7, 6):
        x = weft.randn(n, 4)
        assert equal_bits(f(x), added_up(x) * 2)
    assert all("n" not in r.programs[0].meta for r in f.recordings)
    assert "compiled for every size anew: ⟦1*n⟧ is needed as a number (in " in f.explain()


def test_what_a_derivative_reads_is_looked_up_without_asking():
    """Found for 24 rows, and then for n of them."""
    scope, found = Scope(24), []
    for rows_ in (24, scope.n):
        found.append(needs_of(mul, [Meta((rows_, 8), float32)] * 2, {}, (True, True)))
    assert found[0] == found[1] and not scope.guards


def test_dynamic_chooses(recorded_anew):
    exact = weft.compile(lambda x: x * 2, dynamic=False)
    found = weft.compile(lambda x: x * 2)
    by_keyword = weft.compile(dynamic=True)(lambda x: x * 2)
    for n in (4, 5, 6, 7):
        x = weft.randn(n)
        assert all(equal_bits(f(x), x * 2) for f in (exact, found, by_keyword))
    assert all("n" not in r.programs[0].meta for r in exact.recordings)
    assert ["n" in r.programs[0].meta for r in found.recordings] == [False, True, True, True]
    assert ["n" in r.programs[0].meta for r in by_keyword.recordings] == [True] * 4
    assert "serves many sizes, here 7" in by_keyword.explain()


def test_programs_for_many_sizes_come_from_the_disk_cache():
    def half(x):
        return (x * 0.5).sum(1)

    def sources():
        f = weft.compile(half)
        return [(f(weft.ones(n, 3)).tolist(), f.recordings[-1].programs[0].meta["source"]) for n in (6, 10, 14, 9)]

    first, again = sources(), sources()
    assert [r for r, _ in first] == [r for r, _ in again] == [[1.5] * n for n in (6, 10, 14, 9)]
    assert {source for _, source in again} == {"disk"}


def test_a_compiled_module_keeps_its_choice_when_pickled():
    f = pickle.loads(pickle.dumps(weft.compile(nn.Linear(2, 2), dynamic=False)))
    assert f._sizes is None and f(weft.zeros(3, 2)).shape == (3, 2)


def test_teams_share_work_of_any_size(monkeypatch):
    before = weft.get_num_threads()
    weft.set_num_threads(2)
    try:
        w, v = weft.randn(64, 256), weft.randn(256, 64)
        check(lambda x: ((x @ w).tanh() @ v).softmax(1), rows(64), most=3, sizes=(200, 204, 300, 17, 1000))
        check(lambda x: (x.exp() * x).sum(0), rows(64), most=2, sizes=(2000, 3000, 4111))
    finally:
        weft.set_num_threads(before)


def test_kernels_of_such_programs_can_be_drawn_and_timed():
    from weft import visualize

    f = weft.compile(lambda x: (x.exp() * 2).sum(0))
    for n in (20, 30, 30):
        f(weft.randn(n, 40))
    (program,) = f.recordings[-1].programs
    assert program.meta["n"] == 30 and len(visualize.kernel_times(program)) == len(program.meta["plan"]["kernels"])
    assert "30, 40" in visualize.draw_function(f)["forward"]
