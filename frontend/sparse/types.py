"""PyTorch's older names for types of sparse tensors, and the block that says whether parts of them are checked."""

from .. import tensor_types
from ..runtime.state.tensor import Tensor
from .creation import empty_of, sparse_coo_tensor
from .tensors import SparseTensor


class SparseType:
    """FloatTensor(indices, values, size), FloatTensor(2, 3), isinstance(x, FloatTensor)."""

    def __init__(self, dense):
        self.dtype, self.__name__ = dense.dtype, dense.__name__

    def __call__(self, *given):
        """A tensor of this type: of indices, values and a size, of sizes, or of nothing."""
        if given and isinstance(given[0], Tensor):
            if len(given) > 1 and given[1].dtype is not self.dtype:
                raise TypeError(f"{self}: values are {given[1].dtype!r}; convert them with .to({self.dtype!r})")
            return sparse_coo_tensor(*given)
        sizes = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        return empty_of(tuple(sizes), len(sizes), self.dtype)

    def __instancecheck__(self, x):
        return isinstance(x, SparseTensor) and x.dtype is self.dtype

    def __str__(self):
        return f"weft.sparse.{self.__name__}"

    def __repr__(self):
        return f"<class '{self}'>"

    def __reduce__(self):
        return f"{self.__name__}"


FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor = map(
    SparseType,
    (tensor_types.FloatTensor, tensor_types.DoubleTensor, tensor_types.HalfTensor, tensor_types.BFloat16Tensor),
)
ByteTensor, CharTensor, ShortTensor, IntTensor, LongTensor = map(
    SparseType,
    (
        tensor_types.ByteTensor,
        tensor_types.CharTensor,
        tensor_types.ShortTensor,
        tensor_types.IntTensor,
        tensor_types.LongTensor,
    ),
)


class check_sparse_tensor_invariants:
    """A block, or a decorator, in which PyTorch compares indices with sizes. Here they always are: nothing changes."""

    def __init__(self, enable=True):
        self.enabled = enable

    @staticmethod
    def is_enabled():
        """True."""
        return True

    @staticmethod
    def enable():
        """Nothing: they are compared already."""

    @staticmethod
    def disable():
        """Nothing: an index outside of its size would be a wrong number later."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def __call__(self, function):
        return function
