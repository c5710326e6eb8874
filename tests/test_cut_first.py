"""What is read in parts only is computed in parts, and slices of what slices were put into find them."""

import numpy as np
import pytest

import weft
from weft.compiler.cut_first import cut_first
from weft.compiler.graph import parse
from weft.compiler.legalize import legalize
from weft.compiler.simplify import simplify


def _ops(*lines, result):
    """The ops that are left of a graph on two matrices of 4 x 6."""
    inputs = ["%0 = input() : float32[4, 6]", "%1 = input() : float32[4, 6]"]
    text = "\n  ".join(["graph parts {", *inputs, *lines, f"return {result}"]) + "\n}\n"
    simple, _ = simplify(legalize(parse(text))[0])
    cut, _ = cut_first(simple)
    return [v.op.name for v in cut.verify().values if v.op.name != "input"]


def _slice(number, of, first, count=3):
    return f"%{number} = slice(%{of}) {{spec=((0, 1, 4), ({first}, 1, {count}))}} : float32[4, {count}]"


_SUM = "%2 = add(%0, %1) : float32[4, 6]"
_HALVES = _SUM, _slice(3, 2, 0), _slice(4, 2, 3)


def test_ops_come_after_the_slices_of_their_results():
    ops = _ops(*_HALVES, "%5 = mul(%3, %4) : float32[4, 3]", result="%5")
    assert sorted(ops) == ["add", "add", "mul", "slice", "slice", "slice", "slice"]


def test_ops_come_after_slices_of_slices_without_dimensions_of_one():
    row = "%3 = slice(%2) {spec=((1, 1, 1), (0, 1, 6))} : float32[1, 6]"
    flat = "%4 = reshape(%3) {shape=(6,)} : float32[6]"
    ops = _ops("%2 = exp(%0) : float32[4, 6]", row, flat, "%5 = tanh(%4) : float32[6]", result="%5")
    assert ops == ["slice", "reshape", "exp", "tanh"]


@pytest.mark.parametrize(
    "lines, result",
    [
        ([*_HALVES, "%5 = mul(%3, %4) : float32[4, 3]"], "%5, %2"),
        ([*_HALVES, "%5 = mul(%3, %4) : float32[4, 3]", "%6 = exp(%2) : float32[4, 6]"], "%5, %6"),
        ([_SUM, _slice(3, 2, 0, 4), _slice(4, 2, 2, 4), "%5 = mul(%3, %4) : float32[4, 4]"], "%5"),
        ([*_HALVES, "%5 = permute(%3) {axes=(1, 0)} : float32[3, 4]", "%6 = bmm(%5, %4) : float32[3, 3]"], "%6"),
        ([*_HALVES], "%3, %4"),
    ],
    ids=["a result", "read whole too", "overlapping", "read by a product", "parts that are results"],
)
def test_the_whole_stays(lines, result):
    assert _ops(*lines, result=result).count("add") == 1


def test_long_chains_are_cut_at_their_end_only():
    chain = [f"%{k} = exp(%{k - 1}) : float32[4, 6]" for k in range(3, 13)]
    lines = [_SUM, *chain, _slice(13, 12, 0), _slice(14, 12, 3), "%15 = mul(%13, %14) : float32[4, 3]"]
    # Four of the ten twice, and the others once.
    assert _ops(*lines, result="%15").count("exp") == 6 + 2 * 4


@pytest.mark.parametrize(
    "first, ops",
    [(1, ["tanh"]), (2, ["tanh"]), (0, ["tanh"])],
    ids=["the part", "beside it", "on its edge"],
)
def test_a_slice_finds_the_part_that_was_put_into_an_array(first, ops):
    scatter = "%3 = slice_scatter(%0, %2) {spec=((0, 1, 4), (1, 1, 1))} : float32[4, 6]"
    lines = _slice(2, 1, 0, 1), scatter, _slice(4, 3, first, 1), "%5 = tanh(%4) : float32[4, 1]"
    # One slice: of the part's own array, or of what was there before.
    found = _ops(*lines, result="%5")
    assert [name for name in found if name != "slice"] == ops and found.count("slice") in (1, 2)


def test_a_slice_across_the_edge_of_a_part_reads_the_whole():
    scatter = "%3 = slice_scatter(%0, %2) {spec=((0, 1, 4), (1, 1, 2))} : float32[4, 6]"
    lines = _slice(2, 1, 0, 2), scatter, _slice(4, 3, 2, 2), "%5 = tanh(%4) : float32[4, 2]"
    assert _ops(*lines, result="%5") == ["slice", "slice_scatter", "slice", "tanh"]


def test_gates_of_a_recurrent_step_have_equal_bits_and_no_kernel_of_their_own():
    rng = np.random.default_rng(0)
    xs, h0, w = (weft.tensor(rng.standard_normal(s, dtype=np.float32)) for s in ((5, 4, 24), (4, 8), (8, 24)))
    bias = weft.tensor(rng.standard_normal(24, dtype=np.float32), requires_grad=True)

    def states(xs, h, w, bias):
        outputs = []
        for gates in (x + bias for x in xs):
            update, reset, new = (gates + h @ w).chunk(3, dim=1)
            h = weft.sigmoid(update) * h + weft.sigmoid(reset) * weft.tanh(new)
            outputs.append(h)
        total = weft.stack(outputs).sum()
        return total, *weft.autograd.grad(total, [bias])

    compiled = weft.compile(states)
    for _ in range(3):
        eager, fused = states(xs, h0, w, bias), compiled(xs, h0, w, bias)
        assert all(a.detach().numpy().tobytes() == b.detach().numpy().tobytes() for a, b in zip(eager, fused))
    kernels = [line for line in compiled.explain(verbose=True).splitlines() if "sigmoid" in line]
    # The sums of the gates, with their bias, are lines of the kernels that use them.
    assert kernels and all(" add " in line for line in kernels)
    assert "loop over (4, 24): add (" not in compiled.explain(verbose=True)
