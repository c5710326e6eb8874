"""How many threads NumPy's library of linear algebra takes, which computes products of complex matrices, decompositions
and solutions for eager mode.

Of its own accord it takes one for each CPU, which wait for each other in loops: where something else runs, a product of
64 x 64 complex numbers took 12 ms in place of 0.4. NumPy has no function for it. OpenBLAS, which its wheels come with,
has one, under a name that depends on how it was built.
"""

import ctypes
from functools import cache

import numpy as np

from .cpus import n_cpus

_NAMES = [
    f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "_64_", "_", "")
]


def set_blas_threads(n):
    """It takes n threads, or as many as there are CPUs; nothing happens where it cannot be told."""
    tell = _setter()
    if tell is not None:
        tell(min(n, n_cpus()))


@cache
def _setter():
    core = getattr(np, "_core", None) or np.core  # NumPy 1 has no _core
    try:
        # The library is found among those that NumPy's own has been linked with.
        library = ctypes.CDLL(core._multiarray_umath.__file__)
    except (AttributeError, OSError):
        return None
    found = next((getattr(library, name) for name in _NAMES if hasattr(library, name)), None)
    if found is not None:
        found.argtypes, found.restype = (ctypes.c_int,), None
    return found
