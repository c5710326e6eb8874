"""Hooks in replayed calls: on parameters, on values of the call, and gradients kept there. As without the decorator."""

import pytest
from compiled_twin import assert_same, error_of, leaf

import weft


def reason(function, *arguments, n=8):
    """Why calls are not replayed; None if they are."""
    f = weft.compile(function)
    for _ in range(n):
        f(*arguments)
    return None if f.recordings[0].usual is not None else f.recordings[0].not_replayed


def departures(function, monkeypatch):
    """How often calls depart in 10 calls, once they are replayed."""
    from weft.runtime.replay.frame_usual import UsualFrame

    count, depart = [0], UsualFrame.depart

    def counted(frame, **how):
        count[0] += 1
        return depart(frame, **how)

    for _ in range(10):
        function()
    monkeypatch.setattr(UsualFrame, "depart", counted)
    for _ in range(10):
        function()
    return count[0]


def test_hooks_of_parameters_are_called_in_replayed_calls(monkeypatch):
    w, x = leaf(4, 4), weft.randn(6, 4)
    w.register_hook(lambda g: g.clamp(-0.1, 0.1))

    @weft.compile
    def step(x):
        w.grad = None
        loss = (x @ w).square().sum()
        loss.backward()
        return loss.detach()

    assert departures(lambda: step(x), monkeypatch) == 0


HOOKS = {
    "clamps": lambda k, w, seen: lambda g: g.clamp(-0.1, 0.1),
    "keeps": lambda k, w, seen: lambda g: seen.append(g),
    "reads": lambda k, w, seen: lambda g: seen.append(g.abs().max().item()),
    "looks at the leaf": lambda k, w, seen: lambda g: seen.append(w.grad),
    "changes": lambda k, w, seen: lambda g: g * k if k in (6, 9) else None,
    "counts": lambda k, w, seen: lambda g: seen.append(len(seen)),
    "raises": lambda k, w, seen: lambda g: 1 / 0 if k in (6, 9) else None,
    "is no tensor": lambda k, w, seen: lambda g: 3 if k in (6, 9) else None,
}


def _post(hook):
    return lambda t: hook(t.grad) and None


@pytest.mark.parametrize("make", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_hooks_of_parameters_do_what_they_do(make, when):
    def scenario(compile):
        w, v, x, seen = leaf(4, 4), leaf(4), weft.randn(6, 4), []

        @compile
        def step(x):
            w.grad = v.grad = None
            loss = ((x @ w).tanh() * v).square().sum()
            loss.backward()
            return loss.detach()

        for k in range(11):
            hook = make(k, w, seen)
            handle = w.register_hook(hook) if when == "before" else w.register_post_accumulate_grad_hook(_post(hook))
            seen += [error_of(step, x), w.grad, v.grad]
            handle.remove()
        return seen

    assert_same(scenario)


def test_hooks_that_come_and_go_in_a_loop(monkeypatch):
    def scenario(compile):
        w, x, seen = leaf(4, 4), weft.randn(6, 4), []

        @compile
        def step(x):
            w.grad = None
            handle = w.register_hook(lambda g: g * 0.5)
            loss = (x @ w).square().sum()
            loss.backward()
            handle.remove()
            return loss.detach()

        for _ in range(8):
            seen += [step(x), w.grad]
        return seen

    assert_same(scenario)


def test_hooks_of_values_are_called_in_replayed_calls(monkeypatch):
    w, x, seen = leaf(4, 4), weft.randn(6, 4), []

    @weft.compile
    def step(x):
        w.grad = None
        hidden = x @ w
        hidden.register_hook(lambda grad: seen.append(grad) or grad * 0.5)
        loss = hidden.square().sum()
        loss.backward()
        return loss.detach()

    assert departures(lambda: step(x), monkeypatch) == 0
    assert len(seen) == 20


def test_gradients_are_kept_in_replayed_calls(monkeypatch):
    w, x = leaf(4, 4), weft.randn(6, 4)

    @weft.compile
    def step(x):
        w.grad = None
        hidden = x @ w
        hidden.retain_grad()
        loss = hidden.square().sum()
        loss.backward()
        return loss, hidden.grad

    assert departures(lambda: step(x), monkeypatch) == 0


def odd_calls(odd, retain=False, kept=False, inner=False):
    """A scenario: hooks on two values of a call, which do something else (`odd`) in some calls."""

    def scenario(compile):
        w, v, x, seen = leaf(4, 4), leaf(4), weft.randn(6, 4), []

        def step(x, k):
            w.grad = v.grad = None
            hidden = x @ w
            upper = (hidden * v).tanh()
            hidden.register_hook(lambda g: odd("hidden", k, g, hidden, upper, w, v, seen))
            upper.register_hook(lambda g: odd("upper", k, g, hidden, upper, w, v, seen))
            if retain:
                hidden.retain_grad()
            loss = upper.square().sum()
            try:
                loss.backward(retain_graph=True if inner else None)
            except ZeroDivisionError:
                seen.append("caught")
            result = loss.detach() if kept is False else loss
            return (result, hidden.grad * 1) if retain and hidden.grad is not None else result

        f = compile(step)
        for k in range(12):
            seen += [error_of(f, x, k), w.grad, v.grad]
        return seen

    return scenario


def _at(where, k, *calls):
    return where == "hidden" and k in (calls or (6, 9))


def _raises(where, k, g, *rest):
    if _at(where, k):
        raise ZeroDivisionError


def _other_op(where, k, g, *rest):
    return g.exp() if _at(where, k) else g * 0.5


def _no_result(where, k, g, *rest):
    return None if _at(where, k) else g * 0.5


def _in_upper(where, k, g, *rest):
    return g.sin() if where == "upper" and k in (6, 9) else g * 0.5


def _reads(where, k, g, *rest):
    rest[-1].append(g.sum().item())


def _reads_at_times(where, k, g, *rest):
    if _at(where, k):
        rest[-1].append(g.sum().item())


def _keeps(where, k, g, *rest):
    rest[-1].append(g)


def _looks(where, k, g, hidden, upper, w, v, seen):
    seen += [hidden.shape, w.grad, v.grad, upper.grad_fn is None, g.requires_grad, weft.is_grad_enabled()]


def _reads_value(where, k, g, hidden, upper, w, v, seen):
    return g * hidden.detach() if where == "hidden" else None


def _changes_parameter(where, k, g, hidden, upper, w, v, seen):
    if _at(where, k):
        with weft.no_grad():
            w.mul_(0.5)


def _always_changes_parameter(where, k, g, hidden, upper, w, v, seen):
    if where == "hidden":
        with weft.no_grad():
            w.mul_(0.5)


def _through_data(where, k, g, hidden, upper, w, v, seen):
    if _at(where, k):
        v.data.mul_(0.5)


def _sets_gradient(where, k, g, hidden, upper, w, v, seen):
    if _at(where, k):
        w.grad = weft.ones(4, 4)


def _another_hook(where, k, g, hidden, upper, w, v, seen):
    if where == "upper" and k in (6, 9):
        hidden.register_hook(lambda g: g * 3)


def _hook_of_leaf(where, k, g, hidden, upper, w, v, seen):
    if where == "upper" and k in (6, 9):
        handle = w.register_hook(lambda g: (seen.append("leaf"), handle.remove(), g * 3)[-1])


_inner = weft.compile(lambda g: g.tanh() * 2)


def _calls_compiled(where, k, g, *rest):
    return _inner(g) if where == "hidden" else None


def _calls_compiled_at_times(where, k, g, *rest):
    return _inner(g) if _at(where, k) else None


def _backward_inside(where, k, g, hidden, upper, w, v, seen):
    if _at(where, k):
        with weft.enable_grad():
            z = weft.ones(3, requires_grad=True)
            (z * z).sum().backward()
            seen.append(z.grad)


def _changes_gradient(where, k, g, *rest):
    if _at(where, k):
        g.mul_(2)


def _from_outside(where, k, g, *rest):
    return weft.ones(6, 4) if _at(where, k) else None


def _constant(where, k, g, *rest, value=weft.full((6, 4), 2.0)):  # noqa: B008
    return value if where == "hidden" else None


def _number(where, k, g, *rest):
    return g * float(k)


def _wrong(where, k, g, *rest):
    return 3 if _at(where, k) else None


ODD = [
    _raises, _other_op, _no_result, _in_upper, _reads, _reads_at_times, _keeps, _looks, _reads_value,
    _changes_parameter, _always_changes_parameter, _through_data, _sets_gradient, _another_hook, _hook_of_leaf,
    _calls_compiled, _calls_compiled_at_times, _backward_inside, _changes_gradient, _from_outside, _constant, _number,
    _wrong,
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("how", [{}, {"retain": True}, {"kept": True}, {"inner": True, "kept": True}], ids=str)
def test_what_hooks_do(odd, how):
    assert_same(odd_calls(odd, **how))


def test_gradients_of_inner_values_are_replayed(monkeypatch):
    w, x = leaf(4, 4), weft.randn(6, 4)

    @weft.compile
    def step(x):
        hidden = weft.tanh(x @ w)
        weft.autograd.backward(hidden.square().sum(), inputs=[hidden])
        return hidden.grad

    assert departures(lambda: step(x), monkeypatch) == 0
    assert w.grad is None


INPUTS = {
    "a value": lambda w, v, hidden, upper: [hidden],
    "two values": lambda w, v, hidden, upper: [upper, hidden],
    "a leaf": lambda w, v, hidden, upper: [v],
    "both": lambda w, v, hidden, upper: (x for x in (w, hidden)),
    "in turn": lambda w, v, hidden, upper: [[hidden], [v]][next(TURN) % 3 == 0],
}
TURN = iter(())


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("chosen", INPUTS.values(), ids=INPUTS)
def test_backward_into_inputs(chosen, hooked):
    def scenario(compile):
        global TURN
        TURN = iter(range(99))
        w, v, x, seen = leaf(4, 4), leaf(4), weft.randn(6, 4), []

        def step(x, k):
            w.grad = v.grad = None
            hidden = x @ w
            upper = (hidden * v).tanh()
            if hooked:
                upper.register_hook(lambda g: g * (k if k in (6, 9) else 2.0))
            weft.autograd.backward(upper.square().sum(), inputs=chosen(w, v, hidden, upper))
            return [None if t.grad is None else t.grad * 1 for t in (hidden, upper)]

        f = compile(step)
        for k in range(12):
            seen += [error_of(f, x, k), w.grad, v.grad]
        return seen

    assert_same(scenario)


@pytest.mark.parametrize(
    "watch",
    [
        lambda r: r.register_hook(lambda g: g * 3),
        lambda r: r.retain_grad(),
        lambda r: r.grad_fn,
        lambda r: weft.autograd.graph.get_gradient_edge(r),
        lambda r: r.register_hook(lambda g: None) and r.register_hook(lambda g: g * 2),
    ],
)
@pytest.mark.parametrize("n_before", [0, 6])
def test_a_result_that_was_changed_in_place_after_its_call_is_watched_as_it_is_now(watch, n_before):
    def trained(compile):
        w, y, found = weft.tensor([1.0, -2.0, 3.0], requires_grad=True), weft.tensor([0.5, 4.0, -1.0]), []
        f = compile(lambda y: y * w)
        for _ in range(n_before):
            f(y)
        for _ in range(4):
            r = f(y)
            r.mul_(0.5)
            watch(r)
            r.sum().backward()
            found.append((w.grad.tolist(), r.grad.tolist() if r.retains_grad else None, r.grad_fn.name()))
            w.grad = None
        return found

    assert trained(weft.compile) == trained(lambda f: f)
