"""Ops, composites and derivatives of large operands as compiled programs: one pass over memory, by several threads.

Eager mode takes the steps of a rule one after the other (array_program.py). Where these are many and the operands
large, memory is what takes the time, and the program that a compiled call would run takes a fraction of it, with the
same bits. A program that is on disk is taken after some milliseconds of work. Compiling one costs a tenth of a second,
once per machine: it is done when the steps have taken about as long.
"""

import time

from ..code import jit
from . import background
from .evaluate import strides_in_elements
from .large import LargeProgram
from .program import linked, load_code
from .sizes import Sizes

# A step takes about half a nanosecond for each element. Some of NumPy's, a remainder or a sum at computed places, take
# fifty times that: such a step counts as many elements as others would have computed meanwhile.
ELEMENTS_BEFORE = 1 << 26
ELEMENTS_OF_A_SECOND = 2e9
# Finding a program on disk, or making that for many sizes one for these, takes a millisecond or two.
ELEMENTS_BEFORE_FINDING = 1 << 21
FEWEST_ELEMENTS = 1 << 14
# Of a single step that native code can take, too: calling a program takes 5 us longer.
FEWEST_OF_ONE = 1 << 18
# Of fewer a program is no slower than steps where native code calls it, and where it knows the sizes it takes a half
# to a tenth of the time, of short rows above all. Native code takes the steps until there is one (Fused.lend).
FEWEST_IN_NATIVE_CODE, FEWEST_OF_ONE_IN_ROWS = 1 << 10, 1 << 12
FEWEST_LENT = 64  # calls
# So many steps are worth a program whatever they compute: taking one costs as much as computing so many elements.
MANY_STEPS, ELEMENTS_OF_A_STEP = 48, 2048
# Programs of one rule for operands that lie in memory in other ways.
MOST_LAYOUTS = 8
NATIVE_KINDS = ("elementwise", "reduction", "contraction")
_ROW_MAJOR = ()
_accounts = {}  # Rule.kind -> _Account


class _Account:
    """What rules that differ in sizes only have in common: `left` is how many elements more they compute step by step
    before programs are compiled, `sizes` knows of programs that serve many sizes."""

    __slots__ = ("left", "sizes")

    def __init__(self):
        self.left, self.sizes = ELEMENTS_BEFORE, Sizes()


def pays(kind):
    """Whether a program for rules of this kind is to be looked for on disk, and whether it is to be compiled."""
    spent = ELEMENTS_BEFORE - _account(kind).left
    return spent >= min(ELEMENTS_BEFORE_FINDING, ELEMENTS_BEFORE), spent >= ELEMENTS_BEFORE


def spend(kind, n_elements):
    """So many were computed step by step, of rules of this kind."""
    _account(kind).left -= n_elements


def serves(n_elements):
    """Whether a program for operands of so many elements is worth its call."""
    return n_elements >= FEWEST_ELEMENTS


def forget():
    """Count anew what is computed step by step."""
    _accounts.clear()


class Fused:
    """A rule that may be run by a program. `worth` is how many elements its steps compute, 0 if a program would not
    help; `is_large`: whether these are so many that native code does not take the steps; `spent` is how many were
    computed, and `due` how many must be before a program is asked for; `programs` is what there is by the strides of
    the operands."""

    __slots__ = ("rule", "results", "read", "worth", "is_large", "spent", "due", "account", "programs")

    def __init__(self, rule, results, read, sizes, fewest, least, n_steps):
        self.rule, self.results, self.programs = rule, results, {}
        self.spent, self.due = 0, min(ELEMENTS_BEFORE_FINDING, ELEMENTS_BEFORE)
        self.account = _account(rule.kind)
        self.read = [k for k in read if not rule.is_number(k)]
        self.is_large = bool(sizes) and (max(sizes) >= fewest or n_steps >= MANY_STEPS)
        self.worth = sum(sizes) if sizes and max(sizes) >= min(fewest, least) else 0
        if sizes and n_steps >= MANY_STEPS:
            self.worth = sum(sizes) + n_steps * ELEMENTS_OF_A_STEP

    def outputs(self, inputs):
        """The results for these inputs; None if the steps have to be taken."""
        if not self.worth or not self.rule.takes(inputs):
            return None
        self.account.left -= self.worth
        self.spent += self.worth
        layout = _layout([inputs[k] for k in self.read])
        program = self.programs.get(layout)
        if program is None:
            program = self._found(layout)
            if program is None:
                return None
        return program.call([inputs[k] for k in program.inputs], inputs)

    def took(self, seconds):
        """The steps were taken, and took so much of the processor's time."""
        more = int(seconds * ELEMENTS_OF_A_SECOND) - self.worth
        if self.worth and more > 0:
            self.account.left -= more
            self.spent += more

    def ready(self, compiles):
        """The program for row-major operands, whatever was computed so far; None if it is not there and is not to be
        compiled, or cannot be."""
        self.spent = ELEMENTS_BEFORE if compiles else 0
        return self.programs.get(_ROW_MAJOR) or self._made(_ROW_MAJOR)

    def lend(self, layout):
        """For how many calls native code takes the steps before it is to ask for a program again; they count as made.
        0 for all there will be: no program is to come, or it is there and native code cannot call it."""
        if self.spent >= self.due and layout not in self.programs:
            self._found(layout)
        if not self.worth or layout is None or layout in self.programs or len(self.programs) >= MOST_LAYOUTS:
            return 0
        if layout and self.rule.is_across(layout):
            return 0
        n_calls = max((self.due - self.spent) // self.worth, FEWEST_LENT)
        self.account.left -= n_calls * self.worth
        self.spent += n_calls * self.worth
        return n_calls

    def _found(self, layout):
        """A program for operands that lie so, if it is there or it is time to compile one. If not, it is asked for
        again when twice as much was computed."""
        if self.spent < self.due or layout is None or jit.is_compiling() or len(self.programs) >= MOST_LAYOUTS:
            return None
        if layout and self.rule.is_across(layout):
            return None
        return self._made(layout)

    def _made(self, layout):
        stretch = self.rule.stretch(dict(zip(self.read, layout)) if layout else {})
        with jit.compiling, background.made_there(False):
            try:
                program = self._load(stretch)
            except jit.NoCompiler:
                program = None
        if program is None:
            self.due = 2 * self.spent
            return None
        self.programs[layout] = program = LargeProgram(program, self.worth)
        return program

    def _load(self, stretch):
        """That of these sizes or of many: where a rule comes with several sizes, one for all is compiled."""
        sizes, rule, began = self.account.sizes, self.rule, time.perf_counter()
        text = rule.text(stretch)
        found = load_code(text, lambda: None)
        if found is not None:
            sizes.remember(stretch, rule.text)
            return linked(*found, began)
        if self.account.left <= 0 or sizes.has_program(text):
            program = sizes.load_open(stretch, rule.text, rule.build)
            if program is not None:
                return program
        if self.spent < ELEMENTS_BEFORE:
            return None
        found = load_code(text, lambda: rule.build(stretch))
        if found is None:
            self.worth = 0  # a step has no kernel
        return found and linked(*found, began)


def _account(kind):
    found = _accounts.get(kind)
    if found is None:
        found = _accounts[kind] = _Account()
    return found


def _layout(arrays):
    """() if all arrays are in row-major order; else strides of those that are not; None if no program can say them."""
    if all(array.flags.c_contiguous for array in arrays):
        return _ROW_MAJOR
    if any(step % array.itemsize for array in arrays for step in array.strides):
        return None
    return tuple(map(strides_in_elements, arrays))
