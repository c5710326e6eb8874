"""The forms of eager kernels, for those who call them and those who write them (eager_kernels.py, eager_turned.py): how
operands lie, what a lookup does, whether a kernel looks at what it is given."""

# An operand of a kernel on elements that is not in a row.
ELEMENT, NUMBER, PAIR, STRIDED = "element", "number", "pair", "strided"
# One of a kernel on matrices.
ROWS, COLUMNS, PER_ROW = "rows", "columns", "per row"
# A lookup, and how many loops there are around its rows.
GET, PUT, ADD = "get", "put", "add"
N_LOOPS = 3


def looks_at(op, dtypes):
    """Whether the op checks operands of these types."""
    return op.checks_on(all(d.is_floating_point for d in dtypes))
