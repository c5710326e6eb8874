"""The matrix product: every element is one fused chain in the order of p, so its bits depend on nothing else."""

import ctypes
import mmap
import os
import re
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from gemm_harness import Product, gemm, kernel_text  # noqa: E402

import weft  # noqa: E402
from weft.compiler.emit.gemm import emit_gemm, scratch_bytes  # noqa: E402
from weft.compiler.emit.gemm_tiles import Tiling  # noqa: E402
from weft.compiler.emit.gemv import emit_gemv  # noqa: E402
from weft.compiler.plain import changed  # noqa: E402
from weft.compiler.target import AVX2, AVX512, Blocks  # noqa: E402

ELEMENTS = ["f32", "f64"]
TARGETS = [AVX2, AVX512]


# --- the contract, written slowly -------------------------------------------------------------------------------------
def chain(a, b):
    """acc = fma(a[i, p], b[p, j], acc), in exact fractions with one rounding a step."""
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    for i, j in np.ndindex(out.shape):
        acc = a.dtype.type(0)
        for x, y in zip(a[i], b[:, j]):
            acc = rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(acc)), a.dtype)
        out[i, j] = acc
    return out


def rounded(exact, dtype):
    """A fraction to the nearest float, ties to even; float(Fraction) rounds once, to binary64."""
    if dtype == np.float64:
        return np.float64(float(exact))
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def chain_f32(a, b):
    """The same for float32, a row of p at a time: the product is exact in float64, and the sum, rounded to odd there,
    rounds to float32 as the exact sum would (Boldo and Melquiond 2008)."""
    acc = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for p in range(a.shape[1]):
        x, y = np.multiply.outer(a[:, p].astype(np.float64), b[p].astype(np.float64)), acc.astype(np.float64)
        total = x + y
        y_part = total - x
        error = (x - (total - y_part)) + (y - y_part)
        even = (total.view(np.int64) & 1) == 0
        toward = np.where(error > 0, np.inf, -np.inf)
        acc = np.where((error != 0) & even, np.nextafter(total, toward), total).astype(np.float32)
    return acc


def matrices(element, m, n, k, seed=0):
    r = np.random.default_rng(seed)
    dtype = gemm(element).dtype
    return r.standard_normal((m, k)).astype(dtype), r.standard_normal((k, n)).astype(dtype)


def layouts(x):
    """The same values laid out by rows, by columns, backwards by columns, and with gaps both ways."""
    gaps = np.full((2 * x.shape[0], 3 * x.shape[1]), np.nan, x.dtype)[::2, ::3]
    gaps[:] = x
    return [x, np.asfortranarray(x), np.asfortranarray(x[::-1])[::-1], gaps]


# --- values -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (3, 3, 3), (1, 5, 9), (9, 1, 17), (5, 18, 7), (13, 41, 3), (2, 3, 65)])
def test_each_element_is_one_fused_chain(element, m, n, k):
    a, b = matrices(element, m, n, k)
    expected = chain(a, b)
    for left in layouts(a):
        for right in layouts(b):
            assert (gemm(element)(left, right) == expected).all()


@pytest.mark.parametrize("element", ELEMENTS)
def test_the_chain_goes_on_where_the_sum_is_cut_into_blocks(element):
    k = 2 * Tiling(element, AVX512).block_k + 3
    a, b = matrices(element, 2, 2, k)
    expected = chain(a, b)
    for right in layouts(b):
        assert (gemm(element)(a, right) == expected).all()
        assert (gemm(element)(a[:1], right) == expected[:1]).all()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize(
    "m, n, k", [(70, 69, 33), (33, 70, 70), (17, 100, 1), (600, 45, 20), (1, 300, 77), (77, 1, 300)]
)
def test_larger_products_are_the_same_chains(m, n, k, target):
    a, b = matrices("f32", m, n, k)
    expected = chain_f32(a, b)
    for left in layouts(a):
        for right in layouts(b):
            assert (gemm("f32", target)(left, right) == expected).all()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("n", [1, 2, 17, 40])
def test_zeros_infinities_and_nan_follow_the_chain(element, n):
    """-0.0 only by underflow (the chain starts from +0.0); inf * 0 and inf - inf give NaN in their element only."""
    dtype = gemm(element).dtype
    tiny = np.finfo(dtype).smallest_subnormal
    a = np.array([[-0.0, 0.0], [-tiny, 0.0], [np.inf, 1.0], [np.inf, -np.inf], [np.nan, 1.0], [1.0, 2.0]], dtype)
    b = np.full((2, n), 1.0, dtype)
    b[0] = 0.25
    expected = np.array([0.0, -0.0, np.inf, np.nan, np.nan, 2.25], dtype)
    for left in layouts(a):
        for right in layouts(b):
            out = gemm(element)(left, right)
            assert np.array_equal(out, np.repeat(expected[:, None], n, 1), equal_nan=True)
            # fma(0, 1, -0.0) is +0.0 once more: the sign survives only in the last step of a chain.
            assert not np.signbit(out[:2]).any()
            short = gemm(element)(left[:, :1], right[:1])
            assert np.signbit(short[1]).all() and not np.signbit(short[0]).any()


# --- the bits depend on nothing else ----------------------------------------------------------------------------------
def ragged_shapes(count=40, largest=70):
    r = np.random.default_rng(7)
    return [tuple(int(x) for x in r.integers(1, largest + 1, 3)) for _ in range(count)]


@pytest.mark.parametrize("element", ELEMENTS)
def test_whole_product_equals_products_of_slices(element):
    for m, n, k in ragged_shapes():
        a, b = matrices(element, m, n, k)
        whole = gemm(element)(a, b)
        i, j = m // 3, n // 2
        assert (gemm(element)(a[:i], b) == whole[:i]).all() and (gemm(element)(a[i:], b) == whole[i:]).all()
        assert (gemm(element)(a, b[:, :j]) == whole[:, :j]).all() and (gemm(element)(a, b[:, j:]) == whole[:, j:]).all()
        assert (gemm(element)(a[i : i + 1], b) == whole[i : i + 1]).all()
        assert (gemm(element)(a, b[:, j : j + 1]) == whole[:, j : j + 1]).all()


@pytest.mark.parametrize("element", ELEMENTS)
def test_layout_transposition_and_vector_width_change_no_bit(element):
    for m, n, k in ragged_shapes(20):
        a, b = matrices(element, m, n, k)
        whole = gemm(element, AVX512)(a, b)
        for target in TARGETS:
            kernel = gemm(element, target)
            assert (kernel(b.T, a.T) == whole.T).all()
            assert all((kernel(left, right) == whole).all() for left in layouts(a) for right in layouts(b))


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_width_of_the_last_panel(element):
    a, b = matrices(element, 11, 70, 13)
    whole = gemm(element)(a, b)
    for n in range(1, 71):
        for right in (b[:, :n], np.asfortranarray(b[:, :n])):
            assert (gemm(element)(a, right) == whole[:, :n]).all()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_number_of_last_rows_with_and_without_a_second_block(element, target):
    """A last single row is computed as both rows of a tile, whose result is stored twice."""
    kernel, block = gemm(element, target), Tiling(element, target).block_k
    for k in (9, block + 5):
        a, b = matrices(element, 18, 35, k)
        whole = kernel(a, b)
        for m in range(2, 18):
            for left in (a[:m], np.asfortranarray(a[:m]), np.broadcast_to(a[:1], (m, k))):
                assert (kernel(left, b) == (whole[:m] if left.strides[0] else whole[:1])).all()


def _without_tiles_of_two(text):
    """The text of products without the calls that compute two rows."""
    return re.sub(r"  call void @\w+_strip2x\d+\(.*\n", "", text)


def test_eight_rows_are_two_tiles_of_four_where_six_is_the_tallest():
    kernel = Product(emit_gemm, "f32", AVX2, change=_without_tiles_of_two)
    a, b = matrices("f32", 32, 21, 16)
    whole = gemm("f32", AVX2)(a, b)
    for m in (4, 6, 8, 10, 12, 14, 20, 32):
        assert (kernel(a[:m], b, np.zeros((m, 21), np.float32)) == whole[:m]).all()
    assert not kernel(a[:2], b, np.zeros((2, 21), np.float32)).any()


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_broadcast_operand_is_read_through_its_zero_strides(element):
    a, b = matrices(element, 9, 20, 12)
    for right in (np.broadcast_to(b[:1], b.shape), np.broadcast_to(b[:, :1], b.shape)):
        assert (gemm(element)(a, right) == gemm(element)(a, right.copy())).all()
    left = np.broadcast_to(a[:1], a.shape)
    assert (gemm(element)(left, b) == gemm(element)(left.copy(), b)).all()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_product_with_a_vector_has_the_bits_of_the_larger_product(element, target):
    """Such products have kernels of their own; one more row sends the product to the kernels for all others, which take
    such products as well."""
    kernel = gemm(element, target)
    for n in (1, 3, 7, 8, 9, 15, 16, 31, 32, 33, 65, 129, 130):
        for k in (1, 3, 4, 5, 31, 32, 34, 515):
            a, b = matrices(element, 2, n, k)
            whole = kernel(a, b)[:1]
            for left in layouts(a[:1]):
                for right in layouts(b):
                    assert (kernel(left, right) == whole).all()
                    assert (kernel(right.T, left.T) == whole.T).all()
                    assert (kernel.general(left, right) == whole).all()
                    assert (kernel.general(right.T, left.T) == whole.T).all()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("row", [254, 256, 512, 1020, 1024, 2048])
def test_columns_that_collide_in_the_cache_are_the_same_chains(element, row):
    """Columns of B that lie a power of two apart are read in another order."""
    for n in (8, 20, 40):
        for k in (4, 30, 101):
            a, b = matrices(element, 2, n, k)
            wide = np.full((n, row), np.nan, b.dtype)
            wide[:, :k] = b.T
            assert (gemm(element)(a[:1], wide[:, :k].T) == gemm(element)(a, b)[:1]).all()


# --- operands that are cut to fit the caches (emit/gemm_blocks.py) ----------------------------------------------------
def transposed_with_colliding_lines(x, row=512):
    """The same values as the transpose of rows that lie a multiple of 2 KB apart."""
    wide = np.full((x.shape[1], -(-x.shape[0] // row) * row), np.nan, x.dtype)
    wide[:, : x.shape[0]] = x.T
    return wide[:, : x.shape[0]].T


UNCUT = changed(AVX512, name="uncut", blocks=None)
# What AVX-512 cuts are large products; this cuts small ones, in another way than AVX2.
MUCH_CUT = changed(
    AVX512,
    name="much cut",
    blocks=Blocks(
        packed_bytes=1 << 17,
        turned_bytes=1024,
        turned_from_bytes=1 << 12,
        turned_from_columns=40,
        small_bytes=1 << 12,
        rows=32,
        shallow_rows=16,
        columns=96,
        few_rows=16,
        few_colliding_rows=8,
    ),
)
# The last two are shallow.
LARGE = [("f32", 200, 1024, 1026), ("f64", 137, 530, 1030), ("f32", 1030, 1100, 7), ("f64", 600, 1040, 66)]


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("target", [AVX2, MUCH_CUT], ids=lambda target: target.name)
@pytest.mark.parametrize(
    "m, n, k",
    [(131, 90, 1030), (130, 1100, 17), (53, 66, 21), (7, 64, 530), (70, 64, 515), (48, 513, 3), (129, 17, 700)],
)
def test_products_in_blocks_are_the_same_chains(element, target, m, n, k):
    """With several stretches, several pieces of columns, rows that fill no block, and turned rows of A."""
    compare_in_blocks(element, target, m, n, k)


@pytest.mark.parametrize("element, m, n, k", LARGE)
def test_large_products_in_blocks_are_the_same_chains(element, m, n, k):
    compare_in_blocks(element, AVX512, m, n, k)


def compare_in_blocks(element, target, m, n, k):
    a, b = matrices(element, m, n, k)
    whole = gemm(element, UNCUT)(a, b)
    kernel = gemm(element, target)
    lefts = [*layouts(a), transposed_with_colliding_lines(a), np.repeat(a, 2, axis=0)[::2]]
    rights = [*layouts(b), transposed_with_colliding_lines(b.T, 1536).T]
    for left in lefts:
        for right in rights:
            assert (kernel(left, right) == whole).all()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("target", [AVX2, MUCH_CUT], ids=lambda target: target.name)
@pytest.mark.parametrize("m, n, k", [(53, 66, 21), (53, 66, 1100)])
def test_a_product_in_blocks_writes_its_scratch_and_reads_its_operands_only(element, target, m, n, k):
    kernel, row = gemm(element, target), 512
    memory = before_a_forbidden_page((k - 1) * row + m, kernel.dtype)
    a, b = matrices(element, m, n, k)
    left = np.lib.stride_tricks.as_strided(memory, (m, k), (memory.itemsize, row * memory.itemsize))
    left[:] = a
    size = scratch_bytes(element, n, k, target)
    guarded = np.full(size + 4096, 0xA5, np.uint8)
    start = -guarded.ctypes.data % 64 + 1024
    out = np.empty((m, n), kernel.dtype)
    kernel.function(*kernel.arguments(left, b, out, guarded[start:]))
    assert (out == kernel(a, b)).all()
    assert (guarded[:start] == 0xA5).all() and (guarded[start + size :] == 0xA5).all()


def test_where_rows_are_turned_more_columns_are_packed_so_that_they_are_turned_once():
    """They are for 512 terms of 500 columns, a megabyte; else a level-2 cache has all that is packed."""
    n, k = 500, 530
    kernel, (a, b) = gemm("f32", AVX2), matrices("f32", 130, n, k)
    size, written = scratch_bytes("f32", n, k, AVX2), []
    for left in (a, np.asfortranarray(a)):
        scratch = np.full(size + 64, 0xA5, np.uint8)[-size:]
        scratch = scratch[-scratch.ctypes.data % 64 :]
        out = np.empty((130, n), np.float32)
        kernel.function(*kernel.arguments(left, b, out, scratch))
        assert (out == gemm("f32", UNCUT)(a, b)).all()
        written.append(np.flatnonzero(scratch != 0xA5)[-1])
    assert written[0] < 3 << 17 < 1 << 20 <= written[1]


# --- memory -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("element, k", [("f32", 211), ("f64", 107)])
def test_few_rows_of_a_large_operand_are_the_same_chains(element, k):
    """They go through it a few rows at a time, so the chains pass through C many times."""
    a, b = matrices(element, 9, 5003, k)
    for m in (1, 3, 4):
        assert gemm(element)(a[:m], b).tobytes() == gemm(element)(a, b)[:m].tobytes()


@pytest.mark.parametrize("element", ELEMENTS)
def test_without_terms_the_sum_is_zero_and_without_elements_nothing_happens(element):
    dtype = gemm(element).dtype
    for m, n in [(1, 1), (1, 40), (40, 1), (9, 21)]:
        out = np.full((m, n), np.nan, dtype)
        assert (gemm(element)(np.empty((m, 0), dtype), np.empty((0, n), dtype), out) == 0).all()
    for m, n in [(0, 5), (5, 0), (0, 0), (1, 0), (0, 1)]:
        assert gemm(element)(np.ones((m, 3), dtype), np.ones((3, n), dtype)).shape == (m, n)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_only_the_result_and_the_stated_scratch_are_written(element, target):
    kernel = gemm(element, target)
    for m, n, k in [*ragged_shapes(15), (1, 70, 9), (70, 1, 9), (300, 33, 1100)]:
        a, b = matrices(element, m, n, k)
        frame = np.full((m + 2, n + 40), 7, kernel.dtype)
        size = scratch_bytes(element, n, k, target)
        memory = np.full(size + 4096, 0xA5, np.uint8)
        start = -memory.ctypes.data % 64 + 1024
        inner = frame[1:-1, 20:-20]
        for right in layouts(b):
            kernel.function(*kernel.arguments(a, right, inner, memory[start:]))
            assert (inner == kernel(a, b)).all()
            inner[:] = 7
            assert (frame == 7).all()
            assert (memory[:start] == 0xA5).all() and (memory[start + size :] == 0xA5).all()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_what_the_scratch_held_before_takes_no_part(element, target):
    """Five columns are computed as eight; the other three are zeros or a column once more."""
    kernel = gemm(element, target)
    scratch = kernel.scratch(5, 13)
    width = Tiling(element, target).panels[0]
    padding = scratch.view(kernel.dtype)[: 13 * width].reshape(13, width)[:, 5:8]
    for right in layouts(matrices(element, 9, 5, 13)[1]):
        scratch[:] = 0xFF
        a, out = matrices(element, 9, 5, 13)[0], np.empty((9, 5), kernel.dtype)
        kernel.function(*kernel.arguments(a, right, out, scratch))
        assert not np.isnan(padding).any()


def before_a_forbidden_page(n_elements, dtype):
    """An array at the end of what may be read: beyond it lies a page that ends the process."""
    n_bytes = -(-n_elements * dtype.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, n_bytes + mmap.PAGESIZE)
    if os.name == "posix":
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        protect = ctypes.CDLL(None).mprotect
        assert protect(ctypes.c_void_p(address + n_bytes), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return np.frombuffer(memory, dtype, n_elements, n_bytes - n_elements * dtype.itemsize)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_is_read_beyond_the_operands(element, target):
    """The tiles are wider than the last panel of B, and read what follows its rows, but not what follows B."""
    kernel = gemm(element, target)
    memory = before_a_forbidden_page(40 * 43, kernel.dtype)
    for n in range(1, 41):
        for k, row in ((1, n), (29, n), (40, n), (40, n + 3)):
            at_end = memory[-((k - 1) * row + n) :]
            at_end[:] = np.random.default_rng(n).standard_normal(at_end.size)
            b = np.lib.stride_tricks.as_strided(at_end, (k, n), (row * at_end.itemsize, at_end.itemsize))
            for m in (1, 8, 11):
                for right in (b, b.T):
                    a = matrices(element, m, right.shape[1], right.shape[0])[0]
                    assert (kernel(a, right) == kernel(a, right.copy())).all()
                    assert (kernel(right.T, a.T) == kernel(right.T.copy(), a.T)).all()


# --- which kernels a program needs ------------------------------------------------------------------------------------
@pytest.mark.parametrize("m, n, routine", [(4, 6, "gemm"), (4, 1, "gemv"), (1, 6, "gemv"), (1, 1, "gemv")])
def test_a_program_needs_the_kernels_for_vectors_only_if_a_product_has_one_row_or_column(m, n, routine):
    @weft.compile
    def product(x, y):
        return x @ y

    for batch in ((), (3,)):
        x, y = weft.randn(*batch, m, 5), weft.randn(*batch, 5, n)
        assert (product(x, y) == x @ y).all()
        (program,) = product.recordings[-1].programs
        assert program.meta["symbols"] == [f"{routine}_f32"]


def test_a_program_names_every_routine_once():
    @weft.compile
    def products(x, y, v):
        return x @ y @ v, (x.double() @ y.double() @ x.double()).sum(), x @ x

    x, y, v = weft.randn(4, 4), weft.randn(4, 4), weft.randn(4)
    for got, expected in zip(products(x, y, v), products.__wrapped__(x, y, v)):
        assert (got == expected).all()
    (program,) = products.recordings[-1].programs
    assert sorted(program.meta["symbols"]) == ["gemm_f32", "gemm_f64", "gemv_f32"]


def test_turned_rows_are_asked_for_ahead_with_avx2():
    def asked(target):
        (turn,) = [
            f for f in kernel_text(emit_gemm, "f32", target)[1].split("\ndefine ") if "_turn(" in f.split("\n")[0]
        ]
        return turn.count("prefetch")

    assert asked(AVX2) == 8 > asked(AVX512) == 0


# --- speed of the build -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("emit, n_lines", [(emit_gemm, 1900), (emit_gemv, 1100)])
def test_the_kernels_stay_small_enough_to_compile_in_tens_of_milliseconds(element, emit, n_lines):
    """Compile time follows the length of the text (about 0.04 ms a line), which unlike time is the same everywhere."""
    assert kernel_text(emit, element, AVX512)[1].count("\n") < n_lines
