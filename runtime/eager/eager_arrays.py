"""New arrays in native code, as state/aligned.py: new_array makes them; of the subset (docs/native.md)."""

from ...compiler.translate.kinds import I64, Address, Object
from ...compiler.translate.language import address_of, load_at, native, require
from ..state.aligned import ALIGNED_BYTES, LINE_BYTES
from .eager_words import ArrayObject, Words

_ROW_MAJOR, _WRITEABLE = 0x101, 0x400  # NumPy's flags: C_CONTIGUOUS and ALIGNED; WRITEABLE


@native()
def new_array(words: Words, dtype: Object, ndim: I64, shape: Address) -> ArrayObject:
    """An array of any contents in C order. A large one begins with a cache line: where NumPy's does not, it is let go
    of at once, which costs less than a table of how many bytes an array has."""
    null = words.null
    made = words.new_array(words.array_class, dtype, ndim, shape, null, null, 0, null)
    require(made is not None)
    if made.ndim == 0:
        return made
    n_bytes = load_at(I64, made.shape, 0) * load_at(I64, made.strides, 0)
    if n_bytes < ALIGNED_BYTES or made.data & (LINE_BYTES - 1) == 0:
        return made
    words.extent[0] = n_bytes + LINE_BYTES
    at = address_of(words.extent)
    memory = words.new_array(words.memory_class, words.byte, 1, at, null, null, 0, null)
    require(memory is not None)
    start = (memory.data + LINE_BYTES - 1) & -LINE_BYTES
    flags = _ROW_MAJOR | _WRITEABLE
    aligned = words.new_view(words.array_class, dtype, ndim, shape, null, start, flags, null)
    require(aligned is not None)
    require(words.set_base(aligned, memory) == 0)
    return aligned
