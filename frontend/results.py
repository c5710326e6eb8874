"""Results with names: tuples such as (values, indices), printed as PyTorch prints them."""

from functools import cache
from operator import itemgetter


class Result(tuple):
    """What such classes have in common."""

    __slots__ = ()
    of, names = "", ()

    def __new__(cls, *parts):
        return tuple.__new__(cls, parts)

    def __reduce__(self):
        return _made_again, (self.of, self.names, tuple(self))

    def __repr__(self):
        parts = ",\n".join(f"{name}={part!r}" for name, part in zip(self.names, self))
        return f"weft.return_types.{self.of}(\n{parts})"


@cache
def result_type(of, *names):
    """The class of results of the function `of`, made from its parts by position."""
    fields = {name: property(itemgetter(k)) for k, name in enumerate(names)}
    return type(of, (Result,), {"__slots__": (), "of": of, "names": names, **fields})


def _made_again(of, names, parts):
    """What was pickled or copied."""
    return result_type(of, *names)(*parts)
