"""Floats of 16 bits in memory, which kernels compute with as float32: with integers, on any processor; vectors of
float16 by instructions where the target has them.

The bits are those of storage.py: rounded to the nearest, halves to even. What is widened is exact.
"""

from functools import reduce
from typing import NamedTuple

from ..dtypes import bfloat16, float16


class Half(NamedTuple):
    """widened(b, x): the float32 that the bits x (i16) are. narrowed(b, x): the bits of a float32, rounded."""

    widened: object
    narrowed: object
    memory: str = "i16"

    def rounded(self, b, x):
        """A float32 as the type has it."""
        return self.widened(b, self.narrowed(b, x))


def half_in_memory(dtype):
    """The Half of a type; None if it has another size."""
    return _HALVES.get(dtype)


def _bits(b, x):
    return b.and_(b.convert(x, "i32"), b.const(0xFFFF, x.type.of("i32")))


def _number(b, bits):
    return b.bitcast(bits, "f32")


def _widened_bfloat16(b, x):
    bits = b.convert(x, "i32")
    return _number(b, b.shl(bits, b.const(16, bits.type)))


def _narrowed_bfloat16(b, x):
    """As storage.py does it: a NaN must not become an infinity."""
    bits = b.bitcast(x, "i32")
    c = lambda n: b.const(n, bits.type)  # noqa: E731
    up = b.add(b.and_(b.lshr(bits, c(16)), c(1)), c(0x7FFF))
    upper = b.lshr(b.add(bits, up), c(16))
    return b.convert(b.select(b.cmp("uno", x, x), c(0x7FC0), upper), "i16")


def _widened_float16(b, x):
    """The instruction would make quiet NaN of signalling ones."""
    return widened_together(b, [x])[0]


def widened_together(b, halves):
    """The float32 that vectors of float16 are: whether there is a NaN among them is asked once."""
    if not _has_instruction(b, halves[0]):
        return [_widened_by_integers(b, x) for x in halves]
    found = [b.bitcast(x, "f16") for x in halves]
    found = [b.emit(x.type.of("f32"), f"fpext {x} to {x.type.of('f32')}") for x in found]
    strange = [b.cmp("uno", x, y) for x, y in zip(found[::2], [*found[1::2], found[-1]])]
    any_strange = b.any_lane(reduce(b.or_, strange))
    return b.when_rarely(any_strange, found, lambda: [_widened_by_integers(b, x) for x in halves])


def _has_instruction(b, x):
    return b.module.target.converts_halves and x.type.lanes > 0


def _widened_by_integers(b, x):
    """Exponent and fraction, moved to their places, are the number times 2^-112, also of the smallest ones."""
    bits = _bits(b, x)
    c = lambda n: b.const(n, bits.type)  # noqa: E731
    moved = b.shl(b.and_(bits, c(0x7FFF)), c(13))
    scaled = b.mul(_number(b, moved), b.const(2.0**112, bits.type.of("f32")))
    no_number = b.cmp("ge", moved, c(0x1F << 23))
    magnitude = b.select(no_number, b.or_(moved, c(0xFF << 23)), b.bitcast(scaled, "i32"))
    return _number(b, b.or_(magnitude, b.shl(b.and_(bits, c(0x8000)), c(16))))


def _narrowed_float16(b, x):
    if not _has_instruction(b, x):
        return _narrowed_by_integers(b, x)
    found = b.bitcast(b.emit(x.type.of("f16"), f"fptrunc {x} to {x.type.of('f16')}"), "i16")
    (found,) = b.when_rarely(b.any_lane(b.cmp("uno", x, x)), [found], lambda: [_narrowed_by_integers(b, x)])
    return found


def _narrowed_by_integers(b, x):
    bits = b.bitcast(x, "i32")
    c = lambda n: b.const(n, bits.type)  # noqa: E731
    magnitude = b.and_(bits, c(0x7FFFFFFF))
    sign = b.and_(b.lshr(bits, c(16)), c(0x8000))
    # The exponent counts from 15 instead of 127; what rounds up to 2^16 is an infinity by itself.
    odd = b.and_(b.lshr(magnitude, c(13)), c(1))
    usual = b.lshr(b.add(b.add(magnitude, odd), c(0xFFF - (112 << 23))), c(13))
    # Below 2^-14 all have one exponent: beside 0.5 the last bit of a float32 is that of these.
    beside = b.bitcast(b.add(_number(b, magnitude), b.const(0.5, x.type)), "i32")
    small = b.sub(beside, c(0x3F000000))
    # Of a NaN the upper bits of its fraction stay, if there are any.
    kept = b.lshr(b.and_(magnitude, c(0x7FFFFF)), c(13))
    nan = b.or_(c(0x7C00), b.select(b.cmp("eq", kept, c(0)), c(1), kept))
    found = b.select(b.cmp("lt", magnitude, c(113 << 23)), small, usual)
    found = b.select(b.cmp("ge", magnitude, c(143 << 23)), c(0x7C00), found)
    found = b.select(b.cmp("uno", x, x), nan, found)
    return b.convert(b.or_(found, sign), "i16")


BFLOAT16 = Half(_widened_bfloat16, _narrowed_bfloat16)
FLOAT16 = Half(_widened_float16, _narrowed_float16)
_HALVES = {bfloat16: BFLOAT16, float16: FLOAT16}
