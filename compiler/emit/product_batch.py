"""A batch of matrix products in one call, for eager mode: products of small matrices took 1.5 us of Python each."""

from .builder import I64, PTR, Builder
from .gemm_tiles import PRODUCT


def emit_product_batch(module):
    """Define `void @weft_products(product, count, a_step, b_step, c_step, ...)`; its name.

    It calls `product`, the address of a `weft_gemm` or `weft_gemv`, `count` times with the rest of the arguments, of
    which a, b and c go on by so many bytes.
    """
    first = [("product", PTR), ("count", I64), ("a_step", I64), ("b_step", I64), ("c_step", I64)]
    b = Builder(module, "weft_products", first + PRODUCT)
    product, count, *steps = b.arguments[:5]
    a, a_row, a_col, right, b_row, b_col, c, *rest = b.arguments[5:]
    with b.loop(0, count, 1) as batch:
        x, y, out = (b.offset(p, b.mul(batch, step), 1) for p, step in zip((a, right, c), steps))
        b.call("void", product, [x, a_row, a_col, y, b_row, b_col, out, *rest])
    b.finish()
    return b.name
