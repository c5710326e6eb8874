"""What one call costs in the ways people write it: many small programs, each eager and compiled, weft and torch.

    python -m benchmarks idioms                             all of them, without torch.compile
    python -m benchmarks idioms --only step_,ring_buffer    names that contain one of these
    python -m benchmarks idioms --sides weft,torch-compile --minutes 10

The programs are small, so that what is measured is the way of a call, not its kernels. registry.py says what an idiom
is; the other files but scripts.py, child.py, measure.py, report.py and command.py hold them by theme.
"""

from . import (  # noqa: F401
    acting,
    arguments,
    assorted,
    beliefs,
    callers,
    changes,
    control,
    gradients,
    holders,
    implicit,
    inner_loops,
    kept,
    kept_arrays,
    layers,
    likelihoods,
    networks,
    notebooks,
    numerics,
    physics,
    recipes,
    results,
    samples,
    sciences,
    scipy_style,
    scripts,
    sized,
    slopes,
    spellings,
    steps,
    strangers,
    training,
    ways,
)
from .registry import IDIOMS  # noqa: F401
