"""weft.amp: PyTorch's automatic mixed precision. In an open block products are computed in bfloat16 (casting.py).

For another device than the CPU it is switched off with a warning, as PyTorch does where the device is not there.
"""

import warnings
from itertools import count
from types import ModuleType

from .blocks import Block
from .compiler.dtypes import bfloat16, float16
from .public import of_module
from .reference import document
from .runtime.state.device import device
from .runtime.state.modes import autocasting, state
from .scaling import GradScaler, remains_enabled

__getattr__, __dir__ = of_module(__name__)
__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
PUBLIC = str.split("""
    is_autocast_enabled is_autocast_cpu_enabled get_autocast_dtype get_autocast_cpu_dtype clear_autocast_cache
""")


class autocast(Block):
    """A `with` block or decorator: products are computed in `dtype` (bfloat16 by default), losses, inverses and the
    like in float32, all others in the types that the tensors have. Which does what is said in casting.py.

    enabled=False inside of another block switches that one off. Parameters stay as they are, and get gradients in their
    own type. Call backward outside of the block.
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        usual = float16 if device_type.startswith("cuda") else bfloat16
        self.device, self.fast_dtype = device_type, usual if dtype is None else dtype
        self._enabled = remains_enabled("autocast", device_type, enabled)
        if self._enabled and not self.fast_dtype.is_half:
            warnings.warn(
                f"In CPU autocast, but the target dtype is not supported. Disabling autocast.\nCPU Autocast only "
                f"supports dtype of {bfloat16!r}, {float16!r} currently, it is {self.fast_dtype!r}.",
                stacklevel=2,
            )
            self._enabled = False
        self._outside = []

    def __enter__(self):
        key = next(_numbers)
        self._outside.append((state.autocast, key))
        if device(self.device).type == "cpu" or self._enabled:
            state.autocast = self.fast_dtype if self._enabled else None
        if state.autocast is not None:
            autocasting[key] = True
        return self

    def __exit__(self, *exception):
        state.autocast, key = self._outside.pop()
        autocasting.pop(key, None)
        return False


_numbers = count()


def custom_fwd(fwd=None, *, device_type=None, cast_inputs=None):
    """Marks a Function's forward for autocast, which casts nothing here: the function itself."""
    return (lambda function: function) if fwd is None else fwd


def custom_bwd(bwd=None, *, device_type=None):
    """Marks a Function's backward for autocast: the function itself."""
    return (lambda function: function) if bwd is None else bwd


def is_autocast_available(device_type):
    """Whether blocks for this kind of device do anything: those for the CPU do."""
    return device(device_type).type == "cpu"


def is_autocast_enabled(device_type=None):
    """Whether a block is open for this kind of device (None: for a GPU, of which there is none)."""
    return device_type is not None and device(device_type).type == "cpu" and state.autocast is not None


def is_autocast_cpu_enabled():
    """Whether a block is open."""
    return state.autocast is not None


def get_autocast_dtype(device_type):
    """The type that products are computed in, or would be, on this kind of device."""
    if device(device_type).type != "cpu":
        return float16
    return bfloat16 if state.autocast is None else state.autocast


def get_autocast_cpu_dtype():
    """The type that products are computed in, or would be."""
    return get_autocast_dtype("cpu")


def clear_autocast_cache():
    """Nothing is cached."""


# --- the same per device ----------------------------------------------------------------------------------------------
def _of_device(kind):
    """PyTorch's older module weft.cuda.amp or weft.cpu.amp, whose classes take no device."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        autocast.__init__(self, kind, dtype, enabled)

    def make_scaler(self, *options, **more):
        GradScaler.__init__(self, kind, *options, **more)

    module = ModuleType(f"weft.{kind}.amp", f"weft.amp for {kind!r}, without naming it.")
    module.autocast = type("autocast", (autocast,), {"__init__": __init__})
    module.GradScaler = type("GradScaler", (GradScaler,), {"__init__": make_scaler})
    module.custom_fwd, module.custom_bwd = custom_fwd, custom_bwd
    return module


cuda_amp, cpu_amp = _of_device("cuda"), _of_device("cpu")


document("amp", __name__)
