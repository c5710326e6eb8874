"""Convolutions as products over grids: geometry, order of sums, threads. Whether they pay is asked of no test's shape:
the entries are called by their names."""

import numpy as np
import pytest
from nn_helpers import numbers

import weft
from weft.compiler.dtypes import float32
from weft.compiler.grids import Grid, Group, Products
from weft.compiler.ops.direct_convolution import (
    direct_convolution,
    direct_convolution_input,
    direct_convolution_weight,
    pays,
    samples_last_pays,
    with_samples_first,
    with_samples_last,
)
from weft.compiler.ops.table import TABLE, Meta
from weft.nn import functional as F
from weft.runtime.code.cache import default_cache

# (shape of the input, shape of the weight, stride, padding, dilation, groups)
CASES = [
    ((3, 2, 40), (5, 2, 3), (1,), ((1, 1),), (1,), 1),
    ((2, 3, 9, 8), (4, 3, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    ((2, 3, 9, 8), (4, 3, 2, 5), (1, 1), ((0, 1), (3, 2)), (1, 1), 1),
    ((2, 4, 11, 10), (6, 2, 3, 2), (3, 1), ((2, 0), (0, 2)), (2, 3), 2),
    ((1, 2, 5, 7), (3, 2, 1, 2), (3, 4), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 2, 4, 3, 5), (3, 2, 3, 2, 3), (1, 2, 1), ((1, 1), (0, 1), (1, 1)), (1, 1, 2), 1),
    ((2, 3, 3, 3), (4, 3, 7, 7), (1, 1), ((3, 3), (3, 3)), (1, 1), 1),
    # Sums of more than 1024 terms, rows of more than one chunk, columns of more than one panel.
    ((2, 130, 6, 6), (7, 130, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 1, 5, 5), (1100, 1, 2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((40, 2, 6, 6), (37, 2, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    # Taps that see other positions, of more than 1024 in all, several chunks of rows and panels of columns.
    ((20, 35, 9, 9), (70, 35, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((3, 2, 30, 25), (3, 2, 5, 3), (1, 2), ((2, 2), (1, 0)), (1, 1), 1),
    # Few columns that lie apart, with sums of more than 1024 terms.
    ((40, 1, 12, 12), (6, 1, 5, 5), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((30, 1, 9, 15), (11, 1, 2, 3), (1, 2), ((0, 0), (0, 0)), (1, 1), 1),
]


def calls(case, dtype):
    """Every entry on operands of a geometry: (name of the composite, entry, operands, attributes)."""
    x, weight, *how = case
    attributes = dict(zip(("stride", "padding", "dilation", "groups"), how))
    x, weight = (weft.tensor(numbers(shape, k).astype(dtype)) for k, shape in enumerate((x, weight)))
    g = direct_convolution(x, weight, **attributes).sin()
    kernel, size = tuple(weight.shape[2:]), tuple(x.shape[2:])
    return [
        ("convolution", direct_convolution, (x, weight), attributes),
        ("convolution_input", direct_convolution_input, (g, weight), {"size": size, **attributes}),
        ("convolution_weight", direct_convolution_weight, (x, g), {"kernel": kernel, **attributes}),
    ]


def bits_equal(a, b):
    return a.shape == b.shape and np.array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_calls_have_eager_bits(case, dtype):
    for _, op, operands, attributes in calls(case, dtype):
        expected = op(*operands, **attributes)
        assert bits_equal(weft.compile(lambda *x, op=op, how=attributes: op(*x, **how))(*operands), expected)


# --- samples as the last dimension in memory --------------------------------------------------------------------------
# Of 16, 32 and 48 samples: few rows, which are read in place, and many, which are packed; strides, groups and padding.
WHOLE = [
    ((16, 3, 7), (5, 3, 3), (1,), ((1, 1),), (1,), 1),
    ((32, 3, 9, 8), (4, 3, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    ((48, 4, 6, 5), (6, 2, 3, 2), (2, 1), ((2, 0), (0, 2)), (2, 3), 2),
    ((16, 2, 4, 3, 5), (3, 2, 3, 2, 3), (1, 2, 1), ((1, 1), (0, 1), (1, 1)), (1, 1, 2), 1),
    ((16, 130, 4, 4), (260, 130, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((16, 200, 2, 2), (200, 200, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_samples_may_come_last_with_the_same_bits(case, dtype):
    for name, op, operands, attributes in calls(case, dtype)[:2]:
        x, weight = operands
        last = op(with_samples_last(x).contiguous(), weight, samples_last=True, **attributes)
        assert bits_equal(with_samples_first(last), op(*operands, **attributes)), name


def test_bits_do_not_depend_on_how_many_samples_there_are():
    x, g = weft.randn(32, 24, 14, 14), weft.randn(32, 32, 14, 14)
    weight = weft.randn(32, 24, 3, 3)
    out, back = F.conv2d(x, weight, padding=1), F.conv_transpose2d(g, weight, padding=1)
    assert out.is_contiguous() and back.is_contiguous()
    for n in (2, 9, 16, 17):
        assert bits_equal(F.conv2d(x[:n], weight, padding=1), out[:n])
        assert bits_equal(F.conv_transpose2d(g[:n], weight, padding=1), back[:n])


def second_order(library, n, convolution, wrap, tensor):
    """A convolution of n samples, its gradients, and theirs."""
    arrays = [numbers(shape, k) for k, shape in enumerate(((n, 3, 12, 12), (8, 3, 3, 3)))]

    def step(*operands):
        out = convolution(*operands, padding=1)
        first = library.autograd.grad((out**3).sum(), operands, create_graph=True)
        return [out, *first, *library.autograd.grad(sum((g**2).sum() for g in first), operands)]

    return [x.detach() for x in wrap(step)(*(tensor(a, requires_grad=True) for a in arrays))]


@pytest.mark.parametrize("n", [16, 17, 64])
def test_gradients_of_any_order_whatever_the_number_of_samples(n):
    """A vector of samples at a time, or not: the derivatives of what was chosen are those of the convolution."""
    eager = second_order(weft, n, F.conv2d, lambda step: step, weft.tensor)
    assert all(map(bits_equal, eager, second_order(weft, n, F.conv2d, weft.compile, weft.tensor)))


@pytest.mark.oracle
@pytest.mark.parametrize("n", [16, 17, 64])
def test_gradients_of_any_order_are_pytorchs(n):
    torch = pytest.importorskip("torch")
    theirs = second_order(torch, n, torch.nn.functional.conv2d, lambda step: step, torch.tensor)
    for a, b in zip(second_order(weft, n, F.conv2d, lambda step: step, weft.tensor), theirs):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-8)


def test_derivatives_of_an_entry_with_samples_last():
    case = WHOLE[1]
    _, op, (x, weight), attributes = calls(case, "float64")[0]
    last = with_samples_last(x).contiguous().requires_grad_()
    first, weights = x.clone().requires_grad_(), [weight.clone().requires_grad_() for _ in range(2)]
    g = numbers((4, *op(last, weight, samples_last=True, **attributes).shape[1:]), 3)
    g = weft.tensor(g)
    out = op(last, weights[0], samples_last=True, **attributes)
    a = weft.autograd.grad(out, [last, weights[0]], g)
    b = weft.autograd.grad(op(first, weights[1], **attributes), [first, weights[1]], with_samples_first(g).contiguous())
    assert bits_equal(with_samples_first(a[0]), b[0]) and bits_equal(a[1], b[1])


def test_samples_come_last_where_they_fill_vectors_and_windows_have_taps():
    x = weft.zeros(16, 3, 8, 8)
    assert samples_last_pays(x, (3, 3)) and samples_last_pays(x[:8].double(), (2, 2))
    assert not samples_last_pays(x, (1, 1)) and not samples_last_pays(x[:9], (3, 3))


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_pytorchs(case):
    torch = pytest.importorskip("torch")
    for name, op, operands, attributes in calls(case, "float64"):
        theirs = TABLE[name].oracle(torch, *(torch.tensor(x.numpy()) for x in operands), **attributes)
        np.testing.assert_allclose(op(*operands, **attributes).numpy(), theirs.detach().numpy(), rtol=1e-10, atol=1e-10)


def test_sums_run_over_channels_then_taps_without_those_in_the_padding():
    x, weight = numbers((1, 3, 4), 0).astype("float32"), numbers((2, 3, 3), 1).astype("float32")
    out = direct_convolution(
        weft.tensor(x), weft.tensor(weight), stride=(1,), padding=((1, 1),), dilation=(1,), groups=1
    ).numpy()
    for o in range(2):
        for p in range(4):
            total = np.float64(0)
            for c in range(3):
                for k in range(3):
                    if 0 <= p + k - 1 < 4:
                        # A product of floats is exact in double precision; one rounding is the sum's.
                        total = np.float64(np.float32(total + np.float64(weight[o, c, k]) * x[0, c, p + k - 1]))
            assert out[0, o, p] == np.float32(total)


@pytest.mark.parametrize("size", [3, 23])
def test_sums_of_a_weight_run_over_samples_then_positions(size):
    """Of 23 x 23 positions and two samples there are two stretches of terms."""
    x, g = numbers((2, 2, size, size), 0).astype("float32"), numbers((2, 3, size, size), 1).astype("float32")
    how = {"kernel": (3, 3), "stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    out = direct_convolution_weight(weft.tensor(x), weft.tensor(g), **how).numpy()
    for o, c, u, v in np.ndindex(3, 2, 3, 3):
        total = np.float32(0)
        for n, i, j in np.ndindex(2, size, size):
            if 0 <= i + u - 1 < size and 0 <= j + v - 1 < size:
                # A product of floats is exact in double precision; one rounding is the sum's.
                total = np.float32(np.float64(total) + np.float64(x[n, c, i + u - 1, j + v - 1]) * g[n, o, i, j])
        assert out[o, c, u, v] == total


def test_what_no_window_sees_has_no_gradient_not_the_memory_that_was_there():
    for _ in range(3):
        np.full(400, np.nan, np.float32)
        g = direct_convolution_input(
            weft.ones(2, 3, 2), weft.ones(3, 2, 2), size=(9,), stride=(4,), padding=((0, 0),), dilation=(1,), groups=1
        )
        assert g[0, 0].tolist() == [3.0, 3.0, 0.0, 0.0, 3.0, 3.0, 0.0, 0.0, 0.0]


def test_strided_and_reversed_operands_are_read_as_they_are():
    x, weight = weft.randn(3, 6, 6, 4).permute(3, 1, 2, 0), weft.randn(3, 5, 3, 3).transpose(0, 1)
    how = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    expected = direct_convolution(x.contiguous(), weight.contiguous(), **how)
    assert bits_equal(direct_convolution(x, weight, **how), expected)
    compiled = weft.compile(lambda x, w: direct_convolution(x * 1.0, w, **how).relu())
    assert bits_equal(compiled(x, weight), expected.relu())


def test_any_number_of_threads_gives_the_same_bits():
    x = weft.randn(16, 24, 14, 14).requires_grad_()
    weight = weft.randn(32, 24, 3, 3).requires_grad_()

    def step(x, weight):
        out = F.conv2d(x, weight, padding=1)
        return out, *weft.autograd.grad((out * out).sum(), [x, weight])

    expected, compiled, before = step(x, weight), weft.compile(step), weft.get_num_threads()
    try:
        for count in (1, 2, 3):
            weft.set_num_threads(count)
            assert all(bits_equal(a.detach(), b.detach()) for a, b in zip(compiled(x, weight), expected))
    finally:
        weft.set_num_threads(before)
    names = compiled.explain(verbose=True)
    assert all(f"direct_convolution{suffix}" in names for suffix in ("", "_input", "_weight"))


def test_products_leave_out_what_lies_in_the_padding():
    kernel = direct_convolution.kernel
    x, weight = weft.zeros(16, 8, 2, 2), weft.zeros(8, 8, 3, 3)
    how = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    products = kernel.products_of((x, weight), (16, 8, 2, 2), how, 4)
    assert products.flops == 2 * 16 * 8 * 8 * 16  # 4 positions with 4 of 9 taps
    assert pays(0, (8, 8, 3, 3), 16, 4, 4, 0)


def test_memory_for_a_weight_does_not_grow_with_large_batches_of_images():
    """What its taps share is of many terms offsets of several megabytes: then each packs its own."""
    how = {"kernel": (3, 3), "stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    of = direct_convolution_weight.kernel.products_of

    def products(n, size):
        return of((Meta((n, 8, size, size), float32), Meta((n, 8, size, size), float32)), (8, 8, 3, 3), how, 4)

    small, large = products(16, 32), products(64, 112)
    assert small.panel and not large.panel
    assert small.scratch_bytes < 3 << 20 and large.scratch_bytes < 9 << 20


def test_two_threads_share_the_rows_of_a_single_panel_if_that_pays():
    """LeNet's first weight: 25 taps by 6 outputs, a sum over all positions. What takes as long to pack stays whole."""
    how = {"kernel": (5, 5), "stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    products_of = direct_convolution_weight.kernel.products_of
    few = products_of((weft.zeros(64, 1, 32, 32), weft.zeros(64, 6, 28, 28)), (6, 1, 5, 5), how, 4)
    assert (few.units(4), few.chunk, few.groups[0].rows.count) == (2, 16, 25)
    scattered = products_of((weft.zeros(64, 1, 32, 32), weft.zeros(64, 16, 28, 28)), (16, 1, 5, 5), how, 4)
    assert scattered.units(4) == 1


def test_products_tell_their_units_and_scratch_memory():
    group = Group(Grid(((100, 7, 70),)), Grid(((5, 14, 1), (14, 1, 5))), Grid(((7, 1, 70),)))
    products = Products((group, group), 64, together=True)
    assert (group.panels(4), group.panels(8)) == (3, 5)
    assert (products.units(4), products.units(8)) == (12, 20)
    assert products.scratch_bytes % 64 == 0
    assert len(set(map(len, (products.words(4), products.words(8))))) == 1


def test_one_program_serves_many_batch_sizes(monkeypatch):
    how = {"stride": (2, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}

    def step(x, weight):
        out = direct_convolution(x, weight, **how)
        back = direct_convolution_input(out, weight, size=(6, 5), **how)
        return out, back, direct_convolution_weight(back, out, kernel=(3, 3), **how)

    # A program for several sizes that is found on disk may have been made for others first.
    monkeypatch.setenv("WEFT_CACHE", "0")
    default_cache.cache_clear()
    weight, compiled = weft.randn(5, 3, 3, 3), weft.compile(step)
    for n in (13, 22, 35, 40):
        x = weft.randn(n, 3, 6, 5)
        assert all(bits_equal(a, b) for a, b in zip(compiled(x, weight), step(x, weight)))
    default_cache.cache_clear()
    assert sum("n" not in p.meta for r in compiled.recordings for p in r.programs) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [1, 3, 6, 7, 15])
def test_columns_read_in_place_have_the_bits_of_packed_ones(channels, dtype):
    x = weft.tensor(numbers((2, 2, 6, 45), 0).astype(dtype))
    weight = weft.tensor(numbers((channels, 2, 3, 3), 1).astype(dtype))
    how = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    size = x.dtype.itemsize
    out = direct_convolution(x, weight, **how)
    in_place = [direct_convolution.kernel.products_of((x, weight), out.shape, how, size).groups[0].in_place]
    for start in range(43):
        # An image of one column: too few for pieces.
        part = x[..., start : start + 3].contiguous()
        narrow = direct_convolution(part, weight, **how)
        in_place.append(
            direct_convolution.kernel.products_of((part, weight), narrow.shape, how, size).groups[0].in_place
        )
        assert bits_equal(narrow[..., 0], out[..., start])
    assert in_place == [True, *[False] * 43]


def test_pieces_of_rows_are_counted_and_told():
    group = Group(Grid(((6, 25, 784),)), Grid(((4, 1024, 4704), (28, 32, 28), (28, 1, 1))), Grid(((25, 1, 1),)), True)
    products = Products((group,), 6, together=False)
    assert (group.pieces(4), group.pieces(8)) == (2, 4)
    assert (products.units(4), products.units(8)) == (4 * 28, 4 * 28 * 2)
