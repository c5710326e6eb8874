"""Searching sorted rows by halving."""

from .builder import I64, PTR, Builder, Type


def emit_search(module, element):
    """Define `void @weft_search_ELEMENT(values, sequence, out, rows, m, n, right, steps, scratch)`: for each of m
    values of a row the position (i64) where it would enter the n > 0 sorted elements of that row, before equal ones, or
    behind them if `right`. A NaN comes last. In `steps` halvings, which must leave nothing."""
    parameters = [("values", PTR), ("sequence", PTR), ("out", PTR), ("rows", I64), ("m", I64), ("n", I64)]
    b = Builder(module, f"weft_search_{element}", [*parameters, ("right", I64), ("steps", I64), ("scratch", PTR)])
    values, sequence, out, rows, m, n, right, steps, _ = b.arguments
    t = Type(element)
    is_right = b.cmp("ne", right, b.i64(0))
    with b.loop(0, rows, 1) as row:
        row_of_values, row_of_out = b.offset(values, b.mul(row, m), t.element_bytes), b.offset(out, b.mul(row, m), 8)
        sorted_row = b.offset(sequence, b.mul(row, n), t.element_bytes)
        with b.loop(0, m, 1) as k:
            value = b.load(b.offset(row_of_values, k, t.element_bytes), t)
            with b.loop(0, steps, 1, [b.i64(0), n]) as (_, state):
                low, high = state.values
                is_open = b.cmp("lt", low, high)
                middle = b.lshr(b.add(low, high), b.i64(1))
                # The last one is read once nothing is left.
                place = b.intrinsic("smin", middle, b.sub(n, b.i64(1)))
                element_there = b.load(b.offset(sorted_row, place, t.element_bytes), t)
                # As comparisons that a NaN on either side fails.
                stays = b.select(is_right, b.cmp("gt", element_there, value), b.cmp("ge", element_there, value))
                goes_on = b.and_(is_open, b.not_(stays))
                stays = b.and_(is_open, stays)
                state.next([b.select(goes_on, b.add(middle, b.i64(1)), low), b.select(stays, middle, high)])
            b.store(state.results[0], b.offset(row_of_out, k, 8))
    b.finish()
