"""The steps of a plan for sizes that only the call tells (open_plans.py)."""

import numpy as np

from ...compiler.dtypes import float32, float64, int64
from ...compiler.extent import Extent, Ratio, is_open
from ...compiler.translate.kinds import offset_of
from ..code import kernels
from ..code.packing import Packed
from ..eager.eager_scratch import places_between
from ..eager.eager_steps import SCRATCH_BYTES, Builder, NoSteps, scratch
from ..eager.eager_words import Operand, View
from ..programs.open_program import CallConstant

_LINE = 64


class OpenBuilder(Builder):
    """written: (address, extent) of numbers, and constants: (address, numerator or None, extent) of floats, that the
    call puts there."""

    def __init__(self, *args, **named):
        self.written, self.constants_of_call = [], []
        super().__init__(*args, **named)

    def constant(self, number, x):
        if not isinstance(x, CallConstant):
            super().constant(number, x)
            return
        value, dtype = x.value, x.dtype
        if isinstance(value, Extent) and dtype is int64:
            held = np.zeros((), np.int64)
            self.written.append((kernels.address_of(held), value))
            self.values[number] = self.hold(held, int64)
            return
        numerator, extent = (value.numerator, value.divisor) if isinstance(value, Ratio) else (None, value)
        if dtype not in (float32, float64) or is_open(numerator):
            raise NoSteps("a number that the call tells, of another type")
        held = np.zeros((), np.float64)
        self.constants_of_call.append((kernels.address_of(held), numerator, extent))
        self.values[number] = self.converted(self.hold(held, float64), dtype)

    def place_all(self, but=()):
        """Values that are not there at once share parts of the scratch memory, all of one length."""
        between = {slot: n_bytes for slot, n_bytes in self.unplaced.items() if slot not in but}
        if between and is_open(self.used):
            self.fixed.update({slot: self._reserve(n_bytes) for slot, n_bytes in between.items()})
        elif between:
            self._place_in_parts(between)
        return [address or 0 for address in self.fixed.values()]

    def _place_in_parts(self, between):
        parts = []
        found = places_between(self.steps, dict.fromkeys(between, 1), lambda n: parts.append(n) or len(parts) * n - n)
        size = (SCRATCH_BYTES - self.used) // len(parts) // _LINE * _LINE
        if any(n_bytes > size for n_bytes in between.values()):
            raise NoSteps("more memory for values in between than native code has")
        start = kernels.address_of(scratch) + self.used
        self.fixed.update({slot: start + at // _LINE * size for slot, at in found.items()})
        self.used = SCRATCH_BYTES


def operand(meta, kind, strides=None, builder=None):
    """What a tensor or number of this kind must be."""
    if kind is complex:
        raise NoSteps("a complex number")
    if meta.weak:
        takes_whole = kind is int and builder is not None and builder.takes_wholes
        is_narrow = kind is int and builder is not None and builder.takes_narrow
        return Operand(kind=kind, is_number=True, is_whole=takes_whole, is_narrow=is_narrow)
    shape = tuple(meta.shape)
    return Operand(kind=meta.dtype.numpy, shape=shape, strides=strides or (), is_row_major=strides is None)


class Cells:
    """Numbers in memory of their own, for what wants the address of a shape. open: (address, extent) of those that only
    the call tells."""

    def __init__(self):
        self.held, self.open = [], []

    def address_of(self, numbers):
        held = np.array([0 if is_open(x) else x for x in numbers], np.int64)
        at = kernels.address_of(held)
        self.open += [(at + 8 * k, x) for k, x in enumerate(numbers) if is_open(x)]
        self.held.append(held)
        return at

    def view(self, meta, strides, offset, flags):
        facts = {"shape": self.address_of(meta.shape), "strides": self.address_of(strides), "offset": offset}
        return View(dtype=meta.dtype.numpy, ndim=len(meta.shape), kept_flags=flags, **facts)


def with_sizes(struct_object, tape, scope, cells, builder, elsewhere=()):
    """The structure in memory, whose field `sizes` says how its open words follow from the numbers of a call, and those
    `elsewhere`: (address, extent)."""
    packed = Packed(struct_object)
    written, constants = [*packed.open, *cells.open, *elsewhere], []
    if builder is not None:
        written, constants = [*written, *builder.written], builder.constants_of_call
    sizes = Packed(tape.sizes(scope, written, constants))
    packed.words[offset_of(type(struct_object), "sizes") // 8] = sizes.address
    packed.held += [sizes, cells, builder]
    return packed
