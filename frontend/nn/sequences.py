"""weft.nn.utils.rnn: sequences of different lengths in one tensor."""

from ..absent import attribute_of
from ..compiler.ops import view
from ..compiler.ops.table import OpError
from ..creation import full
from ..shaping import cat, transpose

__all__ = ["pad_sequence", "unpad_sequence"]
__getattr__ = attribute_of("weft.nn.utils.rnn")


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors (L_k, *) as one, (longest, number, *), filled up with `padding_value`; batch_first: (number, longest, *).

    ValueError for a padding_side that is neither "right" nor "left", RuntimeError for none at all.
    """
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
