"""The order of random numbers, for permutations.

Draws from [0, 1) become records of one word: their first 32 bits above, their position below. Three passes count the
upper three bytes of the bits (emit/sort.py says how), which leaves few out of order: of a million one in thirty. These
move to their places one by one. What the first 32 bits do not decide, of a million about a hundred pairs, the caller
does.
"""

from .builder import F64, I64, PTR, Builder, Reg

_DIGIT_BITS, _PASSES = 8, 3
_BINS = 1 << _DIGIT_BITS


def emit_draw_order(module):
    """Define `i64 @weft_draw_order(draws, order, n, scratch)`: the positions (i64) of n draws (f64), sorted by their
    first 32 bits and then by themselves. Returns how many places have the bits of the next one; these places are then
    the first words of the scratch memory, which has room for 2 * n."""
    sink = _emit_sink(module)
    parameters = [("draws", PTR), ("order", PTR), ("n", I64), ("scratch", PTR)]
    b = Builder(module, "weft_draw_order", parameters, result=I64)
    draws, order, n, scratch = b.arguments
    source, target = scratch, b.offset(scratch, n, 8)
    bins = b.alloca(I64, _PASSES * _BINS)
    with b.loop(0, _PASSES * _BINS, 1) as k:
        b.store(b.i64(0), b.offset(bins, k, 8))
    with b.loop(0, n, 1) as k:
        bits = b.convert(b.mul(b.load(b.offset(draws, k, 8), F64), b.const(2.0**32, F64)), "i64")
        word = b.or_(b.shl(bits, b.i64(32)), k)
        b.store(word, b.offset(source, k, 8))
        for d in range(_PASSES):
            count = _bin(b, bins, word, d)
            b.store(b.add(b.load(count, I64), b.i64(1)), count)
    for d in range(_PASSES):
        _scatter(b, bins, source, target, d, n)
        source, target = target, source
    with b.loop(1, n, 1) as k:
        before, word = (b.load(b.offset(source, at, 8), I64) for at in (b.sub(k, b.i64(1)), k))
        with b.when(b.cmp("ult", word, before)):
            b.call("void", sink, [source, k])
    found = b.alloca(I64)
    b.store(b.i64(0), found)
    _write(b, source, scratch, order, n, found)
    b.finish(b.load(found, I64))


def _bin(b, bins, word, d):
    """Where the digit of a pass is counted."""
    digit = b.and_(b.lshr(word, b.i64(64 - _DIGIT_BITS * (_PASSES - d))), b.i64(_BINS - 1))
    return b.offset(bins, b.add(digit, b.i64(d * _BINS)), 8)


def _scatter(b, bins, source, target, d, n):
    """One pass: where each digit begins, then every record to the next place of its digit."""
    with b.loop(d * _BINS, (d + 1) * _BINS, 1, [b.i64(0)]) as (k, running):
        place, (total,) = b.offset(bins, k, 8), running.values
        count = b.load(place, I64)
        b.store(total, place)
        running.next([b.add(total, count)])
    with b.loop(0, n, 1) as k:
        word = b.load(b.offset(source, k, 8), I64)
        place = _bin(b, bins, word, d)
        at = b.load(place, I64)
        b.store(b.add(at, b.i64(1)), place)
        b.store(word, b.offset(target, at, 8))


def _write(b, source, equal, order, n, found):
    """The positions; and to `equal` the places whose bits are those of the next one: over records that were read."""
    with b.loop(0, n, 1, [b.const(-1, I64)]) as (k, running):
        (before,) = running.values
        word = b.load(b.offset(source, k, 8), I64)
        b.store(b.and_(word, b.i64(0xFFFFFFFF)), b.offset(order, k, 8))
        bits = b.lshr(word, b.i64(32))
        with b.when(b.cmp("eq", bits, before)):
            count = b.load(found, I64)
            b.store(b.sub(k, b.i64(1)), b.offset(equal, count, 8))
            b.store(b.add(count, b.i64(1)), found)
        running.next([bits])


def _emit_sink(module):
    """Define a function of records and one place among them, the first that is out of order: it moves to where it
    belongs. Returns its name."""
    b = Builder(module, "sink", [("records", PTR), ("k", I64)], linkage="internal")
    records, k = b.arguments
    word = b.load(b.offset(records, k, 8), I64)
    again, done = b.label("again"), b.label("done")
    b.branch(again)
    b.start(again)
    head, at = len(b.lines), Reg(b.fresh("at"), I64)
    before = b.sub(at, b.i64(1))
    b.store(b.load(b.offset(records, before, 8), I64), b.offset(records, at, 8))
    # Before the first place there is nothing to be read.
    next_place = b.intrinsic("smax", b.sub(before, b.i64(1)), b.i64(0))
    is_smaller = b.cmp("ult", word, b.load(b.offset(records, next_place, 8), I64))
    goes_on = b.and_(is_smaller, b.cmp("lt", b.i64(0), before))
    b.branch_if(goes_on, again, done)
    b.lines[head:head] = [f"  {at.name} = phi i64 [ {k.name}, %entry ], [ {before.name}, %{again} ]"]
    b.start(done)
    b.store(word, b.offset(records, before, 8))
    b.finish()
    return b.name
