"""Products of matrices, vectors and tensors of any number of dimensions: einsum, tensordot, kron, distances."""

import builtins
from functools import lru_cache
from math import prod

import numpy as np

from .casting import in_wide, lowered
from .compiler.dtypes import float32, float64
from .compiler.later import later
from .compiler.ops import contraction, view
from .compiler.ops.complex_numbers import conjugate
from .compiler.ops.table import OpError
from .compiler.shapes import broadcast_shapes, is_whole, normalize_axis
from .creation import zeros
from .functions import clamp_min, matmul, mm, operand, outer, require_tensors, to_dtype
from .reducing import amax, mean, norm, sum
from .runtime.state.marks import spanned
from .runtime.state.tensor import Tensor, shape_of, tensor_of
from .shaping import cat, reshape, unsqueeze

# Types whose sums keep more digits than one product has; of others one rounding at the end is better than one each.
_SUMMED = (float32, float64)
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


# --- einsum -----------------------------------------------------------------------------------------------------------
@spanned
def einsum(equation, *operands):
    """Sums of products over letters: einsum("ij,jk->ik", a, b) is a @ b; also with lists of numbers for letters.

    Letters that repeat in one operand take its diagonal, "..." stands for the dimensions without a letter, and without
    "->" the letters that occur once are kept, in the order of the alphabet.
    """
    if not isinstance(equation, str):
        equation, operands = _equation_of((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    terms, output = _parsed(equation, tuple(map(len, map(shape_of, operands))))
    labelled = [_reduced_diagonals(term, x) for term, x in zip(terms, operands)]
    while len(labelled) > 1:
        (left, x), (right, y), *rest = labelled
        needed = set(output).union(*(term for term, _ in rest))
        labelled = [_contracted(left, x, right, y, needed), *rest]
    labels, x = labelled[0]
    if len(operands) > 1 and labels == output:
        return x
    return _finished(labels, x, output)


_distances = later("compiler.ops.distances:cdist")


def _equation_of(arguments):
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) as an equation and operands."""
    operands, terms = arguments[0::2], arguments[1::2]
    output = None
    if len(arguments) % 2:
        operands, output = operands[:-1], arguments[-1]

    def spelled(numbers):
        return "".join("..." if n is Ellipsis else _LETTERS[n] for n in numbers)

    for n in [n for term in (*terms, output or ()) for n in term]:
        if n is not Ellipsis and not 0 <= n < 52:
            raise ValueError(f"einsum(): expected subscripts in the range [0, 52), but got {n}")
    equation = ",".join(map(spelled, terms))
    return (equation if output is None else f"{equation}->{spelled(output)}"), operands


@lru_cache(1024)
def _parsed(equation, dims):
    """Labels of operands with so many dimensions, those that "..." stands for being numbers counted from the end."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not dims:
        raise ValueError("einsum(): must provide at least one operand")
    if len(terms) != len(dims):
        raise OpError(f"einsum(): {equation!r} has {len(terms)} terms for {len(dims)} operands")
    labels = [_labels(term, ndim, equation) for term, ndim in zip(terms, dims)]
    hidden = sorted({n for term in labels for n in term if isinstance(n, int)})
    if not arrow:
        flat = [n for term in labels for n in term]
        return labels, hidden + sorted({n for n in flat if isinstance(n, str) and flat.count(n) == 1})
    before, dots, after = output.partition("...")
    wanted = [*before, *(hidden if dots else ()), *after]
    _check_output(wanted, labels, equation)
    return labels, wanted


def _labels(term, ndim, equation):
    before, dots, after = term.partition("...")
    letters = before + after
    if any(c not in _LETTERS for c in letters):
        raise OpError(f"einsum(): {equation!r}: subscripts must be in [a-zA-Z], found {letters!r}")
    if len(letters) > ndim or len(letters) < ndim and not dots:
        raise OpError(
            f"einsum(): the number of subscripts in {term!r} does not match the number of dimensions ({ndim}) of its "
            "operand, and no ellipsis was given"
        )
    return [*before, *range(len(letters) - ndim, 0), *after]


def _check_output(wanted, labels, equation):
    known = {n for term in labels for n in term}
    for n in wanted:
        if n not in known:
            raise OpError(f"einsum(): output subscript {n} in {equation!r} does not appear in any input operand")
        if wanted.count(n) > 1:
            raise OpError(f"einsum(): output subscript {n} appears more than once in the output of {equation!r}")


def _reduced_diagonals(labels, x):
    """Each label once: the diagonal where it came twice."""
    labels = list(labels)
    if len({*labels}) == len(labels):
        return labels, x
    for n in list(dict.fromkeys(labels)):
        while labels.count(n) > 1:
            first = labels.index(n)
            second = labels.index(n, first + 1)
            if x.shape[first] != x.shape[second]:
                raise OpError(f"einsum(): subscript {n} is repeated for dimensions of sizes {x.shape}")
            x = x.diagonal(0, first, second)
            labels = [m for k, m in enumerate(labels) if k not in (first, second)] + [n]
    return labels, x


def _contracted(left, x, right, y, needed):
    """The product of two operands, summed over the labels that nobody needs any more."""
    left, x = _summed(left, x, needed.union(right))
    right, y = _summed(right, y, needed.union(left))
    given = tuple(left), shape_of(x), tuple(right), shape_of(y), frozenset(needed)
    to_x, to_y, shape, labels, is_summed = _matrices_of(*given)
    x, y = _as_matrices(x, *to_x), _as_matrices(y, *to_y)
    if not is_summed:
        product = x * y
    elif shape_of(x)[-2] == 1 == shape_of(y)[-1] and x.dtype is y.dtype and x.dtype in _SUMMED:
        # Rows times columns, one of each: as for two vectors, a sum is quicker than a product of matrices.
        product = sum(reshape(x, shape_of(x)[:-2] + shape_of(x)[-1:]) * reshape(y, shape_of(y)[:-1]), -1)
    else:
        product = contraction.bmm(*lowered(x, y))
    return list(labels), product if shape_of(product) == shape else reshape(product, shape)


@lru_cache(1024)
def _matrices_of(left, x, right, y, needed):
    """(what makes matrices of an operand of shape x, of one of shape y, the shape of their product, its labels, whether
    anything is summed)."""
    for n in {*left} & {*right}:
        a, b = x[left.index(n)], y[right.index(n)]
        if a != b and 1 not in (a, b):
            raise OpError(f"einsum(): operands do not broadcast: subscript {n} has sizes {a} and {b}")
    summed = [n for n in left if n in right and n not in needed]
    batch = [n for n in left if n in right and n in needed]
    rows, columns = [n for n in left if n not in right], [n for n in right if n not in left]
    sizes = {n: d for labels, z in ((left, x), (right, y)) for n, d in zip(labels, z) if d != 1}
    labels = (*batch, *rows, *columns)
    return (
        _matrices(left, [batch, rows, summed], sizes),
        _matrices(right, [batch, summed, columns], sizes),
        tuple(sizes.get(n, 1) for n in labels),
        labels,
        bool(summed),
    )


def _matrices(labels, groups, sizes):
    """(order of the dimensions, their sizes, those of (batch, first group, second group), each as one dimension)."""
    order = [n for group in groups for n in group]
    wide = tuple(sizes.get(n, 1) for n in order)
    return tuple(map(labels.index, order)), wide, tuple(prod(sizes.get(n, 1) for n in group) for group in groups)


def _as_matrices(x, order, wide, shape):
    if order != tuple(range(len(order))):
        x = view.permute(x, axes=order)
    if shape_of(x) != wide:
        x = view.expand(x, shape=wide)
    return x if wide == shape else view.reshape(x, shape=shape)


def _summed(labels, x, needed):
    gone = [k for k, n in enumerate(labels) if n not in needed]
    return [n for n in labels if n in needed], sum(x, tuple(gone)) if gone else x


def _finished(labels, x, output):
    labels, x = _summed(labels, x, set(output))
    return view.permute(x, axes=tuple(map(labels.index, output)))


# --- tensors ----------------------------------------------------------------------------------------------------------
def tensordot(a, b, dims=2):
    """Sums of products over the last `dims` dimensions of a and the first of b, or over the lists (of a, of b)."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if is_whole(dims):
        dims = int(dims)
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims = (range(a.ndim - dims, a.ndim), range(dims))
    of_a, of_b = ([normalize_axis("tensordot", d, x.ndim) for d in part] for part, x in zip(dims, (a, b)))
    if len(of_a) != len(of_b):
        raise RuntimeError(f"tensordot: both dimension lists should have same length, got {of_a} and {of_b}")
    left, right = _letters(a.ndim), [-1 - n for n in _letters(b.ndim)]
    for m, n in zip(of_a, of_b):
        if a.shape[m] != b.shape[n] and 1 not in (a.shape[m], b.shape[n]):
            raise OpError(f"tensordot: contracted dimensions need to match: {a.shape[m]} against {b.shape[n]}")
        right[n] = m
    kept = [n for n in left if n not in of_a] + [n for n in right if n < 0]
    return _finished(*_contracted(left, a, right, b, set(kept)), kept)


def _letters(ndim):
    return list(range(ndim))


def kron(input, other):
    """The Kronecker product: every element of input times the whole of other."""
    ndim = max(input.ndim, other.ndim)
    left, right = ((1,) * (ndim - x.ndim) + x.shape for x in (input, other))
    spread = reshape(input, tuple(d for size in left for d in (size, 1)))
    other = reshape(other, tuple(d for size in right for d in (1, size)))
    return reshape(spread * other, tuple(m * n for m, n in zip(left, right)))


def _vectors(name, input, other):
    if input.ndim != 1 or other.ndim != 1:
        raise OpError(f"{name}: 1D tensors expected, but got {input.ndim}D and {other.ndim}D tensors")
    return matmul(input, other)


@in_wide
def vdot(input, other):
    """The dot product of two vectors, the first conjugated."""
    return _vectors("vdot", conjugate(input), other)


def ger(input, vec2):
    """The outer product of two vectors."""
    return outer(input, vec2)


def chain_matmul(*matrices):
    """The product of matrices."""
    return multi_dot(matrices[0] if len(matrices) == 1 and not isinstance(matrices[0], Tensor) else matrices)


def multi_dot(tensors):
    """The product of matrices (the first and last may be vectors), in the order that multiplies least."""
    tensors = list(tensors)
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    first, last = tensors[0], tensors[-1]
    tensors[0] = unsqueeze(first, 0) if first.ndim == 1 else first
    tensors[-1] = unsqueeze(last, 1) if last.ndim == 1 else last
    for k, x in enumerate(tensors):
        if x.ndim != 2:
            raise OpError(f"multi_dot(): tensor {k} must be 2D but got shape {x.shape}")
    result = _chained(tensors)
    shape = result.shape[first.ndim == 1 : 2 - (last.ndim == 1)]
    return result if result.shape == shape else reshape(result, shape)


def _chained(matrices):
    """Dynamic programming over where the product is parted last."""
    if len(matrices) == 1:
        return matrices[0]
    sizes = [x.shape[0] for x in matrices] + [matrices[-1].shape[1]]
    n = len(matrices)
    cost, cut = {(k, k): 0 for k in range(n)}, {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            options = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)}
            cut[i, j] = builtins.min(options, key=options.get)
            cost[i, j] = options[cut[i, j]]

    def product(i, j):
        return matrices[i] if i == j else mm(product(i, cut[i, j]), product(cut[i, j] + 1, j))

    return product(0, n - 1)


# --- distances and covariance -----------------------------------------------------------------------------------------
def cross(input, other, dim=None):
    """The vector product along dim (None: the first dimension of size 3)."""
    if dim is None:
        dim = next((k for k, d in enumerate(input.shape) if d == 3), None)
        if dim is None:
            raise OpError(f"cross: no dimension of size 3 in input of shape {input.shape}")
    if input.ndim != other.ndim:
        raise OpError(f"cross: inputs must have the same number of dimensions, got {input.shape} and {other.shape}")
    axis = normalize_axis("cross", dim, input.ndim)
    if input.shape[axis] != 3 or other.shape[axis] != 3:
        raise OpError(f"cross: inputs dimension {dim} must have length 3, got {input.shape} and {other.shape}")

    def turned(x, by):
        return cat([x.narrow(axis, by, 3 - by), x.narrow(axis, 0, by)], axis)

    broadcast_shapes("cross", [input.shape, other.shape])
    return turned(input, 1) * turned(other, 2) - turned(input, 2) * turned(other, 1)


def dist(input, other, p=2):
    """The p-norm of input - other."""
    input, other = operand(input), operand(other)
    require_tensors("dist", input, other)
    return norm(input - other, p)


@in_wide
def cdist(x1, x2, p=2.0, compute_mode=None):
    """The p-norms of the differences of all pairs of rows: (..., n, d) and (..., m, d) -> (..., n, m)."""
    for name, x in (("x1", x1), ("x2", x2)):
        if x.ndim < 2:
            raise OpError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise OpError(f"cdist: X1 and X2 must have the same number of columns, got {x1.shape} and {x2.shape}")
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values, got {p}")
    broadcast_shapes("cdist", [x1.shape[:-2], x2.shape[:-2]])
    if p in (1, 2) and x1.shape[-1] and x1.dtype.is_floating_point and x1.dtype is x2.dtype:
        return _distances(x1, x2, p=int(p))
    return _lengths(unsqueeze(x1, -2) - unsqueeze(x2, -3), p)


def _lengths(difference, p):
    """p-norms of the last dimension, with the gradient 0 where the difference is."""
    if difference.shape[-1] == 0:
        return zeros(difference.shape[:-1], dtype=difference.dtype) + sum(difference, -1)
    if p == float("inf"):
        return amax(difference.abs(), -1)
    return norm(difference, p, -1)


def pdist(input, p=2.0):
    """The p-norms of the differences of all pairs of rows (i, j), i < j, as a vector."""
    if input.ndim != 2:
        raise OpError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    first, second = np.triu_indices(input.shape[0], 1)
    return _lengths(input.index_select(0, tensor_of(first)) - input.index_select(0, tensor_of(second)), p)


def cov(input, *, correction=1, fweights=None, aweights=None):
    """Covariances of the rows (variables) over the columns (observations), with counts and weights of the columns."""
    if input.ndim > 2:
        raise OpError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim}")
    x = reshape(input, 1, -1) if input.ndim < 2 else input
    x = x if x.dtype.is_differentiable else x * 1.0
    weights = _observation_weights(x, fweights, aweights)
    if weights is None:
        total = x.shape[1]
        centre, divisor = mean(x, 1, True), max(total - correction, 0)
        centred = x - centre
        result = mm(centred, conjugate(centred.t())) / divisor
    else:
        total = sum(weights)
        centred = x - sum(x * weights, 1, True) / total
        spent = 1 if aweights is None else sum(weights * aweights) / total
        divisor = clamp_min(total - correction * spent, 0)
        result = mm(centred, conjugate((centred * weights).t())) / divisor
    return reshape(result, ()) if result.numel() == 1 else result


def _observation_weights(x, fweights, aweights):
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        if w is not None and (w.ndim > 1 or w.numel() != x.shape[1]):
            raise OpError(f"cov(): expected {name} to have {x.shape[1]} elements but got shape {w.shape}")
        if w is not None and w.dtype.is_floating_point == (name == "fweights"):
            raise OpError(f"cov(): fweights must be integers and aweights floating point, got {name} of {w.dtype.name}")
        if w is not None and w.numel() and bool((w < 0).any()):
            raise OpError(f"cov(): {name} cannot be negative")
    if fweights is None and aweights is None:
        return None
    given = [w for w in (fweights, aweights) if w is not None]
    return to_dtype(given[0] * given[1] if len(given) == 2 else given[0], x.dtype)


def corrcoef(input):
    """Correlation coefficients of the rows."""
    if input.ndim > 2:
        raise OpError(f"corrcoef(): expected input to have two or fewer dimensions but got {input.ndim}")
    c = cov(input)
    if c.ndim == 0:
        return c / c
    spread = c.diagonal().sqrt()
    return (c / unsqueeze(spread, 1) / unsqueeze(spread, 0)).clamp(-1, 1)


FUNCTIONS = str.split("kron vdot ger cross dist cov corrcoef")
METHODS = FUNCTIONS
PUBLIC = [*FUNCTIONS, *str.split("einsum tensordot chain_matmul cdist pdist")]
