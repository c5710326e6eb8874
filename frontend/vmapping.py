"""`vmap`: a function of one sample applied to a batch.

The function is called once, with tensors that have the shape of one sample and hold all of them: what it does to them
is done to all samples at once (runtime/batched). If it asks what only one sample can answer, such as `if x > 0` or
`x.item()`, or there are few samples, it is called once per sample, on slices, and the results are stacked: what it
had done by then to anything but its arguments' values, such as printing, is done again. What it does to its arguments
in place it does to the batch.

>>> import weft
>>> vmap(weft.dot)(weft.ones(3, 2), weft.ones(3, 2))
tensor([2., 2., 2.])
"""

from functools import partial, wraps

from .runtime.batched.batch import FEW, Level, SampleBySample, all_samples, batch_of, tensor_of_batch
from .runtime.state.marks import asked_classes
from .runtime.state.modes import state
from .runtime.state.random import default_generator
from .runtime.state.tensor import Tensor
from .shaping import cat, movedim, stack
from .utils._pytree import tree_flatten, tree_map_, tree_structure, tree_unflatten


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """The function of batches that `func` is of samples.

    in_dims: which dimension of every argument counts samples, None for arguments that all samples share; one for all,
    or a tree of the arguments' form. out_dims: where it is in the results. randomness: whether the samples draw
    "different" numbers or the "same"; "error" if they are to draw none. chunk_size: of how many samples there are
    tensors at a time, so that those of large batches need less memory; 1 calls the function once per sample.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @wraps(func, updated=())
    def batched(*args, **kwargs):
        _check_out_dims(func, out_dims)
        leaves, dims, spec, size = _batched_inputs(func, in_dims, args)
        if size > FEW and chunk_size != 1 and all(map(_is_dense, leaves)):
            start = default_generator.__getstate__()
            found = _in_chunks(func, out_dims, leaves, dims, spec, size, kwargs, randomness, chunk_size or size)
            if found is not None:
                return found
            default_generator.__setstate__(start)
        return _stacked(func, out_dims, _results(func, leaves, dims, spec, size, kwargs, randomness))

    return batched


def _is_dense(x):
    """Whether it is no tensor of which only parts are kept, or whose class says what is done with it."""
    return not isinstance(x, Tensor) or x.has_array and type(x) not in asked_classes


def _in_chunks(func, out_dims, leaves, dims, spec, size, kwargs, randomness, chunk_size):
    """What all samples give, so many of them by each call of func. None if that cannot be."""
    start, parts = default_generator.__getstate__(), []
    for first in range(0, size, chunk_size):
        if randomness == "same":
            default_generator.__setstate__(start)
        n = min(chunk_size, size - first)
        part = leaves
        if n < size:
            part = [x if dim is None else x.narrow(dim, first, n) for x, dim in zip(leaves, dims)]
        given = [x for x, dim in zip(part, dims) if dim is not None]
        level = Level(n, given, randomness == "different")
        try:
            parts.append(_at_once(func, out_dims, level, part, dims, spec, kwargs, start, randomness))
        except SampleBySample as stopped:
            if stopped.level is not level:
                raise
            return None
    if len(parts) == 1:
        return parts[0]
    rows = [tree_flatten(part) for part in parts]
    out = _out_dims_of(func, out_dims, rows[0][1])
    columns = zip(*[found for found, _ in rows])
    return tree_unflatten([c[0] if dim is None else cat(c, dim) for c, dim in zip(columns, out)], rows[0][1])


def _at_once(func, out_dims, level, leaves, dims, spec, kwargs, start, randomness):
    """What the samples of a level give, by one call of func."""
    with level:
        given = [
            x if dim is None else tensor_of_batch(level, x if dim == 0 else movedim(x, dim, 0), True)
            for x, dim in zip(leaves, dims)
        ]
        result = func(*tree_unflatten(given, spec), **kwargs)
        _check_draws(randomness, start)
        return _taken_out(func, out_dims, level, result)


def _check_draws(randomness, start):
    if randomness == "error" and default_generator.__getstate__()[1] != start[1]:
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
            "'different' randomness flags on vmap or perform the randomness operation out of vmap"
        )


def _taken_out(func, out_dims, level, result):
    """The result of one sample's tensors as that of all samples."""
    leaves, spec = tree_flatten(result)
    dims = _out_dims_of(func, out_dims, spec)
    return tree_unflatten([_all_samples(func, level, x, dim) for x, dim in zip(leaves, dims)], spec)


def _all_samples(func, level, x, dim):
    batch = batch_of(x)
    is_varied = batch is not None and batch.level is level and batch.is_varied
    if dim is None:
        if is_varied:
            raise _no_out_dim(func)
        return x if batch is None or batch.level is not level else batch.physical
    _check_result(func, x)
    physical = all_samples(level, x)
    return physical if dim == 0 else movedim(physical, 0, dim)


def _results(func, leaves, dims, spec, size, kwargs, randomness):
    """func of every sample."""
    start, results = default_generator.__getstate__(), []
    is_flat = all(child.is_leaf() for child in spec.children_specs)
    outer = state.samples_follow
    try:
        for k in range(size):
            if randomness == "same":
                default_generator.__setstate__(start)
            sample = [x if dim is None else x.select(dim, k) for x, dim in zip(leaves, dims)]
            # To PyTorch all samples are one call, after which a graph from outside may be free.
            state.samples_follow = outer or k + 1 < size
            results.append(func(*(sample if is_flat else tree_unflatten(sample, spec)), **kwargs))
            _check_draws(randomness, start)
    finally:
        state.samples_follow = outer
    return results


def _name(func):
    if hasattr(func, "__name__"):
        return func.__name__
    return f"functools.partial({_name(func.func)}, ...)" if isinstance(func, partial) else repr(func)


# --- arguments --------------------------------------------------------------------------------------------------------
def _batched_inputs(func, in_dims, args):
    """(leaves of the arguments, the batch's dimension in each or None, their form, how many samples)."""

    def where():
        return f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"

    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{where()}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of "
            f"inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            "over a function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args)
    dims = _spread(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{where()}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{tree_structure(in_dims)} but inputs has structure {spec}."
        )
    dims = [_checked_dim(where, x, dim) for x, dim in zip(leaves, dims)]
    sizes = [x.shape[dim] for x, dim in zip(leaves, dims) if dim is not None]
    if not sizes:
        raise ValueError(f"{where()}: at least one of the inputs must be mapped: all in_dims are None")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    if sizes[0] == 0:
        raise ValueError(f"{where()}: the mapped dimension has size 0, so the results have no shape")
    return leaves, dims, spec, sizes[0]


def _checked_dim(where, x, dim):
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(
            f"{where()}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(x, Tensor):
        raise ValueError(
            f"{where()}: Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot vmap over "
            "non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(
            f"{where()}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {x.ndim} so "
            f"expected in_dim to satisfy -{x.ndim} <= in_dim < {x.ndim}."
        )
    return dim % x.ndim


def _spread(dims, spec):
    """One entry per leaf of a tree; None if `dims` is no tree that the other refines."""
    if spec.is_leaf():
        return [dims] if tree_structure(dims).is_leaf() else None
    form = tree_structure(dims)
    if form.is_leaf():
        return [dims] * spec.num_leaves
    same = form.type is spec.type and form.context == spec.context and form.num_children == spec.num_children
    if not same:
        return None
    children = list(dims.values()) if isinstance(dims, dict) else list(dims)
    found = [_spread(child, inner) for child, inner in zip(children, spec.children_specs)]
    return None if None in found else [x for part in found for x in part]


# --- results ----------------------------------------------------------------------------------------------------------
def _check_out_dims(func, out_dims):
    if out_dims.__class__ is int:
        return

    def check(x):
        if x is not None and not isinstance(x, int):
            raise ValueError(
                f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                "collection of ints representing where in the outputs the vmapped dimension should appear."
            )

    tree_map_(check, out_dims)


def _stacked(func, out_dims, results):
    """The results of all samples as one."""
    if out_dims.__class__ is int and all(result.__class__ is Tensor for result in results):
        return stack(results, out_dims)
    rows = [tree_flatten(result) for result in results]
    spec = rows[0][1]
    dims = _out_dims_of(func, out_dims, spec)
    columns = zip(*(leaves for leaves, _ in rows))
    return tree_unflatten([_joined(func, column, dim) for column, dim in zip(columns, dims)], spec)


def _out_dims_of(func, out_dims, spec):
    """Where the samples are to be in each leaf of the result."""
    if spec.is_leaf() and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]
    dims = _spread(out_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure "
            f"of `outputs`. out_dims has structure {tree_structure(out_dims)} but outputs has structure {spec}."
        )
    return dims


def _joined(func, column, dim):
    first = column[0]
    if dim is None:
        if isinstance(first, Tensor) and any(x is not first and not x.equal(first) for x in column):
            raise _no_out_dim(func)
        return first
    _check_result(func, first)
    return stack(column, dim)


def _no_out_dim(func):
    name = _name(func)
    return ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")


def _check_result(func, x):
    if not isinstance(x, Tensor):
        name = _name(func)
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(x)}. Did you mean to set "
            "out_dims= to None for output?"
        )


# --- weft._vmap_internals ---------------------------------------------------------------------------------------------
class internals:
    """weft._vmap_internals: `vmap` by the names that programs from before torch.func import."""

    vmap = staticmethod(vmap)

    @staticmethod
    def _vmap(func, in_dims=0, out_dims=0, allow_none_pass_through=False):
        if allow_none_pass_through:
            raise NotImplementedError("_vmap: allow_none_pass_through=True is not there; return tensors, no None")
        return vmap(func, in_dims, out_dims)
