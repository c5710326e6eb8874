"""What `python -m weft info` and `python -m weft cache` print: what weft runs on, and what it keeps on disk."""

import os
import platform
import time
from importlib.util import find_spec

import numpy as np

from .runtime.code.cache import default_cache, default_directory, fill_cache, llvmlite_version
from .runtime.code.jit import target
from .runtime.code.threads import get_num_threads
from .runtime.replay.native import native_code_is_used
from .version import __version__, weft_version

# Extra -> (module, the name to install) of what it needs.
EXTRAS = {
    "sklearn": (("sklearn", "scikit-learn"),),
    "demo": (("sklearn", "scikit-learn"), ("grandalf", "grandalf"), ("tqdm", "tqdm")),
    "oracle": (("torch", "torch"),),
}


def info():
    """Versions, machine, threads, cache and extras, a line each."""
    machine = target()
    lines = {
        "weft": f"{weft_version}, names and meanings of PyTorch {__version__}",
        "from": os.path.dirname(os.path.abspath(__file__)),
        "python": f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}",
        "numpy": np.__version__,
        "llvmlite": llvmlite_version(),
        "target": f"{machine.cpu} ({machine.triple}), vectors of {machine.float_lanes} float32",
        "threads": f"{get_num_threads()} (WEFT_NUM_THREADS or weft.set_num_threads(n) choose)",
        "replay": "in native code" if native_code_is_used() else "in Python: native code is not used",
        "cache": _cache_in_short(default_cache()),
        **{f"weft[{extra}]": _extra(extra, needed) for extra, needed in EXTRAS.items()},
    }
    return "\n".join(f"{name:<14}{text}" for name, text in lines.items())


def _extra(extra, needed):
    missing = [name for module, name in needed if find_spec(module) is None]
    return f"lacks {', '.join(missing)}: pip install 'weft[{extra}]'" if missing else "installed"


def _cache_in_short(cache):
    if cache.problem is not None:
        return cache.problem
    if cache.directory is None:
        return "none: WEFT_CACHE=0"
    entries = cache.entries()
    used = sum(entry.size_bytes for entry in entries)
    return f"{cache.directory}: {len(entries)} file(s), {_megabytes(used)} of {_megabytes(cache.limit_bytes)} at most"


_SHOWN = 20


def recent():
    """`cached`, as far as it fits on a screen."""
    lines = cached().splitlines()
    more = len(lines) - 1 - _SHOWN
    return "\n".join(lines[: _SHOWN + 1] + [f"and {more} more: python -m weft cache list"] * (more > 0))


def cached():
    """The files of the cache, those used last first: when, how large, and what they compute."""
    cache = default_cache()
    lines = [_cache_in_short(cache)]
    for entry in sorted(cache.entries(), key=lambda e: -e.last_use):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_use))
        lines.append(f"{when} {entry.size_bytes:>9,} bytes  {_content(entry.meta)}")
    return "\n".join(lines)


def _content(meta):
    if meta is None:
        return "not whole"
    if "plan" not in meta:
        return "native functions" if "names" in meta else "a kernel of eager mode"
    kernels = meta["plan"]["kernels"]
    ops = list(dict.fromkeys(op for kernel in kernels for op in kernel["ops"]))
    kind = "backward program" if "backward_graph" in meta else "program"
    return f"{kind} of {len(kernels)} kernel(s): {' '.join(ops[:8])}{' ...' if len(ops) > 8 else ''}"


def fill():
    """Compile what all programs share."""
    took = fill_cache()
    return f"compiled what all programs share, in {took:.1f} s" if took else "what all programs share is there"


def clear():
    """Empty the cache."""
    return f"removed {default_cache().clear()} file(s) from {default_directory()}"


def _megabytes(size_bytes):
    return f"{size_bytes / 2**20:.1f} MiB"
