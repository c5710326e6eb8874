"""weft.compile."""


def compile(function):
    return function
