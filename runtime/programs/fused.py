"""Composites and derivatives of large operands as compiled programs: one pass over memory in place of one per step.

Eager mode takes the steps of a rule one after the other (array_program.py). Where these are many and the operands
large, memory is what takes the time, and the program that a compiled call would run takes a fraction of it, with the
same bits. Compiling costs a tenth of a second, once per machine: it is done when the steps have taken about as long.
"""

from .program import load_program

# A step takes about half a nanosecond for each element.
ELEMENTS_BEFORE = 1 << 27
FEWEST_ELEMENTS = 1 << 14


class Fused:
    """A rule that may be run by a program one day. `worth` is how many elements its steps compute, 0 if a program
    would not help; `left` how many more are computed step by step."""

    __slots__ = ("rule", "results", "worth", "left", "program")

    def __init__(self, rule, results, sizes):
        self.rule, self.results, self.left, self.program = rule, results, ELEMENTS_BEFORE, None
        self.worth = sum(sizes) if len(sizes) > 1 and max(sizes) >= FEWEST_ELEMENTS else 0

    def outputs(self, inputs):
        """The results for these inputs; None if the steps have to be taken."""
        self.left -= self.worth
        if self.left > 0:
            return None
        if self.program is None:
            self.program = _program(*self.rule)
            if self.program is None:
                self.worth = 0
                return None
        program = self.program
        arrays = [inputs[k] for k in program.inputs]
        if not all(array.flags.c_contiguous for array in arrays):
            return None
        return program.call(arrays, inputs)


def _program(op, metas, meta, attributes, default_dtype, differentiated):
    if any(m.weak and m.dtype.category < 2 for m in metas):
        return None
    kinds = [(m.shape, m.dtype.name, m.weak) for m in metas]
    text = f"eager {op} {sorted(attributes.items())} {kinds} {default_dtype} {differentiated}"
    return load_program(text, lambda: _build(op, metas, meta, attributes, default_dtype, differentiated))


def _build(*rule):
    from ..record.build import build_rules

    return build_rules(*rule)
