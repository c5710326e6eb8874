"""Losses of margins, rankings, counts and variances, as functions. `reduction` is "mean", "sum" or "none"."""

import math

import numpy as np

from ..casting import in_wide, widened
from ..caught import demand
from ..compiler.ops import scan
from ..compiler.ops.arithmetic import clamp_min
from ..compiler.ops.comparison import cast, eq, ge, logical_not, where
from ..compiler.ops.table import OpError
from ..creation import arange, full
from ..functions import gather
from ..half_floats import in_float32
from ..reducing import mean, sum
from ..runtime.state.tensor import Tensor, tensor_of
from ..shaping import cat, reshape, stack, unsqueeze
from .functional import logsigmoid, pairwise_distance
from .loss_functions import _reduced, reduction_of


def margin_ranking_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    """max(0, -target (x1 - x2) + margin), target being 1 where x1 should be ranked higher, else -1."""
    input1, input2, target = widened(input1, input2, target)
    reduction = reduction_of("margin_ranking_loss", reduction, size_average, reduce)
    if input1.ndim != input2.ndim or input1.ndim != target.ndim:
        raise OpError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape}"
        )
    return _reduced(clamp_min(-target * (input1 - input2) + float(margin), 0), reduction)


def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """x where target is 1, max(0, margin - x) where it is -1."""
    input, target = widened(input, target)
    reduction = reduction_of("hinge_embedding_loss", reduction, size_average, reduce)
    # Of integers the margin becomes one, and so do the losses.
    margin, zero = (margin, 0.0) if input.dtype.is_differentiable else (int(margin), 0)
    far = where(eq(target, 1), zero, clamp_min(margin - input, zero))
    near = where(eq(target, -1), zero, input)
    return _reduced(far + near, reduction)


@in_wide
@in_float32
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target x))."""
    reduction = reduction_of("soft_margin_loss", reduction, size_average, reduce)
    losses = -logsigmoid(target * input)
    if losses.shape != input.shape:
        raise OpError(f"soft_margin_loss: a target of shape {target.shape} does not fit an input of {input.shape}")
    return _reduced(losses, reduction)


def cosine_embedding_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1."""
    input1, input2, target = widened(input1, input2, target)
    reduction = reduction_of("cosine_embedding_loss", reduction, size_average, reduce)
    if target.ndim > 1:
        raise OpError(f"0D or 1D target tensor expected, multi-target not supported: got shape {target.shape}")
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        raise OpError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{input1.shape} and {input2.shape}."
        )
    alike = _similarity(input1, input2)
    near, far = 1.0 - alike, clamp_min(alike - margin, 0.0)
    return _reduced(where(eq(target, 1), near, 0.0) + where(eq(target, -1), far, 0.0), reduction)


def _similarity(x, y, eps=1e-12):
    """x . y / sqrt((|x|^2 + eps) (|y|^2 + eps))"""
    return sum(x * y, -1) / ((sum(x * x, -1) + eps) * (sum(y * y, -1) + eps)).sqrt()


def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"
):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with d the p-norm of the difference."""
    anchor, positive, negative = widened(anchor, positive, negative)
    reduction = reduction_of("triplet_margin_loss", reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")

    def distance(x, y):
        return pairwise_distance(x, y, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """triplet_margin_loss with any distance (by default the norm of the difference)."""
    reduction_of("triplet_margin_with_distance_loss", reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction)


def _triplet(anchor, positive, negative, distance, margin, swap, reduction):
    if anchor.ndim != positive.ndim or anchor.ndim != negative.ndim:
        raise OpError(
            f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        between = distance(positive, negative)
        far = where(far > between, between, far)
    return _reduced(clamp_min(near - far + margin, 0.0), reduction)


# --- classes ----------------------------------------------------------------------------------------------------------
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The sum over the wrong classes i of max(0, margin - x[y] + x[i])^p / C."""
    input, weight = widened(input, weight)
    reduction = reduction_of("multi_margin_loss", reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: only p == 1 and p == 2 supported, got {p}")
    rows, classes = (unsqueeze(input, 0), reshape(target, 1)) if input.ndim < 2 else (input, target)
    if input.ndim == 0:
        rows = reshape(input, 1, 1)
    if rows.ndim != 2 or classes.shape != rows.shape[:1] or rows.shape[1] == 0:
        raise OpError(f"multi_margin_loss: inconsistent target size: {target.shape} for input of size: {input.shape}")
    if weight is not None and weight.shape != rows.shape[1:]:
        raise OpError(f"multi_margin_loss: inconsistent weight size: expected {rows.shape[1]} but got {weight.shape}")
    column = unsqueeze(classes, 1)
    losses = clamp_min(margin - gather(rows, 1, column) + rows, 0.0)
    losses = losses * losses if p == 2 else losses
    losses = losses if weight is None else losses * unsqueeze(weight[classes], 1)
    losses = where(eq(arange(rows.shape[1]), column), 0.0, losses)
    each = sum(losses, 1) / rows.shape[1]
    return _reduced(reshape(each, target.shape) if input.ndim < 2 else each, reduction)


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """The sum over labels j and other classes i of max(0, 1 - x[j] + x[i]) / C; labels end at the first -1."""
    input, target = widened(input, target)
    reduction = reduction_of("multilabel_margin_loss", reduction, size_average, reduce)
    if input.shape != target.shape or input.ndim > 2 or not input.numel() and 0 in input.shape[1:]:
        raise OpError(
            f"multilabel_margin_loss: inconsistent target size: {target.shape} for input of size: {input.shape}"
        )
    size = input.shape[-1] if input.ndim else 1
    rows, labels = reshape(input, -1, size), reshape(target, -1, size)
    valid = scan.cumprod(cast(ge(labels, 0), dtype=labels.dtype), axis=1) > 0
    places = where(valid, labels, 0)
    hits = rows.new_zeros(rows.shape).scatter_add(1, places, cast(valid, dtype=rows.dtype)) > 0
    margins = clamp_min(1.0 - unsqueeze(gather(rows, 1, places), 2) + unsqueeze(rows, 1), 0.0)
    counted = unsqueeze(valid, 2) & ~unsqueeze(hits, 1)
    each = sum(where(counted, margins, 0.0), (1, 2)) / size
    return _reduced(reshape(each, ()) if input.ndim < 2 else each, reduction)


@in_float32
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean over classes of the binary cross entropy of sigmoid(x)."""
    reduction = reduction_of("multilabel_soft_margin_loss", reduction, size_average, reduce)
    losses = -(target * logsigmoid(input) + (1.0 - target) * logsigmoid(-input))
    losses = losses if weight is None else losses * weight
    n_classes = input.shape[-1] if input.ndim else 1
    losses = mean(losses, -1) if losses.shape[-1:] == (n_classes,) else sum(losses, -1) / n_classes
    return _reduced(losses, reduction)


# --- distributions ----------------------------------------------------------------------------------------------------
@in_wide
@in_float32
def poisson_nll_loss(
    input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"
):
    """exp(x) - target x, x being the logarithm of the rate (else x - target log(x + eps)); `full` adds Stirling's."""
    reduction = reduction_of("poisson_nll_loss", reduction, size_average, reduce)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        safe = where(target > 1, target, 1)
        stirling = target * safe.log() - target + 0.5 * (2 * math.pi * safe).log()
        losses = losses + where(target > 1, stirling, 0.0)
    return _reduced(losses, reduction)


_NEGATIVE = "var has negative entry/entries"


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """(log(var) + (x - target)^2 / var) / 2, the variance being at least eps; `full` adds log(2 pi) / 2."""
    reduction_of("gaussian_nll_loss", reduction)
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError(f"{_NEGATIVE}: {var}")
        var = input.new_full(input.shape, float(var))
    elif var.numel():
        demand(logical_not(var < 0), lambda: _NEGATIVE, _NEGATIVE)
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = unsqueeze(var, -1)
        elif var.ndim != input.ndim or [b for a, b in zip(input.shape, var.shape) if a != b] != [1]:
            raise ValueError(f"var is of incorrect size: {var.shape} for input {input.shape}")
    # Where the variance is limited, its gradient still arrives.
    limited = var + (clamp_min(var, float(eps)) - var).detach()
    losses = 0.5 * (limited.log() + (input - target) ** 2 / limited)
    return _reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


# --- connectionist temporal classification ----------------------------------------------------------------------------
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """-log of the probability of the labels under any alignment (Graves et al., 2006): log_probs (T, N, C) or (T, C).

    targets: (N, S), or all labels in one row. "mean" divides each by the number of its labels first.
    """
    log_probs, targets = widened(log_probs, targets)
    reduction_of("ctc_loss", reduction)
    single = log_probs.ndim == 2
    scores = unsqueeze(log_probs, 1) if single else log_probs
    lengths, label_lengths = (_numbers(x) for x in (input_lengths, target_lengths))
    steps, n, classes = scores.shape
    _check_ctc(steps, n, classes, lengths, label_lengths, blank)
    extended, skips, used = _extended_labels(targets, label_lengths, n, blank)
    losses = _alignment_losses(scores, extended, skips, used, lengths, label_lengths)
    losses = losses + _normalisation(scores, lengths)
    if zero_infinity:
        losses = where(eq(losses, math.inf), 0.0, losses)
    if reduction == "mean":
        losses = losses / tensor_of(label_lengths.clip(1)).to(losses.dtype)
    return _reduced(losses[0] if single else losses, reduction)


def _normalisation(scores, lengths):
    """0, whose gradient is that of the sum of all probabilities: PyTorch's derivative is that of normalised scores."""
    counted = tensor_of(np.arange(scores.shape[0])[:, None] < lengths)
    total = sum(where(counted, sum(scores.exp(), 2), 0.0), 0)
    return total - total.detach()


def _numbers(x):
    return np.atleast_1d(np.asarray(x.detach().array if isinstance(x, Tensor) else x, np.int64))


def _check_ctc(steps, n, classes, lengths, label_lengths, blank):
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank must be in label range [0, {classes}), got {blank}")
    if len(lengths) != n or len(label_lengths) != n:
        raise OpError(
            f"ctc_loss: input_lengths and target_lengths must have one number for each of {n} sequences, got "
            f"{len(lengths)} and {len(label_lengths)}"
        )
    if lengths.size and lengths.max() > steps:
        raise RuntimeError(f"ctc_loss: Expected input_lengths to have value at most {steps}, but got {lengths.max()}")


def _extended_labels(targets, label_lengths, n, blank):
    """Labels with blanks around them (N, 2 S + 1), where a blank may be skipped, and which of them are used."""
    longest = int(label_lengths.max(initial=0))
    labels = np.full((n, longest), blank, np.int64)
    given, start = targets.detach().array, 0
    for row, length in enumerate(label_lengths):
        labels[row, :length] = given[row, :length] if given.ndim == 2 else given[start : start + length]
        start += length
    extended = np.full((n, 2 * longest + 1), blank, np.int64)
    extended[:, 1::2] = labels
    skips = np.zeros(extended.shape, bool)
    skips[:, 2:] = (extended[:, 2:] != blank) & (extended[:, 2:] != extended[:, :-2])
    used = np.arange(extended.shape[1]) < 2 * label_lengths[:, None] + 1
    return extended, skips, used


# Not -inf, whose differences are NaN; no alignment of a real sequence is as unlikely.
_IMPOSSIBLE = -1e30


def _alignment_losses(scores, extended, skips, used, lengths, label_lengths):
    """The forward variables, step after step, and their sum at the end of every sequence."""
    steps, n, _ = scores.shape
    index, width = tensor_of(extended), extended.shape[1]
    allowed, skips = tensor_of(used), tensor_of(skips)
    nothing = full((n, width), _IMPOSSIBLE, dtype=scores.dtype)
    begin = tensor_of(np.arange(width) < 2) & allowed
    alpha = where(begin, gather(scores[0], 1, index), nothing)
    last = alpha
    for t in range(1, steps):
        alpha = _next_alpha(alpha, gather(scores[t], 1, index), nothing, skips, allowed)
        last = where(tensor_of((lengths > t)[:, None]), alpha, last)
    ends = tensor_of((np.arange(width) >= 2 * label_lengths[:, None] - 1) & used)
    total = where(ends, last, nothing).logsumexp(1)
    return where(total < _IMPOSSIBLE / 2, math.inf, -total)


def _next_alpha(alpha, emitted, nothing, skips, allowed):
    width = alpha.shape[1]
    moved = cat([nothing[:, :1], alpha[:, : width - 1]], 1)
    jumped = cat([nothing[:, :2], alpha[:, : width - 2]], 1) if width > 1 else nothing
    total = stack([alpha, moved, where(skips, jumped, nothing)]).logsumexp(0)
    return where(allowed, total + emitted, nothing)


FUNCTIONS = str.split("""
    margin_ranking_loss hinge_embedding_loss soft_margin_loss cosine_embedding_loss triplet_margin_loss
    triplet_margin_with_distance_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
    poisson_nll_loss gaussian_nll_loss ctc_loss
""")
