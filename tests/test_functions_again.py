"""A user's Function in a replayed call is known by what its last call was like: what is different in one call, of the
class, its arguments or what it returns, is as in eager mode."""

import pytest
from compiled_twin import leaf, twin

import weft
from weft.autograd import Function, grad

N_CALLS = 12
ODD = 8  # the call in which something is different, long after the first one that was known


def blend():
    """A Function with setup_context, several inputs and results, a number and a flag."""

    class Blend(Function):
        @staticmethod
        def forward(x, y, share=0.5, flip=False):
            total = x * share + y * (1 - share)
            return (total, x - y) if not flip else (x - y, total)

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, y, ctx.share, ctx.flip = inputs
            ctx.save_for_backward(x, y)
            ctx.seen = ctx.needs_input_grad

        @staticmethod
        def backward(ctx, first, second):
            if ctx.flip:
                first, second = second, first
            of_x = first * ctx.share + second if ctx.needs_input_grad[0] else None
            of_y = first * (1 - ctx.share) - second if ctx.needs_input_grad[1] else None
            return of_x, of_y, None, None

    return Blend


def as_before(f, x, y):
    return f.apply(x, y)


def another_number(f, x, y):
    return f.apply(x, y, 0.25)


def another_order(f, x, y):
    return f.apply(y, x)


def flipped(f, x, y):
    return f.apply(x, y, flip=True)


def one_without_gradient(f, x, y):
    return f.apply(x, y.detach(), 0.5)


def the_same_twice(f, x, y):
    return f.apply(x, x)


def not_recorded(f, x, y):
    with weft.no_grad():
        return f.apply(x, y)


def another_forward(f, x, y):
    before = f.forward
    f.forward = staticmethod(lambda x, y, share=0.5, flip=False: (x * share + y * (1 - share) + 1.0, x - y))
    try:
        return f.apply(x, y)
    finally:
        f.forward = staticmethod(before)


def another_backward(f, x, y):
    before = f.backward
    results = f.apply(x, y)
    f.backward = staticmethod(lambda ctx, a, b: tuple(None if g is None else g * 2.0 for g in before(ctx, a, b)))
    return results


def derived(f, x, y):
    class Derived(f):
        @staticmethod
        def forward(x, y, share=0.5, flip=False):
            return x * y, x + y

    return Derived.apply(x, y)


def renamed(f, x, y):
    before, f.__name__ = f.__name__, "Renamed"
    try:
        return f.apply(x, y)
    finally:
        f.__name__ = before


def one_of_no_gradient(f, x, y):
    before = f.setup_context

    def setup(ctx, inputs, output):
        before(ctx, inputs, output)
        ctx.mark_non_differentiable(output[1])

    f.setup_context = staticmethod(setup)
    try:
        return f.apply(x, y)
    finally:
        f.setup_context = staticmethod(before)


WAYS = [
    as_before, another_number, another_order, flipped, one_without_gradient, the_same_twice, not_recorded,
    another_forward, another_backward, derived, renamed, one_of_no_gradient,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_one_call_that_is_different(way):
    def scenario(compile):
        f, w, v, turn = blend(), leaf(3), leaf(3), [as_before]

        @compile
        def step(x):
            w.grad = v.grad = None
            a, b = turn[0](f, x * w, v.sin())
            name = a.grad_fn.name() if a.requires_grad else None
            loss = (a * b).sum() + a.square().mean() + (w * v).sum()
            loss.backward()
            return name, loss.detach(), b.detach()

        for k in range(N_CALLS):
            turn[0] = way if k in (ODD, ODD + 2) else as_before
            yield step(weft.randn(3)), w.grad, v.grad

    twin(scenario)()


class Half(Function):
    """One result of two, and one that is no tensor."""

    @staticmethod
    def forward(ctx, x, parts):
        ctx.n, ctx.set = len(parts), ctx.set_materialize_grads(False)
        return x * parts[0], "text", x * parts[1]

    @staticmethod
    def backward(ctx, first, text, second):
        assert text is None
        if first is None:
            return second * 0.5, None
        return first * 2.0 if second is None else first + second, None


@twin
def test_results_that_nobody_uses_and_that_are_no_tensors(compile):
    w, turn = leaf(3), [0]

    @compile
    def step(x):
        w.grad = None
        first, text, second = Half.apply(x * w, [2.0, 3.0])
        loss = [first, second, first * second][turn[0]].sum()
        loss.backward()
        return text, loss.detach()

    for k in range(2 * N_CALLS):
        turn[0] = 0 if k < N_CALLS else k % 3
        yield step(weft.randn(3)), w.grad


def returns_nothing(g):
    return None


def returns_a_half(g):
    return g * 0.5


HOOKS = {"none": [], "one": [returns_a_half], "two": [returns_nothing, returns_a_half], "twice": [returns_a_half] * 2}


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("after", [False, True])
def test_hooks_around_a_function(hooks, after):
    """Of its inputs, its outputs and the leaf; and one that is called when the leaf has its gradient."""

    def scenario(compile):
        w, order = leaf(3), []
        if after:
            w.register_post_accumulate_grad_hook(lambda p: order.append(("after", p.grad.sum())))
        for k, hook in enumerate(HOOKS[hooks]):
            w.register_hook(lambda g, k=k, hook=hook: (order.append(("leaf", k)), hook(g))[1])

        @compile
        def step(x):
            w.grad = None
            given = x * w
            made = Half.apply(given, [1.5, 2.5])[0]
            for k, hook in enumerate(HOOKS[hooks]):
                given.register_hook(lambda g, k=k, hook=hook: (order.append(("given", k)), hook(g))[1])
                made.register_hook(lambda g, k=k, hook=hook: (order.append(("made", k)), hook(g))[1])
            loss = made.square().sum()
            loss.backward()
            return loss

        for _ in range(N_CALLS):
            order.clear()
            yield step(weft.randn(3)), w.grad, list(order)

    twin(scenario)()


@twin
def test_a_gradient_of_a_gradient_through_a_function(compile):
    """create_graph inside, of a Function whose backward is written with ops."""
    f = blend()

    @compile
    def step(x, y):
        (g,) = grad((f.apply(x, y, 0.75)[0] * x).sin().sum(), x, create_graph=True)
        return g, grad(g.square().sum(), [x, y])

    for _ in range(N_CALLS):
        g, second = step(leaf(3), leaf(3))
        yield g.detach(), second


def test_values_behind_a_function_are_let_go_of():
    """The node that is remembered for the next call holds nothing of this one."""
    w = leaf(3)

    @weft.compile
    def step(x):
        w.grad = None
        a, b = f.apply(x * w, w)
        (a * b).sum().backward()

    f = blend()
    for _ in range(N_CALLS):
        step(weft.randn(3))
    (entry,) = [e for e in step.recordings[0].usual.entries if getattr(e.change, "call", None) is not None]
    known = entry.change.call
    assert known.node.context is None and known.node.outputs == {} and known.node.edges == ()


@twin
def test_errors_of_a_backward(compile):
    """Too many gradients, and one of another shape, in one call among others."""
    kind = ["plain"]

    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            return {"plain": g * 2.0, "many": (g, g), "shape": g[:2], "kind": 1.0, "wide": g[None] * 2.0}[kind[0]]

    w = leaf(3)

    @compile
    def step(x):
        w.grad = None
        Wrong.apply(x * w).sum().backward()

    for k in range(2 * N_CALLS):
        kind[0] = ["many", "shape", "kind", "wide"][k % 4] if k > N_CALLS and k % 2 else "plain"
        try:
            step(weft.randn(3))
            yield w.grad
        except (RuntimeError, TypeError) as error:
            yield type(error).__name__, str(error)
