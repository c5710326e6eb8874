"""The text of an update's rule in the key of a program: rules with equal texts compute the same.

A rule is a function of whoever wrote the optimizer. What it computes is decided by its code, its defaults, and what it
reaches: variables around it, globals, and the functions it calls, whose texts are part of its own. Functions of weft's
runtime and compiler are named only, since their sources are part of every key (cache.py: fingerprint).
"""

import os
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

from ...compiler.ops.table import Op
from ..state.attributes import refusal

_PACKAGE = __name__.partition(".")[0]
_COVERED = tuple(f"{_PACKAGE}.{part}" for part in ("runtime", "compiler"))


def rule_text(rule):
    """The text of a rule; another one every time if it reaches what has none."""
    return _text(rule, [])


def _text(x, within):
    if refusal({"value": x}) is None:
        return repr(x)
    if isinstance(x, tuple):
        return f"({', '.join(_text(item, within) for item in x)})"
    if isinstance(x, Op):
        return f"op {x.name}"
    if isinstance(x, ModuleType):
        return f"module {x.__name__}"
    if isinstance(x, (type, BuiltinFunctionType)) or _is_covered(x):
        return f"{x.__module__}.{x.__qualname__}"
    if isinstance(x, FunctionType):
        return "itself" if x in within else _function_text(x, [*within, x])
    return f"{type(x).__name__} {os.urandom(8).hex()}"


def _is_covered(x):
    return isinstance(x, FunctionType) and x.__closure__ is None and x.__module__.startswith(_COVERED)


def _function_text(function, within):
    code, known = function.__code__, function.__globals__
    cells = zip(code.co_freevars, function.__closure__ or ())
    reached = {name: known[name] for name in _names(code) if name in known}
    reached |= {f"{name} around it": cell.cell_contents for name, cell in cells}
    reached |= {f"{name} by default": value for name, value in (function.__kwdefaults__ or {}).items()}
    reached["last by default"] = function.__defaults__
    texts = [f"{name}: {_text(value, within)}" for name, value in sorted(reached.items())]
    return f"{function.__module__}.{function.__qualname__} [{_code_text(code)}] {{{', '.join(texts)}}}"


@lru_cache(maxsize=256)
def _code_text(code):
    constants = [_code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


@lru_cache(maxsize=256)
def _names(code):
    """The names that a function's code looks up, with those of functions inside."""
    inner = [name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c)]
    return frozenset((*code.co_names, *inner))
