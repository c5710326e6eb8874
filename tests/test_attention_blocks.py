"""Attention's routines: the bits of eager mode, for any number of threads and any target; no matrix of all scores."""

import ctypes
import re

import numpy as np
import pytest
from sequence_parts import numbers

import weft
from weft.compiler.emit.attention import emit_attention, forward_scratch
from weft.compiler.emit.builder import Module
from weft.compiler.target import AVX2, AVX512
from weft.nn import functional as F
from weft.runtime.code import jit

SEEN = np.random.default_rng(9).random((3, 1, 1, 90)) < 0.5
SEEN[1] = False
CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": SEEN},
    "one row": {"attn_mask": numbers(4, 1, 90)},
    "heads": {"attn_mask": numbers(5, 2, 70, 90)},
    "batch": {"attn_mask": numbers(6, 3, 1, 70, 90)},
    "every": {"attn_mask": numbers(7, 3, 2, 70, 90), "scale": 0.5},
    "grouped": {"enable_gqa": True},
}


def leaves(dtype="float32", heads=2, of_keys=2):
    shapes = (3, heads, 70, 20), (3, of_keys, 90, 20), (3, of_keys, 90, 12)
    return [weft.tensor(numbers(k, *s).astype(dtype), requires_grad=True) for k, s in enumerate(shapes)]


def attend(options):
    def run(q, k, v):
        found = F.scaled_dot_product_attention(q, k, v, **options)
        return [found, *weft.autograd.grad((found * found).sum(), (q, k, v))]

    return run


def options_of(case, dtype="float32"):
    given = dict(CASES[case])
    if "attn_mask" in given and given["attn_mask"].dtype != bool:
        given["attn_mask"] = given["attn_mask"].astype(dtype)
    return {k: weft.tensor(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}


def bits(values):
    return [x.detach().numpy().tobytes() for x in values]


@pytest.mark.parametrize("case", CASES)
def test_compiled_has_eagers_bits_for_any_number_of_threads(case):
    run, given = attend(options_of(case)), leaves(of_keys=1 if case == "grouped" else 2)
    expected = bits(run(*given))
    compiled, before = weft.compile(run), weft.get_num_threads()
    try:
        for n in (1, 2, 3):
            weft.set_num_threads(n)
            assert bits(compiled(*given)) == expected, n
    finally:
        weft.set_num_threads(before)
    assert "nothing ran outside the programs" in compiled.explain()


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_blocks_like_pytorch(case):
    torch = pytest.importorskip("torch")
    given = leaves("float64", of_keys=1 if case == "grouped" else 2)
    found = attend(options_of(case, "float64"))(*given)
    theirs = [torch.tensor(x.detach().numpy(), requires_grad=True) for x in given]
    options = {k: torch.tensor(v.numpy()) if hasattr(v, "numpy") else v for k, v in options_of(case, "float64").items()}
    out = torch.nn.functional.scaled_dot_product_attention(*theirs, **options)
    for x, y in zip(found, [out, *torch.autograd.grad((out * out).sum(), theirs)]):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_16_bits_are_computed_in_32(dtype):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        q, k, v = (library.tensor(numbers(k, 2, 9, 4)).to(getattr(library, dtype)) for k in range(3))
        found.append(library.nn.functional.scaled_dot_product_attention(q, k, v).float().numpy())
    np.testing.assert_allclose(*found, atol=0.01)


def test_there_is_no_matrix_of_all_scores():
    positions, n_bytes = 1024, 4
    q, k, v = (weft.tensor(numbers(s, 4, positions, 8).astype("float32"), requires_grad=True) for s in range(3))
    compiled = weft.compile(attend({}))
    compiled(q, k, v)
    text = compiled.explain(verbose=True)
    (arena,) = map(int, re.findall(r"arena (\d+) bytes", text))
    assert arena < positions * positions * n_bytes
    assert text.count("attention_rows over") == text.count("attention_cotangents over") == 1


def test_one_matrix_is_shared_in_chunks_of_rows():
    """Each has sums of its own over its rows; they are added in order, whoever has computed them."""
    given = [weft.tensor(numbers(s, n, 5).astype("float32"), requires_grad=True) for s, n in enumerate((600, 40, 40))]
    run, before = attend({}), weft.get_num_threads()
    expected, compiled = run(*given), weft.compile(run)
    try:
        for n in (1, 2, 3):
            weft.set_num_threads(n)
            assert bits(compiled(*given)) == bits(expected), n
    finally:
        weft.set_num_threads(before)

    def in_products(q, k, v):
        found = (q @ k.t() / 5**0.5).softmax(-1) @ v
        return [found, *weft.autograd.grad((found * found).sum(), (q, k, v))]

    assert all(weft.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(expected, in_products(*given)))


def test_one_program_for_sequences_that_grow():
    run = attend({"is_causal": True})
    compiled = weft.compile(run)
    # From 512 rows on a matrix goes in chunks, and then the program is for that number alone.
    for n in (5, 9, 17, 33, 40, 65, 520, 600, 800):
        given = [weft.tensor(numbers(k, 2, n, 8).astype("float32"), requires_grad=True) for k in range(3)]
        for _ in range(2):
            assert bits(compiled(*given)) == bits(run(*given)), n
    assert "serves many sizes" in compiled.explain()


def test_a_row_that_is_not_a_number_is_that_row_alone():
    q, k, v = (weft.tensor(numbers(s, 6, 3).astype("float32")) for s in range(3))
    q[2] = float("nan")
    found = F.scaled_dot_product_attention(q, k, v)
    assert found.isnan().all(1).tolist() == [False, False, True, False, False, False]


def test_far_apart_scores_leave_one_weight():
    q, v = weft.tensor([[1e4]]), weft.tensor([[1.0], [2.0]])
    assert F.scaled_dot_product_attention(q, weft.tensor([[1.0], [-1.0]]), v, scale=1.0).tolist() == [[1.0]]


def test_only_some_cotangents():
    q, k, v = leaves()
    for wanted in ((q,), (k,), (v,), (k, v)):
        run = lambda q, k, v: weft.autograd.grad(F.scaled_dot_product_attention(q, k, v).pow(2).sum(), wanted)  # noqa: B023, E731
        assert bits(weft.compile(run)(q, k, v)) == bits(run(q, k, v))


def test_no_keys_and_no_columns():
    shapes = (((2, 3, 4), (2, 0, 4), (2, 0, 5)), ((2, 3, 0), (2, 4, 0), (2, 4, 5)), ((0, 3, 4), (0, 4, 4), (0, 4, 5)))
    for given in shapes:
        q, k, v = (weft.ones(s) for s in given)
        found = F.scaled_dot_product_attention(q, k, v, scale=1.0)
        assert found.shape == (given[0][0], 3, 5)
        assert found.tolist() == weft.compile(F.scaled_dot_product_attention)(q, k, v, scale=1.0).tolist()


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_every_target_has_the_same_bits(element):
    dtype = {"f32": np.float32, "f64": np.float64}[element]
    q, k, v = (numbers(s, 2, n, w).astype(dtype) for s, (n, w) in enumerate(((70, 9), (50, 9), (50, 37))))
    found = {_on(target, element, block, q, k, v) for target in (AVX512, AVX2) for block in (16, 64)}
    assert len(found) == 1


def _on(target, element, block, q, k, v):
    """The bytes of the result, computed by a routine for a target in blocks of so many rows."""
    module = Module(target)
    emit_attention(False)(module, element)
    library = jit.link(jit.compile_text(str(module)))
    types = [*[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 9, ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(None, *types)(library.address(f"weft_attention_{element}"))
    (n, rows, width), (_, keys, value_width) = q.shape, v.shape
    out, wide = np.empty((n, rows, value_width), q.dtype), [(2, 64, q.shape[2]), k.shape, v.shape]
    scratch = np.empty(4 * forward_scratch(element, *wide), np.uint8)
    places = [x.ctypes.data for x in (q, k, v, out)]
    function(*places, 0, 2 * n, rows, keys, width, value_width, 1, block, 64, scratch.ctypes.data)
    return out.tobytes()
