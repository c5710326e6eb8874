"""Inputs and results of derivatives as tuples, by the names in `autograd.functional` that programs written for PyTorch
import."""

from .creation import zeros
from .derivatives import tensors_of
from .runtime.state.tensor import Tensor


def _as_tuple(inp, arg_name=None, fn_name=None):
    """(whether it was a tuple, a tuple of tensors); the tuple alone without names to complain with."""
    if arg_name is None and fn_name is None:
        return inp if isinstance(inp, tuple) else tuple(inp) if isinstance(inp, list) else (inp,)
    return tensors_of(inp, arg_name, fn_name)


def _tuple_postprocess(res, to_unpack):
    """Without the tuples around what was given without one: of the results, or (of the rows, of what is in each)."""
    if not isinstance(to_unpack, tuple):
        return res if to_unpack else res[0]
    has_rows, has_columns = to_unpack
    rows = res if has_columns else tuple(row[0] for row in res)
    return rows if has_rows else rows[0]


def _grad_preprocess(inputs, create_graph, need_graph):
    return tuple(x.view_as(x) if create_graph else x.detach().requires_grad_(need_graph) for x in inputs)


def _grad_postprocess(inputs, create_graph):
    if not isinstance(inputs[0], Tensor):
        return tuple(_grad_postprocess(x, create_graph) for x in inputs)
    return inputs if create_graph else tuple(x.detach() for x in inputs)


def _construct_standard_basis_for(tensors, tensor_numels):
    """The unit vectors of all elements together, as a matrix for each tensor: of a column per element of its own."""
    total, first, found = sum(tensor_numels), 0, []
    for x, n in zip(tensors, tensor_numels):
        chunk = zeros(total, n, dtype=x.dtype)
        chunk[first : first + n].fill_diagonal_(1)
        found.append(chunk)
        first += n
    return tuple(found)
