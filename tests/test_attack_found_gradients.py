"""What the attack (tests/attack) has found about gradients: of values changed in place, read or led elsewhere since."""

import numpy as np
import pytest
from compiled_twin import assert_same, leaf, twin

import weft


def _read_shown(x, state, shown):
    state.mul_(x)
    return shown.sum().item()


def _change_shown(x, state, shown):
    state.mul_(x.sin())
    shown *= 2.0


def _lend(x, state, shown):
    state *= x
    shown.numpy()


def _several(x, state, shown):
    state.div_(x.exp())
    state[0] = x
    return shown.numpy().sum() + state.sum().item()


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("body", (_read_shown, _change_shown, _lend, _several))
def test_a_change_with_a_history_before_memory_is_read_that_numpy_shows(body, dtype):
    """All that had a history then was a tensor from outside, so nothing was saved for its derivative: that was computed
    again later, from what the change had written."""

    def scenario(compile):
        x, step = leaf(2), compile(body)
        for _ in range(6):
            state = weft.randn(3, 2, dtype=getattr(weft, dtype))
            shown = weft.from_numpy(np.ones(3, np.float32))
            yield step(x, state, shown)
            state.sum().backward()
            yield x.grad, state, shown

    twin(scenario)()


def _squared_and_read(t, y, z):
    t.mul_(t)
    return (t * z).sum().item()


def _times_the_argument_and_read(t, y, z):
    t *= y
    return (t * z).sum().item()


def _part_squared_and_read(t, y, z):
    part = t[1:3]
    part.mul_(part)
    return (t * z).sum().item()


def _asked_between_changes(t, y, z):
    t.mul_(t)
    if (t * z).sum() > 1e6:
        return t
    t.mul_(y)
    return (t * z).sum()


@pytest.mark.parametrize("is_shown", (False, True))
@pytest.mark.parametrize("backward_after", (7, 40))
@pytest.mark.parametrize(
    "body", (_squared_and_read, _times_the_argument_and_read, _part_squared_and_read, _asked_between_changes)
)
def test_a_read_computes_what_a_backward_needs_of_a_value_changed_since(body, backward_after, is_shown):
    """The value from before the change has no tensor any more; what was read was written over None."""

    def scenario(compile):
        y = leaf(4)
        z = weft.from_numpy(np.ones(4, np.float32)) if is_shown else weft.ones(4)

        @compile
        def step(y):
            return body(y * 0.5, y, z)

        for call in range(backward_after + 3):
            result = step(y)
            yield result
            if call > backward_after and not isinstance(result, float):
                result.backward()
                yield y.grad

    twin(scenario)()


@pytest.mark.parametrize("shape", ((), (2,), (6, 2), (2, 3)))
def test_data_of_another_shape_before_a_backward(shape):
    """A mean's derivative asked the tensor for its shape, which was another one meanwhile: six times too large."""

    def scenario(compile):
        w = leaf(3, 2)
        loss = compile(lambda w: w.square().mean())
        for k in range(4):
            with weft.no_grad():
                w.data = weft.randn(3, 2)
            result = loss(w)
            w.data = weft.randn(*shape)
            with pytest.raises(RuntimeError, match="modified by an inplace operation|changed in place"):
                result.backward()
            loss(w).backward() if k % 2 else None
            yield w.grad
            w.grad = None

    twin(scenario)()


def test_names_before_a_tensor_that_has_been_changed_since_the_call():
    """They were those of its history at the time when somebody asked."""

    def scenario(compile):
        w, v = leaf(3, 2), leaf(2)
        step = compile(lambda x: (x.expand(2, *x.shape) + v, x * 2.0))
        for _ in range(6):
            x = w.detach().clone()
            x.copy_(w)
            results = step(x)
            x.copy_(v.exp())
            for result in results:
                nodes = [result.grad_fn]
                for node in nodes:
                    yield node.name(), [(before and before.name(), k) for before, k in node.next_functions]
                    nodes += [before for before, _ in node.next_functions if before is not None]
            (results[0].sum() + results[1].sum()).backward()
            yield w.grad, v.grad, x.grad_fn.name()

    twin(scenario)()


@pytest.mark.parametrize("scale", (1.0, 1000.0))
def test_a_backward_beyond_the_paths_that_are_recorded_begins_with_a_one(scale, monkeypatch):
    """It began with a NumPy number in place of an array, whose memory native code took for one; and with NaN where the
    loss was infinite."""
    monkeypatch.setattr("weft.runtime.programs.recording.MAX_BRANCHES", 1)

    def scenario(compile):
        w = leaf(3)

        @compile
        def step(x, k):
            w.grad = None
            loss, other = (w * x).exp().mean(), (w * x).sum()
            (loss, other, loss + other)[k % 3].backward()
            return loss

        for k in range(12):
            yield step(weft.randn(3) * scale, k)
            yield w.grad

    twin(scenario)()


@pytest.mark.parametrize("options", ({"materialize_grads": True}, {"allow_unused": True}, {}))
def test_gradients_through_nodes_for_what_was_not_used(options):
    """Replayed calls gave None in each case: zeros were asked for, or the error."""

    def scenario(compile):
        w, v = leaf(4), leaf(4)

        @compile
        def step(x):
            slope = weft.func.grad(lambda row: (row * v).square().sum())((x * w).detach())
            try:
                found = weft.autograd.grad((slope * v).sum(), [w, v], **options)
            except RuntimeError as error:
                return [type(error).__name__]
            if found[0] is not None:
                (found[0] * v).sum().backward()
            return found

        for _ in range(8):
            yield [step(weft.randn(4)), v.grad, v.grad is not None and v.grad._version]

    twin(scenario)()


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16, weft.float64])
@pytest.mark.parametrize("way", ["backward", "retained", "with a graph", "grad", "grad with a graph", "in the call"])
def test_cotangents_of_one_element_are_one_in_every_type(way, dtype):
    """To NumPy bfloat16 is two bytes without a meaning, and its `ones` of it made gradients of nearly zero."""

    def scenario(compile):
        def f(x):
            y = (x * x).sum()
            if way == "in the call":
                y.register_hook(lambda g: g * 2)
                y.backward(retain_graph=True)
            return y

        f = compile(f)
        for _ in range(12):
            x = weft.randn(3).to(dtype).requires_grad_()
            y = f(x)
            if way.startswith("grad"):
                (x.grad,) = weft.autograd.grad(y, x, create_graph=way.endswith("graph"))
            elif way != "in the call":
                y.backward(retain_graph=way == "retained", create_graph=way == "with a graph")
            if way == "retained":
                y.backward()
            yield x.grad.double().tolist(), y.item()

    assert_same(scenario)


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16, weft.float64])
@pytest.mark.parametrize(
    "function", [lambda x, y: (x[1:], x[1]), lambda x, y: (x * y, x.exp()), lambda x, y: ((z := x * y), z[0])]
)
def test_a_call_whose_backward_has_freed_all_has_nodes_in_every_type(function, dtype):
    def scenario(compile):
        f = compile(function)
        for n in (3, 4, 5, 3, 2, 3, 3):
            x = weft.linspace(-1, 1, 4 * n).reshape(n, 4).to(dtype).requires_grad_()
            m, h = f(x, weft.ones(n, 4).to(dtype))
            h.sum().backward()
            yield said_of(h.sum().backward, inputs=[x]), x.grad.double().tolist()
            found = said_of(weft.autograd.grad, h, [m], weft.ones_like(h), retain_graph=True)
            yield found if isinstance(found, str) else found[0].double().tolist()

    assert_same(scenario)


def said_of(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except RuntimeError as error:
        return type(error).__name__


@pytest.mark.parametrize("sizes", [[3] * 6, range(5)])
def test_nodes_that_save_nothing_run_after_the_call_has_run_its_own_backward(sizes):
    def scenario(compile):
        def f(x, y):
            t = x * y
            t.square().sum().backward()
            return (t * x).t().sum(0).reshape(1, -1).sum()

        f = compile(f)
        for n in sizes:
            node = f(weft.randn(n, 4, requires_grad=True), weft.randn(4)).grad_fn
            cotangent = weft.ones(())
            while node.name() != "MulBackward0":
                cotangent = node(cotangent)
                yield node.name(), cotangent
                node = node.next_functions[0][0]

    assert_same(scenario)


def test_a_node_whose_values_are_gone_says_what_has_let_go_of_them():
    @weft.compile
    def f(x, y):
        t = x * y
        t.square().sum().backward()
        return t * x, t.square()

    for _ in range(5):
        product, square = f(weft.ones(3, requires_grad=True), weft.ones(3))
        with pytest.raises(RuntimeError, match="its own backward has let go of what MulBackward0 reads"):
            product.grad_fn(weft.ones(3))
        with pytest.raises(RuntimeError, match="second time .* at MulBackward0"):
            product.grad_fn.next_functions[0][0](weft.ones(3))
