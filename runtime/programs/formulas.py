"""Nested containers in which Formulas (opening.py) stand for what follows from sizes, as functions of
these: written out, because they run before every call of other sizes."""

from ...compiler.extent import LEAST, marked, remade
from ...compiler.polynomial import arithmetic
from .opening import Formula

_COMPARISONS = "<", "<=", "=="
_CONTAINERS = dict, list, tuple


def has_formula(thing):
    if isinstance(thing, Formula):
        return True
    return isinstance(thing, _CONTAINERS) and any(map(has_formula, thing.values() if type(thing) is dict else thing))


def with_formulas(thing):
    """What is said of a program for many sizes, whose extents are texts there."""
    if isinstance(thing, str):
        text = marked(thing)
        return thing if text is None else Formula(text)
    return [with_formulas(x) for x in thing] if isinstance(thing, (list, tuple)) else thing


def times(x, y):
    """The product of numbers and Formulas."""
    if not isinstance(x, Formula) and not isinstance(y, Formula):
        return x * y
    return Formula("*".join(f"({one.text})" if isinstance(one, Formula) else str(one) for one in (x, y)))


def function_of(thing, names):
    """A function of the sizes in this order that gives a container with numbers in place of Formulas."""
    constants = {"remade": remade}
    return eval(f"lambda {', '.join(names)}: {_source(thing, constants)}", constants)


def _source(thing, constants):
    if isinstance(thing, Formula):
        return f"({arithmetic(thing.text)})"
    if not has_formula(thing):
        return _constant(thing, constants)
    if isinstance(thing, dict):
        return f"{{{', '.join(f'{key!r}: {_source(x, constants)}' for key, x in thing.items())}}}"
    items = "".join(f"{_source(x, constants)}, " for x in thing)
    if type(thing) is list:
        return f"[{items}]"
    return f"({items})" if type(thing) is tuple else f"remade({_constant(thing, constants)}, ({items}))"


def _constant(thing, constants):
    name = f"constant{len(constants)}"
    constants[name] = thing
    return name


def condition_of(guards, names):
    """A function of the sizes: whether none is too small, and all guards (compiler/extent.py) hold."""
    parts = [f"{name} >= {LEAST}" for name in names]
    for text, comparison, answer in guards:
        if comparison not in _COMPARISONS:
            raise ValueError(f"{comparison!r} is no comparison")
        parts.append(f"(({arithmetic(text)}) {comparison} 0) is {bool(answer)}")
    return eval(f"lambda {', '.join(names)}: {' and '.join(parts)}")
