"""Results with names: tuples such as (values, indices), printed as PyTorch prints them."""

from operator import itemgetter


class _Result(tuple):
    __slots__ = ()
    of, names = "", ()

    def __new__(cls, *parts):
        return tuple.__new__(cls, parts)

    def __repr__(self):
        parts = ",\n".join(f"{name}={part!r}" for name, part in zip(self.names, self))
        return f"weft.return_types.{self.of}(\n{parts})"


def result_type(of, *names):
    """The class of results of the function `of`, made from its parts by position."""
    fields = {name: property(itemgetter(k)) for k, name in enumerate(names)}
    return type(of, (_Result,), {"__slots__": (), "of": of, "names": names, **fields})
