"""IR text of what optimizers do in a usual call (native_text.py)."""

from contextlib import contextmanager

from ...compiler.emit.builder import I32, I64
from . import native_attributes
from . import native_words as t
from .native_shown import show_again
from .native_text import NULL, Helper, Method


def write(module, layout):
    for one in (_alone, _match_rows, _update, _update_again, _step_again, _count_steps, _drop_gradients):
        one(module, layout)


def _update(module, layout):
    """update(rule, rows, numbers, flags): whether it is the expected one is checked row by row; then versions go up."""
    f = Method(module, "update", layout)
    b = f.b
    entry, rows, numbers = f.entry(), f.argument(1), f.argument(2)
    _require_rule(f, entry, f.argument(0), numbers, f.argument(3))
    f.require_type(rows, t.LIST)
    n_rows, length = f.load(rows, layout.size, I64), f.load(entry, 8 * t.ROW_LENGTH, I64)
    f.same(b.mul(n_rows, length), f.load(entry, 8 * t.N_OPERANDS, I64))
    tensors, row_items = f.tensor_items(), f.load(rows, layout.list_items)
    with b.loop(0, n_rows, 1) as i:
        row = f.item(row_items, i)
        f.require_type(row, t.TUPLE)
        f.same(f.load(row, layout.size, I64), length)
        codes = b.offset(f.load(entry, 8 * t.OPERANDS), b.mul(i, length), 8)
        f.require_operands(b.offset(row, layout.tuple_items, 1), codes, length, tensors)
    _require_alone(f, entry)
    _take_update(f, entry, numbers)
    f.finish(f.keep(f.word(t.NONE)))


def _update_again(module, layout):
    """update_again(rule, params, states, names, numbers, flags): True if the update expected here has the rows
    (param, its gradient, states[param][name] for every name) of all params with a gradient. Then it has been made."""
    f = Method(module, "update_again", layout)
    entry, params, states, names, numbers = f.entry(), *map(f.argument, range(1, 5))
    _require_rule(f, entry, f.argument(0), numbers, f.argument(5))
    f.require_type(params, t.LIST)
    f.require_type(states, t.STATES)
    f.require_type(names, t.TUPLE)
    f.require_true("weft_match_rows", entry, params, states, names)
    _take_update(f, entry, numbers)
    f.finish(f.keep(f.word(t.TRUE)))


def _step_again(module, layout):
    """step_again(optimizer): True if a span of updates begins here that is the optimizer's. Then all have been made."""
    f = Method(module, "step_again", layout)
    b, optimizer, entry = f.b, f.argument(0), f.entry()
    spans = f.load(entry, 8 * t.SPANS)
    with b.loop(0, f.load(entry, 8 * t.N_SPANS, I64), 1) as i:
        span = b.offset(spans, i, 8 * t.SPAN_WORDS)
        with b.when(b.cmp("eq", f.load(span, 8 * t.KEY), optimizer)):
            with b.when(b.cmp("lt", f.load(span, 8 * t.END, I64), b.i64(0))):
                f.give(f.keep(f.word(t.FALSE)))
                b.start(b.label("unreachable"))
            f.require_true("weft_match_guards", span)
            _take_updates(f, span)
            f.count(span, t.USES)
            f.give(f.keep(f.word(t.TRUE)))
            b.start(b.label("unreachable"))
    # No span of it: Python learns one.
    b.branch(f.slow)
    b.start(b.label("unreachable"))
    f.finish(NULL)


def _take_updates(f, span):
    """Make all updates of a span, if the rows of all are as expected."""
    b = f.b
    updates, n = f.load(span, 8 * t.CODES), f.load(span, 8 * t.N_CODES, I64)
    first = f.entry()
    with b.loop(0, n, 1) as i:
        update = b.offset(updates, i, 8 * t.UPDATE_WORDS)
        entry = b.offset(first, f.load(update, 8 * 4, I64), 8 * t.ENTRY_WORDS)
        f.require_true("weft_match_rows", entry, *[f.load(update, 8 * k) for k in range(3)])
    with b.loop(0, n, 1) as i:
        _take_update(f, f.entry(), f.load(b.offset(updates, i, 8 * t.UPDATE_WORDS), 8 * 3))


def _match_rows(module, layout):
    """match_rows(words, entry, params, states, names): not null if an update has the rows that update_again says, and
    nothing living shares the memory of its targets."""
    f = Helper(module, "match_rows", layout, ["update", "params", "states", "names"])
    b = f.b
    _, entry, params, states, names = b.arguments
    length, n_names = f.load(entry, 8 * t.ROW_LENGTH, I64), f.load(names, layout.size, I64)
    f.same(length, b.add(n_names, b.i64(2)))
    codes, tensors, n = f.load(entry, 8 * t.OPERANDS), f.tensor_items(), f.load(entry, 8 * t.N_OPERANDS, I64)
    param_items = f.load(params, layout.list_items)
    with b.loop(0, f.load(params, layout.size, I64), 1, [b.i64(0)]) as (i, row):
        (at,) = row.values
        param = f.item(param_items, i)
        is_last = b.cmp("eq", at, n)
        expected = f.item(tensors, f.item(codes, b.select(is_last, b.i64(0), at), I64))
        is_expected = b.and_(b.cmp("eq", param, expected), b.not_(is_last))
        with b.when(b.not_(is_expected)):
            # Only one that has no gradient may stand between those that have.
            _require_tensor(f, param)
            f.same(f.load(param, layout.grad), f.word(t.NONE))
        with b.when(is_expected):
            _require_row(f, param, b.offset(codes, at, 8), tensors, states, names)
        row.next([b.add(at, b.select(is_expected, length, b.i64(0)))])
    f.same(row.results[0], n)
    _require_alone(f, entry)
    f.finish(entry)


def _require_tensor(f, x):
    """Only a tensor, or an object of a class made from it, surely has a tensor's slots."""
    is_tensor = f.python("PyType_IsSubtype", [f.load(x, f.layout.type), f.word(t.TENSOR)], I32)
    f.same(is_tensor, f.b.const(1, I32))


def _require_row(f, param, codes, tensors, states, names):
    """The gradient of an expected parameter, and what its state holds, are those of the codes."""
    b, layout = f.b, f.layout
    f.same(f.load(param, layout.grad), f.item(tensors, f.load(codes, 8, I64)))
    n_names = f.load(names, layout.size, I64)
    with b.when(b.cmp("ne", n_names, b.i64(0))):
        state = f.python("PyDict_GetItem", [states, param])
        f.require(b.cmp("ne", state, NULL))
        f.require_type(state, t.DICT)
        with b.loop(0, n_names, 1) as k:
            name = f.item(b.offset(names, layout.tuple_items, 1), k)
            expected = f.item(tensors, f.item(b.offset(codes, 2, 8), k, I64))
            f.same(f.python("PyDict_GetItem", [state, name]), expected)


def _require_rule(f, entry, rule, numbers, flags):
    """The update expected here has this rule and these flags, and the numbers are floats."""
    b = f.b
    f.same(rule, f.load(entry, 8 * t.OP))
    f.require_type(numbers, t.TUPLE)
    native_attributes.require(f, flags, f.load(entry, 8 * t.ATTRIBUTES))
    f.require_mode(entry)
    f.same(f.load(numbers, f.layout.size, I64), f.load(entry, 8 * t.HAS_NUMBERS, I64))
    items = b.offset(numbers, f.layout.tuple_items, 1)
    with b.loop(0, f.load(numbers, f.layout.size, I64), 1) as i:
        f.require_type(f.item(items, i), t.KINDS + 2)


def _require_alone(f, entry):
    """Nothing living shares the memory of the targets."""
    storages, views, n = f.load(entry, 8 * t.STORAGES), f.load(entry, 8 * t.DEAD), f.load(entry, 8 * t.N_STORAGES, I64)
    with f.b.loop(0, n, 1) as i:
        require_alone(f, f.item(storages, i), f.item(storages, f.b.add(n, i)), f.words)
    with f.b.loop(0, f.load(entry, 8 * t.N_DEAD, I64), 1) as i:
        f.require(f.is_unshared(f.item(f.tensor_items(), f.item(views, i, I64))))


def require_alone(f, storage, target, may_be_seen):
    """No other living tensor shares the memory of the target; or those that do are at rest, if they may (not null)."""
    with f.b.when(f.b.cmp("ne", f.load(storage, f.layout.sharers), f.word(t.NONE))):
        f.require_true("weft_alone", storage, target, may_be_seen)


def _alone(module, layout):
    """alone(words, storage, target, may_be_seen): not null if nobody shares the target's memory who must not, as
    state/storage.py has it: only_shared_by, others_are_at_rest."""
    f = Helper(module, "alone", layout, ["storage", "target", "may_be_seen"])
    b, none = f.b, f.word(t.NONE)
    _, storage, target, may_be_seen = b.arguments
    sharers, n_others = f.load(storage, layout.sharers), b.alloca(I64)
    f.require_type(sharers, t.LIST)
    b.store(b.i64(0), n_others)
    with b.loop(0, f.load(sharers, layout.size, I64), 1) as i:
        sharer = f.python("PyWeakref_GetObject", [f.item(f.load(sharers, layout.list_items), i)])
        with b.when(b.and_(b.cmp("ne", sharer, none), b.cmp("ne", sharer, target))):
            f.require(b.cmp("ne", may_be_seen, NULL))
            _require_tensor(f, sharer)
            f.same(f.load(sharer, layout.frame), none)
            f.require(b.cmp("ne", f.load(sharer, layout.data), none))
            b.store(b.i64(1), n_others)
    is_alone = b.cmp("eq", b.load(n_others, I64), b.i64(0))
    with b.when(is_alone):
        f.assign(none, storage, layout.sharers)
    with b.when(b.not_(is_alone)):
        with b.when(b.cmp("ne", f.load(storage, layout.changes), none)):
            _require_no_readers(f)
        for slot in (layout.node, layout.frame):
            f.same(f.load(target, slot), none)
    f.finish(f.words)


def _require_no_readers(f):
    """No finished call has to be told of changes that not all who show the memory have a version of (frame_changes.py:
    tell_others)."""
    b, readers = f.b, f.word(t.READERS)
    with b.loop(0, f.load(readers, f.layout.size, I64), 1) as i:
        reader = f.python("PyWeakref_GetObject", [f.item(f.load(readers, f.layout.list_items), i)])
        f.same(reader, f.word(t.NONE))


def _take_update(f, entry, numbers):
    b, layout = f.b, f.layout
    storages, n_storages = f.load(entry, 8 * t.STORAGES), f.load(entry, 8 * t.N_STORAGES, I64)
    items = b.offset(numbers, layout.tuple_items, 1)
    with b.loop(0, f.load(numbers, layout.size, I64), 1) as i:
        f.append(t.NUMBERS, f.item(items, i))
    with b.loop(0, n_storages, 1) as i:
        count_version(f, f.item(storages, i))
    n_shown = f.load(entry, 8 * t.N_SHOWN_AFTER, I64)
    f.advance()
    show_again(f, n_shown, f.tensor_items())


def count_version(f, storage):
    """One more change of the memory."""
    _add_one(f, storage, f.layout.version)
    changes = f.load(storage, f.layout.changes)
    with f.b.when(f.b.cmp("ne", changes, f.word(t.NONE))):
        _add_one(f, f.load(changes, f.layout.list_items), 0)


def _add_one(f, pointer, offset):
    before = f.load(pointer, offset)
    number = f.python("PyLong_AsLongLong", [before], I64)
    f.store(f.python("PyLong_FromLongLong", [f.b.add(number, f.b.i64(1))]), pointer, offset)
    f.python("Py_DecRef", [before], "void")


def _count_steps(module, layout):
    """count_steps(params, states): adds one to states[param]["step"] for all params with a gradient, if it is the same
    number for all. Returns that number; the call can take it back."""
    f = Method(module, "count_steps", layout)
    b, params, states = f.b, f.argument(0), f.argument(1)
    f.require_type(params, t.LIST)
    f.require_type(states, t.STATES)
    none, place = b.i64(-1), b.alloca(I64)
    b.store(none, place)
    with _states(f, params, states) as state:
        step = f.python("PyDict_GetItem", [state, f.word(t.STEP_NAME)])
        f.require(b.cmp("ne", step, NULL))
        f.require_type(step, t.KINDS + 1)
        seen, count = b.load(place, I64), f.python("PyLong_AsLongLong", [step], I64)
        f.require(b.or_(b.cmp("eq", seen, count), b.cmp("eq", seen, none)))
        b.store(count, place)
    count = b.load(place, I64)
    f.require(b.cmp("ge", count, b.i64(0)))
    before, after = (f.python("PyLong_FromLongLong", [b.add(count, b.i64(k))]) for k in range(2))
    changed = f.new_list()
    f.append_new(t.REMEMBERED, f.tuple_of(f.keep(f.word(t.RESTORE_STEPS)), f.tuple_of(changed, before)))
    with _states(f, params, states) as state:
        now = f.python("PyLong_AsLongLong", [f.python("PyDict_GetItem", [state, f.word(t.STEP_NAME)])], I64)
        with b.when(b.cmp("ne", now, count)):
            # It stands among the parameters twice and is counted twice, which Python does.
            _take_back(f, changed, before)
            f.python("Py_DecRef", [after], "void")
            b.branch(f.slow)
            b.start(b.label("unreachable"))
        f.append_to(changed, state)
        failed = f.python("PyDict_SetItem", [state, f.word(t.STEP_NAME), after], I32)
        f.return_null_if(b.cmp("ne", failed, b.const(0, I32)))
    f.finish(after)


def _take_back(f, states, step):
    with f.b.loop(0, f.load(states, f.layout.size, I64), 1) as i:
        state = f.item(f.load(states, f.layout.list_items), i)
        f.python("PyDict_SetItem", [state, f.word(t.STEP_NAME), step], I32)


@contextmanager
def _states(f, params, states):
    """A loop over the states of the parameters that have a gradient."""
    b = f.b
    with b.loop(0, f.load(params, f.layout.size, I64), 1) as i:
        param = f.item(f.load(params, f.layout.list_items), i)
        _require_tensor(f, param)
        with b.when(b.cmp("ne", f.load(param, f.layout.grad), f.word(t.NONE))):
            state = f.python("PyDict_GetItem", [states, param])
            f.require(b.cmp("ne", state, NULL))
            f.require_type(state, t.DICT)
            yield state


def _drop_gradients(module, layout):
    """drop_gradients(groups): True, after .grad of all their parameters has become None; the call can take it back."""
    f = Method(module, "drop_gradients", layout)
    b, groups, none = f.b, f.argument(0), f.word(t.NONE)
    f.require_type(groups, t.LIST)
    with _params(f, groups) as param:
        _require_tensor(f, param)
    tensors, gradients = f.new_list(), f.new_list()
    f.append_new(t.CHANGED_GRADIENTS, f.tuple_of(tensors, gradients))
    with _params(f, groups) as param:
        gradient = f.load(param, layout.grad)
        with b.when(b.cmp("ne", gradient, none)):
            f.append_to(tensors, param)
            f.append_to(gradients, gradient)
            f.assign(none, param, layout.grad)
    f.finish(f.keep(f.word(t.TRUE)))


@contextmanager
def _params(f, groups):
    """A loop over the parameters of all groups."""
    b, layout = f.b, f.layout
    with b.loop(0, f.load(groups, layout.size, I64), 1) as i:
        group = f.item(f.load(groups, layout.list_items), i)
        f.require_type(group, t.DICT)
        params = f.python("PyDict_GetItem", [group, f.word(t.PARAMS_NAME)])
        f.require(b.cmp("ne", params, NULL))
        f.require_type(params, t.LIST)
        with b.loop(0, f.load(params, layout.size, I64), 1) as k:
            yield f.item(f.load(params, layout.list_items), k)
