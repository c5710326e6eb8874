"""`weft.func`: transformations of functions, which can be nested in any order.

    grad, grad_and_value, vjp, jacrev    backward passes with create_graph, so that what is around can differentiate on
    jvp, jacfwd, linearize               the derivative of the gradient for its cotangent: there is no forward mode
    hessian                              jacrev of jacrev
    vmap                                 one call for all samples (vmapping.py)

jacrev makes a backward pass for all elements of an output, jacfwd one for all elements of an input, where that pays
(rows_at_once.py); else one per element. A result is connected to
what required gradients outside of the function (its other arguments, parameters it reaches); to its own inputs only
while a transformation around it is at work.

>>> import weft
>>> grad(grad(lambda x: x**3))(weft.tensor(2.0))
tensor(12.)
"""

import threading
from functools import partial, wraps

from . import autograd
from .creation import ones_like, zeros_like
from .func_modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from .public import of_module
from .reference import document
from .rows_at_once import of_elements, together
from .runtime.batched.batch import alone, as_sample, batch_of, has_outer_history, is_of_all_samples
from .runtime.eager.node import AccumulateGrad, Node, shown
from .runtime.record.frame_leaves import ends_of
from .runtime.state.modes import state
from .runtime.state.tensor import Tensor
from .shaping import stack
from .utils._pytree import tree_flatten, tree_map, tree_unflatten
from .vmapping import vmap

__getattr__, __dir__ = of_module(__name__)

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


class _Transforming(threading.local):
    """How many transformations are at work around the code that runs, and what they differentiate for: id -> leaf.

    It holds the leaves until the outermost is done. Weak references would make calls of compiled functions unusual.
    """

    def __init__(self):
        self.depth, self.leaves = 0, {}


_transforming = _Transforming()


def is_transforming():
    """Whether a transformation is at work around the code that asks."""
    return _transforming.depth > 0


class _Level:
    """One transformation at work: gradients are recorded, and results leave it by `release`.

    earlier: the leaves of one that is over, and goes on.
    """

    def __init__(self, earlier=None):
        self.earlier = earlier or {}

    def __enter__(self):
        self.recorded = state.grad_enabled
        state.grad_enabled = True
        _transforming.depth += 1
        _transforming.leaves.update(self.earlier)
        return self

    def __exit__(self, *exception):
        _transforming.depth -= 1
        if not _transforming.depth:
            _transforming.leaves.clear()
        state.grad_enabled = self.recorded

    def gives_history(self, tree):
        """Whether what is computed of the tree leaves with a history: if not, gradients need none."""
        if _transforming.depth > 1:
            return True
        tensors = [x for x in tree_flatten(tree)[0] if isinstance(x, Tensor)]
        return self.recorded and any(has_outer_history(x) or x.requires_grad and _reaches_others(x) for x in tensors)

    def release(self, tree):
        """The tree with its tensors as code outside sees them."""
        return tree_map(lambda x: self._released(x) if isinstance(x, Tensor) else x, tree)

    def _released(self, x):
        if not x.requires_grad or _transforming.depth > 1:
            return x
        if batch_of(x) is not None:
            return alone(x)
        return x if self.recorded and _reaches_others(x) else x.detach()


def _leaf(x):
    """A tensor like x that a transformation differentiates for: within vmap one of one sample, also if all share it."""
    leaf = as_sample(x)
    if leaf is None:
        leaf = x.detach()
    leaf.requires_grad = True
    _transforming.leaves[id(leaf)] = leaf
    return leaf


def _inputs(name, tree):
    """(tensors to differentiate for, the tree with them, its form); views of what others differentiate for too."""
    leaves, spec = tree_flatten(tree)
    for x in leaves:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: expected tensors to differentiate for, got {type(x).__name__}")
    made = [_leaf(x) if not x.requires_grad or is_of_all_samples(x) else x.view_as(x) for x in leaves]
    return made, tree_unflatten(made, spec), spec


def _reaches_others(x):
    """Whether x depends on a leaf that requires gradients and is not of a transformation."""
    if x.is_leaf:
        return _is_other(x)
    ends = ends_of(x)
    return any(map(_reaches_others, ends)) if ends is not None else _leads_to_others(x.grad_fn)


def _leads_to_others(node):
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, AccumulateGrad):
            if _is_other(node.variable):
                return True
        elif isinstance(node, Node):
            # What next_functions lists, without the positions of what has no gradient.
            waiting += [shown(edge)[0] for edge in node.edges if edge is not None]
        else:
            waiting += [other for other, _ in node.next_functions if other is not None]
    return False


def _is_other(leaf):
    return _transforming.leaves.get(id(leaf)) is not leaf


def _gradients(outputs, inputs, cotangents=None, create_graph=True):
    """The gradients of tensors for others, as part of the graph; zeros where nothing arrives."""
    given = cotangents or [None] * len(outputs)
    pairs = [(out, c) for out, c in zip(outputs, given) if out.requires_grad]
    if not pairs:
        return [zeros_like(x) for x in inputs]
    outputs, cotangents = zip(*pairs)
    found = autograd.grad(outputs, inputs, cotangents, retain_graph=True, create_graph=create_graph, allow_unused=True)
    return [zeros_like(x) if g is None else g for g, x in zip(found, inputs)]


# --- gradients --------------------------------------------------------------------------------------------------------
def grad(func, argnums=0, has_aux=False):
    """The function that gives the gradient of `func`, which returns one element.

    argnums: the position of the argument to differentiate for, or a tuple of them; arguments may be trees of tensors.
    has_aux: `func` returns (output, aux), and the result is (gradient, aux).
    """
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func, updated=())
    def gradient(*args, **kwargs):
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(func, argnums=0, has_aux=False):
    """The same with the output: (gradient, output), or (gradient, (output, aux))."""

    @wraps(func, updated=())
    def both(*args, **kwargs):
        with _Level() as level:
            inputs, args, rebuild = _chosen("grad", argnums, args)
            output = func(*args, **kwargs)
            output, aux = _with_aux("grad", output) if has_aux else (output, None)
            _check_scalar(output)
            found = rebuild(_gradients([output], inputs, create_graph=level.gives_history((output, aux))))
            result = level.release((found, (output, aux) if has_aux else output))
        return result

    return both


def _check_scalar(output):
    if not isinstance(output, Tensor):
        raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(output)}")
    if output.ndim:
        raise RuntimeError(
            "grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got tensor with "
            f"{output.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )


def _with_aux(name, output):
    if not isinstance(output, tuple) or len(output) != 2:
        raise RuntimeError(
            f"{name}(f)(*args): output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return output


def _chosen(name, argnums, args):
    """(the tensors to differentiate for, all arguments with them, how their gradients are one result)."""
    several = isinstance(argnums, tuple)
    if not several and (not isinstance(argnums, int) or isinstance(argnums, bool)):
        raise RuntimeError(f"argnum must be int or tuple of ints, got {type(argnums)}")
    positions = argnums if several else (argnums,)
    if not positions:
        raise RuntimeError("argnums must be non-empty")
    if any(not -len(args) <= k < len(args) for k in positions):
        raise RuntimeError(f"Got argnum={argnums}, but only {len(args)} positional inputs")
    positions = [k % len(args) for k in positions]
    if len(set(positions)) != len(positions):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    inputs, changed, spec = _inputs(name, tuple(args[k] for k in positions))
    args = list(args)
    for k, x in zip(positions, changed):
        args[k] = x

    def rebuild(values):
        found = tree_unflatten(values, spec)
        return found if several else found[0]

    return inputs, tuple(args), rebuild


def _outputs(name, result):
    """(tensors, form) of what a function returned."""
    leaves, spec = tree_flatten(result)
    for x in leaves:
        if not isinstance(x, Tensor):
            raise RuntimeError(
                f"{name}(f, *args): expected f(*args) to return only tensors, got unsupported type {type(x)}"
            )
    return leaves, spec


def vjp(func, *primals, has_aux=False):
    """(func(*primals), vjp_fn), or (output, vjp_fn, aux): vjp_fn(cotangents) is a tuple of gradients for the primals.

    vjp_fn may be called many times; a cotangent has the form of the output.
    """
    with _Level() as level:
        inputs, given, spec = _inputs("vjp", primals)
        result = func(*given)
        result, aux = _with_aux("vjp", result) if has_aux else (result, None)
        outputs, form = _outputs("vjp", result)
        released, aux = level.release((result, aux))
        leaves = dict(_transforming.leaves)

    def vjp_fn(cotangents, retain_graph=True, create_graph=None):
        flat, given_form = tree_flatten(cotangents)
        if given_form != form:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {given_form}, primal output: {form}"
            )
        with _Level(leaves) as level:
            found = _gradients(outputs, inputs, flat, level.gives_history((outputs, flat)))
            return level.release(tree_unflatten(found, spec))

    return (released, vjp_fn, aux) if has_aux else (released, vjp_fn)


def linearize(func, *primals):
    """(func(*primals), jvp_fn): jvp_fn(*tangents) is the derivative of the outputs along tangents."""
    with _Level() as level:
        inputs, given, spec = _inputs("linearize", primals)
        result = func(*given)
        outputs, form = _outputs("linearize", result)
        # The gradient is linear in its cotangents: its derivative there is the Jacobian. Where does not matter, but for
        # rules that leave out what a cotangent of zeros says nothing of (linalg.svd).
        cotangents = [_leaf(ones_like(out)) for out in outputs]
        gradients = _gradients(outputs, inputs, cotangents)
        released = level.release(result)
        leaves = dict(_transforming.leaves)

    def jvp_fn(*tangents):
        flat, given_form = tree_flatten(tangents)
        if given_form != spec or any(t.shape != x.shape for t, x in zip(flat, inputs)):
            raise RuntimeError(
                "jvp: tangents must have the form and the shapes of the primals: "
                f"{[tuple(t.shape) for t in flat]} are given, {[tuple(x.shape) for x in inputs]} needed"
            )
        with _Level(leaves) as level:
            found = _gradients(gradients, cotangents, flat, level.gives_history((gradients, flat)))
            return level.release(tree_unflatten(found, form))

    return released, jvp_fn


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """(func(*primals), the derivative of the outputs along tangents), and aux as a third if has_aux."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple) or not primals:
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to be tuples that are not empty")
    kept = []

    def alone(*args):
        result = func(*args)
        if not has_aux:
            return result
        output, aux = _with_aux("jvp", result)
        kept.append(aux)
        return output

    with _Level() as level:
        output, push = linearize(alone, *primals)
        return level.release((output, push(*tangents), *kept))


# --- Jacobians --------------------------------------------------------------------------------------------------------
def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None):
    """The function that gives the Jacobian of `func`: for every output a tensor of shape (*output, *input), by
    backward passes.

    A tree of outputs gives a tree of Jacobians, each with a tree of the arguments inside. chunk_size: of how many
    elements of an output at a time, so that large Jacobians need less memory for what they are computed of.
    """

    @wraps(func, updated=())
    def jacobian(*args, **kwargs):
        return together(_backward_jacobian, (func, argnums, has_aux, chunk_size), args, kwargs)

    return jacobian


def _backward_jacobian(func, argnums, has_aux, chunk_size, args, kwargs):
    with _Level() as level:
        inputs, args, rebuild = _chosen("jacrev", argnums, args)
        result = func(*args, **kwargs)
        result, aux = _with_aux("jacrev", result) if has_aux else (result, None)
        outputs, form = _outputs("jacrev", result)
        create_graph = level.gives_history(outputs)
        blocks = [rebuild(_rows(out, inputs, create_graph, chunk_size)) for out in outputs]
        found = level.release((tree_unflatten(blocks, form), aux))
    return found if has_aux else found[0]


def _rows(output, inputs, create_graph, chunk_size):
    """The derivatives of one output, by backward passes: a tensor per input."""
    backwards = partial(_gradients, [output], inputs, create_graph=create_graph)
    found = of_elements(output, inputs, backwards, chunk_size)
    if found is not None:
        return found
    rows = [_gradients([x], inputs, create_graph=create_graph) for x in output.reshape(-1).unbind()]
    return [_block(column, (*output.shape, *x.shape), x) for column, x in zip(zip(*rows), inputs)] or [
        x.new_zeros(*output.shape, *x.shape) for x in inputs
    ]


def _block(parts, shape, like):
    return stack(parts).reshape(shape) if parts else like.new_zeros(*shape)


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """The same as `jacrev`, by a pass per element of the inputs: for functions with more outputs than inputs."""

    @wraps(func, updated=())
    def jacobian(*args, **kwargs):
        return together(_forward_jacobian, (func, argnums, has_aux), args, kwargs)

    return jacobian


def _forward_jacobian(func, argnums, has_aux, args, kwargs):
    with _Level() as level:
        inputs, args, rebuild = _chosen("jacfwd", argnums, args)
        result = func(*args, **kwargs)
        result, aux = _with_aux("jacfwd", result) if has_aux else (result, None)
        outputs, form = _outputs("jacfwd", result)
        cotangents = [_leaf(ones_like(out)) for out in outputs]
        gradients = _gradients(outputs, inputs, cotangents)
        create_graph = level.gives_history(gradients)
        columns = [_columns(g, x, outputs, cotangents, create_graph) for g, x in zip(gradients, inputs)]
        blocks = [rebuild([column[k] for column in columns]) for k in range(len(outputs))]
        found = level.release((tree_unflatten(blocks, form), aux))
    return found if has_aux else found[0]


def _columns(gradient, x, outputs, cotangents, create_graph):
    """The derivatives of all outputs for one input, by derivatives of its gradient: a tensor per output."""
    blocks = of_elements(gradient, outputs, partial(_gradients, [gradient], cotangents, create_graph=create_graph))
    if blocks is None:
        elements = gradient.reshape(-1).unbind()
        columns = [_gradients([element], cotangents, create_graph=create_graph) for element in elements]
        blocks = [
            _block([column[k] for column in columns], (*x.shape, *out.shape), out) for k, out in enumerate(outputs)
        ]
    found = []
    for block, out in zip(blocks, outputs):
        axes = [*range(x.ndim, x.ndim + out.ndim), *range(x.ndim)]
        found.append(block.permute(*axes) if axes else block)
    return found


def hessian(func, argnums=0):
    """The function that gives the second derivatives of `func`: jacrev of jacrev."""
    return jacrev(jacrev(func, argnums), argnums)


document("func", __name__)
