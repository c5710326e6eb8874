"""A small model and its batches, for scenarios of training. Not a test."""

from weft import nn, randn

N_STEPS = 7


def net(n_in=3, n_out=2):
    return nn.Sequential(nn.Linear(n_in, 5), nn.Tanh(), nn.Linear(5, n_out))


def params(module):
    return list(module.parameters())


def batches(n_rows=4, n_in=3, n_out=2, count=N_STEPS):
    return [(randn(n_rows, n_in), randn(n_rows, n_out)) for _ in range(count)]
