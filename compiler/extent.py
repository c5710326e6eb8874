"""Extents known at run time: integers that a program is compiled for without knowing them.

    scope = Scope(200)             # n is 200 in the call that the program is compiled for
    rows = scope.n * 32            # ⟦32*n⟧
    rows // 32 == scope.n          # True, whatever n is
    rows > 4096                    # True for 200, and the scope notes that the program holds where 32*n-4096 > 0
    range(rows)                    # Fixed: only a number will do

An Extent is a polynomial in n, with whole quotients as further unknowns; what is exported may have several extents,
each with a name of its own (Scope({"n": 200, "m": 30})), of which all that is said here of n holds.

Passes compute with it as with an int. Where a pass asks which of two is larger, or whether they are equal, it gets the
answer for the n of this call, and the scope notes it unless it holds for every n from LEAST on: the notes are the
program's *guards*, and the program serves every n for which they hold. Whatever needs the number itself raises Fixed,
and then the program is compiled for that number. So an Extent is no int, though it behaves like one: C code would read
an int's digits, and nobody would know.
"""

import operator
import re
from contextlib import contextmanager
from itertools import combinations
from math import prod

from .plain import Plain
from .polynomial import divided, evaluate, polynomial_text, value_of, without

# Sizes 0 and 1 mean other things (nothing, broadcasting); they are always compiled for.
LEAST = 2
_LITTLE = 1 << 16  # by which an upper bound may exceed twice what is there
_MARKED = "⟦([^⟧]*)⟧"
_COMPARISONS = {"<": operator.lt, "<=": operator.le, "==": operator.eq}


class Fixed(Exception):
    """Something needs an extent as a number, so that a program holds for this number alone."""


class Coincidence(Fixed):
    """Something holds for this number alone, and not for every other one: nothing is said of those. `terms` are 0."""

    def __init__(self, message, terms):
        super().__init__(message)
        self.terms = terms


class Scope:
    """One compilation: the number that n is now, or each extent by name, and what was found out about other numbers on
    the way."""

    def __init__(self, number):
        self.numbers = dict(number) if isinstance(number, dict) else {"n": number}  # what every unknown is now
        self.quotients = {}  # unknown -> (terms, divisor) it is the whole quotient of
        self.bounds = {}  # (term, whether it is added) -> what it is never less than
        self.known = {}  # (terms, comparison with 0) -> what holds for every n
        self.guards = {}  # (text, comparison with 0) -> the answer
        self.typical = None  # what every unknown is where times are estimated, if that is not this call
        self.is_asked = True  # whether == asks about this call; else it tells what is equal for every n
        self.takes_coincidences = False  # whether what is equal for this number alone is a guard like others
        self.extents = {name: Extent(self, {(name,): 1}, now) for name, now in self.numbers.items()}
        self.n = self.extents.get("n")

    def number_of(self, terms):
        return value_of(terms, self.numbers)

    @property
    def work(self):
        """The product of all extents: what the work of a call is taken to be proportional to."""
        return prod(self.extents.values())

    def estimate_for(self, number):
        """From now on times are estimated for calls in which the first extent is this: calls larger than this one."""
        first = next(iter(self.extents))
        self.typical = {**{name: self.numbers[name] for name in self.extents}, first: number}

    def typical_number(self, terms):
        for unknown in {u for unknowns in terms for u in unknowns if u not in self.typical}:
            inner, divisor = self.quotients[unknown]
            self.typical[unknown] = self.typical_number(inner) // divisor
        return value_of(terms, self.typical)

    @contextmanager
    def equal_for_every_n(self):
        """Within, extents are equal where they are for every n, and nothing is asked about the one at hand: for
        choices that any answer is right for."""
        before, self.is_asked = self.is_asked, False
        try:
            yield
        finally:
            self.is_asked = before

    def grows(self, unknown):
        """Whether an unknown is never smaller for a larger n."""
        if unknown not in self.quotients:
            return True
        terms, _ = self.quotients[unknown]
        return all(c > 0 for term, c in terms.items() if term) and all(map(self.grows, sum(terms, ())))

    def least(self, unknown):
        """What an unknown that grows is never less than."""
        if unknown not in self.quotients:
            return LEAST
        terms, divisor = self.quotients[unknown]
        return value_of(terms, {u: self.least(u) for u in sum(terms, ())}) // divisor

    def quotient(self, terms, divisor):
        """The unknown for terms // divisor; its text."""
        text = f"(({polynomial_text(terms)})//{divisor})"
        if text not in self.numbers:
            number = self.number_of(terms)
            if _made(self, terms, number) < 0:
                raise Fixed(f"⟦{polynomial_text(terms)}⟧ is divided by {divisor}, and less than 0")
            self.numbers[text] = number // divisor
            self.quotients[text] = terms, divisor
        return text


class Extent:
    """sum(coefficient * product of unknowns); `terms`: tuple of unknowns -> coefficient, none of them 0."""

    __slots__ = ("number", "scope", "terms")

    def __init__(self, scope, terms, number):
        self.scope, self.terms, self.number = scope, terms, number

    def __repr__(self):
        return f"⟦{polynomial_text(self.terms)}⟧"

    # --- arithmetic ---------------------------------------------------------------------------------------------------
    def __add__(self, other):
        return self._with(other, 1)

    def __sub__(self, other):
        return self._with(other, -1)

    def __rsub__(self, other):
        return -self + other

    def __neg__(self):
        return self * -1

    def __pos__(self):
        return self

    def _with(self, other, sign):
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        result = dict(self.terms)
        for unknowns, coefficient in terms.items():
            result[unknowns] = result.get(unknowns, 0) + sign * coefficient
        return _made(self.scope, result, self.number + sign * _now(other))

    def __mul__(self, other):
        if isinstance(other, int) and other:
            # Most products are of this kind.
            return Extent(self.scope, {u: c * other for u, c in self.terms.items()}, self.number * other)
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        result = {}
        for unknowns, coefficient in self.terms.items():
            for more, factor in terms.items():
                product = tuple(sorted(unknowns + more))
                result[product] = result.get(product, 0) + coefficient * factor
        return _made(self.scope, result, self.number * _now(other))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other):
        divisor = _terms(other)
        if divisor is None:
            return NotImplemented
        if len(divisor) != 1:
            quotient = divided(self.terms, divisor)
            if quotient is None:
                raise Fixed(f"{self!r} is divided by {other!r}")
            return _made(self.scope, quotient, self.number // estimated(other))
        ((unknowns, factor),) = divisor.items()
        if unknowns and None not in (reduced := {without(term, unknowns): c for term, c in self.terms.items()}):
            # What is in both is never 0.
            return _made(self.scope, reduced, self.scope.number_of(reduced)) // factor
        if not unknowns and factor > 0 and self._is_divided_turned(factor):
            return -((-self + (factor - 1)) // factor)
        whole, rest = {}, {}
        for term, coefficient in self.terms.items():
            quotient = without(term, unknowns)
            if quotient is None or coefficient % factor:
                rest[term] = coefficient
            else:
                whole[quotient] = coefficient // factor
        if rest and (unknowns or factor < 0):
            raise Fixed(f"{self!r} is divided by {other!r}")
        if rest.keys() == {()}:
            whole[()] = whole.get((), 0) + rest[()] // factor
        elif rest:
            text = self.scope.quotient(rest, factor)
            whole[(text,)] = whole.get((text,), 0) + 1
        return _made(self.scope, whole, self.number // _now(other))

    def _is_divided_turned(self, factor):
        """Whether -self is what is divided: quotients are of what is never less than 0, and better of what grows."""
        falls = all(c < 0 for term, c in self.terms.items() if term)
        return self.number < 0 or (falls and factor - 1 >= self.number)

    def __rfloordiv__(self, other):
        raise Fixed(f"{other} is divided by {self!r}")

    def __rtruediv__(self, other):
        return Ratio(other, self)

    def __mod__(self, other):
        return self - self // other * other

    def __rmod__(self, other):
        raise Fixed(f"{other} is divided by {self!r}")

    def __divmod__(self, other):
        quotient = self // other
        return quotient, self - quotient * other

    # --- questions ----------------------------------------------------------------------------------------------------
    def __eq__(self, other):
        return self._compared(other, "==", False)

    def __ne__(self, other):
        answer = self._compared(other, "==", False)
        return answer if answer is NotImplemented else not answer

    def __lt__(self, other):
        return self._compared(other, "<", False)

    def __le__(self, other):
        return self._compared(other, "<=", False)

    def __gt__(self, other):
        return self._compared(other, "<", True)

    def __ge__(self, other):
        return self._compared(other, "<=", True)

    def __bool__(self):
        return self != 0

    def _compared(self, other, comparison, turned):
        """self <comparison> other, or if `turned` the other way round."""
        if _terms(other) is None:
            return NotImplemented
        difference = other - self if turned else self - other
        if not isinstance(difference, Extent):
            return _COMPARISONS[comparison](difference, 0)
        if comparison == "==" and not self.scope.is_asked:
            return False
        known = _known(difference, comparison)
        if known is not None:
            return known
        answer = _COMPARISONS[comparison](difference.number, 0)
        is_coincidence = answer and comparison == "==" and not self.scope.takes_coincidences
        if is_coincidence and not any(u in self.scope.quotients for t in difference.terms for u in t):
            raise Coincidence(f"{self!r} is {other!r}", difference.terms)
        self.scope.guards[polynomial_text(difference.terms), comparison] = answer
        return answer

    def __hash__(self):
        # Equal ints have this hash too, so that a table then asks whether they are equal.
        return hash(self.number)

    # --- what only a number can answer --------------------------------------------------------------------------------
    def __index__(self):
        raise Fixed(f"{self!r} is needed as a number")

    __int__ = __float__ = __index__


class Ratio(Plain):
    """A constant float: a number divided by an extent, in float64."""

    __slots__ = ("numerator", "divisor")

    def __init__(self, numerator, divisor):
        self.numerator = numerator
        self.divisor = divisor

    def __repr__(self):
        return f"{self.numerator!r}/{self.divisor!r}"


def scope_of(values):
    """The Scope of the extents in the shapes of some values; None if all are numbers."""
    return next((d.scope for v in values for d in v.shape if is_open(d)), None)


def estimated(x):
    """The number an int or extent is now, or in a typical call: for estimates, on which no result depends."""
    return x.scope.typical_number(x.terms) if isinstance(x, Extent) and x.scope.typical else _now(x)


def whole(x):
    """x as an int, or the extent it is."""
    return x if isinstance(x, Extent) else int(x)


def real(x):
    """x as a float, or the extent it is: arithmetic with floats takes it for the same number."""
    return x if isinstance(x, Extent) else float(x)


def identical(x, y):
    """Whether two ints or extents, or tuples of them, are equal for every n. It asks nothing of the n of this call."""
    if x is y or type(x) is type(y) is int:  # most of what is asked
        return x is y or x == y
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(map(identical, x, y))
    return str(x) == str(y) if is_open(x) or is_open(y) else x == y


def upper(x, y):
    """max(x, y), or where that depends on n, something that neither exceeds, without what is subtracted. Where that is
    much, as in n (200 - n) (200 - n), which is larger is asked about this n."""
    if not (is_open(x) or is_open(y)):
        return max(x, y)
    mine, other = _terms(x), _terms(y)
    most = {unknowns: max(mine.get(unknowns, 0), other.get(unknowns, 0)) for unknowns in {**mine, **other}}
    scope = (x if is_open(x) else y).scope
    if (number := scope.number_of(most)) > 2 * max(_now(x), _now(y)) + _LITTLE:
        return y if x < y else x
    return _made(scope, most, number)


def may_be_less(x, y):
    """Whether x < y, for some n if that depends on n."""
    difference = x - y
    return difference < 0 if not is_open(difference) else _known(difference, "<") is not False


def divides(divisor, x):
    """Whether x is a multiple of the divisor, whatever the call tells."""
    if not is_open(x):
        return not is_open(divisor) and x % divisor == 0
    terms = _terms(divisor)
    if len(terms) != 1:
        return divided(x.terms, terms) is not None
    ((unknowns, factor),) = terms.items()
    return all(c % factor == 0 and without(term, unknowns) is not None for term, c in x.terms.items())


def is_open(x):
    """Whether only the call will tell."""
    return isinstance(x, (Extent, Ratio))


# --- evaluation -------------------------------------------------------------------------------------------------------
def marked(text):
    """The polynomial in what repr(Extent) gives; None of other texts."""
    found = re.fullmatch(_MARKED, text)
    return found and found[1]


def remade(thing, items):
    """A list or tuple of the class of another. Classes of tuples are not asked what they hold: sizes may be extents, or
    none where they are to be told."""
    kind = type(thing)
    return tuple.__new__(kind, items) if issubclass(kind, tuple) else kind(items)


def filled(thing, n):
    """Nested lists and dicts in which every text of an extent is the number it is for n."""
    fill = filler(thing)
    return thing if fill is None else fill(n)


def filler(thing):
    """`filled` of a thing as a function of n, which finds out once where the texts are: None if there are none. What
    holds none is the same thing for every n."""
    if isinstance(thing, str):
        return _filler_of_text(thing) if "⟦" in thing else None
    if isinstance(thing, dict):
        fillers = {k: filler(x) for k, x in thing.items()}
    elif isinstance(thing, (list, tuple)):
        fillers = dict(enumerate(map(filler, thing)))
    else:
        return None
    fillers = {k: fill for k, fill in fillers.items() if fill is not None}
    if not fillers:
        return None

    def fill_container(n):
        made = dict(thing) if isinstance(thing, dict) else list(thing)
        for k, fill in fillers.items():
            made[k] = fill(n)
        return made if isinstance(thing, dict) else remade(thing, made)

    return fill_container


def _filler_of_text(text):
    polynomial = marked(text)
    if polynomial is not None:
        return lambda n: evaluate(polynomial, n)
    return lambda n: re.sub(_MARKED, lambda found: str(evaluate(found[1], n)), text)


def hold(guards, n):
    """Whether guards, lists (polynomial, comparison, answer), hold for n; or for several extents, given by name."""
    return (min(n.values()) if isinstance(n, dict) else n) >= LEAST and agree(guards, n)


def agree(guards, n):
    """The same, for any n."""
    return all(_COMPARISONS[c](evaluate(text, n), 0) == answer for text, c, answer in guards)


# --- polynomials ------------------------------------------------------------------------------------------------------
def _now(x):
    return x.number if isinstance(x, Extent) else x


def _terms(x):
    if isinstance(x, Extent):
        return x.terms
    return {(): x} if isinstance(x, int) else None


def _made(scope, terms, number):
    """The int or extent of these terms, which is that number now."""
    terms = {unknowns: c for unknowns, c in terms.items() if c}
    return Extent(scope, terms, number) if terms.keys() - {()} else terms.get((), 0)


def _least(scope, terms):
    """A number that the terms are never less than; None if none was found. What grows with every unknown is least where
    they are. Otherwise quotients are estimated by q * d + d - 1 >= x >= q * d, until there is nothing but n."""
    if all(c > 0 for unknowns, c in terms.items() if unknowns) and all(map(scope.grows, sum(terms, ()))):
        return value_of(terms, {u: scope.least(u) for u in sum(terms, ())})
    bound = {}
    for unknowns, coefficient in terms.items():
        for term, factor in _shifted(scope, unknowns, coefficient > 0).items():
            bound[term] = bound.get(term, 0) + factor * abs(coefficient)
    constant = bound.pop((), 0)
    return constant if all(c >= 0 for c in bound.values()) else None


def _shifted(scope, unknowns, is_added):
    """A polynomial in what the extents exceed LEAST by that a term, or its negative, is never less than. Kept: a few
    terms are in all the places of an arena, each of which is compared with the others."""
    if (unknowns, is_added) not in scope.bounds:
        bound = scope.bounds[unknowns, is_added] = {}
        for term, c in _estimate(scope, unknowns, 1 if is_added else -1).items():
            for k in range(len(term) + 1):
                for chosen in combinations(term, k):
                    bound[chosen] = bound.get(chosen, 0) + c * LEAST ** (len(term) - k)
    return scope.bounds[unknowns, is_added]


def _estimate(scope, unknowns, coefficient):
    """A polynomial in extents alone that a term is never less than (all unknowns are 0 or more)."""
    known = next((u for u in unknowns if u in scope.quotients), None)
    if known is None:
        return {unknowns: coefficient}
    terms, divisor = scope.quotients[known]
    from fractions import Fraction

    rest, result = without(unknowns, (known,)), {}
    for term, c in terms.items():
        result[term] = result.get(term, 0) + Fraction(c, divisor)
    if coefficient > 0:
        result[()] = result.get((), 0) - Fraction(divisor - 1, divisor)
    found = {}
    for term, c in result.items():
        for more, factor in _estimate(scope, tuple(sorted(term + rest)), coefficient * c).items():
            found[more] = found.get(more, 0) + factor
    return found


def _known(difference, comparison):
    """Whether it is < 0, <= 0 or == 0 for every n; None if that depends on n."""
    scope, key = difference.scope, (frozenset(difference.terms.items()), comparison)
    if key not in scope.known:
        scope.known[key] = _found_out(difference, comparison)
    return scope.known[key]


def _found_out(difference, comparison):
    least = _least(difference.scope, difference.terms)
    if least is not None and (least > 0 or (least == 0 and comparison == "<")):
        return False
    opposite = _least(difference.scope, (-difference).terms)
    if opposite is not None and (opposite > 0 or (opposite == 0 and comparison == "<=")):
        return comparison != "=="
    return False if comparison == "==" and _is_never_zero(difference.terms) else None


def _is_never_zero(terms):
    """Whether a polynomial of the first degree in one extent is 0 for no number that a program may serve."""
    rest_of = terms.keys() - {()}
    (unknowns,) = rest_of if len(rest_of) == 1 else ((),)
    if () not in terms or len(unknowns) != 1 or not unknowns[0].isidentifier():
        return False
    root, rest = divmod(-terms[()], terms[unknowns])
    return bool(rest) or root < LEAST
