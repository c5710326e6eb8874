"""PyTorch's modules of devices, for programs that ask what there is: `weft.cuda.is_available()` is False.

What only asks, counts or seeds answers as PyTorch does on a machine with a CPU alone; what would need the device is a
RuntimeError. Switches of libraries, such as `backends.cudnn.benchmark`, can be set and change nothing.
"""

from contextlib import contextmanager
from types import ModuleType

from .absent import attribute_of
from .runtime.code.threads import get_num_threads
from .runtime.state.random import manual_seed


def _module(name, **contents):
    module = ModuleType(f"weft.{name}", f"weft.{name}: what PyTorch's module says where there is only a CPU.")
    module.__dict__.update(contents, __getattr__=attribute_of(module.__name__))
    return module


def _answer(value):
    """A function that says this, whatever it is asked."""
    return lambda *arguments, **options: value


def _nothing(*arguments, **options):
    """Nothing to do: there is no such device."""


def _need(kind, name):
    def function(*arguments, **options):
        raise RuntimeError(
            f"{kind}.{name}: weft computes on the CPU, there is no {kind} device; ask weft.{kind}.is_available() first"
        )

    return function


class _Unavailable:
    """A class of a device that is not there: a stream, an event, a graph."""

    def __init_subclass__(cls, *, kind):
        cls.kind = kind

    def __init__(self, *arguments, **options):
        raise RuntimeError(
            f"{self.kind}.{type(self).__name__}: weft computes on the CPU, there is no {self.kind} device"
        )


@contextmanager
def _on_device(device=None):
    """PyTorch's `with cuda.device(...)` does nothing where there is no such device."""
    yield


_SEEDS = "manual_seed manual_seed_all seed seed_all"
_QUIET = f"empty_cache ipc_collect synchronize init reset_peak_memory_stats reset_max_memory_allocated {_SEEDS}"
_MEMORY = str.split("""
    memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached current_allocated_memory
    driver_allocated_memory recommended_max_memory
""")
_NEEDS = str.split("""
    current_device set_device get_device_name get_device_properties get_device_capability current_stream default_stream
    mem_get_info memory_summary memory_stats get_rng_state set_rng_state stream utilization
""")


def _absent_device(kind):
    """The module of a device that is not there."""
    classes = {name: type(name, (_Unavailable,), {}, kind=kind) for name in ("Stream", "Event", "CUDAGraph")}
    return _module(
        kind,
        is_available=_answer(False),
        is_initialized=_answer(False),
        _initialized=False,
        is_bf16_supported=_answer(False),
        is_built=_answer(False),
        device_count=_answer(0),
        get_arch_list=_answer([]),
        memory_stats_as_nested_dict=_answer({}),
        get_rng_state_all=_answer([]),
        set_rng_state_all=_nothing,
        device=_on_device,
        device_of=_on_device,
        **dict.fromkeys(_QUIET.split(), _nothing),
        **dict.fromkeys(_MEMORY, _answer(0)),
        **{name: _need(kind, name) for name in _NEEDS},
        **classes,
    )


cuda, xpu, mps = map(_absent_device, ("cuda", "xpu", "mps"))
cpu = _module(
    "cpu",
    is_available=_answer(True),
    is_initialized=_answer(True),
    device_count=_answer(1),
    current_device=_answer("cpu"),
    set_device=_nothing,
    synchronize=_nothing,
    manual_seed=manual_seed,
)
accelerator = _module(
    "accelerator",
    is_available=_answer(False),
    current_accelerator=_answer(None),
    device_count=_answer(0),
    synchronize=_nothing,
    empty_cache=_nothing,
    **{name: _need("accelerator", name) for name in ("current_device_index", "set_device_index", "current_stream")},
)

# --- libraries --------------------------------------------------------------------------------------------------------
cudnn = _module(
    "backends.cudnn",
    is_available=_answer(False),
    is_acceptable=_answer(False),
    version=_answer(None),
    benchmark=False,
    benchmark_limit=10,
    deterministic=False,
    enabled=True,
    allow_tf32=True,
    flags=lambda *arguments, **options: _on_device(),
)


class Switches:
    """Switches that can be set, and change nothing."""

    def __init__(self, **values):
        self.__dict__.update(values)


_SDP = "flash mem_efficient math cudnn"
cuda_backend = _module(
    "backends.cuda",
    is_built=_answer(False),
    matmul=Switches(allow_tf32=False, allow_fp16_reduced_precision_reduction=True, fp32_precision="none"),
    cufft_plan_cache=Switches(size=0, max_size=0),
    sdp_kernel=lambda *arguments, **options: _on_device(),
    **{f"enable_{name}_sdp": _nothing for name in _SDP.split()},
    **{f"{name}_sdp_enabled": _answer(name == "math") for name in _SDP.split()},
)
mps_backend = _module(
    "backends.mps", is_available=_answer(False), is_built=_answer(False), is_macos_or_newer=_answer(False)
)
other_backend = _module("backends", is_available=_answer(False), enabled=False, flags=lambda **options: _on_device())
backends = _module("backends", cudnn=cudnn, cuda=cuda_backend, mps=mps_backend)


def _threads():
    """How many threads weft may use, as text."""
    return f"weft: {get_num_threads()} threads"


build = _module("__config__", show=_answer("weft: NumPy and LLVM on the CPU"), parallel_info=_threads)
