"""A backward that comes after a call of ever new sizes (many_sizes.py).

    OutsideOfMany   what a ReplayedCall has for `outside`: one for the calls of each size
    ManyBackward    what those of all sizes share: for the results that a backward goes from, one Plan
    Plan            the backward's program, and the words of its native twin, for the sizes of whoever runs it

The first calls are differentiated as any: what was recorded for their sizes is made when their node asks for it
(`ManySizes.recorded`), and the program is found by its text. That is the forward's but for its first line; so where
the forward's text is proved for all sizes, the backward's is, and one program does for all for which its guards hold.
"""

import ctypes
import threading

from ...compiler import dtypes
from ...compiler.translate.kinds import places_of, stride_of
from ..programs.formulas import condition_of, function_of, has_formula, times, with_formulas
from ..programs.resized import ResizedProgram
from .finished_words import Source, Words
from .usual_outside import KNOWN, OutsideBackward

_LAST = 3  # so many calls that have nodes are looked at for the program of their backward


class OutsideOfMany(OutsideBackward):
    """What the calls of one size have in common; see OutsideBackward."""

    def __init__(self, shared, numbers):
        vars(self).update(vars(shared.base))
        self._shared, self._numbers, self._found = shared, numbers, None
        self.gradients, self._of_first = {}, None

    # --- what was recorded, when somebody asks ------------------------------------------------------------------------
    @property
    def recording(self):
        return self._recorded()[0]

    @property
    def step(self):
        return self._recorded()[1][-1]

    @property
    def program(self):
        return self._recorded()[2]

    def _recorded(self):
        found = self._found
        if found is None:
            many = self._shared.many
            recording, path, _ = many.recorded(self._numbers)
            found = self._found = recording, path, many.program(self._numbers)
            self._shared.has_node(self)
        return found

    # --- the backward's program ---------------------------------------------------------------------------------------
    @property
    def native(self):
        return self._native_from(self.needed.differentiable)

    def native_of(self, outputs):
        if len(outputs) == len(self.needed.differentiable):
            return self.native
        return self._native_from(tuple([t._vid for t in outputs]))

    def _native_from(self, present):
        plan = self._shared.plans.get(present)
        if not plan or plan.native is None or not plan.serves(self._numbers):
            return None
        return Natively(plan, self._numbers)

    def plan(self, present):
        plan = self._shared.plan(present)
        if not plan or not plan.serves(self._numbers):
            return None
        return plan, plan.sources, plan.positions

    def run(self, program, read, numbers):
        """Of a Plan; None if it is used for other sizes at this moment."""
        if not program.enter(self._numbers):
            return None
        try:
            return program.program.call(read, numbers, self.expectation)
        finally:
            program.leave()

    def count_done(self, present, in_python):
        self._shared.plans[present].count_done(in_python)

    def _found_after(self, present, freed):
        return self._shared.base._found_after(present, freed)


class ManyBackward:
    """Of the UsualFrame of a ManySizes. refuse: is called with a reason if no program serves the backward."""

    def __init__(self, many, base, refuse):
        self.many, self.base, self.plans = many, base, {}
        self._have_nodes, self._refuse = [], refuse

    def for_sizes(self, numbers):
        return OutsideOfMany(self, numbers)

    def has_node(self, outside):
        self._have_nodes = [*self._have_nodes[1 - _LAST :], outside]

    def plan(self, present):
        """The Plan of a backward from these results; None if there is none so far, False if there will be none."""
        found = self.plans.get(present)
        if found is None:
            base = self.base
            for outside in self._have_nodes:
                program = outside.step.known.backward.get((base.needed, present, ()))
                if program is not None:
                    found = self.plans[present] = self._made(present, program)
                    break
        return found

    def _made(self, present, program):
        base, of_many = self.base, program.of_many
        if not self._is_of_all_sizes(present, of_many) or not set(program.meta["reached"]) <= set(base.reached):
            if present == base.needed.differentiable:
                self._refuse("its backward is compiled for each size")
            return False
        return Plan(base, present, of_many, self.many.names)

    def _is_of_all_sizes(self, present, of_many):
        """Whether it is proved that a backward of calls of other sizes has the program's text."""
        forward = self.many.of_many[-1]
        if of_many is None or of_many.family.text != f"backward from {present}, sums (), of\n{forward.family.text}":
            return False
        # It reads what the forward's program has saved: that is said of both.
        version = str(forward.code[0]["split"])
        known = of_many.family.programs.get(version, ())
        return any(of_many.code is one for one in known) and not has_formula(with_formulas(of_many.code[0]["outputs"]))


class Plan:
    """How a backward from some results is run for many sizes. sources, positions: as OutsideBackward.plan has them;
    native: the NativeBackward, once it is worth one.

    numbers: the sizes that it serves now, None while they are being changed. Whoever runs it has entered it before, and
    it keeps its sizes until all of them have left.
    """

    def __init__(self, base, present, of_many, names):
        self.program, self.native, self._base, self._present = ResizedProgram(of_many), None, base, present
        meta, self.names = self.program.meta, names
        self.sources = [base._source(present, *source) for source in meta["sources"]]
        self.positions = [base.reached.index(vid) for vid in meta["reached"]]
        self.holds = condition_of(of_many.guards, names)
        self.numbers = tuple([of_many.numbers[name] for name in names])
        self._lock, self._n_inside, self._n_done = threading.Lock(), 0, 0
        self._fill, self._cells = None, []

    def serves(self, numbers):
        return numbers == self.numbers or self.holds(*numbers)

    # --- whom it serves -----------------------------------------------------------------------------------------------
    def enter(self, numbers):
        """Whether it serves these sizes from now on, until `leave`."""
        # A finalizer may come here in the middle of this.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if numbers != self.numbers:
                if self._n_inside:
                    return False
                self.numbers = None
                self.program.resize(dict(zip(self.names, numbers)))
                self._tell_native(numbers)
                self.numbers = numbers
            self._n_inside += 1
        finally:
            self._lock.release()
        return True

    def leave(self):
        with self._lock:
            self._n_inside -= 1

    # --- its native twin ----------------------------------------------------------------------------------------------
    def count_done(self, in_python):
        self._n_done += 1
        is_due = self.native is None and self._n_done >= self._base.DONE_BEFORE_NATIVE
        if is_due and self.numbers is not None and self.enter(self.numbers):
            try:
                native = self._base.taken_over(self._present, (self.program, self.sources, self.positions), in_python)
                if native is not None:
                    self._find_cells(native)
                    self.native = native
            finally:
                self.leave()

    def _find_cells(self, native):
        """Where native code reads lengths and strides of what the program reads."""
        words, addresses, told = native.words, [], []
        table, stride, at = words[_word(Words, "sources")], stride_of(Source), places_of(Source)
        places = self.program.of_many.code[0]["places"]
        changing = [k for k, (kind, _) in enumerate(self.sources) if kind != KNOWN]
        for row, k in enumerate(changing):
            shape, name, strides, _ = with_formulas(places[k])
            size = dtypes.dtype_named(name).numpy.itemsize
            own = shape, [] if strides is None else [times(step, size) for step in strides]
            for field, numbers in zip(("shape", "strides"), own):
                first = ctypes.c_int64.from_address(int(table) + row * stride + at[field].offset).value
                for i, number in enumerate(numbers):
                    if has_formula(number):
                        addresses.append(first + 8 * i)
                        told.append(number)
        self._cells = [ctypes.c_int64.from_address(address) for address in addresses]
        self._fill = function_of(told, self.names)

    def _tell_native(self, numbers):
        if self.native is None:
            return
        for cell, number in zip(self._cells, self._fill(*numbers)):
            cell.value = number
        self.native.words[_word(Words, "arena_bytes")] = self.program.native_arena[1]


class Natively:
    """The native twin of a Plan, for calls of these sizes; see NativeBackward."""

    def __init__(self, plan, numbers):
        self._plan, self._numbers = plan, numbers

    def backward(self, call, *given):
        if not self._plan.enter(self._numbers):
            return call.backward_in_python(*given)
        try:
            return self._plan.native.backward(call, *given)
        finally:
            self._plan.leave()

    def gradients(self, call, *given):
        return self._entered(self._plan.native.gradients, call, *given)

    def cotangents(self, call, arrays):
        return self._entered(self._plan.native.cotangents, call, arrays)

    def in_sweep(self, call, cotangents, retain_graph):
        return self._entered(self._plan.native.in_sweep, call, cotangents, retain_graph)

    def _entered(self, function, *given):
        """What it gives, or None: Python finds it."""
        if not self._plan.enter(self._numbers):
            return None
        try:
            return function(*given)
        finally:
            self._plan.leave()

    def node(self, call):
        return self._plan.native.node(call)


def _word(kind, name):
    return places_of(kind)[name].offset // 8
