"""flex_attention: scores and masks that are functions of positions."""

import math

import numpy as np
import pytest

import weft
from weft.nn import functional as F
from weft.nn.attention import flex_attention as flexible
from weft.nn.attention.bias import causal_lower_right, causal_upper_left

B, H, L, S, E = 2, 4, 6, 9, 8
TABLE = np.random.default_rng(1).standard_normal((H, L + S)).astype(np.float32)


def operands(library, heads=H):
    rng = np.random.default_rng(0)
    shapes = (B, H, L, E), (B, heads, S, E), (B, heads, S, 5)
    return [library.tensor(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]


def causal(b, h, q, k):
    return q >= k


def near(b, h, q, k):
    return abs(q - k) < 3


def of_batch(b, h, q, k):
    return k < 4 + b + h


# (score_mod, mask_mod) of PyTorch's or weft's functions.
CASES = {
    "plain": lambda m, f: (None, None),
    "distances": lambda m, f: (lambda s, b, h, q, k: s + (k - q) * m.exp2(-(h + 1.0)), None),
    "table": lambda m, f: (lambda s, b, h, q, k: s + m.tensor(TABLE)[h, q - k + S], None),
    "where": lambda m, f: (lambda s, b, h, q, k: m.where(q >= k, s, -math.inf), None),
    "capped": lambda m, f: (lambda s, b, h, q, k: 2 * m.tanh(s / 2), causal),
    "window": lambda m, f: (None, f.and_masks(causal, near)),
    "either": lambda m, f: (None, f.or_masks(lambda b, h, q, k: k == 0, near)),
    "sees nothing": lambda m, f: (None, lambda b, h, q, k: q > k),
    "of batches": lambda m, f: (None, of_batch),
    "all": lambda m, f: (None, f.noop_mask),
}


def attended(library, module, case, **options):
    score_mod, mask_mod = CASES[case](library, module)
    if mask_mod is not None:
        options["block_mask"] = module.create_block_mask(mask_mod, B, H, L, S, device="cpu")
    return module.flex_attention(*operands(library), score_mod=score_mod, **options)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_pytorch(case):
    torch = pytest.importorskip("torch")
    from torch.nn.attention import flex_attention as theirs

    ours, other = (attended(m, f, case, return_lse=True) for m, f in ((weft, flexible), (torch, theirs)))
    for found, expected in zip(ours, other):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_a_mask_that_is_added():
    mask = flexible.create_block_mask(causal, None, None, L, S)
    q, k, v = (x.requires_grad_() for x in operands(weft))
    added = flexible.create_mask(causal, None, None, L, S)
    assert added.shape == (1, 1, L, S)
    expected = weft.autograd.grad(F.scaled_dot_product_attention(q, k, v, added).sin().sum(), (q, k, v))
    found = weft.autograd.grad(flexible.flex_attention(q, k, v, block_mask=mask).sin().sum(), (q, k, v))
    for a, b in zip(found, expected):
        weft.testing.assert_close(a, b)


def test_gradients_of_queries_that_see_nothing_are_zeros():
    mask = flexible.create_block_mask(lambda b, h, q, k: q > k, None, None, L, S)
    q, k, v = (x.requires_grad_() for x in operands(weft))
    result = flexible.flex_attention(q, k, v, block_mask=mask)
    assert not result[:, :, 0].any()
    result.sum().backward()
    assert not q.grad[:, :, 0].any() and q.grad.isfinite().all() and k.grad.isfinite().all()


def test_heads_that_share_keys_and_compiled_calls():
    q, k, v = operands(weft, heads=2)
    mask = flexible.create_block_mask(causal, None, None, L, S)

    def attend(q, k, v):
        return flexible.flex_attention(q, k, v, block_mask=mask, scale=0.5, enable_gqa=True)

    expected = attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    compiled = weft.compile(attend)
    assert weft.equal(attend(q, k, v), expected)
    assert all(weft.equal(compiled(q, k, v), expected) for _ in range(4))
    assert compiled.breaks == ()
    with pytest.raises(ValueError, match="enable_gqa=True"):
        flexible.flex_attention(q, k, v)


def test_masks_know_their_blocks():
    mask = flexible.create_block_mask(causal, None, None, 200, 300)
    assert mask.to_dense().tolist() == [[[[1, 0, 0], [1, 1, 0]]]]
    assert repr(mask.to("cpu")) == "BlockMask(shape=(1, 1, 200, 300), sparsity=18.08%)"
    with pytest.raises(ValueError, match="created for 200 queries and 300 keys, and there are 6 and 9"):
        flexible.flex_attention(*operands(weft), block_mask=mask)
    with pytest.raises(ValueError, match="does not fit scores"):
        flexible.flex_attention(*operands(weft), block_mask=flexible.create_block_mask(causal, 3, None, L, S))
    with pytest.raises(RuntimeError, match="callable mask_mods"):
        flexible.and_masks(causal, 3)
    asked = flexible.AuxRequest(lse=True, max_scores=True)
    _, found = flexible.flex_attention(*operands(weft), return_aux=asked)
    assert found.lse.shape == found.max_scores.shape == (B, H, L)
    assert flexible.create_mask(lambda s, b, h, q, k: s + q, None, 2, 2, 2)[0, 1].tolist() == [[0, 0], [1, 1]]


def test_causal_masks_that_are_not_square():
    assert causal_upper_left(2, 4).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert causal_lower_right(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
