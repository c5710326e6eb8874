"""Programs that are run with weft and, where it is installed, with PyTorch. Not a test.

`ns` stands for the library in a program; `expected` is what it returns, as nested lists and numbers.
"""

import pytest


def program_into(programs):
    """The decorator that registers a function in a list of test parameters: @program(expected)."""

    def program(expected):
        def add(function):
            programs.append(pytest.param(function, expected, id=function.__name__))
            return function

        return add

    return program


def plain(x):
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return x.tolist() if hasattr(x, "tolist") else x


def leaf(ns, values):
    return ns.tensor(values, dtype=ns.float64, requires_grad=True)
