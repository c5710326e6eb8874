"""The product of matrices of integers, which wrap around: for a few rows of A at a time, and vectors of columns of B,
the sums in registers. The order of exact sums is nobody's business.

    name = emit_integer_product(module, "i64")      # defines void @weft_integers_i64(...) in the module

It has the parameters of `gemm`, and reads rows of B as they lie: its columns must follow one another.
"""

from .builder import Builder, Type
from .gemm_tiles import PRODUCT

_ROWS, _VECTORS = 4, 2  # of a tile


def emit_integer_product(module, element):
    """Define the routine; its name."""
    b = Builder(module, f"weft_integers_{element}", PRODUCT)
    t = Type(element, module.target.lanes({element}))
    a, a_row, a_col, right, b_row, _, c, c_row, m, n, k, _ = b.arguments
    a_row, a_col, b_row, c_row = (b.mul(step, b.i64(t.element_bytes)) for step in (a_row, a_col, b_row, c_row))
    wide = _VECTORS * t.lanes

    def tile(rows, i, j, masks):
        starts = [b.offset(a, b.mul(b.add(i, b.i64(r)), a_row), 1) for r in range(rows)]
        first = b.offset(right, j, t.element_bytes)
        zeros = [b.const(0, t)] * (rows * len(masks))
        with b.loop(0, k, 1, carried=[first, *starts, *zeros]) as (_, loop):
            there, *rest = loop.values
            places, sums = rest[:rows], rest[rows:]
            vectors = [b.load(b.offset(there, v * t.lanes, t.element_bytes), t, mask) for v, mask in enumerate(masks)]
            found = []
            for r, place in enumerate(places):
                factor = b.splat(b.load(place, Type(element)), t.lanes)
                found += [b.add(sums[r * len(masks) + v], b.mul(factor, x)) for v, x in enumerate(vectors)]
            loop.next([b.offset(there, b_row, 1), *[b.offset(place, a_col, 1) for place in places], *found])
        for r in range(rows):
            into = b.offset(b.offset(c, b.mul(b.add(i, b.i64(r)), c_row), 1), j, t.element_bytes)
            for v, mask in enumerate(masks):
                result = loop.results[1 + rows + r * len(masks) + v]
                b.store(result, b.offset(into, v * t.lanes, t.element_bytes), mask)

    def columns(rows, i):
        whole = b.sub(n, b.rem(n, b.i64(wide)))
        with b.loop(0, whole, wide) as j:
            tile(rows, i, j, [None] * _VECTORS)
        with b.loop(whole, n, t.lanes) as j:
            tile(rows, i, j, [b.lane_mask(j, n, t.lanes)])

    whole_rows = b.sub(m, b.rem(m, b.i64(_ROWS)))
    with b.loop(0, whole_rows, _ROWS) as i:
        columns(_ROWS, i)
    with b.loop(whole_rows, m, 1) as i:
        columns(1, i)
    b.finish()
    return b.name
