"""Functions that are others under another name: copies of what views show, older spellings, given strides."""

import math

import numpy as np

from . import arranging, shaping
from .compiler.dtypes import dtype_of
from .compiler.ops import view
from .compiler.storage import convert
from .composed import diagonal, select
from .creation import check_spacing, full_like, linspace, tensor, zeros
from .functions import nonzero
from .placement import check_placement
from .runtime.state.marks import of_numbers
from .runtime.state.tensor import Tensor, tensor_of
from .shaping import flatten, permute, reshape
from .spacing import whole_spacing


# --- copies of views --------------------------------------------------------------------------------------------------
def _copied(name, function):
    def copy(input, *args, **kwargs):
        result = function(input, *args, **kwargs)
        return tuple(map(view.clone, result)) if isinstance(result, tuple) else view.clone(result)

    copy.__name__ = copy.__qualname__ = f"{name}_copy"
    copy.__doc__ = f"{name}, as a copy."
    copy.__wrapped__ = function  # whose signature it has
    return copy


_VIEWS = {
    **{name: getattr(shaping, name) for name in str.split("""
        expand narrow permute squeeze unsqueeze transpose t unbind split
    """)},
    **{name: getattr(arranging, name) for name in str.split("as_strided split_with_sizes unfold")},
    "diagonal": diagonal,
    "select": select,
    "view": shaping.reshape,
    "alias": lambda input: input,
    "detach": lambda input: input.detach(),
}  # fmt: skip
COPIES = {f"{name}_copy": _copied(name, function) for name, function in _VIEWS.items()}
globals().update(COPIES)


def _slice(input, dim=0, start=None, end=None, step=1):
    return input[(*(slice(None),) * (dim % input.ndim), slice(start, end, step))]


slice_copy = _copied("slice", _slice)
# The parts can be changed in place, which those of `split` cannot be while gradients are recorded.
unsafe_chunk, unsafe_split = _copied("chunk", shaping.chunk), COPIES["split_copy"]
unsafe_split_with_sizes = COPIES["split_with_sizes_copy"]


def fill(input, value):
    """A tensor like input filled with a number, or with a 0-d tensor's element."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"fill only supports 0-dimension value tensor but got shape {value.shape}")
        return view.clone(shaping.expand(value.to(input.dtype), input.shape))
    return full_like(input, value)


def detach(input):
    """The same values, sharing memory, cut from the graph."""
    return input.detach()


def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of input with src written to the elements that as_strided shows."""
    numbers = reshape(tensor_of(np.arange(input.numel())), input.shape)
    positions = flatten(arranging.as_strided(numbers, size, stride, storage_offset))
    return reshape(flatten(input).index_put((positions,), flatten(src).to(input.dtype)), input.shape)


def adjoint(input):
    """The last two dimensions exchanged, conjugated."""
    return input.mH


# --- tensors from sizes -----------------------------------------------------------------------------------------------
def logspace(start, end, steps, base=10.0, *, dtype=None, requires_grad=False, **placement):
    """base to the powers that linspace(start, end, steps) gives."""
    check_placement("logspace", placement)
    start, end, steps = check_spacing("logspace", start, end, steps)
    dtype = None if dtype is None else dtype_of(dtype)
    if dtype is not None and dtype.category == 1:
        powers = float(base) ** (np.full(1, start) if steps == 1 else whole_spacing(start, end, steps, dtype))
        return tensor_of(convert(powers, dtype)).requires_grad_(requires_grad)
    wide = linspace(start, end, steps, dtype=tensor(0.0).double().dtype)
    made = (float(base) ** wide).to(dtype or tensor(0.0).dtype)
    return made.requires_grad_(requires_grad)


of_numbers(logspace)


def scalar_tensor(s, *, dtype=None, requires_grad=False, **placement):
    """A 0-d tensor, of the default floating type."""
    check_placement("scalar_tensor", placement)
    return tensor(s, dtype=dtype or tensor(0.0).dtype, requires_grad=requires_grad)


def empty_strided(size, stride, *, dtype=None, requires_grad=False, **placement):
    """Zeros with the given strides."""
    check_placement("empty_strided", placement)
    memory = zeros(1 + sum((d - 1) * s for d, s in zip(size, stride)) if math.prod(size) else 0, dtype=dtype)
    array = memory.array
    steps = tuple(s * array.itemsize for s in stride)
    made = tensor_of(np.lib.stride_tricks.as_strided(array, size, steps))
    return made.requires_grad_(requires_grad)


def empty_permuted(size, physical_layout, *, dtype=None, requires_grad=False, **placement):
    """Zeros whose dimensions lie in memory in the given order."""
    check_placement("empty_permuted", placement)
    if sorted(physical_layout) != list(range(len(size))):
        raise RuntimeError(f"empty_permuted: the layout {physical_layout} is not an order of {len(size)} dimensions")
    made = permute(zeros([size[d] for d in physical_layout], dtype=dtype), list(np.argsort(physical_layout)))
    return made.requires_grad_(requires_grad)


def new_empty_strided(input, size, stride, *, dtype=None, **placement):
    """Zeros with the given strides, of the tensor's type."""
    check_placement("new_empty_strided", placement)
    return empty_strided(size, stride, dtype=dtype or input.dtype)


def nonzero_static(input, *, size, fill_value=-1):
    """`size` positions of elements that are not zero, the missing ones fill_value."""
    found = nonzero(input).array[:size]
    made = np.full((size, input.ndim), fill_value, np.int64)
    made[: len(found)] = found
    return tensor_of(made)


METHODS = str.split("""
    unsafe_chunk unsafe_split unsafe_split_with_sizes as_strided_scatter new_empty_strided nonzero_static narrow_copy
""")
PUBLIC = [
    *COPIES,
    *str.split("""
        slice_copy unsafe_chunk unsafe_split unsafe_split_with_sizes fill detach as_strided_scatter adjoint logspace
        scalar_tensor empty_strided empty_permuted nonzero_static
    """),
]
