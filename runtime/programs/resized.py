"""A program of many sizes that becomes that of others again and again: for calls whose sizes never come back.

Its machine code reads the sizes from memory of its own, so nothing is linked or loaded for them. What native code must
know it is told (runtime/replay/many_sizes.py); what else a Program says of its sizes is found when somebody asks.
"""

from collections import ChainMap
from functools import cached_property

from ..code import jit, threads
from .formulas import function_of, with_formulas
from .places import Places
from .program import Program, outputs_of, pools_of
from .sizes import Instance, said_of

_OF_SIZES = "meta", "places", "outputs", "pools"  # what is found when somebody asks


class ResizedProgram(Program):
    """The program of an OfMany (sizes.py), for sizes that are changed while nobody runs it."""

    def __init__(self, of_many):
        self.of_many, self._sizes = of_many, of_many.numbers
        self._open, code = of_many.code
        told = [with_formulas(self._open[key]) for key in ("extents", "arena", "worker_bytes")]
        self._told = function_of(told, tuple(of_many.numbers))
        super().__init__(self.meta, jit.link(code))

    def take_sizes(self, meta):
        """As it begins; later there is `resize`."""
        self.resize(self._sizes)

    def resize(self, numbers):
        """Serve these sizes, by name, for which the guards hold."""
        self._sizes = numbers
        for name in _OF_SIZES:
            vars(self).pop(name, None)
        extents, arena_bytes, worker_bytes = self._told(**numbers)
        self.tell_extents(extents)
        if self.has_team:
            threads.reserve_scratch(worker_bytes)
        self.set_arena(arena_bytes)

    @cached_property
    def meta(self):
        own = {"n": said_of(self._sizes), "seconds": 0.0}
        return ChainMap(own, Instance(self._open, self._sizes))

    @cached_property
    def places(self):
        return Places(self.meta["places"])

    @cached_property
    def outputs(self):
        return outputs_of(self.meta)

    @cached_property
    def pools(self):
        return pools_of(self.outputs)
