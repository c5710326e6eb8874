"""What an index adds to a table, by the kernel of such lookups (compiler/eager_kernels.py: lookup_text).

NumPy's `add.at` takes ten times as long. So it has what is small, and what comes before a kernel that is not there yet
would be worth compiling.
"""

import ctypes

import numpy as np

from ...compiler.dtypes import from_numpy, memory_element
from ...compiler.eager_forms import ADD, N_LOOPS
from ...compiler.shapes import merged_loops
from ..state.aligned import address_of
from . import kernels

FEWEST = 1 << 13  # elements of one call
# Elements that NumPy adds in a process before a kernel is compiled: a tenth of a second, what LLVM takes to begin.
BEFORE_COMPILING = 1 << 22
_TYPES = {np.dtype(name) for name in ("float32", "float64", "int32", "int64")}
_ARGUMENTS = (ctypes.c_void_p,) * 3 + (ctypes.c_int64,) * (4 * N_LOOPS + 2)


class _Account:
    left = BEFORE_COMPILING
    functions, missing = {}, set()


def add_at(table, part, index, loops, size, step):
    """Whether the part has been added to the table where the index says, which is known to be in range.

    loops: for each its extent, and how many bytes a turn moves the table, the part and the index; size: elements that
    each turn adds, which lie one after the other; step: bytes between what two neighbours of the index mean.
    """
    if part.size < FEWEST or part.dtype != table.dtype or table.dtype not in _TYPES or index.dtype != np.int64:
        return False
    loops = merged_loops([loop for loop in loops if loop[0] != 1])
    if len(loops) > N_LOOPS:
        return False
    function = _function(memory_element(from_numpy(table.dtype)), size == 1, part.size)
    if function is None:
        return False
    loops = [(1, (0, 0, 0))] * (N_LOOPS - len(loops)) + loops
    strides = [strides[k] for k in range(3) for _, strides in loops]
    function(*map(address_of, (table, part, index)), *(n for n, _ in loops), *strides, size, step)
    return True


def _function(element, is_single, n_elements):
    """The kernel, if it is at hand or has become worth compiling."""
    key = element, is_single
    if key not in _Account.functions:
        _Account.left -= n_elements
        if _Account.left > 0 and not _is_at_hand(key):
            return None
        try:
            address = kernels.lookup_address(ADD, *key)
        except ModuleNotFoundError:
            # Without llvmlite NumPy goes on for ever.
            _Account.functions[key] = None
        else:
            _Account.functions[key] = ctypes.PYFUNCTYPE(None, *_ARGUMENTS)(address)
    return _Account.functions[key]


def _is_at_hand(key):
    """Whether a kernel is in this process, or was on disk when it was asked for first."""
    name = kernels.lookup_key(ADD, *key)
    if key in _Account.missing:
        return kernels.is_loaded(name)
    _Account.missing.add(key)
    return kernels.is_at_hand(name)
