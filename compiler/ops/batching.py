"""Batching rules: an op of one sample, computed for all samples at once, as `vmap` asks it.

Samples lie along a first dimension that the op does not know of. A rule is

    (op, size, operands, varied, metas, attributes) -> result with `size` samples in front

where operands whose samples differ (`varied`) have that dimension, the others are the one sample that all are, and
`metas` are the operands of one sample. Rules are written with ops, so what differentiates the result finds these.

Nearly every op has one without naming it: those of one element each by broadcasting, composites of such ops likewise,
and whatever counts its dimensions by attributes called axis, axes, spec or shape with all of these one further. RULES
has what goes another way: by name, since three lists say it of most, where the entries would repeat it. An op without a
rule, or whose rule says NoRule, is decomposed, or else computed sample by sample: right in any case, and so is an op
that knows nothing of this file.
"""

from ..dtypes import float32
from . import view
from .arithmetic import add, mul
from .comparison import cast
from .contraction import linear, matmul
from .indexing import gather, index_put, index_select, scatter_add
from .kinds import number_meta
from .reduction import sum_
from .view import expand, permute, reshape, select, stack


class NoRule(Exception):
    """These operands are nothing that a rule is for."""


def rule_of(op, metas, attributes):
    """The rule of an op on such operands, or None."""
    rule = RULES.get(op.name) or _KINDS.get(op.kind)
    if rule is None and op.kind == "composite" and is_pointwise(op, metas, attributes):
        return _pointwise
    return rule


def sample_by_sample(op, size, operands, varied, attributes):
    """The op of every sample, one after the other."""
    given = [[select(x, axis=0, index=k) if v else x for x, v in zip(operands, varied)] for k in range(size)]
    return stack(*[op(*row, **attributes) for row in given], axis=0)


# --- operands -------------------------------------------------------------------------------------------------------
def whole(size, x, is_varied, meta):
    """An operand with all samples in front, also if they are all one."""
    if is_varied or meta.weak:
        return x
    return expand(reshape(x, shape=(1, *meta.shape)), shape=(size, *meta.shape))


def _all_whole(size, operands, varied, metas):
    return [whole(size, x, v, m) for x, v, m in zip(operands, varied, metas)]


def _ranked(size, x, is_varied, meta, ndim):
    """An operand that broadcasts against others of up to `ndim` dimensions per sample."""
    missing = ndim - len(meta.shape)
    if not is_varied or not missing:
        return x
    return reshape(x, shape=(size, *(1,) * missing, *meta.shape))


# --- kinds ----------------------------------------------------------------------------------------------------------
def _pointwise(op, size, operands, varied, metas, attributes):
    ndim = max(len(m.shape) for m in metas)
    return op(*[_ranked(size, x, v, m, ndim) for x, v, m in zip(operands, varied, metas)], **attributes)


class _Watched:
    """A value of which only shape and type are known: what is computed of it is noted in `ops`."""

    __slots__ = ("shape", "dtype", "weak", "default_float", "ops")

    def __init__(self, meta, default_float, ops):
        self.shape, self.dtype, self.weak = meta.shape, meta.dtype, meta.weak
        self.default_float, self.ops = default_float, ops

    @property
    def ndim(self):
        return len(self.shape)

    def apply_op(self, op, operands, attributes):
        metas = [x if hasattr(x, "dtype") else number_meta(x) for x in operands]
        self.ops.append((op, metas, attributes))
        return _Watched(op.infer(metas, attributes, self.default_float), self.default_float, self.ops)


_pointwise_known = {}


def is_pointwise(op, metas, attributes):
    """Whether a composite is made of ops of one element each, and of numbers that are everywhere the same."""
    try:
        key = (op, tuple([(m.dtype, len(m.shape), m.weak) for m in metas]), tuple(attributes.items()))
        found = _pointwise_known.get(key)
    except TypeError:
        return False
    if found is None:
        # An entry per op and kind of operands; attributes that are numbers could be many.
        if len(_pointwise_known) > 4096:
            _pointwise_known.clear()
        found = _pointwise_known[key] = _is_pointwise(op, metas, attributes)
    return found


def _is_pointwise(op, metas, attributes):
    ops = []
    try:
        op.decompose(*[_Watched(m, float32, ops) for m in metas], **attributes)
    except Exception:
        return False
    return all(
        inner.kind in ("elementwise", "source")
        or inner in (view.clone, view.detach)
        or inner.kind == "composite"
        and is_pointwise(inner, inner_metas, inner_attributes)
        for inner, inner_metas, inner_attributes in ops
    )


def _further(size, metas, attributes):
    """The attributes of all samples' op, whose dimensions are one further."""
    found = dict(attributes)
    for name, value in attributes.items():
        if name in ("axis", "axis0", "axis1"):
            if value is None:
                raise NoRule
            found[name] = value + 1 if value >= 0 else value
        elif name == "axes":
            found[name] = tuple([a + 1 for a in value])
        elif name == "spec":
            found[name] = ((0, 1, size), *value)
        elif name in ("shape", "merged"):
            found[name] = (size, *value)
        elif name == "padding":
            raise NoRule
    return found


def _along(op, size, operands, varied, metas, attributes):
    """What counts dimensions: all operands are of all samples."""
    if "axis" in attributes and any(not m.shape for m in metas):
        raise NoRule  # one element along a dimension that is not there
    return op(*_all_whole(size, operands, varied, metas), **_further(size, metas, attributes))


def _in_front(op, size, operands, varied, metas, attributes):
    """What has dimensions of its own at the end, and takes any before."""
    ndim = max(len(m.shape) for m in metas)
    whole = _all_whole(size, operands, varied, metas)
    return op(*[_ranked(size, x, not m.weak, m, ndim) for x, m in zip(whole, metas)], **attributes)


_KINDS = {
    "elementwise": _pointwise,
    "reduction": _along,
    "contraction": _in_front,
}


# --- single ops -----------------------------------------------------------------------------------------------------
def _permute(op, size, operands, varied, metas, attributes):
    return permute(operands[0], axes=(0, *[a + 1 for a in attributes["axes"]]))


def _expand(op, size, operands, varied, metas, attributes):
    shape = attributes["shape"]
    x = _ranked(size, operands[0], True, metas[0], len(shape))
    return expand(x, shape=(size, *shape))


def _t(op, size, operands, varied, metas, attributes):
    if len(metas[0].shape) < 2:
        raise NoRule
    return permute(operands[0], axes=(0, 2, 1))


def _full(op, size, operands, varied, metas, attributes):
    x, shape = operands[0], attributes["shape"]
    if x.dtype is not attributes["dtype"]:
        x = cast(x, dtype=attributes["dtype"])
    return view.clone(expand(reshape(x, shape=(size, *(1,) * len(shape))), shape=(size, *shape)))


def _matmul(op, size, operands, varied, metas, attributes):
    (x, y), (in_x, in_y) = operands, varied
    rank_x, rank_y = len(metas[0].shape), len(metas[1].shape)
    if not in_y and rank_y <= 2 and (rank_x > 1 or rank_y == 2):
        return matmul(x, y)  # the samples are rows more
    if not in_x and rank_x == 2 and rank_y == 1:
        return linear(y, x)
    if rank_x == rank_y == 1:
        return sum_(mul(x, y), axes=(1,), keepdim=False)
    left, right = metas[0].shape, metas[1].shape
    if rank_x == 1:
        left = (1, *left)
    if rank_y == 1:
        right = (*right, 1)
    ndim = max(len(left), len(right))

    def matrices(z, is_varied, shape):
        shape = (size, *(1,) * (ndim - len(shape)), *shape) if is_varied else shape
        return z if tuple(z.shape) == shape else reshape(z, shape=shape)

    product = matmul(matrices(x, in_x, left), matrices(y, in_y, right))
    shape = tuple(product.shape)
    if rank_x == 1:
        shape = (*shape[:-2], shape[-1])
    if rank_y == 1:
        shape = shape[:-1]
    return product if len(shape) == len(product.shape) else reshape(product, shape=shape)


def _linear(op, size, operands, varied, metas, attributes):
    x, weight, *bias = operands
    if not varied[1] and not any(varied[2:]):
        return linear(x, weight, *bias)
    (shape, (rows, columns)), bias_varied = (metas[0].shape, metas[1].shape), varied[2:]
    if not varied[1]:
        product = linear(x, weight)
    else:
        weight = permute(weight, axes=(0, 2, 1))
        if not varied[0] and len(shape) > 1:
            x = reshape(x, shape=(_count(shape), columns))
            product = matmul(x, weight)
        else:
            x = whole(size, x, varied[0], metas[0])
            product = matmul(reshape(x, shape=(size, _count(shape), columns)), weight)
        product = reshape(product, shape=(size, *shape[:-1], rows))
    if not bias:
        return product
    return add(product, _ranked(size, bias[0], bias_varied[0], metas[2], len(shape)))


def _count(shape):
    """How many rows there are of a shape whose last dimension is a row."""
    count = 1
    for d in shape[:-1]:
        count *= d
    return count


def _elements_of_rows(size, index, is_varied, axis, shape, n):
    """Positions of n rows along an axis of samples of this shape, as those of their elements: what takes elements
    checks them against the size of one sample, as rows of all samples behind one another would not be."""
    before, after = shape[:axis], shape[axis + 1 :]
    column = reshape(index, shape=(size if is_varied else 1, *(1,) * len(before), n, *(1,) * len(after)))
    return expand(column, shape=(size, *before, n, *after))


def _index_select(op, size, operands, varied, metas, attributes):
    x, index = operands
    axis, shape, index_shape = attributes["axis"], metas[0].shape, metas[1].shape
    if not varied[1]:
        return index_select(x, index, axis=axis + 1)
    if not shape:
        raise NoRule
    if not varied[0] and axis == 0:
        # Rows of what all samples share.
        return index_select(x, index, axis=0)
    x = whole(size, x, varied[0], metas[0])
    n = _count((*index_shape, 1))
    found = gather(x, _elements_of_rows(size, index, True, axis, shape, n), axis=axis + 1)
    return reshape(found, shape=(size, *shape[:axis], *index_shape, *shape[axis + 1 :]))


def _index_add(op, size, operands, varied, metas, attributes):
    x, index, part = operands
    axis, merged = attributes["axis"], attributes.get("merged")
    shape, index_shape = metas[0].shape, metas[1].shape
    if not shape:
        raise NoRule
    sizes = shape if merged is None else tuple(merged)
    n = _count((*index_shape, 1))
    x, part = whole(size, x, varied[0], metas[0]), whole(size, part, varied[2], metas[2])
    x = reshape(x, shape=(size, *sizes))
    part = reshape(part, shape=(size, *sizes[:axis], n, *sizes[axis + 1 :]))
    at = _elements_of_rows(size, index, varied[1], axis, sizes, n)
    return reshape(scatter_add(x, at, part, axis=axis + 1), shape=(size, *shape))


def _index_put(op, size, operands, varied, metas, attributes):
    x, index, part = operands
    if varied[1]:
        raise NoRule
    x, part = whole(size, x, varied[0], metas[0]), whole(size, part, varied[2], metas[2])
    return index_put(x, index, part, axis=attributes["axis"] + 1, merged=(size, *attributes["merged"]))


def _solve(op, size, operands, varied, metas, attributes):
    """Of a vector as of a matrix with one column: samples of vectors would be a matrix."""
    a, b = _all_whole(size, operands, varied, metas)
    is_vector = len(metas[0].shape) == 2 and len(metas[1].shape) == 1
    if is_vector:
        b = reshape(b, shape=(*b.shape, 1))
    elif len(metas[0].shape) != len(metas[1].shape):
        raise NoRule
    made = op(a, b, **attributes)
    return reshape(made, shape=tuple(made.shape)[:-1]) if is_vector else made


def _cat(op, size, operands, varied, metas, attributes):
    if any(len(m.shape) != len(metas[0].shape) for m in metas):
        raise NoRule
    return _along(op, size, operands, varied, metas, attributes)


def _embedding(op, size, operands, varied, metas, attributes):
    if varied[0]:
        raise NoRule
    return op(*operands, **attributes)


def _merged(op, size, operands, varied, metas, attributes):
    """Of ops whose first operand is many images: the samples are images more. Other operands are shared."""
    if True in varied[1:]:
        raise NoRule
    x, shape = operands[0], metas[0].shape
    made = op(reshape(x, shape=(size * shape[0], *shape[1:])), *operands[1:], **attributes)
    return reshape(made, shape=(size, shape[0], *made.shape[1:]))


def _as_groups(x, size, axis):
    """The samples as groups of channels more: (size, ..., channels at axis, ...) -> (..., size * channels, ...)."""
    order = [*range(1, axis), 0, *range(axis, len(x.shape))]
    x = permute(x, axes=tuple(order))
    shape = tuple(x.shape)
    return reshape(x, shape=(*shape[: axis - 1], size * shape[axis], *shape[axis + 1 :]))


def _from_groups(x, size, axis):
    """The same back, of the channels at axis - 1."""
    shape = tuple(x.shape)
    x = reshape(x, shape=(*shape[: axis - 1], size, shape[axis - 1] // size, *shape[axis:]))
    order = [axis - 1, *range(axis - 1), *range(axis, len(x.shape))]
    return permute(x, axes=tuple(order))


def _convolution(op, size, operands, varied, metas, attributes):
    """Of one weight for all the samples are images more; of a weight per sample they are groups more."""
    if True not in varied[1:]:
        return _merged(op, size, operands, varied, metas, attributes)
    x, weight, *bias = _all_whole(size, operands, varied, metas)
    weight = reshape(weight, shape=(size * weight.shape[1], *weight.shape[2:]))
    biases = [reshape(b, shape=(size * b.shape[1],)) for b in bias]
    made = op(_as_groups(x, size, 2), weight, *biases, **{**attributes, "groups": size * attributes["groups"]})
    return _from_groups(made, size, 2)


def _convolution_weight(op, size, operands, varied, metas, attributes):
    x, g = _all_whole(size, operands, varied, metas)
    groups = {**attributes, "groups": size * attributes["groups"]}
    made = op(_as_groups(x, size, 2), _as_groups(g, size, 2), **groups)
    shape = tuple(made.shape)
    return reshape(made, shape=(size, shape[0] // size, *shape[1:]))


def _layer_norm(op, size, operands, varied, metas, attributes):
    if True in varied[1:]:
        raise NoRule
    return op(*operands, **attributes)


_ALONG = """
    reshape slice diagonal transpose squeeze unsqueeze select stack slice_scatter product_of_others glu nansum
    gather scatter_add scatter scatter_reduce pick part unbind_part flip roll mean var std norm logsumexp softmax
    log_softmax argsort first_positions ordered median_index position_of_rank mode_index cumsum recurrence cumprod
    logcumsumexp cummax_index cummin_index
"""
_IN_FRONT = """
    clone detach data alias leaf real imag view_as_real view_as_complex tril triu inv_by_lapack linalg_inv
    cofactors_by_lapack cofactors det_by_lapack linalg_det slogdet_by_lapack linalg_slogdet
    cholesky_by_lapack linalg_cholesky linalg_pinv matrix_exp linalg_qr linalg_eigh linalg_eigvalsh linalg_svd
    linalg_svdvals linalg_lu_factor cdist linalg_eig linalg_eigvals windows overlap_add
"""
RULES = {
    **dict.fromkeys(_ALONG.split(), _along),
    **dict.fromkeys(_IN_FRONT.split(), _in_front),
    **dict.fromkeys(["max_pool_index", "max_pool", "window_sum", "resized"], _merged),
    **dict.fromkeys(["linalg_solve", "solve_by_lapack", "solve_triangular", "solve_triangular_by_lapack"], _solve),
    "permute": _permute,
    "expand": _expand,
    "t": _t,
    "full": _full,
    "cat": _cat,
    "index_put": _index_put,
    "matmul": _matmul,
    "linear": _linear,
    "index_select": _index_select,
    "index_add": _index_add,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "convolution": _convolution,
    "convolution_input": _convolution,
    "convolution_weight": _convolution_weight,
}
