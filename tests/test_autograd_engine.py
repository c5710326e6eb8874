"""Backward passes: accumulation, retained graphs, grad(), modes and hooks, with weft and with PyTorch."""

import threading

import pytest
from autograd_programs import leaf, plain, program_into

import weft

PROGRAMS = []
program = program_into(PROGRAMS)


# --- requires_grad, leaves, accumulation ------------------------------------------------------------------------------
@program([True, False, True, False, True, True, False])
def contagion(ns):
    x, y = leaf(ns, [1.0]), ns.tensor([1.0])
    return [(x + y).requires_grad, (y + y).requires_grad, x.is_leaf, (x + y).is_leaf, y.is_leaf, (y + y).is_leaf,
            (x > y).requires_grad]  # fmt: skip


@program([[2, 2], [4, 4], None, [2, 2]])
def accumulation(ns):
    x = leaf(ns, [1.0, 2.0])
    (x * 2).sum().backward()
    first = x.grad.tolist()
    (x * 2).sum().backward()
    second = x.grad.tolist()
    x.grad = None
    cleared = x.grad
    (x * 2).sum().backward()
    return [first, second, cleared, x.grad]


@program([[3, 3], True])
def gradient_tensor_stays_the_same_object(ns):
    x = leaf(ns, [1.0, 2.0])
    x.sum().backward()
    kept = x.grad
    (x * 2).sum().backward()
    return [kept, kept is x.grad]


@program([[6, 6, 6], [[2, 2, 2], [2, 2, 2]]])
def broadcast_operands_are_summed(ns):
    x, y = leaf(ns, [1.0, 2.0, 3.0]), leaf(ns, [[1.0] * 3, [2.0] * 3])
    (x * y * 2).sum().backward()
    return [x.grad, (y.grad / x.detach())]


@program([[12, 27]])
def reused_values_sum_their_contributions(ns):
    x = leaf(ns, [2.0, 3.0])
    y = x * x
    (y * x).sum().backward()
    return [x.grad]


@program([[8, 8], [2, 2]])
def several_roots(ns):
    x = leaf(ns, [1.0, 1.0])
    a, b = (x * 3).sum(), x * 5
    ns.autograd.backward([a, b], [None, ns.ones(2, dtype=ns.float64)])
    total = x.grad.tolist()
    x.grad = None
    (x * 2).backward(ns.ones(2, dtype=ns.float64))
    return [total, x.grad]


@program([None, [5.0]])
def backward_to_chosen_inputs(ns):
    x, y = leaf(ns, [5.0]), leaf(ns, [2.0])
    (x * y).sum().backward(inputs=[y])
    return [x.grad, y.grad]


@program([[1.0, 4.0], None])
def frozen_parameters_get_none(ns):
    w, frozen = leaf(ns, [1.0, 2.0]), ns.tensor([1.0, 4.0], dtype=ns.float64)
    (w * frozen).sum().backward()
    return [w.grad, frozen.grad]


@program([[1], [2], [2], [3]])
def retained_graphs(ns):
    x = leaf(ns, [1.0])
    y = (x * x / 2).sum()
    found = []
    y.backward(retain_graph=True)
    found.append(x.grad.tolist())
    y.backward(retain_graph=True)
    found.append(x.grad.tolist())
    z = x + 1  # nothing saved: may be run again even when freed
    x.grad = None
    z.backward()
    z.backward()
    found.append(x.grad.tolist())
    y.backward()
    return [*found, x.grad]


@program([[2.0], [6.0]])
def retain_grad_of_inner_values(ns):
    x = leaf(ns, [3.0])
    y = x * x
    y.retain_grad()
    (y * 2).sum().backward()
    first = y.grad.tolist()
    (x * x * 2).sum()
    return [first, y.grad * 3]


@program([[6.0], [60.0], [60.0]])
def inputs_that_retain_their_gradient_get_it_once(ns):
    x = leaf(ns, [3.0])
    y, z = x * 1, x * 1
    y.retain_grad()
    (y * y).sum().backward(inputs=[y])
    z.register_hook(lambda grad: grad * 10)
    z.retain_grad()
    (z * z).sum().backward(inputs=[z, x])
    return [y.grad, z.grad, x.grad]


@program([False, True, False, None])
def retains_grad_and_deleting_grad(ns):
    x = leaf(ns, [3.0])
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    del x.grad
    return [x.retains_grad, y.retains_grad, (x * 1).retains_grad, x.grad]


@program([[[2.0, 4.0], [2.0, 4.0]], [4.0], [3.0, 4.0], [1.0, 4.0, 6.0]])
def roots_and_inputs_that_repeat(ns):
    x = leaf(ns, [1.0, 2.0])
    twice = ns.autograd.grad((x * x).sum(), [x, x])
    z = leaf(ns, [1.0])
    y = z * 2
    ns.autograd.backward([y, y])
    a, b = leaf(ns, [1.0, 2.0]), leaf(ns, [1.0, 2.0, 3.0])
    first, second = a.unbind()
    (first * 3 + second * 4).backward()
    head, tail = b.split([1, 2])
    (head.sum() + (tail * tail).sum()).backward()
    return [list(twice), z.grad, a.grad, b.grad]


@program([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
def gradients_share_no_memory(ns):
    x, y, g = leaf(ns, [1.0, 2.0]), leaf(ns, [1.0, 2.0]), ns.ones(2, dtype=ns.float64)
    (x + y).backward(g)
    x.grad.zero_()
    z = leaf(ns, [1.0, 2.0])
    z.backward(g)
    z.grad.add_(1)
    return [y.grad, g, z.grad - 1]


@program(["float32", "float64", "float32", "float64"])
def gradients_have_their_tensors_type(ns):
    x, d = ns.ones(2, requires_grad=True), ns.tensor(2.0, dtype=ns.float64, requires_grad=True)
    y = x * d
    y.sum().backward()
    z = ns.ones(2, requires_grad=True)
    (z * 2).backward(ns.ones(2, dtype=ns.float64))
    (z.double() * 3).sum().backward()
    return [str(t.dtype).split(".")[-1] for t in (x.grad, d.grad, z.grad, z.double())]


@program([[1.0]])
def long_chains_need_no_recursion(ns):
    x = leaf(ns, [1.0])
    y = x
    for _ in range(5000):
        y = y + 0
    y.sum().backward()
    return [x.grad]


# --- grad() -----------------------------------------------------------------------------------------------------------
@program([[[2.0]], None, True, [[0.0]], [[2.0], [6.0]]])
def grad_function(ns):
    x, y = leaf(ns, [1.0]), leaf(ns, [3.0])
    (gx,) = ns.autograd.grad((x * 2).sum(), [x])
    nothing = ns.autograd.grad((x * 2).sum(), [y], allow_unused=True)[0]
    zeros = ns.autograd.grad((x * 2).sum(), [y], materialize_grads=True)
    both = ns.autograd.grad([(x * 2).sum(), (y * y).sum()], [x, y])
    return [[gx], nothing, x.grad is None, list(zeros), list(both)]


@program([[2.0, 20.0], [3.0], [2.0]])
def grad_with_cotangents_and_inner_values(ns):
    x = leaf(ns, [1.0, 2.0])
    (weighted,) = ns.autograd.grad(x * 2, x, grad_outputs=ns.tensor([1.0, 10.0], dtype=ns.float64))
    a = leaf(ns, [1.0])
    b = a * 2
    c = b * 3
    (to_b,) = ns.autograd.grad(c, b, retain_graph=True)
    (to_a,) = ns.autograd.grad(c, a)
    return [weighted, to_b, to_a / 3]


@program([[1.0], [[1.0], [0.0]]])
def grad_of_a_leaf_itself(ns):
    x, y = leaf(ns, [1.0]), leaf(ns, [2.0])
    (own,) = ns.autograd.grad(x.sum(), x)
    return [own, list(ns.autograd.grad(x, [x, y], materialize_grads=True))]


@program([[12.0], [6.0], True, False])
def second_order(ns):
    x = leaf(ns, [2.0])
    (first,) = ns.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = ns.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = ns.autograd.grad(second.sum(), x)
    return [second, third, first.requires_grad, third.requires_grad]


@program([True, [27.0], [18.0]])
def backward_with_create_graph(ns):
    x = leaf(ns, [3.0])
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    x.grad = None
    first.sum().backward()
    return [first.requires_grad, first, x.grad]


# --- modes ------------------------------------------------------------------------------------------------------------
@program([False, True, False, True, True, False, True])
def gradient_modes(ns):
    x, found = leaf(ns, [1.0]), []

    @ns.no_grad()
    def without(v):
        return v * 2

    @ns.enable_grad()
    def with_grad(v):
        return v * 2

    with ns.no_grad():
        found.append((x * 2).requires_grad)
        found.append(with_grad(x).requires_grad)
    found.append(without(x).requires_grad)
    found.append((x * 2).requires_grad)
    with ns.no_grad(), ns.enable_grad():
        found.append((x * 2).requires_grad)
    with ns.set_grad_enabled(False):
        found.append((x * 2).requires_grad)
    return [*found, ns.is_grad_enabled()]


@program([False, True])
def set_grad_enabled_as_a_function(ns):
    x = leaf(ns, [1.0])
    ns.set_grad_enabled(False)
    off = (x * 2).requires_grad
    ns.set_grad_enabled(True)
    return [off, (x * 2).requires_grad]


@program([True, True, False])
def modes_survive_exceptions_and_are_per_thread(ns):
    try:
        with ns.no_grad():
            raise KeyError
    except KeyError:
        pass
    found = [ns.is_grad_enabled()]
    with ns.no_grad():
        thread = threading.Thread(target=lambda: found.append(ns.is_grad_enabled()))
        thread.start()
        thread.join()
        found.append(ns.is_grad_enabled())
    return found


@program([[1.0], [2.0], False, True, True])
def detach_shares_memory_and_stops_gradients(ns):
    x = leaf(ns, [1.0])
    y = x.detach()
    before = y.tolist()
    with ns.no_grad():
        x.add_(1)
    return [before, y, y.requires_grad, y.is_leaf, y.requires_grad_().requires_grad]


# --- hooks ------------------------------------------------------------------------------------------------------------
@program([[[2.0]], [20.0], [[2.0], [200.0]]])
def tensor_hooks(ns):
    seen = []
    x = leaf(ns, [1.0])
    y = x * 10
    y.register_hook(lambda g: seen.append(g.tolist()))
    (y * 2).sum().backward()
    first = (list(seen), x.grad.tolist())
    y = x * 10
    handle = y.register_hook(lambda g: g * 10)
    x.grad = None
    (y * 2).sum().backward()
    handle.remove()
    return [*first, [[2.0], x.grad]]


@program([[30.0], [[3.0]], [3.0]])
def hooks_on_leaves(ns):
    x, seen = leaf(ns, [1.0]), []
    handle = x.register_hook(lambda g: g * 10)
    (x * 3).sum().backward()
    changed = x.grad.tolist()
    handle.remove()
    x.grad = None
    x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 3).sum().backward()
    return [changed, seen, x.grad]


@program([[[4.0], [8.0]], None])
def post_accumulate_hooks(ns):
    x, seen = leaf(ns, [1.0]), []

    def note(p):
        seen.append(p.grad.tolist())

    x.register_post_accumulate_grad_hook(note)
    for _ in range(2):
        (x * 4).sum().backward()

    def step_and_clear(p):
        p.grad = None

    x.register_post_accumulate_grad_hook(step_and_clear)
    (x * 4).sum().backward()
    return [seen[:2], x.grad]


@program([[14.0], [[[2.0], [6.0]]], [[1.0]]])
def node_hooks(ns):
    x, seen, before = leaf(ns, [3.0]), [], []
    y = x * ns.tensor([2.0], dtype=ns.float64).requires_grad_()
    node = y.grad_fn
    node.register_prehook(lambda grads: before.append(grads[0].tolist()))
    node.register_hook(lambda inputs, outputs: seen.append([g.tolist() for g in (inputs[0], inputs[1] * 2)]))
    y.sum().backward()
    x.grad = None
    z = x * 7
    z.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 2, *inputs[1:]))
    z.sum().backward()
    return [x.grad, seen, before]


@pytest.mark.parametrize("function, expected", PROGRAMS)
def test_program(function, expected):
    assert plain(function(weft)) == expected


@pytest.mark.oracle
@pytest.mark.parametrize("function, expected", PROGRAMS)
def test_program_in_torch(function, expected):
    torch = pytest.importorskip("torch")
    assert plain(function(torch)) == expected


def test_what_deleting_attributes_means():
    x = leaf(weft, [3.0])
    with pytest.raises(RuntimeError, match="Deleting tensor data is not allowed"):
        del x.data
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        del x.requires_grad
    (x * 2).sum().backward()
    del x.grad
    assert x.grad is None


class Inner(weft.autograd.Function):
    """x - 1; its backward runs another one of the same, in which its own backward runs another one, down to 0."""

    @staticmethod
    def forward(ctx, x, seen):
        with weft.enable_grad():
            ctx.leaf = x.detach().requires_grad_()
            ctx.x, ctx.seen = ctx.leaf - 1, seen
        return ctx.x.detach()

    @staticmethod
    def backward(ctx, gradient):
        ctx.seen.append((weft.is_grad_enabled(), weft.get_default_dtype()))
        if ctx.x > 0:
            with weft.enable_grad():
                (Inner.apply(ctx.x, ctx.seen) * 2).sum().backward()
            gradient = gradient + ctx.leaf.grad
        elif ctx.x < 0:
            raise ValueError("below 0")
        return gradient, None


@pytest.mark.parametrize("create_graph", [False, True])
def test_backward_passes_hundreds_deep(create_graph):
    weft.set_default_dtype(weft.float64)
    try:
        for depth in (3, 100, 300):
            x, seen = weft.tensor(float(depth), requires_grad=True), []
            Inner.apply(x, seen).backward(create_graph=create_graph)
            assert x.grad.item() == 2 * depth - 1
            assert seen == [(create_graph, weft.float64)] + [(False, weft.float64)] * (depth - 1)
    finally:
        weft.set_default_dtype(weft.float32)


def test_an_error_hundreds_of_backward_passes_deep_arrives():
    x = weft.tensor(200.5, requires_grad=True)
    with pytest.raises(ValueError, match="below 0"):
        Inner.apply(x, []).backward()
    assert weft.is_grad_enabled() and x.grad is None
    (x * 2).backward()
    assert x.grad.item() == 2
