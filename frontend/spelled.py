"""The public names of elementwise ops: functions, methods and in-place forms, made from the spelling in their entries.

    FORMS          {path without "weft.": {name: function}} of weft's own ops, which modules of those paths take over
    special_forms  those of weft.special, with the ones of entries that come later
    publish        gives an op that is registered later its names; `withdraw` takes them back

Functions for which calling one op is not enough are written out in the modules of families.py.
"""

from importlib import import_module

from .absent import Absent, mark_absent, names_in
from .compiler.ops import LATER, TABLE
from .compiler.ops.table import ON_REGISTER, ON_UNREGISTER
from .inplace import inplace_form
from .operands import alike, operand, require_one_tensor, require_tensors, tensor_of, tensor_of_one, tensors
from .out import write_apart, write_op
from .reference import text_of_entry
from .runtime.eager.gate import apply_inplace
from .runtime.state.tensor import Tensor

_ROOT = __name__.partition(".")[0]
_N_TENSORS = {"both": 0, "either": 0, "other": 1, "none": 2}


# --- functions --------------------------------------------------------------------------------------------------------
def _of_one(op, name):
    def function(input, *, out=None):
        if out is not None:
            return write_op(name, op, out, tensor_of(name, input))
        return op(tensor_of(name, input))

    return function


def _of_two(op, name):
    n_tensors, of_numbers = _N_TENSORS[op.spelling.numbers], op.spelling.numbers == "both"

    def function(input, other, *, out=None):
        input, other = operand(input), operand(other)
        if n_tensors:
            require_tensors(name, *(input, other)[:n_tensors])
        elif of_numbers:
            input = tensor_of_one(input, other)
        else:
            require_one_tensor(name, input, other)
        return op(input, other) if out is None else write_op(name, op, out, input, other)

    return function


def _of_two_alike(op, name):
    n_tensors, floating = _N_TENSORS[op.spelling.numbers], op.spelling.promotes == "floating"

    def function(input, other, *, out=None):
        input, other = operand(input), operand(other)
        require_tensors(name, *(input, other)[:n_tensors])
        result = op(*alike(*tensors(name, input, other), floating))
        return result if out is None else write_apart(name, out, result, input, other)

    return function


# --- in place ---------------------------------------------------------------------------------------------------------
def _in_place_of_one(op):
    return lambda self: apply_inplace(op, self, (self,), {})


def _in_place_of_two(op):
    return lambda self, other: apply_inplace(op, self, (self, operand(other)), {})


def _named(function, name, doc):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


# --- names ------------------------------------------------------------------------------------------------------------
def names_of(op):
    """The names below weft and below weft.special."""
    spelling = op.spelling
    return (op.name if spelling.function is None else spelling.function).split(), spelling.special.split()


def _makers(spelling):
    """Who makes the function, and who the in-place form."""
    if spelling.operands == 1:
        return _of_one, _in_place_of_one
    return (_of_two_alike, None) if spelling.promotes else (_of_two, _in_place_of_two)


def forms(op):
    """(path, name, function) of all that an entry spells."""
    names, special = names_of(op)
    make, make_in_place = _makers(op.spelling)
    name = (names + special)[0]
    function = _named(make(op, name), name, text_of_entry(op, op.spelling.operands))
    yield from (("", n, function) for n in names)
    yield from (("special", n, function) for n in special)
    if op.spelling.method:
        yield from (("Tensor", n, function) for n in names)
    if op.spelling.in_place and names:
        changing = make_in_place(op) if make_in_place else inplace_form(function)
        _named(changing, f"{name}_", f"{name}, in place.")
        yield from (("Tensor", f"{n}_", changing) for n in names)
        # Most of them are methods only.
        yield from (("", f"{n}_", changing) for n in names if f"{n}_" in names_in(""))


def _collected():
    found = {"": {}, "special": {}, "Tensor": {}}
    for op in TABLE.loaded():
        for path, name, function in forms(op) if op.spelling else ():
            found[path][name] = function
    return found


FORMS = _collected()
_ONLY_SPECIAL = "cylinder", "orthogonal"  # of the modules that come later; others spell nothing


def special_forms():
    for name in " ".join(LATER[module] for module in _ONLY_SPECIAL).split():
        if TABLE[name].spelling:
            FORMS["special"].update((n, function) for _, n, function in forms(TABLE[name]))
    return FORMS["special"]


# --- ops that come later ----------------------------------------------------------------------------------------------
def _home(path):
    return Tensor if path == "Tensor" else import_module(f"{_ROOT}.{path}".rstrip("."))


_hidden = {}  # (path, name) -> what explains that the name is missing, while it is there


def publish(op):
    """Give an op the names that its entry spells. ValueError if one is taken."""
    if op.name in TABLE.later:
        return  # `special_forms` has it
    made = list(forms(op)) if op.spelling else []
    for path, name, _ in made:
        taken = vars(_home(path)).get(name)
        if taken is not None and not isinstance(taken, Absent):
            place = f"{_ROOT}.{path}".rstrip(".")
            raise ValueError(f"op {op.name}: {place} has a {name!r} already; spell it otherwise (Spelling)")
    for path, name, function in made:
        FORMS[path][name] = function
        _hidden[path, name] = vars(_home(path)).get(name)
        setattr(_home(path), name, function)


def withdraw(op):
    """Take the names of an op away again."""
    for path, name, _ in forms(op) if op.spelling else ():
        del FORMS[path][name]
        before = _hidden.pop((path, name), None)
        # The very object: calls compare classes with what weft made of them.
        delattr(_home(path), name) if before is None else setattr(_home(path), name, before)
    mark_absent(Tensor, "Tensor")


ON_REGISTER.append(publish)
ON_UNREGISTER.append(withdraw)
