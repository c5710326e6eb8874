"""PyTorch's modules of devices, for programs that ask what there is: `weft.cuda.is_available()` is False without a GPU.

What only asks, counts or seeds answers as PyTorch does on a machine with a CPU alone; what would need the device is a
RuntimeError. Switches of libraries, such as `backends.cudnn.benchmark`, can be set and change nothing.
"""

from contextlib import contextmanager
from types import ModuleType

from .absent import attribute_of
from .compiler.later import later
from .runtime.code.threads import get_num_threads
from .runtime.state.device import device
from .runtime.state.elsewhere import OutOfMemoryError
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


# --- NVIDIA's, where there is one -------------------------------------------------------------------------------------
_gpu_count, _gpu_of = later("runtime.gpu.memory:gpu_count"), later("runtime.gpu.memory:gpu_of")
_gpus_in_use = later("runtime.gpu.memory:in_use")


def _asking(name, ask):
    """cuda.name(device=None), which asks a GPU; without one it is what it is on a machine with a CPU alone."""
    absent = vars(cuda)[name]

    def function(*arguments, **options):
        if not _gpu_count():
            return absent(*arguments, **options)
        given = arguments[0] if arguments else options.get("device")
        wanted = None if given is None else device(given)
        gpu = _gpu_of(0 if wanted is None else wanted.index or 0)
        with gpu:
            return ask(gpu)

    function.__name__ = name
    return function


def _set_device(given):
    """The device that "cuda" without a number means: it is the first."""
    if not _gpu_count():
        return vars(cpu)["set_device"](given) if given is None else _need("cuda", "set_device")()
    if (device(given).index or 0) != 0:
        raise NotImplementedError('cuda.set_device: "cuda" is the first GPU; name another one, as in "cuda:1"')
    return None


_ASKED = {
    "synchronize": lambda gpu: gpu.synchronize(),
    "empty_cache": lambda gpu: gpu.pool.give_back(),
    "memory_allocated": lambda gpu: gpu.pool.allocated,
    "max_memory_allocated": lambda gpu: gpu.pool.most_allocated,
    "memory_reserved": lambda gpu: gpu.pool.reserved,
    "max_memory_reserved": lambda gpu: gpu.pool.most_reserved,
    "reset_peak_memory_stats": lambda gpu: gpu.pool.forget_most(),
    "current_device": lambda gpu: 0,
    "get_device_name": lambda gpu: gpu.name,
    "get_device_capability": lambda gpu: gpu.capability,
}
cuda.__dict__.update(
    {name: _asking(name, ask) for name, ask in _ASKED.items()},
    is_available=lambda: _gpu_count() > 0,
    device_count=lambda: _gpu_count(),
    is_initialized=lambda: _gpu_count() > 0 and bool(_gpus_in_use()),
    set_device=_set_device,
    OutOfMemoryError=OutOfMemoryError,
)
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
