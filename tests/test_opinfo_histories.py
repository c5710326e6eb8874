"""Results have a history wherever PyTorch's have one: a gradient that is missing would be one of zero."""

import opinfo_parts as parts
import pytest
import torch

import weft

pytestmark = pytest.mark.oracle

# Their derivatives are zeros wherever PyTorch has some: for these samples, or always.
ZERO = {
    *("bernoulli", "cdist", "fill", "heaviside", "linalg.lstsq", "linalg.lstsq:grad_oriented", "linalg.matrix_power"),
    *("linalg.norm", "linalg.slogdet", "norm", "zero_"),
}
GROUPS = 8


def histories(result):
    return [x.requires_grad for x in parts.flat(result) if isinstance(x, (torch.Tensor, weft.Tensor))]


def lacks_one(op):
    """Whether one of weft's results has none where PyTorch's has one, for PyTorch's first sample of an op."""
    try:
        sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=True)))
        theirs = histories(op.op(sample.input, *sample.args, **sample.kwargs))
        given = [parts.translated(x) for x in (sample.input, *sample.args)]
        ours = parts.function_of(op)(*given, **{key: parts.translated(x) for key, x in sample.kwargs.items()})
    except Exception:  # noqa: BLE001 - what cannot be run is other tests' subject
        return None
    return len(theirs) == len(histories(ours)) and any(b and not a for a, b in zip(histories(ours), theirs))


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_result_lacks_its_history(group):
    names = sorted(parts.op_database())[group::GROUPS]
    found = {name: lacks_one(parts.op_database()[name]) for name in names}
    assert [name for name, lacks in found.items() if lacks and name not in ZERO] == []
    assert sum(lacks is not None for lacks in found.values()) > len(names) // 2
