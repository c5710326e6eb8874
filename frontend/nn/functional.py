"""Functions of neural networks under PyTorch's names, composed from the op table.

Activations, linear maps, normalisation, dropout and lookups are here; losses come from loss_functions.py.
`dim` is PyTorch's word for an axis and is accepted wherever it uses it. `inplace` is accepted, but the results are new
tensors all the same: the input stays as it is.
"""

import math

from ..casting import lowered
from ..compiler import dtypes
from ..compiler.dtypes import dtype_of
from ..compiler.later import later
from ..compiler.ops import (
    arithmetic,
    comparison,
    contraction,
    derived,
    indexing,
    neural,
    statistics,
    transcendental,
)
from ..compiler.ops import normalization as normalization_ops
from ..compiler.ops import reduction as reductions
from ..compiler.ops.table import OpError
from ..compiler.shapes import is_whole, normalize_axes, normalize_axis
from ..half_floats import in_float32
from ..limits import finfo
from ..operands import alike, tensor_of
from ..ordering import bincount, unique
from ..out import write
from ..placement import beside
from ..products import pdist as pdist
from ..public import of_module
from ..reducing import norm
from ..reductions import renorm
from ..runtime.state import random
from ..runtime.state.modes import no_grad, state
from ..runtime.state.said import warn
from ..runtime.state.tensor import Tensor, shape_of
from ..shaping import expand
from .loss_functions import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)


# --- activations ----------------------------------------------------------------------------------------------------
def relu(input, inplace=False):
    """max(x, 0)."""
    return arithmetic.relu(input)


def sigmoid(input):
    """1 / (1 + exp(-x))."""
    return transcendental.sigmoid(input)


def tanh(input):
    """Hyperbolic tangent."""
    return transcendental.tanh(input)


def relu6(input, inplace=False):
    """min(max(x, 0), 6)."""
    if input.__class__ is not Tensor:
        tensor_of("relu6", input)
    return hardtanh(input, 0.0, 6.0)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """x cut to [min_val, max_val]. At the ends themselves the gradient is 0; that of clamp is 1."""
    if input.__class__ is not Tensor:
        tensor_of("hardtanh", input)
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val cannot be greater than max_val, got {min_val} and {max_val}")
    if not input.dtype.is_floating_point:
        return arithmetic.clamp(input, int(min_val), int(max_val))
    return derived.hardtanh(input, float(min_val), float(max_val))


def leaky_relu(input, negative_slope=0.01, inplace=False):
    """x where positive, negative_slope * x elsewhere."""
    return neural.leaky_relu(input, float(negative_slope))


def prelu(input, weight):
    """leaky_relu with a learned slope: one, or one per channel (dimension 1)."""
    if input.__class__ is not Tensor:
        tensor_of("prelu", input)
    if weight.__class__ is not Tensor:
        tensor_of("prelu", weight, "weight")
    input, weight = lowered(input, weight)
    if not input.shape and weight.shape not in ((), (1,)):
        raise RuntimeError(f"prelu: Not allow zero-dim input tensor with {weight.shape[0]} slopes; give it a dimension")
    if not input.shape:
        weight = weight.reshape(())
    elif weight.shape not in ((), (1,)):
        channels = input.shape[1] if len(input.shape) > 1 else 1
        if weight.shape != (channels,):
            raise OpError(
                "prelu: Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.numel()} and channel size = {channels}"
            )
        weight = weight.reshape((channels,) + (1,) * (len(input.shape) - 2))
    return derived.prelu(input, weight)


def elu(input, alpha=1.0, inplace=False):
    """x where positive, alpha (exp(x) - 1) elsewhere (Clevert et al., arXiv 1511.07289)."""
    return derived.elu(input, float(alpha))


def celu(input, alpha=1.0, inplace=False):
    """x where positive, alpha (exp(x / alpha) - 1) elsewhere (Barron, arXiv 1704.07483)."""
    if alpha == 0:
        raise RuntimeError("celu: ZeroDivisionError: alpha cannot be 0 for CELU")
    return derived.celu(input, alpha)


@in_float32
def selu(input, inplace=False):
    """Scaled elu that keeps mean 0 and variance 1 (Klambauer et al., arXiv 1706.02515)."""
    return elu(input, 1.6732632423543772) * 1.0507009873554805


def gelu(input, approximate="none"):
    """x Phi(x), Phi the normal distribution function; approximate="tanh" uses a tanh in its place."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError(
            f"gelu: approximate is {approximate!r}; the approximate argument must be either none or tanh"
        )
    return neural.gelu(input, approximate=approximate)


def silu(input, inplace=False):
    """x sigmoid(x)."""
    return neural.silu(input)


@in_float32
def mish(input, inplace=False):
    """x tanh(softplus(x)) (Misra, arXiv 1908.08681)."""
    return input * transcendental.tanh(neural.softplus(input))


def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""
    if beta == 1:
        smooth = neural.softplus(input)
        if threshold >= 20 and input.dtype is dtypes.float32:
            # There it is x already: 2e-9 more is nothing to a float32, and its slope is 1.
            return smooth
    else:
        smooth = neural.softplus(input * beta) / beta
    return comparison.where(input * beta > threshold, input, smooth)


def softsign(input):
    """x / (1 + |x|)."""
    return input / (arithmetic.abs_(input) + 1.0)


def logsigmoid(input):
    """log(sigmoid(x)), without overflow."""
    return -neural.softplus(-input)


@in_float32
def hardsigmoid(input, inplace=False):
    """relu6(x + 3) / 6."""
    if input.__class__ is not Tensor:
        tensor_of("hardsigmoid", input)
    return derived.hardsigmoid(input)


def hardswish(input, inplace=False):
    """x relu6(x + 3) / 6."""
    return derived.hardswish(input)


def glu(input, dim=-1):
    """First half times sigmoid of the second half, along dim (Dauphin et al., arXiv 1612.08083)."""
    axis = normalize_axis("glu", dim, len(input.shape))
    size = input.shape[axis]
    if size % 2:
        raise RuntimeError(f"glu: Halving dimension must be even, but dimension {dim} is size {size}")
    return derived.glu(input, axis=axis)


def softmax(input, dim=None, dtype=None):
    """exp(x) / sum(exp(x)) along dim."""
    axis = _softmax_axis("softmax", input, dim)
    return statistics.softmax(input if dtype is None else _converted(input, dtype), axis=axis)


def softmin(input, dim=None, dtype=None):
    """softmax(-x)."""
    return statistics.softmax(_converted(-input, dtype), axis=_softmax_axis("softmin", input, dim))


def log_softmax(input, dim=None, dtype=None):
    """log(softmax(x)), without its loss of digits."""
    axis = _softmax_axis("log_softmax", input, dim)
    return statistics.log_softmax(input if dtype is None else _converted(input, dtype), axis=axis)


def _converted(x, dtype):
    return x if dtype is None or x.dtype is dtype else comparison.cast(x, dtype=dtype_of(dtype))


def _softmax_axis(name, x, dim):
    rank = x.ndim
    if dim.__class__ is int and 0 <= (axis := dim if dim >= 0 else dim + rank) < rank:
        return axis
    if dim is None:
        dim = 0 if rank in (0, 1, 3) else 1
        warn(
            f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim={dim}.",
            stacklevel=3,
        )
    return 0 if rank == 0 and dim in (0, -1) else normalize_axis(name, dim, rank)


# --- linear maps and lookups ----------------------------------------------------------------------------------------
def linear(input, weight, bias=None, *, out=None):
    """x @ weight.T + bias: (..., in), (out, in), (out,) -> (..., out)."""
    if input.__class__ is not Tensor:
        tensor_of("linear", input)
    if weight.__class__ is not Tensor:
        tensor_of("linear", weight, "weight")
    if out is not None:
        return write("linear", out, linear(input, weight, bias))
    if state.autocast is not None:
        input, weight, bias = lowered(input, weight, bias)
    if len(weight.shape) == 1 and bias is None:
        return contraction.matmul(input, weight)
    if input.dtype is weight.dtype and not input.dtype.is_floating_point:
        # Products of integers, as NumPy computes them.
        product = contraction.matmul(input, contraction.swap_last(weight))
        return product if bias is None else product + bias
    if bias is not None and shape_of(bias) != weight.shape[:1] and bias.numel() == 1:
        bias = bias.expand(weight.shape[0])
    return contraction.linear(input, weight) if bias is None else contraction.linear(input, weight, bias)


_sparse_embedding = later("sparse.lookups:embedding")


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of weight at integer positions. The row `padding_idx` gets no gradient.

    max_norm: rows that are read are first scaled down in place to that norm. scale_grad_by_freq: gradients of rows are
    divided by how often they are read. sparse: the gradient of weight keeps the rows that were read only.
    """
    if input.__class__ is not Tensor:
        tensor_of("embedding", input)
    if weight.__class__ is not Tensor:
        tensor_of("embedding", weight, "weight")
    if len(weight.shape) != 2:
        raise RuntimeError(f"embedding: 'weight' must be 2-D, got shape {weight.shape}")
    if max_norm is not None:
        _limit_rows(weight, input, max_norm, norm_type)
    if sparse and weight.requires_grad and state.grad_enabled:
        return _sparse_embedding(weight, input, padding_idx, scale_grad_by_freq)
    rows = indexing.embedding(weight, input)
    if scale_grad_by_freq:
        counts = bincount(input.reshape((-1,)), minlength=weight.shape[0])[input].reshape((*input.shape, 1))
        rows = rows.detach() + (rows - rows.detach()) / counts
    if padding_idx is None:
        return rows
    if not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise AssertionError(f"embedding: padding_idx {padding_idx} must be within num_embeddings {weight.shape[0]}")
    padded = input.reshape((*input.shape, 1)) == padding_idx % weight.shape[0]
    return comparison.where(padded, rows.detach(), rows)


def _limit_rows(weight, index, max_norm, norm_type):
    """Rows at the index scaled down in place to the norm."""
    indexing.embedding(weight.detach(), index)  # whose errors are about these rows
    rows = unique(index)
    with no_grad():
        weight[rows] = renorm(weight[rows].detach(), norm_type, 0, max_norm)


def one_hot(input, num_classes=-1):
    """int64 rows with a 1 at the index: (...) -> (..., num_classes). -1: as many classes as the largest index needs."""
    if input.dtype is not dtypes.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {input.dtype.name}")
    if num_classes == -1:
        # How many there are is in the values, so these are read.
        num_classes = 1 + int(input.array.max(initial=-1))
    elif num_classes < 0:
        raise RuntimeError(f"one_hot: num_classes must be the number of classes, or -1 to read it, got {num_classes}")
    return indexing.one_hot(input, count=int(num_classes))


# --- normalisation and distance -------------------------------------------------------------------------------------
def _normalized(name, shape):
    if is_whole(shape):
        raise TypeError(f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not int: [{shape}]")
    return tuple(shape)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions, which are `normalized_shape`."""
    if input.__class__ is not Tensor:
        tensor_of("layer_norm", input)
    shape = normalized_shape
    if shape.__class__ is not tuple:
        shape = _normalized("layer_norm", shape)
    lead = _leading_shape("layer_norm", input, shape)
    if weight is None and bias is None and len(shape) == 1:
        return neural.layer_norm(input, eps=float(eps))
    if getattr(input.dtype, "is_half", False) and any(t is not None and not t.dtype.is_half for t in (weight, bias)):
        # The parameters of a model in mixed precision stay as they are.
        affine = [None if t is None else comparison.cast(t, dtype=dtypes.float32) for t in (weight, bias)]
        rows = layer_norm(comparison.cast(input, dtype=dtypes.float32), shape, *affine, eps)
        return comparison.cast(rows, dtype=input.dtype)
    affine = [t if len(shape) == 1 else t.reshape((-1,)) for t in (weight, bias) if t is not None]
    rows = input if len(shape) == 1 else input.reshape((*lead, math.prod(shape)))
    if weight is None and bias is not None:
        result = neural.layer_norm(rows, eps=float(eps)) + affine[0]
    else:
        result = neural.layer_norm(rows, *affine, eps=float(eps))
    return result if len(shape) == 1 else result.reshape(input.shape)


def _leading_shape(name, x, shape):
    """x's dimensions before the normalized ones, which must be `shape`."""
    whole = tuple(x.shape)
    lead = whole[: len(whole) - len(shape)]
    if not shape or whole[len(lead) :] != shape:
        raise RuntimeError(
            f"{name}: Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(map(str, shape))}], but got input of size {list(x.shape)}"
        )
    return lead


@in_float32
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions. eps: by default the dtype's machine epsilon."""
    lead = _leading_shape("rms_norm", input, _normalized("rms_norm", normalized_shape))
    axes = tuple(range(len(lead), len(input.shape)))
    eps = finfo(input.dtype).eps if eps is None else float(eps)
    scaled = input * arithmetic.rsqrt(statistics.mean(input * input, axes=axes, keepdim=True) + eps)
    return scaled if weight is None else scaled * weight


@in_float32
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """(x - mean) / sqrt(variance + eps) * weight + bias for every channel (dimension 1): (N, C, ...).

    In training mean and variance are the batch's, and the running ones, if given, move towards them by `momentum`.
    """
    if len(input.shape) < 2:
        if input.shape != (0,):
            raise OpError(f"batch_norm: input must have two dimensions or more, (N, C, ...), got {tuple(input.shape)}")
        # PyTorch takes it, and whatever else is empty.
        return input * 1
    axes = (0, *range(2, len(input.shape)))
    channels = (1, input.shape[1]) + (1,) * (len(input.shape) - 2)
    if training:
        count = math.prod(input.shape[a] for a in axes)
        if count == 1:
            raise ValueError(
                f"batch_norm: Expected more than 1 value per channel when training, input is {input.shape}"
            )
        if count == 0:
            # There is nothing to follow, and all gradients are 0.
            return math.prod((t.reshape(channels) for t in (weight, bias) if t is not None), start=input * 1)
        _follow(input, running_mean, running_var, axes, count, momentum)
    affine = [t for t in (weight, bias) if t is not None] if weight is not None else []
    if training:
        result = normalization_ops.batch_norm(input, *affine, eps=float(eps))
    else:
        result = normalization_ops.normalized(input, running_mean, running_var, *affine, eps=float(eps))
    return result if bias is None or affine else result + bias.reshape(channels)


@no_grad()  # which an exception of a handler of signals cannot leave behind, as it could a block
def _follow(input, running_mean, running_var, axes, count, momentum):
    """Move the running statistics towards those of a batch."""
    if running_mean is not None:
        _move(running_mean, statistics.mean(input, axes=axes, keepdim=False), momentum)
    if running_var is not None:
        var = statistics.var(input, axes=axes, keepdim=False, correction=0)
        # Times count / (count - 1), by numbers that follow the batch in whole steps: see c_trials.py.
        _move(running_var, var + var / (count - 1), momentum)


def _move(running, value, momentum):
    running.copy_(running * (1.0 - momentum) + value * momentum)


@in_float32
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """x / max(norm of x along dim, eps)."""
    axes = normalize_axes("normalize", dim, len(input.shape))
    if p == 2:
        length = statistics.norm(input, axes=axes, keepdim=True)
    elif p == math.inf:
        length = reductions.amax(arithmetic.abs_(input), axes=axes, keepdim=True)
    elif p == 0:
        length = reductions.sum_(input != 0, axes=axes, keepdim=True)
        length = comparison.cast(length, dtype=input.dtype.to_real() if input.dtype.is_complex else input.dtype)
    else:
        length = norm(input, p, axes, True)
    return input / arithmetic.clamp_min(length, float(eps))


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along dim."""
    x1, x2 = alike(x1, x2)
    products = x1 * x2
    axes = normalize_axes("cosine_similarity", dim, len(products.shape))
    # Lengths are those of the broadcast operands: along a dimension where one has size 1 they are longer than its own.
    lengths = [statistics.norm(expand(x, products.shape), axes=axes, keepdim=False) for x in (x1, x2)]
    first, second = (arithmetic.clamp_min(length, eps) for length in lengths)
    return reductions.sum_(products, axes=axes, keepdim=False) / (first * second)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension."""
    difference = x1 - x2 + eps
    return norm(difference, p, -1, keepdim)


# --- dropout --------------------------------------------------------------------------------------------------------
def dropout(input, p=0.5, training=True, inplace=False):
    """Zero with probability p, times 1 / (1 - p) otherwise; x itself when not training (Srivastava et al. 2014)."""
    if input.__class__ is not Tensor:
        tensor_of("dropout", input)
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    return neural.dropout(input, beside(random.uniform(input.shape, input.dtype), input), p=float(p))


__getattr__, __dir__ = of_module(__name__)

# Those that take long enough for a look at every argument (kinds.py).
IN_DETAIL = str.split("""
    batch_norm celu cosine_similarity glu hardswish huber_loss kl_div normalize one_hot pairwise_distance pdist
    rms_norm softplus
""")
__all__ = [
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "glu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pairwise_distance",
    "pdist",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "tanh",
]
