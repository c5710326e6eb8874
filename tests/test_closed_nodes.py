"""Finished compiled calls that go over to nodes: gradients that meet in the middle of a call meet as in eager mode."""

import gc

import pytest
from compiled_twin import assert_same, error_of, leaf, twin

import weft
from weft.autograd import grad
from weft.runtime.record.step_nodes import StepNode

INNERS = {
    "one use": lambda h: h.sin(),
    "two uses": lambda h: h.tanh() * h,
    "a chain": lambda h: (h.tanh() * h.sin()).exp().sigmoid() * h,
    "views": lambda h: (h.view(5, 1) * h[1:4]).tanh().sum(1),
}


def second_outside(f, x, w):
    (g,) = grad(f((x * w).exp()).square().sum(), w, create_graph=True)
    g.sum().backward()


def second_of_a_leaf(f, x, w):
    (g,) = grad(f(w).square().sum(), w, create_graph=True)
    g.sum().backward()


def loss_and_penalty(f, x, w):
    loss = f(w).sum()
    (g,) = grad(loss, w, create_graph=True)
    (loss + g.square().sum()).backward()


def penalty_at_an_argument_with_a_history(f, x, w):
    h = (x * w).exp()
    y = f(h)
    (g,) = grad(y.sum(), h, create_graph=True)
    (y.mean() + (g.norm() - 1.0).square()).backward()


def penalty_alone(f, x, w):
    (g,) = grad(f(w).sum(), w, create_graph=True)
    g.square().sum().backward()


def two_gradients_of_one_call(f, x, w):
    y = f(x * w)
    (g,) = grad(y.sum(), w, create_graph=True)
    (h,) = grad(y[1:].mean(), w, create_graph=True)
    (g.sum() + h.square().sum()).backward()


def third(f, x, w):
    (g,) = grad(f((x * w).exp()).square().sum(), w, create_graph=True)
    (h,) = grad((g * g).sum(), w, create_graph=True)
    (h * h).sum().backward()


def third_of_the_call_alone(f, x, w):
    (g,) = grad(f(w).sum(), w, create_graph=True)
    (h,) = grad(g.sum(), w, create_graph=True)
    (h * h + g).sum().backward()


def backward_with_a_graph(f, x, w):
    f(w).square().sum().backward(create_graph=True)
    g, w.grad = w.grad, None
    g.square().sum().backward()


def second_after_requires_grad_was_taken(f, x, w):
    y = f(x * w).square().sum()
    w.requires_grad_(False)
    y.backward(create_graph=True)


@pytest.mark.parametrize("inner", INNERS.values(), ids=INNERS)
@pytest.mark.parametrize(
    "use",
    [
        second_outside,
        second_of_a_leaf,
        loss_and_penalty,
        penalty_at_an_argument_with_a_history,
        penalty_alone,
        two_gradients_of_one_call,
        third,
        third_of_the_call_alone,
        backward_with_a_graph,
        second_after_requires_grad_was_taken,
    ],
)
def test_second_derivatives_through_a_call_have_the_bits_of_eager_mode(use, inner):
    """Contributions to a value inside the call come from the call itself and from the gradients taken before."""

    def scenario(compile):
        f, x, w = compile(inner), weft.randn(5), leaf(5)
        for _ in range(9):
            w.grad = None
            use(f, x, w)
            yield w.grad
            w.requires_grad_()

    twin(scenario)()


@pytest.mark.parametrize("inner", [lambda x, w: (x * w).sin(), lambda x, w: (x * w).tanh() * x.exp() * w])
def test_a_penalty_beside_other_uses_of_the_result(inner):
    """The critic's step of a WGAN, with the critic compiled: an error once the gradient came from a call of its own.
    What comes from the other uses has arrived at the call before the gradient's node makes it go over to nodes."""

    def scenario(compile):
        w = leaf(5)
        f = compile(lambda x: inner(x, w))
        for _ in range(9):
            w.grad = None
            x = weft.arange(5.0).clone().requires_grad_()
            y = f(x)
            (g,) = grad(y.sum(), x, create_graph=True)
            (y.mean() + y.square().sum() + (y * x).sum() + (g.norm() - 1.0).square()).backward()
            yield w.grad, x.grad

    twin(scenario)()


@twin
def test_the_gradient_of_a_result_that_another_result_was_computed_from(compile):
    """It was that of what came after the call alone: a wrong number, or an error that it was not used."""

    @compile
    def f(w):
        t = w * 2.0
        return t, t.tanh()

    w = leaf(3)
    for _ in range(6):
        t, y = f(w)
        yield grad(y.sum() + t.sum(), t)
        t, y = f(w)
        yield grad(y.sum(), [t, w])
        t, y = f(w)
        z = y.sum()
        t.register_hook(lambda g: g * 2.0)
        z.backward()
        yield w.grad
        t, y = f(w)
        y.sum().backward(inputs=[t, w])
        yield t.grad, w.grad


@twin
def test_a_hook_that_comes_after_the_use(compile):
    """What was computed from a result knows its call; a hook on the result is called all the same."""
    f, w, seen = compile(lambda w: (w.sin(), w.cos())), leaf(3), []
    for _ in range(6):
        s, c = f(w)
        z = (s * c).sum()
        s.register_hook(lambda g: seen.append(g.sum().item()))
        z.backward()
    yield seen, w.grad


@twin
def test_edges_to_a_leaf_from_which_requires_grad_was_taken(compile):
    f, w = compile(lambda w: w.exp() * 2.0), leaf(3)
    for _ in range(6):
        w.requires_grad_()
        y = f(w)
        w.requires_grad_(False)
        yield y.grad_fn.next_functions[0][0].next_functions[0][0].name()
        yield [node if node is None else node.name() for node, _ in y.grad_fn.next_functions]
        y.sum().backward()
        yield y.grad_fn.next_functions[0][0].next_functions[0][0].name(), w.grad


@twin
def test_gradients_of_some_inputs_alone(compile):
    """Nodes that lead to no gradient that is asked for do not run, whatever has changed."""
    f, w, v, s = compile(lambda w, v, s: w.tanh() * (v * s)), leaf(3), leaf(3), weft.ones(3)
    for _ in range(9):
        y = f(w, v, s).exp().sum()
        (g,) = grad(y, w, create_graph=True)
        yield g, grad(g.sum(), [v, w])


@twin
def test_third_derivatives_where_a_gradient_is_a_view(compile):
    """That of a product with one vector is one, and what it is a view of is a result of the gradient's call too."""
    w, x = weft.randn(2, 3), leaf(3)
    f = compile(lambda x: (w @ x).sin().square().sum())
    for _ in range(9):
        c = leaf()
        (g,) = grad(f(x), x, c, create_graph=True)
        (h,) = grad(g, c, weft.ones(3), create_graph=True)
        yield h, grad(h, x)
        (g,) = grad(f(x), x, create_graph=True)
        yield grad(g.sum(), x, create_graph=True)[0].detach(), g.detach()


def test_calls_whose_gradients_meet_them_are_left_to_nodes():
    """Gradients found by a call each time, and by nodes after all, took eight times as long as eager mode."""
    f, x, ran = weft.compile(lambda x: (x.sin() * x).sum()), leaf(3), []
    for _ in range(40):
        y = f(x)
        (g,) = grad(y, x, create_graph=True)
        ran.append(isinstance(g.grad_fn, StepNode))
        (y + g.sum()).backward()
    assert any(ran) and sum(ran) <= 8
    for _ in range(40):
        (g,) = grad(f(x), x, create_graph=True)
        ran.append(isinstance(g.grad_fn, StepNode))
        g.sum().backward()
    assert ran[-1]


@twin
def test_derivatives_of_ever_higher_order(compile):
    """The third was a wrong number once the second came from a compiled call: it left out what passes through the nodes
    of the call itself."""
    f, x = compile(lambda x: (x.sin() * x * x).sum()), leaf(3)
    for _ in range(20):
        found = f(x)
        for _ in range(3):
            (found,) = grad(found.sum(), x, create_graph=True)
        yield found.detach()


def test_the_backward_of_second_derivatives_alone_stays_compiled():
    """Only where they meet others of the same call the call has to go over to nodes."""
    f, w = weft.compile(lambda w: (w.tanh() * w).sum()), leaf(3)
    of_calls = []
    for _ in range(12):
        (g,) = grad(f(w), w, create_graph=True)
        of_calls.append(isinstance(g.grad_fn, StepNode))
        g.square().sum().backward()
    assert not of_calls[0] and of_calls[-1]


def test_what_a_call_has_kept_goes_with_its_nodes():
    """A node that is a name for others holds none of their values."""
    f, w = weft.compile(lambda w: (w * 2.0).tanh()), leaf(1000)
    y = f(w)
    z = y.sum()
    y.register_hook(lambda g: g)
    kept = z.grad_fn.next_functions[0][0]
    z.backward()
    del y, z
    alive = [x for x in gc.get_objects() if isinstance(x, weft.Tensor) and x.shape == (1000,)]
    assert kept is not None and {id(x) for x in alive} == {id(w), id(w.grad)}


# --- calls that have changed what they read ---------------------------------------------------------------------------
def argument(w, h, x):
    doubled = h * 2.0
    h.mul_(x)
    return (doubled * w * w).sum()


def recurrent_state(w, h, x):
    new = (h @ w.t() @ w + x).tanh()
    with weft.no_grad():
        h.copy_(new)
    return new.sum()


def part_of_an_argument(w, h, x):
    sines = (h[1:] * w[1:]).sin()
    h[0] = 1.0
    return sines.sum() + (h * w * w).sum()


def parameter(w, h, x):
    loss = (w + x).sin().sum()
    with weft.no_grad():
        w.mul_(0.9)
    return loss


def argument_twice(w, h, x):
    total = h.exp()
    h.add_(x)
    total = total + h.sin()
    h.add_(x)
    return (total * w * w).sum() + h.sum()


def what_a_node_has_saved(w, h, x):
    product = h * w
    h.mul_(x)
    return (product * w).sum()


CHANGING = [argument, recurrent_state, part_of_an_argument, parameter, argument_twice, what_a_node_has_saved]


@pytest.mark.parametrize("function", CHANGING)
@pytest.mark.parametrize("n_calls", [1, 14])
def test_second_derivatives_of_a_call_that_has_changed_what_it_read(function, n_calls):
    """Its steps were to run again from what was in memory then, which said that it had been changed: a call gives
    copies of what it reads and then changes, for those who compute it once more."""

    def scenario(compile):
        w, h = leaf(3, 4), weft.randn(3, 4)
        step = compile(function)
        for _ in range(n_calls):
            try:
                loss = step(w, h, weft.randn(3, 4))
                (first,) = grad(loss, w, create_graph=True)
                yield loss, first
                yield grad((first * first).sum(), w)
            except RuntimeError as error:
                yield type(error).__name__
            yield h

    twin(scenario)()


@pytest.mark.parametrize("reads", [False, True])
def test_a_change_in_the_middle_of_a_call_refuses_a_second_derivative(reads):
    """What was there before a value was read in the middle, or before a change that living views see, is not kept."""
    w, h = leaf(3, 4), weft.randn(3, 4)

    @weft.compile
    def step(x):
        doubled, view = h * 2.0, None if reads else h.flatten()[::5]
        h.mul_(x)
        factor = h.sum().item() if reads else view.sum()
        return (doubled * w * w).sum() * factor

    loss = step(weft.randn(3, 4))
    with pytest.raises(RuntimeError, match="a tensor that it has read was changed in the middle of it"):
        grad(loss, w, create_graph=True)


@pytest.mark.parametrize(
    "function", [lambda w, x: (x * w).sin() * w, lambda w, x: weft.linalg.norm(x.sin() @ w.t(), dim=1)]
)
def test_third_derivatives_of_a_call_whose_derivatives_are_calls(function):
    """Gradients of gradients stopped where they came to the nodes of the first call: a third derivative lacked parts,
    or had none. That began with the calls after which gradients are compiled."""

    def scenario(compile):
        w, step = leaf(3, 4), compile(function)
        for _ in range(16):
            x = weft.randn(3, 4)
            (first,) = grad(step(w, x).sum(), w, create_graph=True)
            (second,) = grad(first.sin().sum(), w, create_graph=True)
            yield first, second, grad(second.sum(), w)

    twin(scenario)()


@pytest.mark.parametrize("change", ["zero", "multiply", "assign"])
@pytest.mark.parametrize("opened_by", ["nothing", "hook", "retain_grad", "second_order"])
def test_results_changed_before_a_call_goes_over_to_nodes(change, opened_by):
    """Its derivative reads the result: an error, whoever runs the backward. It was computed from what was there."""

    def program(compile):
        w = weft.tensor([[1.0, 2.0], [3.0, 5.0], [4.0, 9.0]], requires_grad=True)
        deviations = compile(lambda y: (y * w).std(0))
        both = compile(lambda y: ((y * w).exp(), (y * w).exp().sum(0)))
        for _ in range(9):
            for result, other in ((deviations(weft.ones(2)), None), both(weft.ones(2))):
                with weft.no_grad():
                    if change == "zero":
                        result.zero_()
                    elif change == "multiply":
                        result.mul_(2.0)
                    else:
                        result[0] = 5.0
                if opened_by == "hook":
                    result.register_hook(lambda g: g * 2.0)
                elif opened_by == "retain_grad":
                    result.retain_grad()
                try:
                    (result * 1.5).sum().backward(create_graph=opened_by == "second_order")
                except RuntimeError as error:
                    yield "modified by an inplace operation" in str(error)
                yield w.grad
                if other is not None:
                    # What has not been changed can be differentiated all the same.
                    other.sum().backward()
                    yield w.grad

    assert_same(program)
    assert next(program(lambda f: f)) is True


@pytest.mark.parametrize("touch", [lambda w, y: None, lambda w, y: y.data.mul_(0.5), lambda w, y: w.data.mul_(0.5)])
@pytest.mark.parametrize("times", [1, 2])
def test_what_the_call_has_changed_since_is_told_by_its_nodes_too(times, touch):
    def scenario(compile):
        w, b = leaf(3, 2), weft.randn(2)

        def f(x):
            x.add_(1.0)
            y = w * x
            x.mul_(0.5)
            return (y,) * times

        y = compile(f)(b)[-1]
        touch(w, y)
        yield error_of(lambda: y.sum().backward())
        yield w.grad, b

    assert_same(scenario)
