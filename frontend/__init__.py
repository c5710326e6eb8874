"""weft: PyTorch-style autograd on NumPy whose decorator compiles.

    import weft

    @weft.compile
    def step(x, y): ...

Start reading in docs/architecture.md.
"""

from math import e, inf, nan, pi

from .uncollected import uncollected as _uncollected

with _uncollected():
    from . import methods  # most of all comes with it

from . import absent, attached, inplace, public
from .compiler.dtypes import DType as dtype
from .compiler.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from .compiler.dtypes import bool_ as bool
from .compiler.dtypes import dtype_of as _dtype_of
from .compiler.ops.table import OpError, OutOfRange
from .families import FAMILIES as _FAMILIES
from .kinds import put_doors as _put_doors
from .later_families import TAKING_OUT as _TAKING_OUT
from .numpy_words import understanding as _understanding
from .out import taking_out as _taking_out
from .paths import FAMILY_OF_FUNCTION as _COME_LATER
from .runtime.eager.node import BaseNode as _BaseNode
from .runtime.eager.node import Node as _Node
from .runtime.state.device import device
from .runtime.state.marks import remember_methods as _remember_methods
from .runtime.state.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .runtime.state.modes import set_default_dtype as _set_default_dtype
from .runtime.state.modes import state as _state
from .runtime.state.random import Generator, default_generator, manual_seed
from .runtime.state.size import Size
from .runtime.state.tensor import Tensor
from .spelled import FORMS as _FORMS

globals().update(_FORMS[""])
for _module in _FAMILIES:
    globals().update({name: _understanding(name, getattr(_module, name)) for name in _module.PUBLIC})
for _name in _TAKING_OUT:
    if _name in globals():
        globals()[_name] = _taking_out(_name, globals()[_name])
for _module in _FAMILIES:
    _put_doors("", globals(), _module.PUBLIC)

from . import compiler

for _name in {*(f"{_name}_" for _name in inplace.FUNCTIONS), *(_name for _name in _FORMS[""] if _name[-1] == "_")}:
    if _name not in _COME_LATER:
        globals()[_name] = getattr(Tensor, _name)
from .importing import as_torch
from .random import fork_rng, get_rng_state, initial_seed, seed, set_rng_state
from .version import __version__, weft_version

float, double, half, long, int, short = float32, float64, float16, int64, int32, int16
cfloat, cdouble = complex64, complex128
newaxis = None

# Where programs find them, and where PyTorch's are: people read it in tracebacks and `type(x)`, and pickle looks there.
for _kind in (Generator, OpError, OutOfRange, Size, Tensor, device, dtype):
    _kind.__module__ = __name__
dtype.__name__ = dtype.__qualname__ = "dtype"
absent.mark_absent(Tensor, "Tensor")
for _kind, _path in (
    (Generator, "Generator"),
    (dtype, "dtype"),
    (_BaseNode, "autograd.graph.Node"),
    (_Node, "autograd.graph.Node"),
):
    public.show_public_names(_kind, _path)
__getattr__, __dir__ = public.of_module(__name__)
compiler.__getattr__, compiler.__dir__ = public.of_module("weft.compiler")


def get_default_dtype():
    """The type of floats that come without one: float32 unless set."""
    return _state.default_dtype


def set_default_dtype(d):
    """weft.float32 or weft.float64, for this thread."""
    if not getattr(d, "is_floating_point", False):
        raise TypeError(f"set_default_dtype: only floating-point types are supported as the default type, got {d}")
    _set_default_dtype(_dtype_of(d))


attached.attach_to_loaded()
absent.forget()
_remember_methods(Tensor)
