"""PyTorch's switches for a process. Those that choose among ways to compute the same are kept and change nothing."""

from .compiler.later import later
from .runtime.state import said
from .runtime.state.device import CPU, require_cpu


class _Settings:
    """What has been asked for."""

    __slots__ = ("matmul_precision", "deterministic", "warn_only", "interop_threads")

    def __init__(self):
        self.matmul_precision = "highest"
        self.deterministic = False
        self.warn_only = False
        self.interop_threads = None


_SETTINGS = _Settings()
_get_num_threads = later("runtime.code.threads:get_num_threads")
_PRECISIONS = ("highest", "high", "medium")


def set_float32_matmul_precision(precision):
    """ "highest", "high" or "medium": products of float32 are computed in float32 whatever is allowed."""
    if precision not in _PRECISIONS:
        raise ValueError(f"set_float32_matmul_precision: {precision!r} is not one of {', '.join(_PRECISIONS)}")
    _SETTINGS.matmul_precision = precision


def get_float32_matmul_precision():
    return _SETTINGS.matmul_precision


def use_deterministic_algorithms(mode, *, warn_only=False):
    """All of weft's algorithms are deterministic: equal inputs give equal bits."""
    _SETTINGS.deterministic, _SETTINGS.warn_only = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled():
    return _SETTINGS.deterministic


def is_deterministic_algorithms_warn_only_enabled():
    return _SETTINGS.warn_only


def set_deterministic_debug_mode(debug_mode):
    """0 or "default", 1 or "warn", 2 or "error"."""
    levels = {"default": 0, "warn": 1, "error": 2}
    level = levels.get(debug_mode, debug_mode)
    if level not in (0, 1, 2):
        raise RuntimeError(
            f"set_deterministic_debug_mode: expected 0, 1, 2, default, warn or error, got {debug_mode!r}"
        )
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode():
    return 0 if not _SETTINGS.deterministic else 2 - _SETTINGS.warn_only


def set_warn_always(b):
    """Whether what is said once in a process is said every time. Python's filters come after that."""
    said.set_always(bool(b))


def is_warn_always_enabled():
    return said.is_always()


def set_flush_denormal(mode):
    """False: numbers below the smallest normal one are kept as they are, and there is no switch for it."""
    return False


def set_num_interop_threads(n):
    """Kept for get_num_interop_threads: operations run one after the other."""
    if n < 1:
        raise RuntimeError(f"set_num_interop_threads: expected a positive number of threads, got {n}")
    _SETTINGS.interop_threads = int(n)


def get_num_interop_threads():
    return _SETTINGS.interop_threads or _get_num_threads()


def set_default_device(device):
    """The CPU, or None."""
    require_cpu("set_default_device", device)


def get_default_device():
    return CPU


def _assert(condition, message):
    """An assertion as a function."""
    assert condition, message


def _assert_async(input, assert_msg="Expected Tensor with single nonzero value, but got zero"):
    """RuntimeError if the tensor of one element is 0 or False."""
    if not bool(input):
        raise RuntimeError(assert_msg)


PUBLIC = str.split("""
    set_float32_matmul_precision get_float32_matmul_precision use_deterministic_algorithms
    are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled set_deterministic_debug_mode
    get_deterministic_debug_mode set_warn_always is_warn_always_enabled set_flush_denormal set_num_interop_threads
    get_num_interop_threads set_default_device get_default_device _assert _assert_async
""")
