"""An op, or the derivative of one, on operands of given shapes and types: what a program of eager mode computes.

A Rule is told to the machinery of compiled calls as a Stretch of one step. So a program is found by its text as others
are, and one for many sizes is made as for a recording (sizes.py).
"""

from ...compiler.dtypes import bool_, int32, int64
from ...compiler.ops.table import Meta
from .across import is_across
from .description import Stretch
from .recording import ValueMeta

LARGEST_EXACT = 1 << 53  # integers up to it are floats
_ABOVE = {int32: 1 << 31, int64: 1 << 63}  # the integers that programs compute with are below


class Rule:
    """An op on such operands; or, if `differentiated` is not None, its derivative: cotangents of those operands, from
    cotangent, result and operands, in this order. `metas` describes all that is given."""

    __slots__ = ("op", "metas", "meta", "attributes", "default_dtype", "differentiated", "integers", "above")

    def __init__(self, op, metas, meta, attributes, default_dtype, differentiated):
        self.op, self.meta, self.attributes = op, meta, attributes
        self.metas = tuple(metas) if differentiated is None else (meta, meta, *metas)
        self.default_dtype, self.differentiated = default_dtype, differentiated
        # Integers and bools that meet tensors.
        self.integers = [k for k, m in enumerate(self.metas) if m.weak and m.dtype.category < 2]
        tensors = {m.dtype for m in self.metas if not m.weak}
        kind = next(iter(tensors)) if len(tensors) == 1 else None
        is_numpys = kind is int64 and "multiplies" in op.traits
        self.above = _ABOVE.get(kind) if meta.dtype in (kind, bool_) and not is_numpys else None

    def is_number(self, k):
        return self.metas[k].weak

    def takes(self, inputs):
        """Whether numbers are such as programs convert in the way that steps do."""
        if not self.integers:
            return True
        if self.above:
            return all(-self.above <= inputs[k] < self.above for k in self.integers)
        return self.meta.dtype.is_floating_point and all(abs(inputs[k]) <= LARGEST_EXACT for k in self.integers)

    def is_across(self, layout):
        """Whether native code reads operands that lie so as they lie, where a program would copy them first."""
        return self.differentiated is None and is_across(self.op, self.attributes, self.metas, layout)

    @property
    def kind(self):
        """Equal for rules that differ in sizes and attributes only."""
        return self.op, self.differentiated, tuple([(len(m.shape), m.dtype, m.weak) for m in self.metas])

    def stretch(self, strides):
        """What it is on operands that lie in memory with these strides, by position; None for row-major order."""
        made = object.__new__(Stretch)
        for name in Stretch.__slots__:
            setattr(made, name, None)
        made.name, made.default_dtype, made.strides = self.op.name, self.default_dtype, strides
        made.metas = tuple([ValueMeta(m.shape, m.dtype) for m in self.metas])
        made.path = [_OneStep(self.op, self.attributes)]
        return made

    def text(self, stretch):
        """The key of its program."""
        (step,) = stretch.steps
        kinds = [(m.shape, m.dtype.name, x.weak) for m, x in zip(stretch.metas, self.metas)]
        strided = {k: strides for k, strides in stretch.strides.items() if strides is not None}
        attributes = sorted(step.attributes.items())
        return f"eager {self.op} {attributes} {kinds} {self.default_dtype} {self.differentiated} strides {strided}"

    def build(self, stretch):
        """(meta, IR text), or None."""
        from ..record.build import build_rules

        (step,) = stretch.steps
        metas = [Meta(m.shape, m.dtype, x.weak) for m, x in zip(stretch.metas, self.metas)]
        return build_rules(self, metas, step.attributes, stretch.strides)


class _OneStep:
    """The only step of a stretch; what it makes is none of what is described."""

    first, metas = 0, ()

    def __init__(self, op, attributes):
        self.op, self.attributes = op, attributes
