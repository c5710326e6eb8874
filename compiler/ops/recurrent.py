"""Recurrent layers over all time steps: one op each for `rnn`, `lstm` and `gru`, written with the ops of one step.

The caller has multiplied the inputs by their weights, for all steps at once: an op gets these products x (T, N, gates),
the state before the first step and the recurrent weight, and goes through the steps:

    rnn     h = tanh or relu(x[t] + h w^T)
    lstm    i, f, g, o = x[t] + h w^T;   c = sigmoid(f) c + sigmoid(i) tanh(g);   h = sigmoid(o) tanh(c)
    gru     r, z = sigmoid of x[t] + h w^T;   n = tanh(x[t] + r (h w^T + b));   h = n + z (h - n)

The result has the states h of all steps in its rows; that of an lstm has one more, the final c. `reverse` goes from the
last step to the first. `mask` (T, N, 1), an operand that may be absent, is False where a sequence is over, or has not
begun: there the state stays.

A derivative goes through the steps once more, the other way, and collects the cotangents of what comes before the
nonlinearities. From these follow, by one product for all steps, those of the weights: adding up a product of every step
is three times the work (1 step of 32 sequences has 32 rows, all of 256 have 8192).
"""

import numpy as np

from ..extent import is_open
from . import samples
from .arithmetic import add, mul, relu, sub
from .comparison import gt, where
from .contraction import bmm, linear, matmul, swap_last
from .kinds import composite, require_floating
from .reduction import sum_
from .samples import Sample
from .source import full_like, zeros_like
from .steps import cell, steps
from .table import Meta, OpError
from .transcendental import sigmoid, tanh
from .view import cat, reshape, slice_, stack


# --- parts of arrays ------------------------------------------------------------------------------------------------
def _rows(x, start, count):
    return slice_(x, spec=((start, 1, count), *((0, 1, d) for d in x.shape[1:])))


def _step(x, t):
    return reshape(_rows(x, t, 1), shape=x.shape[1:])


def _columns(x, start, count):
    return slice_(x, spec=(*((0, 1, d) for d in x.shape[:-1]), (start, 1, count)))


def _parts(x, n):
    """x in n equal parts of its columns."""
    size = x.shape[-1] // n
    return [_columns(x, k * size, size) for k in range(n)]


def _joined(*parts):
    return cat(*parts, axis=len(parts[0].shape) - 1)


def _order(x, reverse):
    steps = range(x.shape[0])
    return reversed(steps) if reverse else steps


def _kept(mask, t, new, old):
    """`new`, and `old` in the rows whose sequence is over."""
    return where(_step(mask[0], t), new, old) if mask else new


# --- one step: cells ------------------------------------------------------------------------------------------------
def rnn_step(gates, relu_):
    return relu(gates) if relu_ else tanh(gates)


def lstm_step(gates, c):
    """(h, c) after the step."""
    i, f, g, o = _parts(gates, 4)
    c = add(mul(sigmoid(f), c), mul(sigmoid(i), tanh(g)))
    return mul(sigmoid(o), tanh(c)), c


def gru_step(x, product, h):
    """`product` is h w^T, with the bias of the last third."""
    r, z, n = _gru_gates(x, product)
    return add(n, mul(z, sub(h, n)))


def _gru_gates(x, product):
    (x_r, x_z, x_n), (h_r, h_z, h_n) = _parts(x, 3), _parts(product, 3)
    r = sigmoid(add(x_r, h_r))
    return r, sigmoid(add(x_z, h_z)), tanh(add(x_n, mul(r, h_n)))


def _gru_product(h, w, bias):
    size = h.shape[-1]
    product = linear(h, w)
    return _joined(_columns(product, 0, 2 * size), add(_columns(product, 2 * size, size), bias))


# --- all steps ------------------------------------------------------------------------------------------------------
def _rnn_states(x, h, w, mask, reverse, nonlinearity):
    states = {}
    for t in _order(x, reverse):
        h = states[t] = _kept(mask, t, rnn_step(add(_step(x, t), linear(h, w)), nonlinearity == "relu"), h)
    return states


def _rnn(x, h, w, *mask, reverse, nonlinearity):
    if is_open(x.shape[0]):
        return _rnn_in_loop(x, h, w, mask, reverse, nonlinearity)
    return _stacked(x, _rnn_states(x, h, w, mask, reverse, nonlinearity))


def _stacked(x, steps, *last):
    return stack(*(steps[t] for t in range(x.shape[0])), *last, axis=0)


def _rnn_gradient(g, x, h, w, *mask, reverse, nonlinearity):
    """The cotangents of the steps' sums, (T, N, H), and last the one of the state before the first step."""
    if is_open(x.shape[0]):
        return _rnn_gradient_in_loop(g, x, h, w, mask, reverse, nonlinearity)
    states, found, dh = _rnn_states(x, h, w, mask, reverse, nonlinearity), {}, None
    for t in _order(x, not reverse):
        dh, kept = _arriving(mask, t, _sum(dh, _step(g, t)))
        found[t] = _rnn_step_gradient(dh, states[t], nonlinearity)
        dh = _sum(kept, matmul(found[t], w))
    return _stacked(x, found, dh)


def _rnn_step_gradient(dh, out, nonlinearity):
    if nonlinearity == "relu":
        return where(gt(out, 0.0), dh, 0.0)
    return mul(dh, sub(1.0, mul(out, out)))


def _sum(x, y):
    return y if x is None else add(x, y)


def _arriving(mask, t, cotangent):
    """The cotangent of the step's new state, and what goes past it because the state stayed; None without a mask."""
    if not mask:
        return cotangent, None
    active = _step(mask[0], t)
    return where(active, cotangent, 0.0), where(active, 0.0, cotangent)


def _lstm_states(x, h, c, w, mask, reverse):
    """{step: (sums of the gates, c before, c after)}, {step: h}, and the last c."""
    inner, states = {}, {}
    for t in _order(x, reverse):
        gates = add(_step(x, t), linear(h, w))
        new, after = lstm_step(gates, c)
        inner[t] = gates, c, after
        h = states[t] = _kept(mask, t, new, h)
        c = _kept(mask, t, after, c)
    return inner, states, c


def _lstm(x, h, c, w, *mask, reverse):
    if is_open(x.shape[0]):
        return _lstm_in_loop(x, h, c, w, mask, reverse)
    _, states, last = _lstm_states(x, h, c, w, mask, reverse)
    return _stacked(x, states, last)


def _lstm_gradient(g, x, h, c, w, *mask, reverse):
    """The cotangents of the gates' sums, (T, N, 4 H), and last those of h and c before the first step, and zeros."""
    if is_open(x.shape[0]):
        return _lstm_gradient_in_loop(g, x, h, c, w, mask, reverse)
    inner, _, _ = _lstm_states(x, h, c, w, mask, reverse)
    found, dh, dc = {}, None, _step(g, x.shape[0])
    for t in _order(x, not reverse):
        dh, kept_h = _arriving(mask, t, _sum(dh, _step(g, t)))
        dc, kept_c = _arriving(mask, t, dc)
        found[t], dc = _lstm_step_gradient(dh, dc, *inner[t])
        dh, dc = _sum(kept_h, matmul(found[t], w)), _sum(kept_c, dc)
    nothing = zeros_like(dc)
    return _stacked(x, found, _joined(dh, dc, nothing, nothing))


def _lstm_step_gradient(dh, dc, gates, before, after):
    """The cotangents of the gates' sums and of c before the step."""
    i, f, n, o = _parts(gates, 4)
    i, f, n, o, wave = sigmoid(i), sigmoid(f), tanh(n), sigmoid(o), tanh(after)
    dc = add(dc, mul(mul(dh, o), sub(1.0, mul(wave, wave))))
    of_gates = _joined(
        mul(mul(dc, n), _slope(i)),
        mul(mul(dc, before), _slope(f)),
        mul(mul(dc, i), sub(1.0, mul(n, n))),
        mul(mul(dh, wave), _slope(o)),
    )
    return of_gates, mul(dc, f)


def _slope(y):
    """The derivative of sigmoid where it is y."""
    return mul(y, sub(1.0, y))


def _gru_states(x, h, w, bias, mask, reverse):
    """{step: (h w^T with its bias, h before)}, {step: h}."""
    inner, states = {}, {}
    for t in _order(x, reverse):
        product = _gru_product(h, w, bias)
        inner[t] = product, h
        h = states[t] = _kept(mask, t, gru_step(_step(x, t), product, h), h)
    return inner, states


def _gru(x, h, w, bias, *mask, reverse):
    if is_open(x.shape[0]):
        return _columns(_gru_rows(x, h, w, bias, mask, reverse), 0, h.shape[-1])
    return _stacked(x, _gru_states(x, h, w, bias, mask, reverse)[1])


def _gru_gradient(g, x, h, w, bias, *mask, reverse):
    """The cotangents of x's r and z, of h w^T's n and of x's n, (T, N, 4 H), and last that of h before, and zeros."""
    if is_open(x.shape[0]):
        return _gru_gradient_in_loop(g, x, h, w, bias, mask, reverse)
    inner, _ = _gru_states(x, h, w, bias, mask, reverse)
    found, dh = {}, None
    for t in _order(x, not reverse):
        dh, kept = _arriving(mask, t, _sum(dh, _step(g, t)))
        found[t], past = _gru_step_gradient(dh, _step(x, t), *inner[t])
        dh = _sum(kept, add(past, matmul(_columns(found[t], 0, 3 * h.shape[-1]), w)))
    nothing = zeros_like(dh)
    return _stacked(x, found, _joined(dh, nothing, nothing, nothing))


def _gru_step_gradient(dh, x, product, before):
    """The cotangents as above, and what goes to the state before the step without a product."""
    r, z, n = _gru_gates(x, product)
    dn = mul(mul(dh, sub(1.0, z)), sub(1.0, mul(n, n)))
    dz = mul(mul(dh, sub(before, n)), _slope(z))
    dr = mul(mul(dn, _parts(product, 3)[2]), _slope(r))
    return _joined(dr, dz, mul(dn, r), dn), mul(dh, z)


# --- as many steps as the call tells (steps.py) -----------------------------------------------------------------------
# Rows hold what a step hands on. A sum that begins with -0.0 is what is added to it, of 0.0 and -0.0 too.
def _masked(mask, new, old):
    return where(mask[0], new, old) if mask else new


@cell
def _rnn_row(rows, h, constants, nonlinearity):
    (x, *mask), (w,) = rows, constants
    return _masked(mask, rnn_step(add(x, linear(h, w)), nonlinearity == "relu"), h)


def _rnn_in_loop(x, h, w, mask, reverse, nonlinearity):
    return steps(_rnn_row, (x, *mask), h, (w,), reverse=reverse, nonlinearity=nonlinearity)


@cell
def _rnn_gradient_row(rows, before, constants, nonlinearity):
    (g, out, *mask), (w,) = rows, constants
    dh, kept = _arriving_row(mask, add(_parts(before, 2)[1], g))
    found = _rnn_step_gradient(dh, out, nonlinearity)
    return _joined(found, _sum(kept, matmul(found, w)))


def _rnn_gradient_in_loop(g, x, h, w, mask, reverse, nonlinearity):
    out = _rnn_in_loop(x, h, w, mask, reverse, nonlinearity)
    first, facts = full_like(h, -0.0), {"reverse": not reverse, "nonlinearity": nonlinearity}
    found = steps(_rnn_gradient_row, (g, out, *mask), _joined(first, first), (w,), **facts)
    found, dh = _parts(found, 2)
    return cat(found, _last(dh, not reverse), axis=0)


def _arriving_row(mask, cotangent):
    if not mask:
        return cotangent, None
    return where(mask[0], cotangent, 0.0), where(mask[0], 0.0, cotangent)


def _last(x, reverse):
    """The row of the step that comes last."""
    return _rows(x, 0 if reverse else x.shape[0] - 1, 1)


@cell
def _lstm_row(rows, before, constants):
    """h, c and the sums of the gates."""
    (x, *mask), (w,) = rows, constants
    h, c = _parts(before, 6)[:2]
    gates = add(x, linear(h, w))
    new, after = lstm_step(gates, c)
    return _joined(_masked(mask, new, h), _masked(mask, after, c), gates)


def _lstm_rows(x, h, c, w, mask, reverse):
    return steps(_lstm_row, (x, *mask), _joined(h, c, *[zeros_like(h)] * 4), (w,), reverse=reverse)


def _lstm_in_loop(x, h, c, w, mask, reverse):
    states, cells = _parts(_lstm_rows(x, h, c, w, mask, reverse), 6)[:2]
    return cat(states, _last(cells, reverse), axis=0)


@cell
def _lstm_gradient_row(rows, before, constants):
    """The cotangents of the gates' sums, of h and of c."""
    (g, gates, c, *mask), (w,) = rows, constants
    dh, dc = _parts(before, 6)[4:]
    dh, kept_h = _arriving_row(mask, add(dh, g))
    dc, kept_c = _arriving_row(mask, dc)
    found, dc = _lstm_step_gradient(dh, dc, gates, c, lstm_step(gates, c)[1])
    return _joined(found, _sum(kept_h, matmul(found, w)), _sum(kept_c, dc))


def _lstm_gradient_in_loop(g, x, h, c, w, mask, reverse):
    rows, n_steps = _lstm_rows(x, h, c, w, mask, reverse), x.shape[0]
    size = h.shape[-1]
    given = _rows(g, 0, n_steps), _columns(rows, 2 * size, 4 * size), _before(_parts(rows, 6)[1], x, c, reverse)
    nothing = zeros_like(h)
    first = _joined(*[nothing] * 4, full_like(h, -0.0), _step(g, n_steps))
    found = steps(_lstm_gradient_row, (*given, *mask), first, (w,), reverse=not reverse)
    dh, dc = _parts(_last(found, not reverse), 6)[4:]
    ends = _joined(dh, dc, *[reshape(nothing, shape=(1, *h.shape))] * 2)
    return cat(_columns(found, 0, 4 * size), ends, axis=0)


@cell
def _gru_row(rows, before, constants):
    """h, and h w^T with its bias."""
    (x, *mask), (w, bias) = rows, constants
    h = _parts(before, 4)[0]
    product = _gru_product(h, w, bias)
    return _joined(_masked(mask, gru_step(x, product, h), h), product)


def _gru_rows(x, h, w, bias, mask, reverse):
    return steps(_gru_row, (x, *mask), _joined(h, *[zeros_like(h)] * 3), (w, bias), reverse=reverse)


@cell
def _gru_gradient_row(rows, before, constants):
    """The four cotangents of the other form, and that of h."""
    (g, x, product, h, *mask), (w,) = rows, constants
    dh, kept = _arriving_row(mask, add(_parts(before, 5)[4], g))
    found, past = _gru_step_gradient(dh, x, product, h)
    return _joined(found, _sum(kept, add(past, matmul(_columns(found, 0, 3 * h.shape[-1]), w))))


def _gru_gradient_in_loop(g, x, h, w, bias, mask, reverse):
    rows, size = _gru_rows(x, h, w, bias, mask, reverse), h.shape[-1]
    before = _before(_columns(rows, 0, size), x, h, reverse)
    nothing = zeros_like(h)
    first = _joined(*[nothing] * 4, full_like(h, -0.0))
    given = g, x, _columns(rows, size, 3 * size), before
    found = steps(_gru_gradient_row, (*given, *mask), first, (w,), reverse=not reverse)
    dh = _columns(_last(found, not reverse), 4 * size, size)
    ends = _joined(dh, *[reshape(nothing, shape=(1, *h.shape))] * 3)
    return cat(_columns(found, 0, 4 * size), ends, axis=0)


# --- rules ----------------------------------------------------------------------------------------------------------
def _before(out, x, h, reverse):
    """The state before every step, (T, N, H)."""
    n_steps, first = x.shape[0], reshape(h, shape=(1, *h.shape))
    if reverse:
        return cat(_rows(out, 1, n_steps - 1), first, axis=0)
    return cat(first, _rows(out, 0, n_steps - 1), axis=0)


def _of_weight(found, states):
    """The sum over all steps and sequences of found^T states."""
    found, states = (reshape(a, shape=(a.shape[0] * a.shape[1], a.shape[2])) for a in (found, states))
    return bmm(swap_last(found), states)


def _checked(name, n_gates):
    def infer(operands, attributes, default_float):
        x, h, w = operands[0], operands[1], operands[3 if name == "lstm" else 2]
        require_floating(name, x)
        size = h.shape[-1]
        if x.shape[0] == 0:
            raise OpError(f"{name}: Expected sequence length to be larger than 0")
        if x.shape[1:] != (h.shape[0], n_gates * size) or w.shape != (n_gates * size, size):
            raise OpError(f"{name}: inputs {x.shape}, states {h.shape} and weights {w.shape} do not fit")
        return Meta((x.shape[0] + (name == "lstm"), *h.shape), x.dtype)

    return infer


def _gradient_shape(n_columns):
    def infer(operands, attributes, default_float):
        x, h = operands[1], operands[2]
        return Meta((x.shape[0] + 1, h.shape[0], n_columns * h.shape[1]), x.dtype)

    return infer


def _drawn(n_gates, *shapes, before=()):
    """Operands of samples, and whether they are for steps in reverse order: three steps of two sequences with three
    units. With a mask the second sequence is shorter."""

    def make():
        all_shapes = (*before, (3, 2, n_gates * 3), *shapes)
        operands = [samples.numbers(k, s, -1.0, 1.0) for k, s in enumerate(all_shapes)]
        mask = np.array([[[True], [True]], [[True], [True]], [[True], [False]]])
        return [(operands, False), ([*operands, mask], False), ([*operands, mask], True)][bool(before) :]

    return make


def _samples(drawn, **attributes):
    return lambda: [Sample(tuple(operands), {"reverse": r, **attributes}) for operands, r in drawn()]


_STATE = (2, 3)
_RNN, _LSTM, _GRU = (1, _STATE, (3, 3)), (4, _STATE, _STATE, (12, 3)), (3, _STATE, (9, 3), (3,))
_COTANGENTS, _WITH_C = ((3, *_STATE),), ((4, *_STATE),)


def _kinds(drawn):
    return lambda: [s for kind in ("tanh", "relu") for s in _samples(drawn, nonlinearity=kind)()]


rnn_gradient = composite(
    "rnn_gradient",
    _gradient_shape(1),
    _rnn_gradient,
    samples=_samples(_drawn(*_RNN, before=_COTANGENTS), nonlinearity="tanh"),
)
lstm_gradient = composite(
    "lstm_gradient", _gradient_shape(4), _lstm_gradient, samples=_samples(_drawn(*_LSTM, before=_WITH_C))
)
gru_gradient = composite(
    "gru_gradient", _gradient_shape(4), _gru_gradient, samples=_samples(_drawn(*_GRU, before=_COTANGENTS))
)


def _steps_of(gradient):
    """The rows of all steps of what a gradient op gives, and its last row."""
    n_steps = gradient.shape[0] - 1
    return _rows(gradient, 0, n_steps), _step(gradient, n_steps)


def _rnn_found(g, operands, attributes):
    return _steps_of(rnn_gradient(g, *operands, **attributes))


rnn = composite(
    "rnn",
    _checked("rnn", 1),
    _rnn,
    vjp=(
        lambda g, out, *xs, **facts: _rnn_found(g, xs, facts)[0],
        lambda g, out, *xs, **facts: _rnn_found(g, xs, facts)[1],
        lambda g, out, *xs, **facts: _of_weight(_rnn_found(g, xs, facts)[0], _before(out, *xs[:2], facts["reverse"])),
        None,
    ),
    samples=_kinds(_drawn(*_RNN)),
)


def _lstm_found(g, operands, attributes):
    found, last = _steps_of(lstm_gradient(g, *operands, **attributes))
    return (found, *_parts(last, 4)[:2])


lstm = composite(
    "lstm",
    _checked("lstm", 4),
    _lstm,
    vjp=(
        lambda g, out, *xs, **facts: _lstm_found(g, xs, facts)[0],
        lambda g, out, *xs, **facts: _lstm_found(g, xs, facts)[1],
        lambda g, out, *xs, **facts: _lstm_found(g, xs, facts)[2],
        lambda g, out, *xs, **facts: _of_weight(_lstm_found(g, xs, facts)[0], _before(out, *xs[:2], facts["reverse"])),
        None,
    ),
    samples=_samples(_drawn(*_LSTM)),
)


def _gru_found(g, operands, attributes):
    """The cotangents of x, of the state before the first step, and of all products h w^T with their bias."""
    found, last = _steps_of(gru_gradient(g, *operands, **attributes))
    r, z, of_product, of_input = _parts(found, 4)
    return _joined(r, z, of_input), _parts(last, 4)[0], _columns(found, 0, 3 * r.shape[-1]), of_product


gru = composite(
    "gru",
    _checked("gru", 3),
    _gru,
    vjp=(
        lambda g, out, *xs, **facts: _gru_found(g, xs, facts)[0],
        lambda g, out, *xs, **facts: _gru_found(g, xs, facts)[1],
        lambda g, out, *xs, **facts: _of_weight(_gru_found(g, xs, facts)[2], _before(out, *xs[:2], facts["reverse"])),
        lambda g, out, *xs, **facts: sum_(_gru_found(g, xs, facts)[3], axes=(0, 1), keepdim=False),
        None,
    ),
    samples=_samples(_drawn(*_GRU)),
)
