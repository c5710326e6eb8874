"""Derivatives for code that thinks in NumPy arrays: `scipy.optimize`, samplers, fits.

`value_and_grad`, `grad`, `jacobian`, `hessian`, `hvp` and `for_numpy` take a function of tensors and give a function of
arrays, compiled. Arrays are copied into tensors that are kept for the next call, so calls are alike and nothing of
theirs is shared with the caller: the results are his, and what he does to his arrays afterwards changes nothing. Calls
of a function that does nothing but ops go to their program at once after a while (prepared.py).

>>> import numpy as np
>>> def rosenbrock(x):
...     return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
>>> value_and_grad(rosenbrock)(np.array([1.0, 2.0]))
(100.0, array([-400.,  200.]))
"""

from functools import partial, update_wrapper, wraps
from operator import itemgetter
from sys import gettrace

import numpy as np

from . import autograd
from .compiled import compile
from .creation import ones_like, tensor, zeros_like
from .decorated import reduced
from .notebooks import Text
from .prepared import Prepared
from .rows_at_once import of_elements, together
from .runtime.batched.batch import as_sample
from .runtime.state.modes import enable_grad, inference_mode, no_grad, state
from .runtime.state.tensor import Tensor
from .runtime.state.tracebacks import shorten
from .shaping import stack

_FIRST = (0,)
COPIED_BYTES = 1 << 16  # results up to here are copied; a larger one is handed over with its memory


class OnArrays:
    """A function of arrays around a compiled one of tensors. `derive(value, tensors)` gives the results to be handed
    out, from what `function` returned and the tensors that it is differentiated for. of: the function of the user's, if
    `function` is one around it."""

    _has_argnums = True  # whether what makes it takes `argnums`
    _is_matrix = False  # whether it takes many backward passes

    def __init__(self, name, function, argnums, derive, of=None):
        if not callable(function):
            raise TypeError(f"{name}: expected a function of tensors, got {type(function).__name__}")
        update_wrapper(self, function, updated=())
        self._name, self._function, self._argnums, self._derive = name, function, argnums, derive
        self._single = type(argnums) is int and argnums == 0  # as a rule
        self._of = function if of is None else of
        self._compiled = {}  # key of a call -> compiled function of all arguments in a row
        self._kept = []  # lists of tensors, one for every call that may be under way at once
        self._prepared = Prepared(self._of)

    def _arrays(self, args, kwargs, places):
        """The results, as arrays that are the caller's."""
        if self._prepared.calls and state.frame is None and gettrace() is None:
            key, values = (places, *kwargs) if kwargs else places, (*args, *kwargs.values()) if kwargs else args
            for call in self._prepared.calls:
                if call.key == key and call.default_dtype is state.default_dtype:
                    arrays = call.run(values)
                    if arrays is not None:
                        return arrays if call.in_order is None else call.in_order(arrays)
        try:
            return self._as_arrays(self._results(args, kwargs, places))
        except Exception as error:
            shorten(error)
            raise

    def _as_arrays(self, results):
        return [_handed_out(x) for x in results]

    def _told(self, results):
        """Tell who looks at the call what is about to be returned."""
        state.looks_on.ended(results)

    def _results(self, args, kwargs, places):
        """The results, as tensors, for arrays; whatever the caller's mode."""
        if not state.grad_enabled:
            with inference_mode(False), enable_grad():
                return self._results(args, kwargs, places)
        key, values = (places, *kwargs) if kwargs else places, (*args, *kwargs.values())
        compiled = self._compiled.get(key) or self._compile(key, places, tuple(kwargs))
        # Within a compiled call what is read is read later: tensors are not filled again there.
        kept = self._kept.pop() if self._kept and state.frame is None else []
        if len(kept) != len(values):
            kept = [None] * len(values)
        tensors = [self._filled(kept, k, value, k in places) for k, value in enumerate(values)]
        results = self._prepared.after(key, compiled, values, tensors)
        if state.frame is None:
            self._kept.append(kept)
        return results

    def _compile(self, key, places, names):
        def derived(tensors, kwargs):
            n_args = len(tensors) - len(names)
            value = self._function(*tensors[:n_args], **dict(zip(names, tensors[n_args:])))
            return self._derive(value, [tensors[place] for place in places])

        def program(*tensors):
            results = together(_of_leaves, (derived, places), tensors, {}) if self._is_matrix else derived(tensors, {})
            if state.looks_on is not None:
                self._told(results)
            return results

        program.__name__ = getattr(self._function, "__name__", type(self._function).__name__)
        compiled = self._compiled[key] = compile(program)
        return compiled

    def _filled(self, kept, k, value, is_leaf):
        if is_leaf:
            value = _as_floats(self._name, value)
        elif not isinstance(value, np.ndarray):
            value = _as_array(value)
            if value.__class__ is not np.ndarray:
                return value
        found = kept[k]
        if found is None or found._data.shape != value.shape or found._data.dtype != value.dtype:
            found = kept[k] = tensor(value, requires_grad=is_leaf)
            return found
        np.copyto(found._data, value)
        found.bump_version()
        return found

    def _places(self, args):
        """The positions of what is differentiated for."""
        if self._single and args:
            return _FIRST
        places = self._argnums if isinstance(self._argnums, tuple) else (self._argnums,)
        if not all(-len(args) <= k < len(args) for k in places):
            raise ValueError(
                f"{self._name}: argnums is {self._argnums}, but {len(args)} arguments were given by position"
            )
        return tuple([k % len(args) for k in places])

    def explain(self, *args, verbose=False, **kwargs):
        """What the calls so far compiled to: as the `explain` of what weft.compile makes."""
        if args or kwargs:
            self(*args, **kwargs)
        texts = [compiled.explain(verbose=verbose) for compiled in self._compiled.values()]
        return Text("\n".join([*texts, *self._prepared.lines()]))

    def __reduce__(self):
        make = globals()[self._name]
        return reduced(self, make, self._of, *((self._argnums,) if self._has_argnums else ()))

    def __repr__(self):
        return f"<weft.{self._name} of {getattr(self, '__name__', 'a function')}>"


class ValueAndGrad(OnArrays):
    def __call__(self, *args, **kwargs):
        places = self._places(args)
        arrays = self._arrays(args, kwargs, places)
        return arrays[0].item(), tuple(arrays[1:]) if isinstance(self._argnums, tuple) else arrays[1]


class Grad(OnArrays):
    def __call__(self, *args, **kwargs):
        arrays = self._arrays(args, kwargs, self._places(args))
        return tuple(arrays) if isinstance(self._argnums, tuple) else arrays[0]


class Matrix(Grad):
    _is_matrix = True


def _of_leaves(derived, places, tensors, kwargs):
    """derived(tensors), with leaves that all rows of a matrix share where they are one pass (rows_at_once.py)."""
    tensors = list(tensors)
    for place in places:
        leaf = as_sample(tensors[place].detach())
        if leaf is not None:
            leaf.requires_grad = True
            tensors[place] = leaf
    return derived(tensors, kwargs)


class ForNumpy(OnArrays):
    _has_argnums = False

    def __call__(self, *args, **kwargs):
        # What an optimizer or a quadrature varies may be a number, which has no method `exp`.
        args = tuple([np.asarray(x) if isinstance(x, (float, np.floating)) else x for x in args])
        return self._arrays(args, kwargs, ())

    def _as_arrays(self, results):
        return _changed(results, Tensor, _handed_out)

    def _told(self, results):
        tensors = []
        form = _changed(results, Tensor, lambda x: tensors.append(x) or _PLACE)
        if form is _PLACE:
            state.looks_on.ended(tuple(tensors), _only)
        elif _is_remade(form):
            state.looks_on.ended(tuple(tensors), partial(_filled_in, form))


class HessianTimesVector(OnArrays):
    _has_argnums = False

    def __call__(self, x, vector, *args, **kwargs):
        vector = _as_floats(self._name, vector)
        if vector.shape != np.shape(x):
            raise ValueError(
                f"hvp: the vector has shape {vector.shape}, but x has shape {np.shape(x)}; they must agree"
            )
        return self._arrays((vector, x, *args), kwargs, (1,))[0]


def for_numpy(function):
    """A compiled function of NumPy arrays, from one of tensors: for the log density of a sampler, or predictions.

    function: whatever weft.compile takes, the same for the same arguments. Arrays and columns of pandas are copied into
    tensors of their type, in positions and keywords. So are floats in positions, into float64 without dimensions: that
    is what `scipy.optimize.brentq` and iminuit vary. All else arrives as it is. Returns a function that gives arrays,
    which are the caller's, in place of tensors, also in tuples, lists and dicts, without their history.

    >>> softplus = for_numpy(lambda x: (1 + x.exp()).log())
    >>> softplus(np.array([0.0, 1.0]))
    array([0.69314718, 1.31326169])
    """

    def derive(value, leaves):
        # A result may be an argument, a part of one, or twice the same tensor; and it may have a history.
        with no_grad():
            return _changed(value, Tensor, Tensor.clone)

    return ForNumpy("for_numpy", function, (), derive)


def value_and_grad(function, argnums=0):
    """The value of a function and its gradient, for arrays: `scipy.optimize.minimize(value_and_grad(f), x, jac=True)`.

    function: takes tensors and returns a tensor of one element, the same for the same arguments; it is compiled.
    argnums: the position of the argument to differentiate for, or a tuple of positions.

    Returns a function of arrays, lists or numbers. It gives (value, gradient): a Python float, and an array of the
    argument's shape (for a tuple of positions, a tuple of arrays). What is differentiated for becomes float64, but
    float32 stays; other arrays are copied into tensors of their type; tensors, numbers and all else arrive as they are,
    so give large data that does not change as a tensor.

    Raises TypeError if the function returns no tensor, RuntimeError if that has not one element.

    >>> value_and_grad(lambda x, scale: (scale * x**2).sum())(np.array([1.0, 2.0]), 3.0)
    (15.0, array([ 6., 12.]))
    """

    def derive(value, leaves):
        _check_value("value_and_grad", value)
        gradients = _gradients(value, leaves)
        with no_grad():
            return (value.clone(), *gradients)

    return ValueAndGrad("value_and_grad", function, argnums, derive)


def grad(function, argnums=0):
    """The gradient alone: see `value_and_grad`. For tensors, and gradients of gradients, there is `weft.func.grad`.

    >>> grad(lambda x: (x**3).sum())(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """

    def derive(value, leaves):
        _check_value("grad", value)
        return _gradients(value, leaves)

    return Grad("grad", function, argnums, derive)


def jacobian(function, argnums=0):
    """The matrix of first derivatives, for arrays: `scipy.optimize.least_squares(for_numpy(f), x, jac=jacobian(f))`.

    function, arguments and errors: as for `value_and_grad`, but it returns a tensor of any shape. Returns a function
    that gives an array of shape (*value.shape, *x.shape), by one pass for each element of the value or of x, whichever
    has fewer. For a tuple of positions, a tuple of arrays.

    >>> jacobian(lambda x: x[:2] * x[2])(np.array([1.0, 2.0, 3.0]))
    array([[3., 0., 1.],
           [0., 3., 2.]])
    """

    def derive(value, leaves):
        _check_tensor("jacobian", value, "a tensor")
        if not value.requires_grad:
            return tuple(value.new_zeros(*value.shape, *x.shape) for x in leaves)
        by_rows = value.numel() <= sum(x.numel() for x in leaves)
        return _by_rows(value, leaves) if by_rows else _by_columns(value, leaves)

    return Matrix("jacobian", function, argnums, derive)


def _by_rows(value, leaves):
    """The derivatives of a value for every leaf, by a backward pass for each element of the value."""
    found = of_elements(value, leaves, lambda given: _gradients(value, leaves, grad_outputs=given, retain_graph=True))
    if found is not None:
        return _apart(found)
    rows = [_gradients(element, leaves, retain_graph=True) for element in value.reshape(-1).unbind()]
    return tuple(_block([row[k] for row in rows], (*value.shape, *x.shape), x) for k, x in enumerate(leaves))


def _by_columns(value, leaves):
    """The same, by a pass for each element of the leaves: gradients are linear in the cotangent, and their derivatives
    for it are the columns."""
    cotangent = ones_like(value).requires_grad_()
    found = []
    for x, g in zip(leaves, _gradients(value, leaves, grad_outputs=cotangent, create_graph=True)):
        columns = of_elements(
            g, [value], lambda given, g=g: _gradients(g, [cotangent], grad_outputs=given, retain_graph=True)
        )
        if columns is None:
            columns = [_gradients(e, [cotangent], retain_graph=True)[0] for e in g.reshape(-1).unbind()]
            block = _block(columns, (*x.shape, *value.shape), x)
        else:
            (block,) = columns
        axes = [*range(x.ndim, block.ndim), *range(x.ndim)]
        found.append(block.permute(*axes).clone() if x.ndim or columns else block)
    return tuple(found)


def _apart(found):
    """Matrices of rows that were found together, which may be views: a program has none for a caller."""
    with no_grad():
        return tuple([x.clone() for x in found])


def _block(parts, shape, like):
    if not parts:
        return like.new_zeros(*shape)
    made = stack(parts)
    return made if made.shape == shape else made.reshape(*shape).clone()


def hessian(function, argnums=0):
    """The matrix of second derivatives, for arrays: `scipy.optimize.minimize(f, x, jac=..., hess=hessian(f))`.

    function, arguments and errors: as for `value_and_grad`. Returns a function that gives an array of shape
    (*x.shape, *x.shape), by one backward pass for each element of x.

    >>> hessian(lambda x: (x[0] * x[1]) ** 2)(np.array([1.0, 2.0]))
    array([[8., 8.],
           [8., 2.]])
    """
    if isinstance(argnums, tuple):
        raise TypeError(f"hessian: argnums must be one position, got {argnums}")

    def derive(value, leaves):
        _check_value("hessian", value)
        (x,) = leaves
        (gradient,) = _gradients(value, leaves, create_graph=True)
        found = of_elements(
            gradient, leaves, lambda given: _gradients(gradient, leaves, grad_outputs=given, retain_graph=True)
        )
        if found is not None:
            return _apart(found)
        rows = [_gradients(element, leaves, retain_graph=True)[0] for element in gradient.reshape(-1).unbind()]
        matrix = stack(rows) if rows else gradient.new_zeros(0)
        return (matrix if rows and x.ndim == 1 else matrix.reshape(*x.shape, *x.shape).clone(),)

    return Matrix("hessian", function, argnums, derive)


def hvp(function):
    """The Hessian times a vector, without the Hessian: `scipy.optimize.minimize(..., hessp=hvp(f))`.

    Returns a function of (x, vector, *args): `vector` has x's shape, and so has the result; x is the first argument of
    `function`, args are the others. See `value_and_grad`.

    >>> hvp(lambda x: (x**3).sum())(np.array([1.0, 2.0]), np.array([1.0, 0.5]))
    array([6., 6.])
    """
    if not callable(function):
        raise TypeError(f"hvp: expected a function of tensors, got {type(function).__name__}")

    def along(vector, *args, **kwargs):
        value = function(*args, **kwargs)
        _check_value("hvp", value)
        (gradient,) = _gradients(value, [args[0]], create_graph=True)
        return (gradient * vector).sum()

    return HessianTimesVector("hvp", wraps(function, updated=())(along), 0, _gradients, of=function)


def _gradients(value, leaves, **options):
    """The gradients of one element; zeros for what it does not depend on."""
    if not value.requires_grad:
        return tuple(zeros_like(x) for x in leaves)
    found = autograd.grad(value, leaves, allow_unused=True, **options)
    return tuple(zeros_like(x) if g is None else g for g, x in zip(found, leaves))


def _as_floats(name, value):
    """An array that can be differentiated for."""
    if isinstance(value, Tensor):
        raise TypeError(f"{name}: expected an array or a number to differentiate for, got a tensor; "
                        f"for tensors there is weft.func, or give x.numpy()")  # fmt: skip
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected an array of real numbers to differentiate for, got one of {array.dtype}")
    return array if array.dtype.char in "fd" and array.dtype.isnative else array.astype(np.float64)


def _as_array(value):
    """What shows itself as an array of numbers, as a column of pandas does, as that array; all else as it is."""
    if not hasattr(value, "__array__") or isinstance(value, (Tensor, np.generic, type)):
        return value
    array = np.asarray(value)
    return array if array.dtype.kind in "fiubc" else value


def _check_tensor(name, value, what):
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: the function must return {what}, got {type(value).__name__}")


def _check_value(name, value):
    _check_tensor(name, value, "a tensor of one element")
    if value.numel() != 1:
        raise RuntimeError(f"{name}: the function must return one element, got a tensor of shape {tuple(value.shape)}; "
                           "sum it, or take its mean")  # fmt: skip


def _handed_out(result):
    """An array that is the caller's alone."""
    array = result.array
    return array.copy() if array.nbytes <= COPIED_BYTES else result.numpy()


def _changed(value, kind, change):
    """Nested results with something else in place of what is of a kind."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {key: _changed(v, kind, change) for key, v in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_changed(v, kind, change) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


class _Place:
    """Where an array belongs in nested results."""


_PLACE = _Place()
_only = itemgetter(0)


def _filled_in(form, arrays):
    """Nested results as they were in an ordinary call, with these arrays."""
    arrays = iter(arrays)
    return _changed(form, _Place, lambda _: next(arrays))


def _is_remade(form):
    """Whether nothing in nested results but arrays could tell calls apart: containers are made anew for each."""
    if isinstance(form, dict):
        return all(map(_is_remade, form.values()))
    if isinstance(form, (tuple, list)):
        return all(map(_is_remade, form))
    return form is None or isinstance(form, (_Place, bool, int, float, complex, str, bytes))


PUBLIC = ["for_numpy", "value_and_grad", "grad", "jacobian", "hessian", "hvp"]
