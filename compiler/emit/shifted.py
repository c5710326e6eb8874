"""Kernels that begin at other elements of what they read and write are one kernel: where they begin is the call's.

    x[0] * w, x[1] * w, ...        load p0[512 + j]   ->   load p0[j], called with p0 + 2048 bytes

So the time steps of a loop in Python have one kernel, however many they are, and calls that differ in addresses alone,
which become a loop (repeats.py).
"""

from dataclasses import replace

from ..dtypes import SIZES
from ..extent import is_open
from ..loopnest import Extreme, Loop, Sweep, statements


def shifted(kernel):
    """(a kernel that reads and writes its parameters from their first element on, so many bytes on for each)."""
    least = _first_elements(kernel.body)
    if not any(least.values()):
        return kernel, [0] * len(kernel.parameters)
    body = _without(kernel.body, least)
    return replace(kernel, body=body), [least.get(p.name, 0) * SIZES[p.element] for p in kernel.parameters]


def _first_elements(body):
    """Name of a parameter -> the least constant of all positions in it; 0 where that is known at run time only."""
    found, fixed = {}, set()
    for s in statements(body):
        at, name = getattr(s, "at", None), getattr(s, "parameter", None)
        if at is None or name is None:
            continue
        if is_open(at.constant):
            fixed.add(name)
        elif isinstance(s, Extreme) and s.positions is not None:
            fixed.update((name, s.positions))  # one position is for both
        else:
            found[name] = min(found.get(name, at.constant), at.constant)
    return {name: 0 if name in fixed else least for name, least in found.items()}


def _without(body, least):
    made = []
    for s in body:
        if isinstance(s, (Loop, Sweep)):
            made.append(replace(s, body=_without(s.body, least)))
        elif least.get(getattr(s, "parameter", None)):
            made.append(replace(s, at=replace(s.at, constant=s.at.constant - least[s.parameter])))
        else:
            made.append(s)
    return tuple(made)
