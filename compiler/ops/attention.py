"""Attention: softmax(q k^T + mask) v, without a matrix of all scores.

    q (..., T, E), k (..., S, E), v (..., S, V), mask (..., T, S) or none -> (..., T, V)

The caller has scaled q. With `causal`, row l sees the keys up to l. The mask is bool, True where there is something to
see, or numbers that are added. A row that sees nothing gets 0.

Attention and its gradient are routines (emit/attention.py), which see the leading dimensions as one. The gradient of
the gradient is that of products, exponentials and sums: `_gradient` writes the gradient with them, `rows` of the query
at a time, so that the scores of one block stay in a cache.
"""

import math
from math import prod

from .. import dtypes
from ..attention_blocks import CHUNK_ROWS, gradient_chunks
from ..attention_blocks import block_rows as rows_at_a_time
from ..autodiff import vjp
from ..conversions import same_types
from ..kernels.library import UnitRoutine
from ..later import later
from ..shapes import broadcast_shapes
from . import samples
from .arithmetic import add, mul, sub
from .comparison import cast, eq, le, where
from .contraction import check_dtypes, matmul, swap_last
from .kinds import composite, require_floating, routine
from .reduction import amax, sum_
from .samples import Sample
from .source import arange, full
from .statistics import softmax
from .table import Meta, OpError
from .view import cat, expand, reshape, slice_

forward_scratch = later("compiler.emit.attention:forward_scratch")
gradient_scratch = later("compiler.emit.attention:gradient_scratch")
# 8 MB of float32, which stay in a large cache.
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
    if 0 in scores.shape:
        return scores
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


# --- with products ----------------------------------------------------------------------------------------------------
def _in_products(q, k, v, *mask, causal, rows):
    found = []
    for block in _blocks(q, k, causal, rows):
        weights = _weights(q, k, mask[0] if mask else None, causal, block)
        found.append(matmul(weights, _rows(v, 0, block[2])))
    return _joined(found)


def _joined(parts):
    return parts[0] if len(parts) == 1 else cat(*parts, axis=len(parts[0].shape) - 2)


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


# --- routines ---------------------------------------------------------------------------------------------------------
# Operands have three dimensions: (matrices, rows, columns). Of a mask, `repeat` matrices of the others in a row see the
# same one, and all of them are seen in turns.
_PARTS = {"query": 1, "key": 2, "value": 4}
_EVERY = sum(_PARTS.values())


def _shape(q, k, v):
    """(matrices, rows of the query, keys, columns of both, columns of the values), of shapes."""
    return *q[:2], k[1], q[2], v[2]


def _sizes(q, k, v, mask, attributes, *more):
    _, rows, keys, width, value_width = _shape(q, k, v)
    found = rows, keys, width, value_width, int(attributes["causal"]), rows_at_a_time(rows, keys), *more
    return found if not mask else (*found, 0 if mask[0][1] == 1 else keys, attributes["repeat"], mask[0][0])


def _products(q, k, v, attributes):
    """Flops of a product with all scores, on average of both widths."""
    n, rows, keys, width, value_width = _shape(q, k, v)
    flops = n * rows * keys * (width + value_width)
    return flops // 2 if attributes["causal"] else flops


def _rows_routine(masked):
    return UnitRoutine(
        "attention_masked" if masked else "attention",
        later("compiler.emit.attention:emit_attention", masked),
        lambda s, a: s[0][0] * -(-s[0][1] // CHUNK_ROWS),
        lambda s, a: _sizes(*s[:3], s[3:], a, CHUNK_ROWS),
        lambda element, s, a: forward_scratch(element, *s[:3]),
        lambda s, a: 2 * _products(*s[:3], a),
    )


class _Gradient(UnitRoutine):
    """Of the cotangents of all three operands, whose scores are computed once."""

    def convert(self, graph, value, operands):
        part, lengths = value.attributes["parts"], _lengths(operands[2:5], value.attributes["chunks"])
        if part == _EVERY:
            return same_types(graph, value, operands)
        every = graph.apply(value.op, operands, {**value.attributes, "parts": _EVERY})
        start = sum(n for n, bit in zip(lengths, _PARTS.values()) if bit < part)
        return graph.apply(slice_, (every,), {"spec": ((start, 1, value.shape[0]),)})


def _gradient_routine(masked):
    return _Gradient(
        "attention_gradient_masked" if masked else "attention_gradient",
        later("compiler.emit.attention:emit_gradient", masked),
        lambda s, a: s[0][0] * a["chunks"],
        lambda s, a: _sizes(*s[2:5], s[5:], a, a["parts"], s[0][0], a["chunks"]),
        lambda element, s, a: gradient_scratch(element, *s[2:5]),
        lambda s, a: 5 * _products(*s[2:5], a),
    )


def _of_rows(operands, attributes):
    q, k, v = operands[:3]
    return Meta((*q.shape[:2], v.shape[2]), q.dtype)


def _of_gradient(operands, attributes):
    """The cotangents of those operands that `parts` names, one after the other."""
    lengths = zip(_lengths(operands[2:5], attributes["chunks"]), _PARTS.values())
    return Meta((sum(n for n, bit in lengths if attributes["parts"] & bit),), operands[0].dtype)


def _lengths(operands, chunks):
    """How many elements the cotangents of q, k and v have."""
    q, k, v = (prod(x.shape) for x in operands)
    return q, k * chunks, v * chunks


def _operands(*first):
    return [samples.numbers(k, s) for k, s in enumerate((*first, (2, 5, 3), (2, 6, 3), (2, 6, 2)))]


def _routine_samples():
    facts = {"causal": False, "repeat": 1}
    return [Sample((*_operands(), samples.numbers(8, (2, 1, 6))), facts)]


def _routine_gradient_samples():
    operands = _operands((2, 5, 2), (2, 5, 2))
    cases = ((1, 1), (2, 1), (4, 1), (_EVERY, 2))
    return [Sample(tuple(operands), {"causal": True, "parts": part, "chunks": chunks}) for part, chunks in cases]


attention_rows = routine(
    "attention_rows", _of_rows, _rows_routine(False), samples=lambda: [Sample(tuple(_operands()), {"causal": True})]
)
masked_attention_rows = routine("masked_attention_rows", _of_rows, _rows_routine(True), samples=_routine_samples)
attention_cotangents = routine(
    "attention_cotangents", _of_gradient, _gradient_routine(False), samples=_routine_gradient_samples
)
masked_attention_cotangents = routine(
    "masked_attention_cotangents",
    _of_gradient,
    _gradient_routine(True),
    samples=lambda: [
        Sample(
            (*_operands((2, 5, 2), (2, 5, 2)), samples.numbers(8, (1, 5, 6))),
            {"causal": False, "parts": 1, "chunks": 1, "repeat": 2},
        )
    ],
)


def _attention(q, k, v, *mask, causal, rows):
    lead = broadcast_shapes("attention", [x.shape[:-2] for x in (q, k, v)])
    if 0 in (*lead, *q.shape, *k.shape, *v.shape):
        return _in_products(q, k, v, *mask, causal=causal, rows=rows)
    matrices = [_matrices(x, lead) for x in (q, k, v)]
    if mask:
        mask, repeat = _mask_matrices(mask[0], lead, k.shape[-2], q.dtype)
        found = masked_attention_rows(*matrices, mask, causal=causal, repeat=repeat)
    else:
        found = attention_rows(*matrices, causal=causal)
    return reshape(found, shape=(*lead, q.shape[-2], v.shape[-1]))


def _in_routines(g, out, q, k, v, *mask, causal, rows, of):
    lead = g.shape[:-2]
    if 0 in (*lead, *q.shape, *k.shape, *v.shape):
        return _gradient(g, out, q, k, v, *mask, causal=causal, rows=rows, of=of)
    matrices, chunks = [_matrices(x, lead) for x in (g, out, q, k, v)], gradient_chunks(prod(lead), q.shape[-2])
    facts = {"causal": causal, "parts": _PARTS[of], "chunks": chunks}
    if mask:
        mask, repeat = _mask_matrices(mask[0], lead, k.shape[-2], q.dtype)
        found = masked_attention_cotangents(*matrices, mask, **facts, repeat=repeat)
    else:
        found = attention_cotangents(*matrices, **facts)
    like = {"query": q, "key": k, "value": v}[of].shape[-2:]
    if chunks > 1 and of != "query":
        found = sum_(reshape(found, shape=(prod(lead), chunks, *like)), axes=(1,), keepdim=False)
    return reshape(found, shape=(*lead, *like))


def _matrices(x, lead):
    """All leading dimensions as one."""
    if x.shape[:-2] != lead:
        x = expand(x, shape=(*lead, *x.shape[-2:]))
    return x if len(x.shape) == 3 else reshape(x, shape=(prod(lead), *x.shape[-2:]))


def _mask_matrices(mask, lead, n_keys, dtype):
    """(numbers to add, for how many matrices in a row each matrix of them is)."""
    if mask.dtype is dtypes.bool_:
        mask = cast(where(mask, 0.0, -math.inf), dtype=dtype)
    given = (*(1,) * (len(lead) + 2 - len(mask.shape)), *mask.shape)
    many = [k for k, d in enumerate(given[:-2]) if d != 1]
    first, stop = (many[0], many[-1] + 1) if many else (0, 0)
    if given[first:stop] != lead[first:stop]:
        first, stop = 0, len(lead)
    shape = (*lead[first:stop], given[-2], n_keys)
    if given[-1] != n_keys or given[first:stop] != lead[first:stop]:
        mask = expand(reshape(mask, shape=given[first:stop] + given[-2:]), shape=shape)
    repeat = prod(lead[stop:]) if many else prod(lead)
    return reshape(mask, shape=(prod(shape[:-2]), *shape[-2:])), repeat


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


attention_gradient_in_products = composite(
    "attention_gradient_in_products", _gradient_infer, _gradient, samples=_gradient_samples
)


def _rule_of_gradient(index):
    def rule(g, out, *operands, **facts):
        return vjp(attention_gradient_in_products, index, g, out, operands, facts)

    return rule


attention_gradient = composite(
    "attention_gradient",
    _gradient_infer,
    _in_routines,
    vjp=(*map(_rule_of_gradient, range(5)), None),
    samples=_gradient_samples,
)
attention = composite(
    "attention",
    _infer,
    _attention,
    # The caller hands over no mask that requires gradients.
    vjp=(_rule("query"), _rule("key"), _rule("value"), None),
    node_name="ScaledDotProductAttentionBackward0",
    samples=_samples,
)
