"""The canonical text of a stretch of a recording: equal texts mean equal programs. It is the key of the disk cache."""

from .recording import BACKWARD, GRADIENTS, UPDATE
from .rule_text import rule_text


def describe(frame, needed, *, closed=False):
    """All steps so far (a backward reads earlier ones), what is in memory already, and what is needed."""
    lines = [_line(step) for step in frame.steps]
    known = known_values(frame)
    lines.append(
        f"from step {frame.flushed_at_close if closed else frame.flushed}, in memory {known}, {frame.default_dtype!r}"
    )
    lines.append(repr(needed))
    return "\n".join(lines)


def _line(step):
    metas = " ".join(f"{m.dtype.name}{m.shape}{'h' if m.history else ''}" for m in step.metas)
    return f"{step.op} {step.operands} {_attributes(step)} {metas}"


def _attributes(step):
    if step.op == UPDATE:
        rule = step.attributes.rule
        return f"{rule_text(rule)} {step.attributes[1:]}"
    if step.op in (BACKWARD, GRADIENTS):
        return f"{step.attributes} {step.detail.wanted}"
    if isinstance(step.attributes, dict):
        return sorted(step.attributes.items())
    return step.attributes


def known_values(frame):
    """Numbers of the values that were in memory before the pending steps."""
    limit = frame.first_pending_at_close if frame.closed else frame.first_pending
    return sorted(v for v in frame.arrays if v < limit)
