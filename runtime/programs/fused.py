"""Ops, composites and derivatives of large operands as compiled programs: one pass over memory, by several threads.

Eager mode takes the steps of a rule one after the other (array_program.py). Where these are many and the operands
large, memory is what takes the time, and the program that a compiled call would run takes a fraction of it, with the
same bits. A program that is on disk is taken at once. Compiling one costs a tenth of a second, once per machine: it is
done when the steps have taken about as long.
"""

import time

from ..code import jit
from .evaluate import strides_in_elements
from .large import LargeProgram
from .program import linked, load_code

# A step takes about half a nanosecond for each element.
ELEMENTS_BEFORE = 1 << 26
FEWEST_ELEMENTS = 1 << 14
# Of a single step that native code can take, too: calling a program takes 5 us longer.
FEWEST_OF_ONE = 1 << 18
# Programs of one rule for operands that lie in memory in other ways.
MOST_LAYOUTS = 8
NATIVE_KINDS = ("elementwise", "reduction", "contraction")
LARGEST_EXACT = 1 << 53  # integers up to it are floats
_ROW_MAJOR = ()


class Fused:
    """A rule that may be run by a program. `worth` is how many elements its steps compute, 0 if a program would not
    help; `left` how many more are computed step by step, `programs` what there is by the strides of the operands."""

    __slots__ = ("rule", "results", "read", "worth", "left", "programs")

    def __init__(self, rule, results, read, sizes, fewest):
        self.rule, self.results, self.left, self.programs = rule, results, ELEMENTS_BEFORE, {}
        self.read = [k for k in read if not rule.is_number(k)]
        self.worth = sum(sizes) if sizes and max(sizes) >= fewest else 0

    def outputs(self, inputs):
        """The results for these inputs; None if the steps have to be taken."""
        if not self.worth or not self.rule.takes(inputs):
            return None
        self.left -= self.worth
        layout = _layout([inputs[k] for k in self.read])
        program = self.programs.get(layout)
        if program is None:
            program = self._found(layout)
            if program is None:
                return None
        return program.call([inputs[k] for k in program.inputs], inputs)

    def _found(self, layout):
        """A program for operands that lie so, if it is on disk or it is time to compile one."""
        is_new = layout not in self.programs
        if layout is None or jit.is_compiling() or (len(self.programs) >= MOST_LAYOUTS if is_new else self.left > 0):
            return None
        strides = dict(zip(self.read, layout)) if layout else {}
        began = time.perf_counter()
        with jit.compiling:
            found = load_code(self.rule.text(strides), lambda: None if self.left > 0 else self.rule.build(strides))
        if found is None and self.left <= 0:
            self.worth = 0
        self.programs[layout] = found and LargeProgram(linked(*found, began), self.worth)
        return self.programs[layout]


def _layout(arrays):
    """() if all arrays are in row-major order; else strides of those that are not; None if no program can say them."""
    if all(array.flags.c_contiguous for array in arrays):
        return _ROW_MAJOR
    if any(step % array.itemsize for array in arrays for step in array.strides):
        return None
    return tuple(map(strides_in_elements, arrays))


class Rule:
    """An op on operands of some shapes and types; or, if `differentiated` is not None, its derivative, whose operands
    are cotangent and result and then those of the op."""

    __slots__ = ("op", "metas", "meta", "attributes", "default_dtype", "differentiated", "n_before", "integers")

    def __init__(self, op, metas, meta, attributes, default_dtype, differentiated):
        self.op, self.metas, self.meta, self.attributes = op, metas, meta, attributes
        self.default_dtype, self.differentiated = default_dtype, differentiated
        self.n_before = 0 if differentiated is None else 2
        # Integers and bools that meet tensors.
        self.integers = [k + self.n_before for k, m in enumerate(metas) if m.weak and m.dtype.category < 2]

    def is_number(self, k):
        return k >= self.n_before and self.metas[k - self.n_before].weak

    def takes(self, inputs):
        """Whether numbers are such as programs convert in the way that steps do."""
        if not self.integers:
            return True
        return self.meta.dtype.is_floating_point and all(abs(inputs[k]) <= LARGEST_EXACT for k in self.integers)

    def text(self, strides):
        kinds = [(m.shape, m.dtype.name, m.weak) for m in self.metas]
        lies = f" strides {strides}" if strides else ""
        attributes = sorted(self.attributes.items())
        return f"eager {self.op} {attributes} {kinds} {self.default_dtype} {self.differentiated}{lies}"

    def build(self, strides):
        from ..record.build import build_rules

        return build_rules(self, strides)
