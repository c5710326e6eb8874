"""Attention and transformers: PyTorch's numbers and words, compiled with eager mode's bits."""

import numpy as np
import pytest
from sequence_parts import arrays, assert_alike, derivatives, filled, numbers, train, trains_compiled_as_eagerly

import weft
from weft import nn
from weft.nn import functional as F

BLIND = np.tril(np.ones((4, 5), bool), 1)
BLIND[2] = False
PADDED = np.array([[False] * 5, [False] * 3 + [True] * 2])


# --- scaled_dot_product_attention -----------------------------------------------------------------------------------
@pytest.mark.oracle
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attn_mask": BLIND},
        {"attn_mask": numbers(5, 2, 1, 4, 5)},
        {"is_causal": True, "scale": 0.3},
        {"enable_gqa": True, "is_causal": True},
    ],
    ids=["plain", "bool", "added", "causal", "grouped"],
)
def test_dot_products_like_pytorch(options):
    torch = pytest.importorskip("torch")
    heads = 2 if options.get("enable_gqa") else 4
    found = []
    for library in (weft, torch):
        shapes = ((2, 4, 4, 3), (2, heads, 5, 3), (2, heads, 5, 2))
        leaves = [library.tensor(numbers(k, *shape)).requires_grad_() for k, shape in enumerate(shapes)]
        given = {k: library.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        output = library.nn.functional.scaled_dot_product_attention(*leaves, **given)
        found.append(arrays(derivatives(library, [output], leaves)))
    assert_alike(*found)


@pytest.mark.oracle
def test_many_positions_and_masks_with_gradients_like_pytorch():
    """Blocks of rows, of which later ones see more keys; and a mask that is learned."""
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        leaves = [library.tensor(numbers(k, 2, 150, 3)).requires_grad_() for k in range(3)]
        added = library.tensor(numbers(4, 150, 150)).requires_grad_()
        attend = library.nn.functional.scaled_dot_product_attention
        values = [*derivatives(library, [attend(*leaves, is_causal=True)], leaves, twice=False)]
        values += derivatives(library, [attend(*leaves, attn_mask=added)], [*leaves, added], twice=False)
        found.append(arrays(values))
    assert_alike(*found)


def test_blocks_of_rows_have_the_bits_of_eager_mode():
    def run(q, k, v):
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return found, *weft.autograd.grad((found * found).sum(), (q, k, v))

    compiled = weft.compile(run)
    for k in range(4):
        inputs = [weft.tensor(numbers(k + n, 2, 150, 3).astype("float32"), requires_grad=True) for n in range(3)]
        assert [x.tolist() for x in compiled(*inputs)] == [x.tolist() for x in run(*inputs)]
    assert "nothing ran outside the programs" in compiled.explain()


def test_dropped_weights_scale_the_others():
    weft.manual_seed(0)
    x = weft.ones(3, 40, 2)
    mean = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).mean().item()
    assert 0.9 < mean < 1.1 and mean != 1
    assert F.scaled_dot_product_attention(x, x, x).mean().item() == pytest.approx(1)


def test_errors_of_dot_products():
    x = weft.zeros(4, 5, 2)
    for args, options, message in (
        ((x, x, x, x), {"is_causal": True}, "Explicit attn_mask should not be set when is_causal=True"),
        ((x, x.double(), x), {}, "Expected query, key, and value to have the same dtype"),
        ((x[0, 0], x, x), {}, r"at least 2 dimensional, but got query.dim\(\): 1"),
        ((x, x, x, weft.zeros(5, 5).long()), {}, "attn_mask dtype to be bool or to match query dtype"),
        ((x, x[:3], x[:3]), {"enable_gqa": True}, "must divide the number of heads in query"),
    ):
        with pytest.raises(RuntimeError, match=message):
            F.scaled_dot_product_attention(*args, **options)


# --- MultiheadAttention ---------------------------------------------------------------------------------------------
ATTENTIONS = {
    "plain": ({}, {}),
    "self": ({"batch_first": True}, {}),
    "single": ({"bias": False}, {"average_attn_weights": False}),
    "sizes": ({"kdim": 3, "vdim": 2}, {"attn_mask": BLIND & False}),
    "masks": ({}, {"attn_mask": ~np.tril(np.ones((4, 5), bool), 1), "key_padding_mask": PADDED}),
    "heads": ({}, {"attn_mask": numbers(4, 4, 4, 5), "key_padding_mask": numbers(3, 2, 5), "need_weights": False}),
    "added": ({"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": BLIND, "key_padding_mask": PADDED}),
    "unseen": ({"batch_first": True}, {"key_padding_mask": PADDED, "need_weights": False}),
}


@pytest.mark.oracle
@pytest.mark.parametrize("case", ATTENTIONS)
def test_heads_like_pytorch(case):
    torch = pytest.importorskip("torch")
    made, called = ATTENTIONS[case]
    found = []
    for library in (weft, torch):
        layer = filled(library.nn.MultiheadAttention(4, 2, **made), library)
        sizes = ((4, 4), (5, layer.kdim), (5, layer.vdim))
        shapes = [(2, *s) if layer.batch_first else s if case == "single" else (s[0], 2, s[1]) for s in sizes]
        inputs = [library.tensor(numbers(k, *s)).requires_grad_() for k, s in enumerate(shapes)]
        leaves = [*(inputs[:1] if case == "self" else inputs), *layer.parameters()]
        inputs = inputs[:1] * 3 if case == "self" else inputs
        given = {k: library.tensor(v) if isinstance(v, np.ndarray) else v for k, v in called.items()}
        output, weights = layer(*inputs, **given)
        values = derivatives(library, [output, *([] if weights is None else [weights])], leaves, twice=False)
        found.append((repr(layer), list(layer.state_dict()), arrays(values)))
    assert found[0][:2] == found[1][:2]
    assert_alike(found[0][2], found[1][2])


def test_keys_and_values_in_the_place_of_projected_ones():
    layer = filled(nn.MultiheadAttention(4, 2), weft)
    x = weft.tensor(numbers(0, 3, 2, 4))

    def called(**given):
        weights = layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0, layer.out_proj.weight
        return F.multi_head_attention_forward(x, x, x, 4, 2, *weights, layer.out_proj.bias, **given)[0]

    projected = F.linear(x, layer.in_proj_weight, layer.in_proj_bias)
    keys, values = (p.reshape(3, 4, 2).transpose(0, 1) for p in projected.chunk(3, -1)[1:])
    assert called(static_k=keys, static_v=values).tolist() == called().tolist()
    with pytest.raises(AssertionError, match=r"expecting static_k.size\(0\) of 4, but got 3"):
        called(static_k=keys[:3])
    with pytest.raises(AssertionError, match=r"expecting static_v.size\(2\) of 2, but got 1"):
        called(static_v=values[..., :1])


def test_errors_of_heads():
    layer, x = nn.MultiheadAttention(4, 2), weft.zeros(3, 2, 4)
    for args, options, kind, message in (
        ((x[None], x, x), {}, AssertionError, "batched 3D tensor but received 4-D query tensor"),
        ((x, x[0], x), {}, AssertionError, "to be 3-D but found 2-D and 3-D tensors"),
        ((x, x, x), {"is_causal": True}, RuntimeError, "Need attn_mask if specifying the is_causal hint"),
        ((x, x, x), {"attn_mask": weft.zeros(2, 3)}, RuntimeError, r"2D attn_mask is \(2, 3\), but should be \(3, 3\)"),
        ((x, x, x), {"attn_mask": weft.zeros(3)}, AssertionError, "`None`, 2-D or 3-D but found 1-D"),
        ((x[0], x[0], x[0]), {"attn_mask": weft.zeros(1, 2, 2)}, AssertionError, r"shape to be \(2, 2, 2\)"),
        ((x, x, x), {"key_padding_mask": weft.zeros(2)}, AssertionError, "to be `None` or 2-D but found 1-D"),
        (
            (x, x, x),
            {"attn_mask": weft.zeros(3, 3).long()},
            AssertionError,
            "only bool and floating types of attn_mask",
        ),
        ((x[..., :2],) * 3, {}, AssertionError, "was expecting embedding dimension of 4, but got 2"),
        ((x, x, x[:2]), {}, AssertionError, "does not match value shape"),
    ):
        with pytest.raises(kind, match=message):
            layer(*args, **options)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask is deprecated"):
        layer(x, x, x, key_padding_mask=weft.zeros(2, 3), attn_mask=weft.zeros(3, 3).bool())
    with pytest.raises(AssertionError, match="sequence and batch dims"):
        nn.MultiheadAttention(4, 2, kdim=3)(x, x[..., :3], x[:2])
    with pytest.raises(ValueError, match="must be greater than 0, got embed_dim=0"):
        nn.MultiheadAttention(0, 2)
    with pytest.raises(AssertionError, match="embed_dim must be divisible by num_heads"):
        nn.MultiheadAttention(5, 2)
    with pytest.raises(AssertionError, match="embed_dim 4 not divisible by num_heads 3"):
        F.multi_head_attention_forward(x, x, x, 4, 3, *([None] * 4), False, 0.0, None, None)


# --- transformers -----------------------------------------------------------------------------------------------------
TRANSFORMERS = [
    {},
    {"norm_first": True, "activation": "gelu", "batch_first": True},
    {"bias": False, "activation": "square"},
]


def transformer(library, options):
    options = {**options, "dropout": 0.0}
    if options.get("activation") == "square":
        options["activation"] = library.square
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 1, "dim_feedforward": 6}
    return filled(library.nn.Transformer(4, 2, **sizes, **options), library)


@pytest.mark.oracle
@pytest.mark.parametrize("options", TRANSFORMERS)
def test_transformers_like_pytorch(options):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        model = transformer(library, options)
        shapes = ((2, 5, 4), (2, 3, 4)) if model.batch_first else ((5, 2, 4), (3, 2, 4))
        source, target = (library.tensor(numbers(k, *s)).requires_grad_() for k, s in enumerate(shapes))
        padded = library.where(library.tensor(PADDED), -np.inf, library.zeros(2, 5).double())
        masks = {"src_key_padding_mask": padded, "memory_key_padding_mask": padded}
        mask = model.generate_square_subsequent_mask(3, dtype=library.float64)
        output = model(source, target, tgt_mask=mask, tgt_is_causal=True, **masks)
        model.eval()
        with library.no_grad():
            seen = model(source, target, tgt_mask=mask, **masks)
        leaves = [source, target, *model.parameters()]
        values = [seen, mask, *derivatives(library, [output], leaves, twice=False)]
        found.append((repr(model), list(model.state_dict()), arrays(values)))
    assert found[0][:2] == found[1][:2]
    # PyTorch's evaluation of padded positions is by another path, and the decoder does not look at them.
    assert_alike(found[0][2], found[1][2])


def test_errors_of_transformers():
    model, x = nn.Transformer(4, 2, 1, 1, 8), weft.zeros(3, 2, 4)
    with pytest.raises(RuntimeError, match="batch number of src and tgt must be equal, got 2 and 1"):
        model(x, x[:, :1])
    with pytest.raises(RuntimeError, match="equal to d_model, which is 4, got 2 and 4"):
        model(x[..., :2], x)
    with pytest.raises(RuntimeError, match="activation should be relu/gelu, not tanh"):
        nn.TransformerEncoderLayer(4, 2, activation="tanh")


# --- compiled, and trained --------------------------------------------------------------------------------------------
def test_steps_are_one_program_with_the_bits_of_eager_mode():
    def make(library):
        return library.nn.Transformer(4, 2, 1, 1, 8, dropout=0.1)

    def loss_of(model, source, target):
        mask = model.generate_square_subsequent_mask(3)
        return (model(source, target, tgt_mask=mask, tgt_is_causal=True) ** 2 * target).mean()

    batches = [(numbers(k, 5, 2, 4).astype("float32"), numbers(k + 9, 3, 2, 4).astype("float32")) for k in range(5)]
    trains_compiled_as_eagerly(make, loss_of, batches)


def test_weights_and_masks_in_a_compiled_step():
    def loss_of(layer, x):
        hidden = weft.tensor([[False, True, False], [False] * 3])
        output, weights = layer(x, x, x, key_padding_mask=hidden)
        return output.mean() + weights.max()

    batches = [(numbers(k, 3, 2, 4).astype("float32"),) for k in range(5)]
    trains_compiled_as_eagerly(lambda library: library.nn.MultiheadAttention(4, 2, dropout=0.2), loss_of, batches)


def character_model(library):
    """A language model of characters: embeddings, two blocks with causal attention, and a norm."""
    nn = library.nn

    class Characters(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters, self.places = nn.Embedding(9, 8), nn.Embedding(6, 8)
            block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(block, 2, nn.LayerNorm(8), enable_nested_tensor=False)
            self.scores = nn.Linear(8, 9, bias=False)

        def forward(self, text):
            x = self.letters(text) + self.places(library.arange(text.shape[1]))
            mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], dtype=x.dtype)
            return self.scores(self.blocks(x, mask=mask, is_causal=True))

    def loss_of(model, text):
        scores = model(text[:, :-1])
        return nn.functional.cross_entropy(scores.reshape(-1, 9), text[:, 1:].reshape(-1))

    return Characters(), loss_of


@pytest.mark.oracle
def test_a_language_model_trains_to_the_losses_of_pytorch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    batches = [((rng.integers(0, 9, (3, 1)) + np.arange(7)) % 9,) for _ in range(6)]
    losses = []
    for library, compile in ((weft, None), (weft, weft.compile), (torch, None)):
        model, loss_of = character_model(library)
        losses.append(train(library, filled(model, library), loss_of, batches, compile)[0])
    assert losses[0] == losses[1]
    np.testing.assert_allclose(losses[0], losses[2], 1e-9)
