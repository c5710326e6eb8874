"""Types that are read, written and moved by generated code, and computed with as another: integers of 8 and 16 bits as
i32, whose lower bits they are, and floats of 16 bits as f32 (halves.py).

In a register they have the bits they have in memory, under a name of their own, which tells what they are converted
as. What is converted to them has the bits of storage.py.
"""

import math
import struct

from .halves import BFLOAT16, FLOAT16, widened_together
from .types import STORED

# What each is converted by way of, if it has not the lower bits of a wider integer.
_HALVES = {"h16": FLOAT16, "b16": BFLOAT16}


def between(b, x, element):
    """x as another element type, of which one is one of these."""
    source = x.type.element
    if source in _HALVES:
        return b.convert(_HALVES[source].widened(b, _as(x, "i16")), element)
    if source in STORED:
        t = x.type.of("i32")
        return b.convert(b.emit(t, f"{'zext' if source == 'u8' else 'sext'} {x} to {t}"), element)
    if element in _HALVES:
        # float64 and integers are rounded to float32 first, as PyTorch does it.
        return _as(_HALVES[element].narrowed(b, b.convert(x, "f32")), element)
    t = x.type.of(element)
    x = _whole(b, x, element) if x.type.is_float else x
    return b.emit(t, f"{'zext' if x.type.element == 'i1' else 'trunc'} {x} to {t}")


def widened_halves(b, halves):
    """Vectors of float16 as float32."""
    return widened_together(b, [_as(x, "i16") for x in halves])


def _whole(b, x, element):
    """A float as an integer that has its lower bits. By way of 64 bits, as storage.py; a float32 that 32 do not hold is
    a multiple of 256, and 32 bits then give a 0 as well. LLVM may not think that it held."""
    is_short = x.type.element == "f32" and element != "s16"
    return b.freeze(b.convert(x, "i32" if is_short else "i64"))


def _as(x, element):
    """The same bits under another name."""
    return x._replace(type=x.type.of(element))


def bits_of(number, element):
    """The bits of a Python number as one of these types, as a signed integer."""
    if element not in _HALVES:
        size = 8 if element != "s16" else 16
        found = int(number) % (1 << size)
    else:
        size, found = 16, _bits_of_half(_as_float32(float(number)), element)
    return found - (1 << size) if found >> (size - 1) else found


def _as_float32(number):
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def _bits_of_half(number, element):
    if number != number:
        return 0x7FC0 if element == "b16" else 0x7E00
    if element == "h16":
        try:
            return struct.unpack("<H", struct.pack("<e", number))[0]
        except OverflowError:
            return 0xFC00 if number < 0 else 0x7C00
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    return (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
