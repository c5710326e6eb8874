"""Eager evaluation of primitives on arrays: NumPy where IEEE 754 fixes the bits, generated kernels elsewhere.

Results of everything but views are row-major contiguous, so that eager and compiled calls agree on memory layout too.
"""

from contextvars import copy_context
from math import prod

import numpy as np

from ...compiler.dtypes import DType, from_numpy
from ...compiler.kernels.library import GridProduct
from ...compiler.later import later
from ...compiler.ops.comparison import cast
from ...compiler.ops.indexing import set_add_at
from ...compiler.ops.kinds import refuse_complex
from ...compiler.ops.table import Meta, OnParts
from ...compiler.shapes import contiguous_strides
from ...compiler.storage import convert, fitting, number
from ..code.aside import aside
from ..state.aligned import address_of, is_large, new_array

# Elements of an operand of the slower functions of NumPy, and those times the smaller side of a matrix.
_MANY_ELEMENTS, _LARGE_MATRIX = 1 << 20, 1 << 25

_has_source_kernel = later("runtime.code.kernels:has_source_kernel")
_reduction_kernel = later("runtime.code.kernels:reduction")
_run_elementwise = later("runtime.code.kernels:run_elementwise")
_run_gemm = later("runtime.code.kernels:run_gemm")
_run_grid_product = later("runtime.code.kernels:run_grid_product")
_run_routine = later("runtime.code.kernels:run_routine")
_run_source = later("runtime.code.kernels:run_source")
set_add_at(later("runtime.code.lookups:add_at"))

try:
    from numpy._core.umath import _extobj_contextvar, _make_extobj

    # np.errstate does the same at four times the cost.
    _QUIET = _make_extobj(divide="ignore", over="ignore", under="ignore", invalid="ignore")
    _set = _extobj_contextvar.set
except ImportError:
    _QUIET = {"all": "ignore"}

    def _set(settings):
        np.seterr(**settings)


def quietly(function, *args, **kwargs):
    """Call with NumPy's floating point warnings off.

    In a context of its own that ends with the call: until 3.12 CPython may collect garbage while it changes a context,
    and reads what it changes without holding it: a callback or finalizer that computes must not change the same one.
    """
    return copy_context().run(_call_quietly, function, args, kwargs)


def _call_quietly(function, args, kwargs):
    _set(_QUIET)
    return function(*args, **kwargs)


def evaluate(op, operands, attributes, operand_types, meta):
    """op on arrays and Python numbers. `operand_types` as the op's compute_dtype gives them, `meta` as its infer."""
    if op.kind == "view" or "view" in op.extra:
        return op.evaluate(*operands, **attributes)
    wide = _wider(op, operands, attributes, operand_types, meta)
    if wide is not None:
        return convert(evaluate(op, *wide), meta.dtype)
    if op.kind == "elementwise":
        return _elementwise(op, operands, attributes, operand_types, meta)
    if op.kind == "reduction":
        return _reduction(op, operands[0], attributes, operand_types, meta)
    if op.kind == "contraction":
        return _contraction(*operands, meta)
    if op.kind == "routine":
        return _routine(op, operands, attributes, operand_types, meta)
    if op.kind == "source":
        return _source(op, operands, attributes)
    arrays = [as_type(x, d) for x, d in zip(operands, operand_types)] if operand_types else operands
    if takes_long(op, [np.shape(x) for x in arrays]):
        return contiguous(aside(op.evaluate, *arrays, **attributes))
    return contiguous(op.evaluate(*arrays, **attributes))


def takes_long(op, shapes):
    """Whether one of the slower functions of NumPy, or of LAPACK, may take hundredths of a second on such operands."""
    return op.kind == "library" and any(
        prod(shape) >= _MANY_ELEMENTS or len(shape) > 1 and prod(shape) * min(shape[-2:]) >= _LARGE_MATRIX
        for shape in shapes
    )


def _wider(op, operands, attributes, operand_types, meta):
    """The arguments of `evaluate` in types that can compute the op, where these cannot; else None."""
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    types = operand_types or [from_numpy(x.dtype) for x in arrays]
    refuse_complex(op, types)
    if not needs_wider(op, types, attributes, meta):
        return None
    if operand_types:
        operands = [_rounded(op, x, d) for x, d in zip(operands, operand_types)]
    operands = [as_type(x, _computed_as(op, from_numpy(x.dtype))) if isinstance(x, np.ndarray) else x for x in operands]
    attributes = {k: _computed_as(op, v) if v.__class__ is DType else v for k, v in attributes.items()}
    operand_types = operand_types and tuple(_computed_as(op, d) for d in operand_types)
    return operands, attributes, operand_types, Meta(meta.shape, _computed_as(op, meta.dtype))


def needs_wider(op, types, attributes, meta):
    """Whether one of the types is another one while the op is computed."""
    given = [*types, meta.dtype, *(v for v in attributes.values() if v.__class__ is DType)]
    return any(_computed_as(op, d) is not d for d in given)


def _rounded(op, x, dtype):
    """An operand as the type has it. A single number that is multiplied with is not rounded to 16 bits, as in
    PyTorch."""
    if dtype.is_half and np.ndim(x) == 0 and "wide-number" in op.traits:
        return x
    return as_type(x, dtype) if isinstance(x, np.ndarray) else convert(np.asarray(x), dtype)


def _computed_as(op, dtype):
    """The type in which the op is computed on this one. NumPy's integers wrap around as PyTorch's do; the others need
    a kernel."""
    if "own-type" in op.traits:
        return dtype
    return dtype.wide if op.evaluate is None or dtype.category != 1 else dtype


def contiguous(array):
    array = np.asarray(array)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def as_type(x, dtype, scalar=number):
    """An array (or a NumPy scalar, for a Python number) of the type."""
    if isinstance(x, np.ndarray):
        return x if x.dtype == dtype.numpy else convert(x, dtype)
    return quietly(scalar, x, dtype)


def on_types(op, operand_types):
    """The NumPy function that computes the op on operands of such types; None where a kernel does."""
    if op.on_complex is None or op.on_complex is True or not any(d.is_complex for d in operand_types):
        return op.evaluate
    if op.on_complex.__class__ is OnParts:
        return op.evaluate if op.on_complex.exact else None
    return op.on_complex


def _source(op, numbers, attributes):
    shape, dtype = attributes["shape"], attributes["dtype"]
    if "fill" in op.traits and is_large(shape, dtype.numpy):
        out = new_array(shape, dtype.numpy)
        out[...] = op.evaluate(*numbers, shape=(), dtype=dtype)
        return out
    if 0 in shape or not _has_source_kernel(op, [type(x) for x in numbers], dtype):
        return np.asarray(op.evaluate(*numbers, **attributes))
    return _run_source(op, numbers, dtype, new_array(shape, dtype.numpy))


def _elementwise(op, operands, attributes, operand_types, meta):
    scalar = fitting if "fits" in op.traits else number
    arrays = [as_type(x, d, scalar) for x, d in zip(operands, operand_types)]
    function = on_types(op, operand_types)
    if function is not None:
        return contiguous(quietly(into_new_memory(function, meta), *arrays, **attributes))
    if meta.shape and any(d.is_complex for d in operand_types):
        return _on_parts(op, arrays, attributes, operand_types, meta)
    if op is not cast and len(arrays) == 1:
        full = [np.ascontiguousarray(arrays[0])]
    else:
        full = [np.ascontiguousarray(np.broadcast_to(a, meta.shape)) for a in arrays]
    out = new_array(meta.shape, meta.dtype.numpy)
    return _run_elementwise(op, operand_types, attributes, full, out) if out.size else out


def _on_parts(op, arrays, attributes, operand_types, meta):
    """The same of complex numbers, some of which may be one for all: it is not copied."""
    out = new_array(meta.shape, meta.dtype.numpy)
    if not out.size:
        return out
    are_single = [a.size == 1 for a in arrays]
    arrays = [
        np.ascontiguousarray(a if is_single else np.broadcast_to(a, meta.shape))
        for a, is_single in zip(arrays, are_single)
    ]
    return _run_elementwise(op, operand_types, attributes, arrays, out, are_single)


def into_new_memory(function, meta):
    """One of NumPy's functions of elements, its large results in memory that begins with a line. Only floats: of some
    functions of bool, such as conjugate, NumPy's results have another type, and could not be written there."""
    shape, dtype = meta.shape, meta.dtype.numpy
    if not isinstance(function, np.ufunc) or function.nout > 1 or dtype.kind not in "fc" or not is_large(shape, dtype):
        return function
    return lambda *arrays, **options: function(*arrays, out=new_array(shape, dtype), **options)


def _contraction(x, y, meta):
    if not meta.dtype.is_floating_point:
        return contiguous(quietly(np.matmul, x, y))
    out = new_array(meta.shape, meta.dtype.numpy)
    if out.size:
        flat = [a.reshape(1, *a.shape) if a.ndim == 2 else _one_batch(a) for a in (x, y, out)]
        _run_gemm(*flat)
    return out


def _routine(op, operands, attributes, operand_types, meta):
    out = new_array(meta.shape, meta.dtype.numpy)
    if out.size:
        arrays = [np.ascontiguousarray(as_type(x, d)) for x, d in zip(operands, operand_types)]
        run = _run_grid_product if op.kernel.__class__ is GridProduct else _run_routine
        run(op, arrays, attributes, out)
    return out


def _one_batch(a):
    """All batch dimensions as one (a copy where strides cannot say it; the matrices' own strides stay)."""
    return a if a.ndim == 3 else a.reshape(-1, *a.shape[-2:])


# --- reductions: run by run of neighbouring axes, the last run first -------------------------------------------------
def _reduction(op, x, attributes, operand_types, meta):
    function = on_types(op, operand_types)
    if function is not None:
        return contiguous(quietly(function, as_type(x, operand_types[0]), **attributes))
    x = np.ascontiguousarray(as_type(x, operand_types[0]))
    dtype = operand_types[0]
    for first, count in reversed(runs(attributes["axes"])):
        shape = x.shape
        outer, n, inner = prod(shape[:first]), prod(shape[first : first + count]), prod(shape[first + count :])
        out = new_array((*shape[:first], *shape[first + count :]), dtype.numpy)
        if out.size:
            kernel, sizes = _reduction_kernel(op, dtype, outer, n, inner)
            kernel(address_of(x), address_of(out), *sizes)
        x = out
    return (x if attributes["axes"] else x.copy()).reshape(meta.shape)


def runs(axes):
    """Neighbouring axes together: (0, 1, 3) -> [(0, 2), (3, 1)], each (first axis, how many)."""
    result = []
    for a in axes:
        if result and result[-1][0] + result[-1][1] == a:
            result[-1] = (result[-1][0], result[-1][1] + 1)
        else:
            result.append((a, 1))
    return result


def strides_in_elements(array):
    """None if row-major contiguous; else the strides in elements."""
    if array.flags.c_contiguous:
        return None
    size = array.itemsize
    strides = tuple(s // size for s in array.strides)
    return None if strides == contiguous_strides(array.shape) else strides
