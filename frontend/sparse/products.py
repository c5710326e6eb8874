"""Matrix products with a sparse factor.

    y[i] = sum over the elements (i, k) of row i, in their order, of value * x[k]

Rows of the dense factor are read where the columns of elements say, multiplied by the values, and added up by rows.
"""

import numpy as np

from ..compiler.dtypes import promote
from ..runtime.state.tensor import Tensor
from . import coordinates
from .arithmetic import as_coordinates
from .compressed import BLOCKS, CompressedTensor
from .conversion import added_up, coalesce, picked, to_coordinates
from .shapes import transpose
from .tensors import Sparse, SparseTensor


def mm(input, mat2):
    """A matrix times a matrix, of which one is sparse; of two sparse ones a sparse one.

    (n, k), (k, m) -> (n, m). RuntimeError for shapes that do not fit.
    """
    _require_fit("mm", input, mat2, 2, 2)
    if not isinstance(input, Sparse):
        return mm(transpose(as_matrix(mat2), 0, 1), input.t()).t()
    if isinstance(mat2, Sparse):
        made = _of_two(as_matrix(input), as_matrix(mat2))
        layout = input.layout
        return made if isinstance(input, SparseTensor) else made.to_sparse(layout=layout)
    sparse = as_matrix(input)
    (rows, columns), values = sparse._indices_kept, sparse._values_kept
    return _rows(rows, columns, values, mat2, sparse.shape[0])


def as_matrix(x):
    """A sparse matrix by coordinates, whose elements are numbers."""
    x = to_coordinates(x) if isinstance(x, CompressedTensor) and x.layout in BLOCKS else as_coordinates(x)
    if x.dense_dim():
        raise RuntimeError(f"mm: a sparse matrix has sparse dimensions only, got {x.dense_dim()} dense ones")
    return x


def _rows(rows, columns, values, dense, n_rows):
    dtype = promote(values.dtype, dense.dtype)
    if values.dtype is not dense.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {values.dtype!r} != {dense.dtype!r}; convert one "
            f"with .to({dtype!r})"
        )
    return added_up(values.unsqueeze(1) * picked(dense, columns), rows, n_rows)


def _of_two(left, right):
    right = coalesce(right)
    starts = coordinates.starts_of(right._indices_kept[0], right.shape[0])
    of_left, of_right = coordinates.pairs(left._indices_kept[1], starts)
    values = picked(left._values_kept, of_left) * picked(right._values_kept, of_right)
    indices = np.stack((left._indices_kept[0][of_left], right._indices_kept[1][of_right]))
    made = SparseTensor.of(indices, values, (left.shape[0], right.shape[1]))
    made = coalesce(made)
    made._is_rising = True
    return made


def _require_fit(name, input, other, n_input, n_other):
    for word, x, n in (("first", input, n_input), ("second", other, n_other)):
        if not isinstance(x, Tensor) or x.ndim != n:
            what = f"{x.ndim}-D" if isinstance(x, Tensor) else type(x).__name__
            raise RuntimeError(f"{name}: expected the {word} operand to be {n}-D, got {what}")
    if input.shape[-1] != other.shape[max(n_other - 2, 0)]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, input.shape))} and "
            f"{'x'.join(map(str, other.shape))})"
        )


def mv(input, vec):
    """A sparse matrix times a vector: (n, k), (k,) -> (n,)."""
    _require_fit("mv", input, vec, 2, 1)
    if not isinstance(input, Sparse):
        raise NotImplementedError("mv: a sparse vector is not there as a factor; write x.to_dense()")
    return mm(input, vec.unsqueeze(1)).squeeze(1)


def matmul(input, other):
    """mm, mv or bmm, by the dimensions."""
    if input.ndim == other.ndim == 2:
        return mm(input, other)
    if input.ndim == 2 and other.ndim == 1:
        return mv(input, other)
    if input.ndim == 1 and other.ndim == 2 and not isinstance(input, Sparse):
        return mm(input.unsqueeze(0), other).squeeze(0)
    if input.ndim == other.ndim == 3:
        return bmm(input, other)
    raise NotImplementedError(
        f"matmul: shapes {tuple(input.shape)} and {tuple(other.shape)} are not there with a sparse operand; write "
        "x.to_dense()"
    )


def bmm(input, mat2):
    """A batch of sparse matrices times one of dense ones: (b, n, k), (b, k, m) -> (b, n, m)."""
    _require_fit("bmm", input, mat2, 3, 3)
    if not isinstance(input, SparseTensor) or isinstance(mat2, Sparse) or input.dense_dim():
        raise NotImplementedError("bmm: the first operand is sparse and the second dense; write x.to_dense()")
    (batch, rows, columns), (n_batch, n, k) = input._indices_kept, input.shape
    flat = _rows(batch * n + rows, batch * k + columns, input._values_kept, mat2.reshape(n_batch * k, -1), n_batch * n)
    return flat.reshape(n_batch, n, mat2.shape[2])


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * input + alpha * (mat1 @ mat2)."""
    product = mm(mat1, mat2)
    if isinstance(product, Sparse) is not isinstance(input, Sparse):
        raise NotImplementedError("addmm: input is sparse if both matrices are; write input.to_dense()")
    product = product if alpha == 1 else product * alpha
    return (input if beta == 1 else input * beta) + product


def linear(input, weight, bias=None):
    """input @ weight.T + bias of a sparse matrix: (n, in), (out, in), (out,) -> (n, out)."""
    product = mm(input, weight.t())
    return product if bias is None else product + bias


def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * (mat @ vec)."""
    product = mv(mat, vec)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """beta * input + alpha * (mat1 @ mat2) at the places that `input`, a CSR matrix, keeps; no others are computed."""
    if not isinstance(input, CompressedTensor) or input.layout in BLOCKS:
        raise RuntimeError("sampled_addmm: expected input to be a CSR tensor; write x.to_sparse_csr()")
    if out is not None:
        raise NotImplementedError("sampled_addmm: `out` is not there; use the result")
    _require_fit("sampled_addmm", mat1, mat2, 2, 2)
    rows, columns = input.places()
    values = (picked(mat1, rows) * picked(mat2.t(), columns)).sum(1)
    return input._with(input._values_kept * beta + values * alpha)
