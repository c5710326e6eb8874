"""Kernels with extents known only at run time: eager mode's transcendental functions and reductions, one op each, and
rules of several elementwise ops, by which optimizers write. And the routines that programs call.

They use the emitters of compiled kernels (op table, emit/reduce.py), so results agree bit for bit.
"""

from contextlib import ExitStack

from .dtypes import DType, bool_, element_of, float32
from .eager_forms import ADD, GET, N_LOOPS, NUMBER, STRIDED, looks_at
from .emit.builder import I64, PTR, Builder, Module, Reg, Type
from .emit.halves import FLOAT16, Half, half_in_memory, widened_together
from .emit.pairs import apart, given_pair, store_pair
from .emit.reduce import reduce_columns, reduce_row
from .kernels.library import ROUTINES
from .later import later
from .ops.table import Meta
from .target import WIDEST

_draw_order = later("compiler.emit.draw_order:emit_draw_order")
_gemm, _gemv = later("compiler.emit.gemm:emit_gemm"), later("compiler.emit.gemv:emit_gemv")
_grid = later("compiler.emit.grid_product:emit_grid_product")
_integers = later("compiler.emit.integer_product:emit_integer_product")
_products = later("compiler.emit.product_batch:emit_product_batch")
# Column sums take this many vectors of columns at once, then single ones.
_CHUNK = 8


def elementwise_text(op, dtypes, attributes, target=WIDEST, single=(), in_rows=False, lying=()):
    """`void @weft_kernel(ptr table, i64 n)`: op on n contiguous elements.

    The table holds the addresses of the operands, which have the types `dtypes`, then of the result. `single` says for
    each operand, if for any, whether it is one ELEMENT of its type for all, or one NUMBER, an f64 that is converted to
    its type, or a PAIR of these, which is a complex one, or STRIDED: then the table says after the result, in the
    operand's place, how many elements apart they are. None is for elements in a row. One more STRIDED at the end says
    the same of the result.

    in_rows: for every row of two loops, of which the table says after the places of these strides, the outer one first:
    its extent, and how many bytes one turn moves each of the addresses.

    Of an op that checks what it is given, the address of a word (i64) follows the result: 1 if it fails, else 0.

    lying: the types of the operands and of the result in memory, where floats of 16 bits are among them: these are
    computed with as float32. A NUMBER is rounded to such a type."""
    module = _module_of([op], target, lying)
    lower = op.on_complex.lower if is_on_parts(op, dtypes, attributes) else op.lower
    elements = [element_of(d.to_real()) for d in dtypes]
    # A vector of truths in a row is as long in memory as one of anything else.
    are_bytes = not any(single) and _is_of_truths(op, dtypes, attributes)
    lanes = target.lanes_of_truths if are_bytes else min(_lanes(e, target) for e in elements)
    b = Builder(module, "weft_kernel", [("table", PTR), ("n", I64)])
    table, n = b.arguments
    count, checks = len(elements), looks_at(op, dtypes)
    n_places = count + 1 + checks
    pointers = [b.load(b.offset(table, k, 8), PTR) for k in range(n_places)]
    single = single or [None] * count
    word = lambda k: b.load(b.offset(table, k, 8), I64)  # noqa: E731
    strides = [b.splat(word(n_places + k), lanes) if one == STRIDED else None for k, one in enumerate(single)]
    if checks:
        b.store(b.const(0, I64), pointers[-1])
    *memory, into = [half_in_memory(d) for d in lying] or [None] * (count + 1)
    apart = strides[count] if len(single) > count else None

    def row(pointers):
        operands = zip(pointers, elements, single, strides, memory)
        given = [
            (given_pair if d.is_complex else _given)(b, p, e, lanes, one, stride, half)
            for d, (p, e, one, stride, half) in zip(dtypes, operands)
        ]

        def body(j, mask):
            operands, fails = [one(j, mask) for one in given], {}
            if checks:
                fails["fail"] = lambda bad: _note(b, bad, mask, pointers[-1])
            operands = _widened(b, operands, memory) if lying else operands
            _store(b, lower(b, *operands, **fails, **attributes), pointers[count], j, mask, into, apart)
            return []

        reduce_row(b, n, lanes, [], body)

    if in_rows:
        first, n_words = n_places + len(single), n_places + 1
        outer, inner = ([word(at + k) for k in range(n_words)] for at in (first, first + n_words))
        with b.loop(0, outer[0], 1) as i:
            starts = _moved(b, pointers, i, outer[1:])
            with b.loop(0, inner[0], 1) as j:
                row(_moved(b, starts, j, inner[1:]))
    else:
        row(pointers)
    b.finish()
    return str(module)


def _is_of_truths(op, dtypes, attributes):
    """Whether the op makes truths of truths."""
    if not all(d is bool_ for d in dtypes):
        return False
    return op.infer([Meta((), d) for d in dtypes], attributes, float32).dtype is bool_


def _module_of(ops, target, lying=()):
    """A module of one kernel, of these ops on elements. To convert floats of 16 bits takes longer than to read them."""
    module = Module(target)
    if all(op.cost != "function" for op in ops) and not lying:
        module.mostly_move.add("weft_kernel")
    return module


def is_on_parts(op, dtypes, attributes):
    """Whether the op computes complex numbers, or makes some of others."""
    return op.lower is None or any(d.is_complex for d in (*dtypes, *attributes.values()) if d.__class__ is DType)


def _note(b, bad, mask, flag):
    """Where something is bad that counts, the word says so."""
    with b.when(b.any_lane(b.and_(bad, mask) if mask is not None else bad)):
        b.store(b.const(1, I64), flag)


def _moved(b, pointers, turns, steps):
    """The addresses after so many turns of a loop that moves them by these bytes."""
    return [b.offset(p, b.mul(turns, step), 1) for p, step in zip(pointers, steps)]


def lookup_text(how, element, is_single, target=WIDEST):
    """`void @weft_kernel(ptr table, ptr rows, ptr index, i64 ...)`: rows that an index finds in a table.

    The numbers: the extents of three loops; how many bytes a turn of each moves the table, the rows and the index; of
    how many elements a row is (1 if `is_single`), and how many bytes one more of the index moves the table. GET copies
    to the rows what the index finds, PUT copies the rows there, ADD adds them to it, in the order of the loops."""
    module = Module(target)
    stems = ("extent", "in_table", "in_rows", "in_index")
    numbers = [(f"{stem}{k}", I64) for stem in stems for k in range(N_LOOPS)]
    arguments = [(name, PTR) for name in ("table", "rows", "index")]
    b = Builder(module, "weft_kernel", [*arguments, *numbers, ("n", I64), ("each", I64)])
    starts, extents, steps, (n, each) = b.arguments[:3], b.arguments[3:6], b.arguments[6:15], b.arguments[15:]
    with ExitStack() as loops:
        for k, extent in enumerate(extents):
            _, loop = loops.enter_context(b.loop(0, extent, 1, starts))
            starts = loop.values
            loop.next([b.offset(p, step, 1) for p, step in zip(starts, steps[k::3])])
        table, rows, index = starts
        found = b.offset(table, b.mul(b.load(index, I64), each), 1)
        _take_row(b, how, element, found, rows, 1 if is_single else n)
    b.finish()
    return str(module)


def _take_row(b, how, element, found, rows, n):
    """One row of a lookup."""
    source, into = (found, rows) if how == GET else (rows, found)
    lanes = 0 if isinstance(n, int) else _lanes(element, b.module.target)
    t = Type(element, lanes)

    def body(j, mask):
        there, x = (b.offset(p, j, t.element_bytes) for p in (into, source))
        x = b.load(x, t, mask)
        b.store(b.add(b.load(there, t, mask), x) if how == ADD else x, there, mask)
        return []

    if lanes:
        reduce_row(b, n, lanes, [], body)
    else:
        body(0, None)


def limits_text(target=WIDEST):
    """`void @weft_kernel(ptr x, ptr found, i64 n, i64 lowest, i64 highest)`: whether any of n integers (i64) in a row
    is beyond these limits, as 1 or 0 (i64)."""
    module, lanes = Module(target), _lanes("i64", target)
    parameters = [("x", PTR), ("found", PTR), ("n", I64), ("lowest", I64), ("highest", I64)]
    b = Builder(module, "weft_kernel", parameters)
    x, found, n, *limits = b.arguments
    lowest, highest = [b.splat(one, lanes) for one in limits]
    b.store(b.const(0, I64), found)

    def body(j, mask):
        index = _load(b, x, j, "i64", lanes, mask)
        _note(b, b.or_(b.cmp("lt", index, lowest), b.cmp("gt", index, highest)), mask, found)
        return []

    reduce_row(b, n, lanes, [], body)
    b.finish()
    return str(module)


def source_text(op, elements, attributes, target=WIDEST):
    """`void @weft_kernel(ptr table, i64 n)`: n elements made from their positions and from numbers.

    The table holds the addresses of the numbers, which are of these elements (i64 or f64), then of the result."""
    module = Module(target)
    lanes = min(_lanes(e, target) for e in (element_of(attributes["dtype"]), "i64"))
    b = Builder(module, "weft_kernel", [("table", PTR), ("n", I64)])
    table, n = b.arguments
    pointers = [b.load(b.offset(table, k, 8), PTR) for k in range(len(elements) + 1)]
    numbers = [b.splat(b.load(p, Type(e)), lanes) for p, e in zip(pointers, elements)]

    def body(j, mask):
        positions = b.add(b.iota(Type("i64", lanes)), b.splat(j if isinstance(j, Reg) else b.i64(j), lanes))
        _store(b, op.lower(b, positions, *numbers, **attributes), pointers[-1], j, mask)
        return []

    reduce_row(b, n, lanes, [], body)
    b.finish()
    return str(module)


def rule_text(given, steps, written, target=WIDEST):
    """`void @weft_kernel(ptr table, i64 n)`: elementwise ops on n contiguous elements, one after the other.

    given: (type, what of `single` it is) of what the table holds the addresses of. steps: (op, attributes, types that
    it computes with, numbers of its operands); values are numbered from what is given on. written: (number of a value,
    which of the given it is written over): a vector of all that is given was read before."""
    module = _module_of([op for op, *_ in steps], target)
    elements = [element_of(d) for d, _ in given] + [element_of(d) for _, _, types, _ in steps for d in types]
    lanes = min(_lanes(e, target) for e in elements)
    b = Builder(module, "weft_kernel", [("table", PTR), ("n", I64)])
    table, n = b.arguments
    pointers = [b.load(b.offset(table, k, 8), PTR) for k in range(len(given))]
    readers = [_given(b, p, element_of(d), lanes, one) for p, (d, one) in zip(pointers, given)]

    def body(j, mask):
        values = [read(j, mask) for read in readers]
        for op, attributes, types, take in steps:
            operands = [b.convert(values[k], element_of(d)) for k, d in zip(take, types)]
            values.append(op.lower(b, *operands, **attributes))
        for number, k in written:
            _store(b, values[number], pointers[k], j, mask)
        return []

    reduce_row(b, n, lanes, [], body)
    b.finish()
    return str(module)


def reduction_text(op, dtype, form, target=WIDEST, lying=None):
    """`form` "inner": `void @weft_kernel(ptr x, ptr out, i64 outer, i64 n)`, x (outer, n) -> out (outer);
    "outer": `void @weft_kernel(ptr x, ptr out, i64 outer, i64 n, i64 inner)`, x (outer, n, inner) -> (outer, inner).
    lying: the type of x in memory, if that is of 16 bits, where float32 is computed with, or bool, where int64 is.
    Of complex numbers both parts are reduced, each for itself. Their form is "inner": in "outer" they are real ones."""
    module = Module(target)
    if dtype.is_complex:
        _inner_of_pairs(module, op, element_of(dtype.to_real()))
        return str(module)
    lies = _BOOL if lying is bool_ else half_in_memory(lying)
    (_inner if form == "inner" else _outer)(module, op, element_of(dtype), lies)
    return str(module)


# Truth as numbers: bytes that are 0 or 1.
_BOOL = Half(lambda b, x: x, None, "i8")


def routine_text(stem, element, target=WIDEST):
    """The routine that programs and eager mode call by this stem: "gemm", "gemv", "grid", "integers" (their
    products), or an op's (ROUTINES); or "products", which calls the first two for a batch; or "draw_order", which
    permutations are made with."""
    module = Module(target)
    products = {"gemm": _gemm, "gemv": _gemv}
    if stem in products:
        products[stem](module, element, target)
    elif stem == "products":
        _products(module)
    elif stem == "integers":
        _integers(module, element)
    elif stem == "grid":
        _grid(module, element)
    elif stem == "draw_order":
        _draw_order(module)
    else:
        ROUTINES[stem].emit(module, element)
    return str(module)


def _lanes(element, target):
    return target.lanes({"i32" if element == "i1" else element})


def _memory(element):
    return "i8" if element == "i1" else element


def _load(b, pointer, j, element, lanes, mask, half=None):
    """Elements from j on, as `element`; `half`: what floats of 16 bits they are in memory."""
    t = Type(half.memory if half else _memory(element), lanes)
    x = b.load(b.offset(pointer, j, t.element_bytes), t, mask)
    return b.convert(half.widened(b, x) if half else x, element)


def _given(b, pointer, element, lanes, one, stride=None, half=None):
    """A function that gives an operand's vector from element j on; of 16 bits as in memory, if it is no splat."""
    if one is None:
        return lambda j, mask: _load(b, pointer, j, half.memory if half else element, lanes, mask)
    if one == STRIDED:
        return _strided(b, pointer, element, lanes, stride, half)
    if one == NUMBER:
        number = b.load(pointer, Type("f64"))
        number = half.rounded(b, b.convert(number, "f32")) if half else number
        loaded = b.splat(b.convert(number, element), lanes)
    else:
        loaded = b.splat(_load(b, pointer, 0, element, 0, None, half), lanes)
    return lambda j, mask: loaded


def _widened(b, operands, halves):
    """The operands as they are computed with."""
    widths = [half if x.type.element == "i16" else None for x, half in zip(operands, halves)]
    together = [x for x, half in zip(operands, widths) if half is FLOAT16]
    found = iter(widened_together(b, together) if together else ())
    each = zip(operands, widths)
    return [next(found) if half is FLOAT16 else half.widened(b, x) if half else x for x, half in each]


def _strided(b, pointer, element, lanes, stride, half):
    t = Type("i16" if half else _memory(element), lanes)

    def load(j, mask):
        x = b.gather(pointer, apart(b, j, stride, lanes), t, mask)
        return x if half else b.convert(x, element)

    return load


def _store(b, x, pointer, j, mask, half=None, stride=None):
    if x.__class__ is tuple:
        store_pair(b, x, pointer, j, mask, stride)
        return
    x = half.narrowed(b, b.convert(x, "f32")) if half else b.convert(x, _memory(x.type.element))
    if stride is None:
        b.store(x, b.offset(pointer, j, x.type.element_bytes), mask)
    elif mask is not None:
        b.scatter(x, pointer, apart(b, j, stride, x.type.lanes), mask)
    else:
        places = apart(b, j, stride, x.type.lanes)
        for k in range(x.type.lanes):
            place = b.offset(pointer, b.extract(places, k), x.type.element_bytes)
            b.store(b.extract(x, k), place)


def _inner(module, op, element, half):
    b = Builder(module, "weft_kernel", [("x", PTR), ("out", PTR), ("outer", I64), ("n", I64)])
    x, out, outer, n = b.arguments
    lanes, size = _lanes(element, module.target), Type(half.memory if half else _memory(element)).element_bytes
    computed, widen, narrow = _as_numbers(op, element)
    with b.loop(0, outer, 1) as i:
        row = b.offset(x, b.mul(i, n), size)

        def body(j, mask):
            return [widen(b, _load(b, row, j, element, lanes, mask, half))]

        (result,) = reduce_row(b, n, lanes, [(op, Type(computed, lanes))], body)
        _store(b, b.extract(narrow(b, result), 0), out, i, None)
    b.finish()


def _inner_of_pairs(module, op, element):
    b = Builder(module, "weft_kernel", [("x", PTR), ("out", PTR), ("outer", I64), ("n", I64)])
    x, out, outer, n = b.arguments
    t = Type(element, _lanes(element, module.target))
    with b.loop(0, outer, 1) as i:
        given = given_pair(b, b.offset(x, b.mul(i, n), 2 * t.element_bytes), element, t.lanes, None)
        results = reduce_row(b, n, t.lanes, [(op, t)] * 2, lambda j, mask: list(given(j, mask)))
        place = b.offset(out, i, 2 * t.element_bytes)
        for k, result in enumerate(results):
            b.store(b.extract(result, 0), b.offset(place, k, t.element_bytes))
    b.finish()


def _outer(module, op, element, half):
    parameters = [("x", PTR), ("out", PTR), ("outer", I64), ("n", I64), ("inner", I64)]
    b = Builder(module, "weft_kernel", parameters)
    x, out, outer, n, inner = b.arguments
    lanes, size = _lanes(element, module.target), Type(_memory(element)).element_bytes
    size_there = Type(half.memory).element_bytes if half else size
    computed, widen, narrow = _as_numbers(op, element)
    matrix_size = b.mul(n, inner)
    wide = _CHUNK * lanes

    def chunk(matrix, target, first, masks):
        def body(row, state):
            start = b.offset(matrix, b.add(b.mul(row, inner), first), size_there)
            loaded = [_load(b, start, k * lanes, element, lanes, mask, half) for k, mask in enumerate(masks)]
            return [op.lower.step(b, s, widen(b, v)) for s, v in zip(state, loaded)]

        columns = [(op, Type(computed, lanes))] * len(masks)
        for k, (mask, total) in enumerate(zip(masks, reduce_columns(b, n, columns, body))):
            _store(b, narrow(b, total), b.offset(target, first, size), k * lanes, mask)

    with b.loop(0, outer, 1) as i:
        matrix = b.offset(x, b.mul(i, matrix_size), size_there)
        target = b.offset(out, b.mul(i, inner), size)
        whole = b.sub(inner, b.rem(inner, b.i64(wide)))
        with b.loop(0, whole, wide) as first:
            chunk(matrix, target, first, [None] * _CHUNK)
        with b.loop(whole, inner, lanes) as first:
            chunk(matrix, target, first, [b.lane_mask(first, inner, lanes)])
    b.finish()


def _as_numbers(op, element):
    """(element computed with, conversion to it, conversion back): orders of bools are those of 0 and 1."""
    if element != "i1" or op.lower.identity is not None:
        return element, lambda b, x: x, lambda b, x: x
    return "i32", lambda b, x: b.convert(x, "i32"), lambda b, x: b.convert(x, "i1")
