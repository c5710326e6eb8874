"""What a source in the subset says besides Python: native functions, what they call, and what departs.

    @native(inline=True)
    def grad_enabled(words: Words) -> Borrowed(Object):
        return words.modes.get("grad_enabled", words.default)

Everything here has a meaning in Python too: a source runs as it stands, and is what is translated. Nothing here needs
the translator, so a process whose native code is on disk imports neither it nor `ast`.
"""

import functools
from typing import NamedTuple

# Memory orders, in LLVM's words.
RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = "monotonic", "acquire", "release", "acq_rel", "seq_cst"

METHOD, SLOT = "method", "slot"


class Departed(Exception):
    """In Python: something required does not hold, and the function's slow way is to be gone."""


class Declaration(NamedTuple):
    """How a function is native. function: its Python, whose text is translated.

    form: METHOD is METH_FASTCALL with an array of words for `self`; SLOT is a class's tp_call; None a C function of its
    parameters. slow: where it goes if something required does not hold: of a method, the field of the words with the
    Python function that does the same; of a slot, the name of the next native slot function or of a Python one.
    """

    function: object
    name: str | None
    inline: bool
    form: str | None
    slow: str | None


def native(*, name=None, inline=False, form=None, slow=None, python=None):
    """Decorates a function of the subset, which stays as it is. name: under which it is exported. python: what does the
    same in Python, for text that has no meaning there; a test must compare the two."""

    def declare(function):
        if (form is None) != (slow is None):
            raise TypeError(f"native: {function.__name__} needs both form= and slow=, or neither")
        exported = name or (f"weft_{function.__name__}" if form else None)
        called = python or (function if slow is None else _with_slow_way(function, form, slow))
        function.declaration = called.declaration = Declaration(function, exported, inline, form, slow)
        return called

    return declare


def _with_slow_way(function, form, slow):
    @functools.wraps(function)
    def call(words, *arguments):
        try:
            return function(words, *arguments)
        except Departed:
            if form == METHOD:
                return getattr(words, slow)(*arguments)
            return _call_slot(function.__globals__[slow], words, *arguments)

    return call


def _call_slot(following, this, operands, attributes):
    if hasattr(following, "declaration"):
        return following(this, operands, attributes)
    return following(this, *operands, **(attributes or {}))


def require(condition):
    """Go the slow way unless the condition holds."""
    if not condition:
        raise Departed


# --- what native functions call ---------------------------------------------------------------------------------------
class External(NamedTuple):
    """A C function that the process has, by name.

    fails: what it returns with an exception set: "null", "nonzero", or None if it does not. quiet: whether it is sure
    to run no Python code. variadic: how many parameters are declared, if it takes more. python: what does the same.
    """

    name: str
    parameters: tuple
    result: object = None
    fails: str | None = None
    quiet: bool = False
    variadic: int | None = None
    python: object = None

    def __call__(self, *arguments):
        return self.python(*arguments)


class Intrinsic(NamedTuple):
    """An instruction, by LLVM's name for it."""

    name: str
    parameters: tuple
    result: object = None
    python: object = None

    def __call__(self, *arguments):
        return self.python(*arguments)


def address_of(place):
    """The address of a field, an array, a structure or a native function."""
    return place


def local_array(item, count):
    """Zeros on the stack, for as long as the function runs."""
    return [item.zero] * count


def cast(kind, x):
    """x, which is known to be of this kind."""
    return x


def keep(x):
    """x as a reference of one's own."""
    return x


def quotient(x, y):
    """x / y without its fraction, as C divides."""
    return x // y if (x < 0) == (y < 0) else -(-x // y)


def load_at(kind, address, index):
    """The item of an array that begins at an address."""
    raise TypeError("load_at: an address means nothing in Python; give the function a twin: native(python=...)")
