"""Functions of the subset, one or a few per construct; test_translate.py runs each natively and as Python."""

from weft.compiler.translate.kinds import F64, I32, I64, Address, At, Atomic, Bool, Function, Inline, Rows, Struct
from weft.compiler.translate.language import (
    ACQ_REL,
    ACQUIRE,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Intrinsic,
    address_of,
    load_at,
    local_array,
    native,
    quotient,
    require,
)

LIMIT = 100
HALF = 0.5
count_bits = Intrinsic("llvm.ctpop.i64", (I64,), I64, python=lambda x: (x & (1 << 64) - 1).bit_count())


class Point(Struct):
    x: I64
    y: F64
    small: I32
    seen: Bool


class Line(Struct, size_bytes=64):
    number: Atomic(I64)


class Everything(Struct):
    rows: Rows(I64)
    points: Rows(Point)
    first: Point
    inner: Inline(Point)
    four: Inline(I64, 4)
    lines: Inline(Line, 3)
    word: Atomic(I64)
    half_word: Atomic(I32)
    twice: Function((I64,), I64)
    at: At(512, I64)


@native(name="arithmetic")
def arithmetic(a: I64, b: I64) -> I64:
    c = (a + b) * 3 - (a & b) | (a ^ 5)
    d = ~c + (b << 2) + (a >> 1) - -a
    return quotient(d, 7) + min(a, b) * max(a, 2)


@native(name="floats")
def floats(p: Point, n: I64) -> F64:
    x = p.y * HALF + 1.0
    x = x / 3.0 - float(n)
    p.x = int(x)
    return -x


@native(name="branches")
def branches(a: I64, b: I64) -> I64:
    if a > b:
        c = 1
    elif a == b:
        return -7
    else:
        c = 2
        if b > LIMIT:
            c = c + 10
    return c * (a if a > 0 else b)


@native(name="conditions")
def conditions(a: I64, b: I64) -> I64:
    r = 0
    if a > 0 and b > 0 or a == b:
        r += 1
    if not (a > 0 or b < 3):
        r += 2
    if 0 <= a < 10:
        r += 4
    inside = 0 < b <= 5 and a != 3
    if inside and not (r == 2 or r == 4):
        r += 8
    if a & 1:
        r += 16
    return r + int(inside) * 32


@native(name="loops")
def loops(n: I64, stop: I64) -> I64:
    total = 0
    for i in range(n):
        if i == 3:
            continue
        if i == stop:
            break
        for k in range(i, 2 * i):
            total += k
            if total > LIMIT:
                total -= LIMIT
    while True:
        total += 7
        if total > 20:
            break
    while total > 50:
        total = total - 3
    return total


@native(name="fields")
def fields(e: Everything, n: I64) -> I64:
    e.first.x += 2
    e.first.small = e.first.small - 1
    e.inner.y = e.first.y * 2.0
    e.inner.seen = e.inner.y > 3.0
    e.four[n] = e.four[n] + len(e.four)
    total = e.at + e.first.small
    for x in e.rows:
        total += x
    for point in e.points:
        point.x = total
        total += int(point.seen)
    e.points[1].x += 1
    rows = e.rows
    rows[0] = len(rows) * 10
    return total + rows[1]


@native(name="atomics")
def atomics(e: Everything, n: I64) -> I64:
    before = e.word.add(n, SEQ_CST)
    e.word.store(before + e.word.load(ACQUIRE), RELEASE)
    swapped = e.word.swap_if(2 * before + n, 5, ACQ_REL)
    again = e.word.swap_if(77, 5, SEQ_CST)
    e.half_word.store(-3, RELAXED)
    e.lines[n].number.store(int(swapped), RELEASE)
    e.at = e.half_word.load(RELAXED) + e.half_word.add(1, SEQ_CST)
    return e.word.load(SEQ_CST) + int(again) * 100 + e.lines[2].number.load(RELAXED)


@native(inline=True)
def smaller(a: I64, b: I64) -> I64:
    if a < b:
        return a
    return b


@native()
def factorial(n: I64) -> I64:
    if n < 2:
        return 1
    return n * factorial(n - 1)


@native()
def set_first(e: Everything, n: I64):
    if n > 3:
        return
    e.first.x = n


@native(name="calls")
def calls(e: Everything, n: I64) -> I64:
    set_first(e, n)
    return factorial(smaller(n, 6)) + e.twice(n) + smaller(e.first.x, smaller(9, n))


@native()
def fill(words: Inline(I64, 16), n: I64):
    words[n] = n
    words[0] += 1


@native(name="arrays")
def arrays(n: I64) -> I64:
    mask = local_array(I64, 16)
    fill(mask, n)
    fill(mask, n + 1)
    total = count_bits(-n)
    for word in mask:
        total += word
    return total


@native()
def positive(n: I64):
    require(n > 0 and n != 7)


counters = Point(x=3)


@native(name="globals")
def count_in_global(n: I64) -> I64:
    counters.x += n
    return counters.x


@native(name="pointers")
def pointers(e: Everything, p: Point) -> I64:
    found = e.first
    if p.x > 2:
        found = p
    found.x = 50
    return int(found is p) + int(e.twice is None) * 2


@native(name="address")
def address(e: Everything) -> Address:
    return address_of(e.word)


@native(name="unused")
def late(n: I64) -> I64:
    """Locals of a loop's body are known after it if every way out has them."""
    while True:
        found = n
        n = n - 1
        if n < 3:
            break
    return found


def total_in_python(place: Rows, n):
    return sum(place[:n])


@native(name="total_at", python=total_in_python)
def total_at(place: Address, n: I64) -> I64:
    total = 0
    for i in range(n):
        total += load_at(I64, place, i)
    return total


@native(name="function_address")
def function_address(n: I64) -> Address:
    return factorial if n > 0 else set_first
