"""PyTorch's own OpInfo samples, two of each op and element type (WEFT_ALL_SAMPLES=1: all of them): results, first and
second derivatives, compiled bits, and types of errors. Known exceptions are listed with their reasons.

`python tests/opinfo_report.py` prints the share that passes, op by op.
"""

import os
import warnings

import pytest

pytest.importorskip("torch")

import opinfo_parts as parts  # noqa: E402
from opinfo_known import ABSENT, KNOWN  # noqa: E402
from opinfo_report import tally  # noqa: E402

pytestmark = pytest.mark.oracle

LIMIT = None if os.environ.get("WEFT_ALL_SAMPLES") else 2
NAMES = [name for name in parts.op_database() if name.partition(":")[0] not in ABSENT]


@pytest.mark.parametrize("name", NAMES)
def test_samples(name):
    op = parts.op_database()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tally(op, LIMIT)
    allowed = {kind for kind, _ in KNOWN.get(op.name, {}).items()}
    unknown = [failure for failure in found.failures if failure.partition(" ")[0] not in allowed]
    assert not unknown, "\n".join(unknown)


def test_absent_ops_are_absent():
    """Once one is there, its line in the table has to go."""
    for name in ABSENT:
        op = next(o for o in parts.op_database().values() if o.name == name)
        with pytest.raises(AttributeError):
            parts.function_of(op)


def test_known_exceptions_are_those_of_ops_that_are_there():
    names = {op.name for op in parts.op_database().values()}
    assert set(KNOWN) <= names
    assert set(ABSENT) <= names
    assert all(reason for kinds in KNOWN.values() for reason in kinds.values())
