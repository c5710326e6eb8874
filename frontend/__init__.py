"""weft: PyTorch-style autograd on NumPy whose decorator compiles.

    import weft

    @weft.compile
    def step(x, y): ...

Start reading in docs/architecture.md.
"""

from math import e, inf, nan, pi

from . import inplace, methods
from .compiler.dtypes import DType as dtype
from .compiler.dtypes import bool_ as bool
from .compiler.dtypes import float32, float64, int32, int64
from .compiler.dtypes import promote as promote_types
from .families import FAMILIES as _FAMILIES
from .runtime.modes import is_grad_enabled, state
from .runtime.random import Generator, default_generator, manual_seed
from .runtime.tensor import Tensor
from .runtime.threads import get_num_threads, set_num_threads

for _module in _FAMILIES:
    globals().update({name: getattr(_module, name) for name in _module.PUBLIC})

from . import autograd, linalg, nn, optim, special, utils  # noqa: E402

for _name in nn.TOP_LEVEL:
    globals()[_name] = getattr(nn.functional, _name)
for _name in inplace.FUNCTIONS:
    globals()[f"{_name}_"] = getattr(Tensor, f"{_name}_")
from .autograd import enable_grad, no_grad, set_grad_enabled  # noqa: E402
from .compiled import compile  # noqa: E402
from .printing import set_printoptions  # noqa: E402
from .runtime.cache import clear_cache  # noqa: E402
from .serialization import load, save  # noqa: E402

__version__ = "0.1.0"
float, double, long, int = float32, float64, int64, int32


def get_default_dtype():
    """The type of floats that come without one: float32 unless set."""
    return state.default_dtype


def set_default_dtype(dtype):
    """weft.float32 or weft.float64, for this thread."""
    if not dtype.is_floating_point:
        raise TypeError(f"set_default_dtype: only floating-point types are supported as the default type, got {dtype}")
    state.default_dtype = dtype
