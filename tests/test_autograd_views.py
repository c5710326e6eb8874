"""In-place changes of tensors that share memory while gradients are recorded: as PyTorch's, and compiled bit for bit.

Every program gets a namespace (weft or torch), a matrix x (2 x 3) and a row w (3), both leaves, and gives tensors.
"""

import numpy as np
import pytest
from compiled_twin import assert_same, error_of

import weft

PROGRAMS = []


def program(function):
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


@program
def a_row_is_scaled(ns, x, w):
    base = x * 1
    row = base[1]
    row.mul_(w)
    return base, row


@program
def a_view_gives_its_base_a_history(ns, x, w):
    base = ns.zeros(2, 3)
    row = base[0]
    row.add_(w * 2)
    return base * base, row


@program
def a_base_changes_under_its_views(ns, x, w):
    base = x * 2
    row = base[0]
    part = base[:, :2]
    base.mul_(3)
    row.mul_(w)
    return base * part.sum(), row * part.sum()


@program
def elements_are_filled_in_a_loop(ns, x, w):
    state = ns.zeros(3)
    for k in range(3):
        state[k] += w[k] * state[k - 1].clone() + 1
    return state * state, state


@program
def views_of_views(ns, x, w):
    base = x * 2
    columns = base.t()
    columns[0].mul_(5)
    rest = columns[1:]
    rest *= w[0]
    return base * base, columns


@program
def a_view_is_filled_with_a_constant(ns, x, w):
    base = x * 2
    row = base[0]
    row.zero_()
    return base * 3, row + w


@program
def an_expanded_view_of_what_changed(ns, x, w):
    base = x.clone()
    wide = base[0].expand(2, 3)
    base[0].mul_(w)
    return base, wide


@program
def a_detached_view_stays_apart(ns, x, w):
    base = x * 2
    apart = base.detach()
    base.mul_(3)
    return base, apart


@program
def a_mask_and_positions_are_written(ns, x, w):
    base = x * 1
    rows = base[:, 1:]
    base[base > 1.5] = 0.25
    rows[ns.tensor([1, 0])] = rows.clone() * 2
    return base * w, rows


@program
def a_flat_view_goes_on(ns, x, w):
    base = x + 0
    flat = base.view(-1)
    flat += 1
    flat[2:4] *= 3
    return base.exp(), flat


def inputs(ns):
    x = ns.tensor([[0.5, 1.0, 1.5], [2.0, -1.0, 0.25]], requires_grad=True)
    return x, ns.tensor([1.0, 2.0, 3.0], requires_grad=True)


def observed(ns, function):
    """Values, gradients, and what the gradients' gradients are."""
    x, w = inputs(ns)
    first, second = function(ns, x, w)
    total = (first * first).sum() + (second * first.sum()).sum()
    gradients = ns.autograd.grad(total, [x, w], create_graph=True, allow_unused=True)
    again = sum((g * g).sum() for g in gradients if g is not None)
    higher = ns.autograd.grad(again, [x, w], allow_unused=True)
    return [None if t is None else t.detach().numpy() for t in (first, second, *gradients, *higher)]


@pytest.mark.oracle
@pytest.mark.parametrize("function", PROGRAMS)
def test_as_pytorch(function):
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(observed(weft, function), observed(torch, function)):
        assert (ours is None) == (theirs is None)
        assert ours is None or np.allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("function", PROGRAMS)
def test_compiled_calls_have_the_same_bits(function):
    eager, compiled = observed(weft, function), weft.compile(function)
    for _ in range(3):
        for plain, fast in zip(eager, observed(weft, compiled)):
            assert (plain is None) == (fast is None)
            assert plain is None or plain.tobytes() == fast.tobytes()


def training_step(optimizer, x, w):
    base = x * w
    base[0] *= 2
    row = base[1]
    row += w
    loss = (base * base).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def test_a_compiled_step_that_changes_views():
    losses = []
    for wrap in (lambda f: f, weft.compile):
        x, w = inputs(weft)
        step, optimizer = wrap(training_step), weft.optim.SGD([w], lr=0.1)
        losses.append([step(optimizer, x, w).item() for _ in range(4)])
    assert losses[0] == losses[1]


def test_nodes():
    x, w = inputs(weft)
    base = x * 1
    row = base[1]
    assert row.grad_fn.name() == "SelectBackward0"
    row.mul_(w)
    assert base.grad_fn.name() == "CopySlices" and row.grad_fn.name() == "AsStridedBackward0"
    assert row.grad_fn.next_functions == ((base.grad_fn, 0),)


def test_retain_grad_follows_the_tensor():
    x, w = inputs(weft)
    row = (x * 1)[0]
    row.retain_grad()
    row.mul_(w)
    (row * 2).sum().backward()
    assert row.grad.tolist() == [2, 2, 2] and x.grad.tolist() == [[2, 4, 6], [0, 0, 0]]


def test_refusals():
    x, w = inputs(weft)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used in an in-place"):
        x[0].mul_(2)
    for part in (*(x * 1).unbind(), (x * 1).split(1)[0], (x * 1).unbind()[1][:2]):
        with pytest.raises(RuntimeError, match="output of a function that returns multiple views"):
            part.mul_(2)
    base = x * 1
    with weft.no_grad():
        row = base[0]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being modified inplace"):
        row.mul_(w)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being modified inplace"):
        row.mul_(2)
    with weft.no_grad():
        row.mul_(2)
    assert row.tolist() == base.tolist()[0] == [2 * v for v in x.tolist()[0]]


@pytest.mark.parametrize(
    "part", [lambda y: y.unbind()[1], lambda y: y.unbind()[1][..., :1], lambda y: y.split(1)[0].t(), lambda y: y[0]]
)
def test_such_parts_are_refused_as_results_of_compiled_calls_too(part):
    """So are their own parts, of which the call knows how they were made."""

    def scenario(compile):
        w = weft.randn(3, 4, requires_grad=True)

        @compile
        def f(x):
            y = x * w
            return part(y), (y * w).sum()

        for _ in range(5):
            result, _ = f(weft.randn(3, 4))
            yield error_of(lambda result=result: result.mul_(0.5)), result.detach().clone()

    assert_same(lambda compile: list(scenario(compile)))


def changed(make, change, kind, is_late=False):
    """What changing a view does, which make(base) has given: the sum of the view, or the first words of the error."""

    def run(base, w):
        view = make(base)
        if is_late:
            base.requires_grad_()
        change(view, w)
        return view.sum()

    x, w = weft.ones(3, 2, requires_grad=kind != "plain"), weft.ones((), requires_grad=True)
    base = x * 2 if kind == "computed" else x
    results = []
    for function in (run, weft.compile(run)):
        given = base.clone().detach().requires_grad_() if kind == "leaf" else base.clone()
        try:
            results.append(function(given, w).item())
        except RuntimeError as error:
            results.append(str(error).partition(" and is being modified")[0])
    eager, compiled = results
    assert eager == compiled
    return eager


def without_grad(make):
    def run(x):
        with weft.no_grad():
            return make(x)

    return run


VIEWS = {
    "slice": lambda x: x[1:],
    "transposed": lambda x: x.t(),
    "chain": lambda x: x[1:].view(2, 2)[0],
    "part": lambda x: x.unbind()[1],
}
CHANGES = {
    "add_": lambda v, w: v.add_(1),
    "zero_": lambda v, w: v.zero_(),
    "mul_": lambda v, w: v.mul_(w),
    "assignment": lambda v, w: v.__setitem__(0, 3.0),
    "of a view": lambda v, w: v[0].add_(1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("kind", ["leaf", "computed"])
def test_a_view_made_without_gradients_is_not_changed_with_them(kind, make, change):
    assert changed(without_grad(make), change, kind) == "A view was created in no_grad mode"


@pytest.mark.parametrize("change", [CHANGES["add_"], CHANGES["assignment"]], ids=["add_", "assignment"])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_views_of_what_was_detached_may_be_changed(make, change):
    for kind in ("plain", "leaf", "computed"):
        assert isinstance(changed(lambda x: make(x.detach()), change, kind), float)
        assert isinstance(changed(without_grad(lambda x: make(x.detach())), change, kind), float)
        assert isinstance(changed(lambda x: make(x.detach().exp_()), change, kind), float)


def test_views_that_a_compiled_call_has_made_of_what_was_detached_may_be_changed():
    def parts(x):
        y = x * 2
        apart = y.detach()
        return y, apart[0], apart[1:], x.detach()[0]

    run, x = weft.compile(parts), weft.ones(2, 2, requires_grad=True)
    for _ in range(4):
        y, *views = run(x)
        for view in views:
            view.mul_(3)
        views[1][0].add_(1)
        assert y.tolist() == [[6, 6], [7, 7]]
        views[2].div_(3)


def test_views_of_a_detached_argument_have_it_as_their_base():
    @weft.compile
    def parts(x, w):
        (x * w).sum().backward()
        return x[0], x[1:]

    base, w = weft.ones(3, 2) * 2, weft.ones(3, 2, requires_grad=True)
    for make in (base.detach, base.clone, base.detach):
        for _ in range(6):
            x = make()
            assert all(part._base is x for part in parts(x, w))


def test_a_view_of_what_was_detached_gives_that_a_history():
    x, w = inputs(weft)
    shown = x.detach()
    row = shown[0]
    row.mul_(w)
    assert shown.grad_fn.name() == "CopySlices" and x.is_leaf and x.requires_grad
    shown.sum().backward()
    assert w.grad.tolist() == [0.5, 1.0, 1.5] and x.grad is None


def test_a_view_made_before_its_base_was_asked_for_gradients_is_not_changed():
    base = weft.zeros(2, 3)
    view, apart = base[:], base.detach()
    base.requires_grad_()
    for refused in (lambda: view.add_(5), lambda: base.add_(5), lambda: view[0].zero_()):
        with pytest.raises(RuntimeError, match="a (view of a )?leaf Variable that requires grad"):
            refused()
    apart[0].add_(5)
    assert base.tolist() == [[5] * 3, [0] * 3]


def test_a_view_of_a_view_that_is_a_leaf_is_not_changed():
    for block in (weft.no_grad, weft.inference_mode):
        x = weft.zeros(2)
        with block():
            view = x.view(2)
        view.requires_grad_()
        shown = view.view(2)
        with pytest.raises(
            RuntimeError, match="Output 0 of View is a view of a view .* is being .* inside the no_grad"
        ):
            shown /= 2


@pytest.mark.oracle
@pytest.mark.parametrize("compiled", [False, True])
def test_elements_of_expanded_tensors_that_are_there_once_may_be_changed(compiled):
    torch = pytest.importorskip("torch")

    def rows(ns, base):
        return base.expand(2, 3)

    def element(ns, w):
        base = w * 2
        rows(ns, base)[:, 0].mul_(w[:, 0])
        return base

    def assignment(ns, w):
        base = w * 2
        rows(ns, base)[:, 1] = w[:, 0] * 3
        return base

    def quotient(ns, w):
        base = ns.ones(1)
        numbers = base.expand(4)
        numbers[0] = 5
        numbers[0] /= 2
        return numbers * w[0]

    for function in (element, assignment, quotient):
        results = []
        for ns in (weft, torch):
            w = ns.tensor([[2.0], [3.0]], requires_grad=True)
            run = weft.compile(function) if compiled and ns is weft else function
            for _ in range(3):
                w.grad = None
                out = run(ns, w)
                out.sum().backward()
            results.append((out.tolist(), w.grad.tolist()))
        assert results[0] == results[1]
    for refused in (lambda x: x.add_(1), lambda x: x.__setitem__(slice(1, 3), 2.0), lambda x: x[:2].zero_()):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single mem"):
            (weft.compile(refused) if compiled else refused)(weft.ones(1).expand(4))
    fixed = np.ones(3, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(RuntimeError, match="the NumPy array whose memory the tensor shares is read-only"):
        weft.from_numpy(fixed)[0].add_(1)


def parts_scaled(ns, z, w):
    base = z * 1
    base.real.mul_(w)
    return base


def pairs_moved(ns, z, w):
    base = z.clone()
    pairs = ns.view_as_real(base).transpose(0, 1)
    pairs += w
    return pairs


def a_part_of_a_part(ns, z, w):
    base = z * 2
    row = base.view(6)[1:3]
    ns.view_as_real(row)[0].copy_(w * w)
    return base, row


def parts_of_a_base_that_changes(ns, z, w):
    base = z * 1
    parts = base.real, base.imag, base[1], ns.view_as_real(base)
    base.mul_(2j)
    base[0] = 1j * w
    return parts


def a_row_of_complex_numbers(ns, z, w):
    base = z * 1
    row, column = base[1], base[:, 0]
    row.mul_(2j)
    return row, column


def numbers_of_pairs(ns, z, w):
    base = ns.view_as_real(z) * 1
    ns.view_as_complex(base)[0].mul_(1j)
    return base


@pytest.mark.oracle
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        parts_scaled,
        pairs_moved,
        a_part_of_a_part,
        parts_of_a_base_that_changes,
        a_row_of_complex_numbers,
        numbers_of_pairs,
    ],
    ids=lambda function: function.__name__,
)
def test_views_of_complex_numbers(function, compiled):
    torch = pytest.importorskip("torch")
    results = []
    for ns in (weft, torch):
        z = ns.tensor([[1 + 2j, 3j, -1.0], [2 - 1j, 1.0, 0.5j]], requires_grad=True)
        w = ns.tensor([2.0], requires_grad=True)
        run = weft.compile(function) if compiled and ns is weft else function
        out = run(ns, z, w)
        out = out if isinstance(out, tuple) else (out,)
        factors = [ns.arange(1.0, 1 + x.numel()).reshape(x.shape) for x in out]
        parts = [(x.imag * f + x.real).sum() if x.is_complex() else (x * f).sum() for x, f in zip(out, factors)]
        sum(parts).backward()
        results.append([*(x.tolist() for x in out), z.grad.tolist(), None if w.grad is None else w.grad.tolist()])
    assert results[0] == results[1]


@pytest.mark.parametrize("made", ["detach", "Variable", "data", "slice"])
@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_what_was_detached_adds_up_what_requires_gradients(made, wrap):
    """A buffer of zeros, by PyTorch's old way a Variable, to which a loop adds one message after the other."""
    start = {
        "detach": lambda x: x.detach(),
        "Variable": weft.autograd.Variable,
        "data": lambda x: x.data,
        "slice": lambda x: x[:],
    }[made]

    def step(messages, weight):
        total = start(weft.zeros(3, 2))
        for message in messages:
            total += message * weight
            total[0] *= 2
        loss = (total * total).sum()
        loss.backward()
        return loss

    weight = weft.ones(2, requires_grad=True)
    step = wrap(step)
    messages = [weft.full((3, 2), float(k)) for k in range(1, 4)]
    for _ in range(4):
        weight.grad = None
        # Rows: ((1 * 2 + 2) * 2 + 3) * 2 = 22 for the first, 1 + 2 + 3 for the others.
        assert step(messages, weight).item() == 2 * (22.0**2 + 2 * 6.0**2)
        assert weight.grad.tolist() == [2 * (22.0**2 + 2 * 6.0**2)] * 2
