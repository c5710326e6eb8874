"""Second derivatives of finished compiled calls, once a program finds them at once: what comes between is as in eager
mode, and what the program has not seen is found another way."""

import gc
import weakref
from functools import partial

import pytest
from compiled_twin import error_of, leaf, twin

import weft
from weft.autograd import grad
from weft.runtime.replay.usual_gradients import GradientProgram

ROUNDS = 14  # the first ones are eager, then recorded


def curve(x):
    return (weft.sin(x) * x * x).sum()


def first_and_second(f, *x):
    first = grad(f(*x), x, create_graph=True)
    return [*[g.detach() for g in first], *grad(sum(g.square().sum() for g in first), x)]


FUNCTIONS = {
    "one leaf": (curve, 1),
    "two leaves": (lambda x, y: (x.tanh() * y.exp() + x).sum(), 2),
    "no scalar": (lambda x: (x * x).sin().reshape(-1)[:1], 1),
    "a product": (lambda x, y: weft.tanh(x.reshape(2, 2) @ y.reshape(2, 2)).square().mean(), 2),
    "a sorted value": (lambda x: (x.sort().values.cumsum(0) * x).sum(), 1),
    "linear": (lambda x, y: (x * y).sum(), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_gradients(name):
    function, count = FUNCTIONS[name]

    def scenario(compile):
        f, x = compile(function), [leaf(4) for _ in range(count)]
        for _ in range(ROUNDS):
            yield first_and_second(f, *x)
            with weft.no_grad():
                x[0] += 0.25

    twin(scenario)()


def program_of(f):
    (program,) = f.recordings[0].usual.outside.gradients.values()
    return program


def test_the_program_is_known_after_a_while():
    f, x = weft.compile(curve), leaf(4)
    for _ in range(ROUNDS):
        first_and_second(f, x)
    program = program_of(f)
    assert isinstance(program, GradientProgram)
    before = program.outside.program.calls, program.outside.recording.calls
    first_and_second(f, x)
    # It has run, and nothing of the function that it was recorded from.
    assert (program.outside.program.calls, program.outside.recording.calls) == (before[0] + 1, before[1])


def hooked(f, x):
    handle = x.register_hook(lambda g: g * 2.0)
    found = first_and_second(f, x)
    handle.remove()
    return found


def of_a_sum_of_calls(f, x):
    y = f(x) + f(x * 1.0).square() + f(x)
    (g,) = grad(y, x, create_graph=True)
    return g.detach(), grad(g.sin().sum(), x)


def four_times(f, x):
    found = f(x)
    for _ in range(4):
        (found,) = grad(found.sum(), x, create_graph=True)
        yield found.detach()


def into_grad(f, x):
    x.grad = None
    f(x).backward(create_graph=True)
    g, x.grad = x.grad, None
    (g * g).sum().backward()
    return g.detach(), x.grad


def into_a_grad_with_a_history(f, x):
    x.grad = None
    f(x).backward(create_graph=True)
    f(x).backward(create_graph=True)
    g, x.grad = x.grad, None
    return g.detach(), grad(g.sum(), x)


def beside_the_value(f, x):
    y = f(x)
    (g,) = grad(y, x, create_graph=True)
    return grad(g.square().sum() + y.sin(), x)


def twice(f, x):
    (g,) = grad(f(x), x, create_graph=True)
    z = g.square().sum()
    return grad(z, x, retain_graph=True), grad(z, x), error_of(grad, g.square().sum(), x)


def twice_along_nodes_kept(f, x):
    y = f(x)
    z = y.sin()
    (g,) = grad(z, x, create_graph=True)
    (h,) = grad(g.sum(), x, create_graph=True)
    return grad(h.sum(), x, retain_graph=True), grad(h.sum() + g.sum(), x), error_of(grad, z, x)


def changed_between(f, x):
    y = f(x)
    with weft.no_grad():
        x.mul_(1.0)
    return error_of(grad, y, x, create_graph=True)


def changed_after(f, x):
    (g,) = grad(f(x), x, create_graph=True)
    z = g.sum()
    with weft.no_grad():
        x.mul_(1.0)
    return error_of(grad, z, x)


def changed_through_data(f, x):
    y = f(x)
    x.data.add_(0.5)
    (g,) = grad(y, x, create_graph=True)
    x.data.sub_(0.5)
    return g.detach(), grad(g.sum(), x)


def other_memory(f, x):
    y = f(x)
    before, x.data = x.data, x.data * 2.0
    (g,) = grad(y, x, create_graph=True)
    x.data = before
    return g.detach()


def the_gradient_is_changed(f, x):
    (g,) = grad(f(x), x, create_graph=True)
    h = g * 1.0
    g.detach().mul_(2.0)
    return h.detach(), g.detach(), grad(h.sum(), x)


def a_cotangent(f, x):
    y = f(x)
    return [grad(y, x, c, retain_graph=True, create_graph=True)[0].detach() for c in (weft.ones(()), weft.ones(()) * 3)]


def a_cotangent_with_a_history(f, x):
    c = leaf()
    (g,) = grad(f(x), x, c, create_graph=True)
    return g.detach(), grad(g.square().sum(), [x, c])


def nodes_are_read(f, x):
    (g,) = grad(f(x), x, create_graph=True)
    name = g.grad_fn.name()
    z = g.sum()
    return name, z.grad_fn.next_functions[0][0].name(), g.requires_grad, g.is_leaf, grad(z, x)


def a_hook_on_the_gradient(f, x):
    (g,) = grad(f(x), x, create_graph=True)
    z = g.square().sum()
    seen = []
    g.register_hook(seen.append)
    return grad(z, x), seen


def the_gradient_keeps_its_grad(f, x):
    (g,) = grad(f(x), x, create_graph=True)
    g.retain_grad()
    g.square().sum().backward()
    found, x.grad = x.grad, None
    return found, g.grad


def requires_grad_is_taken(f, x):
    y = f(x)
    x.requires_grad_(False)
    (g,) = grad(y, x.requires_grad_(), create_graph=True)
    return g.detach(), grad(g.sum(), x)


USES = [
    hooked, of_a_sum_of_calls, four_times, into_grad, into_a_grad_with_a_history, beside_the_value, twice,
    twice_along_nodes_kept, changed_between, changed_after, changed_through_data, other_memory,
    the_gradient_is_changed, a_cotangent, a_cotangent_with_a_history, nodes_are_read, a_hook_on_the_gradient,
    the_gradient_keeps_its_grad, requires_grad_is_taken,
]  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_what_is_done_with_gradients_of_gradients(use):
    """Both from the beginning, and once the program is known."""

    def scenario(compile):
        for known in (False, True):
            f, x = compile(curve), leaf(4)
            for _ in range(ROUNDS if known else 0):
                first_and_second(f, x)
            for _ in range(4 if known else ROUNDS):
                found = use(f, x)
                yield found if isinstance(found, (tuple, list)) else list(found)
                yield first_and_second(f, x)

    twin(scenario)()


@twin
def test_numbers_that_change_from_call_to_call(compile):
    """The numbers of the derivative depend on those of the function."""
    f, x = compile(lambda x, k: (x.sin() * k * x + k).pow(2.0).sum()), leaf(4)
    for k in [2.5] * ROUNDS + [1.5, 2.5, -0.0, 0.0, 2.5]:
        yield first_and_second(lambda x, k=k: f(x, k), x)


@twin
def test_powers_that_change_from_call_to_call(compile):
    f, x = compile(lambda x, k: x.exp().pow(k).sum()), leaf(4)
    for k in [3.0] * ROUNDS + [2.0, 3.0, 1.0, 0.0, 3.0]:
        yield first_and_second(lambda x, k=k: f(x, k), x)


@twin
def test_memory_that_numpy_shows(compile):
    f = compile(lambda x, s: (x.sin() * s * x).sum())
    x, scale = leaf(4), weft.ones(4)
    for k in range(2 * ROUNDS):
        if k == ROUNDS:
            array = scale.numpy()
        y = f(x, scale)
        (g,) = grad(y, x, create_graph=True)
        yield g.detach(), grad(g.sum(), x)
        if k > ROUNDS:
            array += 1.0


@twin
def test_a_critic_whose_parameters_the_call_finds_by_itself(compile):
    """The penalty of a WGAN: one call for the data, one for the samples, one for points between."""
    critic = weft.nn.Sequential(weft.nn.Linear(3, 8), weft.nn.Tanh(), weft.nn.Linear(8, 1))
    with weft.no_grad():
        for p in critic.parameters():
            p.copy_(weft.linspace(-1, 1, p.numel()).reshape(p.shape))
    optimizer, score = weft.optim.Adam(critic.parameters()), compile(lambda x: critic(x))
    for _ in range(ROUNDS):
        real, fake = weft.randn(5, 3), weft.randn(5, 3)
        between = (real + fake).mul(0.5).requires_grad_()
        out = score(between)
        (g,) = grad(out, between, weft.ones_like(out), create_graph=True)
        loss = score(fake).mean() - score(real).mean() + (g.norm(2, dim=1) - 1.0).square().mean() * 10.0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), [p.grad for p in critic.parameters()], between.grad


@twin
def test_the_hessian_of_a_compiled_function(compile):
    """It is given a view of a leaf, whose gradient no call of its own can say: that is not tried every time."""
    f, x = compile(curve), weft.randn(3)
    for _ in range(9):
        yield weft.autograd.functional.hessian(f, x), weft.func.hessian(f)(x)


def weighted(x, w, b):
    return ((w * x).tanh() * w + b).square().sum()


def of_the_argument(f, x, w, b):
    x = x.detach().clone().requires_grad_()
    (g,) = grad(f(x, w, b), x, create_graph=True)
    w.grad = b.grad = None
    g.square().sum().backward()
    return g.detach(), w.grad, b.grad, x.grad


def of_the_weight(f, x, w, b):
    (g,) = grad(f(x, w, b), [w], create_graph=True)
    return g.detach(), grad(g.sin().sum(), [x, w, b], allow_unused=True)


def of_two_in_another_order(f, x, w, b):
    g, h = grad(f(x, w, b), (t for t in (b, x)), create_graph=True)
    return g.detach(), h.detach(), grad((g * h).sum(), [w, b, x])


def of_some_and_then_of_all(f, x, w, b):
    y = f(x, w, b)
    (g,) = grad(y, w, create_graph=True)
    every = grad(y, [x, w, b], create_graph=True)
    return g.detach(), grad(g.sum() + sum(e.square().sum() for e in every), [x, w, b])


def hessian_by_rows(f, x, w, b):
    (g,) = grad(f(x, w, b), x, create_graph=True)
    return [grad(part, x, retain_graph=True)[0] for part in g]


def in_the_middle(f, x, w, b):
    z = (x * 2.0).sin()
    (g,) = grad(f(z, w, b).sqrt(), z, create_graph=True)
    return g.detach(), grad(g.square().sum(), [x, w], allow_unused=True)


def of_a_leaf_that_is_watched(f, x, w, b):
    seen = []
    handles = [w.register_hook(seen.append), x.register_hook(lambda g: g * 0.5)]
    (g,) = grad(f(x, w, b), x, create_graph=True)
    x.grad = w.grad = b.grad = None
    g.square().sum().backward()
    for handle in handles:
        handle.remove()
    return g.detach(), x.grad, w.grad, seen


def and_a_second_pass(f, x, w, b):
    (g,) = grad(f(x, w, b), x, create_graph=True)
    z = g.square().sum()
    first = grad(z, w, retain_graph=True)
    return first, grad(z, [x, w]), error_of(grad, z, w), error_of(grad, g.sum(), x)


SOME = [
    of_the_argument, of_the_weight, of_two_in_another_order, of_some_and_then_of_all, hessian_by_rows, in_the_middle,
    of_a_leaf_that_is_watched, and_a_second_pass,
]  # fmt: skip


@pytest.mark.parametrize("use", SOME)
@pytest.mark.parametrize("is_expected", [True, False])
def test_gradients_for_some_of_what_a_call_depends_on(use, is_expected):
    """is_expected: w and b are the same tensors in all calls."""

    def scenario(compile):
        x, w, b = leaf(3), leaf(3), leaf(3)
        whole = compile(lambda x: weighted(x, w, b)) if is_expected else compile(weighted)
        for _ in range(2 * ROUNDS):
            x.grad = w.grad = b.grad = None
            yield use((lambda x, w, b: whole(x)) if is_expected else whole, x, w, b)
            with weft.no_grad():
                w += 0.125

    twin(scenario)()


def test_what_is_wanted_again_is_found_by_a_program_for_just_that():
    f, w = weft.compile(lambda x, w: (w * x).tanh().sum()), leaf(3)
    for _ in range(ROUNDS):
        x = leaf(3)
        (g,) = grad(f(x, w), x, create_graph=True)
        g.square().sum().backward()
    program = program_of(f)
    assert program.gradients.count(None) == 1
    assert len(program.outside.needed.live) == 1 and f.recordings[0].calls == ROUNDS


def test_a_call_and_its_derivatives_go_with_the_last_who_holds_them():
    """Not when the garbage collector comes: the node holds its call, which does not hold the node."""
    f, x = weft.compile(curve), leaf(4)
    for _ in range(ROUNDS):
        first_and_second(f, x)
    gc.disable()
    try:
        y = f(x)
        (g,) = grad(y, x, create_graph=True)
        (h,) = grad(g.sum(), x, create_graph=True)
        calls = [weakref.ref(t._frame) for t in (y, g, h) if t._frame is not None]
        assert len(calls) >= 2
        del y, g, h
        assert all(call() is None for call in calls)
    finally:
        gc.enable()


@pytest.mark.parametrize("wanted", ["xwy", "y", "xy", "wy", "yz"])
@pytest.mark.parametrize("n_calls", [2, 3])
def test_the_gradient_for_a_result_that_later_calls_go_on_with(n_calls, wanted):
    """The call that differentiated the last one made eager nodes of those before it, and what arrived there was not
    known to be wanted."""

    def scenario(compile):
        w = weft.randn(3, requires_grad=True)

        @compile
        def step(x):
            return (x * w).sin()

        for _ in range(12):
            x = weft.randn(3, requires_grad=True)
            y = z = step(x)
            for _ in range(n_calls - 1):
                z = step(z)
            tensors = {"x": x, "w": w, "y": y, "z": z}
            first = weft.autograd.grad(z.sum(), [tensors[name] for name in wanted], create_graph=True)
            total = sum((g * g).sum() for g in first)
            yield first, weft.autograd.grad(total, [x, w, y], allow_unused=True)

    twin(scenario)()


@pytest.mark.parametrize("allow_unused", [True, False])
def test_what_the_calls_own_backward_has_freed_is_no_graph_without_the_leaf(allow_unused):
    """The gradient of a gradient that the call returns, after the call's backward has freed what both had in common."""

    def scenario(compile):
        w, x = weft.randn(3, requires_grad=True), weft.randn(3)

        @compile
        def step(x):
            y = (w * x).sin()
            (g,) = weft.autograd.grad(y.sum(), [w], create_graph=True)
            ((y * y).sum() + g.square().sum()).backward()
            return g

        for _ in range(8):
            w.grad = None
            g = step(x)
            with pytest.raises(RuntimeError, match="a second time"):
                weft.autograd.grad(g.sum(), [w], allow_unused=allow_unused)
            yield w.grad, g.detach()

    twin(scenario)()


@pytest.mark.parametrize("through", ["leaf", "history"])
def test_what_the_calls_own_backward_has_freed_leads_only_where_it_did(through):
    """Gradients for a tensor that a result was not computed from are none; for one that it was, an error."""

    def scenario(compile):
        w = weft.randn(3, requires_grad=True)

        @compile
        def step(x, unused):
            y = w * x
            y.square().sum().backward()
            return (y * w).sum(), unused

        for _ in range(8):
            x, unused = weft.randn(3, requires_grad=True), weft.randn(3, requires_grad=True)
            given = x if through == "leaf" else x * 2.0
            result, _ = step(given, unused)
            found = weft.autograd.grad(result, [unused], allow_unused=True, retain_graph=True)
            for wanted in (w, x):
                with pytest.raises(RuntimeError, match="a second time"):
                    weft.autograd.grad(result, [wanted], allow_unused=True, retain_graph=True)
            yield result.detach(), w.grad, found, x.grad
            first, q = partial(step, given.detach()), unused.detach()
            yield weft.func.jvp(first, (q,), (q,), has_aux=True)[:2]

    twin(scenario)()


@pytest.mark.parametrize("given", ["a view", "an op", "another call"])
@pytest.mark.parametrize("wanted", ["one", "both"])
def test_an_argument_whose_history_leads_to_another_leaf_of_the_call(given, wanted):
    """The gradient that goes to that leaf through the argument comes once."""

    def scenario(compile):
        w, v = weft.randn(3, 4, requires_grad=True), weft.randn(4, requires_grad=True)
        before = compile(lambda w: w.tanh() * 2)
        make = {"a view": lambda: w[None][0], "an op": lambda: w * 1.5, "another call": lambda: before(w)}[given]

        @compile
        def two(y):
            doubled = y * 2.0
            return (doubled * w).exp().sum(), doubled * v

        for k in range(12):
            loss, doubled = two(make())
            outputs = {"one": doubled.sum(), "both": loss + doubled.sum()}[wanted] if k % 4 < 3 else loss
            found = grad(outputs, [w, v], create_graph=True, allow_unused=True)
            yield [g for g in found if g is not None]
            first = sum(g.square().sum() for g in found if g is not None)
            yield grad(first, [w, v], allow_unused=True) if first.requires_grad else None

    twin(scenario)()
