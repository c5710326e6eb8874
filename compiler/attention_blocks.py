"""How attention is cut: into blocks of rows, and into chunks of these (emit/attention.py, ops/attention.py).

Sizes are as the compiler knows them: numbers or extents.
"""

from operator import index

from .extent import estimated

SCORES = 1 << 17
LEAST_ROWS, MOST_ROWS = 16, 64
# Rows of the query that one thread gets at least, if they are not fewer: it packs all keys for them.
CHUNK_ROWS = 256
# In so many units the gradient of fewer matrices is shared.
UNITS = 8


def block_rows(n_rows, n_keys):
    """How many rows are computed at a time."""
    fitting = SCORES // int(estimated(n_keys)) // 8 * 8
    return min(max(LEAST_ROWS, min(fitting, MOST_ROWS)), int(estimated(n_rows)))


def gradient_chunks(matrices, n_rows):
    """In how many chunks the rows of a matrix go through its gradient. The shape decides, not how many threads there
    are, because every chunk has sums of its own: where it is more than one the shape must be known."""
    if 2 * matrices > UNITS or n_rows < 2 * CHUNK_ROWS:
        return 1
    return min(UNITS // index(matrices), index(n_rows) // CHUNK_ROWS)
