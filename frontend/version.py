"""The version of PyTorch whose names and meanings weft takes, and weft's own.

Programs compare `torch.__version__` to choose among spellings, so `weft.__version__` is the one that decides those:
PyTorch's, with weft's own behind a plus sign, which is where versions of Python packages say such things.
"""

import re

weft_version = "0.1.0"
cuda = hip = xpu = rocm = None
debug, git_version = False, "unknown"


class TorchVersion(str):
    """A version as text that compares by its numbers: with texts, as in "2.2", and with tuples, as in (2, 2)."""

    __slots__ = ()

    def __eq__(self, other):
        return str.__eq__(self, other) if isinstance(other, str) and "+" in other else _release(self) == _release(other)

    def __ne__(self, other):
        return not self == other

    def __lt__(self, other):
        return _release(self) < _release(other)

    def __gt__(self, other):
        return _release(self) > _release(other)

    def __le__(self, other):
        return _release(self) <= _release(other)

    def __ge__(self, other):
        return _release(self) >= _release(other)

    __hash__ = str.__hash__


def _release(version):
    """(2, 13, 0) of "2.13.0+weft.0.1.0"; zeros at the end say nothing."""
    numbers = re.findall(r"\d+", re.match(r"[\d.]*", version)[0]) if isinstance(version, str) else list(version)
    numbers = [int(number) for number in numbers]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


__version__ = TorchVersion(f"2.13.0+weft.{weft_version}")
