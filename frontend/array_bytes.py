"""The bytes of a NumPy array that somebody else owns: whether it still is what it was, in memory and in how it lies."""

import numpy as np


class ArrayBytes:
    """What an array was. `copy`: of all memory from its first byte to its last, which is compared.

    at: the address of the first byte. layout: address of the first element, shape, strides and dtype.
    """

    def __init__(self, array):
        self.array, self.layout = array, _layout(array)
        steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
        self.at = self.layout[0] + sum(step for step in steps if step < 0)
        self.n_bytes = sum(map(abs, steps)) + array.itemsize if array.size else 0
        self.copy = self._memory().copy()

    def holds(self):
        """Whether it is the same still."""
        return _layout(self.array) == self.layout and np.array_equal(self._memory(), self.copy)

    def _memory(self):
        return np.asarray(_Memory(self.at, self.n_bytes)) if self.n_bytes else np.empty(0, np.uint8)


class _Memory:
    """Bytes at an address, for NumPy."""

    def __init__(self, address, n_bytes):
        self.__array_interface__ = {"data": (address, True), "shape": (n_bytes,), "typestr": "|u1", "version": 3}


def _layout(array):
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype
