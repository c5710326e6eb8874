"""Functions below PyTorch's layers that programs call by name: weft.convolution, weft.native_layer_norm, weft.dropout_.

native_* give more than one result: what they compute, and what a backward pass would want of it.
"""

from ..compiler.dtypes import bool_
from ..compiler.ops.table import OpError
from ..inplace import written
from ..out import taking_out
from ..reductions import renorm
from ..runtime.state.modes import no_grad
from ..shaping import cat, reshape, stack
from . import functional as F
from .weight_norms import norm_except_dim as norm_except_dim

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """conv1d, conv2d or conv3d, or the transposed one, by the dimensions of the input (N, C, *)."""
    rank = input.ndim - 2
    if rank not in (1, 2, 3):
        raise OpError(f"convolution: input must have 3 to 5 dimensions, (N, C, *), got shape {tuple(input.shape)}")
    stride, padding, dilation = (_each(numbers, rank) for numbers in (stride, padding, dilation))
    if transposed:
        apply = getattr(F, f"conv_transpose{rank}d")
        return apply(input, weight, bias, stride, padding, _each(output_padding, rank), groups, dilation)
    return getattr(F, f"conv{rank}d")(input, weight, bias, stride, padding, dilation, groups)


def _each(numbers, rank):
    """One number for every dimension; one number stands for all."""
    numbers = list(numbers)
    return numbers * rank if len(numbers) == 1 else numbers


# --- images -----------------------------------------------------------------------------------------------------------
def affine_grid_generator(theta, size, align_corners):
    """nn.functional.affine_grid."""
    return F.affine_grid(theta, size, align_corners)


def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """nn.functional.grid_sample, with numbers for its modes: 0 bilinear, 1 nearest, 2 bicubic; 0 zeros, 1 border,
    2 reflection."""
    if interpolation_mode not in (0, 1, 2) or padding_mode not in (0, 1, 2):
        raise OpError(f"grid_sampler: modes are 0, 1 or 2, got {interpolation_mode} and {padding_mode}")
    return F.grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], bool(align_corners))


def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sampler of images (N, C, H, W)."""
    return _of_rank("grid_sampler_2d", 4, input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sampler of volumes (N, C, D, H, W)."""
    return _of_rank("grid_sampler_3d", 5, input, grid, interpolation_mode, padding_mode, align_corners)


def _of_rank(name, ndim, input, *arguments):
    if input.ndim != ndim:
        raise OpError(f"{name}(): expected {ndim}D input, but got input with sizes {list(input.shape)}")
    return grid_sampler(input, *arguments)


def native_channel_shuffle(input, groups):
    """nn.functional.channel_shuffle."""
    return F.channel_shuffle(input, groups)


# --- normalisation ----------------------------------------------------------------------------------------------------
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """(layer_norm, the means, 1 / sqrt(variance + eps)) over the last dimensions."""
    axes = tuple(range(-len(normalized_shape), 0))
    with no_grad():
        mean, scale = _statistics(input, axes, eps)
    return F.layer_norm(input, normalized_shape, weight, bias, eps), mean, scale


def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """(group_norm, the means, 1 / sqrt(variance + eps)), both (N, group)."""
    rows = reshape(input, (N, group, C // group * HxW))
    mean, scale = _statistics(rows, (2,), eps)
    return F.group_norm(input, group, weight, bias, eps), reshape(mean, (N, group)), reshape(scale, (N, group))


def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """(batch_norm, the means of the batch, 1 / sqrt(variance + eps)); the latter are empty when not training."""
    axes = (0, *range(2, input.ndim))
    result = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return result, input.new_empty(0), input.new_empty(0)
    with no_grad():
        mean, scale = _statistics(input, axes, eps)
    return result, reshape(mean, (input.shape[1],)), reshape(scale, (input.shape[1],))


def _statistics(input, axes, eps):
    """Means and reciprocal deviations, which keep their dimensions. As in PyTorch those of groups have gradients, and
    those of layers and batches have none."""
    return input.mean(axes, keepdim=True), (input.var(axes, correction=0, keepdim=True) + eps).rsqrt()


def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """nn.functional.embedding, which takes the weight second; a negative padding_idx is none."""
    padding_idx = None if padding_idx < 0 else padding_idx
    return F.embedding(indices, weight, padding_idx, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


@no_grad
def embedding_renorm_(input, indices, max_norm, norm_type):
    """The rows at the indices scaled down in place to that norm."""
    rows = indices.unique()
    input[rows] = renorm(input[rows], norm_type, 0, max_norm)
    return input


# --- dropout ----------------------------------------------------------------------------------------------------------
def native_dropout(input, p, train):
    """(dropout, which elements were kept); all are when not training. `train` None means training."""
    if train is False or p == 0:
        return input.clone(), input.new_full(input.shape, True, dtype=bool_)
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    kept = input.new_full(input.shape, 1.0 - p).bernoulli().bool()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    return input * kept * scale, kept


def feature_dropout(input, p, train):
    """dropout of whole channels of (N, C, *)."""
    if input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    if not train or p == 0:
        return input
    rows = F.dropout(input.new_ones((*input.shape[:2], *[1] * (input.ndim - 2))), p, True)
    return input * rows


def dropout_(input, p, train):
    """dropout, in place."""
    return _in_place("dropout_", input, F.dropout, p, train)


def feature_dropout_(input, p, train):
    """feature_dropout, in place."""
    return _in_place("feature_dropout_", input, feature_dropout, p, train)


def alpha_dropout_(input, p, train):
    """alpha_dropout, in place."""
    return _in_place("alpha_dropout_", input, F.alpha_dropout, p, train)


def feature_alpha_dropout_(input, p, train):
    """feature_alpha_dropout, in place."""
    return _in_place("feature_alpha_dropout_", input, F.feature_alpha_dropout, p, train)


def _in_place(name, input, function, p, train):
    new = function(input.clone(), p, train)
    return input if not train or p == 0 else written(name, input, new)


# --- products of groups -----------------------------------------------------------------------------------------------
def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of groups of rows (or columns) with a matrix each; `offs` is where each group ends. Rows behind the last
    group are zeros (in PyTorch they are not written).

    (T, K), (G, K, N) -> (T, N): rows of group g times matrix g. (G, M, K), (K, T) -> (M, T): columns likewise.
    (M, T), (T, N) -> (G, M, N): the products of the parts of the dimension they share. Two batches are `bmm`.
    """
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    result = _grouped(mat_a, mat_b, offs)
    return result if out_dtype is None else result.to(out_dtype)


def _grouped(a, b, offs):
    if {a.ndim, b.ndim} - {2, 3}:
        raise RuntimeError(f"grouped_mm: operands have two or three dimensions, got {a.ndim} and {b.ndim}")
    if (offs is None) != (a.ndim == b.ndim == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if offs is None:
        return a.bmm(b)
    ends = offs.tolist()
    parts = [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends)]
    if a.ndim == b.ndim == 2:
        return stack([a[:, part] @ b[part] for part in parts])
    n_groups = b.shape[0] if a.ndim == 2 else a.shape[0]
    if len(parts) != n_groups:
        raise RuntimeError(f"grouped_mm: {n_groups} matrices need as many offsets, got {len(parts)}")
    if a.ndim == 2:
        return _filled_up([a[part] @ b[g] for g, part in enumerate(parts)], 0, a.shape[0])
    return _filled_up([a[g] @ b[:, part] for g, part in enumerate(parts)], 1, b.shape[1])


def _filled_up(products, axis, size):
    """Side by side, with zeros behind the last group."""
    rest = list(products[0].shape)
    rest[axis] = size - sum(product.shape[axis] for product in products)
    return cat([*products, products[0].new_zeros(rest)] if rest[axis] else products, axis)


native_batch_norm = taking_out("native_batch_norm", native_batch_norm)
