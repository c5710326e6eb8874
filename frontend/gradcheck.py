"""`autograd.gradcheck`: derivatives against differences of the function's values.

Every element of every input is moved by eps to both sides; every element of every output is differentiated by a
backward pass. So the cost is that of 2 calls per element of the inputs and 2 backward passes per element of the
outputs: use small tensors, of float64.
"""

import warnings

import numpy as np

from .compiler.dtypes import complex128, float64
from .compiler.later import later
from .complex_numbers import view_as_real
from .creation import randn_like, zeros_like
from .forward_ad import dual_level, make_dual, unpack_dual
from .iterables import listed
from .runtime.eager import engine
from .runtime.eager.node import edge_of
from .runtime.eager.sparse_cotangents import WrongLayout
from .runtime.state.modes import enable_grad
from .runtime.state.random import default_generator
from .runtime.state.tensor import Tensor, tensor_of
from .shaping import stack

_through_values = later("sparse.checks:through_values")
_vmap = later("vmapping:vmap")

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """Derivatives and differences do not agree."""


def gradcheck(
    func,
    inputs,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_batched_forward_grad=False,
    check_forward_ad=False,
    check_backward_ad=True,
    fast_mode=False,
    masked=None,
):
    """Whether backward of func(*inputs) agrees with differences, within atol + rtol * |difference|, for all inputs that
    require gradients. Of complex numbers both parts are moved and compared.

    GradcheckError says where they do not agree, unless raise_exception is False: then the result is False. nondet_tol:
    how much two backward passes may differ. check_forward_ad: check the tangents of forward mode (autograd.forward_ad)
    too. check_undefined_grad: check that hooks and the backward of Functions take None, for outputs that have no
    gradient, like zeros, and that no tangent is like one of zeros. check_batched_grad, check_batched_forward_grad:
    check that derivatives are the same for rows of a batch in func.vmap, which those that draw random numbers or keep
    count of their calls are not. fast_mode changes nothing.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    func, inputs = _on_strided(func, tuple(listed(inputs)))
    _check_inputs(inputs)
    try:
        _check(func, inputs, eps, (rtol, atol), nondet_tol, check_backward_ad, check_forward_ad)
        if check_backward_ad and check_undefined_grad:
            _check_missing_cotangents(func, inputs)
        if check_forward_ad and check_undefined_grad:
            _check_zero_tangents(func, inputs, [x for x in inputs if isinstance(x, Tensor) and x.requires_grad])
        if check_batched_forward_grad:
            _check_tangents_of_rows(func, inputs)
        if check_batched_grad and check_backward_ad:
            _check_gradients_of_rows(func, inputs)
    except (GradcheckError, WrongLayout):
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func,
    inputs,
    grad_outputs=None,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    gen_non_contig_grad_outputs=False,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_fwd_over_rev=False,
    check_rev_over_rev=True,
    fast_mode=False,
    masked=False,
):
    """gradcheck of the gradient, as a function of inputs and cotangents `grad_outputs` (drawn if not given)."""
    func, inputs = _on_strided(func, tuple(listed(inputs)))
    _check_inputs(inputs)
    if grad_outputs is None:
        # With gradients: the function may look whether its values require them.
        with enable_grad():
            outputs = _outputs(func, inputs)
        grad_outputs = [randn_like(out.detach()).requires_grad_() for out in outputs]
        if gen_non_contig_grad_outputs:
            grad_outputs = [_spread(g) for g in grad_outputs]
    grad_outputs = tuple(listed(grad_outputs))
    n_inputs = len(inputs)

    def gradient(*args):
        given, cotangents = args[:n_inputs], args[n_inputs:]
        leaves = [x for x, y in zip(given, inputs) if isinstance(y, Tensor) and y.requires_grad]
        for x in leaves:
            # Dual numbers come without.
            x.requires_grad_()
        found = _gradients(_outputs(func, given), leaves, cotangents, create_graph=True)
        return tuple(zeros_like(x) if g is None else g for g, x in zip(found, leaves))

    return gradcheck(
        gradient,
        (*inputs, *grad_outputs),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )


def _on_strided(func, inputs):
    """The function and its inputs, of which none is sparse."""
    if any(isinstance(x, Tensor) and not x.has_array for x in inputs):
        return _through_values(func, inputs)
    return func, inputs


def _spread(x):
    """The same values with gaps between them."""
    wide = x.detach().unsqueeze(-1).expand(*x.shape, 2).contiguous()
    return wide.select(-1, 0).requires_grad_()


def _check_inputs(inputs):
    leaves = [(k, x) for k, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not leaves:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )
    for k, x in leaves:
        if x.dtype not in (float64, complex128):
            warnings.warn(
                f"Input #{k} requires gradient and is not a double precision floating point. This check will likely "
                "fail if all the inputs are not of double precision floating point.",
                stacklevel=3,
            )
        if x.numel() and any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape)):
            raise RuntimeError(
                f"The {k}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call .contiguous "
                "on the input before passing it to gradcheck."
            )


def _outputs(func, inputs):
    """The outputs that can have derivatives."""
    result = func(*inputs)
    found = [result] if isinstance(result, Tensor) else list(result)
    if any(isinstance(x, Tensor) and not x.has_array for x in found):
        raise ValueError(
            "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of "
            "fn for gradcheck."
        )
    # The parts of a complex output are outputs.
    found = [view_as_real(x) if isinstance(x, Tensor) and x.dtype.is_complex else x for x in found]
    return [x for x in found if isinstance(x, Tensor) and x.dtype.is_floating_point]


def _gradients(outputs, inputs, cotangents, create_graph=False):
    """The gradient of every input; None where nothing arrives."""
    pairs = [(out, c) for out, c in zip(outputs, cotangents) if out.requires_grad]
    roots = [(edge_of(out), c) for out, c in pairs]
    wanted = [edge_of(x) for x in inputs]
    found = engine.run(roots, retain_graph=True, create_graph=create_graph, wanted=wanted)
    for g in found:
        if g is not None and not g.has_array:
            raise GradcheckError(f"grad is incorrect layout ({g.layout!r} is not weft.strided)")
    return found


def _check(func, inputs, eps, tolerances, nondet_tol, backward, forward):
    __tracebackhide__ = True
    leaves = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    with enable_grad():
        outputs = _outputs(func, inputs)
    differences = _differences(func, inputs, leaves, outputs, eps)
    for k, out in enumerate(outputs):
        if not out.requires_grad and backward:
            if any((block[k] != 0).any() for block in differences):
                raise GradcheckError("Numerical gradient for function expected to be zero")
        elif backward:
            _check_output(k, out, leaves, differences, tolerances, nondet_tol)
    if backward:
        _check_scaling(outputs, leaves)
    if forward:
        _check_forward(func, inputs, leaves, outputs, differences, tolerances)


def _differences(func, inputs, leaves, outputs, eps):
    """[input][output] -> matrix (elements of the input, elements of the output) of central differences."""
    found = []
    for leaf in leaves:
        rows = [[] for _ in outputs]
        for memory, index in _numbers_of(leaf.detach().numpy()):
            start = memory[index].item()
            sides = []
            for side in (eps, -eps):
                memory[index] = start + side
                with enable_grad():
                    sides.append([out.detach().clone().numpy() for out in _outputs(func, inputs)])
                memory[index] = start
                _check_alike(sides[-1], outputs)
            for row, above, below in zip(rows, *sides):
                row.append((above - below).reshape(-1) / (2 * eps))
        found.append([np.array(r).reshape(len(r), out.numel()) for r, out in zip(rows, outputs)])
    return found


def _numbers_of(array):
    """(array, index) of every real number that an array is made of: a complex one has two."""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    return [(part, index) for index in np.ndindex(array.shape) for part in parts]


def _as_numbers(array):
    """The same numbers in a row."""
    row = np.ascontiguousarray(array).reshape(-1)
    return row.view(row.real.dtype) if row.dtype.kind == "c" else row


def _check_alike(found, outputs):
    for a, b in zip(found, outputs):
        for word, now, before in (("shape", a.shape, tuple(b.shape)), ("dtype", a.dtype, b.detach().numpy().dtype)):
            if now != before:
                raise AssertionError(
                    f"gradcheck: the function must return outputs with the same {word} when inputs are perturbed; it "
                    f"returned {before}, and {now} where an element of an input is eps greater or smaller"
                )


def _check_output(number, out, leaves, differences, tolerances, nondet_tol):
    """Compare the derivatives of one output."""
    __tracebackhide__ = True
    columns = [[] for _ in leaves]
    for position in range(out.numel()):
        cotangent = zeros_like(out)
        cotangent.reshape(-1)[position] = 1.0
        found, again = (_as_arrays(_gradients([out], leaves, [cotangent]), leaves) for _ in range(2))
        for column, one, other in zip(columns, found, again):
            if not np.all(np.abs(one - other) <= nondet_tol) and not np.array_equal(one, other, equal_nan=True):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                    f"gives different values. The tolerance for nondeterminism was {nondet_tol}."
                )
            column.append(one)
    for k, (column, block) in enumerate(zip(columns, differences)):
        derivative = np.array(column).reshape(out.numel(), block[number].shape[0]).T
        message = f"Jacobian mismatch for output {number} with respect to input {k}"
        for words, part in _parts_of(out):
            _compare(derivative[:, part], block[number][:, part], tolerances, words + message)


def _parts_of(out):
    """(words, columns) of what is compared by itself: of a complex output its imaginary parts first."""
    if out._base is None or not out._base.dtype.is_complex:
        return [("", slice(None))]
    words = "While considering the {} part of complex outputs only, "
    return [(words.format("imaginary"), slice(1, None, 2)), (words.format("real"), slice(0, None, 2))]


def _as_arrays(gradients, leaves):
    arrays = [np.zeros(x.shape, x.dtype.numpy) if g is None else g.detach().numpy() for g, x in zip(gradients, leaves)]
    return [_as_numbers(array) for array in arrays]


def _compare(derivative, difference, tolerances, message):
    __tracebackhide__ = True
    relative, absolute = tolerances
    if not np.allclose(derivative, difference, relative, absolute, equal_nan=True):
        raise GradcheckError(f"{message},\nnumerical:{difference}\nanalytical:{derivative}\n")


def _check_scaling(outputs, leaves):
    """The gradient for cotangents of zero must be zero."""
    outputs = [out for out in outputs if out.requires_grad]
    found = _gradients(outputs, leaves, [zeros_like(out) for out in outputs])
    if any(g is not None and (g != 0).any().item() for g in found):
        raise GradcheckError("backward not multiplied by grad_output")


def _check_missing_cotangents(func, inputs):
    """No gradient of an output must mean the same as one of zeros: of all outputs at once, and of each of several."""
    leaves = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    with enable_grad():
        n_outputs = len(_outputs(func, inputs))
    for missing in [range(n_outputs), *([k] for k in range(n_outputs) if n_outputs > 1)]:
        with enable_grad():
            outputs = _outputs(func, inputs)
        cotangents = [None if k in missing else zeros_like(out) for k, out in enumerate(outputs)]
        try:
            found = _gradients(outputs, leaves, cotangents)
        except RuntimeError as error:
            warnings.warn(
                "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but "
                "it may break existing callers of this function. If this is true for you, you can call this function "
                'with "check_undefined_grad=False" to disable the feature',
                stacklevel=4,
            )
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads (None, of output {list(missing)}): "
                "a hook, or the backward of a Function, has raised an error"
            ) from error
        if any(g is not None and (g != 0).any().item() for g in found):
            raise GradcheckError(
                "Expected all inputs to have undefined or zero grads, as outputs have (a gradient of None, of output "
                f"{list(missing)}, and zeros otherwise)"
            )


# --- forward mode -----------------------------------------------------------------------------------------------------
def _check_forward(func, inputs, leaves, outputs, differences, tolerances):
    """Compare the columns of the Jacobian, each from a call with dual numbers, with the differences."""
    for k, leaf in enumerate(leaves):
        rows = [[] for _ in outputs]
        unit = np.zeros(leaf.shape, leaf.dtype.numpy)
        for memory, index in _numbers_of(unit):
            memory[index] = 1
            found = _tangents(func, inputs, {id(leaf): tensor_of(unit.copy())})
            memory[index] = 0
            for row, tangent, out in zip(rows, found, outputs):
                row.append(np.zeros(out.numel()) if tangent is None else _as_numbers(tangent.detach().numpy()))
        for number, (row, out) in enumerate(zip(rows, outputs)):
            derivative = np.array(row).reshape(len(row), out.numel())
            message = f"Jacobian computed with forward mode mismatch for output {number} with respect to input {k}"
            _compare(derivative, differences[k][number], tolerances, message)


def _tangents(func, inputs, given, plain=None):
    """The tangents of the outputs, for these tangents of inputs by their id and zeros for all other inputs that require
    gradients; `plain` is the one that has none."""
    with dual_level():
        duals = []
        for x in inputs:
            if isinstance(x, Tensor) and x.requires_grad:
                tangent = given.get(id(x))
                start = x.detach()
                x = start if x is plain else make_dual(start, zeros_like(start) if tangent is None else tangent)
            duals.append(x)
        return [unpack_dual(out).tangent for out in _outputs(func, duals)]


def _check_zero_tangents(func, inputs, leaves):
    """No tangent must mean the same as one of zeros."""
    given = {id(x): randn_like(x.detach()) for x in leaves}
    for leaf in leaves:
        others = {key: tangent for key, tangent in given.items() if key != id(leaf)}
        pairs = zip(_tangents(func, inputs, others), _tangents(func, inputs, others, plain=leaf))
        for k, (one, other) in enumerate(pairs):
            shown = [np.zeros(()) if t is None else t.detach().numpy() for t in (one, other)]
            if not np.allclose(*shown, equal_nan=True):
                raise GradcheckError(f"Expected a missing tangent to be like one of zeros, but output {k} has another")


# --- rows of a batch --------------------------------------------------------------------------------------------------
def _check_gradients_of_rows(func, inputs):
    leaves = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    with enable_grad():
        outputs = [out for out in _outputs(func, inputs) if out.requires_grad]
    for k, out in enumerate(outputs):

        def gradients(cotangent, out=out):
            return _or_zeros(_gradients([out], leaves, [cotangent]), leaves)

        _check_rows(gradients, out, f"of output {k}")


def _check_tangents_of_rows(func, inputs):
    for k, leaf in enumerate(inputs):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            others = [x.detach() if isinstance(x, Tensor) and x is not leaf else x for x in inputs]
            outputs = [out.detach() for out in _outputs(func, inputs)]

            def tangents(row, leaf=leaf, others=others, outputs=outputs):
                return _or_zeros(_tangents(func, others, {id(leaf): row}), outputs)

            _check_rows(tangents, leaf, f"with respect to input {k}, computed with forward mode")


def _or_zeros(found, like):
    return tuple(zeros_like(x) if g is None else g.detach() for g, x in zip(found, like))


def _check_rows(derivatives, like, words):
    """What a function gives for two rows in vmap must be what it gives for each of them."""
    rows = [randn_like(like.detach()) for _ in range(2)]
    expected = [stack(column) for column in zip(*map(derivatives, rows))]
    batch, before = stack(rows), default_generator.__getstate__()[1]
    found = _vmap(derivatives, randomness="different")(batch)
    if default_generator.__getstate__()[1] != before:
        raise GradcheckError(
            f"While computing batched gradients, got: vmap: We do not yet support calling random operations inside of "
            f"vmap: the derivative {words} draws random numbers"
        )
    for one, other in zip(found, expected):
        if not np.allclose(one.detach().numpy(), other.detach().numpy(), equal_nan=True):
            raise GradcheckError(
                f"gradcheck or gradgradcheck failed while testing batched gradient computation: the derivative {words} "
                f"is {one} in vmap, and {other} row by row"
            )
