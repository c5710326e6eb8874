"""Losses as functions: per-element (or per-row) losses, then `reduction` "mean", "sum" or "none"."""

import math

from ..casting import widened
from ..compiler.dtypes import int64, uint8
from ..compiler.ops import OpError, indexing, neural, pointwise, statistics, transcendental
from ..compiler.ops.arithmetic import clamp_min, div, mul
from ..compiler.ops.comparison import cast, eq, ne, where, within
from ..compiler.ops.reduction import sum_
from ..compiler.ops.view import permute
from ..kinds import answering
from ..operands import tensor_of, to_dtype
from ..runtime.state.marks import spanned
from ..runtime.state.said import warn
from ..runtime.state.tensor import Tensor


def reduction_of(name, kind, size_average=None, reduce=None, allowed=("none", "mean", "sum")):
    """The reduction that a user names, or means by PyTorch's older `size_average` and `reduce`."""
    if size_average is not None or reduce is not None:
        kind = ("mean" if size_average in (None, True) else "sum") if reduce in (None, True) else "none"
        warn(f"size_average and reduce args will be deprecated, please use reduction='{kind}' instead.", stacklevel=3)
    if kind not in allowed:
        raise ValueError(f"{name}: {kind} is not a valid value for reduction; it must be one of {', '.join(allowed)}")
    return kind


def _all_axes(x):
    return tuple(range(len(x.shape)))


def _total(x):
    return sum_(x, axes=_all_axes(x), keepdim=False)


def _reduced(losses, kind):
    if kind == "none":
        return losses
    return _total(losses) if kind == "sum" else statistics.mean(losses, axes=_all_axes(losses), keepdim=False)


def _weighted(name, loss, input, weight):
    """The loss of every element, times its weight."""
    if weight.shape != input.shape:
        raise OpError(f"{name}: Weights and input must have the same size, got {weight.shape} and {input.shape}")
    return mul(loss, weight)


# --- numbers against numbers ----------------------------------------------------------------------------------------
def _warn_of_broadcast(x, target):
    if x.shape != target.shape:
        warn(
            f"Using a target size ({target.shape}) that is different to the input size ({x.shape}). "
            "This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            stacklevel=3,
        )


def _floating(x, target):
    """Integers take the type of a target of floats."""
    whole = x.dtype.category == 1 and target.dtype.is_floating_point
    return to_dtype(x, target.dtype) if whole else x, target


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(x - target)^2. Warns when the shapes differ, because broadcasting is rarely meant here.

    weight: of every element of x; the mean is then the weighted one.
    """
    input, target = _floating(*widened(input, target))
    reduction = reduction_of("mse_loss", reduction, size_average, reduce)
    _warn_of_broadcast(input, target)
    if weight is not None:
        total = _weighted("mse_loss", neural.mse_loss(input, target, reduction="none"), input, weight)
        return div(_total(total), _total(weight)) if reduction == "mean" else _reduced(total, reduction)
    return neural.mse_loss(input, target, reduction=reduction)


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|x - target|, weighted as mse_loss."""
    input, target = _floating(*widened(input, target))
    reduction = reduction_of("l1_loss", reduction, size_average, reduce)
    _warn_of_broadcast(input, target)
    if weight is not None:
        total = _weighted("l1_loss", neural.l1_loss(input, target, reduction="none"), input, weight)
        return div(_total(total), _total(weight)) if reduction == "mean" else _reduced(total, reduction)
    if input.dtype.is_complex or target.dtype.is_complex:
        # The sizes of the differences, which are real.
        sizes = (input - target).abs()
        return neural.l1_loss(sizes, sizes.new_zeros(()), reduction=reduction)
    return neural.l1_loss(input, target, reduction=reduction)


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """(x - target)^2 / (2 beta) where |x - target| < beta, |x - target| - beta / 2 elsewhere."""
    input, target = _floating(*widened(input, target))
    reduction = reduction_of("smooth_l1_loss", reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}")
    _warn_of_broadcast(input, target)
    if beta == 0:
        return neural.l1_loss(input, target, reduction=reduction)
    return neural.smooth_l1_loss(input, target, reduction=reduction, beta=float(beta))


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """(x - target)^2 / 2 where |x - target| <= delta, delta (|x - target| - delta / 2) elsewhere, times the weight of
    the element; their mean is not divided by the weights."""
    input, target = widened(input, target)
    reduction_of("huber_loss", reduction)
    if delta <= 0:
        raise RuntimeError(f"huber_loss does not support non-positive values for delta, got {delta}")
    _warn_of_broadcast(input, target)
    if weight is None:
        return neural.huber_loss(input, target, reduction=reduction, delta=float(delta))
    loss = neural.huber_loss(input, target, reduction="none", delta=float(delta))
    return _reduced(_weighted("huber_loss", loss, input, weight), reduction)


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target (log(target) - x), x being log probabilities; with log_target, target holds logarithms too.

    `reduction="batchmean"`, the mathematical definition, divides the sum by the size of the first dimension.
    """
    input, target = widened(input, target)
    reduction = reduction_of("kl_div", reduction, size_average, reduce, ("none", "mean", "sum", "batchmean"))
    if log_target:
        losses = transcendental.exp(target) * (target - input)
    else:
        # 0 log 0 is 0, and 0 times -inf is not: probabilities and their logarithms do not go together there.
        losses = pointwise.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return _total(losses) / float(input.shape[0] if input.shape else 1)
    return _reduced(losses, reduction)


# --- probabilities against 0 and 1 ----------------------------------------------------------------------------------
def _require_same_shape(name, x, target):
    if x.shape != target.shape:
        raise ValueError(f"{name}: Target size ({target.shape}) must be the same as input size ({x.shape})")


@spanned
@answering
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-(target log(x) + (1 - target) log(1 - x)) for probabilities x, every logarithm at least -100.

    The gradient is 0 where a logarithm is cut. RuntimeError for numbers outside [0, 1].
    """
    input, target, weight = widened(input, target, weight)
    reduction = reduction_of("binary_cross_entropy", reduction, size_average, reduce)
    _require_same_shape("binary_cross_entropy", input, target)
    input, target = _probabilities("input", input), _probabilities("target", target)
    log_x = _cut_log(transcendental.log, input, eq(input, 0.0), 1.0)
    log_rest = _cut_log(transcendental.log1p, -input, eq(input, 1.0), 0.0)
    losses = -(target * log_x + (1.0 - target) * log_rest)
    return _reduced(losses if weight is None else losses * weight, reduction)


def _probabilities(name, x):
    message = f"binary_cross_entropy: all elements of {name} should be between 0 and 1"
    return within(x, low=0.0, high=1.0, message=message)


def _cut_log(log, x, at_zero, harmless):
    """max(log(x), -100), where `at_zero` marks the poles: there the logarithm of a harmless number is computed."""
    return where(at_zero, -100.0, clamp_min(log(where(at_zero, harmless, x)), -100.0))


@spanned
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """binary_cross_entropy(sigmoid(x), target) without overflow; `pos_weight` multiplies the losses of positives."""
    input, target, weight, pos_weight = widened(input, target, weight, pos_weight)
    name = "binary_cross_entropy_with_logits"
    reduction = reduction_of(name, reduction, size_average, reduce)
    _require_same_shape(name, input, target)
    if weight is None and pos_weight is None:
        return neural.binary_cross_entropy_with_logits(input, target, reduction=reduction)
    if pos_weight is None:
        losses = neural.binary_cross_entropy_with_logits(input, target, reduction="none")
    else:
        # log(1 + exp(-x)) is the loss of a positive, and x more than that the loss of a negative.
        losses = (1.0 - target) * input + ((pos_weight - 1.0) * target + 1.0) * neural.softplus(-input)
    return _reduced(losses if weight is None else losses * weight, reduction)


# --- classes --------------------------------------------------------------------------------------------------------
@spanned
@answering
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-x[target] of every row: x holds log probabilities (N, C), (C,) or (N, C, d1, ...), target classes without C.

    `weight` (C,) multiplies the losses of each class, and "mean" divides by the sum of the weights met. Rows whose
    target is ignore_index do not count.
    """
    if input.__class__ is not Tensor:
        tensor_of("nll_loss", input)
    if target.__class__ is not Tensor:
        tensor_of("nll_loss", target, "target")
    input, weight = widened(input, weight)
    reduction = reduction_of("nll_loss", reduction, size_average, reduce)
    rows, classes = _class_rows("nll_loss", input, target)
    loss = _nll_rows(rows, classes, weight, ignore_index, reduction)
    return loss.reshape(target.shape) if reduction == "none" else loss


def _class_rows(name, x, target):
    """x as (rows, C) and its class indices as (rows,)."""
    target = to_dtype(target, int64) if target.dtype is uint8 else target
    if len(x.shape) == 2:
        return x, target
    if not x.shape or target.shape != x.shape[:1] * (len(x.shape) > 1) + x.shape[2:]:
        raise OpError(
            f"{name}: Expected target size {list(x.shape[:1] + x.shape[2:])}, got {list(target.shape)}: "
            f"input {x.shape} holds scores in dimension 1 and target must have all other dimensions"
        )
    return _flat(x), target.reshape((-1,))


def _flat(x):
    """Dimension 1 (the classes) moved to the end, all others merged: (N, C, d1, ...) -> (N d1 ..., C)."""
    if len(x.shape) == 1:
        return x.reshape((1, x.shape[0]))
    if len(x.shape) == 2:
        return x
    order = (0, *range(2, len(x.shape)), 1)
    rows = math.prod(x.shape) // max(x.shape[1], 1)
    return permute(x, axes=order).reshape((rows, x.shape[1]))


def _nll_rows(rows, classes, weight, ignore_index, kind):
    if weight is None:
        return neural.nll_loss(rows, classes, reduction=kind, ignore_index=ignore_index)
    if weight.shape != rows.shape[1:]:
        raise RuntimeError(
            f"weight tensor should be defined either for all {rows.shape[1]} classes or no classes but got weight "
            f"tensor of shape: {list(weight.shape)}"
        )
    # Ignored rows have no loss, so only the sum of the weights must leave them out.
    losses = neural.nll_loss(rows, classes, reduction="none", ignore_index=ignore_index)
    weights = _row_weights(classes, weight, ignore_index)
    losses = losses * weights
    return _total(losses) / _total(weights) if kind == "mean" else _reduced(losses, kind)


def _row_weights(classes, weight, ignore_index):
    """The weight of every row's class, 0 for ignored rows."""
    kept = ne(classes, ignore_index)
    return where(kept, indexing.index_select(weight, where(kept, classes, 0), axis=0), 0.0)


@spanned
@answering
def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """nll_loss(log_softmax(x, 1), target): x holds scores (N, C), (C,) or (N, C, d1, ...).

    target: int64 classes (no dimension C), or probabilities of x's shape. With label_smoothing e the targets become
    (1 - e) target + e / C.
    """
    if input.__class__ is not Tensor:
        tensor_of("cross_entropy", input)
    if target.__class__ is not Tensor:
        tensor_of("cross_entropy", target, "target")
    input, target, weight = widened(input, target, weight)
    reduction = reduction_of("cross_entropy", reduction, size_average, reduce)
    label_smoothing = float(label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.dtype.is_floating_point:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    rows, classes = _class_rows("cross_entropy", input, target)
    log_rows = statistics.log_softmax(rows, axis=1)
    loss = _nll_rows(log_rows, classes, weight, ignore_index, reduction)
    if label_smoothing > 0:
        spread = _uniform_rows(log_rows, classes, weight, ignore_index, reduction)
        loss = loss * (1.0 - label_smoothing) + spread * (label_smoothing / rows.shape[1])
    return loss.reshape(target.shape) if reduction == "none" else loss


def _uniform_rows(log_rows, classes, weight, ignore_index, kind):
    """The loss against all classes at once: minus the (weighted) sum of every kept row."""
    kept = ne(classes, ignore_index)
    each = log_rows if weight is None else log_rows * weight
    losses = where(kept, -sum_(each, axes=(1,), keepdim=False), 0.0)
    if kind != "mean":
        return _reduced(losses, kind)
    counts = cast(kept, dtype=log_rows.dtype) if weight is None else _row_weights(classes, weight, ignore_index)
    return _total(losses) / _total(counts)


def _soft_cross_entropy(x, target, weight, kind, label_smoothing):
    """Cross entropy with probabilities as targets; "mean" divides by the number of rows."""
    if x.shape != target.shape:
        raise OpError(
            f"cross_entropy: input has shape {x.shape}, target {target.shape}: targets of dtype "
            f"{target.dtype.name} are probabilities and need the input's shape; for class indices convert with .long()"
        )
    rows, chances = _flat(x), _flat(target)
    if label_smoothing > 0:
        chances = chances * (1.0 - label_smoothing) + label_smoothing / rows.shape[1]
    products = statistics.log_softmax(rows, axis=1) * chances
    losses = -sum_(products if weight is None else products * weight, axes=(1,), keepdim=False)
    return losses.reshape(x.shape[:1] * (len(x.shape) > 1) + x.shape[2:]) if kind == "none" else _reduced(losses, kind)
