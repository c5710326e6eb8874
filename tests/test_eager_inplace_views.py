"""Changes in place of views while gradients are recorded, made by native code: what the base and all living views are
from then on, as Python has it and PyTorch does."""

import gc

import numpy as np
import pytest
from changes_beside_torch import assert_gradients_of_pytorch

import weft
from weft.runtime.eager import plan
from weft.runtime.replay import eager_native, native

IS_NATIVE = native.layout() is not None
TIMES = 6


@pytest.fixture(autouse=True)
def native_at_once(monkeypatch):
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    plan.forget()


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def put(x, key, value):
    x[key] = value


def add_to_item(x, key, value):
    x[key] += value


def with_views(x, w, change, *views):
    """What is read of the views after the change is the result too."""
    living = [view(x) for view in views]
    change(living)
    return sum((v * (k + 2.0)).sum() for k, v in enumerate(living))


# x: computed; w: a leaf like it; v: a leaf of one row; c: a constant like it; z: zeros without a history.
CHANGES = {
    "item plus a number": lambda ns, x, w, v, c, z: add_to_item(x, 1, 1.0),
    "item plus a leaf": lambda ns, x, w, v, c, z: add_to_item(x, 1, v),
    "item plus items, in turn": lambda ns, x, w, v, c, z: [add_to_item(x, k, x[k - 1]) for k in range(1, 4)],
    "column plus": lambda ns, x, w, v, c, z: add_to_item(x, (slice(None), 1), w[:, 0]),
    "element plus": lambda ns, x, w, v, c, z: add_to_item(x, (2, 1), v[0]),
    "row times": lambda ns, x, w, v, c, z: x[1].mul_(v),
    "row times a constant": lambda ns, x, w, v, c, z: x[1].mul_(c[0]),
    "row times itself": lambda ns, x, w, v, c, z: x[1].mul_(x[1].clone()),
    "row cleared": lambda ns, x, w, v, c, z: x[1].zero_(),
    "row filled": lambda ns, x, w, v, c, z: x[1].fill_(2.0),
    "row copied": lambda ns, x, w, v, c, z: x[1].copy_(v),
    "row copied from a constant": lambda ns, x, w, v, c, z: x[1].copy_(c[0]),
    "row by exp": lambda ns, x, w, v, c, z: x[1].exp_(),
    "row by sigmoid": lambda ns, x, w, v, c, z: x[1].sigmoid_(),
    "rows clamped": lambda ns, x, w, v, c, z: x[1:3].clamp_(-0.5, 0.5),
    "transposed": lambda ns, x, w, v, c, z: x.t().mul_(w.t()),
    "part of the transposed": lambda ns, x, w, v, c, z: x.t()[1:3].add_(w.t()[1:3]),
    "every other": lambda ns, x, w, v, c, z: x[::2, 1::2].mul_(w[::2, 1::2]),
    "view of a view": lambda ns, x, w, v, c, z: x[1:][1:][:, 2].mul_(w[2:, 2]),
    "reshaped": lambda ns, x, w, v, c, z: x.view(2, 2, 5)[1, 0].add_(v),
    "flat": lambda ns, x, w, v, c, z: x.view(-1)[3:8].mul_(v),
    "diagonal": lambda ns, x, w, v, c, z: x.diagonal().mul_(w.diagonal()),
    "fill_diagonal_": lambda ns, x, w, v, c, z: x.fill_diagonal_(0.5),
    "unsqueezed": lambda ns, x, w, v, c, z: x.unsqueeze(0)[0, 2].add_(v),
    "one view, again and again": lambda ns, x, w, v, c, z: (lambda r: r.add_(v).mul_(w[0]).sin_().add_(1.0))(x[2]),
    "rows of zeros": lambda ns, x, w, v, c, z: [z[k].add_(v * w[k]) for k in range(4)],
    "rows of zeros set": lambda ns, x, w, v, c, z: [z[k].copy_(v * w[k]) for k in range(4)],
    "a part of a part of zeros": lambda ns, x, w, v, c, z: z[1:][0, 1:3].add_(v[1:3]),
    "whole and part": lambda ns, x, w, v, c, z: (x.mul_(w), x[1].add_(v), x.mul_(2.0), x[:, 0].mul_(3.0)),
    "whole cleared": lambda ns, x, w, v, c, z: x.zero_(),
    "whole filled": lambda ns, x, w, v, c, z: (x.mul_(w), x.fill_(1.5), x[1].add_(v)),
    "whole copied from a constant": lambda ns, x, w, v, c, z: x.copy_(c),
    "another view lives": lambda ns, x, w, v, c, z: with_views(
        x, w, lambda views: views[0].mul_(v), lambda t: t[1], lambda t: t[:, 1], lambda t: t[1:3]
    ),
    "a view lives, and the whole changes": lambda ns, x, w, v, c, z: with_views(
        x, w, lambda views: x.mul_(w), lambda t: t[1], lambda t: t.t()
    ),
    "two views in turn": lambda ns, x, w, v, c, z: with_views(
        x, w, lambda views: [y.mul_(v) for y in (*views, *views)], lambda t: t[1], lambda t: t[2]
    ),
    "a view lives of zeros": lambda ns, x, w, v, c, z: with_views(
        z, w, lambda views: z[0].add_(v), lambda t: t[0], lambda t: t[:, 1]
    ),
    "a view lives, and the whole is cleared": lambda ns, x, w, v, c, z: with_views(
        x, w, lambda views: x.zero_(), lambda t: t[1]
    ),
    "a detached view lives": lambda ns, x, w, v, c, z: (lambda d: x[0].mul_(v).add_(d[0]))(x.detach()),
    "retained": lambda ns, x, w, v, c, z: (x.retain_grad(), x[1].mul_(v)),
    "hooked after": lambda ns, x, w, v, c, z: (x[1].mul_(v), x.register_hook(lambda g: g * 2.0))[:1],
    "hooked between": lambda ns, x, w, v, c, z: (x[1].mul_(v), x.register_hook(lambda g: g * 2.0), x[2].mul_(v))[:1],
    "a hook on the view": lambda ns, x, w, v, c, z: (lambda r: r.mul_(v).register_hook(lambda g: g * 2.0))(x[1]),
    "read between": lambda ns, x, w, v, c, z: (x[0].mul_(v), x.sum(), x[1].mul_(v)),
}  # fmt: skip


def differentiated(library, name, dtype):
    """Values, versions, names, first and second gradients of a program with this change."""

    def leaf(*shape, seed):
        return library.tensor(numbers(*shape, seed=seed), dtype=getattr(library, dtype), requires_grad=True)

    w, v = leaf(4, 5, seed=1), leaf(5, seed=2)
    x, c = w * 1.5, leaf(4, 5, seed=3).detach()
    z = library.zeros(4, 5, dtype=x.dtype)
    found = CHANGES[name](library, x, w, v, c, z)
    out = (x * z).sin() + x + z
    total = out.sum()
    if isinstance(found, library.Tensor) and not found.ndim:
        total = total + found
    plain = library.autograd.grad(total, [w, v], retain_graph=True, allow_unused=True) if total.requires_grad else []
    first = library.autograd.grad(total, [w, v], create_graph=True, allow_unused=True) if total.requires_grad else []
    used = [g for g in first if g is not None and g.requires_grad]
    second = []
    if used:
        squares = sum((g * g).sum() for g in used)
        second = library.autograd.grad(squares, [w, v], retain_graph=True, allow_unused=True)
    if total.requires_grad:
        total.backward()
    kept = x.grad if x.retains_grad else None
    flags = x._version, z._version, x.requires_grad, z.requires_grad, x.is_leaf, z.is_leaf
    gradients = [w.grad, v.grad, kept]
    values = [None if t is None else t.detach().numpy().copy() for t in (x, z, *plain, *first, *second, *gradients)]
    return flags, values, (type(x.grad_fn).__name__, type(z.grad_fn).__name__)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CHANGES)
def test_every_time_the_same(name, dtype):
    found = {str(differentiated(weft, name, dtype)) for _ in range(TIMES)}
    assert len(found) == 1


@pytest.mark.oracle
@pytest.mark.parametrize("name", CHANGES)
def test_the_gradients_are_those_of_pytorch(name):
    assert_gradients_of_pytorch(differentiated, name, TIMES)


def test_changes_of_views_and_their_backward_are_native():
    w, v = weft.tensor(numbers(4, 5), requires_grad=True), weft.tensor(numbers(5), requires_grad=True)

    def step():
        x = w * 1.5
        x[1].mul_(v)
        x[:, 2].mul_(2.0)
        x[3] += 1.0
        row = x[2]
        row.mul_(v)
        x.mul_(w)
        ((x * w).sum() + row.sum()).backward()

    for _ in range(TIMES):
        step()
    if not IS_NATIVE:
        return
    asked = []
    run = weft.runtime.eager.rebase.CopySlices.run
    weft.runtime.eager.rebase.CopySlices.run = lambda *given: asked.append(given) or run(*given)
    try:
        before = eager_native.taken("calls_taken")
        step()
    finally:
        weft.runtime.eager.rebase.CopySlices.run = run
    assert not asked and eager_native.taken("calls_taken") - before >= 15


def refusals(library):
    """What is said of changes that are not to be made, each time; and what else happens to the tensors: nothing."""

    def leaf():
        return library.ones(3, 4, requires_grad=True)

    def of_unbind():
        x = leaf() * 2.0
        x.unbind(0)[1].mul_(2.0)

    def of_split():
        x = leaf() * 2.0
        x.split(2)[0].add_(1.0)

    def inside_of_chunk():
        x = leaf() * 2.0
        x.chunk(2)[0][0].add_(1.0)

    def of_a_leaf():
        leaf()[0].mul_(2.0)

    def of_a_view_without_history():
        x = leaf() * 2.0
        with library.no_grad():
            row = x[0]
        row.mul_(2.0)

    def of_a_saved_value():
        w = leaf()
        x = w * 1.0
        y = x * x
        x[0].mul_(2.0)
        y.sum().backward()

    def of_a_saved_result():
        x = leaf() * 1.0
        y = x.exp()
        y[0].mul_(2.0)
        y.sum().backward()

    found = []
    for program in (
        of_unbind, of_split, inside_of_chunk, of_a_leaf, of_a_view_without_history, of_a_saved_value, of_a_saved_result
    ):  # fmt: skip
        try:
            program()
            found.append(None)
        except RuntimeError as error:
            words = ("multiple views", "no_grad mode", "leaf Variable", "modified by an inplace operation")
            found.append([word for word in words if word in str(error)][:1])
    return found


@pytest.mark.oracle
def test_what_is_refused():
    torch = pytest.importorskip("torch")
    expected = refusals(torch)
    assert None not in expected
    for _ in range(TIMES):
        assert refusals(weft) == expected


def test_a_saved_output_that_a_view_of_it_is():
    for _ in range(TIMES):
        w = weft.full((2, 3), 0.5, requires_grad=True)
        x = w * 2.0
        x[1].sigmoid_()
        x.sum().backward()
        s = 1 / (1 + np.exp(-1.0))
        np.testing.assert_allclose(w.grad.numpy(), [[2.0] * 3, [2 * s * (1 - s)] * 3], rtol=1e-6)


def test_no_grad_changes_of_views_leave_histories_alone():
    for _ in range(TIMES):
        w = weft.ones(2, 3, requires_grad=True)
        x = w * 2.0
        before = x.grad_fn
        with weft.no_grad():
            x[1].mul_(3.0)
        assert x.grad_fn is before and x._version == 1
        x.sum().backward()
        assert w.grad.tolist() == [[2.0] * 3] * 2


def test_a_long_chain_of_changes():
    w = weft.ones(8, requires_grad=True)
    for _ in range(2):
        x = w * 1.0
        for k in range(3000):
            x[k % 8] += 0.5
        w.grad = None
        x.sum().backward()
        assert w.grad.tolist() == [1.0] * 8
        del x
    gc.collect()


@pytest.mark.parametrize("kind", ["complex64", "float16", "bfloat16"])
def test_other_types(kind):
    """Their nodes run too, natively or not, and every time the same."""
    found = set()
    for _ in range(TIMES):
        w = weft.ones(3, 4, dtype=getattr(weft, kind), requires_grad=True)
        x = w * 2.0
        x[1].mul_(3.0)
        x[:, 1] = 1.0
        x[2] += w[0]
        (x * x.conj()).real.sum().backward() if kind == "complex64" else x.sum().backward()
        found.add(str((x.tolist(), w.grad.tolist())))
    assert len(found) == 1


def test_real_parts_of_complex_numbers():
    for _ in range(TIMES):
        w = weft.ones(3, dtype=weft.complex64, requires_grad=True)
        x = w * 2.0
        x.real.mul_(3.0)
        x.real.sum().backward()
        assert w.grad.tolist() == [6.0 + 0j] * 3


def test_expanded_views():
    for _ in range(TIMES):
        w = weft.ones(4, requires_grad=True)
        x = w * 2.0
        twice = x.expand(2, 4)
        x[1:3].mul_(2.0)
        twice.sum().backward()
        assert w.grad.tolist() == [4.0, 8.0, 8.0, 4.0]
