"""Whole training programs, as people write them, for `T`, which is weft or torch. Not a test.

A program is a generator: it takes `T` and a Setting, and yields a loss per step. Data and starting weights come from
NumPy, in the order in which they are asked for, so that both libraries start from the same numbers. `setting.compile`
decorates what a user would compile; it does nothing but where weft compiles.
"""

import numpy as np

PROGRAMS = {}
N_STEPS = 50


def program(function):
    PROGRAMS[function.__name__] = function
    return function


class Setting:
    """What a program is given: numbers, starting weights, and `compile`."""

    def __init__(self, T, compile, dtype):
        self.T, self.compile = T, compile
        self.rng = np.random.default_rng(5)
        self.dtype = dtype
        self.trained = []

    def numbers(self, *shape, scale=1.0):
        """Normal numbers as a tensor."""
        return self.T.tensor((self.rng.standard_normal(shape) * scale).astype(self.dtype))

    def integers(self, high, *shape):
        return self.T.tensor(self.rng.integers(0, high, shape))

    def order(self, count):
        """A random order as a list, since the libraries draw other ones for the same seed."""
        return self.rng.permutation(count).tolist()

    def weights(self, module):
        """The module, with starting weights for its matrices and biases; what starts as ones or zeros stays so."""
        biases = {id(m.bias) for m in module.modules() if isinstance(m, self.T.nn.Linear)}
        with self.T.no_grad():
            for param in module.parameters():
                if param.ndim > 1 or id(param) in biases:
                    param.copy_(self.numbers(*param.shape, scale=param.shape[-1] ** -0.5))
        self.trained += module.parameters()
        return module

    def parameter(self, *shape, scale=1.0):
        """A trained tensor without a module."""
        made = self.T.nn.Parameter(self.numbers(*shape, scale=scale))
        self.trained.append(made)
        return made


def run(T, name, compile, dtype):
    """(losses, trained parameters at the end) as NumPy arrays."""
    before = T.get_default_dtype()
    T.set_default_dtype(getattr(T, dtype))
    try:
        setting = Setting(T, compile, dtype)
        losses = [np.array(float(getattr(loss, "data", loss))) for loss in PROGRAMS[name](T, setting)]
        assert len(losses) == N_STEPS and np.isfinite(losses).all()
        return losses, [p.detach().numpy().copy() for p in setting.trained]
    finally:
        T.set_default_dtype(before)
