"""Inference tensors: what is made in inference_mode, and what may be done with it outside, as PyTorch says.

The tables are run on both libraries: each line is what weft or PyTorch answers, or the key words of the error.
"""

import numpy as np
import pytest

import weft


def made(library, requires_grad=False):
    with library.inference_mode():
        return library.ones(2, 3, requires_grad=requires_grad)


def ordinary(library, requires_grad=True):
    return library.ones(2, 3, requires_grad=requires_grad) * 1


def set_without_gradients(library, x):
    with library.no_grad():
        x[0] = 1


KINDS = {
    "a view": lambda ns, x: x.view(-1),
    "a slice": lambda ns, x: x[0],
    "detached": lambda ns, x: x.detach(),
    "data": lambda ns, x: x.data,
    "a copy": lambda ns, x: x.clone(),
    "computed": lambda ns, x: x * 2,
    "the same": lambda ns, x: x.contiguous(),
}


def kinds(library):
    """What outside is an inference tensor, of one made inside; and inside, of an ordinary one."""
    outside = {name: make(library, made(library)).is_inference() for name, make in KINDS.items()}
    x = ordinary(library)
    with library.inference_mode():
        inside = {name: make(library, x) for name, make in KINDS.items()}
    return outside, {name: (y.is_inference(), y.requires_grad, y.is_leaf) for name, y in inside.items() if y is not x}


REFUSED = {
    "added to": lambda ns: made(ns).add_(1),
    "set to zero": lambda ns: made(ns).zero_(),
    "a part assigned": lambda ns: made(ns).__setitem__(0, 1.0),
    "without gradients": lambda ns: set_without_gradients(ns, made(ns)),
    "transposed": lambda ns: made(ns).transpose_(0, 1),
    "a view of it": lambda ns: made(ns).view(-1).mul_(2),
    "as out": lambda ns: ns.mul(ns.ones(2, 3), 2, out=made(ns)),
    "a leaf": lambda ns: made(ns, requires_grad=True).add_(1),
    "required": lambda ns: made(ns).requires_grad_(),
    "saved by a product": lambda ns: made(ns) * ordinary(ns),
    "saved in place": lambda ns: ordinary(ns).mul_(made(ns)),
    "saved by a function": lambda ns: _saving(ns).apply(ordinary(ns), made(ns)),
    "a view made inside": lambda ns: _viewed_inside(ns)[1].add_(2),
    "and transposed": lambda ns: _viewed_inside(ns)[1].transpose_(0, 0),
    "history after a change": lambda ns: _changed_after(ns, lambda x: x.add_(2)).grad_fn,
    "used after a change": lambda ns: _changed_after(ns, lambda x: x.add_(2)) * 2,
    "history of a transposed one": lambda ns: _changed_after(ns, lambda x: x.transpose_(0, 1)).grad_fn,
}

KEY_WORDS = (
    "Inplace update to inference tensor outside InferenceMode is not allowed",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed",
    "Inference tensors cannot be saved for backward",
    "A view was created in inference mode and is being modified inplace in normal mode",
    "A view was created in inference mode and its base or another view of its base has been modified inplace",
)


def _saving(library):
    class Saving(library.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None

    return Saving


def _viewed_inside(library):
    x = ordinary(library)
    with library.inference_mode():
        return x, x.view(-1)


def _changed_after(library, change):
    x, view = _viewed_inside(library)
    change(x)
    return view


def refusal(library, name):
    """The key words of the error."""
    with pytest.raises(RuntimeError) as caught:
        REFUSED[name](library)
    found = [words for words in KEY_WORDS if words in str(caught.value)]
    assert len(found) == 1, str(caught.value)
    return found


@pytest.mark.oracle
def test_what_is_an_inference_tensor_is_one_in_pytorch():
    torch = pytest.importorskip("torch")
    assert kinds(weft) == kinds(torch)


@pytest.mark.oracle
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_by_pytorch(name):
    assert refusal(weft, name) == refusal(pytest.importorskip("torch"), name)


@pytest.mark.parametrize("name", ["added to", "saved by a product", "a view made inside", "used after a change"])
def test_errors_say_what_to_do(name):
    with pytest.raises(RuntimeError, match="clone|move both"):
        REFUSED[name](weft)


def test_inside_everything_goes():
    with weft.inference_mode():
        x = weft.ones(2, 3, requires_grad=True)
        x.add_(2)
        x[0] = 5
        assert x.is_inference() and x.requires_grad and not (x * 2).requires_grad and not x.view(-1).requires_grad
        assert x.resize_(1, 2).tolist() == [[5, 5]] and x.transpose_(0, 1).tolist() == [[5], [5]]
        with weft.inference_mode(False):
            assert weft.is_grad_enabled() and not weft.ones(1).is_inference()
        with weft.enable_grad():
            assert (weft.ones(1, requires_grad=True) * 2).is_inference()
    assert not weft.ones(1).is_inference()


def test_gradients_flow_where_nothing_is_saved():
    x, constant = ordinary(weft), made(weft)
    (x + constant).sum().backward(retain_graph=True)
    leaf = weft.ones(2, 3, requires_grad=True)
    (leaf * made(weft).clone()).sum().backward()
    assert leaf.grad.tolist() == [[1] * 3] * 2
    assert leaf[weft.tensor([0])].requires_grad


def test_an_index_made_inside_is_as_good_as_any():
    with weft.inference_mode():
        index = weft.tensor([1])
    x = weft.ones(2, requires_grad=True)
    x[index].sum().backward()
    assert x.grad.tolist() == [0, 1]


def test_parameters_may_be_changed_inside():
    layer = weft.nn.Linear(2, 1)
    with weft.inference_mode():
        layer.weight.copy_(weft.ones(1, 2))
        result = layer(weft.ones(3, 2))
    assert result.is_inference() and not layer.weight.is_inference() and layer.weight.requires_grad
    layer(weft.ones(3, 2)).sum().backward()
    assert layer.weight.grad.tolist() == [[3, 3]]


def test_decorated_functions_and_generators_of_data():
    @weft.inference_mode()
    def doubled(batches):
        return [x * 2 for x in batches]

    results = doubled(weft.ones(2) * k for k in range(3))
    assert [x.is_inference() for x in results] == [True] * 3
    assert np.concatenate([x.numpy() for x in results]).tolist() == [0, 0, 2, 2, 4, 4]


def test_compiled_calls_have_the_same_bits_and_make_ordinary_tensors():
    layer = weft.nn.Linear(3, 2)
    x = weft.randn(4, 3)

    def evaluate(x):
        with weft.inference_mode():
            return layer(x).tanh()

    compiled = weft.compile(evaluate)
    for _ in range(3):
        assert compiled(x).tolist() == evaluate(x).tolist()
    with weft.inference_mode():
        within = weft.randn(4, 3)
        assert all(compiled(within).tolist() == evaluate(within).tolist() for _ in range(3))
    assert not compiled(x).requires_grad


def _with_gradients_inside(library):
    """Whether what is computed inside requires gradients, by each way of asking for them."""
    weight, seen = library.ones(2, requires_grad=True), []

    @library.enable_grad()
    def decorated():
        return weight * 2

    with library.inference_mode():
        with library.enable_grad():
            seen.append((weight * 2).requires_grad)
        with library.set_grad_enabled(True):
            seen.append((weight * 2).requires_grad)
        seen.append(decorated().requires_grad)
        library.set_grad_enabled(True)
        seen.append((weight * 2).requires_grad)
        with library.inference_mode(False), library.set_grad_enabled(True):
            seen.append((weight * 2).requires_grad)
    library.set_grad_enabled(True)
    return seen


@pytest.mark.oracle
def test_gradients_cannot_be_switched_on_inside_as_in_pytorch():
    """set_grad_enabled and decorated functions forgot that they were in inference mode."""
    assert _with_gradients_inside(weft) == _with_gradients_inside(pytest.importorskip("torch"))
    assert _with_gradients_inside(weft) == [False, False, False, False, True]


def test_gradients_cannot_be_switched_on_inside_of_a_compiled_call():
    assert weft.compile(_with_gradients_inside)(weft) == _with_gradients_inside(weft)


def _generated(library):
    weight = library.ones(2, requires_grad=True)

    @library.inference_mode()
    def results(n):
        for _ in range(n):
            given = yield (weight * 2).requires_grad, library.is_inference_mode_enabled()
            yield given

    generator = results(2)
    inside = [next(generator), generator.send("a"), next(generator)]
    return inside, library.is_grad_enabled(), library.is_inference_mode_enabled(), (weight * 2).requires_grad


@pytest.mark.oracle
def test_the_body_of_a_decorated_generator_runs_inside_as_in_pytorch():
    """Only the call that makes the generator did; its body ran outside."""
    assert _generated(weft) == _generated(pytest.importorskip("torch"))
