"""The functions below PyTorch's recurrent layers: weft.gru(input, hx, params, ...), weft.lstm_cell(input, hx, ...).

Parameters come as one flat list, layer by layer and direction by direction: w_ih, w_hh, then b_ih and b_hh if there are
biases, then w_hr if states are projected. A packed sequence comes as its data and its batch sizes.
"""

from ..compiler.ops import recurrent
from ..runtime.state.tensor import Tensor
from . import functional as F
from .module import Module
from .recurrent import GRU, LSTM, RNN
from .sequences import PackedSequence


def gru(input, *arguments, **keywords):
    """(output, h_n) of a GRU: gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first), or gru(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)."""
    return _run("gru", GRU, "GRU", 3, input, arguments, keywords)


def lstm(input, *arguments, **keywords):
    """(output, h_n, c_n) of an LSTM: lstm(input, (h, c), params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first), or lstm(data, batch_sizes, (h, c), params, has_biases, num_layers, dropout, train, bidirectional)."""
    output, states = _run("lstm", LSTM, "LSTM", 4, input, arguments, keywords)
    return output, *states


def rnn_tanh(input, *arguments, **keywords):
    """(output, h_n) of an RNN with tanh, from what `gru` takes."""
    return _run("rnn_tanh", RNN, "RNN_TANH", 1, input, arguments, keywords)


def rnn_relu(input, *arguments, **keywords):
    """(output, h_n) of an RNN with relu, from what `gru` takes."""
    return _run("rnn_relu", RNN, "RNN_RELU", 1, input, arguments, keywords)


_PADDED = ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
_PACKED = ("batch_sizes", *_PADDED[:-1])


def _run(name, kind, mode, gates, input, arguments, keywords):
    # In the second form both of the first operands are tensors, and a state or a pair of them follows.
    packed = "batch_sizes" in keywords or len(arguments) > 1 and _is_states(arguments[1])
    names = _PACKED if packed else _PADDED
    if len(arguments) > len(names):
        raise TypeError(f"{name}() takes {1 + len(names)} arguments, got {1 + len(arguments)}")
    given = {**dict(zip(names, arguments)), **keywords}
    if {*given} != {*names}:
        wrong = sorted({*given} ^ {*names})
        raise TypeError(f"{name}(): missing or unexpected arguments {wrong}; it takes input, {', '.join(names)}")
    sizes = given.pop("batch_sizes", None)
    hx, params = given.pop("hx"), given.pop("params")
    layer = _layer(name, kind, mode, gates, params, given, hx)
    if sizes is None:
        return layer.forward(input, hx)
    output, states = layer.forward(PackedSequence(input, sizes), hx)
    return output.data, states


def _is_states(x):
    """Whether it is what comes before the parameters: the parameters are a longer list of tensors, of two and one
    dimensions."""
    return isinstance(x, Tensor) or isinstance(x, (list, tuple)) and len(x) == 2 and all(y.ndim == 3 for y in x)


def _layer(name, kind, mode, gates, params, given, hx):
    """A layer around parameters that exist."""
    layer = kind.__new__(kind)
    Module.__init__(layer)
    n_layers, bias, both = given["num_layers"], bool(given["has_biases"]), bool(given["bidirectional"])
    n_parts = n_layers * (2 if both else 1)
    if not params or len(params) % n_parts:
        raise RuntimeError(f"{name}: got {len(params)} parameters; {n_parts} layers and directions have equally many")
    each = len(params) // n_parts
    layer.mode, layer.bias, layer.bidirectional = mode, bias, both
    layer.nonlinearity = mode[4:].lower()
    layer.num_layers, layer.dropout = n_layers, float(given["dropout"])
    layer.batch_first, layer.training = bool(given.get("batch_first", False)), bool(given["train"])
    layer.input_size, layer.hidden_size = params[0].shape[1], params[0].shape[0] // gates
    layer.proj_size = params[each - 1].shape[0] if each > (4 if bias else 2) else 0
    layer._all_weights = [[f"_{part}_{k}" for k in range(each)] for part in range(n_parts)]
    for names, first in zip(layer._all_weights, range(0, len(params), each)):
        for own, value in zip(names, params[first : first + each]):
            setattr(layer, own, value)
    return layer


# --- one step ---------------------------------------------------------------------------------------------------------
def gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """The state after one step of a GRU: (N, input), (N, hidden) -> (N, hidden)."""
    return recurrent.gru_step(F.linear(input, w_ih, b_ih), F.linear(hx, w_hh, b_hh), hx)


def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """(h, c) after one step of an LSTM; hx is such a pair."""
    h, c = hx
    return recurrent.lstm_step(F.linear(input, w_ih, b_ih) + F.linear(h, w_hh, b_hh), c)


def rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """tanh of what input and state give."""
    return _rnn_step(input, hx, w_ih, w_hh, b_ih, b_hh, False)


def rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """relu of what input and state give."""
    return _rnn_step(input, hx, w_ih, w_hh, b_ih, b_hh, True)


def _rnn_step(input, hx, w_ih, w_hh, b_ih, b_hh, is_relu):
    return recurrent.rnn_step(F.linear(input, w_ih, b_ih) + F.linear(hx, w_hh, b_hh), is_relu)
