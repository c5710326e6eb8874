"""Padding: `pad` in all its modes, and the layers of each mode and number of dimensions."""

import numpy as np

from ..compiler.later import later
from ..compiler.ops import windows
from ..compiler.ops.table import OpError
from ..compiler.shapes import is_whole
from ..creation import plain
from ..runtime.state.tensor import tensor_of
from .module import Module

_extended, _cut = (later(f"compiler.ops.extended:{name}") for name in ("extended", "cut"))


def pad(input, pad, mode="constant", value=None):
    """Elements added around the last dimensions: pad is (left, right) of the last, then of the one before, ...

    mode "constant" adds `value` (0), "reflect" mirrors without the edge, "replicate" repeats the edge, "circular" goes
    around. Negative numbers cut.
    """
    if is_whole(pad):
        raise TypeError(
            "pad(): argument 'pad' (position 2) must be tuple of ints, not int: before and after the last dimension, "
            f"as in ({pad}, {pad}), then the one before it"
        )
    amounts = [int(n) for n in pad]
    if len(amounts) % 2:
        raise RuntimeError(f"pad: Padding length must be divisible by 2, got {amounts}")
    if len(amounts) // 2 > input.ndim:
        raise OpError(f"pad: Padding length should be less than or equal to two times the input dimension: {amounts}")
    if mode == "constant":
        return _constant(input, amounts, 0 if value is None else value)
    if mode not in _POSITIONS:
        raise NotImplementedError(f"Unrecognised padding mode {mode}; use constant, reflect, replicate or circular")
    if value not in (None, 0):
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if not len(amounts) // 2 < input.ndim <= len(amounts) // 2 + 2 or input.ndim < 2:
        raise NotImplementedError(
            f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: {amounts} of {input.shape}"
        )
    padding = _by_axis(input, amounts)
    for axis, before, after in padding:
        _check(input, axis, before, after, mode)
    if all(_keeps_enough(input.shape[axis], before, after, mode) for axis, before, after in padding):
        return _extended(input, padding=tuple(padding), mode=mode)
    for axis, before, after in padding:
        positions = _POSITIONS[mode](before, after, input.shape[axis])
        input = input.index_select(axis, tensor_of(np.asarray(positions, np.int64)))
    return input


def _keeps_enough(size, before, after, mode):
    """Whether what is put on one side is there when the other one has been cut."""
    _, kept = _cut(before, after, size)
    return kept >= (max(before, after, 1) if mode == "circular" else 1)


def constant_pad_nd(input, pad, value=0):
    """pad with a constant."""
    return _constant(input, [int(n) for n in pad], value)


def _by_axis(input, amounts):
    return [(input.ndim - 1 - k, *amounts[2 * k : 2 * k + 2]) for k in range(len(amounts) // 2)]


def _constant(input, amounts, value):
    if not any(amounts):
        return input.clone()
    # PyTorch begins with the last dimension.
    padding = tuple(zip(amounts[-2::-2], amounts[::-2]))
    return windows.constant_pad_nd(input, padding=padding, value=plain(value))


# --- positions in the input, for each mode ----------------------------------------------------------------------------
def _reflected(before, after, size):
    turned = np.abs(np.arange(-before, size + after))
    return np.where(turned >= size, 2 * (size - 1) - turned, turned)


def _replicated(before, after, size):
    return np.clip(np.arange(-before, size + after), 0, size - 1)


def _around(before, after, size):
    """What negative padding cuts is cut first."""
    first, kept = max(-before, 0), size - max(-before, 0) - max(-after, 0)
    return first + np.arange(-max(before, 0), kept + max(after, 0)) % kept


_POSITIONS = {"reflect": _reflected, "replicate": _replicated, "circular": _around}
# The most that may be added to a size.
_LIMITS = {"reflect": lambda size: size - 1, "circular": lambda size: size}


def _check(input, axis, before, after, mode):
    size = input.shape[axis]
    limited = mode in _LIMITS and max(before, after) > _LIMITS[mode](size)
    if limited or size == 0 and (before > 0 or after > 0):
        raise OpError(
            f"pad: Padding size should be less than the corresponding input dimension, but got: padding ({before}, "
            f"{after}) at dimension {axis} of input {list(input.shape)} in mode {mode!r}"
        )
    if size + before + after < 1:
        raise OpError(f"pad: ({before}, {after}) leaves nothing of dimension {axis} of input {list(input.shape)}")


# --- layers -----------------------------------------------------------------------------------------------------------
class _Padding(Module):
    """The amounts, one for all sides or two per dimension."""

    rank, mode = 1, "constant"

    def __init__(self, padding):
        super().__init__()
        self.padding = (int(padding),) * (2 * self.rank) if is_whole(padding) else tuple(padding)

    def forward(self, input):
        return pad(input, self.padding, self.mode)

    def extra_repr(self):
        return f"{self.padding}"


class _ConstantPadding(_Padding):
    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadding(_ConstantPadding):
    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


def _layer(base, name, rank, **attributes):
    doc = f"pads the last {rank} dimension(s), mode {attributes.get('mode', 'constant')!r}."
    return type(f"{name}{rank}d", (base,), {"rank": rank, "__doc__": doc, "__module__": __name__, **attributes})


ConstantPad1d, ConstantPad2d, ConstantPad3d = (_layer(_ConstantPadding, "ConstantPad", r) for r in (1, 2, 3))
ZeroPad1d, ZeroPad2d, ZeroPad3d = (_layer(_ZeroPadding, "ZeroPad", r) for r in (1, 2, 3))
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (
    _layer(_Padding, "ReflectionPad", r, mode="reflect") for r in (1, 2, 3)
)
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (
    _layer(_Padding, "ReplicationPad", r, mode="replicate") for r in (1, 2, 3)
)
CircularPad1d, CircularPad2d, CircularPad3d = (_layer(_Padding, "CircularPad", r, mode="circular") for r in (1, 2, 3))
FUNCTIONS = ["pad", "constant_pad_nd"]
LAYERS = [f"{kind}Pad{r}d" for kind in str.split("Constant Zero Reflection Replication Circular") for r in (1, 2, 3)]
