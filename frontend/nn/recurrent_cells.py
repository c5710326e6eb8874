"""One step of recurrent layers: RNNCell, LSTMCell and GRUCell."""

import math

from ..compiler.ops import recurrent
from ..creation import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

LAYERS = ("GRUCell", "LSTMCell", "RNNCell", "RNNCellBase")


class RNNCellBase(Module):
    """weight_ih (chunks * hidden_size, input_size), weight_hh, bias_ih, bias_hh: uniform in +-1/sqrt(hidden_size)."""

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        kind, size = {"device": device, "dtype": dtype}, num_chunks * hidden_size
        self.weight_ih = Parameter(empty(size, input_size, **kind))
        self.weight_hh = Parameter(empty(size, hidden_size, **kind))
        self.register_parameter("bias_ih", Parameter(empty(size, **kind)) if bias else None)
        self.register_parameter("bias_hh", Parameter(empty(size, **kind)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw all parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        kind = getattr(self, "nonlinearity", "tanh")
        return text if kind == "tanh" else f"{text}, nonlinearity={kind}"

    def _products(self, input, h):
        """What inputs and states give, both with their bias."""
        return F.linear(input, self.weight_ih, self.bias_ih), F.linear(h, self.weight_hh, self.bias_hh)

    def _batch(self, input, *states):
        """The input and the states (zeros if there are none) with a dimension of sequences."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        rows = input if input.ndim == 2 else input.unsqueeze(0)
        _check_width(name, "input", rows, "input_size", self.input_size)
        batch = []
        for h in states:
            if h is None:
                h = input.new_zeros(rows.shape[0], self.hidden_size)
            elif input.ndim == 1:
                h = h.unsqueeze(0)
            _check_width(name, "hidden0", h, "hidden_size", self.hidden_size)
            if h.shape[0] != rows.shape[0]:
                raise RuntimeError(
                    f"{name}: Input batch size {rows.shape[0]} doesn't match hidden0 batch size {h.shape[0]}"
                )
            batch.append(h)
        return rows, *batch


def _check_width(name, what, x, attribute, size):
    if x.shape[-1] != size:
        raise RuntimeError(f"{name}: {what} has inconsistent {attribute}: got {x.shape[-1]}, expected {size}")


def _check_hidden(name, hx):
    if hx is not None and hx.ndim not in (1, 2):
        raise ValueError(f"{name}: Expected hidden to be 1D or 2D, got {hx.ndim}D instead")


class RNNCell(RNNCellBase):
    """tanh (or relu) of W_ih x + b_ih + W_hh h + b_hh: (N, input_size), (N, hidden_size) -> (N, hidden_size)."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        _check_hidden("RNNCell", hx)
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        x, h = self._products(*self._batch(input, hx))
        result = recurrent.rnn_step(x + h, self.nonlinearity == "relu")
        return result if input.ndim == 2 else result.squeeze(0)


class LSTMCell(RNNCellBase):
    """(h, c) after one step of an LSTM: (N, input_size), two (N, hidden_size) -> two (N, hidden_size)."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        for index, state in enumerate(hx or ()):
            if state.ndim not in (1, 2):
                raise ValueError(f"LSTMCell: Expected hx[{index}] to be 1D or 2D, got {state.ndim}D instead")
        rows, h, c = self._batch(input, *((None, None) if hx is None else hx))
        x, product = self._products(rows, h)
        states = recurrent.lstm_step(x + product, c)
        return states if input.ndim == 2 else tuple(s.squeeze(0) for s in states)


class GRUCell(RNNCellBase):
    """One step of a GRU: (N, input_size), (N, hidden_size) -> (N, hidden_size)."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        _check_hidden("GRUCell", hx)
        rows, h = self._batch(input, hx)
        result = recurrent.gru_step(*self._products(rows, h), h)
        return result if input.ndim == 2 else result.squeeze(0)
