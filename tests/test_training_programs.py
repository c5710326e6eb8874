"""Whole training programs: weft trains as PyTorch does, and compiled weft as weft, bit for bit."""

import functools

import numpy as np
import pytest
import training_generative  # noqa: F401
import training_interrupted  # noqa: F401
import training_loops  # noqa: F401
import training_second_order  # noqa: F401
import training_supervised  # noqa: F401
from compiled_twin import undecorated
from training_programs import PROGRAMS, run

import weft


@functools.cache
def trained_eagerly(name, dtype):
    return run(weft, name, undecorated, dtype)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_compiled_training_is_eager_training(name):
    losses, trained = trained_eagerly(name, "float32")
    of_compiled, trained_compiled = run(weft, name, weft.compile, "float32")
    for k, (a, b) in enumerate(zip(losses, of_compiled)):
        assert a.tobytes() == b.tobytes(), f"step {k}: {a} eagerly, {b} compiled"
    for k, (a, b) in enumerate(zip(trained, trained_compiled, strict=True)):
        assert a.tobytes() == b.tobytes(), f"trained tensor {k} of shape {a.shape}"


def close(seen, expected, tolerance):
    """Relative to the losses of the whole program: single ones may be next to 0."""
    size = np.median(np.abs(expected))
    np.testing.assert_allclose(seen, expected, rtol=tolerance, atol=tolerance * size)


@pytest.mark.oracle
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_training_is_pytorchs(name):
    (losses, trained), (expected, of_torch) = (
        trained_eagerly(name, "float64"),
        run(pytest.importorskip("torch"), name, undecorated, "float64"),
    )
    close(losses, expected, 1e-9)
    for a, b in zip(trained, of_torch, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)


@pytest.mark.oracle
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_training_in_single_precision_is_pytorchs(name):
    # Not the weights: where a bias changes nothing, its gradient is a rounding error, and Adam makes it a step.
    losses, _ = trained_eagerly(name, "float32")
    close(losses, run(pytest.importorskip("torch"), name, undecorated, "float32")[0], 1e-5)
