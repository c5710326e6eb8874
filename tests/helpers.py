"""What the tests generated from the op table share: samples as tensors, PyTorch's spelling of an op, derivatives."""

import numpy as np
import sequence_oracle

import weft
from weft.compiler import dtypes
from weft.compiler.autodiff import has_rule
from weft.compiler.ops import TABLE
from weft.compiler.ops.kinds import is_unknown

FLOATS = {"float32": weft.float32, "float64": weft.float64}


# --- samples ---------------------------------------------------------------------------------------------------------
def sampled_ops():
    return [op for op in TABLE.values() if op.samples is not None]


def is_float(x):
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def operands_of(sample, dtype="float64", requires_grad=False):
    """The sample's operands as tensors, floating ones of `dtype`; numbers stay numbers."""
    made = []
    for x in sample.operands:
        if isinstance(x, np.ndarray):
            x = weft.tensor(x.astype(dtype) if is_float(x) else x, requires_grad=requires_grad and is_float(x))
        made.append(x)
    return made


def leaves_of(op, sample):
    """The sample's operands in float64, floating ones as leaves: but for those whose derivative nobody has written."""
    made = operands_of(sample, requires_grad=True)
    return [x.detach() if isinstance(x, weft.Tensor) and is_unknown(op, k) else x for k, x in enumerate(made)]


def call(op, operands, attributes):
    """The op on tensors; a source has none to say how it runs, so it goes to the gate directly."""
    if any(isinstance(x, weft.Tensor) for x in operands):
        return op(*operands, **attributes)
    return weft.zeros(()).apply_op(op, tuple(operands), attributes)


def differentiable_positions(op, operands):
    """Positions of the floating tensors that the op has a derivative for."""
    floating = [k for k, x in enumerate(operands) if isinstance(x, weft.Tensor) and x.dtype.is_floating_point]
    return [k for k in floating if has_rule(op, k) and not is_unknown(op, k)]


# --- derivatives by random projection --------------------------------------------------------------------------------
def projection(shape, seed):
    return np.asarray(np.random.default_rng(seed).uniform(0.5, 1.5, shape))


def direction(shape, seed):
    """A projection of length about 1, so that one step fits all sizes."""
    return projection(shape, seed) / np.sqrt(max(np.prod(shape), 1))


def central_difference(function, arrays, directions, step=5e-4):
    """d/dt function(arrays + t * directions) at 0, where function maps arrays to a Python float."""

    def moved(t):
        return function([a + t * d for a, d in zip(arrays, directions)])

    # Richardson: the error term of order step**2 cancels.
    near = (moved(step) - moved(-step)) / (2 * step)
    far = (moved(2 * step) - moved(-2 * step)) / (4 * step)
    return (4 * near - far) / 3


# --- PyTorch ---------------------------------------------------------------------------------------------------------
def to_torch(torch, x, requires_grad=False):
    """A torch tensor with its own memory; numbers stay numbers."""
    if isinstance(x, np.ndarray):
        return torch.tensor(x).requires_grad_(requires_grad and x.dtype.kind == "f")
    return x


def torch_attributes(torch, op, attributes, ndim):
    """The table's attribute names in PyTorch's spelling."""
    spelled = {}
    for name, value in attributes.items():
        if name == "axes":
            spelled["dim"] = value if len(value) > 0 else tuple(range(ndim))
        elif name == "axis":
            spelled["dim"] = value
        elif name == "dtype":
            spelled["dtype"] = getattr(torch, value.name)
        else:
            spelled[name] = value
    return spelled


def slices(spec):
    """The index of a slice op's spec, positive steps only."""
    return tuple(slice(start, start + step * length, step) for start, step, length in spec)


def _torch_slice(torch, x, spec):
    for axis, (start, step, length) in enumerate(spec):
        x = x.index_select(axis, torch.tensor([start + step * k for k in range(length)], dtype=torch.int64))
    return x


def _torch_slice_scatter(torch, base, part, spec):
    positions = np.arange(base.numel()).reshape(base.shape)
    for axis, (start, step, length) in enumerate(spec):
        positions = np.take(positions, [start + step * k for k in range(length)], axis)
    kept = torch.ones(base.numel(), dtype=base.dtype)
    kept[torch.tensor(positions.reshape(-1))] = 0
    return base * kept.reshape(base.shape) + torch.zeros_like(base).reshape(-1).index_add(
        0, torch.tensor(positions.reshape(-1)), part.reshape(-1)
    ).reshape(base.shape)


def _torch_reduce(name):
    def run(torch, x, axes, keepdim):
        dims = axes if len(axes) > 0 else tuple(range(x.ndim))
        for d in sorted(dims, reverse=True):
            x = getattr(torch, name)(x, dim=d, keepdim=keepdim)
        return x

    return run


def _torch_index_select(torch, x, index, axis):
    return x[(slice(None),) * axis + (index,)]


def _torch_index_add(torch, x, index, part, axis, merged=None):
    return x.reshape(merged or x.shape).index_add(axis, index, part).reshape(x.shape)


def _torch_box_muller(torch, u, v):
    return torch.sqrt(-2 * torch.log(1 - u)) * torch.cos(2 * torch.pi * v)


def _torch_dropout(torch, x, u, p):
    return torch.where(u < 1 - p, x / (1 - p), torch.zeros_like(x))


def _torch_pairwise(name):
    """PyTorch's maximum and minimum take no numbers; ours do."""
    return lambda torch, x, y: getattr(torch, name)(x, torch.as_tensor(y, dtype=x.dtype))


# Where the attribute names alone do not give PyTorch's call: (torch, *operands, **attributes) -> tensor.
SPELLINGS = {
    **sequence_oracle.SPELLINGS,
    "diagonal": lambda torch, x, shift, axis0, axis1: torch.diagonal(x, shift, axis0, axis1),
    "maximum": _torch_pairwise("maximum"),
    "minimum": _torch_pairwise("minimum"),
    "cast": lambda torch, x, dtype: x.to(getattr(torch, dtype.name)),
    "full": lambda torch, v, shape, dtype: torch.full(shape, v, dtype=getattr(torch, dtype.name)),
    "arange": lambda torch, start, step, shape, dtype: torch.arange(
        start, start + step * shape[0], step, dtype=getattr(torch, dtype.name)
    ),
    "reshape": lambda torch, x, shape: x.reshape(shape),
    "permute": lambda torch, x, axes: x.permute(axes),
    "expand": lambda torch, x, shape: x.expand(shape),
    "detach": lambda torch, x: x.detach(),
    "slice": _torch_slice,
    "slice_scatter": _torch_slice_scatter,
    "transpose": lambda torch, x, axis0, axis1: x.transpose(axis0, axis1),
    "t": lambda torch, x: x.t(),
    "squeeze": lambda torch, x, axes: x.squeeze(axes),
    "unsqueeze": lambda torch, x, axis: x.unsqueeze(axis),
    "select": lambda torch, x, axis, index: x.select(axis, index),
    "cat": lambda torch, *xs, axis: torch.cat(xs, axis),
    "stack": lambda torch, *xs, axis: torch.stack(xs, axis),
    "gather": lambda torch, x, index, axis: x.gather(axis, index),
    "scatter_add": lambda torch, x, index, part, axis: x.scatter_add(axis, index, part),
    "index_select": _torch_index_select,
    "index_add": _torch_index_add,
    "index_put": lambda torch, x, index, part, axis, merged: x.index_put((index,), part),
    "within": lambda torch, x, low, high, message: x.clone(),
    "satisfied": lambda torch, x, message: x.clone(),
    "in_range": lambda torch, index, size, axis: index,
    "one_hot_class": lambda torch, index, count: index,
    "class_index": lambda torch, target, classes, ignore_index: target,
    "embedding": lambda torch, weight, index: torch.nn.functional.embedding(index, weight),
    "one_hot": lambda torch, index, count: torch.nn.functional.one_hot(index, count),
    "pick": lambda torch, x, index, axis, of: x.gather(axis, index.unsqueeze(axis)).squeeze(axis),
    "any": _torch_reduce("any"),
    "all": _torch_reduce("all"),
    "prod": _torch_reduce("prod"),
    "argmax": lambda torch, x, axis: torch.argmax(x, axis),
    "argmin": lambda torch, x, axis: torch.argmin(x, axis),
    "rpow": lambda torch, exponent, base: torch.pow(base, exponent),
    "part": lambda torch, x, spec, of: _torch_slice(torch, x, spec),
    "unbind_part": lambda torch, x, axis, index: x.unbind(axis)[index],
    "flip": lambda torch, x, spec: x.flip([k for k, (_, step, _) in enumerate(spec) if step < 0]),
    "index": lambda torch, x, index, axis, merged: x.reshape(merged)[(slice(None),) * axis + (index,)],
    "power": lambda torch, x, exponent: torch.pow(x, exponent),
    "batch_norm": lambda torch, x, *affine, eps: torch.nn.functional.batch_norm(
        x, None, None, *affine, training=True, eps=eps
    ),
    "layer_norm": lambda torch, x, *affine, eps: torch.nn.functional.layer_norm(x, x.shape[-1:], *affine, eps=eps),
    "dropout": _torch_dropout,
    "box_muller": _torch_box_muller,
}


def torch_call(torch, op, operands, attributes):
    """The same call in PyTorch; None where it has no such function (random draws of our own generator)."""
    if op.name in SPELLINGS:
        return SPELLINGS[op.name](torch, *operands, **attributes)
    if not op.oracle:
        return None
    if callable(op.oracle):
        return op.oracle(torch, *operands, **attributes)
    function = torch
    for part in op.oracle.split("."):
        function = getattr(function, part)
    ndim = getattr(operands[0], "ndim", 0)
    return function(*operands, **torch_attributes(torch, op, attributes, ndim))


def assert_equal_to_torch(ours, theirs, rtol, atol=0.0):
    """Shape, dtype and values."""
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch."), (ours.dtype, theirs.dtype)
    assert tuple(ours.shape) == tuple(theirs.shape), (ours.shape, theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(force=True), rtol=rtol, atol=atol)


DTYPES = dtypes.ALL
