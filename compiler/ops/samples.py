"""Sample operands for the generated tests: deterministic, away from kinks, with broadcasting, 0-d and empty shapes."""

from functools import partial

import numpy as np

from .table import Sample

SHAPES = ((), (3,), (2, 3), (0, 3), (5, 37))
PAIRS = (((), ()), ((3,), (3,)), ((2, 3), (3,)), ((4, 1), (1, 5)), ((2, 1, 3), (4, 1)), ((0, 3), (3,)), ((), (2, 2)))


def numbers(seed, shape, low=-2.0, high=2.0, dtype="float64"):
    """Uniform numbers in [low, high), rounded so that float32 holds them exactly."""
    values = np.random.default_rng(seed).uniform(low, high, shape)
    return np.asarray(np.float32(values), dtype=dtype)


def integers(seed, shape, low=-5, high=6, dtype="int64"):
    return np.asarray(np.random.default_rng(seed).integers(low, high, shape), dtype=dtype)


def bools(seed, shape):
    return np.asarray(np.random.default_rng(seed).random(shape) < 0.5)


def unary(low=-2.0, high=2.0, **attributes):
    return partial(_unary, low, high, attributes)


def _unary(low, high, attributes):
    return [Sample((numbers(k, s, low, high),), attributes) for k, s in enumerate(SHAPES)]


def binary(low=-2.0, high=2.0, right_low=None, right_high=None, *, number=True):
    right = (low if right_low is None else right_low, high if right_high is None else right_high)
    return partial(_binary, low, high, right, number)


def _binary(low, high, right, number):
    pairs = [Sample((numbers(2 * k, x, low, high), numbers(2 * k + 1, y, *right))) for k, (x, y) in enumerate(PAIRS)]
    with_number = Sample((numbers(90, (2, 3), low, high), (right[0] + right[1]) / 2 + 0.25))
    return [*pairs, with_number] if number else pairs


def bool_unary():
    return [Sample((bools(k, s),)) for k, s in enumerate(SHAPES)]


def bool_binary():
    return [Sample((bools(2 * k, x), bools(2 * k + 1, y))) for k, (x, y) in enumerate(PAIRS)]
