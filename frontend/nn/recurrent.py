"""Recurrent layers: RNN, LSTM and GRU, over all steps of padded or packed sequences.

A layer multiplies the inputs of all steps by its weights at once; compiler/ops/recurrent.py goes through the steps.
"""

import math
import numbers
import warnings

from ..casting import in_wide, lowered
from ..compiler.ops import recurrent
from ..compiler.ops.comparison import where
from ..compiler.ops.view import stack
from ..creation import empty, tensor
from ..runtime.state.modes import state as modes
from ..shaping import cat, transpose
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter
from .sequences import PackedSequence, packed_steps, padded_steps, steps_inside

LAYERS = ("GRU", "LSTM", "RNN", "RNNBase")

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
# What is shown, and under what condition, in PyTorch's order.
_SHOWN = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}


class RNNBase(Module):
    """The parameters of all layers and directions, and how sequences go through them.

    weight_ih_l0 (gates * hidden_size, input_size), weight_hh_l0, bias_ih_l0, bias_hh_l0, with proj_size weight_hr_l0
    too; _l1 and so on for further layers, whose input are the states of the one below, and _reverse for the direction
    from the last step to the first. All start uniform in +-1 / sqrt(hidden_size).
    """

    def __init__(
        self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
        bidirectional=False, proj_size=0, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        _check_options(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._all_weights = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: self._n_directions]:
                shapes = self._shapes(input_size if layer == 0 else self._state_size * self._n_directions)
                self._all_weights.append([f"{name}_l{layer}{suffix}" for name in shapes])
                for name, shape in zip(self._all_weights[-1], shapes.values()):
                    self.register_parameter(name, Parameter(empty(*shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def _shapes(self, input_size):
        """{name: shape} of the parameters of one layer and direction."""
        gates = _GATES[self.mode] * self.hidden_size
        shapes = {"weight_ih": (gates, input_size), "weight_hh": (gates, self._state_size)}
        if self.bias:
            shapes.update(bias_ih=(gates,), bias_hh=(gates,))
        if self.proj_size:
            shapes["weight_hr"] = self.proj_size, self.hidden_size
        return shapes

    @property
    def _n_directions(self):
        return 2 if self.bidirectional else 1

    @property
    def _state_size(self):
        return self.proj_size or self.hidden_size

    @property
    def all_weights(self):
        """The parameters, a list for every layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self):
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self):
        return [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights):
        for name, weight in zip(self._flat_weights_names, weights):
            if getattr(self, name, None) is not weight:
                setattr(self, name, weight)

    def flatten_parameters(self):
        """Nothing: it is about memory on other devices."""

    _init_flat_weights = _update_flat_weights = flatten_parameters

    def reset_parameters(self):
        """Draw all parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self):
        shown = [f"{name}={getattr(self, name)}" for name, usual in _SHOWN.items() if getattr(self, name) != usual]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *shown])

    # --- forward ----------------------------------------------------------------------------------------------------
    def forward(self, input, hx=None):
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        self._check_dimensions(input, hx)
        axis, batched = 0 if self.batch_first else 1, input.ndim == 3
        x = input if batched else input.unsqueeze(axis)
        states = None if hx is None else self._states(hx)
        if states and not batched:
            states = [s.unsqueeze(1) for s in states]
        self._check_input(x, 3)
        steps = transpose(x, 0, 1) if self.batch_first else x
        output, states = self._layers(steps, self._checked(states, steps), None)
        if self.batch_first:
            output = transpose(output, 0, 1)
        if not batched:
            output, states = output.squeeze(axis), [s.squeeze(1) for s in states]
        return output, self._hidden(states)

    def _forward_packed(self, packed, hx):
        self._check_input(packed.data, 2)
        sizes = packed.batch_sizes.array
        steps = padded_steps(packed.data, sizes, len(sizes))
        states = None if hx is None else self._states(hx)
        if states and packed.sorted_indices is not None:
            states = [s.index_select(1, packed.sorted_indices) for s in states]
        inside = steps_inside(sizes)
        mask = None if inside.all() else tensor(inside[:, :, None])
        output, states = self._layers(steps, self._checked(states, steps), mask)
        if packed.unsorted_indices is not None:
            states = [s.index_select(1, packed.unsorted_indices) for s in states]
        return packed._replace(data=packed_steps(output, sizes)), self._hidden(states)

    def _layers(self, x, states, mask):
        """The states of the last layer in all steps (T, N, directions * H), and the last ones of every layer."""
        n, last = self._n_directions, []
        for layer in range(self.num_layers):
            outputs = []
            for k in range(n):
                weights = [getattr(self, name) for name in self._all_weights[layer * n + k]]
                begin = [s[layer * n + k] for s in states]
                output, *end = self._direction(x, begin, weights, () if mask is None else (mask,), k == 1)
                outputs.append(output)
                last.append(end)
            x = outputs[0] if n == 1 else cat(outputs, 2)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, [stack(*ends, axis=0) for ends in zip(*last)]

    def _direction(self, x, states, weights, mask, reverse):
        """(the states of all steps, the last of every kind of state) of one layer in one direction."""
        raise NotImplementedError(f"{type(self).__name__} has no steps: use RNN, LSTM or GRU")

    def _states(self, hx):
        return [hx]

    def _hidden(self, states):
        return states[0]

    # --- checks -----------------------------------------------------------------------------------------------------
    def _check_dimensions(self, input, hx):
        if input.ndim not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        if hx is not None and hx.ndim != input.ndim:
            kind = "batched 3-D" if input.ndim == 3 else "unbatched 2-D"
            raise RuntimeError(
                f"For {kind} input, hx should also be {input.ndim}-D but got {hx.ndim}-D tensor; it is (layers * "
                "directions, batch, hidden_size), without a batch where the input has none"
            )

    def _check_input(self, x, ndim):
        kind = self._flat_weights[0].dtype
        if x.dtype is not kind and modes.autocast is None:
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({kind}). "
                f"Convert input: input.to({kind}), or convert model: model.to({x.dtype})"
            )
        if x.ndim != ndim:
            raise RuntimeError(f"input must have {ndim} dimensions, got {x.ndim}")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )

    def _checked(self, states, steps):
        """The states before the first step, which are zeros by default, of the shapes they must have."""
        shapes = self._state_shapes(steps.shape[1])
        if states is None:
            return [steps.new_zeros(*shape) for shape in shapes]
        for k, (state, shape) in enumerate(zip(states, shapes)):
            if state.shape != shape:
                name = "hidden" if len(shapes) == 1 else f"hidden[{k}]"
                raise RuntimeError(f"Expected {name} size {tuple(shape)}, got {list(state.shape)}")
        return states

    def _state_shapes(self, n_sequences):
        return [(self.num_layers * self._n_directions, n_sequences, self.hidden_size)]

    # PyTorch's names of these, for inputs that have a batch, or are packed with these batch sizes.
    def check_input(self, input, batch_sizes):
        """RuntimeError unless input has the right dimensions and the size that the layer takes."""
        self._check_input(input, 3 if batch_sizes is None else 2)

    def get_expected_hidden_size(self, input, batch_sizes):
        """The shape of the state before the first step."""
        return tuple(self._state_shapes(self._n_sequences(input, batch_sizes))[0])

    def check_hidden_size(self, hx, expected_hidden_size, msg="Expected hidden size {}, got {}"):
        """RuntimeError unless the state has this shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(tuple(expected_hidden_size), list(hx.shape)))

    def check_forward_args(self, input, hidden, batch_sizes):
        """RuntimeError unless input and state fit together."""
        self.check_input(input, batch_sizes)
        states, shapes = self._states(hidden), self._state_shapes(self._n_sequences(input, batch_sizes))
        for k, (state, shape) in enumerate(zip(states, shapes)):
            name = "hidden" if len(shapes) == 1 else f"hidden[{k}]"
            self.check_hidden_size(state, shape, f"Expected {name} size {{}}, got {{}}")

    def permute_hidden(self, hx, permutation):
        """The state with its sequences in another order."""
        if permutation is None:
            return hx
        return self._hidden([s.index_select(1, permutation) for s in self._states(hx)])

    def _n_sequences(self, input, batch_sizes):
        return input.shape[0 if self.batch_first else 1] if batch_sizes is None else int(batch_sizes[0])


def _check_options(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size):
    if mode not in _GATES:
        raise ValueError("Unrecognized RNN mode: " + mode)
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    for name, value in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(value, int):
            raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


def _refuse_projection(options):
    if "proj_size" in options:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


def _last(output, reverse):
    return output[0] if reverse else output[-1]


class RNN(RNNBase):
    """h = tanh (or relu) of W_ih x + b_ih + W_hh h + b_hh, step after step (Elman 1990).

    (T, N, input_size) -> (T, N, directions * hidden_size) and the last states (layers * directions, N, hidden_size).
    With batch_first inputs and outputs are (N, T, *); N may be missing. A PackedSequence gives one.
    """

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", *args, **kwargs):
        _refuse_projection(kwargs)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity

    @in_wide
    def _direction(self, x, states, weights, mask, reverse):
        products = F.linear(x, weights[0], _both(weights))
        output = recurrent.rnn(
            products, *states, weights[1], *mask, reverse=reverse, nonlinearity=self.mode[4:].lower()
        )
        return output, _last(output, reverse)


def _both(weights):
    """The sum of both biases, of input and state; None without."""
    return weights[2] + weights[3] if len(weights) > 3 else None


class LSTM(RNNBase):
    """i, f, o = sigmoid and g = tanh of W_ih x + b_ih + W_hh h + b_hh; c = f c + i g; h = o tanh(c) (Hochreiter and
    Schmidhuber 1997; Gers et al. 2000).

    (T, N, input_size) -> (T, N, directions * hidden_size) and (h, c) after the last step, each (layers * directions,
    N, hidden_size). With batch_first inputs and outputs are (N, T, *); N may be missing. A PackedSequence gives one.
    proj_size: h is W_hr h, of that size (Sak et al., arXiv 1402.1128).
    """

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def _direction(self, x, states, weights, mask, reverse):
        x, *states = lowered(x, *states)
        weights = lowered(*weights)
        if self.proj_size:
            return _projected_steps(x, *states, weights, mask, reverse)
        rows = recurrent.lstm(F.linear(x, weights[0], _both(weights)), *states, weights[1], *mask, reverse=reverse)
        output = rows[: x.shape[0]]
        return output, _last(output, reverse), rows[x.shape[0]]

    def _states(self, hx):
        if len(hx) != 2:
            raise ValueError(f"LSTM: hx must be a pair (h_0, c_0), got {len(hx)} tensors")
        return list(hx)

    def _hidden(self, states):
        return tuple(states)

    def _state_shapes(self, n_sequences):
        n = self.num_layers * self._n_directions
        return [(n, n_sequences, self._state_size), (n, n_sequences, self.hidden_size)]

    def get_expected_cell_size(self, input, batch_sizes):
        """The shape of the cells' state before the first step."""
        return tuple(self._state_shapes(self._n_sequences(input, batch_sizes))[1])

    def _check_dimensions(self, input, hx):
        super()._check_dimensions(input, None)
        if hx is not None and any(s.ndim != input.ndim for s in self._states(hx)):
            kind = "batched 3-D" if input.ndim == 3 else "unbatched 2-D"
            raise RuntimeError(
                f"For {kind} input, hx and cx should also be {input.ndim}-D but got ({hx[0].ndim}-D, {hx[1].ndim}-D) "
                "tensors"
            )


def _projected_steps(x, h, c, weights, mask, reverse):
    products = F.linear(x, weights[0], weights[2] + weights[3] if len(weights) == 5 else None)
    states = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        new, after = recurrent.lstm_step(products[t] + F.linear(h, weights[1]), c)
        new = F.linear(new, weights[-1])
        h, c = (where(mask[0][t], new, h), where(mask[0][t], after, c)) if mask else (new, after)
        states[t] = h
    return stack(*states, axis=0), h, c


class GRU(RNNBase):
    """r, z = sigmoid of W_ih x + b_ih + W_hh h + b_hh; n = tanh(W_in x + b_in + r (W_hn h + b_hn)); h = n + z (h - n)
    (Cho et al., arXiv 1406.1078).

    (T, N, input_size) -> (T, N, directions * hidden_size) and the last states (layers * directions, N, hidden_size).
    With batch_first inputs and outputs are (N, T, *); N may be missing. A PackedSequence gives one.
    """

    def __init__(self, *args, **kwargs):
        _refuse_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)

    @in_wide
    def _direction(self, x, states, weights, mask, reverse):
        size = self.hidden_size
        if self.bias:
            # The gates add up both biases; the third part of the second is multiplied by a gate.
            of_input, of_state = weights[2:]
            bias, inner = cat([of_input[: 2 * size] + of_state[: 2 * size], of_input[2 * size :]]), of_state[2 * size :]
        else:
            bias, inner = None, x.new_zeros(size)
        output = recurrent.gru(F.linear(x, weights[0], bias), *states, weights[1], inner, *mask, reverse=reverse)
        return output, _last(output, reverse)
