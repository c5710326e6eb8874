"""Keywords that say where and how a tensor is kept. On a CPU with row-major memory they change nothing, or are errors.

device=         the CPU, or a GPU where there is one
layout=         weft.strided
memory_format=  any: results are row-major whatever is asked for
pin_memory=     any: it is about copies to another device
"""

from .compiler.later import later
from .runtime.state.device import gpu_given, require_cpu
from .runtime.state.elsewhere import is_elsewhere

_moved = later("gpu_tensors:moved")


class layout:
    """How elements are kept: `weft.strided`, in an array with strides, or one of those of sparse tensors (sparse/)."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    @property
    def word(self):
        """As errors call it: Strided, Sparse, SparseCsr."""
        return "Sparse" if self is sparse_coo else "".join(part.capitalize() for part in self.name.split("_"))

    def __repr__(self):
        return f"weft.{self.name}"

    def __reduce__(self):
        return self.name


class memory_format(layout):
    """The order of elements in memory. Accepted everywhere, and without effect."""

    __slots__ = ()


strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc = map(
    layout, ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
)
contiguous_format, preserve_format, channels_last, channels_last_3d = map(
    memory_format, ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
)

_KEYWORDS = {"device", "layout", "memory_format", "pin_memory"}


def check_placement(function, options):
    """TypeError for a keyword the function does not have, RuntimeError for a place weft has not."""
    check_keywords(function, options, _KEYWORDS)
    require_cpu(function, options.get("device"))
    if options.get("memory_format") is not None:
        check_memory_format(function, options["memory_format"])
    if options.get("layout") not in (None, strided):
        raise RuntimeError(f"{function}: tensors are dense, got layout={options['layout']!r}; leave the layout out")


def gpu_for(function, options):
    """The GPU on which such a tensor is to be made, None for the CPU; raises what check_placement raises."""
    check_placement(function, {name: value for name, value in options.items() if name != "device"})
    return gpu_given(function, options.get("device"))


def gpu_like(function, input, options):
    """The same of a tensor like another, which is where that is if no device is given."""
    gpu = gpu_for(function, options)
    is_told = options.get("device") is not None
    return gpu if is_told or not is_elsewhere(input) else input._meta.gpu


def made_on(gpu, function, *args, requires_grad=False, **options):
    """A leaf on a GPU: a copy of what function(*args, **options) makes on the CPU."""
    made = _moved(function(*args, **options), gpu)
    if requires_grad:
        made.requires_grad = True
    return made


def made_like(function, input, full, value, dtype, requires_grad, options):
    """A leaf of one number, with the shape of a tensor that is on a GPU, or is one sample of vmap's; None if neither is
    so. `full` makes it on the CPU."""
    gpu, dtype = gpu_like(function, input, options), dtype or input.dtype
    if gpu is not None:
        return made_on(gpu, full, input.shape, value, dtype=dtype, requires_grad=requires_grad)
    if not is_elsewhere(input) or input._meta.gpu is not None:
        return None
    made = input._meta.filled(input.shape, value, dtype)
    made.requires_grad = requires_grad
    return made


def place_like(input, options):
    """Among the options of a creator, the device of a tensor that is on another than the CPU."""
    if input._data is None and is_elsewhere(input):
        options.setdefault("device", input.device)


def beside(made, input):
    """What was made on the CPU, where `input` is."""
    return made if input._data is not None or not is_elsewhere(input) else _moved(made, input._meta.gpu)


def check_memory_format(function, given):
    """TypeError for what is no order of elements in memory."""
    if not isinstance(given, memory_format):
        raise TypeError(
            f"{function}(): argument 'memory_format' must be weft.memory_format, not {type(given).__name__}"
        )


def check_keywords(function, options, known):
    """TypeError for a keyword the function does not have."""
    unknown = options.keys() - set(known)
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument {min(unknown)!r}")


PUBLIC = str.split("""
    layout memory_format strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc contiguous_format
    preserve_format channels_last channels_last_3d
""")


def moving_to(kind):
    """A method of modules that asks for another device."""

    def move(self, device=None):
        """RuntimeError: there is no such device."""
        return self.to(kind if device is None else device)

    move.__name__, move.__qualname__ = kind, f"Module.{kind}"
    return move
