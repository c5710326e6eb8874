"""The IR text of what a usual call does with Python objects: native.py binds it, frame_usual.py says what it means.

Each function is a builtin method of CPython (METH_FASTCALL) whose `self` is a NumPy array of words:

    PyObject *weft_apply(PyObject *self, PyObject **args, Py_ssize_t n)

It does the whole thing or nothing: where a comparison fails it calls the Python method that does the same, with the
same arguments (a word from SLOW on). References are counted by calls into CPython, because some objects count none.
"""

from typing import NamedTuple

from ..compiler.emit.builder import F64, I32, I64, PTR, Builder, Module, Reg


class Layout(NamedTuple):
    """Where CPython and NumPy keep things, in bytes from an object's start."""

    type: int
    size: int
    tuple_items: int
    list_items: int
    dict_used: int
    array_data: int
    array_ndim: int
    array_shape: int
    array_base: int
    array_dtype: int
    array_flags: int
    weak_references: int
    data: int
    frame: int
    vid: int
    requires_grad: int
    grad: int
    node: int
    accumulator: int
    storage: int
    base: int
    meta: int
    version: int
    sharers: int


# The words of a function's `self`.
K, ENTRIES, N_ENTRIES, TENSORS, NUMBERS, CHANGED_GRADIENTS, FRAME = range(7)
ARGUMENTS, N_ARGUMENTS, OWNERS, N_OWNERS, EXPECTED, N_EXPECTED, RESULTS, N_RESULTS, LIVE, N_LIVE = range(7, 17)
STATE, MODE_NAME, DTYPE_NAME, HOMES_NAME, MODE_AT_START, DTYPE_AT_START, BACKWARD = range(17, 24)
NONE, TRUE, FALSE, TUPLE, LIST, DICT, TENSOR, ARRAY = range(24, 32)
KINDS = 32  # and two more: the types of Python numbers, bool, int, float
SLOW = 35  # and more: per function the Python method that does the same
PROGRAM, TABLE, ARENA, ARENA_BYTES, SCALARS, SCALARS_FROM, N_SCALARS, CHANGING, N_CHANGING = range(40, 49)
NEW_ARRAY = 49  # NumPy's PyArray_NewFromDescr
API = 50
FUNCTIONS = (
    "PyObject_GetAttr", "PyObject_SetAttr", "PyObject_RichCompareBool", "PyObject_VectorcallDict", "PyList_Append",
    "PyErr_Clear", "Py_IncRef", "Py_DecRef", "PyLong_FromLongLong", "PyLong_AsLongLong", "PyType_GenericAlloc",
    "PyFloat_AsDouble", "PyLong_AsUnsignedLongLongMask",
)  # fmt: skip
N_WORDS = API + len(FUNCTIONS)
METHODS = ("begin", "apply", "backward_again", "update", "run")

# The words of an entry. OP is 0 for entries that Python compares; of an update it is the rule, of a backward the word
# for it. STORAGES and N_STORAGES of a backward are the (leaf, gradient) numbers, HOMES what undoes it.
OP, ATTRIBUTES, MODE, N_OPERANDS, OPERANDS, VID, HAS_NUMBERS, ROW_LENGTH, STORAGES, N_STORAGES, HOMES = range(11)
ENTRY_WORDS = 16
ARGUMENT_WORDS = 5  # dtype, or 0 for what is no tensor; flag; number of dimensions; their address; its owner
EXPECTED_WORDS = 3  # tensor, array, flag
RESULT_WORDS = 2  # number, whether it is alive
SCALAR_WORDS = 2  # position among the numbers, whether it is a float
CHANGING_WORDS = 2  # word of the program's table, number
# The words of a result: its number, also as an object, meta, flag; whether its frame becomes the ended call, not None;
# its word in the table; its array's dtype and shape; a list of the last two arrays, and the one chosen now.
IS_ENDED, TABLE_WORD, DTYPE, NDIM, SHAPE, POOL, CHOSEN = range(4, 11)
LIVE_WORDS = 11
_NULL = Reg("null", PTR)


class Function:
    """One builtin while it is written."""

    def __init__(self, module, name, layout):
        arguments = [("self", PTR), ("args", PTR), ("count", I64)]
        self.b = b = Builder(module, f"weft_{name}", arguments, result="ptr")
        self.name, self.layout = name, layout
        self.words = b.load(b.offset(b.arguments[0], layout.array_data, 1), PTR)
        self.slow = b.label("slow")

    def word(self, k, type=PTR):
        return self.load(self.words, 8 * k, type)

    def load(self, pointer, offset, type=PTR):
        return self.b.load(self.b.offset(pointer, offset, 1), type)

    def store(self, value, pointer, offset):
        self.b.store(value, self.b.offset(pointer, offset, 1))

    def item(self, items, index, type=PTR):
        return self.b.load(self.b.offset(items, index, 8), type)

    def argument(self, k):
        return self.load(self.b.arguments[1], 8 * k)

    def require(self, condition):
        """Go the slow way unless the condition holds."""
        following = self.b.label("following")
        self.b.branch_if(condition, following, self.slow)
        self.b.start(following)

    def same(self, x, y):
        self.require(self.b.cmp("eq", x, y))

    def require_type(self, x, word):
        self.same(self.load(x, self.layout.type), self.word(word))

    def python(self, name, operands, result=PTR):
        """Call a function of CPython."""
        return self.b.call(result, self.word(API + FUNCTIONS.index(name)), operands)

    def keep(self, x):
        self.python("Py_IncRef", [x], "void")
        return x

    def assign(self, x, pointer, offset):
        """A reference to x in a slot, in place of what is there."""
        before = self.load(pointer, offset)
        self.store(self.keep(x), pointer, offset)
        self.python("Py_DecRef", [before], "void")

    def tensor_items(self):
        return self.load(self.word(TENSORS), self.layout.list_items)

    def entry(self):
        return self.b.offset(self.word(ENTRIES), self.word(K, I64), 8 * ENTRY_WORDS)

    def require_state(self, name, expected):
        """The thread's gradient mode or default dtype is what it was."""
        mode = self.python("PyObject_GetAttr", [self.word(STATE), self.word(name)])
        self.require(self.b.cmp("ne", mode, _NULL))
        self.python("Py_DecRef", [mode], "void")
        self.same(mode, expected)

    def require_mode(self, entry):
        self.require_state(MODE_NAME, self.load(entry, 8 * MODE))

    def require_leaf(self, tensor, flag):
        self.same(self.load(tensor, self.layout.requires_grad), flag)
        self.same(self.load(tensor, self.layout.node), self.word(NONE))
        self.same(self.load(tensor, self.layout.frame), self.word(NONE))

    def is_unshared(self, x):
        """Whether an object has one reference."""
        return self.b.cmp("eq", self.load(x, 0, I32), self.b.const(1, I32))

    def append(self, word, x):
        """Append to a list; an error is passed on."""
        failed = self.b.cmp("ne", self.python("PyList_Append", [self.word(word), x], I32), self.b.const(0, I32))
        with self.b.when(failed):
            self.b.lines.append("  ret ptr null")
            self.b.start(self.b.label("unreachable"))

    def require_equal_dicts(self, x, y):
        self.require_type(x, DICT)
        b, used = self.b, self.layout.dict_used
        sizes = b.or_(self.load(x, used, I64), self.load(y, used, I64))
        with b.when(b.cmp("ne", sizes, b.i64(0))):
            equal = self.python("PyObject_RichCompareBool", [x, y, b.const(2, I32)], I32)  # 2: Py_EQ
            self.same(equal, b.const(1, I32))

    def require_operands(self, items, codes, n, tensors):
        """n tensors or numbers are those of the codes."""
        b = self.b
        with b.loop(0, n, 1) as i:
            code, x = self.item(codes, i, I64), self.item(items, i)
            is_number = b.cmp("lt", code, b.i64(0))
            kind = self.item(self.words, b.add(b.select(is_number, b.neg(code), b.i64(1)), b.i64(KINDS - 1)))
            expected = self.item(tensors, b.select(is_number, b.i64(0), code))
            found = b.select(is_number, self.load(x, self.layout.type), x)
            self.same(found, b.select(is_number, kind, expected))

    def advance(self):
        self.store(self.b.add(self.word(K, I64), self.b.i64(1)), self.words, 8 * K)

    def finish(self, result):
        """Return `result`; and the slow way."""
        b = self.b
        b.lines.append(f"  ret {result}")
        b.start(self.slow)
        self.python("PyErr_Clear", [], "void")
        method = self.word(SLOW + METHODS.index(self.name))
        b.finish(self.python("PyObject_VectorcallDict", [method, b.arguments[1], b.arguments[2], _NULL]))


def text(layout):
    """The module with all functions."""
    module = Module()
    for write in (_begin, _apply, _backward_again, _update, _run):
        write(module, layout)
    return str(module)


def _begin(module, layout):
    """begin(arguments): they are like those of the last call, and what is expected from outside is as it was."""
    f = Function(module, "begin", layout)
    b = f.b
    f.require_state(MODE_NAME, f.word(MODE_AT_START))
    f.require_state(DTYPE_NAME, f.word(DTYPE_AT_START))
    items = b.offset(f.argument(0), layout.tuple_items, 1)
    records, n = f.word(ARGUMENTS), f.word(N_ARGUMENTS, I64)
    with b.loop(0, n, 1) as i:
        record, x = b.offset(records, i, 8 * ARGUMENT_WORDS), f.item(items, i)
        is_tensor = b.cmp("ne", f.load(record, 0, I64), b.i64(0))
        with b.when(is_tensor):
            _require_argument(f, record, x, records, i)
        with b.when(b.not_(is_tensor)):
            kind = f.load(x, layout.type)
            simple = [b.cmp("eq", kind, f.word(KINDS + k)) for k in range(3)] + [b.cmp("eq", x, f.word(NONE))]
            f.require(b.or_(b.or_(simple[0], simple[1]), b.or_(simple[2], simple[3])))
    expected = f.word(EXPECTED)
    with b.loop(0, f.word(N_EXPECTED, I64), 1) as i:
        record = b.offset(expected, i, 8 * EXPECTED_WORDS)
        tensor = f.load(record, 0)
        f.same(f.load(tensor, layout.data), f.load(record, 8))
        f.require_leaf(tensor, f.load(record, 16))
    tensors = f.tensor_items()
    with b.loop(0, n, 1, [b.i64(0)]) as (i, place):
        (number,) = place.values
        is_tensor = b.cmp("ne", f.load(b.offset(records, i, 8 * ARGUMENT_WORDS), 0, I64), b.i64(0))
        with b.when(is_tensor):
            f.assign(f.item(items, i), b.offset(tensors, number, 8), 0)
        place.next([b.add(number, b.convert(is_tensor, "i64"))])
    f.store(b.i64(0), f.words, 8 * K)
    f.finish(f.keep(f.word(TRUE)))


def _require_argument(f, record, x, records, i):
    """A leaf on a contiguous array of its own of the shape and dtype in the record."""
    b, layout = f.b, f.layout
    f.require_type(x, TENSOR)
    array = f.load(x, layout.data)
    f.require_type(array, ARRAY)
    f.require_leaf(x, f.load(record, 8))
    f.same(f.load(array, layout.array_dtype), f.load(record, 0))
    contiguous = b.and_(f.load(array, layout.array_flags, I32), b.const(1, I32))  # 1: NPY_ARRAY_C_CONTIGUOUS
    f.same(contiguous, b.const(1, I32))
    ndim = b.convert(f.load(array, layout.array_ndim, I32), "i64")
    f.same(ndim, f.load(record, 16, I64))
    shape, expected = f.load(array, layout.array_shape), f.load(record, 24)
    with b.loop(0, ndim, 1) as axis:
        f.same(f.item(shape, axis, I64), f.item(expected, axis, I64))
    base = f.load(array, layout.array_base)
    owner = b.select(b.cmp("eq", base, _NULL), array, base)
    f.store(owner, record, 32)
    with b.loop(0, i, 1) as k:
        f.require(b.cmp("ne", owner, f.load(b.offset(records, k, 8 * ARGUMENT_WORDS), 32)))
    owners = f.word(OWNERS)
    with b.loop(0, f.word(N_OWNERS, I64), 1) as k:
        f.require(b.cmp("ne", owner, f.item(owners, k)))


def _apply(module, layout):
    """apply(op, operands, attributes): the tensor made for the result, if the op is the expected one."""
    f = Function(module, "apply", layout)
    b = f.b
    entry, operands, attributes = f.entry(), f.argument(1), f.argument(2)
    f.same(f.argument(0), f.load(entry, 8 * OP))
    f.require_type(operands, TUPLE)
    n = f.load(operands, layout.size, I64)
    f.same(n, f.load(entry, 8 * N_OPERANDS, I64))
    f.require_equal_dicts(attributes, f.load(entry, 8 * ATTRIBUTES))
    f.require_mode(entry)
    items, codes, tensors = b.offset(operands, layout.tuple_items, 1), f.load(entry, 8 * OPERANDS), f.tensor_items()
    f.require_operands(items, codes, n, tensors)
    with b.when(b.cmp("ne", f.load(entry, 8 * HAS_NUMBERS, I64), b.i64(0))):
        _append_numbers(f, items, codes, n)
    f.advance()
    f.finish(f.keep(f.item(tensors, f.load(entry, 8 * VID, I64))))


def _append_numbers(f, items, codes, n):
    with f.b.loop(0, n, 1) as i, f.b.when(f.b.cmp("lt", f.item(codes, i, I64), f.b.i64(0))):
        f.append(NUMBERS, f.item(items, i))


def _backward_again(module, layout):
    """backward_again(outputs, gradients, retain_graph, create_graph, inputs): True if it is the expected one, to leaves
    that have no gradient; they get theirs."""
    f = Function(module, "backward_again", layout)
    b = f.b
    entry, outputs = f.entry(), f.argument(0)
    f.same(f.load(entry, 8 * OP), f.word(BACKWARD))
    f.same(f.argument(1), f.word(NONE))
    f.same(f.argument(2), f.load(entry, 8 * ATTRIBUTES))
    f.same(f.argument(3), f.word(FALSE))
    f.same(f.argument(4), f.word(NONE))
    f.require_mode(entry)
    f.require_type(outputs, TUPLE)
    n, tensors = f.load(outputs, layout.size, I64), f.tensor_items()
    f.same(n, f.load(entry, 8 * N_OPERANDS, I64))
    f.require_operands(b.offset(outputs, layout.tuple_items, 1), f.load(entry, 8 * OPERANDS), n, tensors)
    pairs, n_pairs = f.load(entry, 8 * STORAGES), f.load(entry, 8 * N_STORAGES, I64)
    with b.loop(0, n_pairs, 1) as i:
        leaf = f.item(tensors, f.item(pairs, b.add(i, i), I64))
        f.same(f.load(leaf, layout.grad), f.word(NONE))
        f.same(f.load(leaf, layout.accumulator), f.word(NONE))
    f.append(CHANGED_GRADIENTS, f.load(entry, 8 * HOMES))
    with b.loop(0, n_pairs, 1) as i:
        at = b.add(i, i)
        leaf, gradient = f.item(tensors, f.item(pairs, at, I64)), f.item(pairs, b.add(at, b.i64(1)), I64)
        f.assign(f.item(tensors, gradient), leaf, layout.grad)
    f.advance()
    f.finish(f.keep(f.word(TRUE)))


def _update(module, layout):
    """update(rule, rows, numbers, flags): whether it is the expected one is checked row by row; then versions go up."""
    f = Function(module, "update", layout)
    b = f.b
    entry, rows, numbers = f.entry(), f.argument(1), f.argument(2)
    f.same(f.argument(0), f.load(entry, 8 * OP))
    f.require_type(rows, LIST)
    f.require_type(numbers, TUPLE)
    n_rows, length = f.load(rows, layout.size, I64), f.load(entry, 8 * ROW_LENGTH, I64)
    f.same(b.mul(n_rows, length), f.load(entry, 8 * N_OPERANDS, I64))
    f.require_equal_dicts(f.argument(3), f.load(entry, 8 * ATTRIBUTES))
    f.require_mode(entry)
    tensors, row_items = f.tensor_items(), f.load(rows, layout.list_items)
    with b.loop(0, n_rows, 1) as i:
        row = f.item(row_items, i)
        f.require_type(row, TUPLE)
        f.same(f.load(row, layout.size, I64), length)
        codes = b.offset(f.load(entry, 8 * OPERANDS), b.mul(i, length), 8)
        f.require_operands(b.offset(row, layout.tuple_items, 1), codes, length, tensors)
    n_numbers, number_items = f.load(numbers, layout.size, I64), b.offset(numbers, layout.tuple_items, 1)
    with b.loop(0, n_numbers, 1) as i:
        f.require_type(f.item(number_items, i), KINDS + 2)
    storages, n_storages = f.load(entry, 8 * STORAGES), f.load(entry, 8 * N_STORAGES, I64)
    with b.loop(0, n_storages, 1) as i:
        f.same(f.load(f.item(storages, i), layout.sharers), f.word(NONE))
    set = f.python("PyObject_SetAttr", [f.word(FRAME), f.word(HOMES_NAME), f.load(entry, 8 * HOMES)], I32)
    f.same(set, b.const(0, I32))
    with b.loop(0, n_numbers, 1) as i:
        f.append(NUMBERS, f.item(number_items, i))
    with b.loop(0, n_storages, 1) as i:
        storage = f.item(storages, i)
        version = f.python("PyLong_AsLongLong", [f.load(storage, layout.version)], I64)
        following = f.python("PyLong_FromLongLong", [b.add(version, b.i64(1))])
        before = f.load(storage, layout.version)
        f.store(following, storage, layout.version)
        f.python("Py_DecRef", [before], "void")
    f.advance()
    f.finish(f.keep(f.word(NONE)))


def _run(module, layout):
    """run(ended): at the end of the call, with the same results alive as usual, run the program and hand them out."""
    f = Function(module, "run", layout)
    b = f.b
    f.same(f.word(K, I64), f.word(N_ENTRIES, I64))
    _require_same_alive(f)
    arena, table = f.word(ARENA), f.word(TABLE)
    f.require(b.cmp("le", f.word(ARENA_BYTES, I64), f.load(arena, 8, I64)))
    f.store(f.load(arena, 0), table, 0)
    _fill_numbers(f)
    changing, tensors = f.word(CHANGING), f.tensor_items()
    with b.loop(0, f.word(N_CHANGING, I64), 1) as i:
        record = b.offset(changing, i, 8 * CHANGING_WORDS)
        tensor = f.item(tensors, f.load(record, 8, I64))
        b.store(f.load(tensor, layout.data), b.offset(table, f.load(record, 0, I64), 8))
    live = f.word(LIVE)
    with b.loop(0, f.word(N_LIVE, I64), 1) as i:
        record = b.offset(live, i, 8 * LIVE_WORDS)
        _choose_array(f, record)
        b.store(f.load(record, 8 * CHOSEN), b.offset(table, f.load(record, 8 * TABLE_WORD, I64), 8))
    f.same(b.call(I64, f.word(PROGRAM), [table]), b.i64(0))
    with b.loop(0, f.word(N_LIVE, I64), 1) as i:
        _give_result(f, b.offset(live, i, 8 * LIVE_WORDS), tensors)
    f.finish(f.keep(f.word(TRUE)))


def _require_same_alive(f):
    """The same results as usual have a reference besides the list's, and nobody watches one."""
    b, layout = f.b, f.layout
    records, tensors = f.word(RESULTS), f.tensor_items()
    with b.loop(0, f.word(N_RESULTS, I64), 1) as i:
        record = b.offset(records, i, 8 * RESULT_WORDS)
        tensor = f.item(tensors, f.load(record, 0, I64))
        alive = b.convert(b.not_(f.is_unshared(tensor)), "i64")
        f.same(alive, f.load(record, 8, I64))
        f.same(f.load(tensor, layout.weak_references), _NULL)


def _fill_numbers(f):
    """The run-time numbers into the program's table of scalars."""
    b = f.b
    records, scalars = f.word(SCALARS_FROM), f.word(SCALARS)
    numbers = f.load(f.word(NUMBERS), f.layout.list_items)
    with b.loop(0, f.word(N_SCALARS, I64), 1) as i:
        record, place = b.offset(records, i, 8 * SCALAR_WORDS), b.offset(scalars, i, 8)
        x, is_float = f.item(numbers, f.load(record, 0, I64)), b.cmp("ne", f.load(record, 8, I64), b.i64(0))
        with b.when(is_float):
            b.store(f.python("PyFloat_AsDouble", [x], F64), place)
        with b.when(b.not_(is_float)):
            b.store(f.python("PyLong_AsUnsignedLongLongMask", [x], I64), place)


def _choose_array(f, record):
    """An array for a result: one of the two made before if nobody holds it any more, else a new one in its place."""
    b = f.b
    pool = f.load(f.load(record, 8 * POOL), f.layout.list_items)
    f.store(_NULL, record, 8 * CHOSEN)
    for k in (1, 0):
        array = f.load(pool, 8 * k)
        with b.when(f.is_unshared(array)):
            f.store(array, record, 8 * CHOSEN)
    with b.when(b.cmp("eq", f.load(record, 8 * CHOSEN), _NULL)):
        dtype, ndim, shape = f.load(record, 8 * DTYPE), f.load(record, 8 * NDIM, I64), f.load(record, 8 * SHAPE)
        flags = b.const(0, I32)
        new = b.call(
            PTR,
            f.word(NEW_ARRAY),
            [f.word(ARRAY), f.keep(dtype), b.convert(ndim, "i32"), shape, _NULL, _NULL, flags, _NULL],
        )
        with b.when(b.cmp("eq", new, _NULL)):
            b.lines.append("  ret ptr null")
            b.start(b.label("unreachable"))
        before = f.load(pool, 8)
        f.store(f.load(pool, 0), pool, 8)
        f.store(new, pool, 0)
        f.store(new, record, 8 * CHOSEN)
        f.python("Py_DecRef", [before], "void")


def _give_result(f, record, tensors):
    """A result gets its array, and a new tensor stands in its place for the next call."""
    b, layout, none = f.b, f.layout, f.word(NONE)
    number = f.load(record, 0, I64)
    new = f.python("PyType_GenericAlloc", [f.word(TENSOR), b.i64(0)])
    with b.when(b.cmp("eq", new, _NULL)):
        b.lines.append("  ret ptr null")
        b.start(b.label("unreachable"))
    for slot in ("data", "grad", "node", "accumulator", "storage", "base"):
        f.store(f.keep(none), new, getattr(layout, slot))
    f.store(f.keep(f.word(FRAME)), new, layout.frame)
    for k, slot in enumerate(("vid", "meta", "requires_grad")):
        f.store(f.keep(f.load(record, 8 * (k + 1))), new, getattr(layout, slot))
    tensor = f.item(tensors, number)
    f.assign(f.load(record, 8 * CHOSEN), tensor, layout.data)
    is_ended = b.cmp("ne", f.load(record, 8 * IS_ENDED, I64), b.i64(0))
    f.assign(b.select(is_ended, f.argument(0), none), tensor, layout.frame)
    b.store(new, b.offset(tensors, number, 8))
    f.python("Py_DecRef", [tensor], "void")
