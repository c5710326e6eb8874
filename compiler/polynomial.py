"""Polynomials in several unknowns: a product of unknowns, as a sorted tuple, -> its coefficient, none of them 0."""

from math import prod


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
