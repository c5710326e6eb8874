"""RNN, LSTM, GRU, their cells and packed sequences: PyTorch's numbers and words, compiled with eager mode's bits."""

import numpy as np
import pytest
from sequence_parts import arrays, assert_alike, derivatives, filled, numbers, train, trains_compiled_as_eagerly

import weft
from weft import nn
from weft.nn.utils import rnn

LAYERS = [
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2, "bidirectional": True}),
    ("LSTM", {"batch_first": True}),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "bias": False}),
    ("LSTM", {"proj_size": 2, "bidirectional": True}),
    ("GRU", {"num_layers": 2}),
    ("GRU", {"bidirectional": True, "batch_first": True, "bias": False}),
]


def states_of(layer, *batch):
    """Arrays (layers * directions, *batch, size) of states to begin with."""
    n = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or layer.hidden_size] + [layer.hidden_size] * isinstance(layer, nn.LSTM)
    return [numbers(k + 7, n, *batch, size) for k, size in enumerate(sizes)]


def outcome(library, kind, options, states, x, pack=None, twice=True):
    """Outputs and derivatives of a layer; pack: lengths, or None for padded sequences."""
    layer = filled(getattr(library.nn, kind)(3, 4, **options), library)
    x, *hx = (library.tensor(a).requires_grad_() for a in (x, *states))
    given, tools, first = x, library.nn.utils.rnn, layer.batch_first
    if pack:
        given = tools.pack_padded_sequence(x, pack, batch_first=first, enforce_sorted=False)
    output, hidden = layer(given, (tuple(hx) if len(hx) == 2 else hx[0]) if hx else None)
    if pack:
        output = tools.pad_packed_sequence(output, batch_first=first)[0]
    hidden = hidden if isinstance(hidden, tuple) else (hidden,)
    return arrays(derivatives(library, [output, *hidden], [x, *hx, *layer.parameters()], twice))


@pytest.mark.oracle
@pytest.mark.parametrize(("kind", "options"), LAYERS)
@pytest.mark.parametrize("form", ["padded", "packed", "single"])
def test_layers_like_pytorch(kind, options, form):
    torch = pytest.importorskip("torch")
    layer = getattr(nn, kind)(3, 4, **options)
    assert repr(layer) == repr(getattr(torch.nn, kind)(3, 4, **options))
    assert list(layer.state_dict()) == list(getattr(torch.nn, kind)(3, 4, **options).state_dict())
    batch = () if form == "single" else (2,)
    shape = (*batch, 4, 3) if layer.batch_first else (4, *batch, 3)
    states = [] if form == "single" else states_of(layer, *batch)
    cases = [kind, options, states, numbers(1, *shape), [2, 4] if form == "packed" else None, form == "packed"]
    assert_alike(outcome(weft, *cases), outcome(torch, *cases))


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_like_pytorch(kind, bias):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        cell = filled(getattr(library.nn, kind)(3, 4, bias=bias), library)
        x, h, c = (library.tensor(numbers(k, 2, n)).requires_grad_() for k, n in enumerate((3, 4, 4)))
        begin = (h, c) if kind == "LSTMCell" else h
        outputs = cell(x, begin)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        single = cell(x[0])
        leaves = [x, h, *cell.parameters()]
        found.append((repr(cell), arrays(derivatives(library, outputs, leaves))))
        found[-1][1].extend(arrays(single if isinstance(single, tuple) else (single,)))
    assert found[0][0] == found[1][0]
    assert_alike(found[0][1], found[1][1])


# --- packed sequences -----------------------------------------------------------------------------------------------
def packing(library):
    tools, seen = library.nn.utils.rnn, []
    parts = [library.tensor(numbers(k, n, 2)) for k, n in enumerate((2, 4, 1))]
    for packed in (
        tools.pack_sequence(parts, enforce_sorted=False),
        tools.pack_sequence([parts[1], parts[0]]),
        tools.pack_padded_sequence(tools.pad_sequence(parts), library.tensor([2, 3, 1]), enforce_sorted=False),
        tools.pack_sequence(parts, enforce_sorted=False).to(library.float32).double(),
        *(getattr(tools.pack_sequence(parts, enforce_sorted=False), kind)() for kind in ("half", "char", "short")),
    ):
        seen += [x for x in packed if x is not None]
        seen += tools.unpack_sequence(packed)
        seen += tools.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=5)
    return [x.numpy() for x in [*seen, tools.invert_permutation(library.tensor([2, 0, 1]))]]


@pytest.mark.oracle
def test_packing_like_pytorch():
    torch = pytest.importorskip("torch")
    ours, theirs = packing(weft), packing(torch)
    assert [a.tolist() for a in ours] == [a.tolist() for a in theirs]


def test_a_packed_sequence_is_a_tuple_with_names():
    packed = rnn.pack_sequence(iter([weft.ones(2), weft.zeros(1)]))
    data, sizes, order, back = packed
    assert data.tolist() == [1, 0, 1] and sizes.tolist() == [2, 1] and order is None and back is None
    assert packed.to(weft.float32) is packed and not packed.is_cuda
    assert rnn.PackedSequence((data, sizes)).batch_sizes is sizes


def test_packing_errors():
    x = weft.zeros(2, 3, 4)
    for lengths, message in (
        ([2, 2], r"Expected `len\(lengths\)` to be equal to batch_size, but got 2 \(batch_size=3\)"),
        ([2, 2, 0], "Length of all samples has to be greater than 0"),
        ([1, 2, 2], "must be sorted in decreasing order when `enforce_sorted` is True"),
        ([3, 2, 2], "at most 2, which is how many steps input has, but got 3"),
    ):
        with pytest.raises(RuntimeError, match=message):
            rnn.pack_padded_sequence(x, lengths)
    with pytest.raises(ValueError, match="got total_length=1 and max sequence length being 2"):
        rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [2, 2, 1]), total_length=1)
    with pytest.raises(RuntimeError, match="Expected iterable for input sequences"):
        rnn.pad_sequence(3)


# --- compiled ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "make",
    [
        lambda library: library.nn.LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.5),
        lambda library: library.nn.LSTM(3, 4, proj_size=2),
        lambda library: library.nn.GRU(3, 4, batch_first=True),
        lambda library: library.nn.RNN(3, 4, nonlinearity="relu"),
    ],
)
def test_steps_are_one_program_with_the_bits_of_eager_mode(make):
    batches = [(numbers(k, 3, 2, 3).astype("float32"),) for k in range(5)]
    trains_compiled_as_eagerly(make, lambda layer, x: (layer(x)[0] ** 2).mean(), batches)


def test_lengths_that_change_are_no_new_program():
    layer, seen = nn.GRU(3, 4), {}
    x = weft.tensor(numbers(0, 4, 3, 3).astype("float32"))

    def run(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, hidden = layer(packed)
        return rnn.pad_packed_sequence(output)[0].sum() + hidden.sum()

    compiled = weft.compile(run)
    # As many rows in all, so nothing has another shape.
    for lengths in ([4, 2, 3], [2, 3, 4], [4, 3, 2], [4, 4, 1]):
        lengths = weft.tensor(lengths)
        seen[compiled(x, lengths).item()] = run(x, lengths).item()
    assert list(seen) == list(seen.values())
    assert compiled.explain().count("  program ") == 1


def test_a_cell_in_a_loop():
    def loss_of(cell, x):
        h = c = x.new_zeros(2, 4)
        for t in range(x.shape[0]):
            h, c = cell(x[t], (h, c))
        return (h * c).sum()

    batches = [(numbers(k, 4, 2, 3).astype("float32"),) for k in range(5)]
    trains_compiled_as_eagerly(lambda library: library.nn.LSTMCell(3, 4), loss_of, batches)


# --- training ---------------------------------------------------------------------------------------------------------
def tagger(library):
    """Classes of every step of sequences of different lengths, from a bidirectional LSTM of two layers."""

    class Tagger(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = library.nn.Embedding(7, 3)
            self.steps = library.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
            self.classes = library.nn.Linear(8, 3)

        def forward(self, words, lengths):
            tools = library.nn.utils.rnn
            packed = tools.pack_padded_sequence(self.words(words), lengths, batch_first=True, enforce_sorted=False)
            output, _ = tools.pad_packed_sequence(self.steps(packed)[0], batch_first=True)
            return self.classes(output)

    def loss_of(model, words, lengths, tags):
        scores = model(words, lengths)
        return library.nn.functional.cross_entropy(scores.reshape(-1, 3), tags.reshape(-1), ignore_index=-1)

    return Tagger(), loss_of


def tagged(n_steps):
    rng = np.random.default_rng(0)
    for _ in range(n_steps):
        lengths = rng.permutation([4, 2, 3])
        words = rng.integers(0, 7, (3, 4))
        yield words, lengths, np.where(np.arange(4) < lengths[:, None], words % 3, -1)


@pytest.mark.oracle
def test_a_tagger_trains_to_the_losses_of_pytorch():
    torch = pytest.importorskip("torch")
    losses = []
    for library, compile in ((weft, None), (weft, weft.compile), (torch, None)):
        model, loss_of = tagger(library)
        losses.append(train(library, filled(model, library), loss_of, tagged(6), compile)[0])
    assert losses[0] == losses[1]
    np.testing.assert_allclose(losses[0], losses[2], 1e-9)


# --- errors ---------------------------------------------------------------------------------------------------------
def test_errors_of_inputs_and_states():
    x, lstm, gru = weft.zeros(2, 5, 3), nn.LSTM(3, 4), nn.GRU(3, 4)
    for call, kind, message in (
        (lambda: lstm(weft.zeros(2, 5, 4)), RuntimeError, "must be equal to input_size. Expected 3, got 4"),
        (lambda: lstm(weft.zeros(0, 5, 3)), RuntimeError, "Expected sequence length to be larger than 0"),
        (
            lambda: lstm(x.double()),
            ValueError,
            r"does not match weight dtype \(weft.float32\). Convert input: input.to",
        ),
        (lambda: lstm(x, [weft.zeros(1, 5, 4)]), ValueError, r"must be a pair \(h_0, c_0\), got 1 tensors"),
        (
            lambda: lstm(x, (weft.zeros(5, 4), weft.zeros(5, 4))),
            RuntimeError,
            r"should also be 3-D but got \(2-D, 2-D\)",
        ),
        (
            lambda: lstm(x, (weft.zeros(1, 5, 4), weft.zeros(1, 4, 4))),
            RuntimeError,
            r"Expected hidden\[1\] size \(1, 5, 4\), got \[1, 4, 4\]",
        ),
        (lambda: gru(x, weft.zeros(1, 4, 4)), RuntimeError, r"Expected hidden size \(1, 5, 4\), got \[1, 4, 4\]"),
        (
            lambda: gru(weft.zeros(2, 3), weft.zeros(1, 1, 4)),
            RuntimeError,
            "unbatched 2-D input, hx should also be 2-D",
        ),
        (lambda: gru(weft.zeros(3)), ValueError, "GRU: Expected input to be 2D or 3D, got 1D instead"),
        (lambda: nn.GRUCell(3, 4)(weft.zeros(2, 5)), RuntimeError, "inconsistent input_size: got 5, expected 3"),
        (
            lambda: nn.RNNCell(3, 4)(weft.zeros(2, 3), weft.zeros(3, 4)),
            RuntimeError,
            "2 doesn't match hidden0 batch size 3",
        ),
        (lambda: nn.RNNCell(3, 4)(x), ValueError, "RNNCell: Expected input to be 1D or 2D, got 3D instead"),
        (lambda: nn.RNNCell(3, 4)(x[0], x), ValueError, "Expected hidden to be 1D or 2D, got 3D instead"),
        (lambda: nn.LSTMCell(3, 4)(x[0], (x, x)), ValueError, r"Expected hx\[0\] to be 1D or 2D, got 3D instead"),
        (lambda: nn.RNNCell(3, 4, nonlinearity="sin")(x[0]), RuntimeError, "Unknown nonlinearity: sin"),
    ):
        with pytest.raises(kind, match=message):
            call()


def test_errors_of_options():
    for call, kind, message in (
        (lambda: nn.GRU(3, 4, proj_size=2), ValueError, "only supported for LSTM, not RNN or GRU"),
        (lambda: nn.RNN(3, 4, nonlinearity="sin"), ValueError, "Unknown nonlinearity 'sin'"),
        (lambda: nn.LSTM(3, 4, dropout=2), ValueError, r"dropout should be a number in range \[0, 1\]"),
        (lambda: nn.LSTM(3, 4, bias=1), TypeError, "bias should be of type bool, got: int"),
        (lambda: nn.LSTM(3.0, 4), TypeError, "input_size should be of type int, got: float"),
        (lambda: nn.LSTM(3, 0), ValueError, "hidden_size must be greater than zero"),
        (lambda: nn.LSTM(3, 4, proj_size=-1), ValueError, "proj_size should be a positive integer or zero"),
        (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "proj_size has to be smaller than hidden_size"),
        (lambda: nn.RNNBase("QRNN", 3, 4), ValueError, "Unrecognized RNN mode: QRNN"),
    ):
        with pytest.raises(kind, match=message):
            call()
    with pytest.warns(UserWarning, match="non-zero dropout expects num_layers greater than 1"):
        nn.LSTM(3, 4, dropout=0.5)
    with pytest.raises(NotImplementedError, match="use RNN, LSTM or GRU"):
        nn.RNNBase("GRU", 3, 4)(weft.zeros(2, 3))


def test_parameters_by_layer_and_direction():
    layer = nn.LSTM(3, 4, num_layers=2)
    layer.flatten_parameters()
    assert [len(weights) for weights in layer.all_weights] == [4, 4]
    assert layer.all_weights[1][0] is layer.weight_ih_l1 and layer.weight_ih_l1.shape == (16, 4)
    assert layer.weight_hh_l0.abs().max().item() <= 0.5
