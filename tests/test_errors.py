"""What a user reads when something does not fit: the message names the op, what was given, and what to do."""

import numpy as np
import pytest

import weft

nn = weft.nn.functional


def f(*shape, grad=False, dtype=weft.float32):
    return weft.ones(*shape, dtype=dtype).requires_grad_(grad)


def freed():
    y = (f(2, grad=True) ** 2).sum()
    y.backward()
    return y


def changed_after_saving():
    x = f(3, grad=True) * 1
    y = x**2
    x.add_(1)
    y.sum().backward()


def changed_output():
    y = f(3, grad=True).exp()
    y.mul_(2)
    y.sum().backward()


CASES = {
    # --- shapes
    "add: shapes (2, 3) and (4,) do not broadcast: last dimension 3 against 4": lambda: f(2, 3) + f(4),
    "mul: shapes (2, 3) and (3, 3) do not broadcast: dimension 0 2 against 3": lambda: f(2, 3) * f(3, 3),
    "where: shapes": lambda: weft.where(f(2) > 0, f(3), f(2)),
    "matmul: shapes (2, 3) and (4, 5) cannot be multiplied: 3 columns on the left, 4 rows": lambda: f(2, 3) @ f(4, 5),
    "matmul: both arguments need at least one dimension": lambda: f() @ f(2),
    "mm: both arguments must be matrices": lambda: f(2).mm(f(2)),
    "bmm: both arguments must have 3 dimensions": lambda: f(2, 2).bmm(f(2, 2)),
    "dot: 1D tensors expected": lambda: f(2, 2).dot(f(2)),
    "linear: input has shape (2, 5), weight (4, 3)": lambda: nn.linear(f(2, 5), f(4, 3)),
    "reshape: shape (4, 2) is invalid for input of size 6": lambda: f(2, 3).reshape(4, 2),
    "reshape: only one dimension can be inferred": lambda: f(2, 3).reshape(-1, -1),
    "view: shape (6,) is not compatible with input tensor's size (3, 2)": lambda: f(2, 3).t().view(6),
    "expand: shape (2,) cannot be expanded to (3,)": lambda: f(2).expand(3),
    "permute: dims (0, 0) is not an order of the 2 dimensions": lambda: f(2, 3).permute(0, 0),
    "t() expects a tensor with <= 2 dimensions": lambda: f(1, 2, 3).t(),
    "cat: tensor 1 has shape (2, 2), tensor 0 has (2, 3)": lambda: weft.cat([f(2, 3), f(2, 2)]),
    "cat: expected a non-empty list": lambda: weft.cat([]),
    "stack: expects each tensor to be equal size": lambda: weft.stack([f(2), f(3)]),
    "stack: expected Tensor as element 1 in argument 0, but got int": lambda: weft.stack([f(2), 3]),
    "split_with_sizes expects split_sizes to sum exactly to 5": lambda: f(5).split([2, 2]),
    "split expects split_size be positive": lambda: f(5).split(0),
    "chunk expects `chunks` to be greater than 0": lambda: f(5).chunk(0),
    "narrow: start (1) + length (3) exceeds dimension size (3)": lambda: f(3).narrow(0, 1, 3),
    "flatten() has invalid args": lambda: f(2, 3).flatten(1, 0),
    "gather: index (3, 1) does not fit input (2, 3)": lambda: f(2, 3).gather(1, weft.zeros(3, 1, dtype=weft.int64)),
    "Index is supposed to be a vector": lambda: f(2).index_select(0, weft.tensor([[0]])),
    "amax: shape (0, 2) has no elements along dim (0,)": lambda: f(0, 2).amax(0),
    "argmax: shape (0,) has no elements": lambda: f(0).argmax(),
    "sum: dim (0, -2) names a dimension twice": lambda: f(2, 3).sum((0, -2)),
    "Dimension out of range (expected to be in range of [-2, 1], but got 2)": lambda: f(2, 3).sum(2),
    "unsqueeze: Dimension out of range (expected to be in range of [-2, 1], but got 2)": lambda: f(2).unsqueeze(2),
    "layer_norm: weight is float32(2,)": lambda: nn.layer_norm(f(2, 3), (3,), f(2)),
    "Expected input batch_size": lambda: nn.nll_loss(f(2, 3), weft.tensor([1])),
    "add_: output with shape (3,) doesn't match the broadcast shape (2, 3)": lambda: f(3).add_(f(2, 3)),
    "negative dimension: (2, -1)": lambda: weft.zeros(2, -1),
    # --- types
    "matmul: left is float32, right is float64; convert one with .to(...)": lambda: (
        f(2, 2) @ f(2, 2, dtype=weft.float64)
    ),
    "matmul: not implemented for bool: needs a floating point tensor, got bool": lambda: (
        weft.tensor([[True]]) @ weft.tensor([[True]])
    ),
    "mean: needs a floating point tensor, got int64; convert with .float() first": lambda: weft.tensor([1]).mean(),
    "sub: bool tensors are not supported": lambda: weft.tensor([True]) - weft.tensor([True]),
    "bitwise_and: needs integer or bool operands, got float32": lambda: f(2) & True,
    "result type float32 can't be cast to the desired output type int64": lambda: weft.tensor([1]).add_(1.5),
    "integers to negative integer powers are not allowed": lambda: weft.tensor([2]) ** -1,
    "ZeroDivisionError": lambda: weft.tensor([2]) // weft.tensor([0]),
    "only Tensors of floating point and complex dtype can require gradients, this one is int64": lambda: weft.tensor(
        [1], requires_grad=True
    ),
    "gather: the index must be an int64 or int32 tensor": lambda: f(2).gather(0, f(2)),
    "indexing dimension 0: index -4 is out of bounds for a dimension of size 3": lambda: f(3)[weft.tensor([0, -4])],
    "gather: index 2 is out of bounds for a dimension of size 2": lambda: f(2).gather(0, weft.tensor([2])),
    "embedding: index out of range in self: index 5": lambda: weft.nn.functional.embedding(weft.tensor([5]), f(3, 2)),
    "embedding: Expected tensor for argument #1 'indices' to have": lambda: weft.nn.functional.embedding(
        weft.zeros(2), f(3, 2)
    ),
    "index_select: index 5 is out of bounds": lambda: f(2).index_select(0, weft.tensor([5])),
    "nll_loss: Target 3 is out of bounds for 3 classes": lambda: nn.nll_loss(f(1, 3), weft.tensor([3])),
    "nll_loss: target must be int64 class indices": lambda: nn.nll_loss(f(1, 3), f(1)),
    "dtype uint64 is not supported; convert to one of bool, uint8": lambda: weft.tensor(np.array([1], "u8")),
    "expected np.ndarray (got list)": lambda: weft.from_numpy([1]),
    "expected numbers in equally long nested lists": lambda: weft.tensor([[1], [1, 2]]),
    "only supports boolean masks": lambda: f(2).masked_fill(weft.tensor([1, 0]), 0.0),
    "clamp: At least one of 'min' or 'max' must not be None": lambda: f(2).clamp(),
    "norm: p must be a number or 'fro', got 'max'": lambda: f(2).norm("max"),
    "remainder(): needs a Tensor among its arguments": lambda: weft.remainder(1, 2),
    "exp(): argument 'input' must be Tensor, not float": lambda: weft.exp(1.0),
    "to: weft computes on the CPU, got 'cuda'": lambda: f(2).to("cuda"),
    "floating-point types are supported as the default type": lambda: weft.set_default_dtype(weft.int64),
    "expects low < high": lambda: weft.randint(3, 3, (2,)),
    "device string: gpu; weft computes on the CPU": lambda: weft.device("gpu"),
    "model.parameters() makes a new one": lambda: weft.optim.SGD([], lr=0.1),
    "weft.float32(2,) was computed by MulBackward0; give the tensors": lambda: weft.optim.SGD(
        [f(2, grad=True) * 2], lr=0.1
    ),
    "x[key] = value: the value has shape (2,), what is replaced (3,)": lambda: f(2, 3).__setitem__(0, f(2)),
    "export: loss cannot be one program: a value was read": lambda: weft.export(
        lambda x: x * float(x.sum() > 0), (f(2),), "loss"
    ),
    "learning rate: it must be a number, got str '1e-3'": lambda: weft.optim.Adam([f(2, grad=True)], lr="1e-3"),
    "matmul(): argument 'other' must be Tensor, not int": lambda: f(2, 2) @ 3,
    "argument 'pad' (position 2) must be tuple of ints, not int": lambda: nn.pad(f(2), 1),
    "argument 'normalized_shape' (position 2) must be tuple of ints, not int: [2]": lambda: nn.layer_norm(f(2), 2),
    "embedding(): argument 'weight' must be Tensor": lambda: nn.embedding(weft.tensor([0]), "w"),
    "arange(): bounds and step must be Number, not str": lambda: weft.arange("a"),
    "full(): argument 'fill_value' (position 2) must be Number, not str": lambda: weft.full((2,), "a"),
    "randint(): argument 'size' is missing": lambda: weft.randint(3),
    "stack(): argument 'tensors' (position 1) must be tuple of Tensors": lambda: weft.stack(f(2), f(2)),
    "a sequence of Tensors to differentiate, got 3": lambda: weft.autograd.grad(3, f(2)),
    "Linear is a class and not a module: write Linear(...)": lambda: weft.nn.Sequential(weft.nn.Linear),
    "weft.float32 is the dtype of this name": lambda: f(2).to("float32"),
    "export: expected a function or a module, got int": lambda: weft.export(3, (f(2),), "n"),
    "step must be nonzero": lambda: weft.arange(0, 3, 0),
    "upper bound and lower bound inconsistent": lambda: weft.arange(3, 0),
    # --- values
    "a Tensor with 2 elements cannot be converted to Scalar: shape (2,)": lambda: f(2).item(),
    "reduce it, as in .sum(), or take one, as in x[0]": lambda: float(f(2)),
    "Boolean value of Tensor with more than one value is ambiguous": lambda: bool(f(2)),
    "Boolean value of Tensor with no values is ambiguous": lambda: bool(f(0)),
    "only integer tensors of a single element can be an index": lambda: [1, 2][f()],
    "len() of a 0-d tensor": lambda: len(f()),
    "iteration over a 0-d tensor": lambda: list(f()),
    # --- autograd
    "grad can be implicitly created only for scalar outputs, this one has shape (2,)": lambda: f(
        2, grad=True
    ).backward(),
    "element 0 of tensors does not require grad and does not have a grad_fn": lambda: f().backward(),
    "Mismatch in shape: grad_output[0] has a shape of (2,) and output[0] has a shape of (3,)": lambda: (
        f(3, grad=True) * 2
    ).backward(f(2)),
    "Trying to backward through the graph a second time": lambda: freed().backward(),
    "at PowBackward0": lambda: freed().backward(),
    "Specify retain_graph=True": lambda: freed().backward(),
    "has been modified by an inplace operation: float32(3,), needed by PowBackward0, operand 0, is at version 1; "
    "expected version 0": changed_after_saving,
    "needed by ExpBackward0, output, is at version 1": changed_output,
    "a leaf Variable that requires grad is being used in an in-place operation": lambda: f(2, grad=True).add_(1),
    "a view of a leaf Variable that requires grad is being used in an in-place": lambda: f(2, grad=True)[0].add_(1),
    "One of the differentiated Tensors does not require grad": lambda: weft.autograd.grad(f(grad=True), f()),
    "`inputs` argument to `backward()` cannot be empty.": lambda: f(grad=True).backward(inputs=[]),
    "`inputs` argument to `grad()` cannot be empty.": lambda: weft.autograd.grad(f(grad=True), ()),
    "appears to not have been used in the graph. Set allow_unused=True": lambda: weft.autograd.grad(
        f(grad=True) * 2, f(grad=True)
    ),
    "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy()": lambda: f(2, grad=True).numpy(),
    "of np.sin(x), weft.sin(x) keeps the gradient": lambda: np.sin(f(2, grad=True)),
    "you can only change requires_grad flags of leaf variables": lambda: (f(2, grad=True) * 2).requires_grad_(False),
    "Only Tensors created explicitly by the user": lambda: __import__("copy").deepcopy(f(2, grad=True) * 2),
    "cannot register a hook on a tensor that doesn't require gradient": lambda: f(2).register_hook(print),
    "can't retain_grad on Tensor that has requires_grad=False": lambda: f(2).retain_grad(),
    "grad: assigned grad is float32(3,), the tensor is float32(2,)": lambda: setattr(f(2, grad=True), "grad", f(3)),
    "assigned grad expected to be a Tensor or None but got grad of type float": lambda: setattr(
        f(2, grad=True), "grad", 1.0
    ),
    "hook 'wrong' has changed the size or type of value": lambda: hooked(f(2, grad=True)).sum().backward(),
}


def hooked(x):
    def wrong(g):
        return g.sum()

    y = x * 2
    y.register_hook(wrong)
    return y


@pytest.mark.parametrize("message", list(CASES))
def test_message(message):
    with pytest.raises((RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)) as caught:
        CASES[message]()
    assert message in str(caught.value)


def test_shape_errors_are_value_and_runtime_errors():
    """PyTorch raises RuntimeError; ValueError is what NumPy's users expect."""
    for kind in (RuntimeError, ValueError):
        with pytest.raises(kind):
            f(2) + f(3)


def test_a_failed_op_changes_nothing():
    x = f(3)
    for action in (lambda: x.add_(f(2, 3)), lambda: x.__setitem__(5, 1), lambda: x.mul_(f(2))):
        with pytest.raises((RuntimeError, IndexError)):
            action()
    assert x.tolist() == [1, 1, 1] and x._version == 0


def test_grad_mode_survives_an_error_in_backward():
    with pytest.raises(RuntimeError):
        freed().backward()
    assert weft.is_grad_enabled()


def _without_inputs(ns, call):
    x = ns.ones(2, requires_grad=True)
    loss = (x * x).sum()
    with pytest.raises(RuntimeError) as raised:
        call(ns, loss)
    loss.backward()  # nothing was freed
    assert x.grad.tolist() == [2, 2]
    return str(raised.value)


WITHOUT_INPUTS = {
    "method": lambda ns, loss: loss.backward(inputs=[]),
    "backward": lambda ns, loss: ns.autograd.backward(loss, inputs=()),
    "grad": lambda ns, loss: ns.autograd.grad(loss, []),
}


@pytest.mark.parametrize("name", WITHOUT_INPUTS)
def test_no_inputs_are_refused_and_change_nothing(name):
    """An empty list is a mistake, not a wish for no gradients: in eager mode and in a compiled call."""
    message = _without_inputs(weft, WITHOUT_INPUTS[name])
    compiled = weft.compile(lambda: _without_inputs(weft, WITHOUT_INPUTS[name]))
    assert [compiled(), compiled()] == [message, message]


@pytest.mark.oracle
@pytest.mark.parametrize("name", WITHOUT_INPUTS)
def test_no_inputs_are_refused_in_the_words_of_torch(name):
    torch = pytest.importorskip("torch")
    assert _without_inputs(weft, WITHOUT_INPUTS[name]) == _without_inputs(torch, WITHOUT_INPUTS[name])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: weft.nn.Linear(3, 2)(x),
        lambda x: weft.nn.LayerNorm(3)(x),
        lambda x: nn.mse_loss(weft.ones(2, 3), x),
    ],
)
def test_an_array_where_a_tensor_is_meant(call):
    """The text is not that of the whole array, and says how to go on."""
    with pytest.raises(
        TypeError, match=r"got ndarray of shape \(2, 3\).*weft\.tensor\(array\).*weft\.for_numpy"
    ) as raised:
        call(np.ones((2, 3), np.float32))
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("call", [nn.mse_loss, nn.l1_loss, nn.smooth_l1_loss, nn.binary_cross_entropy_with_logits])
def test_an_array_where_a_tensor_is_meant_is_an_error_every_time(call):
    """The second call of an op is the one that makes a plan for those that follow."""
    given = weft.ones(5, 3)
    for _ in range(3):
        for array in (np.ones((5, 3), np.float32), np.ones(3, np.float32), np.ones((5, 3))):
            with pytest.raises((TypeError, ValueError, AttributeError)):
                call(given, array)
        assert call(given, weft.ones(5, 3)).shape == ()
