"""weft.nn.modules.utils: a number for every dimension, from one number or several."""

from collections.abc import Iterable


def _ntuple(n, name="parse"):
    """A function that gives n times a number, or what is a sequence already as a tuple."""

    def parse(x):
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t, n):
    """Every entry n times, the last one first: (a, b) -> (b, b, a, a) for n = 2."""
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Take a prefix off the keys that have it, in place."""
    for key in list(state_dict.keys()):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
