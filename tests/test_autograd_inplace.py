"""In-place changes, updates under no_grad, copies and shared memory in autograd, with weft and with PyTorch."""

import copy

import numpy as np
import pytest
from autograd_programs import leaf, plain, program_into

import weft

PROGRAMS = []
program = program_into(PROGRAMS)


# --- updates under no_grad --------------------------------------------------------------------------------------------
@program([[0.8, 1.6], [[0.0, 0.0]], [0.8, 1.6]])
def gradient_descent_by_hand(ns):
    w = leaf(ns, [1.0, 2.0])
    (w * w).sum().backward()
    with ns.no_grad():
        w -= 0.1 * w.grad
    w.grad.zero_()
    return [w, [w.grad], w.detach()]


@program([[0.5, 1.5], True, True])
def parameters_stay_leaves(ns):
    w = leaf(ns, [1.0, 2.0])
    with ns.no_grad():
        w.sub_(ns.tensor([0.5, 0.5], dtype=ns.float64))
    return [w, w.is_leaf, w.requires_grad]


@program([[7.0, 7.0]])
def assigning_and_changing_grad(ns):
    x = leaf(ns, [1.0, 2.0])
    x.grad = ns.tensor([3.0, 3.0], dtype=ns.float64)
    x.grad += 1
    x.grad *= 2
    (x * -1).sum().backward()
    return [x.grad]


# --- in place ---------------------------------------------------------------------------------------------------------
@program([[9.0, 15.0], [6.0, 6.0], [3.0, 5.0]])
def in_place_with_history(ns):
    a, y = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 3.0])
    x = a * 2
    x += 1
    kept = x.detach().clone()
    x.mul_(y)
    x.sum().backward()
    return [x, a.grad, y.grad * kept / kept]


@program([[[2.0, 4.0]], [12.0], [8.0]])
def in_place_chain_through_several_ops(ns):
    x = leaf(ns, [2.0])
    y = x * 1
    y.pow_(2)
    y.mul_(x).add_(x.detach())
    y.sum().backward()
    z = leaf(ns, [4.0])
    w = z.clone()
    w.copy_(z * 2)
    w.neg_().neg_()
    w.sum().backward()
    return [[[x.item(), (z.grad * 2).item()]], x.grad, w]


@program([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
def overwriting_cuts_history(ns):
    x = leaf(ns, [1.0, 2.0])
    y = x * 2
    y.zero_()
    (y + x * 0).sum().backward()
    first = x.grad.tolist()
    x.grad = None
    z = x * 1
    z[1] = 5.0
    z.sum().backward()
    second = x.grad.tolist()
    v = leaf(ns, [1.0, 1.0])
    out = ns.zeros(2, dtype=ns.float64)
    out[1] = (v * 2)[1]
    out.sum().backward()
    return [first, second, v.grad]


@program([3, 3, 1, True])
def views_share_versions(ns):
    x = ns.zeros(2, 3)
    v = x[0]
    x += 1
    v.mul_(2)
    x[1] = 3.0
    y = x.clone()
    y.add_(1)
    return [x._version, v._version, y._version, x[0].tolist() == v.tolist()]


@program([[[5.0, 5.0], [0.0, 0.0]], [[5.0, 1.0], [0.0, 1.0]]])
def views_share_memory(ns):
    x = ns.zeros(2, 2)
    x[0].fill_(5)
    first = x.tolist()
    x.t()[1].copy_(ns.ones(2))
    return [first, x]


# --- copies and memory ------------------------------------------------------------------------------------------------
@program([[1.0, 2.0], [9.0, 2.0], True, True, [1.0, 1.0], False])
def deep_copies(ns):
    x = leaf(ns, [1.0, 2.0])
    x.sum().backward()
    twin = copy.deepcopy(x)
    with ns.no_grad():
        twin[0] = 9
    return [x, twin, twin.requires_grad, twin.is_leaf, twin.grad, twin.grad is x.grad]


@program([[5.0, 2.0], [5.0, 7.0], [0.0, 7.0]])
def numpy_arrays_share_memory(ns):
    array = np.array([1.0, 2.0])
    x = ns.from_numpy(array)
    array[0] = 5
    first = x.tolist()
    x[1] = 7
    second = array.tolist()
    x.numpy()[0] = 0
    copied = ns.tensor(array)
    copied[0] = 100
    return [first, second, x]


@program([[2.0, 4.0], [1.0, 1.0]])
def data_attribute(ns):
    x = leaf(ns, [1.0, 2.0])
    y = x.sum()
    x.data.mul_(2)
    y.backward()
    return [x, x.grad]


@pytest.mark.parametrize("function, expected", PROGRAMS)
def test_program(function, expected):
    assert plain(function(weft)) == expected


@pytest.mark.oracle
@pytest.mark.parametrize("function, expected", PROGRAMS)
def test_program_in_torch(function, expected):
    torch = pytest.importorskip("torch")
    assert plain(function(torch)) == expected


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["atan2_", "xlogy_", "true_divide_", "divide_", "hypot_", "ldexp_"])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_what_changes_may_be_needed_for_the_gradient_of_an_argument(name, kind):
    torch = pytest.importorskip("torch")

    def run(library, changed):
        x, w = library.tensor([1.0, 2.0, 3.0]), library.tensor([2.0, 3.0, 4.0], requires_grad=True)
        y = changed(x.to(getattr(library, kind)), w)
        y.sum().backward()
        return [a.detach().numpy() for a in (y, w.grad)]

    def changed(x, w):
        y = x.clone()
        getattr(y, name)(w)
        return y

    eager = run(weft, changed)
    for a, b in zip(eager, run(torch, changed)):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    compiled = weft.compile(changed)
    for _ in range(3):
        assert [a.tobytes() for a in run(weft, compiled)] == [a.tobytes() for a in eager]
