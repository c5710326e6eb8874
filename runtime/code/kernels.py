"""Native kernels by name: from memory, from the disk cache, or compiled now.

Eager mode needs one kernel per transcendental op and dtype, two per reduction, and the matrix product; each is built
once ever per machine. Data addresses come from NumPy through ctypes.
"""

import ctypes
from functools import cache, lru_cache, partial
from math import prod

import numpy as np

from ...compiler.conventions import AGAIN, LET_GO, SEEN, TAKE_AGAIN
from ...compiler.dtypes import element_of, float32, float64, from_numpy, int64
from ...compiler.later import later
from ...compiler.ops.table import Meta
from ..state.aligned import address_of
from . import jit, made_here
from .aside import LONG_NS, aside
from .cache import default_cache, pack, unpack

_elementwise_text = later("compiler.eager_kernels:elementwise_text")
_limits_text = later("compiler.eager_kernels:limits_text")
_lookup_text = later("compiler.eager_kernels:lookup_text")
_rule_text = later("compiler.eager_kernels:rule_text")
_across_text = later("compiler.eager_across:across_text")
_turned_text = later("compiler.eager_turned:turned_text")
_source_text = later("compiler.eager_kernels:source_text")
_reduction_text = later("compiler.eager_kernels:reduction_text")
_routine_text = later("compiler.eager_kernels:routine_text")
_scratch_bytes = later("compiler.emit.gemm:scratch_bytes")
_libraries = {}
_begun = {}  # compilations of libraries that will be asked for
_functions = {}
_ELEMENT = "element"  # of an operand (eager_kernels.py)
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64


def library(key, make_text):
    """The loaded library for `key`, whose IR text `make_text()` gives if it must be compiled."""
    found = _libraries.get(key)
    if found is None:
        with jit.compiling:
            found = _libraries.get(key) or _load(key, make_text)
            _libraries[key] = found
    return found


def is_loaded(key):
    return key in _libraries


def is_at_hand(key):
    """Whether the library for `key` takes no compilation."""
    return key in _libraries or default_cache().get(key) is not None


def _load(key, make_text):
    cache = default_cache()
    entry = cache.get(key)
    if entry is not None:
        return jit.link(unpack(entry.payload)[1])
    with made_here.timed(made_here.REPLAYS_AND_NODES if key.startswith("replay ") else made_here.KERNELS):
        code = (_begun.pop(key, None) or jit.begin(make_text())).finish()
    cache.put(key, pack({}, code))
    return jit.link(code)


def _function(key, make_text, name, argument_types):
    function = _functions.get(key)
    if function is None:
        address = library(key, make_text).address(name)
        # PYFUNCTYPE keeps the interpreter lock: releasing it costs more than a small kernel takes.
        function = _functions[key] = ctypes.PYFUNCTYPE(None, *argument_types)(address)
    return function


# --- elementwise ----------------------------------------------------------------------------------------------------
def elementwise(op, dtypes, attributes, are_single=()):
    """The kernel of an op: (address of the addresses of contiguous arrays of one shape, the result's last; size). Some
    may be of a single element for all, if `are_single` says so of any."""
    names = ",".join(d.name for d in dtypes)
    single = tuple([_ELEMENT if is_single else None for is_single in are_single]) if any(are_single) else ()
    key = f"eager {op.name} {names} {sorted(attributes.items())}{f' {single}' if single else ''}"
    function = _functions.get(key)
    if function is None:
        function = _function(
            key,
            lambda: _elementwise_text(op, dtypes, attributes, jit.kernel_target(), single),
            "weft_kernel",
            (_POINTER, _SIZE),
        )
    return function


def elementwise_address(op, dtypes, attributes, single, in_rows=False, lying=()):
    """The address of a kernel of an op some of whose operands are one for all elements, or of one for many rows, or of
    operands that are of 16 bits in memory (eager_kernels.py)."""
    names = ",".join(d.name for d in dtypes)
    key = f"eager {op.name} {names} {sorted(attributes.items())}{f' {single}' if any(single) else ''}"
    key = f"{key}{' in rows' if in_rows else ''}{f' lying {[d.name for d in lying]}' if lying else ''}"
    text = lambda: _elementwise_text(op, dtypes, attributes, jit.kernel_target(), single, in_rows, lying)  # noqa: E731
    return library(key, text).address("weft_kernel")


def turned_address(op, dtypes, out_dtype, attributes, kinds):
    """The address of a kernel of an op some of whose operands are transposed (eager_turned.py)."""
    names = ",".join(d.name for d in dtypes)
    key = f"eager turned {op.name} {names} {out_dtype.name} {sorted(attributes.items())} {kinds}"
    text = lambda: _turned_text(op, dtypes, out_dtype, attributes, kinds, jit.kernel_target())  # noqa: E731
    return library(key, text).address("weft_kernel")


def across_address(op, dtype, order, lies):
    """The address of a kernel of a reduction on what does not lie in order (eager_across.py)."""
    text = lambda: _across_text(op, dtype, order, lies, jit.kernel_target())  # noqa: E731
    return library(f"eager across {op.name} {dtype.name} {order} {lies}", text).address("weft_kernel")


def lookup_address(how, element, is_single):
    """The address of a kernel that finds rows by an index (eager_kernels.py)."""
    text = lambda: _lookup_text(how, element, is_single, jit.kernel_target())  # noqa: E731
    return library(lookup_key(how, element, is_single), text).address("weft_kernel")


def lookup_key(how, element, is_single):
    return f"eager lookup {how} {element} {is_single}"


def limits_address():
    """The address of a kernel that looks whether integers are within limits (eager_kernels.py)."""
    return library("eager limits", lambda: _limits_text(jit.kernel_target())).address("weft_kernel")


def rule_address(given, steps, written):
    """The address of a kernel of several ops (eager_kernels.py: rule_text)."""
    told = [
        (op.name, sorted(attributes.items()), [d.name for d in types], take) for op, attributes, types, take in steps
    ]
    key = f"eager rule {[(d.name, single) for d, single in given]} {told} {written}"
    text = lambda: _rule_text(given, steps, written, jit.kernel_target())  # noqa: E731
    return library(key, text).address("weft_kernel")


def run_elementwise(op, dtypes, attributes, arrays, out, are_single=()):
    """op on contiguous arrays of out's shape, or of one element, into out."""
    table = (ctypes.c_size_t * (len(arrays) + 1))(*map(address_of, arrays), address_of(out))
    elementwise(op, dtypes, attributes, are_single)(ctypes.addressof(table), out.size)
    return out


# --- sources ----------------------------------------------------------------------------------------------------------
_ELEMENTS_OF_NUMBERS = {int: "i64", float: "f64"}


def has_source_kernel(op, numbers, dtype):
    """Whether there is a kernel for a source of numbers of these classes. Of what has to lose something on the way to
    an integer NumPy's way is its own."""
    floats = float in numbers
    return (
        "positions" in op.traits
        and all(kind in _ELEMENTS_OF_NUMBERS for kind in numbers)
        and (dtype is float32 or dtype is float64 or dtype is int64 and not floats)
    )


def source_address(op, numbers, dtype):
    """The address of the kernel of a source (eager_kernels.py: source_text), the classes of whose numbers are given."""
    elements = [_ELEMENTS_OF_NUMBERS[kind] for kind in numbers]
    attributes = {"shape": (), "dtype": dtype}
    text = lambda: _source_text(op, elements, attributes, jit.kernel_target())  # noqa: E731
    return library(f"eager source {op.name} {elements} {dtype.name}", text).address("weft_kernel")


def run_source(op, numbers, dtype, out):
    """out, of that type, = the op of these numbers."""
    kinds = tuple(map(type, numbers))
    key = "source", op.name, kinds, dtype.name
    function = _functions.get(key)
    if function is None:
        function = _functions[key] = ctypes.PYFUNCTYPE(None, _POINTER, _SIZE)(source_address(op, kinds, dtype))
    given = [ctypes.c_int64(x) if type(x) is int else ctypes.c_double(x) for x in numbers]
    table = (ctypes.c_size_t * (len(given) + 1))(*map(ctypes.addressof, given), address_of(out))
    function(ctypes.addressof(table), out.size)
    return out


# --- reductions -----------------------------------------------------------------------------------------------------
def reduction(op, dtype, outer, n, inner):
    """The kernel that reduces the middle of three dimensions: (kernel, the sizes it takes after the two addresses)."""
    key, text, sizes = _reduction(op, dtype, outer, n, inner)
    return _function(key, text, "weft_kernel", (_POINTER, _POINTER, *(_SIZE,) * len(sizes))), sizes


def reduction_address(op, dtype, outer, n, inner, lying=None):
    """(the address of that kernel, the sizes); lying: the type in memory, if another: one of 16 bits, or bool."""
    key, text, sizes = _reduction(op, dtype, outer, n, inner, lying)
    return library(key, text).address("weft_kernel"), sizes


def _reduction(op, dtype, outer, n, inner, lying=None):
    if dtype.is_complex and inner != 1:
        dtype, inner = dtype.to_real(), 2 * inner
    form, sizes = ("inner", (outer, n)) if inner == 1 else ("outer", (outer, n, inner))
    key = f"eager {op.name} {dtype.name} {form}{f' lying {lying.name}' if lying else ''}"
    return key, lambda: _reduction_text(op, dtype, form, jit.kernel_target(), lying), sizes


# --- matrix product -------------------------------------------------------------------------------------------------
def gemm_address(element):
    """The address of weft_gemm_f32 or weft_gemm_f64."""
    return library(f"gemm {element}", lambda: _routine_text("gemm", element, jit.kernel_target())).address(
        f"weft_gemm_{element}"
    )


def gemv_address(element):
    """The address of weft_gemv_f32 or weft_gemv_f64: any product too, but faster where it has one row or one column."""
    loaded = library(f"gemv {element}", lambda: _routine_text("gemv", element, jit.kernel_target()))
    begin = ctypes.PYFUNCTYPE(None, _POINTER)(loaded.address(f"weft_gemv_{element}_begin"))
    begin(gemm_address(element))
    return loaded.address(f"weft_gemv_{element}")


def grid_address(element):
    """The address of weft_grid_f32 or weft_grid_f64: products over grids."""
    text = lambda: _routine_text("grid", element, jit.kernel_target())  # noqa: E731
    return library(f"grid {element}", text).address(f"weft_grid_{element}")


@cache
def _draw_order():
    text = lambda: _routine_text("draw_order", None, jit.kernel_target())  # noqa: E731
    # Without the interpreter's lock: of millions it takes a while.
    kind = ctypes.CFUNCTYPE(_SIZE, _POINTER, _POINTER, _SIZE, _POINTER)
    return kind(library("draw_order", text).address("weft_draw_order"))


def draw_order(draws):
    """(positions of an array of draws by their first 32 bits, places whose bits are those of the next one)."""
    n = draws.size
    order, scratch = np.empty(n, np.int64), np.empty(2 * n, np.int64)
    found = _draw_order()(address_of(draws), address_of(order), n, address_of(scratch))
    return order, scratch[:found]


_NEEDED = {"gemv": ("gemm",)}  # by a routine: others of its element type


def begin_routines(symbols):
    """Compile the routines that a program calls, if that must be done, while the program itself is compiled. Returns
    the compilations that are under way."""
    keys = []
    for symbol in symbols:
        if symbol not in OF_CPYTHON:
            name, element = symbol.rsplit("_", 1)
            for stem in (name, *_NEEDED.get(name, ())):
                _begin_routine(stem, element)
                keys.append(f"{stem} {element}")
    return [_begun[key] for key in dict.fromkeys(keys) if key in _begun]


def _begin_routine(stem, element):
    key = f"{stem} {element}"
    if key not in _libraries and key not in _begun and default_cache().get(key) is None:
        _begun[key] = jit.begin(_routine_text(stem, element, jit.kernel_target()))


_ROUTINES = {"gemm": gemm_address, "gemv": gemv_address, "grid": grid_address}
# Of the interpreter's, whose lock must be held (not for the last): whether there was an interrupt, and another one;
# letting go of the lock, and taking it.
OF_CPYTHON = {
    SEEN: "PyOS_InterruptOccurred",
    AGAIN: "PyErr_SetInterrupt",
    LET_GO: "PyEval_SaveThread",
    TAKE_AGAIN: "PyEval_RestoreThread",
}


def routine(symbol):
    """The address of a routine that programs call, such as "gemm_f32"."""
    if symbol in OF_CPYTHON:
        return ctypes.cast(getattr(ctypes.pythonapi, OF_CPYTHON[symbol]), ctypes.c_void_p).value
    name, element = symbol.rsplit("_", 1)
    found = _ROUTINES.get(name)
    return _address_of_rows(name, element) if found is None else found(element)


# --- rows from rows (compiler/kernels/library.py: Routine) ------------------------------------------------------------
def _address_of_rows(stem, element):
    text = lambda: _routine_text(stem, element, jit.kernel_target())  # noqa: E731
    return library(f"{stem} {element}", text).address(f"weft_{stem}_{element}")


def routine_address(op, element):
    """The address of the routine of an op on elements of a type."""
    return _address_of_rows(op.kernel.stem, element)


def run_routine(op, arrays, attributes, out):
    """out = op of row-major arrays, of types that it has a routine for."""
    kernel, shapes = op.kernel, tuple(a.shape for a in arrays)
    element, parts = element_of(from_numpy(arrays[0].dtype)), kernel.parts(shapes, attributes)
    key = kernel.stem, element
    function = _functions.get(key)
    if function is None:
        types = [*[_POINTER] * (len(arrays) + 1), *[_SIZE] * len(kernel.whole(shapes, attributes)), _POINTER]
        function = _functions[key] = ctypes.PYFUNCTYPE(None, *types)(_address_of_rows(*key))
    scratch = np.empty(kernel.scratch(element, shapes, attributes), np.uint8)
    if kernel.longest_part_ns(shapes) > LONG_NS:
        function = partial(
            aside, _holding(ctypes.CFUNCTYPE(None, *function.argtypes)(_address_of_rows(*key)), arrays, out, scratch)
        )
    for row, sizes in parts:
        addresses = [address_of(a) + row * a.shape[-1] * a.itemsize if row else address_of(a) for a in (*arrays, out)]
        function(*addresses, *sizes, address_of(scratch))
    return out


def _holding(function, *held):
    """The function, which keeps these alive while it runs."""
    return lambda *args: (function(*args), held)[0]


_GRID_TYPES = (*(_POINTER,) * 4, _SIZE, _SIZE, _POINTER)


def run_grid_product(op, arrays, attributes, out):
    """out = op of row-major arrays of its type."""
    element, kernel = element_of(from_numpy(out.dtype)), op.kernel
    function = _functions.get(("grid", element))
    if function is None:
        function = _functions["grid", element] = ctypes.PYFUNCTYPE(None, *_GRID_TYPES)(grid_address(element))
    how = tuple([array.shape for array in arrays]), out.shape, tuple(attributes.items()), out.itemsize
    words, scratch_bytes, units, each = _facts_of_grid_product(op, *how)
    scratch = np.empty(scratch_bytes, np.uint8)
    a, b = (address_of(arrays[k]) for k in kernel.order)
    for first in range(0, units, each):
        some = min(each, units - first)
        function(a, b, address_of(out), address_of(words), first, some, address_of(scratch))
    return out


@lru_cache(256)
def _facts_of_grid_product(op, shapes, shape, attributes, item_bytes):
    """(words, bytes of scratch memory, units, how many of them at once): finding them takes longer than a small
    convolution."""
    products = op.kernel.products_of([Meta(x, None) for x in shapes], shape, dict(attributes), item_bytes)
    units = products.units(item_bytes)
    each = max(1, units * _MOST_AT_ONCE * 2 // max(products.flops, 1))
    return np.array(products.words(item_bytes), np.int64), products.scratch_bytes, units, each


_GEMM_TYPES = (_POINTER, _SIZE, _SIZE, _POINTER, _SIZE, _SIZE, _POINTER, _SIZE, _SIZE, _SIZE, _SIZE, _POINTER)


def product_address(dtype, shape):
    """The address of the kernel of `product`, or of the same of integers."""
    if dtype.kind == "i":
        element = element_of(from_numpy(dtype))
        text = lambda: _routine_text("integers", element, jit.kernel_target())  # noqa: E731
        return library(f"integers {element}", text).address(f"weft_integers_{element}")
    element = "f32" if dtype == np.float32 else "f64"
    find = gemv_address if 1 in shape[-2:] else gemm_address
    return find(element)


@cache
def packing_address():
    """That of memory in which products of any size may pack their operands, one at a time: native code of eager mode,
    which keeps the interpreter's lock meanwhile."""
    n_bytes = max(_scratch_bytes(e, _ANY_SIZE, _ANY_SIZE, jit.kernel_target()) for e in ("f32", "f64"))
    _packing.append(np.empty(n_bytes + 64, np.uint8))
    return (address_of(_packing[0]) + 63) & ~63


_ANY_SIZE, _packing = 1 << 30, []


def product(dtype, shape, k):
    """(kernel, bytes of scratch memory it needs) for matrices of this type whose product has this shape, k terms each.
    Takes address, row stride and column stride in elements of both; address and row stride of the result; m, n, k;
    the address of the scratch memory, a multiple of 64."""
    element = "f32" if dtype == np.float32 else "f64"
    find = gemv_address if 1 in shape[-2:] else gemm_address
    function = _functions.get((find, element))
    if function is None:
        function = _functions[find, element] = ctypes.PYFUNCTYPE(None, *_GEMM_TYPES)(find(element))
    return function, _scratch_bytes(element, shape[-1], k, jit.kernel_target()) + 64


# Products are computed in stretches of so many multiplications, so that Ctrl-C need not wait for all of it; others may
# use the interpreter meanwhile if there are as many as take far longer than to get it back.
_MOST_AT_ONCE, _MANY = 1 << 28, 1 << 20
# A stretch of one product has as many columns as fill whole panels, and so many rows that copying these costs little.
_PANEL, _FEWEST_ROWS = 64, 1024


def is_long(shape, k):
    """Whether products of this shape, k terms each, are computed in stretches, by `run_gemm`."""
    return prod(shape) * k > _MOST_AT_ONCE


def _stretches(m, n, k):
    """(first row, first column, rows, columns) of the stretches of a product."""
    columns = min(n, max(_PANEL, _MOST_AT_ONCE // max(1, m * k) // _PANEL * _PANEL))
    rows = min(m, max(_FEWEST_ROWS, _MOST_AT_ONCE // max(1, columns * k)))
    for i in range(0, m, rows):
        for j in range(0, n, columns):
            yield i, j, min(rows, m - i), min(columns, n - j)


def run_gemm(x, y, out):
    """out = x @ y for stacks of matrices (batch, rows, columns); x and y may be strided."""
    size = out.itemsize
    count, m, n, k = *out.shape, x.shape[-1]
    function, n_bytes = product(out.dtype, out.shape, k)
    scratch = np.empty(n_bytes, np.uint8)
    scratch_address = (address_of(scratch) + 63) & ~63
    x_strides, y_strides = [s // size for s in x.strides], [s // size for s in y.strides]
    x_data, y_data, out_data = address_of(x), address_of(y), address_of(out)
    if count == 1 or m * n * k > _MOST_AT_ONCE:
        for b in range(count):
            for i, j, rows, columns in _stretches(m, n, k):
                function(
                    x_data + b * x.strides[0] + i * x.strides[1],
                    *x_strides[1:],
                    y_data + b * y.strides[0] + j * y.strides[2],
                    *y_strides[1:],
                    out_data + b * out.strides[0] + i * out.strides[1] + j * out.strides[2],
                    out.strides[1] // size,
                    rows,
                    columns,
                    k,
                    scratch_address,
                )
        return
    address = ctypes.cast(function, _POINTER).value
    steps = x.strides[0], y.strides[0], out.strides[0]
    each = max(1, m * n * k)
    at_once = max(1, _MOST_AT_ONCE // each)
    for first in range(0, count, at_once):
        part = min(at_once, count - first)
        _products(part * each > _MANY)(
            address,
            part,
            *steps,
            x_data + first * steps[0],
            *x_strides[1:],
            y_data + first * steps[1],
            *y_strides[1:],
            out_data + first * steps[2],
            n,
            m,
            n,
            k,
            scratch_address,
        )


def _products(lets_go):
    """The function of a batch of products; lets_go: of the interpreter meanwhile."""
    function = _functions.get(("products", lets_go))
    if function is None:
        text = lambda: _routine_text("products", None, jit.kernel_target())  # noqa: E731
        kind = ctypes.CFUNCTYPE if lets_go else ctypes.PYFUNCTYPE
        made = kind(None, _POINTER, *(_SIZE,) * 4, *_GEMM_TYPES)(library("products", text).address("weft_products"))
        function = _functions["products", lets_go] = made
    return function
