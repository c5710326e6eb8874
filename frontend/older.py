"""Functions that PyTorch has beside newer ones, or for few: weft.range, weft.nuclear_norm, weft.segment_reduce, ...

eig, lstsq, solve and symeig have no results: they say what to write instead, as PyTorch's do.
"""

import builtins
import os
import warnings
from importlib import import_module

import numpy as np

from .compiler.dtypes import dtype_of
from .complex_numbers import view_as_complex, view_as_real
from .creation import as_tensor, from_numpy, full, ones_like, plain, tensor
from .functions import clone
from .linalg import matrix_norm, vector_norm
from .out import taking_out
from .placement import check_placement, contiguous_format, layout
from .runtime.eager.anomaly import set_detect_anomaly
from .runtime.state import elsewhere
from .runtime.state.device import device as _device
from .runtime.state.modes import state
from .shaping import stack

jagged = layout("jagged")
legacy_contiguous_format = contiguous_format
OutOfMemoryError = elsewhere.OutOfMemoryError
_ROOT = __name__.partition(".")[0]


# --- numbers ----------------------------------------------------------------------------------------------------------
def range(start, end, step=1, *, dtype=None, requires_grad=False, **placement):
    """start, start + step, ... up to `end`, which belongs to it; weft.arange is what PyTorch recommends."""
    message = (
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end)."
    )
    warnings.warn(message, stacklevel=2)
    check_placement("range", placement)
    start, end, step = plain(start), plain(end), plain(step)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    count = int((end - start) / step) + 1
    kind = state.default_dtype if dtype is None else dtype_of(dtype)
    made = from_numpy(start + np.arange(count) * step).to(kind)
    return made.requires_grad_() if requires_grad else made


def vander(x, N=None, increasing=False):
    """The powers of the elements of a vector as columns, the highest first; `increasing`: the lowest."""
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    x = x if x.dtype.is_differentiable else x.long()
    count = x.shape[0] if N is None else N
    powers = [ones_like(x)]
    for _ in builtins.range(count - 1):
        powers.append(powers[-1] * x)
    columns = stack(powers[:count], 1) if count else x.new_empty((x.shape[0], 0))
    return columns if increasing else columns.flip(-1)


def frobenius_norm(input, dim, keepdim=False):
    """The square root of the sum of squares along one or two dimensions."""
    return vector_norm(input, 2, dim, keepdim)


def nuclear_norm(input, dim=(-2, -1), keepdim=False):
    """The sum of the singular values of matrices."""
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    return matrix_norm(input, "nuc", tuple(dim), keepdim)


_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
_INTO = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """Sums (or "mean", "max", "min", "prod") of segments along `axis`, which follow each other with these lengths, or
    begin and end at these offsets. `initial` is one more number in every segment.

    lengths are one row (axis 0), or have a row for each of the elements before `axis`. An empty segment gives what its
    reduction begins with; the mean of none is NaN.
    """
    if reduce not in _STARTS:
        raise RuntimeError(f"segment_reduce: reduce must be one of {', '.join(_STARTS)}, got {reduce!r}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    counts = _segment_lengths(data, lengths, offsets, axis, unsafe)
    shape = (*counts.shape, *data.shape[axis + 1 :])
    index = _segment_numbers(counts, data, axis)
    begin = full(shape, _STARTS[reduce] if initial is None else initial, dtype=data.dtype)
    covered = data.narrow(axis, 0, index.shape[axis])
    result = begin.scatter_reduce(axis, index, covered, _INTO[reduce], include_self=True)
    if reduce != "mean":
        return result
    # What is begun with is no element: an empty segment gives it as it is.
    elements = (counts if initial is None else np.maximum(counts, 1)).reshape(
        counts.shape + (1,) * (data.ndim - 1 - axis)
    )
    return result / as_tensor(elements).to(data.dtype)


def _segment_lengths(data, lengths, offsets, axis, unsafe):
    """The lengths as an array."""
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    counts = lengths.array if offsets is None else np.diff(offsets.array, axis=-1)
    if counts.ndim != axis + 1:
        raise RuntimeError(f"segment_reduce(): expected lengths or offsets with {axis + 1} dimensions, one per axis")
    if not unsafe and (counts.min(initial=0) < 0 or (counts.sum(-1) != data.shape[axis]).any()):
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
            "!unsafe."
        )
    return counts


def _segment_numbers(counts, data, axis):
    """Which segment every element belongs to."""
    rows = counts.reshape(-1, counts.shape[-1])
    numbers = np.stack([np.repeat(np.arange(len(row)), row) for row in rows]) if len(rows) else np.zeros((0, 0), int)
    shaped = numbers.reshape(*counts.shape[:-1], -1, *(1,) * (data.ndim - 1 - axis))
    sizes = (*shaped.shape[: axis + 1], *data.shape[axis + 1 :])
    return from_numpy(np.ascontiguousarray(np.broadcast_to(shaped, sizes)))


def view_as_real_copy(input):
    """view_as_real, with memory of its own."""
    return clone(view_as_real(input))


def view_as_complex_copy(input):
    """view_as_complex, with memory of its own."""
    return clone(view_as_complex(input))


def set_anomaly_enabled(mode, check_nan=True):
    """Anomaly detection on or off from now on: autograd.set_detect_anomaly."""
    set_detect_anomaly(mode, check_nan)


# --- places -----------------------------------------------------------------------------------------------------------
def get_device(input):
    """-1, the number of the CPU among devices."""
    return input.get_device()


def is_distributed(input):
    """False: no tensor is spread over several processes."""
    return False


def get_device_module(device=None):
    """The module of a device: weft.cpu."""
    kind = _device("cpu" if device is None else device).type
    return import_module(f"{_ROOT}.{kind}")


def get_file_path(*path_components):
    """A path below the folder that weft's is in."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *path_components)


def from_file(filename, shared=None, size=0, *, dtype=None, **placement):
    """The first `size` elements of a file as a vector. `shared`: changes of the tensor are changes of the file, which
    is made, or made longer, where it has to be."""
    check_placement("from_file", placement)
    kind = np.dtype((state.default_dtype if dtype is None else dtype_of(dtype)).name)
    n_bytes = size * kind.itemsize
    if shared:
        with open(filename, "ab") as file:
            if file.tell() < n_bytes:
                file.truncate(n_bytes)
    elif os.path.getsize(filename) < n_bytes:
        raise RuntimeError(f"from_file: {filename} has fewer than the {n_bytes} bytes that {size} elements take")
    if not size:
        return tensor([], dtype=dtype)
    return from_numpy(np.memmap(filename, kind, "r+" if shared else "c", shape=(size,)))


# --- gone -------------------------------------------------------------------------------------------------------------
GONE = ("eig", "symeig", "lstsq", "solve")


def _gone(name, instead):
    def function(*args, **kwargs):
        raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed. {instead}")

    function.__name__ = name
    function.__doc__ = f"RuntimeError: {instead}"
    return function


eig = _gone("eig", "Write weft.linalg.eig(A), whose results are complex, or weft.linalg.eigvals(A).")
symeig = _gone("symeig", "Write weft.linalg.eigh(A, UPLO='U' if upper else 'L'), or weft.linalg.eigvalsh.")
lstsq = _gone(
    "lstsq", "`torch.lstsq` is deprecated in favor of `torch.linalg.lstsq`: weft.linalg.lstsq(A, B).solution."
)
solve = _gone("solve", "`torch.solve` is deprecated in favor of `torch.linalg.solve`: weft.linalg.solve(A, B).")

for _name in ("frobenius_norm", "nuclear_norm", "range", "view_as_complex_copy", "view_as_real_copy"):
    globals()[_name] = taking_out(_name, globals()[_name])
