"""Changes in place beside PyTorch's: what native code has recorded, against the oracle. Not a test."""

import numpy as np
import pytest

import weft


def assert_gradients_of_pytorch(differentiated, name, times):
    """differentiated(library, name, dtype) -> (flags, arrays or None, names of nodes), each time the same."""
    flags, values, names = differentiated(pytest.importorskip("torch"), name, "float64")
    for _ in range(times):
        our_flags, our_values, our_names = differentiated(weft, name, "float64")
        assert our_flags == flags
        # Assignments to parts go by another name (docs/differences.md).
        assert [n.replace("SliceScatterBackward0", "CopySlices") for n in our_names] == list(names)
        for ours, theirs in zip(our_values, values, strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
