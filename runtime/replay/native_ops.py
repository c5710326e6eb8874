"""IR text of what a usual call does at weft's door (native_text.py): ops and backward."""

from ...compiler.emit.builder import I32, I64, PTR
from . import native_attributes
from . import native_words as t
from .native_inputs import enter_fresh
from .native_text import NULL, Callable, Method


def write(module, layout):
    for one in (_apply, _call_op, _backward_again, _gradients_again, _before_gradient):
        one(module, layout)


def _apply(module, layout):
    """apply(op, operands, attributes): the tensor made for the result, if the op is the expected one."""
    f = Method(module, "apply", layout)
    entry = f.entry()
    f.same(f.argument(0), f.load(entry, 8 * t.OP))
    f.finish(_take_op(f, entry, f.argument(1), f.argument(2)))


def _call_op(module, layout):
    """op(*operands, **attributes), which Python spells in three calls: Op.__call__, Tensor.apply_op, apply."""
    f = Callable(module, "call_op", layout)
    b = f.b
    op, operands, attributes = b.arguments
    entry = f.entry()
    f.same(op, f.load(entry, 8 * t.OP))
    expected = f.load(entry, 8 * t.ATTRIBUTES)
    # Without attributes there is no dict of them: as good as a dict that is empty, of which `expected` must be one.
    with b.when(b.cmp("eq", attributes, NULL)):
        f.same(f.load(expected, layout.dict_used, I64), b.i64(0))
    f.finish(_take_op(f, entry, operands, b.select(b.cmp("eq", attributes, NULL), expected, attributes)))


def _take_op(f, entry, operands, attributes):
    """Take the entry, whose op is as expected, if the operands and attributes are; returns its result."""
    b = f.b
    items, n = operands_at(f, entry, operands, attributes)
    f.same(n, f.load(entry, 8 * t.N_OPERANDS, I64))
    f.require_mode(entry)
    codes, tensors = f.load(entry, 8 * t.OPERANDS), f.tensor_items()
    f.require_operands(items, codes, n, tensors)
    enter_fresh(f, entry, items, tensors)
    take_numbers(f, entry, items, codes, n)
    f.advance()
    result, root = f.item(tensors, f.load(entry, 8 * t.VID, I64)), f.load(entry, 8 * t.ROOT, I64)
    with b.when(b.cmp("ge", root, b.i64(0))):
        f.assign(f.item(tensors, root), result, f.layout.base)
    return f.keep(result)


def operands_at(f, entry, operands, attributes):
    """(the operands, how many there are), the starts of a part whose place is a number among them; and the attributes
    are as expected."""
    b, layout = f.b, f.layout
    f.require_type(operands, t.TUPLE)
    n, given = f.load(operands, layout.size, I64), b.offset(operands, layout.tuple_items, 1)
    place = f.load(entry, 8 * t.PLACE)
    is_at = b.cmp("ne", place, NULL)
    items, count = b.alloca(PTR, 2 + t.MOST_STARTS), b.alloca(I64)
    b.store(n, count)
    with b.when(b.not_(is_at)):
        native_attributes.require(f, attributes, f.load(entry, 8 * t.ATTRIBUTES))
    with b.when(is_at):
        f.same(n, f.load(place, 8 * t.N_BEFORE_STARTS, I64))
        with b.loop(0, n, 1) as i:
            b.store(f.item(given, i), b.offset(items, i, 8))
        _add_starts(f, place, attributes, items, count)
    return b.select(is_at, items, given), b.load(count, I64)


def _add_starts(f, place, attributes, items, count):
    """The starts in the attributes of a part; what is beside them is as expected."""
    b, used = f.b, f.layout.dict_used
    spec = f.load(place, 8 * t.SPEC)
    is_select = b.cmp("eq", spec, NULL)
    f.require_type(attributes, t.DICT)
    name, other = (f.load(place, 8 * (t.NAMES + k)) for k in range(2))
    with b.when(is_select):
        f.same(f.load(attributes, used, I64), b.i64(2))
        axis, index = (f.python("PyDict_GetItemWithError", [attributes, one]) for one in (name, other))
        f.require(b.and_(b.cmp("ne", axis, NULL), b.cmp("ne", index, NULL)))
        f.require_true("weft_same", axis, f.load(place, 8 * t.AXIS))
        _add(f, index, items, count)
    with b.when(b.not_(is_select)):
        f.same(f.load(attributes, used, I64), b.i64(1))
        given = f.python("PyDict_GetItemWithError", [attributes, name])
        f.require(b.cmp("ne", given, NULL))
        _add_starts_of(f, spec, given, items, count)


def _add_starts_of(f, spec, given, items, count):
    b, layout = f.b, f.layout
    f.require_type(given, t.TUPLE)
    size = f.load(spec, layout.size, I64)
    f.same(size, f.load(given, layout.size, I64))
    with b.loop(0, size, 1) as i:
        one, part = (f.item(b.offset(x, layout.tuple_items, 1), i) for x in (spec, given))
        wanted, found = (b.offset(x, layout.tuple_items, 1) for x in (one, part))
        is_start = b.cmp("eq", f.load(wanted, 0), f.word(t.NONE))
        with b.when(b.not_(is_start)):
            f.require_true("weft_same", part, one)
        with b.when(is_start):
            f.require_type(part, t.TUPLE)
            f.same(f.load(part, layout.size, I64), b.i64(3))
            for k in (1, 2):
                f.require_true("weft_same", f.load(found, 8 * k), f.load(wanted, 8 * k))
            _add(f, f.load(found, 0), items, count)


def _add(f, item, items, count):
    b = f.b
    n = b.load(count, I64)
    b.store(item, b.offset(items, n, 8))
    b.store(b.add(n, b.i64(1)), count)


def take_numbers(f, entry, items, codes, n):
    """The Python numbers among operands are those of this call."""
    with f.b.when(f.b.cmp("ne", f.load(entry, 8 * t.HAS_NUMBERS, I64), f.b.i64(0))):
        _require_small(f, items, codes, n)
        _append_numbers(f, items, codes, n)


def take_numbers_again(f, change):
    """What the program is given that follows from numbers of this call."""
    b, again = f.b, f.load(change, 8 * t.AGAIN)
    with b.loop(0, f.load(change, 8 * t.N_AGAIN, I64), 1) as i:
        position, times, plus = (f.load(b.offset(again, i, 8 * t.AGAIN_WORDS), 8 * k, I64) for k in range(3))
        number = f.item(f.load(f.word(t.NUMBERS), f.layout.list_items), position)
        value = b.add(b.mul(f.python("PyLong_AsLongLong", [number], I64), times), plus)
        f.append_new(t.NUMBERS, f.new("PyLong_FromLongLong", [value]))


def _require_small(f, items, codes, n):
    """Integers fit into 64 bits."""
    b = f.b
    with b.loop(0, n, 1) as i, b.when(b.cmp("eq", f.item(codes, i, I64), b.i64(-2))):
        value = f.python("PyLong_AsLongLong", [f.item(items, i)], I64)
        with b.when(b.cmp("eq", value, b.i64(-1))):
            f.same(f.python("PyErr_Occurred", []), NULL)


def _is_number(b, code):
    return b.and_(b.cmp("lt", code, b.i64(0)), b.cmp("gt", code, b.i64(t.FRESH_CODE)))


def _append_numbers(f, items, codes, n):
    with f.b.loop(0, n, 1) as i, f.b.when(_is_number(f.b, f.item(codes, i, I64))):
        f.append(t.NUMBERS, f.item(items, i))


def _backward_again(module, layout):
    """backward_again(outputs, gradients, retain_graph, create_graph, inputs): True if it is the expected one; leaves
    have got their gradients, or more of them, then."""
    f = Method(module, "backward_again", layout)
    b = f.b
    entry, outputs = f.entry(), f.argument(0)
    f.same(f.load(entry, 8 * t.OP), f.word(t.BACKWARD))
    f.same(f.argument(1), f.word(t.NONE))
    f.same(f.argument(2), f.load(entry, 8 * t.ATTRIBUTES))
    f.same(f.argument(3), f.word(t.FALSE))
    f.same(f.argument(4), f.word(t.NONE))
    f.require_mode(entry)
    f.require_type(outputs, t.TUPLE)
    n, tensors = f.load(outputs, layout.size, I64), f.tensor_items()
    f.same(n, f.load(entry, 8 * t.N_OPERANDS, I64))
    f.require_operands(b.offset(outputs, layout.tuple_items, 1), f.load(entry, 8 * t.OPERANDS), n, tensors)
    pairs, n_pairs = f.load(entry, 8 * t.STORAGES), f.load(entry, 8 * t.N_STORAGES, I64)
    with b.loop(0, n_pairs, 1, [b.i64(0)]) as (i, place):
        leaf, _ = _pair(f, pairs, i, tensors)
        f.require_unreached(leaf)
        has_one = b.convert(b.cmp("ne", f.load(leaf, layout.grad), f.word(t.NONE)), "i64")
        place.next([b.add(place.values[0], has_one)])
    position, undo = f.word(t.K, I64), f.load(entry, 8 * t.UNDO)
    # Of leaves that are the same in every call, what takes it back is ready.
    are_first = b.and_(b.cmp("eq", place.results[0], b.i64(0)), b.cmp("ne", undo, NULL))
    f.advance()
    with b.when(are_first):
        f.append(t.CHANGED_GRADIENTS, undo)
        with b.loop(0, n_pairs, 1) as i:
            leaf, gradient = _pair(f, pairs, i, tensors)
            f.assign(gradient, leaf, layout.grad)
    with b.when(b.not_(are_first)):
        _accumulate(f, pairs, n_pairs, tensors, position)
    f.finish(f.keep(f.word(t.TRUE)))


def _pair(f, pairs, i, tensors):
    """(leaf, gradient): the i-th of a backward."""
    at = f.b.add(i, i)
    return f.item(tensors, f.item(pairs, at, I64)), f.item(tensors, f.item(pairs, f.b.add(at, f.b.i64(1)), I64))


def _accumulate(f, pairs, n_pairs, tensors, position):
    """leaf.grad += gradient, one after the other; from the first that is not as expected on, Python does it."""
    b, layout, none = f.b, f.layout, f.word(t.NONE)
    arguments, n_done = b.alloca(PTR, 4), b.alloca(I64)
    b.store(n_pairs, n_done)
    with b.loop(0, n_pairs, 1) as i, b.when(b.cmp("eq", b.load(n_done, I64), n_pairs)):
        leaf, gradient = _pair(f, pairs, i, tensors)
        before = f.load(leaf, layout.grad)
        is_first = b.cmp("eq", before, none)
        with b.when(is_first):
            f.append_new(t.CHANGED_GRADIENTS, f.tuple_of(*[f.tuple_of(f.keep(x)) for x in (leaf, none)]))
            f.assign(gradient, leaf, layout.grad)
        with b.when(b.not_(is_first)):
            answer = _add_to(f, arguments, before, gradient)
            with b.when(b.cmp("ne", answer, f.word(t.TRUE))):
                b.store(i, n_done)
            f.python("Py_DecRef", [answer], "void")
    with b.when(b.cmp("ne", b.load(n_done, I64), n_pairs)):
        for k, number in enumerate((position, b.load(n_done, I64))):
            f.store(f.new("PyLong_FromLongLong", [number]), arguments, 8 * k)
        answer = f.call(t.ACCUMULATE_REST, arguments, 2)
        for k in range(2):
            f.python("Py_DecRef", [f.load(arguments, 8 * k)], "void")
        f.return_null_if(b.cmp("eq", answer, NULL))
        f.python("Py_DecRef", [answer], "void")


def _add_to(f, arguments, target, x):
    """Whether target += x is the change expected here, as an object; it has been made, without gradients."""
    b = f.b
    operands, enabled = f.tuple_of(f.keep(target), f.keep(x)), f.mode(t.MODE_NAME)
    for k, argument in enumerate((f.word(t.ADD), target, operands, f.word(t.NO_ATTRIBUTES))):
        f.store(argument, arguments, 8 * k)
    set_mode = [f.word(t.MODES), f.word(t.MODE_NAME)]
    f.python("PyDict_SetItem", [*set_mode, f.word(t.FALSE)], I32)
    answer = b.call(PTR, "weft_inplace_again", [b.arguments[0], arguments, b.i64(4)])
    f.python("PyDict_SetItem", [*set_mode, enabled], I32)
    f.python("Py_DecRef", [operands], "void")
    f.return_null_if(b.cmp("eq", answer, NULL))
    return answer


def _gradients_again(module, layout):
    """gradients_again(outputs, cotangents, inputs, retain_graph, create_graph): the gradients that autograd.grad
    returns, as a list, if it is the expected one."""
    f = Method(module, "gradients_again", layout)
    b = f.b
    entry, outputs, cotangents, inputs = f.entry(), *map(f.argument, range(3))
    f.same(f.load(entry, 8 * t.OP), f.word(t.GRADIENTS))
    f.same(f.argument(3), f.load(entry, 8 * t.ATTRIBUTES))
    f.same(f.argument(4), f.word(t.FALSE))
    f.require_mode(entry)
    n_outputs, n = f.load(entry, 8 * t.ROW_LENGTH, I64), f.load(entry, 8 * t.N_OPERANDS, I64)
    codes, tensors = f.load(entry, 8 * t.OPERANDS), f.tensor_items()
    after = b.add(n_outputs, n_outputs)
    n_inputs = b.sub(n, after)
    for given, size in ((outputs, n_outputs), (inputs, n_inputs)):
        f.require_type(given, t.TUPLE)
        f.same(f.load(given, layout.size, I64), size)
    input_items = b.offset(inputs, layout.tuple_items, 1)
    f.require_operands(b.offset(outputs, layout.tuple_items, 1), codes, n_outputs, tensors)
    f.require_operands(input_items, b.offset(codes, after, 8), n_inputs, tensors)
    _require_cotangents(f, cotangents, b.offset(codes, n_outputs, 8), n_outputs, tensors)
    with b.loop(0, n_inputs, 1) as i:
        f.require_unreached(f.item(input_items, i))
    found = f.new_list()
    with b.loop(0, n_inputs, 1) as i:
        f.append_to(found, f.item(tensors, b.add(f.load(entry, 8 * t.VID, I64), i)))
    f.advance()
    f.finish(found)


def _require_cotangents(f, cotangents, codes, n, tensors):
    """Those of the codes, None where a code is negative; without any, all are None."""
    b, layout = f.b, f.layout
    given = b.cmp("ne", cotangents, f.word(t.NONE))
    with b.when(given):
        f.require_type(cotangents, t.TUPLE)
        f.same(f.load(cotangents, layout.size, I64), n)
    with b.loop(0, n, 1) as i:
        code = f.item(codes, i, I64)
        is_none = b.cmp("lt", code, b.i64(0))
        expected = b.select(is_none, f.word(t.NONE), f.item(tensors, b.select(is_none, b.i64(0), code)))
        with b.when(given):
            f.same(f.item(b.offset(cotangents, layout.tuple_items, 1), i), expected)
        with b.when(b.not_(given)):
            f.require(is_none)


def _before_gradient(module, layout):
    """before_gradient(tensor): .grad of a tensor from outside is about to change; the call can take that back."""
    f = Method(module, "before_gradient", layout)
    tensor = f.argument(0)
    f.require(f.b.cmp("ne", f.load(tensor, layout.frame), f.word(t.FRAME)))
    gradient = f.load(tensor, layout.grad)
    f.append_new(t.CHANGED_GRADIENTS, f.tuple_of(*[f.tuple_of(f.keep(x)) for x in (tensor, gradient)]))
    f.finish(f.keep(f.word(t.NONE)))
