"""Tensors and arrays that the tests of weft.nn share."""

import numpy as np

import weft


def numbers(shape, seed=0, low=-2.0, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, shape)


def tensor(shape, seed=0, requires_grad=False, low=-2.0, high=2.0):
    return weft.tensor(numbers(shape, seed, low, high), requires_grad=requires_grad)
