"""Backward passes that native code runs give what Python's give, whoever looks on."""

import numpy as np
import pytest
from test_eager_native import IS_NATIVE, TIMES, native_calls, numbers

import weft
from weft.nn import functional
from weft.runtime.eager import plan


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)


def leaf(*shape, seed=0):
    return numbers(*shape, seed=seed).requires_grad_()


def chain(x, y):
    z = x
    for _ in range(5):
        z = (z * y + x).tanh()
    return z


def gradients(function, *leaves):
    for x in leaves:
        x.grad = None
    function(*leaves)
    return [x.grad.numpy().tobytes() for x in leaves]


PASSES = {
    "sum": lambda x, y: chain(x, y).sum().backward(),
    "cotangent": lambda x, y: chain(x, y).backward(numbers(4, 4, seed=3)),
    "mean": lambda x, y: chain(x, y).mean().backward(),
    "linear": lambda x, y: functional.mse_loss(functional.linear(x, y), y).backward(),
    "softmax": lambda x, y: (functional.softmax(x @ y, -1) * y).sum().backward(),
    "used twice": lambda x, y: (x * x + (x + x) * y).sum().backward(),
    "number": lambda x, y: (x * 2.0 + 3.0 - y / 0.5).sum().backward(),
    "chunks": lambda x, y: sum(p * q for p, q in zip(x.chunk(2, 1), (y * x).chunk(2, 1))).sum().backward(),
    "transposes": lambda x, y: ((x * y).t().reshape(2, 8).t() * 2.0).tanh().sum().backward(),
    "transposed cotangent": lambda x, y: chain(x, y).backward(numbers(4, 4, seed=3).t()),
    "transposed operand": lambda x, y: (x.t() * y * x.t().exp()).sum().backward(),
    "batches": lambda x, y: (weft.stack([x, y]).transpose(1, 2) @ weft.stack([y, x])).sum().backward(),
    "rows": lambda x, y: sum(a.tanh() * b for a, b in zip(x, y)).sum().backward(),
    "classes": lambda x, y: functional.cross_entropy(x @ y, weft.tensor([3, 1, 0, 0])).backward(),
    "twice": lambda x, y: [(x * y).sum().backward(), (x + y).tanh().sum().backward()],
    "views": lambda x, y: (x.t().reshape(16)[2:] * y.reshape(-1)[:14]).sum().backward(),
}


@pytest.mark.parametrize("name", PASSES)
def test_gradients_have_the_bits_of_python(name):
    plan.forget()
    x, y = leaf(4, 4), leaf(4, 4, seed=1)
    found = [gradients(PASSES[name], x, y) for _ in range(TIMES + 3)]
    assert all(one == found[0] for one in found)
    assert (native_calls(lambda: gradients(PASSES[name], x, y), "nodes_taken") >= 1) is IS_NATIVE


def test_all_nodes_of_a_chain_are_native():
    x, y = leaf(4, 4), leaf(4, 4, seed=1)
    for _ in range(TIMES):
        gradients(PASSES["cotangent"], x, y)
    assert native_calls(lambda: gradients(PASSES["cotangent"], x, y), "nodes_taken") == (15 if IS_NATIVE else 0)


def test_gradients_are_added_up():
    x, y = leaf(3), leaf(3, seed=1)
    for k in range(1, 8):
        (x * y).sum().backward()
        total = np.zeros(3, np.float32)
        for _ in range(k):
            total = total + y.numpy(force=True)
        assert x.grad.numpy().tobytes() == total.tobytes()


def test_gradients_share_memory_with_nothing():
    for _ in range(TIMES + 2):
        x, y, cotangent = leaf(3), leaf(3, seed=1), weft.ones(3)
        (x + y).backward(cotangent)
        x.grad.mul_(5.0)
        assert y.grad.tolist() == cotangent.tolist() == [1.0] * 3


def test_a_second_backward_is_refused_and_a_retained_one_is_not():
    x = leaf(3)
    for _ in range(TIMES + 2):
        x.grad = None
        y = (x.exp() * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        once = weft.autograd.grad((x.exp() * x).sum(), x)[0]
        assert x.grad.tolist() == (once * 2).tolist()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.backward()


def test_hooks_see_and_change_gradients():
    for _ in range(TIMES + 2):
        x, seen = weft.ones(2, requires_grad=True), []
        y = x * 3.0
        y.register_hook(lambda g: g * 10.0)
        y.retain_grad()
        z = y * 2.0
        z.grad_fn.register_hook(lambda _, arrived, seen=seen: seen.append(arrived[0].tolist()))
        z.sum().backward()
        assert x.grad.tolist() == [60.0, 60.0] and seen == [[1.0, 1.0]] and y.grad.tolist() == [20.0, 20.0]


class Failing(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        raise KeyboardInterrupt("in the middle")


def test_errors_in_the_middle_are_raised():
    for _ in range(TIMES + 2):
        x = leaf(3)
        with pytest.raises(KeyboardInterrupt, match="in the middle"):
            (Failing.apply(x * 2.0) * 3.0).sum().backward()
        assert x.grad is None


def test_functions_of_users_stand_between_native_nodes():
    class Double(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x)
            return x * 2.0, y * 4.0

        @staticmethod
        def backward(ctx, g, h):
            return g * 2.0, h * 4.0

    for _ in range(TIMES + 2):
        x = weft.ones(2, requires_grad=True)
        a, b = Double.apply(x * 3.0, x * 5.0)
        (a * b).sum().backward()
        assert x.grad.tolist() == [240.0, 240.0]


def test_changes_between_forward_and_backward_are_noticed():
    for _ in range(TIMES + 2):
        x = weft.ones(3, requires_grad=True)
        y = x * 2.0
        z = y.exp() + y * y
        y.detach().add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_deep_and_wide_graphs():
    for _ in range(3):
        x = weft.ones(2, requires_grad=True)
        y = x
        for _ in range(2000):
            y = y * 1.0
        sum((y * float(k) for k in range(50)), x).sum().backward()
        assert x.grad.tolist() == [1226.0, 1226.0]


def test_whole_training_steps():
    def train(steps):
        weft.manual_seed(0)
        model = weft.nn.Sequential(weft.nn.Linear(6, 5), weft.nn.ReLU(), weft.nn.LayerNorm(5), weft.nn.Linear(5, 3))
        optimizer = weft.optim.Adam(model.parameters(), lr=0.01)
        x, labels = numbers(8, 6), weft.tensor([0, 1, 2, 0, 1, 2, 0, 1])
        found = []
        for k in range(steps):
            if k == steps // 2:
                plan.forget()
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CALLS_BEFORE_NATIVE", 0)
        plan.forget()
        expected = train(12)
    plan.forget()
    assert train(12) == expected


def test_sums_are_written_over_nothing_that_somebody_holds():
    x, y = leaf(3, 3), leaf(3, 3, seed=1)
    for _ in range(TIMES):
        held = numbers(3, 3, seed=2)
        before = held.tolist()
        z = x * y
        (z + z + z).backward(held)
        seen = []
        handle = x.register_hook(seen.append)
        (x + x * 2.0 + x * y).backward(held)
        handle.remove()
        assert held.tolist() == before
        kept, values = seen[0], seen[0].tolist()
        (x + x * 3.0).backward(held)
        assert kept.tolist() == values


def test_gradients_that_are_there_are_added_to_in_place():
    x = leaf(3, 3)
    for _ in range(TIMES):
        x.grad = None
        (x * 2.0).sum().backward()
        gradient, version, memory = x.grad, x.grad._version, x.grad.data_ptr()
        view = gradient[1]
        (x * 3.0).sum().backward()
        assert x.grad is gradient and x.grad.data_ptr() == memory and gradient._version == version + 1
        assert gradient.tolist() == [[5.0] * 3] * 3 and view.tolist() == [5.0] * 3 and view._version == version + 1
    flat = weft.zeros(12)
    x.grad = flat[:9].reshape(3, 3)
    (x * 2.0).sum().backward()
    assert flat.tolist() == [2.0] * 9 + [0.0] * 3
    memory = np.ones((3, 3), np.float32)
    memory.flags.writeable = False
    x.grad = weft.from_numpy(memory)
    with pytest.raises(RuntimeError, match="read-only"):
        (x * 2.0).sum().backward()


def test_views_of_cotangents_are_not_what_leaves_keep():
    x = leaf(4, 4)
    for _ in range(TIMES + 2):
        x.grad = None
        cotangent = numbers(4, 4, seed=5)
        x.t().backward(cotangent)
        assert x.grad.tolist() == cotangent.t().tolist() and x.grad._base is None
        x.grad.zero_()
        assert cotangent.tolist() == numbers(4, 4, seed=5).tolist()


def functions_in_passes(T):
    """Gradients of users' Functions whose nodes hooks, several outputs and wanted inputs make different."""
    seen, nodes = [], []

    class Named(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.released = True  # a name that nodes of ops have too
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    class Hooked(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            nodes[-1].register_hook(lambda given, _: (given[0] * 10,))
            return grad * 2

    class Two(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(False)
            return x * 2, y * 3

        @staticmethod
        def backward(ctx, first, second):
            seen.append((first is None, second is None))
            return first, second

    class Rounded(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return grad

    x, y = T.arange(4.0).requires_grad_(), T.ones(4).requires_grad_()
    for _ in range(TIMES):
        x.grad = y.grad = None
        out = Named.apply(x * 3)
        (out * out).sum().backward()
        seen.append(x.grad.tolist())
        out = Hooked.apply(x * 3)
        nodes.append(out.grad_fn)
        out.sum().backward()
        seen.append(x.grad.tolist())
        one, _ = Two.apply(x * 3, y * 2)
        (one * one).sum().backward()
        seen.append((x.grad.tolist(), y.grad))
        cotangent = T.ones(4)
        x.grad = None
        Rounded.apply(x).backward(cotangent)
        x.grad.add_(1)
        (Rounded.apply(x * 1) + Rounded.apply(x * 2)).sum().backward()
        seen.append((cotangent.tolist(), x.grad.tolist()))
        out = Rounded.apply(x * 2)
        seen += [g.tolist() for g in T.autograd.grad((out * out).sum(), [out, x])]
    return seen


@pytest.mark.oracle
def test_functions_of_users_in_passes_are_those_of_pytorch():
    import torch

    assert functions_in_passes(weft) == functions_in_passes(torch)


def gradients_at_leaves(T):
    """What autograd.grad gives for leaves that are outputs too, wanted twice, hooked, or not reached."""
    seen = []
    x, y, z = T.arange(4.0).requires_grad_(), T.ones(4).requires_grad_(), T.ones(()).requires_grad_()
    hooked = T.ones(4).requires_grad_()
    hooked.register_hook(lambda grad: grad * 2)
    for _ in range(TIMES):
        found = [*T.autograd.grad((x * y).sum(), [x, x, y]), *T.autograd.grad(z, z)]
        found += T.autograd.grad(z, [x, z], allow_unused=True)
        found += T.autograd.grad([z, z * 2, (x * x * z).sum()], [z, x])
        found += T.autograd.grad((hooked * hooked * x).sum(), (g for g in (hooked, x)))
        middle = x * y
        found += T.autograd.grad((middle * x).sum(), [middle, y], retain_graph=True)
        found += T.autograd.grad((middle * x).sum(), [x])
        found += T.autograd.grad(x, x, T.ones(4))
        seen += [None if g is None else g.tolist() for g in (*found, x.grad, z.grad, hooked.grad)]
    return seen


@pytest.mark.oracle
def test_gradients_at_leaves_are_those_of_pytorch():
    import torch

    assert gradients_at_leaves(weft) == gradients_at_leaves(torch)


def _parts_and_shared(library, given):
    """Gradients that arrive as parts of one cotangent, and as one that arrives at several leaves."""
    leaves = [library.tensor(x).requires_grad_() for x in given]
    cotangent = library.tensor(np.arange(24, dtype=np.float32).reshape(6, 4))
    library.cat(leaves[:2]).backward(cotangent)
    library.cat(leaves[2:4], 1).backward(cotangent)
    (leaves[4] + leaves[5]).backward(cotangent)
    leaves[6].t().backward(cotangent.t())
    leaves[7].backward(cotangent)
    return leaves, cotangent


def test_gradients_of_parts_are_memory_of_their_own():
    shapes = [(2, 4), (4, 4), (6, 1), (6, 3), (6, 4), (6, 4), (6, 4), (6, 4)]
    given = [np.ones(shape, np.float32) for shape in shapes]
    for _ in range(TIMES):
        leaves, cotangent = _parts_and_shared(weft, given)
        wanted = np.arange(24, dtype=np.float32).reshape(6, 4)
        parts = [wanted[:2], wanted[2:], wanted[:, :1], wanted[:, 1:], wanted, wanted, wanted, wanted]
        assert all(np.array_equal(x.grad.numpy(), part) for x, part in zip(leaves, parts))
        assert all(x.grad.is_contiguous() and x.grad.is_leaf and x.grad._base is None for x in leaves)
        for k, x in enumerate(leaves):
            x.grad.fill_(float(-k))
        assert np.array_equal(cotangent.numpy(), wanted)
        assert all(float(x.grad.min()) == float(x.grad.max()) == -k for k, x in enumerate(leaves))
        cotangent.zero_()
        assert all(float(x.grad.max()) == -k for k, x in enumerate(leaves))


# --- what users have done to gradients --------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [3, 16, 1000])
@pytest.mark.parametrize("shift", [-7, -1, 0, 1, 7])
def test_a_gradient_that_shares_memory_with_what_is_added(n, shift):
    """A user has made one part of a tensor the gradient, and another part arrives there."""
    for _ in range(TIMES):
        memory = weft.arange(n + 20.0)
        x = weft.zeros(n, requires_grad=True)
        x.grad = memory[7 : n + 7]
        (x + 0).backward(memory[7 + shift : n + 7 + shift])
        assert x.grad.tolist() == [2 * k + 14.0 + shift for k in range(n)]


def modes_in_hooks(library):
    """The grad modes that hooks find after one that has set it, and whether the gradient requires gradients."""
    seen = []
    x = library.ones(3, requires_grad=True)
    m = x.exp()
    h = m.exp()
    h.register_hook(lambda g: [library.set_grad_enabled(True), None][1])
    m.register_hook(lambda g: seen.append(library.is_grad_enabled()))
    x.register_hook(lambda g: seen.append(library.is_grad_enabled()))
    h.sum().backward()
    return seen, x.grad.requires_grad, library.is_grad_enabled()


@pytest.mark.parametrize("library", ["weft", pytest.param("torch", marks=pytest.mark.oracle)])
def test_the_mode_that_a_hook_sets_is_that_of_its_node(library):
    """The nodes after it, and the gradient, are as without."""
    library = pytest.importorskip(library)
    for _ in range(TIMES):
        assert modes_in_hooks(library) == ([False, False], False, True)
