"""weft.nn.utils.rnn: sequences of different lengths in one tensor.

    padded   (T, N, *)     a b c      every sequence a column, filled up at its end
                           a b
                           a
    packed   (rows, *)     a b c a b a      without the filling, step after step: batch_sizes 3 2 1

Packed sequences are in order of falling length; `sorted_indices` says where each was before.
"""

from collections import namedtuple
from collections.abc import Iterable

import numpy as np

from ..compiler import dtypes
from ..compiler.ops import indexing, view
from ..compiler.ops.comparison import where
from ..compiler.ops.table import OpError
from ..creation import full, tensor
from ..public import of_module
from ..runtime.state.tensor import Tensor
from ..shaping import cat, transpose

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]
__getattr__, __dir__ = of_module("weft.nn.utils.rnn")


# --- padded ---------------------------------------------------------------------------------------------------------
def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors (L_k, *) as one, (longest, number, *), filled up with `padding_value`; batch_first: (number, longest, *).

    ValueError for a padding_side that is neither "right" nor "left", RuntimeError for none at all.
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = list(sequences)
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: expected padding_side to be one of left or right, but got {padding_side}")
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    longest = max(x.shape[0] for x in sequences)
    batch = view.stack(*(_padded(x, longest, padding_value, padding_side) for x in sequences), axis=0)
    return batch if batch_first else transpose(batch, 0, 1)


def _padded(x, length, value, side):
    missing = length - x.shape[0]
    if not missing:
        return x
    fill = full((missing, *x.shape[1:]), value, dtype=x.dtype)
    return cat([x, fill] if side == "right" else [fill, x], 0)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The sequences that pad_sequence joined, as views. `lengths` is a tensor or a list of their lengths."""
    rows = padded_sequences if batch_first else transpose(padded_sequences, 0, 1)
    lengths = [int(length) for length in lengths]
    if len(lengths) != rows.shape[0]:
        raise OpError(f"unpad_sequence: {len(lengths)} lengths for {rows.shape[0]} sequences")
    return [rows[k, :length] for k, length in enumerate(lengths)]


# --- packed ---------------------------------------------------------------------------------------------------------
_Packed = namedtuple("PackedSequence_", "data batch_sizes sorted_indices unsorted_indices", defaults=(None, None))


class PackedSequence(_Packed):
    """Sequences step after step: data (rows, *), and how many sequences each step has.

    Made by pack_padded_sequence and pack_sequence. sorted_indices: the sequences' positions before they were sorted, or
    None; unsorted_indices is its inverse.
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """The same with data.to(...); self if that changes nothing."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else type(self)(data, *self[1:])

    def cpu(self, *args, **kwargs):
        return self.to(self.data.cpu(*args, **kwargs).dtype)

    def cuda(self, *args, **kwargs):
        return self.to(self.data.cuda(*args, **kwargs).dtype)

    def pin_memory(self):
        return self

    def double(self):
        return self.to(dtypes.float64)

    def float(self):
        return self.to(dtypes.float32)

    def long(self):
        return self.to(dtypes.int64)

    def int(self):
        return self.to(dtypes.int32)

    def half(self):
        return self.to(dtypes.float16)

    def short(self):
        return self.to(dtypes.int16)

    def char(self):
        return self.to(dtypes.int8)

    def byte(self):
        return self.to(dtypes.uint8)

    def is_pinned(self):
        return self.data.is_pinned()

    @property
    def is_cuda(self):
        return False


def invert_permutation(permutation):
    """The permutation that undoes an int64 permutation; None of None."""
    return None if permutation is None else tensor(np.argsort(permutation.array))


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """(T, N, *) packed, or (N, T, *) with batch_first. `lengths` is a list or a tensor of the sequences' lengths.

    With enforce_sorted they must be in falling order, else the result knows the order they had. RuntimeError if they
    are not, if one is 0, or if there is not one for every sequence.
    """
    counts = np.asarray(lengths.array if isinstance(lengths, Tensor) else list(lengths), np.int64)
    columns = transpose(input, 0, 1) if batch_first else input
    _check_lengths(columns, counts)
    order = None
    if not enforce_sorted:
        order = np.argsort(-counts, kind="stable")
        counts = counts[order]
    elif (np.diff(counts) > 0).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
            "do not need ONNX exportability."
        )
    return _packed(columns, counts, order)


def _check_lengths(columns, counts):
    if counts.shape != columns.shape[1:2]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {counts.size} (batch_size={columns.shape[1]})"
        )
    if counts.size and counts.min() <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if counts.size and counts.max() > columns.shape[0]:
        raise RuntimeError(
            f"pack_padded_sequence: Expected all of `lengths` to be at most {columns.shape[0]}, which is how many "
            f"steps input has, but got {counts.max()}"
        )


def _packed(columns, counts, order):
    """The rows of falling lengths `counts`, whose sequences were in `order`."""
    step, place = np.nonzero(np.arange(counts.max(initial=0))[:, None] < counts)
    sizes = np.bincount(step, minlength=0)
    source = place if order is None else order[place]
    rows = columns.reshape((-1, *columns.shape[2:]))
    data = indexing.index_select(rows, tensor(step * columns.shape[1] + source), axis=0)
    return PackedSequence(data, tensor(sizes), None if order is None else tensor(order))


def pack_sequence(sequences, enforce_sorted=True):
    """Tensors (L_k, *), packed."""
    sequences = list(sequences)
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """(T, N, *), or (N, T, *) with batch_first, of a PackedSequence, in the order before packing; and the lengths.

    total_length: T; by default the length of the longest.
    """
    sizes = sequence.batch_sizes.array
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(sizes)}"
        )
    lengths = (np.arange(sizes[0])[:, None] < sizes).sum(1)
    order = None if sequence.unsorted_indices is None else sequence.unsorted_indices.array
    padded = padded_steps(sequence.data, sizes, steps, padding_value, order)
    return transpose(padded, 0, 1) if batch_first else padded, tensor(lengths if order is None else lengths[order])


def padded_steps(data, sizes, steps, fill=0.0, order=None):
    """(steps, N, *) of packed rows, whose columns are taken in this order."""
    positions, inside = _positions(sizes, steps)
    if order is not None:
        positions, inside = positions[:, order], inside[:, order]
    rows = indexing.index_select(data, tensor(positions.reshape(-1)), axis=0)
    rows = rows.reshape((*positions.shape, *data.shape[1:]))
    if inside.all():
        return rows
    if not data.dtype.is_differentiable:
        fill = bool(fill) if data.dtype is dtypes.bool_ else int(fill)  # which keeps the type
    return where(tensor(inside.reshape((*inside.shape, *(1 for _ in data.shape[1:])))), rows, fill)


def _positions(sizes, steps):
    """The row of every step and sequence (row 0 where there is none), and whether there is one: (steps, N)."""
    sizes = np.concatenate([sizes, np.zeros(steps - len(sizes), sizes.dtype)])
    column = np.arange(sizes[0] if len(sizes) else 0)
    inside = column < sizes[:, None]
    starts = np.cumsum(sizes) - sizes
    return np.where(inside, starts[:, None] + column, 0), inside


def steps_inside(sizes):
    """Which sequences each step has: bool (T, N)."""
    return _positions(sizes, len(sizes))[1]


def packed_steps(padded, sizes):
    """What padded_steps undoes: the rows of (T, N, *) that belong to sequences."""
    step, place = np.nonzero(steps_inside(sizes))
    rows = padded.reshape((-1, *padded.shape[2:]))
    return indexing.index_select(rows, tensor(step * padded.shape[1] + place), axis=0)


def unpack_sequence(packed_sequences):
    """The sequences of a PackedSequence, in the order before packing."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
