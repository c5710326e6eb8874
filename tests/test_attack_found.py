"""What the attack (tests/attack) has found: each program as small as it got, and its relatives."""

import copy
import weakref
from types import SimpleNamespace

import pytest
from compiled_twin import leaf, twin

import weft
from weft import nn
from weft.autograd import grad

FORWARDS = {
    "float32": lambda w, y: (w * y).sin(),
    "converted": lambda w, y: (w.double() * y).sin(),
    "promoted": lambda w, y: (w * y.double()).sin(),
    "gradient": lambda w, y: grad((w.double() * y).sin().sum(), w, create_graph=True)[0],
    "several": lambda w, y: (w.double() * y).sin() + (w.double() + y).exp() * (w * y).cos(),
}


@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
def test_an_input_that_is_saved_and_then_changed_in_the_call(forward):
    """Where the cheapest thing to save was the input itself, the backward read its memory, not what was saved."""

    def scenario(compile):
        w = leaf(3, 4)

        @compile
        def step(y):
            result = forward(w, y)
            with weft.no_grad():
                w.add_(1.0)
            return result

        for _ in range(6):
            result = step(weft.randn(3, 4))
            result.backward(weft.ones_like(result))
            yield w.grad

    twin(scenario)()


@twin
def test_a_call_that_returns_before_a_tensor_of_its_own_comes_in(compile):
    """The end of a usual call looked for all tensors of the call before it asked whether that was at its end."""
    w, x, calls = leaf(3, 4), weft.randn(3, 4), [0]

    @compile
    def step(x):
        calls[0] += 1
        if calls[0] == 11:
            return None
        return weft.tensor([1.0, 2.0, 3.0, 4.0]) * x.sigmoid() * w

    for _ in range(14):
        yield step(x)


@twin
def test_another_model_after_memory_was_shown_to_numpy(compile):
    """The first call had other steps at a place where later ones are given a copy; the call could not be gone over."""
    seen, state, box = [], weft.zeros(3, 4), [weft.nn.Linear(4, 4)]

    @compile
    def step(y):
        seen.append(y.detach().numpy())
        return box[0](y * 2.0)

    for call in range(12):
        if call % 5 == 4:
            box[0] = copy.deepcopy(box[0])
        yield step(state)


USES = {
    "for nothing": lambda w, v, y: ((y * w).square(), (w * v).tanh())[:1],
    "for another result": lambda w, v, y: ((y * w).square(), (w * v).tanh()),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_an_input_that_is_saved_for_something_else_and_changed_after_the_call(use):
    """Eager mode has saved it for a product that this backward does not pass through, so that its change is no error;
    the backward computed again from the new values."""

    def scenario(compile):
        w, v, f = leaf(3, 4), leaf(4), compile(use)
        for _ in range(6):
            results = f(w, v, weft.randn(3, 4))
            with weft.no_grad():
                w.add_(1.0)
            results[0].sum().backward()
            yield w.grad

    twin(scenario)()


@pytest.mark.parametrize("change", ["data", "no_grad"])
def test_edges_of_a_leaf_that_the_call_has_changed(change):
    """A replayed call forgot that what is in such a leaf now requires gradients: its results led nowhere, and what they
    were differentiated again for got no gradient."""

    def scenario(compile):
        w = leaf(3, 4)

        @compile
        def step(x):
            if change == "data":
                w.data.add_(0.01)
            else:
                with weft.no_grad():
                    w.mul_(0.9)
            return (w * x).square().sum(), w.sum()

        for _ in range(14):
            loss, total = step(weft.randn(3, 4))
            yield [node.name() for node, _ in total.grad_fn.next_functions]
            (first,) = grad(loss, w, create_graph=True)
            yield grad(first.sum() + total, w)

    twin(scenario)()


@twin
def test_names_of_nodes_behind_a_leaf_that_needs_no_gradient_any_more(compile):
    """A call that had gone over to nodes kept those of its inputs that required gradients then, not when it was made;
    `next_functions` raised a KeyError."""
    w, v, x = leaf(3, 2), leaf(2), weft.randn(3, 2)
    result = compile(lambda row: (w * v).tanh())(x[0])
    v.requires_grad_(False)
    x[0].data = result.data
    product = result.grad_fn.next_functions[0][0]
    yield [node.name() for node, _ in product.next_functions]
    result.sum().backward()
    yield w, v.grad


@pytest.mark.parametrize("given", ["argument", "state"])
@pytest.mark.parametrize("has_view", [False, True])
@pytest.mark.parametrize("change", ["x.copy_(y)", "x.mul_(y)", "x[0] = y[0]", "x.add_(v)"])
def test_history_that_ends_where_the_call_changes_a_tensor(given, has_view, change):
    """What was computed before the change leads to the history that the tensor had then. With living views of it the
    change ran in eager mode, and that history was forgotten: backward raised a TypeError."""

    def scenario(compile):
        v, state, kept = leaf(2), weft.randn(3, 2), []

        def step(x, y):
            x = state if x is None else x
            before = weft.where(x > 0, x, x * 0.5)
            exec(change, {"x": x, "y": y, "v": v})
            return before, v[0] * before, x.sum()

        step = compile(step)
        for _ in range(14):
            state = weft.randn(3, 2)
            x = weft.randn(3, 2)
            row = (state if given == "state" else x)[0]
            row.copy_(v)
            kept[:] = [row] if has_view else []
            del row
            results = step(None if given == "state" else x, weft.randn(3, 2))
            yield [node.name() for node, _ in results[1].grad_fn.next_functions]
            sum(r.sum() for r in results).backward()
            yield v.grad

    twin(scenario)()


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("method", ["t", "flatten", "ravel"])
def test_what_changes_no_shape_is_a_view_or_the_tensor_itself_as_in_pytorch(method, shape):
    torch = pytest.importorskip("torch")

    def kind(x):
        y = getattr(x, method)()
        return y is x, y.is_leaf, y._is_view()

    assert kind(weft.ones(shape, requires_grad=True)) == kind(torch.ones(shape, requires_grad=True))


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("freezes_at", [0, 6, 11])
def test_a_leaf_that_is_frozen_after_its_use_in_the_call(freezes_at, outside):
    """Its gradient for what was computed before was lost without a word."""

    def scenario(compile):
        w, v, calls = leaf(3, 4), leaf(4), [0]

        @compile
        def step(x):
            before = (x * w).sin()
            if calls[0] == freezes_at:
                w.requires_grad_(False)
            loss = (before * w * v).sum()
            if not outside:
                loss.backward()
            return loss

        for calls[0] in range(14):
            loss = step(weft.randn(3, 4))
            if outside:
                loss.backward()
            yield w.grad, v.grad, w.requires_grad
            w.requires_grad_(calls[0] % 3 != 1)

    twin(scenario)()


@pytest.mark.parametrize("goes_on", ["an op", "a change", "a read", "an end"])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_call_that_turns_out_differently_after_it_met_what_shares_memory_with_an_argument(fresh, goes_on):
    """The frame that went on expected no tensors, since the call had one that an argument shares memory with; what had
    been met was to be found among them."""

    def scenario(compile):
        w, v, calls = leaf(3, 4), weft.randn(4), [0]
        shared = w.detach()

        @compile
        def step(x):
            y = v + (weft.tensor([1.0, 2.0, 3.0, 4.0]) if fresh else 1.0)
            y = (x + shared) * y
            if calls[0] % 6 == 5:
                if goes_on == "an op":
                    y = y.sin() * v
                elif goes_on == "a change":
                    y.add_(shared)
                    shared.mul_(0.5)
                elif goes_on == "a read":
                    y = y * (2.0 if y.sum() > 0 else 3.0)
                else:
                    return None
            return y + v

        for calls[0] in range(14):
            yield step(w), shared

    twin(scenario)()


@twin
def test_what_comes_in_a_container_of_the_users_goes_with_its_last_name(compile):
    """What a call had met from outside was kept for the next one, after that had been learned from it."""

    @compile
    def step(pair):
        y = pair.y * weft.rand(4)
        return pair.y, y.sum()

    for call in range(9):
        pair = SimpleNamespace(y=weft.randn(4) if call > 2 else weft.randn(3, 4))
        result, total = step(pair)
        seen = weakref.ref(result)
        del pair, result
        yield seen() is None, total


@pytest.mark.parametrize("inside", ["backward", "grad"])
def test_hooks_of_a_result_that_its_call_has_freed(inside):
    """The hook was refused in a compiled call; eager mode takes it, calls it, and says then that it is too late."""

    def scenario(compile):
        w, seen = leaf(3, 4), []

        @compile
        def step(y):
            slope = grad(((y + 1.0) * w).square().sum(), w, create_graph=True)[0]
            if inside == "backward":
                slope.square().sum().backward()
            else:
                w.grad = grad(slope.square().sum(), w)[0]
            return slope

        for _ in range(5):
            slope = step(weft.ones(4))
            slope.register_hook(lambda g: seen.append(g.tolist()))
            slope.retain_grad()
            with pytest.raises(RuntimeError, match="second time"):
                slope.sum().backward(retain_graph=True)
            yield seen, slope.grad, w.grad, slope.grad_fn.name()

    twin(scenario)()


ORDERS = ("g a", "a g", "g! g a", "a! g", "h a g", "h g", "g h", "h! g h", "(g+a) a", "(h+a) g", "(g*a) g", "h! h a!")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n_results", [1, 2])
def test_backwards_through_gradients_free_what_these_share_with_their_call(order, n_results):
    """After some calls, in which gradients are found by a program of their own, such a backward freed nothing of the
    call that they are gradients of: another one passed that eager mode refuses."""

    def scenario(compile):
        w, v = leaf(3), leaf(3)

        @compile
        def forward(x):
            return [((w * x).tanh() * v).sin(), (w * w).sum() * x][:n_results]

        for _ in range(12):
            a, *rest = forward(weft.randn(3))
            g = grad(a.sum(), w, create_graph=True)[0]
            h = grad(g.sum(), w, create_graph=True)[0] if "h" in order else None
            for word in order.split():
                try:
                    result = eval(word.rstrip("!"), {"a": a, "g": g, "h": h})
                    result.sum().backward(retain_graph="!" in word)
                except RuntimeError:
                    yield "refused", word
                yield w.grad, v.grad
            for other in rest:
                other.sum().backward()
                yield w.grad

    twin(scenario)()


def test_second_derivatives_used_beside_what_they_are_of():
    """Where several calls of one family met in a backward pass after they had been alone in others, one of them was
    looked for twice: a KeyError."""

    def scenario(compile):
        model = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
        solution = compile(model)
        for k in range(18):
            x = weft.randn(6, 1, requires_grad=True)
            u = solution(x)
            slope = grad(u.sum(), x, create_graph=True)[0]
            curvature = grad(slope.sum(), x, create_graph=True)[0]
            if k % 2:
                loss = ((curvature + u) ** 2).mean() + (slope[0] ** 2).sum()
            else:
                loss = (curvature**2).mean()
            model.zero_grad()
            loss.backward()
            yield loss, list(model.parameters())

    twin(scenario)()


@twin
def test_names_behind_a_tensor_that_has_kept_its_history_while_others_went_over_to_nodes(compile):
    """Of a result of such a call somebody saw the name of what passes gradients on to it."""
    w, v, kept = leaf(3, 2), leaf(2), [weft.randn(3, 2).double(), weft.randn(2)]

    @compile
    def step(x):
        kept[1] = (w * v).tanh()
        kept[0][0] = kept[1][0]

    for call in range(3):
        step(weft.randn(2))
        if call == 1:
            v.data[0] = 1.0
    nodes = [kept[0].grad_fn]
    for node in nodes:
        yield node.name(), [(before and before.name(), k) for before, k in node.next_functions]
        nodes += [before for before, _ in node.next_functions if before is not None]


@twin
def test_change_of_memory_that_only_a_finished_read_still_showed(compile):
    """`detach()`, made for its array and dropped, was kept alive by the call's books: the change was refused."""
    w, state = leaf(3, 2), weft.randn(3, 2)
    row = state[0]

    @compile
    def step(x, y):
        seen = y.detach().numpy().sum()
        y.copy_(x * 2.0)
        return seen

    for _ in range(12):
        yield float(step(w, state)), state, row
        state.sum().backward()
        yield w.grad
        state = weft.randn(3, 2)
        row = state[0]
