"""Arguments that have a history: a compiled loss of what an eager model gives, a compiled block in the middle."""

import pytest
from compiled_twin import assert_same, error_of, leaf
from leaks import growth

import weft
from weft.runtime.replay.frame_usual import UsualFrame
from weft.runtime.replay.native import native_code_is_used

CALLS = 14


def squares(found, y):
    return ((found - y) ** 2).mean()


def trained(model_of, loss_of):
    """The steps of a model and a loss, either of which may be compiled or a plain function."""

    def scenario(compile):
        weft.manual_seed(2)
        model = weft.nn.Sequential(weft.nn.Linear(4, 6), weft.nn.Tanh(), weft.nn.Linear(6, 1))
        forward, loss = model_of(compile, model), loss_of(compile)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(CALLS):
            x, y = weft.randn(8, 4), weft.randn(8, 1)
            optimizer.zero_grad()
            found = loss(forward(x), y)
            found.backward()
            optimizer.step()
            yield found.detach()
        yield list(model.parameters())

    return scenario


def plain(compile, model):
    return model


def whole(compile, model):
    return compile(model)


def middle(compile, model):
    first, *between, last = model
    block = compile(weft.nn.Sequential(*between))
    return lambda x: last(block(first(x)))


def each(compile, model):
    layers = [compile(layer) for layer in model]

    def forward(x):
        for layer in layers:
            x = layer(x)
        return x

    return forward


@pytest.mark.parametrize("loss", [lambda compile: squares, lambda compile: compile(squares)], ids=["eager", "compiled"])
@pytest.mark.parametrize("model", [plain, whole, middle, each])
def test_models_and_losses(model, loss):
    assert_same(trained(model, loss))


@pytest.mark.parametrize("make", [lambda w: w * 2, weft.chunk, lambda w: w[1:], lambda w: w, lambda w: w.detach()])
def test_what_comes_in_with_a_history_or_without_one_in_turn(make):
    def scenario(compile):
        f, w = compile(lambda x: (x * x).sum()), leaf(4)
        for k in range(CALLS):
            w.grad = None
            x = make(w, 2)[0] if make is weft.chunk else make(w) if k % 3 else w * 3
            out = f(x)
            if out.requires_grad:
                out.backward()
            yield out.detach(), w

    assert_same(scenario)


def test_several_backwards_and_second_derivatives():
    def scenario(compile):
        f, w = compile(lambda x, y: (x.tanh() * y).sum()), leaf(3)
        for k in range(CALLS):
            w.grad = None
            x = w.exp()
            out = f(x, w * 2)
            out.backward(retain_graph=True)
            out.backward(retain_graph=k % 2 == 0)
            (g,) = weft.autograd.grad(f(w * 3, w), w, create_graph=True)
            g.sum().backward()
            yield out.detach(), w

    assert_same(scenario)


def test_hooks_and_retained_gradients_of_what_comes_in():
    def scenario(compile):
        f, w, seen = compile(lambda x: (x * 3).exp().sum()), leaf(3), []
        for _ in range(CALLS):
            x = w * 2
            x.register_hook(seen.append)
            x.retain_grad()
            f(x).backward()
            yield x.grad, seen[-1], w

    assert_same(scenario)


def test_changed_in_place_before_the_backward():
    def scenario(compile):
        f, w = compile(lambda x: (x * x).sum()), leaf(3)
        for k in range(CALLS):
            x = w * 2
            out = f(x)
            if k % 4 == 3:
                x.mul_(2)
            try:
                out.backward()
            except RuntimeError:
                yield "refused"
            yield w

    assert_same(scenario)


def test_the_function_changes_it_in_place():
    def scenario(compile):
        f, w = compile(lambda x: x.mul_(2).sum()), leaf(3)
        for k in range(CALLS):
            x = w + k
            out = f(x)
            out.backward()
            yield out.detach(), x, w

    assert_same(scenario)


def test_without_gradients():
    def scenario(compile):
        f, w = compile(lambda x, y: x * 2 + y), leaf(3)
        for _ in range(CALLS):
            x = w.exp()
            with weft.no_grad():
                yield f(x, w), f(x, x), f(x.detach(), w)

    assert_same(scenario)


def test_an_error_in_the_function_and_one_in_the_program():
    def scenario(compile):
        wrong = []

        def looked_up(x, at):
            if wrong:
                raise KeyError("stop")
            return x[at].sum()

        f, w = compile(looked_up), leaf(5)
        for k in range(CALLS):
            wrong[:] = [1] * (k == 9)
            try:
                f(w * 2, weft.tensor([0, 7 if k == 12 else 1])).backward()
            except (KeyError, IndexError) as error:
                yield type(error).__name__
            yield w

    assert_same(scenario)


@pytest.mark.parametrize("make", [lambda w: w * 2, weft.compile(lambda w: w * 2)], ids=["of an op", "of a call"])
def test_such_calls_begin_in_native_code(make, monkeypatch):
    begun, before = [], UsualFrame.start
    monkeypatch.setattr(UsualFrame, "start", lambda frame, arguments: begun.append(1) or before(frame, arguments))
    f, w = weft.compile(squares), leaf(3)
    for k in range(CALLS):
        f(make(w), weft.randn(3))
        if k == 7:
            begun.clear()
    assert bool(begun) is not native_code_is_used()


def test_what_stands_for_such_calls_is_made_natively(monkeypatch):
    made, before = [], UsualFrame._new_end
    monkeypatch.setattr(UsualFrame, "_new_end", lambda frame: made.append(1) or before(frame))
    f, w = weft.compile(squares), leaf(3)
    for k in range(CALLS):
        f(w * 2, weft.randn(3))
        if k == 7:
            made.clear()
    assert bool(made) is not native_code_is_used()


def test_ops_of_all_kinds_of_nodes_made_the_argument():
    class Twice(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x + 1

        @staticmethod
        def backward(ctx, g, h):
            return 2 * g + h

    def scenario(compile):
        f, w, other = compile(lambda x, y: (x * y).sum()), leaf(4, 2), compile(lambda x: (x * 2, x + 1))
        makers = (
            lambda: Twice.apply(w), lambda: other(w), lambda: w.unbind(1), lambda: (w.max(0).values, w.sum()),
            lambda: (w.T, w[:, 0]), lambda: (w, w * 2), lambda: (w * 2, w), lambda: weft.linalg.qr(w),
        )  # fmt: skip
        for make in makers:
            for _ in range(8):
                w.grad = None
                x, y = make()[:2]
                if y.ndim > 1 and x.shape != y.shape:
                    x, y = x[:2], y[:2]
                f(x, y).backward()
                yield w

    assert_same(scenario)


def test_second_derivatives_go_on_to_the_history_of_what_came_in():
    def scenario(compile):
        f, w = compile(lambda x: (x.tanh() * x).sum()), leaf(3)
        for k in range(CALLS):
            w.grad = None
            x = w.exp() if k % 5 < 4 else (w * 2).exp() + w
            (slope,) = weft.autograd.grad(f(x), x, create_graph=True)
            (bend,) = weft.autograd.grad(slope.sum(), x, create_graph=True)
            (slope * bend).sum().backward()
            yield slope, bend.detach(), w

    assert_same(scenario)


def test_grad_fn_after_a_backward_of_what_was_changed_before_a_read():
    """What the change has made, and the backward in the call reads, nothing holds any more."""

    def scenario(compile):
        w, v, seen = leaf(3), leaf(3), []

        def step():
            w.grad = v.grad = None
            first = w.sin()
            first.mul_(0.5)
            last = first.exp().square() * first
            squares = w * w
            if squares.sum().item() > 0:
                squares = squares * 2
            loss = squares.square().sum() + (w * v).sum() + last.detach().sum()
            loss.backward(retain_graph=True)
            return loss

        f = compile(step)
        for _ in range(8):
            loss = f()
            loss.backward()
            seen += [loss, loss.grad_fn.name(), w.grad, v.grad]
        return seen

    assert_same(scenario)


def recurrent(compile, look_at=lambda loss: None):
    """Backpropagation through a part of time: what comes in is the state that the step before has left."""
    cell, x = weft.nn.LSTMCell(2, 3), weft.randn(CALLS, 4, 2)
    optimizer = weft.optim.SGD(cell.parameters(), lr=0.1)

    @compile
    def step(x, state):
        state = tuple(s.detach() for s in state)
        for k in range(2):
            state = cell(x + k, state)
        loss = (state[0] - x.mean()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, state

    state, seen = (weft.zeros(4, 3), weft.zeros(4, 3)), []
    for k in range(CALLS):
        loss, state = step(x[k], state)
        seen += [loss.detach(), state[0].detach(), *cell.parameters(), look_at(loss)]
    return seen


def test_states_that_are_detached_after_the_call_that_gave_them_has_gone_backward():
    assert_same(recurrent)
    assert_same(lambda compile: recurrent(compile, lambda loss: (loss, error_of(loss.backward))))


def test_calls_that_take_what_such_a_call_gave_begin_in_native_code(monkeypatch):
    begun, before = [], UsualFrame.start
    monkeypatch.setattr(UsualFrame, "start", lambda frame, arguments: begun.append(1) or before(frame, arguments))
    recurrent(weft.compile)
    assert len(begun) <= 2 or not native_code_is_used()


def test_what_stands_for_such_calls_does_not_hold_those_before():
    w = leaf(3)

    @weft.compile
    def step(h):
        h = (h.detach() * w).tanh()
        w.grad = None
        h.sum().backward()
        return h

    def use(h=w * 2):
        for _ in range(200):
            h = step(h)

    assert growth(use)[0] < 50
