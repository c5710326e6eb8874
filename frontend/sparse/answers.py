"""What functions and methods do that are given a sparse tensor: tables by name, for each layout.

A function that is in no table is a NotImplementedError. `READS` are those that ask for shapes and types only.
"""

from ..autograd import backward as dense_backward
from ..autograd import grad as dense_grad
from ..overriding import off
from ..placement import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from ..runtime.state.tensor import Tensor
from ..tensor_types import cast_method_names
from . import arithmetic, products, reducing, shapes
from .compressed import BLOCKS, CompressedTensor
from .conversion import sparse_mask, to_coordinates
from .creation import empty_of
from .tensors import Sparse, asked

READS = str.split("""
    dim ndimension numel nelement is_complex is_floating_point is_signed element_size get_device is_same_size
    is_inference can_cast promote_types typename is_neg is_conj coalesce indices crow_indices col_indices
    ccol_indices row_indices
""")


# --- gradients --------------------------------------------------------------------------------------------------------
def _as_list(given):
    return [given] if isinstance(given, Tensor) or not hasattr(given, "__iter__") else list(given)


def _inner(x):
    """What autograd knows of a tensor."""
    return x._values_kept if isinstance(x, Sparse) else x


def _behind(door):
    """The function itself, which asks nobody: cotangents of dense tensors may be sparse. Hooks do ask."""
    return getattr(door, "__wrapped__", door)


def _cotangents(outputs, gradients):
    if gradients is None:
        return None
    pairs = zip(_as_list(outputs), _as_list(gradients))
    return [out.values_of(g) if isinstance(out, Sparse) and g is not None else g for out, g in pairs]


def grad(outputs, inputs, grad_outputs=None, *args, **kwargs):
    """autograd.grad: the gradient of a sparse input is sparse, of its places."""
    inputs = _as_list(inputs)
    cotangents = _cotangents(outputs, grad_outputs)
    found = _behind(dense_grad)(
        [_inner(x) for x in _as_list(outputs)], [_inner(x) for x in inputs], cotangents, *args, **kwargs
    )
    return tuple(x.gradient_of(g) if isinstance(x, Sparse) and g is not None else g for x, g in zip(inputs, found))


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """autograd.backward."""
    inputs = None if inputs is None else [_inner(x) for x in _as_list(inputs)]
    cotangents = _cotangents(tensors, grad_tensors)
    _behind(dense_backward)([_inner(x) for x in _as_list(tensors)], cotangents, retain_graph, create_graph, inputs)


# --- the shape of a new one -------------------------------------------------------------------------------------------
def new(input, *sizes, **options):
    """A tensor of these sizes that keeps no element."""
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    return empty_of(tuple(sizes), len(sizes), options.get("dtype") or input.dtype)


def is_contiguous(input, memory_format=None):
    """False: its elements lie in no order of the shape."""
    return False


def numpy(input, *, force=False):
    raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")


def tolist(input):
    raise RuntimeError("tolist: a sparse tensor is no list of numbers; write x.to_dense().tolist()")


def conjugate_transposed(input):
    made = shapes.t(input)
    return made._with(made._values_kept.conj()) if made.dtype.is_complex else made


def truth(input):
    if input.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(shapes.item(input))


def detach_(input):
    """Be a leaf of the same elements."""
    return input.become(input.detach())


_SHARED = {
    **arithmetic.OF_ELEMENTS,
    **{f"{name}_": arithmetic.changing(function) for name, function in arithmetic.OF_ELEMENTS.items()},
    **dict.fromkeys(("add", "__add__", "__radd__"), arithmetic.add),
    **dict.fromkeys(("sub", "subtract", "__sub__"), arithmetic.sub),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), arithmetic.mul),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__"), arithmetic.div),
    **dict.fromkeys(("floor_divide", "__floordiv__"), arithmetic.floor_divide),
    **dict.fromkeys(("pow", "__pow__"), arithmetic.pow_),
    **dict.fromkeys(("neg", "negative", "__neg__"), arithmetic.neg),
    **dict.fromkeys(("add_", "__iadd__"), arithmetic.add_),
    **dict.fromkeys(("sub_", "__isub__"), arithmetic.sub_),
    **dict.fromkeys(("mul_", "__imul__"), arithmetic.mul_),
    **dict.fromkeys(("div_", "__itruediv__"), arithmetic.div_),
    **dict.fromkeys(("matmul", "__matmul__", "__rmatmul__"), products.matmul),
    **dict.fromkeys(("zeros_like", "empty_like"), arithmetic.zeros_like),
    **dict.fromkeys(("new", "new_zeros", "new_empty"), new),
    **dict.fromkeys(("pin_memory", "cpu", "resolve_conj", "resolve_neg", "positive", "__pos__"), arithmetic.itself),
    **{name: arithmetic.of_type(name) for name, _ in cast_method_names()},
    **{name: arithmetic.elsewhere(name) for name in ("cuda", "xpu", "ipu", "hpu", "mtia")},
    "rsub": arithmetic.rsub, "neg_": arithmetic.changing(arithmetic.neg), "zero_": arithmetic.zero_,
    "copy_": arithmetic.copy_, "to": arithmetic.to, "type": arithmetic.type_, "any": arithmetic.any_,
    "type_as": lambda input, other: arithmetic.to(input, other.dtype),
    **dict.fromkeys(("mm", "spmm", "dsmm"), products.mm), "mv": products.mv, "bmm": products.bmm,
    "addmm": products.addmm, "linear": products.linear, "addmv": products.addmv, "sum": reducing.sum_,
    "sparse_mask": sparse_mask,
    **dict.fromkeys(("norm", "old_norm"), reducing.norm), "grad": grad, "backward": backward,
    **dict.fromkeys(("item", "__float__", "__int__", "__complex__"), shapes.item),
    "is_contiguous": is_contiguous, "numpy": numpy, "__array__": numpy, "tolist": tolist, "__bool__": truth,
    "detach_": detach_, "clone": lambda input, **options: input.clone(**options), "detach": lambda x: x.detach(),
}  # fmt: skip
_BY_COORDINATES = {
    "softmax": reducing.softmax, "log_softmax": reducing.log_softmax, "t": shapes.t,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), shapes.transpose), "permute": shapes.permute,
    **dict.fromkeys(("T", "mT"), shapes.t), "H": conjugate_transposed, "unsqueeze": shapes.unsqueeze,
    "squeeze": shapes.squeeze,
    **dict.fromkeys(("reshape", "view", "flatten", "view_as", "reshape_as"), shapes.no_reshape),
    "select": shapes.select, "index_select": shapes.index_select, "narrow": shapes.narrow,
    "narrow_copy": shapes.narrow, "__getitem__": shapes.getitem, "unbind": shapes.unbind,
    **dict.fromkeys(("cat", "concat", "concatenate"), shapes.cat), "stack": shapes.stack,
}  # fmt: skip


def through_coordinates(function):
    """The function of compressed tensors, by coordinates; a sparse matrix that comes of it is compressed again."""

    def answer(input, *args, **kwargs):
        if not isinstance(input, CompressedTensor):
            return function(input, *args, **kwargs)
        made = function(to_coordinates(input), *args, **kwargs)
        if not isinstance(made, Sparse) or made.ndim != 2 or made.dense_dim() or input.layout in BLOCKS:
            return made
        return made.to_sparse(layout=_TURNED[input.layout] if function in _TURNING else input.layout)

    return answer


_TURNED = {sparse_csr: sparse_csc, sparse_csc: sparse_csr}
_TURNING = (shapes.t, shapes.transpose)


def _reading(name):
    """Asks what the class Tensor knows."""
    function = vars(Tensor).get(name)

    def read(input, *args, **kwargs):
        with off():
            return function(input, *args, **kwargs)

    return read


def fill():
    """Write the tables."""
    shared = {**{name: _reading(name) for name in READS if name in vars(Tensor)}, **_SHARED}
    asked[sparse_coo] = {**shared, **_BY_COORDINATES}
    compressed = {**shared, **{name: through_coordinates(f) for name, f in _BY_COORDINATES.items()}}
    for layout in (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc):
        asked[layout] = compressed
