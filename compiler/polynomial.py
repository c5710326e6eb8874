"""Polynomials in several unknowns: a product of unknowns, as a sorted tuple, -> its coefficient, none of them 0."""

import ast
from functools import lru_cache
from math import prod

_ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.UnaryOp, ast.USub, ast.Name, ast.Load,
    ast.Constant,
)  # fmt: skip
_NO_BUILTINS = {"__builtins__": {}}


def value_of(terms, numbers):
    return sum(c * prod(numbers[u] for u in unknowns) for unknowns, c in terms.items())


def without(unknowns, others):
    """A product of unknowns divided by another; None if that is no product."""
    rest = list(unknowns)
    for u in others:
        if u not in rest:
            return None
        rest.remove(u)
    return tuple(rest)


def divided(terms, divisor):
    """The terms that times the divisor are these; None if it does not divide them."""
    first, rest, found = max(divisor, key=_degree), dict(terms), {}
    while rest:
        term = max(rest, key=_degree)
        quotient = without(term, first)
        if quotient is None or rest[term] % divisor[first]:
            return None
        found[quotient] = rest[term] // divisor[first]
        for other, c in divisor.items():
            product = tuple(sorted(quotient + other))
            left = rest.pop(product, 0) - found[quotient] * c
            if left:
                rest[product] = left
    return found


def _degree(term):
    """An order of products that multiplication keeps."""
    return len(term), term


def affine_text(factor, constant, name="n"):
    """factor * n + constant."""
    return polynomial_text({term: c for term, c in (((name,), factor), ((), constant)) if c})


def polynomial_text(terms):
    """The text of a polynomial: tuple of unknowns -> coefficient."""
    parts = ["*".join([str(c), *unknowns]) for unknowns, c in sorted(terms.items(), reverse=True)]
    return "+".join(parts) or "0"


@lru_cache(maxsize=4096)
def _compiled(polynomial):
    """(its code, the names in it)"""
    code = compile(arithmetic(polynomial), "<polynomial>", "eval")
    return code, code.co_names


def arithmetic(polynomial):
    """The text of a polynomial, which is Python of nothing but arithmetic. ValueError of another text: files on disk
    have them, which others may have written."""
    for node in ast.walk(ast.parse(polynomial, mode="eval")):
        if isinstance(node, ast.Constant) and type(node.value) is not int or not isinstance(node, _ARITHMETIC):
            raise ValueError(f"{polynomial!r} is no polynomial")
    return polynomial


def evaluate(polynomial, n):
    """The number that a polynomial in text is for n; or for several extents, given by name. It is an extent where they
    are."""
    code, names = _compiled(polynomial)
    return eval(code, _NO_BUILTINS, n if isinstance(n, dict) else dict.fromkeys(names, n))
