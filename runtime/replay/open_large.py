"""Programs of large operands for sizes that only the call tells (open_plans.py): one for all sizes.

Native code takes the steps of a small operation one after the other. Where operands are large, these would go over
memory again and again, so a program does all (fused.py). Where sizes change as well, it is compiled with extents, as
those of compiled functions are that serve many sizes (programs/sizes.py): what its passes ask becomes a guard of the
plan, and a call writes its sizes to where the code reads them.

    softmax float32(⟦1*u0⟧, 512)   --   one program, guards: 512*u0 <= ..., and the words `@extents` of its code

It is compiled when steps of the kind have taken about as long as that takes, and looked for on disk before. Recurrent
layers of a length that only the call tells go through their steps in a loop (ops/steps.py). For exact lengths these are
written out, and would be recorded for each length anew: their program is compiled at once.
"""

import time

from ...compiler.dtypes import dtype_named
from ...compiler.extent import agree, evaluate, is_open, marked
from ..code import jit, threads
from ..eager.eager_steps import NoSteps
from ..eager.eager_words import MOST_GIVEN, MOST_TABLE
from ..programs import background, fused
from ..programs.large import LargeProgram
from ..programs.program import linked, load_code
from ..programs.sizes import Instance, Open, texts_of
from .eager_programs import ARENA_BYTES, MOST_BYTES, most_elements, table_of

MOST_PROGRAMS = 4  # of one rule, for other ranges of sizes


class NotYet(Exception):
    """It does not pay yet to compile a program."""


class OpenProgram:
    """The program of a Rule whose metas have extents of this scope. steps: what its ArrayProgram notes of the steps;
    `written`: (address, extent) of what the call puts there."""

    def __init__(self, rule, strides, scope, steps, numbers_at):
        # Steps that are counted by the call would be recorded one by one for each number of them.
        finds, compiles = (True, True) if steps.has_loops else fused.pays(rule.kind)
        if not finds:
            raise NotYet
        meta, code = _found(rule, rule.stretch(strides), scope, compiles)
        scope.guards |= {(text, comparison): answer for text, comparison, answer in meta["guards"]}
        self._require_soon(meta, scope, steps)
        program = linked(Instance(meta, dict(scope.numbers)), code, time.perf_counter())
        self.found = LargeProgram(program, 0)
        self._require_room(program)
        self.written = _extents_of(program, meta, scope)
        self.facts = table_of(self.found, numbers_at) | {"is_program": True}
        self.arrays = {*self.found.inputs, *self.facts["as_numbers"]}

    def _require_soon(self, meta, scope, steps):
        """Guards that say that the program is done soon, and has the memory that there is."""
        given = [_in_scope(place, scope) for place in meta["places"]]
        made = [_in_scope(output, scope) for output in meta["outputs"]]
        n_bytes = sum(_n_bytes(shape, name) for shape, name, *_ in (*given, *made))
        if sum(steps.sizes) > most_elements(steps.notes, by_terms=False) or n_bytes > MOST_BYTES:
            raise NoSteps("a program that would keep the interpreter's lock for long")
        if _in_scope(meta["arena"], scope) > ARENA_BYTES:
            raise NoSteps("a program that needs much memory for what is in between")
        worker_bytes = _in_scope(meta["worker_bytes"], scope)
        if meta["has_team"] and is_open(worker_bytes):
            most = 2 * worker_bytes.number
            threads.reserve_scratch(most)
            if worker_bytes > most:  # asked for the guard
                raise NoSteps("more scratch memory for each thread than is reserved")

    def _require_room(self, program):
        n_words = len(self.found.words) + len(self.found.inputs) + len(program.outputs)
        kinds = {code == -3 for _, code in program.numbers}
        if len(kinds) > 1 or len(program.numbers) > MOST_GIVEN or n_words > MOST_TABLE:
            raise NoSteps("more operands than native code gives to programs")


def strides_in_elements(layouts, metas):
    """By position, of operands that are not row-major."""
    return {
        k: tuple([s // m.dtype.size_bytes for s in layout])
        for k, (layout, m) in enumerate(zip(layouts, metas))
        if layout is not None
    }


def _found(rule, stretch, scope, compiles):
    """The (Open, code) of a program for such sizes. NotYet if it is to be made later."""
    text = rule.text(stretch)

    def build():
        made = rule.build(stretch)
        if made is None:
            raise NoSteps("a step without a kernel")
        meta, ir = made
        guards = [[text, comparison, answer] for (text, comparison), answer in scope.guards.items()]
        return texts_of({**meta, "guards": guards}), ir

    with jit.compiling, background.made_there(False):
        for k in range(MOST_PROGRAMS):
            found = load_code(f"eager program {k} for all sizes of\n{text}", build if compiles else lambda: None)
            if found is None:
                raise NotYet
            if agree(found[0]["guards"], scope.numbers):
                return Open(found[0]), jit.ManyTimes(found[1])
    raise NoSteps("programs for other ranges of sizes are there already")


def _in_scope(thing, scope):
    """Nested lists with extents in place of their texts."""
    if isinstance(thing, str) and (polynomial := marked(thing)) is not None:
        return evaluate(polynomial, scope.extents)
    return [_in_scope(x, scope) for x in thing] if isinstance(thing, (list, tuple)) else thing


def _n_bytes(shape, name):
    n = dtype_named(name).size_bytes
    for d in shape:
        n = n * d
    return n


def _extents_of(program, meta, scope):
    """(address, extent) of the words of the code that depend on the call."""
    if not meta["extents"]:
        return []
    at, found = program.library.address("extents"), _in_scope(meta["extents"], scope)
    return [(at + 8 * k, x) for k, x in enumerate(found) if is_open(x)]
