"""Functions of PyTorch's that begin with an underscore, and that programs call all the same.

weft._standard_gamma(alpha)                 what samplers by other authors draw from
from weft._utils import _accumulate         what copies of PyTorch's own code import
"""

from itertools import accumulate

from .compiler import dtypes
from .creation import arange, tensor
from .distributions.gamma_draws import standard_gamma
from .nn.weight_norms import normed_weight
from .ordering import unique
from .reducing import log_softmax, softmax
from .shaping import cat, reshape


def _standard_gamma(self, generator=None):
    """Draws from the gamma distributions of these concentrations and the rate 1, with derivatives."""
    if generator is not None:
        raise NotImplementedError("_standard_gamma: draws from weft's own generator; seed it with weft.manual_seed")
    return standard_gamma(self)


def _weight_norm(v, g, dim=0):
    """v with the norm g along every dimension but one."""
    return normed_weight(v, g, dim)


def _shape_as_tensor(self):
    """The sizes as a tensor."""
    return tensor(list(self.shape), dtype=dtypes.int64)


def _dim_arange(like, dim):
    """The indices of a dimension."""
    return arange(like.shape[dim])


def _softmax(self, dim, half_to_float):
    """softmax along dim."""
    return softmax(self, dim)


def _log_softmax(self, dim, half_to_float):
    """log_softmax along dim."""
    return log_softmax(self, dim)


def _softmax_backward_data(grad_output, output, dim, input_dtype):
    """The gradient of what softmax was given, of the type `input_dtype`, from its result and the gradient of that."""
    return (output * (grad_output - (grad_output * output).sum(dim, keepdim=True))).to(input_dtype)


def _log_softmax_backward_data(grad_output, output, dim, input_dtype):
    """The same of log_softmax."""
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


def _unique(self, sorted=True, return_inverse=False):
    """unique, with two results whatever is asked for; those that are not asked for are empty."""
    return _unique2(self, sorted, return_inverse)[:2]


def _unique2(self, sorted=True, return_inverse=False, return_counts=False):
    """unique, with three results whatever is asked for; those that are not asked for are empty."""
    return _all_three(unique(self, sorted, return_inverse, return_counts), return_inverse, return_counts)


def unique_dim(self, dim, sorted=True, return_inverse=False, return_counts=False):
    """The same of unique along a dimension: `_VF.unique_dim`."""
    return _all_three(unique(self, sorted, return_inverse, return_counts, dim), return_inverse, return_counts)


def _all_three(found, return_inverse, return_counts):
    values, *others = found if isinstance(found, tuple) else (found,)
    nothing = tensor([], dtype=dtypes.int64)
    asked = [others.pop(0) if wanted else nothing for wanted in (return_inverse, return_counts)]
    return (values, *asked)


# --- weft._utils ------------------------------------------------------------------------------------------------------
def _accumulate(iterable, fn=lambda x, y: x + y):
    """The running totals of what the iterable gives."""
    return accumulate(iterable, fn)


def _flatten_dense_tensors(tensors):
    """All elements of some tensors of one type as one vector."""
    return cat([reshape(x, (-1,)) for x in tensors])


def _unflatten_dense_tensors(flat, tensors):
    """The vector cut into tensors of the shapes of these."""
    parts = flat.split([x.numel() for x in tensors])
    return tuple(part.view(x.shape) for part, x in zip(parts, tensors))


def _take_tensors(tensors, size_limit):
    """Lists of tensors of one type that have at most so many bytes together, or are one tensor."""
    waiting = {}
    for x in tensors:
        size = x.numel() * x.element_size()
        group, total = waiting.get(x.dtype, ([], 0))
        if group and total + size > size_limit:
            yield group
            group, total = [], 0
        waiting[x.dtype] = ([*group, x], total + size)
    yield from (group for group, _ in waiting.values() if group)
