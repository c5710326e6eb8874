"""What the attack (tests/attack) has found about leaves, memory and changes in place, as test_attack_found.py has the
rest."""

import pytest
from compiled_twin import leaf, twin

import weft
from weft import contest, made_anew
from weft.autograd import grad
from weft.nn.functional import gumbel_softmax


@pytest.mark.parametrize("replayed", [False, True])
def test_versions_after_a_call_whose_index_was_out_of_range(replayed):
    """Nothing was written, but versions said so: backward of what had been computed before was refused."""
    w, s, places = leaf(4), weft.zeros(4), weft.tensor([3, 0])
    optimizer = weft.optim.SGD([w], lr=0.1, momentum=0.9)

    @weft.compile
    def step(places):
        s.add_(1.0)
        s.data.mul_(2.0)
        (w * s)[places].sum().backward()
        optimizer.step()

    for _ in range(12 if replayed else 2):
        step(places)
    loss, before = (w * s).sum(), [(x._version, x.tolist()) for x in (w, s, w.grad)]
    with pytest.raises(IndexError):
        step(weft.tensor([0, 4]))
    assert [(x._version, x.tolist()) for x in (w, s, w.grad)] == before
    loss.backward()
    step(places)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_leaf_that_comes_in_anew_after_a_change_that_ran_eagerly(hooked):
    """Its gradients for what was computed before and after were added to it one by one, with hooks for each."""

    def scenario(compile):
        w, x = leaf(3, 4), weft.randn(4, 4)
        held = w.detach()

        @compile
        def step(y):
            before = (y * w) @ x
            with weft.no_grad():
                w[0].mul_(0.5)
            hook = w.register_post_accumulate_grad_hook(_halve) if hooked else None
            (before * w).sin().sum().backward()
            if hooked:
                hook.remove()

        for _ in range(6):
            step(weft.randn(4))
            yield w, w.grad, held

    twin(scenario)()


def _halve(p):
    p.grad.mul_(0.5)


def test_a_call_that_is_looked_at_and_returns_before_a_tensor_of_its_own_comes_in(monkeypatch):
    """Whether the Python of such calls need run was asked of the tensors that had not come in."""
    monkeypatch.setattr(made_anew, "PAYS_AFTER", 0)
    monkeypatch.setattr(contest, "LOOKED_INTO_AFTER", 4)

    def scenario(compile):
        w, calls = leaf(3, 4), [0]

        @compile
        def step(x):
            calls[0] += 1
            return gumbel_softmax(x * w, hard=calls[0] % 2 == 0)

        for _ in range(16):
            yield step(weft.randn(3, 4))

    twin(scenario)()


SHAPE_CHANGES = {
    "other memory": lambda u, b, y: (u * 2, u.set_(b), y * u)[2],
    "other memory of the call": lambda u, b, y: (u.set_(u * 3), u.add_(1.0), y * u)[2],
    "no other axis": lambda u, b, y: (u * 2, u.unsqueeze_(0), u * y, u.mT * 1.0)[2:],
    "other axes": lambda u, b, y: (y.t_(), y * 2, y.mul_(2.0), y @ y.t())[1:],
    "smaller": lambda u, b, y: (u * 2, u.resize_(2), y[0, :2] * u),
    "larger": lambda u, b, y: (u.resize_(8), y.sum() * u),
    "strided": lambda u, b, y: (u * 2, u.as_strided_((2, 2), (2, 1)), u.sum(0) * u),
}


@pytest.mark.parametrize("change", SHAPE_CHANGES.values(), ids=SHAPE_CHANGES)
def test_tensors_from_outside_whose_shape_or_memory_changes_in_the_call(change):
    """The call went on with what the tensor had been when it came in."""

    def scenario(compile):
        f = compile(change)
        for k in range(6):
            weft.manual_seed(k)
            u, b, y = weft.randn(4), weft.randn(4), weft.randn(3, 4)
            yield f(u, b, y), u, y, u._version

    twin(scenario)()


@twin
def test_a_change_by_a_number_where_calls_part(compile):
    """What the change was recorded to be of had the number that another way gives it: replays read behind the list of
    values."""
    w, table, calls = leaf(4), weft.zeros(4), [0]
    optimizer = weft.optim.SGD([w], lr=0.1)

    @compile
    def step(x):
        calls[0] += 1
        w.grad = None
        (x * w).sum().backward()
        if calls[0] % 4 < 2:
            optimizer.step()
            w.sin().cos().exp()
        table.zero_()

    for _ in range(40):
        step(weft.randn(4))
        yield w, w.grad, table


READS = {
    "float": float,
    "item": lambda x: x.item(),
    "list": lambda x: x.tolist(),
    "again": lambda x: float(x) + x.item(),
    "seldom": lambda x: float(x) if float(x * 1.0) < 1.0 else 2.0,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("kind", ["state", "argument", "option", "parameter"])
def test_reading_what_the_call_has_changed_in_place(kind, read):
    """Where the program of the read would have written it, a replayed call looked at what was in memory before."""

    def scenario(compile):
        state, p = weft.tensor(8.0), weft.tensor(8.0, requires_grad=True)
        optimizer = weft.optim.SGD([p], lr=weft.tensor(0.5))

        @compile
        def step(x, given):
            if kind == "state":
                state.mul_(0.5)
                return x * read(state)
            if kind == "argument":
                given.mul_(0.5)
                return x * read(given) + 1.0
            optimizer.param_groups[0]["lr"] *= 0.5
            (p * x.sum()).backward()
            optimizer.step()
            return x * read(p.detach()) if kind == "parameter" else x

        given = weft.tensor(8.0)
        for k in range(24):
            yield step(weft.full((2,), 1.0 + k), given), state, given, p

    twin(scenario)()


@twin
def test_a_call_that_goes_over_to_nodes_in_a_pass_for_some_gradients(compile):
    """Without native replay its nodes were asked for among those that the pass had found before."""
    w, u = leaf(3, 4), weft.randn(4)
    f = compile(lambda x: ((x * w).square().mean(), x[..., :1]))
    for _ in range(16):
        loss = f(u)[0]
        (first,) = grad(loss, w, create_graph=True)
        (second,) = grad(first.sin().sum(), w, create_graph=True)
        yield grad(second.sum(), w)


@twin
def test_second_derivatives_of_a_call_that_makes_a_leaf(compile):
    """The call that finds the gradients once more took the leaf for one of its own: without native replay an
    AttributeError."""
    w = leaf(3, 4)
    f = compile(lambda y: (y.relu().detach().requires_grad_().data * w).unbind(0))
    for _ in range(24):
        (first,) = grad(f(w[None][0])[0].sum(), w, create_graph=True)
        yield first
