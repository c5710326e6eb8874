"""Sums that threads share: block by block, with the bits of eager mode for any number of threads.

Members of a team take turns in random orders (turn_taking.py), two, three and five of them.
"""

import numpy as np
import pytest
from turn_taking import same, teams

import weft
from weft import nn
from weft.compiler.blocks import in_blocks
from weft.compiler.emit.reduce import BLOCK_ELEMENTS, BLOCK_ROWS
from weft.compiler.loopnest import At, Block, Kernel, Load, Loop, Parameter, Reduce, Store, Sweep
from weft.compiler.ops.table import TABLE
from weft.compiler.parallel import kernel_cost_ns
from weft.compiler.target import AVX512
from weft.nn import functional as F

pool = pytest.fixture(teams)


def kernels_of(function):
    """How many kernels its only program has."""
    (recording,) = function.recordings
    (program,) = recording.programs
    return len(program.meta["plan"]["kernels"])


def numbers(*shape, dtype=weft.float32, seed=0):
    draw = np.random.default_rng(seed)
    if dtype.is_floating_point:
        # Of very different sizes, so that another order of sums would give other bits.
        return weft.tensor(draw.standard_normal(shape) * 10.0 ** draw.integers(-3, 4, shape), dtype=dtype)
    return weft.tensor(draw.integers(-5, 6, shape), dtype=dtype)


ELEMENTS = (0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 6143, 10001, 40000)
ROWS = (0, 1, 127, 128, 129, 255, 256, 257, 385, 1000)
DTYPES = (weft.float32, weft.float64, weft.int64, weft.int32)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_full_sums_around_the_borders_of_blocks(dtype, pool):
    def sums(*xs):
        return [s for x in xs for s in ((x * 3 + 1).sum(), x.sum(0, keepdim=True))]

    same(pool, sums, *[numbers(n, dtype=dtype) for n in ELEMENTS])


@pytest.mark.parametrize("columns", [2, 5, 100])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=lambda d: d.name)
def test_column_sums_around_the_borders_of_blocks(dtype, columns, pool):
    def sums(*xs):
        return [s for x in xs for s in (x.sum(0), (x * 2).sum(0, keepdim=True) + 1)]

    same(pool, sums, *[numbers(n, columns, dtype=dtype) for n in ROWS])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_other_reductions(dtype, pool):
    def rows(x):
        return x.amax(), x.amin(), (x > 0).any(), (x > -100).all(), x.argmax(), x.max(), x.prod()

    def columns(x):
        return x.amax(0), x.amin(0), (x > 0).any(0), (x > -100).all(0), x.argmax(0), x.max(0).values, x.prod(0)

    same(pool, rows, numbers(5001, dtype=dtype))
    same(pool, columns, numbers(301, 7, dtype=dtype))


@pytest.mark.parametrize(
    "special", [[float("nan")], [float("inf")], [float("inf"), float("-inf")], [-0.0], [-0.0, 0.0]]
)
def test_special_numbers(special, pool):
    def both(x):
        return x.sum(), x.amax(), x.amin(), x.reshape(-1, 3).sum(0), x.reshape(-1, 3).amax(0), x.reshape(-1, 3).amin(0)

    for places in ([0], [5, 3000], [2047, 2048], [8999, 1]):
        x = numbers(9000)
        x[places] = weft.tensor([special[k % len(special)] for k in range(len(places))])
        same(pool, both, x)
        same(pool, both, weft.full((9000,), special[-1]))


@pytest.mark.parametrize("dtype", [*DTYPES, weft.bool], ids=lambda d: d.name)
def test_positions_of_extremes(dtype, pool):
    """The first of equal ones, wherever blocks and lanes begin; a NaN before everything."""

    def positions(*xs):
        if dtype is weft.bool:  # argmax is for numbers
            return [p for x in xs for p in (x.max(0).indices, x.min(0).indices, x.reshape(1, -1).max(1).indices)]
        return [p for x in xs for p in (x.argmax(), x.argmin(), x.reshape(1, -1).argmax(1), x.max(0).indices)]

    xs = [numbers(n).numpy().round(1) for n in (33, 255, 256, 257, 700, 8191, 8192, 8193, 16384, 20001)]
    xs += [np.zeros(9000, np.float32), np.full(9000, -np.inf, np.float32), np.full(8200, np.inf, np.float32)]
    for k in (0, 4096, 8999):
        x = numbers(9000).numpy()
        x[[k, 8999]] = np.nan if dtype.is_floating_point else 200.0
        xs.append(x)
    with np.errstate(invalid="ignore"):
        same(pool, positions, *[weft.tensor(x.astype(dtype.numpy)) for x in xs])
    rows = weft.tensor(np.stack([numbers(9000, seed=k).numpy().round(1) for k in range(3)]))
    same(pool, lambda x: (x.argmax(1), x.argmin(1, keepdim=True), x[:, ::2].argmax(1)), rows)


def test_several_passes_over_one_row(pool):
    def softmax(x):
        return x.softmax(0), x.log_softmax(0), x.logsumexp(0), x.var(), x.std(), x.norm(), (x - x.mean()).abs().amax()

    for n in (4096, 5000):
        same(pool, softmax, weft.randn(n))


def test_few_long_rows(pool):
    def rows(x):
        return x.sum(1), x.softmax(1), x.amax(1, keepdim=True) - x, x.var(1), x.sum((1, 2) if x.ndim > 2 else 1)

    for shape in ((2, 5000), (3, 4096), (7, 4099), (2, 3, 4500)):
        same(pool, rows, weft.randn(*shape))


def test_sums_over_several_axes(pool):
    def axes(x):
        return x.sum((0, 1)), x.sum((0, 2)), x.sum((1, 2)), x.sum((0, 1, 2), keepdim=True), x.mean((0, 1), keepdim=True)

    for shape in ((300, 2, 70), (2, 300, 9), (3, 130, 100)):
        same(pool, axes, weft.randn(*shape))


def test_columns_of_very_wide_rows(pool):
    """Columns come in chunks, and those left over are loops of their own."""

    def wide(x, w):
        return x.sum(0), (x * w).exp().sum(0), w + x.sum(0).sqrt()

    for n, m in ((3, 9000), (140, 8193), (257, 12288)):
        same(pool, wide, weft.rand(n, m), weft.randn(m))


def test_loops_that_stand_one_after_the_other(pool):
    def several(x, y):
        joined = weft.cat((x, y, x * 2), 1)
        return x + y.t().contiguous().t(), (x.t() + 1) * y.t(), joined, weft.cat((x, y)).sum(0), joined.t().exp()

    same(pool, several, weft.randn(64, 100), weft.randn(64, 100))
    same(pool, several, weft.randn(80, 83), weft.randn(80, 83))


def test_columns_beside_rows(pool):
    """layer_norm's backward: gradients of weight and bias are columns of the same rows that are normalised."""

    def gradients(x, w, b, g):
        y = F.layer_norm(x, (x.shape[1],), w, b)
        return y, *weft.autograd.grad(y, (x, w, b), g)

    for n, m in ((256, 40), (300, 80), (513, 257)):
        leaves = [weft.randn(n, m), weft.randn(m), weft.randn(m)]
        same(pool, gradients, *[x.requires_grad_() for x in leaves], weft.randn(n, m))


def test_elementwise_work_beside_a_full_sum(pool):
    """The stores of the chain stand with the blocks, what is computed from the sum after the fold."""

    def chain(x, y):
        z = (x * y).exp()
        loss = z.sum() / len(x)
        return z, loss, loss.sqrt() + 1, *weft.autograd.grad(loss, (x, y))

    x, y = (weft.randn(9001, dtype=weft.float64).requires_grad_() for _ in range(2))
    same(pool, chain, x, y)


def test_what_lies_between_pieces_takes_no_memory_of_a_value_that_ends():
    """The forward computes some of so many values again: a piece was the last to read one of the size of its sums."""
    w = numbers(10_000).requires_grad_()

    def centred(x):
        s = x
        for _ in range(13):
            s = (s * w).tanh().sin() + x
            s = s - s.mean()
        return s.sum()

    x = numbers(10_000, seed=1)
    assert weft.compile(centred)(x).item() == centred(x).item()


def test_operands_that_are_strided_or_repeated(pool):
    def strided(x, y):
        return x.t().sum(), x[::2].sum(0), x[:, 1:].sum(0), (x + y).sum(), (x + y).sum(0), x.t().sum(1)

    same(pool, strided, weft.randn(400, 30), weft.randn(30))


def test_updates_in_place_beside_their_sums(pool):
    """A kernel that writes over what it reads, before and after threads have folded."""

    def update(p, q):
        p, q = p.clone(), q.clone()
        q -= 0.1 * (p * p).sum(0)
        p -= 0.1 * p / p.sum()
        p *= p.amax()
        return p, q

    def in_place(p, q):
        q -= 0.001 * (p * q).sum(0)
        p -= 0.001 * p / p.abs().sum()
        return p, q

    same(pool, update, weft.randn(600, 20), weft.randn(20))
    p, q = weft.rand(600, 20), weft.rand(20)
    twins = p.clone(), q.clone()
    compiled = weft.compile(in_place)
    for _ in range(5):
        compiled(p, q)
        in_place(*twins)
        assert p.numpy().tobytes() == twins[0].numpy().tobytes() and q.numpy().tobytes() == twins[1].numpy().tobytes()


def test_a_network_with_many_examples(pool):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.LayerNorm(30), nn.ReLU(), nn.Linear(30, 5))
    x, y = weft.randn(700, 20), weft.randint(0, 5, (700,))

    def loss(x, y):
        loss = F.cross_entropy(model(x), y)
        return loss, *weft.autograd.grad(loss, list(model.parameters()))

    same(pool, loss, x, y)


@pytest.mark.parametrize("shape_of", [lambda n: (n,), lambda n: (n, 9), lambda n: (2, n), lambda n: (300, n)])
def test_sizes_known_at_run_time(shape_of, pool):
    def sums(x):
        return x.sum(), x.sum(0), x.softmax(0), (x - x.mean()).amax(), F.layer_norm(x, x.shape[-1:])

    compiled = weft.compile(sums)
    for n in (5001, 6000, 4097, 8192, 2049, 12345) if len(shape_of(1)) < 2 else (301, 400, 512, 257, 999, 129):
        x = weft.randn(*shape_of(n))
        expected = [t.numpy().tobytes() for t in sums(x)]
        assert [t.numpy().tobytes() for t in compiled(x)] == expected


# --- where it is done, and where not ----------------------------------------------------------------------------------
def long_sum(extent):
    load = Load(0, "p0", At(0, (), 1), "f32")
    sweep = Sweep(extent, (load, Reduce(1, TABLE["sum"], 0, "f32")))
    return Kernel((Parameter("p0", "f32"), Parameter("p1", "f32")), 16, (sweep, Store("p1", At(0, (), 0), 1)))


def test_pieces_of_a_sum():
    shared, fold = in_blocks(long_sum(5000), {}, AVX512).pieces
    assert str(shared.kernel) == (
        "kernel (p0 f32, q0 f32) lanes 16 {\n"
        "  for b < 3 {\n"
        "    sweep j < 5000 block b of 2048 {\n"
        "      %0 = load p0[j] : f32\n"
        "      %1 = sum over j of %0 : f32\n"
        "    }\n"
        "    store q0[32*b] = lanes of %1\n"
        "  }\n"
        "}\n"
    )
    assert str(fold.kernel) == (
        "kernel (q0 f32, p1 f32) lanes 16 {\n"
        "  sweep j < 96 closing after 32 {\n"
        "    %2 = load q0[j] : f32\n"
        "    %1 = sum over j of %2 : f32\n"
        "  }\n"
        "  store p1[0] = %1\n"
        "}\n"
    )


def test_short_rows_few_rows_and_products_of_floats_stay_whole():
    assert in_blocks(long_sum(2 * BLOCK_ELEMENTS - 1), {}, AVX512) is None
    body = long_sum(5000).body
    many = Kernel(long_sum(5000).parameters, 16, (Loop("i0", 8, body),))
    assert in_blocks(many, {}, AVX512) is None
    sweep, store = body
    product = Sweep(5000, (sweep.body[0], Reduce(1, TABLE["prod"], 0, "f32")))
    assert in_blocks(Kernel(many.parameters, 16, (product, store)), {}, AVX512) is None


def test_small_sums_are_one_kernel():
    for shape, axis in (((1000,), 0), ((20000,), 0), ((BLOCK_ROWS * 2, 3), 0)):
        compiled = weft.compile(lambda x, axis=axis: x.sum(axis))
        compiled(weft.randn(*shape))
        assert kernels_of(compiled) == 1


def test_large_sums_are_two_kernels():
    compiled = weft.compile(lambda x: x.sum())
    compiled(weft.randn(1_000_000))
    assert kernels_of(compiled) == 2


def test_what_is_done_block_by_block_takes_as_long_as_all_at_once():
    """It was taken for as many times as long as there are blocks, so that small calls of programs for many sizes waited
    for threads."""
    read, n = Load(0, "p0", At(0, (), 1), "f32"), 10 * BLOCK_ELEMENTS
    whole = Kernel((), 16, (Sweep(n, (read,)),))
    block = Sweep(n, (read,), block=Block("b", BLOCK_ELEMENTS))
    assert kernel_cost_ns(Kernel((), 16, (Loop("b", 10, (block,)),)), AVX512) == kernel_cost_ns(whole, AVX512)
