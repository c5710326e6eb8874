"""`weft.autograd.functional`: derivatives of a function of tensors, by backward passes.

    vjp       one backward pass                             jacobian   one per element of the outputs
    jvp       two: the second is the derivative of the      hessian    one per element of the inputs, each through the
              first with respect to its cotangent                      graph of the gradient
    vhp       two                                           hvp        three

Where there are more than a few elements, their passes are one, for all of them at once (rows_at_once.py), unless
`strict` asks about each. There is no forward mode: `strategy="forward-mode"` and `vectorize=True` give the same result
at the cost above. Inside a compiled call all passes are part of its program.

>>> import weft
>>> jacobian(lambda x: x * x, weft.tensor([1.0, 2.0]))
tensor([[2., 0.],
        [0., 4.]])
"""

from .autograd import grad
from .creation import ones_like, zeros_like
from .public import of_module
from .reference import document
from .rows_at_once import of_elements
from .runtime.state.modes import enable_grad, set_grad_enabled, state
from .runtime.state.tensor import Tensor
from .shaping import stack

__getattr__, __dir__ = of_module(f"{__name__.partition('.')[0]}.autograd.functional")

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_FUNCTION_OUTPUTS = "outputs of the user-provided function"
_STRATEGIES = ("forward-mode", "reverse-mode")


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), v^T J): the product of a cotangent v, shaped as the outputs, with the Jacobian.

    inputs: a tensor or a tuple of them. v may be left out if there is one output with one element. create_graph: let
    the results be differentiated further. strict: RuntimeError where an input has no influence, instead of zeros.
    """
    with enable_grad():
        several, inputs = tensors_of(inputs, "inputs", "vjp")
        inputs = _leaves(inputs, create_graph)
        several_out, outputs = tensors_of(func(*inputs), _FUNCTION_OUTPUTS, "vjp")
        _require_grads(outputs, _NO_GRADIENT, strict)
        v = _vector(v, outputs, several_out, create_graph, "vjp", "returns a single Tensor with a single element")
    with set_grad_enabled(create_graph or state.grad_enabled):
        found = _filled(_grad(outputs, inputs, v, create_graph), inputs, strict, create_graph, _INDEPENDENT, "jacobian")
    return _result(outputs, several_out, create_graph), _result(found, several, create_graph)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), J v): the product of the Jacobian with a tangent v, shaped as the inputs."""
    with enable_grad():
        several, inputs = tensors_of(inputs, "inputs", "jvp")
        inputs = _leaves(inputs, create_graph)
        v = _vector(v, inputs, several, create_graph, "jvp", _SINGLE_INPUT)
        several_out, outputs = tensors_of(func(*inputs), _FUNCTION_OUTPUTS, "jvp")
        _require_grads(outputs, _NO_GRADIENT, strict)
        # The gradient is linear in its cotangent: its derivative there is the Jacobian, transposed.
        cotangents = tuple(ones_like(out).requires_grad_() for out in outputs)
        gradients = _grad(outputs, inputs, cotangents, True)
        _require_grads(gradients, _NO_SECOND, strict)
    with set_grad_enabled(create_graph or state.grad_enabled):
        found = _grad(gradients, cotangents, v, create_graph)
        found = _filled(found, outputs, strict, create_graph, _INDEPENDENT_TRICK, "jacobian")
    return _result(outputs, several_out, create_graph), _result(found, several_out, create_graph)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The derivatives of every element of the outputs for every element of the inputs, of shape (*output, *input).

    With tuples of outputs, of inputs, or of both, tuples of these.
    """
    _check_strategy(strategy, strict, vectorize, create_graph)
    with enable_grad():
        several, inputs = tensors_of(inputs, "inputs", "jacobian")
        inputs = _leaves(inputs, create_graph)
        several_out, outputs = tensors_of(func(*inputs), _FUNCTION_OUTPUTS, "jacobian")
        _require_grads(outputs, _NO_GRADIENT, strict)
        rows = tuple(_jacobian_of(k, out, inputs, create_graph, strict) for k, out in enumerate(outputs))
    rows = tuple(_result(row, several, create_graph) for row in rows)
    return rows if several_out else rows[0]


def _jacobian_of(number, output, inputs, create_graph, strict):
    """One tensor per input."""
    if not strict:
        found = of_elements(
            output, inputs, lambda given: _grad((output,), inputs, given, create_graph, retain_graph=True)
        )
        if found is not None:
            return tuple(found)
    columns = [[] for _ in inputs]
    for element in output.reshape(-1).unbind():
        for k, gradient in enumerate(_grad((element,), inputs, None, create_graph, retain_graph=True)):
            if gradient is None and strict:
                raise RuntimeError(
                    f"Output {number} of the user-provided function is independent of input {k}. This is not allowed "
                    "in strict mode."
                )
            if strict and create_graph and not gradient.requires_grad:
                raise RuntimeError(
                    f"The jacobian of the user-provided function is independent of input {k}. This is not allowed in "
                    "strict mode when create_graph=True."
                )
            columns[k].append(zeros_like(inputs[k]) if gradient is None else gradient)
    return tuple(
        stack(column).reshape(*output.shape, *x.shape) if column else x.new_zeros(*output.shape, *x.shape)
        for column, x in zip(columns, inputs)
    )


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a function that returns one element, of shape (*input, *input).

    With a tuple of inputs, a tuple of tuples of these.
    """
    several, inputs = tensors_of(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in _STRATEGIES:
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def gradient_of(*inputs):
        found = jacobian(lambda *xs: _scalar(func(*xs), "hessian", strict), inputs, create_graph=True)
        _require_grads(found, _NO_JACOBIAN, strict)
        return found

    found = jacobian(gradient_of, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if several else found[0][0]


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), v^T H): the product of a vector v, shaped as the inputs, with the Hessian."""
    several, inputs, v, output, gradients = _gradient(func, inputs, v, create_graph, strict, "vhp")
    with set_grad_enabled(create_graph or state.grad_enabled):
        found = _filled(
            _grad(gradients, inputs, v, create_graph), inputs, strict, create_graph, _NO_INFLUENCE, "hessian"
        )
    return _result((output,), False, create_graph), _result(found, several, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), H v). H is symmetric where the second derivatives are continuous: `vhp` costs a pass less."""
    several, inputs, v, output, gradients = _gradient(func, inputs, v, create_graph, strict, "hvp")
    with enable_grad():
        cotangents = tuple(ones_like(x).requires_grad_() for x in inputs)
        twice = _grad(gradients, inputs, cotangents, True)
        _require_grads(twice, _NO_JACOBIAN, strict)
    with set_grad_enabled(create_graph or state.grad_enabled):
        found = _grad(twice, cotangents, v, create_graph)
        found = _filled(found, inputs, strict, create_graph, _INDEPENDENT_DOUBLE, "hessian")
    return _result((output,), False, create_graph), _result(found, several, create_graph)


def _gradient(func, inputs, v, create_graph, strict, name):
    """What both products with the Hessian begin with: the gradient, with a graph."""
    with enable_grad():
        several, inputs = tensors_of(inputs, "inputs", name)
        inputs = _leaves(inputs, create_graph)
        v = _vector(v, inputs, several, create_graph, name, _SINGLE_INPUT)
        output = _scalar(func(*inputs), name, strict)
        gradients = _grad((output,), inputs, None, True)
        _require_grads(gradients, _NO_JACOBIAN, strict)
    return several, inputs, v, output, gradients


# --- what is given ----------------------------------------------------------------------------------------------------
def tensors_of(given, what, name):
    """(whether it was a tuple, a tuple of tensors)."""
    several = isinstance(given, tuple)
    found = given if several else (given,)
    for k, x in enumerate(found):
        if not isinstance(x, Tensor):
            which = f"value at index {k}" if several else f"given {what}"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the {which} has type "
                f"{type(x)}."
            )
    return several, found


def _leaves(inputs, create_graph):
    """Tensors to differentiate for: views of those that are to be part of a larger graph, else new leaves."""
    return tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in inputs)


def _vector(v, others, several, create_graph, name, needed):
    """v as a tuple, with the shapes of `others`; None if it may be left out."""
    if v is None:
        if len(others) != 1 or others[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if the {_subject(name)} {needed}.")
        return None
    _, v = tensors_of(v, "v", name)
    if len(v) != len(others):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(others)} but got {len(v)}."
            if several
            else "The given v should contain a single Tensor."
        )
    for k, (x, other) in enumerate(zip(v, others)):
        if x.shape != other.shape:
            entry = f"Entry {k} in " if several else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {_size(other)} but got {_size(x)}.")
    return tuple(x if create_graph else x.detach() for x in v)


def _size(x):
    """A shape as PyTorch's messages name it."""
    return f"torch.Size({list(x.shape)})"


def _subject(name):
    return "user-provided function" if name == "vjp" else "input to the user-provided function"


_SINGLE_INPUT = "is a single Tensor with a single element"


def _scalar(output, name, strict):
    several, outputs = tensors_of(output, _FUNCTION_OUTPUTS, name)
    _require_grads(outputs, _NO_GRADIENT, strict)
    if several:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if output.numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
    return output.reshape(())


def _check_strategy(strategy, strict, vectorize, create_graph):
    if strategy not in _STRATEGIES:
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    if strict and (vectorize or strategy == "forward-mode"):
        what = "vectorize=True" if vectorize else 'strategy="forward-mode"'
        raise RuntimeError(f"jacobian: `strict=True` and `{what}` are not supported together; set strict=False")


# --- gradients and what is missing of them ----------------------------------------------------------------------------
_NO_GRADIENT = (
    "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode."
)
_NO_SECOND = (
    "The gradient with respect to input {} is independent of the inputs of the user-provided function. This is not "
    "allowed in strict mode."
)
_NO_JACOBIAN = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is "
    "independent of the input. This is not allowed in strict mode. You should ensure that your function is twice "
    "differentiable and that the jacobian depends on the inputs (this would be violated by a linear function)."
)
_INDEPENDENT = (
    "The output of the user-provided function is independent of input {}. This is not allowed in strict mode."
)
_INDEPENDENT_TRICK = (
    "The gradient with respect to the input is independent of entry {} in the grad_outputs. This is not allowed in "
    "strict mode."
)
_NO_INFLUENCE = (
    "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode."
)
_INDEPENDENT_DOUBLE = (
    "The hessian of the user-provided function is independent of entry {} in the grad_jacobian. This is not allowed in "
    "strict mode."
)


def _grad(outputs, inputs, cotangents, create_graph, retain_graph=None):
    """autograd.grad of those outputs that have a graph; None where nothing arrives."""
    given = cotangents or (None,) * len(outputs)
    pairs = [(out, c) for out, c in zip(outputs, given) if out is not None and out.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    outputs, cotangents = zip(*pairs)
    retain_graph = create_graph if retain_graph is None else retain_graph
    return grad(outputs, inputs, cotangents, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True)


def _require_grads(tensors, message, strict):
    for k, x in enumerate(tensors):
        if strict and x is None:
            raise RuntimeError(_INDEPENDENT.format(k))
        if strict and not x.requires_grad:
            raise RuntimeError(message.format(k))


def _filled(gradients, like, strict, create_graph, message, what):
    """The gradients, with zeros where nothing arrived."""
    for k, gradient in enumerate(gradients):
        if strict and gradient is None:
            raise RuntimeError(message.format(k))
        if strict and create_graph and not gradient.requires_grad:
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {k}. This is not allowed in strict "
                "mode when create_graph=True."
            )
    return tuple(zeros_like(x) if g is None else g for g, x in zip(gradients, like))


def _result(tensors, several, create_graph):
    found = tuple(x if create_graph else x.detach() for x in tensors)
    return found if several else found[0]


document("autograd.functional", __name__)
