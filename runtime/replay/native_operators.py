"""The operators of tensors in native code: `x + y` goes to its op without a function in Python in between.

An operator's C function stands in the class's slot, as wrappers in place of `__add__` and `__radd__`. It gets what
stands left and right of the operator, one of which is a tensor. Two tensors, or a tensor and a Python number, go to the
op; for all else the functions are called that stood there before (frontend/methods.py). Of the subset (docs/native.md).
"""

import ctypes

import numpy as np

from ...compiler.translate.kinds import I32, I64, Address, Bool, Dict, Inline, Object, Struct
from ...compiler.translate.language import cast, native
from ..code import translated
from ..code.native_kinds import call_with
from ..code.packing import Packed
from ..eager.eager_words import is_subtype
from ..state import marks
from ..state.marks import IN_PYTHON, TURNED
from ..state.modes import autocasting
from ..state.tensor import Tensor
from . import native_layout
from .native import new_wrapper

COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")  # as CPython numbers them


class Operator(Struct):
    """forward, reflected: the functions in Python. number_first: a number before a tensor (marks.py)."""

    op: Object
    forward: Object
    reflected: Object
    number_first: I64


class Words(Struct):
    add: Address
    sub: Address
    mul: Address
    truediv: Address
    matmul: Address
    neg: Address
    comparisons: Inline(Address, len(COMPARISONS))


WORDS = Words()


@native(inline=True)
def is_tensor(x: Object) -> Bool:
    return type(x) is Tensor or is_subtype(type(x), Tensor) != 0


@native(inline=True)
def is_number(x: Object) -> Bool:
    return type(x) is float or type(x) is int


@native()
def operated(operator: Operator, left: Object, right: Object) -> Object:
    if is_tensor(left):
        if is_number(right) or is_tensor(right):
            return call_with(operator.op, (left, right), None)
        return call_with(operator.forward, (left, right), None)
    if operator.number_first == IN_PYTHON or not is_number(left):
        return call_with(operator.reflected, (right, left), None)
    if operator.number_first == TURNED:
        return call_with(operator.op, (right, left), None)
    return call_with(operator.op, (left, right), None)


@native(name="weft_operator_add")
def add(left: Object, right: Object) -> Object:
    return operated(cast(Operator, WORDS.add), left, right)


@native(name="weft_operator_sub")
def sub(left: Object, right: Object) -> Object:
    return operated(cast(Operator, WORDS.sub), left, right)


@native(name="weft_operator_mul")
def mul(left: Object, right: Object) -> Object:
    return operated(cast(Operator, WORDS.mul), left, right)


@native(name="weft_operator_truediv")
def truediv(left: Object, right: Object) -> Object:
    return operated(cast(Operator, WORDS.truediv), left, right)


@native(name="weft_operator_matmul")
def matmul(left: Object, right: Object) -> Object:
    operator = cast(Operator, WORDS.matmul)
    if not is_tensor(left):
        return call_with(operator.reflected, (right, left), None)
    if is_tensor(right) and len(cast(Dict, autocasting)) == 0:
        return call_with(operator.op, (left, right), None)
    return call_with(operator.forward, (left, right), None)


@native(name="weft_operator_neg")
def neg(x: Object) -> Object:
    return call_with(cast(Operator, WORDS.neg).op, (x,), None)


@native(name="weft_operator_compare")
def compare(left: Object, right: Object, comparison: I32) -> Object:
    return operated(cast(Operator, WORDS.comparisons[comparison]), left, right)


_FUNCTIONS = {"add": add, "sub": sub, "mul": mul, "truediv": truediv, "matmul": matmul, "neg": neg}
_FUNCTIONS |= dict.fromkeys(COMPARISONS, compare)
_held = []


def part(layout):
    """What is translated: its name, functions and layout."""
    return "operators", list(dict.fromkeys(_FUNCTIONS.values())), layout


def install(layout):
    """Operators go to native code from now on, unless somebody has replaced one."""
    if _held or not all(map(_is_own, _FUNCTIONS)):
        return
    code = translated.load(*part(layout))
    packed = {name: Packed(_operator(name)) for name in _FUNCTIONS}
    at = {name: one.address for name, one in packed.items()}
    address = code.struct_address(f"{Words.__module__}:WORDS")
    words = Packed(Words(comparisons=[at.pop(name) for name in COMPARISONS], **at)).words
    (ctypes.c_int64 * len(words)).from_address(address)[:] = words.tolist()
    _held.extend((code, packed))
    for name, function in _FUNCTIONS.items():
        for method in _methods(name):
            _replace(method, code.address(function.declaration.name))


def _methods(name):
    """Those that the class of arrays has too, from which CPython's description of the slot is taken."""
    return [method for method in (f"__{name}__", f"__r{name}__") if method in vars(np.ndarray)]


def _is_own(name):
    known, now = marks.methods.get(Tensor, {}), vars(Tensor)
    return name in marks.operators and all(known.get(method) is now[method] for method in _methods(name))


def _operator(name):
    (op, number_first), functions = marks.operators[name], [vars(Tensor)[method] for method in _methods(name)]
    return Operator(op=op, forward=functions[0], reflected=functions[-1], number_first=number_first)


def _replace(method, address):
    new = new_wrapper(Tensor, native_layout.base_of(np.ndarray, method), address)
    setattr(Tensor, method, new)
    marks.methods[Tensor][method] = new
