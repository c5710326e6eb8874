"""Attention, some rows of the query at a time: softmax(q k^T + mask) v.

The scores of all rows are as many as rows times keys, for every head, and may not fit into a cache: each of the few
passes over them would go through memory. `rows` of them are computed, turned into weights and used up before the next
ones are begun. The caller has scaled q. With `causal`, row l sees the keys up to l, and keys that no row of a block
sees are left out of its products, in steps of a quarter: every number of keys is another kernel.

    q (..., T, E), k (..., S, E), v (..., S, V), mask (..., T, S) or none -> (..., T, V)

The mask is bool, True where there is something to see, or numbers that are added. A row that sees nothing gets 0.
"""

import math

from .. import dtypes
from ..shapes import broadcast_shapes
from . import samples
from .arithmetic import add, mul, sub
from .comparison import eq, le, where
from .contraction import check_dtypes, matmul, swap_last
from .kinds import composite, require_floating
from .reduction import amax, sum_
from .samples import Sample
from .source import arange, full
from .statistics import softmax
from .table import Meta, OpError
from .view import cat, reshape, slice_

# 8 MB of float32, which stay in a large cache. Forward and backward of 8 heads with 1024 positions of width 64 took
# 105 ms with blocks of 256 rows, 130 with 32 (every block adds to the cotangents of all keys) and 120 with one block.
_SCORES = 1 << 21
_CAUSAL_STEPS = 4


def block_rows(batch, n_rows, n_keys, causal):
    """How many rows are computed at a time: a multiple of 64, or all."""
    rows = _SCORES // max(batch * n_keys, 1)
    if causal:
        rows = min(rows, -(-n_rows // _CAUSAL_STEPS))
    return min(max(-(-rows // 64), 1) * 64, n_rows)


def _blocks(q, k, causal, rows):
    """(first row, number of rows, number of keys they see) of every block."""
    n_rows, n_keys = q.shape[-2], k.shape[-2]
    step = -(-n_keys // _CAUSAL_STEPS // rows) * rows
    for start in range(0, n_rows, rows):
        count = min(rows, n_rows - start)
        yield start, count, min(-(-(start + count) // step) * step, n_keys) if causal else n_keys


def _part(x, axis, start, count):
    axis += len(x.shape)
    return slice_(x, spec=tuple((start, 1, count) if k == axis else (0, 1, d) for k, d in enumerate(x.shape)))


def _rows(x, start, count):
    return _part(x, -2, start, count)


def _weights(q, k, mask, causal, block):
    """The softmax of the block's scores."""
    start, count, seen = block
    scores = matmul(_rows(q, start, count), swap_last(_rows(k, 0, seen)))
    last = len(scores.shape) - 1
    if causal:
        # The rows' numbers are memory: as numbers in the kernel they would make every block's another one.
        numbers = reshape(_part(_count(q, q.shape[-2]), -1, start, count), shape=(count, 1))
        return softmax(where(le(_count(q, seen), numbers), scores, -math.inf), axis=last)
    if mask is None:
        return softmax(scores, axis=last)
    if mask.shape[-2] > 1:
        mask = _rows(mask, start, count)
    scores = where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else add(scores, mask)
    blind = eq(amax(scores, axes=(last,), keepdim=True), -math.inf)
    return where(blind, 0.0, softmax(where(blind, 0.0, scores), axis=last))


def _count(x, n):
    return x.apply_op(arange, (0, 1), {"shape": (n,), "dtype": dtypes.int64})


def _attention(q, k, v, *mask, causal, rows):
    found = []
    for block in _blocks(q, k, causal, rows):
        weights = _weights(q, k, mask[0] if mask else None, causal, block)
        found.append(matmul(weights, _rows(v, 0, block[2])))
    return _joined(found)


def _joined(parts):
    return parts[0] if len(parts) == 1 else cat(*parts, axis=len(parts[0].shape) - 2)


# --- derivatives ------------------------------------------------------------------------------------------------------
def _gradient(g, out, q, k, v, *mask, causal, rows, of):
    """The cotangent of "query", "key" or "value". dS = P (dP - rowsum(g out)), P the weights, dP = g v^T."""
    along = sum_(mul(g, out), axes=(len(g.shape) - 1,), keepdim=True)
    found = []
    for block in _blocks(q, k, causal, rows):
        start, count, seen = block
        weights, g_rows = _weights(q, k, mask[0] if mask else None, causal, block), _rows(g, start, count)
        if of == "value":
            found.append(matmul(swap_last(weights), g_rows))
            continue
        of_weights = matmul(g_rows, swap_last(_rows(v, 0, seen)))
        of_scores = mul(weights, sub(of_weights, _rows(along, start, count)))
        if of == "query":
            found.append(matmul(of_scores, _rows(k, 0, seen)))
        else:
            found.append(matmul(swap_last(of_scores), _rows(q, start, count)))
    return _joined(found) if of == "query" else _added(found, k.shape[-2])


def _added(parts, n_rows):
    """The sum of arrays of rows, of which later ones may have more; zeros in the rows that none has."""
    total = parts[-1]
    missing = (*total.shape[:-2], n_rows - total.shape[-2], total.shape[-1])
    if missing[-2]:
        total = _joined([total, total.apply_op(full, (0,), {"shape": missing, "dtype": total.dtype})])
    for part in reversed(parts[:-1]):
        n = part.shape[-2]
        if n == total.shape[-2]:
            total = add(total, part)
        else:
            total = _joined([add(_rows(total, 0, n), part), _rows(total, n, total.shape[-2] - n)])
    return total


# --- entries ----------------------------------------------------------------------------------------------------------
def _infer(operands, attributes, default_float):
    q, k, v = operands[:3]
    require_floating("attention", q)
    check_dtypes("attention", operands[:3])
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise OpError(
            f"attention: query has shape {q.shape}, key {k.shape} and value {v.shape}; query and key must have as many "
            "columns, key and value as many rows"
        )
    lead = broadcast_shapes("attention", [x.shape[:-2] for x in (q, k, v)])
    for mask in operands[3:]:
        broadcast_shapes("attention", [mask.shape, (*lead, q.shape[-2], k.shape[-2])])
    return Meta((*lead, q.shape[-2], v.shape[-1]), q.dtype)


def _gradient_infer(operands, attributes, default_float):
    g, out, q, k, v = operands[:5]
    like = {"query": q, "key": k, "value": v}[attributes["of"]]
    return Meta((*g.shape[:-2], *like.shape[-2:]), q.dtype)


def _rule(of):
    return lambda g, out, *operands, **facts: attention_gradient(g, out, *operands, **facts, of=of)


def _operands(*first):
    return [samples.numbers(k, s) for k, s in enumerate((*first, (2, 5, 3), (2, 6, 3), (2, 6, 2)))]


def _samples():
    seen = samples.bools(7, (5, 6))
    seen[1] = False
    facts = {"causal": False, "rows": 2}
    return [
        Sample(tuple(_operands()), {"causal": True, "rows": 1}),
        Sample((*_operands(), seen), facts),
        Sample((*_operands(), samples.numbers(8, (2, 1, 6))), facts),
        Sample(tuple(_operands()), {"causal": False, "rows": 5}),
    ]


def _gradient_samples():
    facts = ((True, 1, "query"), (True, 1, "key"), (False, 3, "key"), (True, 2, "value"), (True, 5, "value"))
    return [
        Sample(tuple(_operands((2, 5, 2), (2, 5, 2))), {"causal": causal, "rows": rows, "of": of})
        for causal, rows, of in facts
    ]


attention_gradient = composite("attention_gradient", _gradient_infer, _gradient, samples=_gradient_samples)
attention = composite(
    "attention",
    _infer,
    _attention,
    # The caller hands over no mask that requires gradients.
    vjp=(_rule("query"), _rule("key"), _rule("value"), None),
    node_name="ScaledDotProductAttentionBackward0",
    samples=_samples,
)
