"""Sparse tensors: `weft.sparse_coo_tensor(indices, values, size)`, `x.to_sparse()`, and functions of them.

>>> import weft
>>> a = weft.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
>>> weft.sparse.mm(a, weft.ones(3, 1))
tensor([[3.],
        [9.]])

To read its source, start at tensors.py.
"""

from ..public import of_module
from ..reference import document
from . import answers, conversion, functions, printing
from .creation import spdiags
from .products import addmm, mm, sampled_addmm
from .reducing import log_softmax, softmax
from .reducing import sum_of as sum
from .types import (
    BFloat16Tensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
    check_sparse_tensor_invariants,
)

__getattr__, __dir__ = of_module(__name__)

__all__ = [
    "BFloat16Tensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor",
    "LongTensor", "ShortTensor", "addmm", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm",
    "softmax", "spdiags", "sum",
]  # fmt: skip

conversion.attach()
functions.attach()
printing.attach()
answers.fill()
document("sparse", __name__)
