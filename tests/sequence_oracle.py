"""The recurrent ops of the table, and attention, in PyTorch's words. Not a test.

Recurrent ones are its cells, with inputs multiplied by the identity.
"""

import functools
import math


def _walk(x, states, mask, reverse, step):
    """(the first state after every step, the last states); step(t, *states) -> states."""
    rows = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        new = step(t, *states)
        states = [_where(mask[0][t], a, b) for a, b in zip(new, states)] if mask else new
        rows[t] = states[0]
    return rows, states


def _where(condition, a, b):
    return a.where(condition, b)


def _same(torch, x):
    return torch.eye(x.shape[-1], dtype=x.dtype)


def rnn(torch, x, h, w, *mask, reverse, nonlinearity):
    cell = getattr(torch, f"rnn_{nonlinearity}_cell")
    return torch.stack(_walk(x, (h,), mask, reverse, lambda t, h: (cell(x[t], h, _same(torch, x), w),))[0])


def lstm(torch, x, h, c, w, *mask, reverse):
    rows, last = _walk(x, (h, c), mask, reverse, lambda t, *hc: torch.lstm_cell(x[t], hc, _same(torch, x), w))
    return torch.stack([*rows, last[1]])


def gru(torch, x, h, w, bias, *mask, reverse):
    """`bias` may have steps of its own: (T, N, H)."""

    def step(t, h):
        r, z, n = x[t].chunk(3, 1)
        of_r, of_z, of_n = (h @ w.t()).chunk(3, 1)
        n = torch.tanh(n + torch.sigmoid(r + of_r) * (of_n + (bias if bias.ndim == 1 else bias[t])))
        return (n + torch.sigmoid(z + of_z) * (h - n),)

    return torch.stack(_walk(x, (h,), mask, reverse, step)[0])


def _gradient(function, torch, g, x, *operands, reverse, **attributes):
    """The derivatives that autograd finds, laid out as the op's: of x in rows, and of the states in one row more."""
    n_states = 2 if function is lstm else 1
    x, *operands = (a.detach() if not a.is_floating_point() else a.clone() for a in (x, *operands))
    inputs = [a if a.requires_grad else a.requires_grad_() for a in (x, *operands[:n_states])]
    if function is gru:
        h = inputs[1]
        bias = operands[2].expand(x.shape[0], *h.shape).clone()
        inputs.append(bias if bias.requires_grad else bias.requires_grad_())
        operands = [*operands[:2], bias, *operands[3:]]
    out = function(torch, x, *operands, reverse=reverse, **attributes)
    found, *states = torch.autograd.grad(out, inputs, g, create_graph=True)
    if function is gru:
        (r, z, n), product = found.chunk(3, 2), states.pop()
        found = torch.cat([r, z, product, n], 2)
    row = torch.cat([*states, *(torch.zeros_like(states[0]),) * 4], 1)[:, : found.shape[2]]
    return torch.cat([found, row[None]])


def attention(torch, q, k, v, *mask, causal, rows):
    scores = q @ k.transpose(-1, -2)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    if mask and mask[0].dtype is not torch.bool:
        scores = scores + mask[0].detach()
    weights = torch.softmax(scores, -1)
    if mask and mask[0].dtype is torch.bool:
        weights = torch.softmax(scores.masked_fill(~mask[0], -1e9), -1) * mask[0].any(-1, keepdim=True)
    return weights @ v


def attention_gradient(torch, g, out, q, k, v, *mask, causal, rows, of):
    """The rule written out, so that the derivatives for `out` are those of an operand."""
    weights = attention(torch, q, k, torch.eye(k.shape[-2], dtype=k.dtype), *mask, causal=causal, rows=rows)
    of_scores = weights * (g @ v.transpose(-1, -2) - (g * out).sum(-1, keepdim=True))
    if of == "value":
        return weights.transpose(-1, -2) @ g
    return of_scores @ k if of == "query" else of_scores.transpose(-1, -2) @ q


def attention_rows(torch, *operands, causal, repeat=1):
    """The composites around the routines have the derivatives."""
    q, k, v, *mask = (x.detach() for x in operands)
    return attention(torch, q, k, v, *_every(mask, q.shape[0], repeat), causal=causal, rows=0)


def attention_cotangents(torch, *operands, causal, parts, chunks, repeat=1):
    """The parts that are asked for, one after the other; those of key and value chunk by chunk of rows."""
    operands = [x.detach() for x in operands]
    operands[5:] = _every(operands[5:], operands[0].shape[0], repeat)
    wanted = [of for of, bit in (("query", 1), ("key", 2), ("value", 4)) if parts & bit]
    found = []
    for of in wanted:
        n = 1 if of == "query" else chunks
        given = [[*_inside(operands[:2], k, n), *operands[2:]] for k in range(n)]
        of_chunks = [attention_gradient(torch, *x, causal=causal, rows=0, of=of) for x in given]
        found.append(torch.stack(of_chunks, 1).reshape(-1))
    return torch.cat(found)


def _inside(arrays, chunk, chunks):
    """Zeros in the rows outside a chunk of them."""
    length = -(-arrays[0].shape[1] // chunks)
    inside = [k // length == chunk for k in range(arrays[0].shape[1])]
    return [x * x.new_tensor(inside)[:, None] for x in arrays]


def _every(masks, n, repeat):
    """The mask of every matrix."""
    return [mask[[k // repeat % mask.shape[0] for k in range(n)]] for mask in masks]


SPELLINGS = {"rnn": rnn, "lstm": lstm, "gru": gru}
SPELLINGS.update({f"{name}_gradient": functools.partial(_gradient, f) for name, f in SPELLINGS.items()})
SPELLINGS.update(attention=attention, attention_gradient=attention_gradient)
SPELLINGS.update(attention_gradient_in_products=attention_gradient)
SPELLINGS.update({f"{masked}attention_rows": attention_rows for masked in ("", "masked_")})
SPELLINGS.update({f"{masked}attention_cotangents": attention_cotangents for masked in ("", "masked_")})
