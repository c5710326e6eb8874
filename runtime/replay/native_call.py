"""IR text of the start and the end of a usual call (native_text.py)."""

from ...compiler.emit.builder import F64, I32, I64, PTR, Reg
from . import native_changes, native_inputs, native_segments, native_views
from . import native_words as t
from .native_text import NULL, Method


def write(module, layout):
    for one in (_take, _begin, _run, _call):
        one(module, layout)


def _take(module, layout):
    """take(): whether this frame was free. It is taken now."""
    f = Method(module, "take", layout)
    b = f.b
    free = b.cmp("eq", f.word(t.BUSY, I64), b.i64(0))
    f.store(b.i64(1), f.words, 8 * t.BUSY)
    f.finish(f.keep(b.select(free, f.word(t.TRUE), f.word(t.FALSE))))


def _begin(module, layout):
    """begin(arguments): they are like those of the last call, and what is expected from outside is as it was."""
    f = Method(module, "begin", layout)
    f.take_modes()
    _require_start(f, f.argument(0))
    _start(f, f.argument(0))
    f.finish(f.keep(f.word(t.TRUE)))


def _call(module, layout):
    """call(function, arguments, args, kwargs): the whole call, if it can begin with these leaves of its arguments; how
    it ends is asked of Python if it is unusual."""
    f = Method(module, "call", layout)
    b, shared, shared_active = f.b, Reg(f"@{t.SHARED}", PTR), 8 * t.ACTIVE
    arguments = f.argument(1)
    f.same(f.word(t.BUSY, I64), b.i64(0))
    f.same(f.word(t.DEPARTED, I64), b.i64(0))
    f.take_modes()
    f.same(f.mode(t.FRAME_NAME), f.word(t.NONE))
    f.same(f.load(arguments, layout.size, I64), f.word(t.N_ARGUMENTS, I64))
    _require_start(f, arguments)
    f.require(b.not_(f.set_frame(f.word(t.FRAME))))
    f.store(b.i64(1), f.words, 8 * t.BUSY)
    _start(f, arguments)
    f.count(f.word(t.RECORDING_CALLS), 0)
    f.store(f.words, shared, shared_active)
    result = _result(f)
    f.store(NULL, shared, shared_active)
    with b.when(b.cmp("eq", result, NULL)):
        _keep_error(f, t.CLOSE_AFTER_ERROR)
    frame = f.keep(f.mode(t.FRAME_NAME))
    with b.when(f.set_frame(f.word(t.NONE))):
        for x in (frame, result):
            f.python("Py_DecRef", [x], "void")
        f.return_null()
    usual, done = b.label("usual"), b.label("done")
    is_usual = b.cmp("eq", frame, f.word(t.FRAME))
    other = b.label("other")
    b.branch_if(is_usual, usual, other)
    b.start(other)
    place = b.alloca(PTR)
    b.store(frame, place)
    _python_end(f, t.CLOSE_OTHER, place, 1, result, frame)
    b.branch(done)
    b.start(usual)
    # Whoever makes the call holds this frame.
    f.let_go(frame)
    _end(f, result)
    b.branch(done)
    b.start(done)
    f.finish(result)


def _result(f):
    """What the function returns; null if it raises. Where it is known what it does (whole_call.py) it does not run."""
    b, place, none = f.b, f.b.alloca(PTR), f.word(t.NONE)
    b.store(none, place)
    with b.when(b.cmp("ne", f.word(t.WHOLE), NULL)):
        found = f.without_collecting(lambda: f.call(t.WHOLE, b.offset(b.arguments[1], 1, 8), 1))
        b.store(found, place)
        with b.when(b.cmp("eq", found, none)):
            f.python("Py_DecRef", [none], "void")
    # A result that is None is none that it could give.
    with b.when(b.cmp("eq", b.load(place, PTR), none)):
        kwargs = b.select(b.cmp("eq", f.argument(3), none), NULL, f.argument(3))
        b.store(f.python("PyObject_Call", [f.argument(0), f.argument(2), kwargs]), place)
    return b.load(place, PTR)


def _end(f, result):
    """The end of a call that has not departed."""
    b, layout, tensors, none = f.b, f.layout, f.tensor_items(), f.word(t.NONE)
    views = f.word(t.VIEWS)
    with b.loop(0, f.word(t.N_VIEWS, I64), 1) as i:
        view = f.item(tensors, f.item(views, i, I64))
        # Those that get their number in the call are none, if it has ended before.
        with b.when(b.cmp("ne", view, none)):
            f.assign(none, view, layout.base)
    ended = b.alloca(PTR)
    b.store(f.word(t.ENDED), ended)
    is_made = _make_end(f, ended, result)
    has_more = b.and_(b.cmp("ne", f.word(t.BEGIN_END), NULL), b.not_(is_made))
    is_new = b.or_(has_more, is_made)
    with b.when(has_more):
        _set_frame(f, f.word(t.FRAME))
        f.store(b.i64(1), f.words, 8 * t.WORKING)
        b.store(f.call(t.BEGIN_END), ended)
        _fail_if_null(f, b.load(ended, PTR), result)
    done = b.call(PTR, "weft_run", [b.arguments[0], ended, b.i64(1)])
    with b.when(b.cmp("eq", done, NULL)):
        _let_go_of_end(f, ended, is_new)
        f.python("Py_DecRef", [result], "void")
        _keep_error(f, t.CLOSE_FAILED)
    f.let_go(done)
    is_done = b.cmp("eq", done, f.word(t.TRUE))
    with b.when(b.not_(is_done)):
        f.store(b.i64(0), f.words, 8 * t.WORKING)
        _let_go_of_end(f, ended, is_new)
        _python_end(f, t.CLOSE_UNUSUAL, NULL, 0, result)
    with b.when(is_done):
        f.count(f.word(t.PROGRAM_CALLS), 0)
        ready = b.call(PTR, "weft_views_ready", [f.words])
        is_finished = b.cmp("ne", f.word(t.IS_FINISHED, I64), b.i64(0))
        in_python = b.or_(b.and_(has_more, is_finished), b.cmp("eq", ready, NULL))
        with b.when(in_python):
            _finish_in_python(f, ended, is_new, result)
        with b.when(b.not_(in_python)):
            with b.when(has_more):
                _set_frame(f, f.word(t.NONE))
            with b.when(is_made):
                _open_end(f, ended, result)
            native_views.give(f, ended, tensors)
            native_segments.clean(f, ended, tensors)
            native_changes.clean(f, tensors)
            native_inputs.clean(f, tensors)
            _let_go_of_end(f, ended, is_new)
        _let_go(f, tensors)


def _make_end(f, ended, result):
    """Whether native code has made what stands for the call in its results (finished_calls.py)."""
    b, place = f.b, f.b.alloca(PTR)
    b.store(NULL, place)
    at_end = b.cmp("eq", f.word(t.K, I64), f.word(t.N_ENTRIES, I64))
    with b.when(b.and_(b.cmp("ne", f.word(t.MAKE_END), NULL), at_end)):
        made = f.without_collecting(lambda: f.call(t.MAKE_END))
        _fail_if_null(f, made, result)
        is_none = b.cmp("eq", made, f.word(t.NONE))
        with b.when(is_none):
            f.python("Py_DecRef", [made], "void")
        with b.when(b.not_(is_none)):
            for pointer in (ended, place):
                b.store(made, pointer)
    return b.cmp("ne", b.load(place, PTR), NULL)


def _open_end(f, ended, result):
    answer = f.without_collecting(lambda: f.call(t.OPEN_END, ended, 1))
    _fail_if_null(f, answer, result)
    f.python("Py_DecRef", [answer], "void")


def _finish_in_python(f, ended, is_new, result):
    _set_frame(f, f.word(t.FRAME))
    f.store(f.b.i64(1), f.words, 8 * t.WORKING)
    answer = f.call(t.FINISH_END, ended, 1)
    _let_go_of_end(f, ended, is_new)
    _fail_if_null(f, answer, result)
    f.python("Py_DecRef", [answer], "void")
    _set_frame(f, f.word(t.NONE))


def _set_frame(f, frame):
    f.python("PyDict_SetItem", [f.word(t.MODES), f.word(t.FRAME_NAME), frame], I32)


def _fail_if_null(f, answer, result):
    with f.b.when(f.b.cmp("eq", answer, NULL)):
        f.python("Py_DecRef", [result], "void")
        _keep_error(f, t.CLOSE_FAILED)


def _let_go_of_end(f, ended, is_new):
    with f.b.when(is_new):
        f.python("Py_DecRef", [f.b.load(ended, PTR)], "void")


def _let_go(f, tensors):
    """Hold nothing of the call that is over."""
    b, none = f.b, f.word(t.NONE)
    with b.loop(0, f.word(t.N_TENSORS, I64), 1) as i:
        f.assign(none, b.offset(tensors, i, 8), 0)
    for word in (t.NUMBERS, t.CHANGED_GRADIENTS, t.REMEMBERED):
        items = f.word(word)
        with b.when(b.cmp("ne", f.load(items, f.layout.size, I64), b.i64(0))):
            f.python("PyList_SetSlice", [items, b.i64(0), b.i64(2**63 - 1), NULL], I32)
    for word in (t.WORKING, t.BUSY):
        f.store(b.i64(0), f.words, 8 * word)


def _python_end(f, word, arguments, n, result, frame=NULL):
    """Let Python end the call, and let go of the frame. What it raises is raised in place of the result."""
    b = f.b
    answer = f.call(word, arguments, n)
    f.python("Py_DecRef", [frame], "void")
    with b.when(b.cmp("eq", answer, NULL)):
        f.python("Py_DecRef", [result], "void")
        f.return_null()
    f.python("Py_DecRef", [answer], "void")


def _keep_error(f, word):
    """Return with the error that is being raised, after Python has ended the call because of it."""
    b = f.b
    places = [b.alloca(PTR) for _ in range(3)]
    f.python("PyErr_Fetch", places, "void")
    f.python("PyErr_NormalizeException", places, "void")
    answer = f.call(word, places[1], 1)
    with b.when(b.cmp("eq", answer, NULL)):
        f.python("PyErr_Clear", [], "void")
    with b.when(b.cmp("ne", answer, NULL)):
        f.python("Py_DecRef", [answer], "void")
    # Whatever came in between, the call is over.
    f.python("PyDict_SetItem", [f.word(t.MODES), f.word(t.FRAME_NAME), f.word(t.NONE)], I32)
    f.python("PyErr_Restore", [b.load(p, PTR) for p in places], "void")
    f.return_null()


# --- the start --------------------------------------------------------------------------------------------------------
def _require_start(f, arguments):
    """The modes are those of the last call, so are the arguments (as many as then), and what is expected from outside
    is as it was."""
    b, layout = f.b, f.layout
    f.same(f.mode(t.MODE_NAME), f.word(t.MODE_AT_START))
    f.same(f.mode(t.DTYPE_NAME), f.word(t.DTYPE_AT_START))
    items = b.offset(arguments, layout.tuple_items, 1)
    records, n = f.word(t.ARGUMENTS), f.word(t.N_ARGUMENTS, I64)
    with b.loop(0, n, 1) as i:
        record, x = b.offset(records, i, 8 * t.ARGUMENT_WORDS), f.item(items, i)
        is_tensor = b.cmp("ne", f.load(record, 0, I64), b.i64(0))
        with b.when(is_tensor):
            native_inputs.require_argument(f, record, x, i)
            with b.loop(0, i, 1) as k:
                # One tensor given twice would have two numbers, as in require_argument.
                f.require(b.cmp("ne", x, f.item(items, k)))
        with b.when(b.not_(is_tensor)):
            kind = f.load(x, layout.type)
            same, none = b.cmp("eq", kind, f.load(record, 8)), b.cmp("eq", x, f.word(t.NONE))
            simple = [b.cmp("eq", kind, f.word(t.KINDS + k)) for k in range(3)]
            f.require(b.or_(b.or_(same, none), b.or_(simple[0], b.or_(simple[1], simple[2]))))
    expected = f.word(t.EXPECTED)
    with b.loop(0, f.word(t.N_EXPECTED, I64), 1) as i:
        record = b.offset(expected, i, 8 * t.EXPECTED_WORDS)
        tensor = f.load(record, 0)
        f.same(f.load(tensor, layout.data), f.load(record, 8))
        f.require_leaf(tensor, f.load(record, 16))
        f.require_hidden(tensor)


def _start(f, arguments):
    """Number the arguments; the first entry is next."""
    b = f.b
    items, records, tensors = b.offset(arguments, f.layout.tuple_items, 1), f.word(t.ARGUMENTS), f.tensor_items()
    with b.loop(0, f.word(t.N_ARGUMENTS, I64), 1, [b.i64(0)]) as (i, place):
        (number,) = place.values
        is_tensor = b.cmp("ne", f.load(b.offset(records, i, 8 * t.ARGUMENT_WORDS), 0, I64), b.i64(0))
        with b.when(is_tensor):
            f.assign(f.item(items, i), b.offset(tensors, number, 8), 0)
        place.next([b.add(number, b.convert(is_tensor, "i64"))])
    f.store(f.python("PyThreadState_Get", []), f.words, 8 * t.THREAD)
    f.store(b.i64(0), f.words, 8 * t.K)


def _run(module, layout):
    """run(ended): at the end of the call, with the same results alive as usual, run the program and hand them out. Of
    the words of a segment: the same in the middle."""
    f = Method(module, "run", layout)
    b = f.b
    f.same(f.word(t.K, I64), f.word(t.N_ENTRIES, I64))
    f.same(f.word(t.N_FLUSHED, I64), f.word(t.N_SEGMENTS, I64))
    f.same(f.load(f.word(t.NUMBERS), layout.size, I64), f.word(t.N_NUMBERS, I64))
    _require_same_alive(f)
    with b.when(b.cmp("ne", f.word(t.PROGRAM), NULL)):
        _run_program(f)
    f.finish(f.keep(f.word(t.TRUE)))


def _run_program(f):
    b, tensors, live = f.b, f.tensor_items(), f.word(t.LIVE)
    _fill_table(f, tensors)
    f.same(b.call(I64, f.word(t.PROGRAM), [f.word(t.TABLE)]), b.i64(0))
    outputs = f.word(t.OUTPUTS)
    with b.when(b.cmp("ne", outputs, NULL)), b.loop(0, f.word(t.N_OUTPUTS, I64), 1) as i:
        f.append_to(outputs, f.load(b.offset(live, i, 8 * t.LIVE_WORDS), 8 * t.CHOSEN))
    in_the_middle = b.cmp("ne", f.word(t.IN_THE_MIDDLE), NULL)
    with b.loop(0, f.word(t.N_LIVE, I64), 1) as i:
        record = b.offset(live, i, 8 * t.LIVE_WORDS)
        with b.when(in_the_middle):
            native_segments.give_value(f, record, tensors)
        with b.when(b.not_(in_the_middle)):
            _give_result(f, record, tensors)


def _fill_table(f, tensors):
    """What the program reads and writes in this call."""
    b = f.b
    arena, table, live = f.word(t.ARENA), f.word(t.TABLE), f.word(t.LIVE)
    _fill_numbers(f)
    changing, place = f.word(t.CHANGING), b.alloca(PTR)
    with b.loop(0, f.word(t.N_CHANGING, I64), 1) as i:
        record = b.offset(changing, i, 8 * t.CHANGING_WORDS)
        array = native_segments.array_of(f, record, tensors, place)
        f.require_type(array, t.ARRAY)
        f.require_place(array, b.offset(record, 2, 8))
        b.store(array, b.offset(table, f.load(record, 0, I64), 8))
    with b.loop(0, f.word(t.N_OUTPUTS, I64), 1) as i:
        record = b.offset(live, i, 8 * t.LIVE_WORDS)
        _choose_array(f, record)
        b.store(f.load(record, 8 * t.CHOSEN), b.offset(table, f.load(record, 8 * t.TABLE_WORD, I64), 8))
    # Last of all: what has let go of arrays above may have run finalizers, which may run programs.
    f.require(b.cmp("le", f.word(t.ARENA_BYTES, I64), f.load(arena, 8, I64)))
    f.store(f.load(arena, 0), table, 0)


def _require_same_alive(f):
    """The same results as usual have a reference besides the list's, and nobody watches another."""
    b, layout = f.b, f.layout
    records, tensors = f.word(t.RESULTS), f.tensor_items()
    with b.loop(0, f.word(t.N_RESULTS, I64), 1) as i:
        record = b.offset(records, i, 8 * t.RESULT_WORDS)
        tensor = f.item(tensors, f.load(record, 0, I64))
        alive = b.convert(b.not_(f.is_unshared(tensor)), "i64")
        f.same(alive, f.load(record, 8, I64))
        with b.when(b.cmp("eq", alive, b.i64(0))):
            f.same(f.load(tensor, layout.weak_references), NULL)


def _fill_numbers(f):
    """The run-time numbers into the program's table of scalars."""
    b = f.b
    records, scalars = f.word(t.SCALARS_FROM), f.word(t.SCALARS)
    numbers = f.load(f.word(t.NUMBERS), f.layout.list_items)
    with b.loop(0, f.word(t.N_SCALARS, I64), 1) as i:
        record, place = b.offset(records, i, 8 * t.SCALAR_WORDS), b.offset(scalars, i, 8)
        x, is_float = f.item(numbers, f.load(record, 0, I64)), b.cmp("ne", f.load(record, 8, I64), b.i64(0))
        with b.when(is_float):
            b.store(f.python("PyFloat_AsDouble", [x], F64), place)
        with b.when(b.not_(is_float)):
            b.store(f.python("PyLong_AsUnsignedLongLongMask", [x], I64), place)


def _choose_array(f, record):
    """An array for a result: one of the two made before if nobody holds it any more, else a new one in its place."""
    b = f.b
    pool = f.load(f.load(record, 8 * t.POOL), f.layout.list_items)
    f.store(NULL, record, 8 * t.CHOSEN)
    for k in (1, 0):
        array = f.load(pool, 8 * k)
        with b.when(f.is_unshared(array)):
            f.store(array, record, 8 * t.CHOSEN)
    with b.when(b.cmp("eq", f.load(record, 8 * t.CHOSEN), NULL)):
        dtype, shape = f.load(record, 8 * t.DTYPE_OF), f.load(record, 8 * t.SHAPE)
        ndim = f.load(record, 8 * t.NDIM, I64)
        flags = b.const(0, I32)
        new = b.call(
            PTR,
            f.word(t.NEW_ARRAY),
            [f.word(t.ARRAY), f.keep(dtype), b.convert(ndim, "i32"), shape, NULL, NULL, flags, NULL],
        )
        with b.when(b.cmp("eq", new, NULL)):
            f.return_null()
        before = f.load(pool, 8)
        f.store(f.load(pool, 0), pool, 8)
        f.store(new, pool, 0)
        f.store(new, record, 8 * t.CHOSEN)
        f.python("Py_DecRef", [before], "void")


def _give_result(f, record, tensors):
    """A result gets its array, and a new tensor stands in its place for the next call."""
    tensor = f.item(tensors, f.load(record, 0, I64))
    f.assign(f.load(record, 8 * t.CHOSEN), tensor, f.layout.data)
    f.hand_out(record, f.argument(0), tensors)
