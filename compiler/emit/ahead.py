"""Rows that are asked for while the row before them is in its last sweep.

Where several sweeps go over each row, as in a layer norm, only the first waits for memory, and what processors foresee
ends with the row: memory rests while the others compute. Each sweep from the last one back asks for one operand, a
line with every vector. On Zen 1 layer norm of 4096 x 768 took an eighth less forward and a tenth less with its backward
(a sixteenth more where the last sweep asked for both operands); on Zen 4, which foresees more, neither changed
(docs/architecture.md), so a target says whether it is done.
"""

from ..dtypes import SIZES
from ..extent import estimated, is_open
from ..loopnest import Load, Loop, Sweep, statements
from ..target import LEVEL1_BYTES
from .vector import NEAR_BYTES

# Of the next row, all operands together: half a level-1 cache, whose other half the row at hand needs.
_MOST_BYTES = LEVEL1_BYTES // 2


def rows_ahead(kernel, target):
    """{id of a Sweep: its loop's Loads whose next row it asks for, with the elements from row to row}."""
    if not target.asks_for_rows:
        return {}
    elements = {p.name: p.element for p in kernel.parameters}
    found = {}
    for loop in statements(kernel.body):
        sweeps = [s for s in loop.body if isinstance(s, Sweep)] if isinstance(loop, Loop) else []
        if len(sweeps) < 2 or any(s.unrolled or s.block for s in sweeps):
            continue
        read = {}
        for sweep in sweeps:
            for x in sweep.body:
                if isinstance(x, Load) and not x.indices and not is_open(x.at.lane) and x.at.lane == 1:
                    step = [c for name, c in x.at.terms if name == loop.index]
                    if step:
                        read.setdefault((x.parameter, x.at), (x, step[0], estimated(sweep.extent)))
        n_bytes = sum(extent * SIZES[elements[x.parameter]] for x, _, extent in read.values())
        if n_bytes <= _MOST_BYTES and n_bytes * estimated(loop.extent) > NEAR_BYTES:
            for k, (x, step, _) in enumerate(read.values()):
                found.setdefault(id(sweeps[-1 - k % len(sweeps)]), []).append((x, step))
    return found
