"""One op on arrays whose shapes and types are known: everything that need not be asked again is found beforehand.

`step` gives a function of arrays that does what evaluate.py does, with the same kernels and so the same bits: which
operands are converted or broadcast, which kernel runs and what sizes it is told are found when the function is made.
"""

from functools import partial
from math import prod
from operator import methodcaller
from struct import Struct

import numpy as np

from ...compiler.dtypes import are_computed, int32
from ...compiler.ops.comparison import cast
from ...compiler.ops.table import OnParts
from ...compiler.storage import convert, fitting, number
from ..code import kernels
from ..code.aside import aside
from ..state.aligned import address_of, is_large, new_array, owned_copy
from .evaluate import (
    contiguous,
    evaluate,
    into_new_memory,
    needs_wider,
    on_types,
    quietly,
    runs,
    takes_long,
)

_ndarray, _row_major = np.ndarray, np.ascontiguousarray


def step(op, metas, attributes, types, meta):
    """A function of the operands' arrays and Python numbers: op with these attributes. `metas` describe the operands,
    `types` and `meta` are what the op's compute_dtype and infer say of them."""
    function, may_warn = _function(op, metas, attributes, types, meta)
    return _quiet(function) if may_warn else function


def inner_step(op, metas, attributes, types, meta):
    """(the same function, whether whoever calls it has to turn NumPy's floating point warnings off)."""
    function, may_warn = _function(op, metas, attributes, types, meta)
    return (_whole(function), True) if may_warn else (function, False)


def _function(op, metas, attributes, types, meta):
    is_numpys = op.kind == "elementwise" and op.evaluate is not None and "own-type" in op.traits
    if not is_numpys and not are_computed([*(m.dtype for m in metas), meta.dtype, *attributes.values()]):
        function = _by_numpy(op, metas, attributes, types, meta)
        if function is not None:
            return function, True
        is_on_parts = op.kind == "elementwise" and op.on_complex.__class__ is OnParts
        if is_on_parts and any(d.is_complex for d in types) and 0 not in meta.shape:
            return _on_parts(op, metas, attributes, types, meta), False
        if not _is_as_it_is(op, metas, attributes, types, meta):
            return lambda *operands: evaluate(op, operands, attributes, types, meta), False
    if op.kind == "elementwise":
        return _elementwise(op, metas, attributes, types, meta)
    if op.kind == "reduction" and op.evaluate is None:
        return _reduction(op, metas[0], attributes, types[0], meta), False
    if op.kind == "contraction" and meta.dtype.is_floating_point and len(meta.shape) == 2 and 0 not in meta.shape:
        return _product(metas, meta), False
    if "copy" in op.traits:
        return owned_copy, False
    if op.evaluate is None or op.kind == "source":
        return lambda *operands: evaluate(op, operands, attributes, types, meta), False
    function = partial(op.evaluate, **attributes) if attributes else op.evaluate
    if takes_long(op, [m.shape for m in metas]):
        function = partial(aside, function)
    if op.kind == "view" or "view" in op.extra:
        return function, False
    casts = [_cast(m, d, _scalar(op)) for m, d in zip(metas, types)] if types and op.kind != "reduction" else ()
    return _whole(_after_casts(function, [c and partial(quietly, c) for c in casts]) if any(casts) else function), False


def _is_as_it_is(op, metas, attributes, types, meta):
    """Whether an op on types that no kernel knows is a function of NumPy's of the operands as they are."""
    if op.kind != "library" or types:
        return False
    given = [m.dtype for m in metas]
    return (op.takes_complex or not any(d.is_complex for d in given)) and not needs_wider(op, given, attributes, meta)


def _whole(function):
    """The function, its result in row-major order."""

    def run(*operands):
        out = function(*operands)
        return out if out.__class__ is _ndarray and out.flags.c_contiguous else contiguous(out)

    return run


# --- elementwise ----------------------------------------------------------------------------------------------------
def _elementwise(op, metas, attributes, types, meta):
    casts = [_cast(m, d, _scalar(op)) for m, d in zip(metas, types)]
    if op.evaluate is not None:
        function = partial(op.evaluate, **attributes) if attributes else op.evaluate
        function = into_new_memory(function, meta)
        return (_after_casts(function, casts) if any(casts) else function), True
    if 0 in meta.shape:
        return lambda *arrays: np.empty(meta.shape, meta.dtype.numpy), False
    full = [None if m.shape == meta.shape and not m.weak else meta.shape for m in metas]
    if len(metas) == 1 and op is not cast:
        full = [None]
    generated = _generated(kernels.elementwise(op, types, attributes), full, meta)
    return (_after_casts(generated, [c and partial(quietly, c) for c in casts]) if any(casts) else generated), False


def _on_parts(op, metas, attributes, types, meta):
    """An elementwise op on complex numbers. Operands of one element are not copied."""
    casts = [_conversion(m, d, _scalar(op)) for m, d in zip(metas, types)]
    are_single = [prod(m.shape) == 1 and meta.shape != m.shape or m.weak for m in metas]
    full = [None if is_single or m.shape == meta.shape else meta.shape for m, is_single in zip(metas, are_single)]
    generated = _generated(kernels.elementwise(op, types, attributes, are_single), full, meta)
    return _after_casts(generated, [c and partial(quietly, c) for c in casts]) if any(casts) else generated


def _by_numpy(op, metas, attributes, types, meta):
    """An op on types that no kernel knows, such as complex ones and integers of 8 bits, which NumPy computes as they
    are; else None."""
    if op.kind not in ("elementwise", "reduction") or not types or needs_wider(op, types, attributes, meta):
        return None
    if not op.takes_complex and any(d.is_complex for d in types):
        return None
    function = on_types(op, types)
    if function is None:
        return None
    if op.kind == "elementwise":
        function = into_new_memory(function, meta)
    casts = [_conversion(m, d, _scalar(op)) for m, d in zip(metas, types)]
    function = partial(function, **attributes) if attributes else function
    return _after_casts(function, casts) if any(casts) else function


def _conversion(meta, dtype, scalar):
    if meta.weak:
        return lambda x: scalar(x, dtype)
    return None if meta.dtype is dtype else lambda x: convert(x, dtype)


def _maker(shape, dtype):
    """What makes arrays like these."""
    return new_array if is_large(shape, dtype) else np.empty


def _scalar(op):
    """What makes a number of a type of a Python number for the op."""
    return fitting if "fits" in op.traits else number


def _cast(meta, dtype, scalar=number):
    """What converts an operand to the type; None if it has the type."""
    if meta.weak:
        # Of what does not fit into 32 bits NumPy makes an error.
        return partial(scalar, dtype=dtype) if dtype is int32 else dtype.numpy.type
    return None if meta.dtype is dtype else methodcaller("astype", dtype.numpy)


def _after_casts(function, casts):
    return lambda *arrays: function(*[x if c is None else c(x) for c, x in zip(casts, arrays)])


def _quiet(function):
    """The function without NumPy's floating point warnings, its result in row-major order."""

    def run(*arrays):
        out = quietly(function, *arrays)
        return out if out.__class__ is _ndarray and out.flags.c_contiguous else contiguous(out)

    return run


def _generated(kernel, full, meta):
    shape, dtype, size = meta.shape, meta.dtype.numpy, prod(meta.shape)
    pack, empty = Struct(f"{len(full) + 1}P").pack, _maker(shape, dtype)
    if full == [None]:

        def run(x):
            x, out = _row_major(x), empty(shape, dtype)
            kernel(pack(address_of(x), address_of(out)), size)
            return out
    else:

        def run(*arrays):
            arrays = [_row_major(x if s is None else np.broadcast_to(x, s)) for s, x in zip(full, arrays)]
            out = empty(shape, dtype)
            kernel(pack(*map(address_of, arrays), address_of(out)), size)
            return out

    return run


# --- reductions -----------------------------------------------------------------------------------------------------
def _reduction(op, operand, attributes, dtype, meta):
    convert, parts, shape = _cast(operand, dtype), [], operand.shape
    for first, count in reversed(runs(attributes["axes"])):
        outer, n, inner = prod(shape[:first]), prod(shape[first : first + count]), prod(shape[first + count :])
        shape = (*shape[:first], *shape[first + count :])
        kernel, sizes = kernels.reduction(op, dtype, outer, n, inner) if prod(shape) else (None, ())
        parts.append((kernel, shape, sizes))
    if not parts:
        return lambda x: _row_major(x if convert is None else quietly(convert, x)).copy().reshape(meta.shape)
    # The last result is made in the shape it is wanted in.
    parts[-1] = (parts[-1][0], meta.shape, parts[-1][2])
    return _reducing(convert, parts, dtype.numpy)


def _reducing(convert, parts, dtype):
    def run(x):
        x = _row_major(x if convert is None else quietly(convert, x))
        for kernel, shape, sizes in parts:
            out = new_array(shape, dtype)
            if kernel is not None:
                kernel(address_of(x), address_of(out), *sizes)
            x = out
        return x

    return run


# --- matrix product -------------------------------------------------------------------------------------------------
def _product(metas, meta):
    """The product of two matrices, neither of which has an empty side but perhaps the one that is summed over."""
    (m, k), n = metas[0].shape, metas[1].shape[1]
    if kernels.is_long(meta.shape, k):
        return lambda x, y: _long_product(x, y, meta)
    kernel, scratch_bytes = kernels.product(meta.dtype.numpy, meta.shape, k)
    shape, dtype, size = meta.shape, meta.dtype.numpy, meta.dtype.size_bytes
    empty = _maker(shape, dtype)

    def run(x, y):
        out, scratch = empty(shape, dtype), np.empty(scratch_bytes, np.uint8)
        (x_row, x_column), (y_row, y_column) = x.strides, y.strides
        kernel(
            address_of(x),
            x_row // size,
            x_column // size,
            address_of(y),
            y_row // size,
            y_column // size,
            address_of(out),
            n,
            m,
            n,
            k,
            (address_of(scratch) + 63) & ~63,
        )
        return out

    return run


def _long_product(x, y, meta):
    out = new_array(meta.shape, meta.dtype.numpy)
    kernels.run_gemm(x[None], y[None], out[None])
    return out
