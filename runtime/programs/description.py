"""A stretch of a recording, and the canonical text of it: the key of the disk cache. Equal texts mean equal programs.

A Stretch is a copy of all that a program is made from. Its text names each part of it, and the builder (build.py) is
given nothing else, so what is stored under a key is what the key says, whatever becomes of the call in the meantime.
"""

from functools import lru_cache
from operator import is_

from ...compiler.extent import is_open
from .evaluate import strides_in_elements
from .recording import BACKWARD, GRADIENTS, INPUT, UPDATE, maker_in
from .rule_text import rule_text


class Stretch:
    """What is known of a call up to now, as copies that nothing changes. Attributes have the names they have there.

    known: numbers of the values that were in memory before the pending steps. strides: of what is in memory, by
    number, None if contiguous.
    """

    __slots__ = (
        "name",
        "step",
        "path",
        "flushed",
        "known",
        "strides",
        "same",
        "overwritten",
        "roots",
        "metas",
        "default_dtype",
    )

    def __init__(self, frame):
        arrays = dict(frame.arrays)
        first_pending = frame.first_pending_at_close if frame.closed else frame.first_pending
        self.name, self.step, self.metas = frame.recording.name, frame.step, tuple(frame.metas)
        # That of the step grows when others are recorded, and a program may be made in another thread.
        self.path = self.step.path()[: self.step.depth]
        self.flushed = frame.flushed_at_close if frame.closed else frame.flushed
        self.known = tuple(sorted(v for v in arrays if v < first_pending))
        in_memory = sorted({*self.known, *self.externals} & arrays.keys())
        self.strides = {vid: strides_in_elements(arrays[vid]) for vid in in_memory}
        self.same, self.roots, self.overwritten = dict(frame.same), dict(frame.roots), frozenset(frame.overwritten)
        self.default_dtype = frame.default_dtype

    @property
    def steps(self):
        return self.path

    @property
    def built(self):
        """The steps that a program is made of: the pending ones, or all if one of these is a backward, which reads
        earlier ones."""
        pending = self.steps[self.flushed :]
        return self.steps if any(step.op in (BACKWARD, GRADIENTS) for step in pending) else pending

    @property
    def externals(self):
        """Numbers of the tensors from outside."""
        return {step.first for step in self.steps if step.op is INPUT}

    def step_of(self, vid):
        """The step that makes a value."""
        return maker_in(self.path, vid)

    def text(self, needed):
        """All steps so far (a backward reads earlier ones), what is in memory already, and what is needed."""
        strided = {vid: strides for vid, strides in self.strides.items() if strides is not None}
        lines = [_line(step, self.metas) for step in self.steps]
        lines.append(f"from step {self.flushed}, in memory {list(self.known)}, {self.default_dtype!r}")
        lines.append(f"strides {strided}, same {sorted(self.same.items())}, views {sorted(self.roots.items())}")
        lines.append(f"overwritten {sorted(self.overwritten)}")
        lines.append(repr(needed))
        return "\n".join(lines)


def _line(step, metas):
    """What a step was recorded as is said once: a call that is left again and again is described whole each time. Where
    a stretch has other metas (changed in the call, or with extents of a Family) its attributes may be others too."""
    made = metas[step.first : step.first + len(step.metas)]
    if isinstance(step.op, str) or not all(map(is_, made, step.metas)):
        return _described(step, made)
    if step.described is None:
        step.described = _described(step, made)
    return step.described


def _described(step, made):
    made = " ".join(f"{m.dtype.name}{m.shape}{'g' if m.requires_grad else ''}{'h' if m.history else ''}" for m in made)
    return f"{step.op} {step.operands} {_attributes(step)} {step.first} {step.first_number} {made}"


@lru_cache(maxsize=1024)
def _text_of_input(key):
    """NumPy takes long to say what a type is, and the same parameters come in with every batch."""
    return repr(key)


def _attributes(step):
    if step.op is INPUT and not any(map(is_open, step.attributes[0])):
        return _text_of_input(step.attributes)
    if step.op == UPDATE:
        rule = step.attributes.rule
        return f"{rule_text(rule)} {step.attributes[1:]}"
    if step.op in (BACKWARD, GRADIENTS):
        return f"{step.attributes} {step.detail.wanted}"
    if isinstance(step.attributes, dict):
        return sorted(step.attributes.items())
    return step.attributes
