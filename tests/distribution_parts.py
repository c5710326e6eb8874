"""What tests of distributions share."""

import numpy as np

import weft


def numbers(library):
    return lambda *values: library.tensor(values, dtype=library.float64)


def close(ours, theirs, what, tolerance=1e-7):
    if theirs is NotImplementedError:
        assert ours is NotImplementedError or what == "entropy", what
        return
    assert tuple(ours.shape) == tuple(theirs.shape), what
    tolerance = tolerance if ours.dtype is weft.float64 else 1e-5
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), tolerance, 1e-12, err_msg=what)
