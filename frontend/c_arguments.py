"""Arguments and results of C functions: arrays, each with a name. A dict or a tuple of arrays is one for each in it.

f(params, x), params = {"w": [3], "b": []}   ->   f(params_w [3], params_b, x)
return {"loss": [], "z": [5]}                ->   result_loss, result_z [5]
return [], [5]                               ->   result0, result1 [5]
"""

import inspect

import numpy as np

from . import c_names
from .creation import tensor
from .runtime.state.tensor import Tensor
from .utils._pytree import tree_flatten


def taken_apart(function, example_args):
    """(name of each argument in C, what it is in the examples, put_together): `put_together` makes the arguments of
    the function from as many others. What is no array stays what it is."""
    if not isinstance(example_args, (tuple, list)):
        raise ValueError(f"export: example_args must be a tuple, got {type(example_args).__name__}")
    names, leaves, specs = [], [], []
    for name, x in zip(_argument_names(function, len(example_args)), example_args):
        found, spec = tree_flatten(x)
        if not any(isinstance(leaf, (Tensor, np.ndarray)) for leaf in found):
            found, spec = [x], None
        paths = (
            [name] if spec is None else [path if path == name else c_names.spelled(path) for path in _paths(name, spec)]
        )
        for path in paths:
            names.append(c_names.distinct(path, names) if path in names else path)
        leaves += map(_example, found)
        specs.append(spec)

    def put_together(given):
        given = iter(given)
        return [next(given) if s is None else s.unflatten([next(given) for _ in range(s.num_leaves)]) for s in specs]

    return names, leaves, put_together


def _paths(name, spec):
    """A name for each leaf: its argument's, and the keys that lead to it."""
    if spec.is_leaf():
        return [name]
    keys = _keys(spec) or range(len(spec.children_specs))
    return [path for key, child in zip(keys, spec.children_specs) for path in _paths(f"{name}_{key}", child)]


def _keys(spec):
    """Those of a dict or a named tuple; None of what has only places."""
    keys = getattr(spec.context, "_fields", None) or getattr(spec.context, "names", None) or spec.context
    return keys if isinstance(keys, (list, tuple)) and len(keys) == len(spec.children_specs) else None


def result_names(leaves, spec, taken):
    """A name in C for each leaf of what a function returns, but for None: after the keys that lead to it, where there
    are any, and none of those `taken`."""
    n_results, found = sum(x is not None for x in leaves), []
    if not _has_keys(spec):
        return ["result"] if n_results == 1 else [f"result{k}" for k in range(n_results)]
    for path, x in zip(_paths("result", spec), leaves):
        if x is not None:
            found.append(c_names.distinct(c_names.spelled(path), {*taken, *found}))
    return found


def _has_keys(spec):
    return not spec.is_leaf() and (_keys(spec) is not None or any(map(_has_keys, spec.children_specs)))


def _example(x):
    if isinstance(x, np.ndarray):
        return tensor(x)
    return x.detach().clone().contiguous() if isinstance(x, Tensor) else x


def _argument_names(function, count):
    function = getattr(function, "forward", function)  # of a module: its call takes anything
    try:
        names = [p.name for p in inspect.signature(function).parameters.values() if p.kind < p.VAR_POSITIONAL]
    except (TypeError, ValueError):
        names = []
    return [*names, *[f"a{k}" for k in range(len(names), count)]][:count]
