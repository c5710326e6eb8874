"""Every op of the table shared among a team: what its threads touch is counted; they take turns in random orders."""

import numpy as np
import pytest
from helpers import call, operands_of, sampled_ops
from turn_taking import share_much, teams

import weft
from weft.compiler import lowered
from weft.compiler.loopnest import Load, Store
from weft.compiler.parallel import kernel_cuts
from weft.compiler.regions import walk

pool = pytest.fixture(teams)


def positions(at, loops, sweep, cut):
    """(units, elements): which unit of the cut touches which element, position by position."""
    extents = {loop.index: range(loop.extent) for loop in loops} | {"j": range(sweep.extent if sweep else 1)}
    grid = dict(zip(extents, np.meshgrid(*extents.values(), indexing="ij")))
    shared = grid["j"] % (sweep.extent // cut.rows) if cut.along == "columns" and sweep else grid[next(iter(extents))]
    elements = at.constant + at.lane * grid["j"] + sum(c * grid[name] for name, c in at.terms)
    return (shared // cut.unit + 0 * elements).ravel(), (elements + 0 * shared).ravel()


def check(kernel, aliases, cut):
    """No element that one unit writes is touched by another. Kernels whose positions are computed are left out."""
    every = list(walk(kernel.body, (), None))
    if kernel.has_blocks or any(loop.split for _, loops, _ in every for loop in loops):
        return
    touched, written = {}, {}
    for s, loops, sweep in every:
        if isinstance(s, (Load, Store)) and s.parameter in aliases and not getattr(s, "indices", ()):
            if cut.along == "rows" and not loops or cut.along == "columns" and sweep is None:
                continue  # what every thread reads
            name, found = aliases.get(s.parameter, s.parameter), set(zip(*positions(s.at, loops, sweep, cut)))
            touched.setdefault(name, set()).update(found)
            if isinstance(s, Store):
                written.setdefault(name, set()).update(found)
    for name, pairs in written.items():
        by_element = {}
        for unit, element in touched[name]:
            by_element.setdefault(element, set()).add(unit)
        assert all(len(by_element[element]) == 1 for _, element in pairs), f"{name} of\n{kernel}\ncut as {cut}"


def counted(kernel, aliases, wished, target):
    cuts = kernel_cuts(kernel, aliases, wished, target)
    for cut in cuts:
        check(kernel, aliases, cut)
    return cuts


@pytest.mark.parametrize("op", sampled_ops(), ids=str)
def test_samples(op, pool, monkeypatch):
    monkeypatch.setattr(lowered, "kernel_cuts", counted)
    share_much(monkeypatch, few_columns=1)
    samples = [(operands_of(sample), sample.attributes) for sample in op.samples()]

    def run():
        return [call(op, operands, attributes) for operands, attributes in samples]

    expected = [x.numpy().tobytes() for x in run()]
    compiled = weft.compile(run)
    for _ in range(3):
        assert [x.numpy().tobytes() for x in compiled()] == expected
