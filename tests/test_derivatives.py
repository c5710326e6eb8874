"""autograd.functional against PyTorch's: results, graphs, tuples, strict mode, errors; and inside compiled calls."""

import numpy as np
import pytest

import weft
from weft.autograd import functional


def tensors(library, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(library.tensor(rng.normal(size=s), dtype=library.float64) for s in ((2, 3), (3,)))


def two_outputs(x, y):
    return (x * y).sin(), (x.exp() @ y).sum()


def scalar(x, y):
    return (x.pow(3) @ y).sum() * y.sum() + (x * y).sin().sum()


def of_first(x, y):
    return x.exp().sum()


CALLS = {
    "vjp": lambda f, x, y, v: f.vjp(two_outputs, (x, y), v=(v[0], v[1].sum())),
    "vjp of one": lambda f, x, y, v: f.vjp(lambda x: x.exp().sum(), x),
    "jvp": lambda f, x, y, v: f.jvp(two_outputs, (x, y), v),
    "jvp of one": lambda f, x, y, v: f.jvp(lambda x: x[None] * y, y.sum(), v=x.sum()),
    "jacobian": lambda f, x, y, v: f.jacobian(two_outputs, (x, y)),
    "jacobian of one": lambda f, x, y, v: f.jacobian(lambda x: x @ y, x, vectorize=True),
    "jacobian of tuples": lambda f, x, y, v: f.jacobian(lambda x: (x @ y, x.sum()), (x,)),
    "jacobian forward": lambda f, x, y, v: f.jacobian(
        lambda x: x.sin() @ y, x, strategy="forward-mode", vectorize=True
    ),
    "hessian": lambda f, x, y, v: f.hessian(scalar, (x, y)),
    "hessian of one": lambda f, x, y, v: f.hessian(lambda x: x.pow(3).sum(), x),
    "hessian of a part": lambda f, x, y, v: f.hessian(of_first, (x, y)),
    "vhp": lambda f, x, y, v: f.vhp(scalar, (x, y), v),
    "hvp": lambda f, x, y, v: f.hvp(scalar, (x, y), v),
    "hvp of one": lambda f, x, y, v: f.hvp(lambda x: x.pow(3).sum(), y, v[1]),
    "hvp of a part": lambda f, x, y, v: f.hvp(of_first, (x, y), v),
}


def flat(result):
    return [x for r in result for x in flat(r)] if isinstance(result, tuple) else [result]


def structure(result):
    return tuple(map(structure, result)) if isinstance(result, tuple) else tuple(result.shape)


@pytest.mark.oracle
@pytest.mark.parametrize("name", CALLS)
def test_results_like_pytorch(name):
    torch = pytest.importorskip("torch")
    ours = CALLS[name](functional, *tensors(weft), tensors(weft, 1))
    theirs = CALLS[name](torch.autograd.functional, *tensors(torch), tensors(torch, 1))
    assert structure(ours) == structure(theirs)
    for a, b in zip(flat(ours), flat(theirs)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-10, 1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_compiled_calls_have_the_same_bits(name):
    compiled = weft.compile(lambda x, y, v: CALLS[name](functional, x, y, v))
    expected = [x.tolist() for x in flat(CALLS[name](functional, *tensors(weft), tensors(weft, 1)))]
    for _ in range(3):
        assert [x.tolist() for x in flat(compiled(*tensors(weft), tensors(weft, 1)))] == expected


def gradients_through(library):
    """Gradients of what the functions return with create_graph."""
    functions = library.autograd.functional
    x, y = (t.requires_grad_() for t in tensors(library))
    v = tensors(library, 1)
    found = []
    for result in (
        functions.jacobian(two_outputs, (x, y), create_graph=True)[0][1],
        functions.hessian(scalar, (x, y), create_graph=True)[0][1],
        functions.vjp(two_outputs, (x, y), (v[0], v[1].sum()), create_graph=True)[1][0],
        functions.jvp(two_outputs, (x, y), v, create_graph=True)[1][0],
        functions.vhp(scalar, (x, y), v, create_graph=True)[1][0],
        functions.hvp(scalar, (x, y), v, create_graph=True)[1][0],
    ):
        found += library.autograd.grad(result.pow(2).sum(), [x, y])
    assert x.grad is None and not functions.jacobian(scalar, (x, y))[0].requires_grad
    return found


@pytest.mark.oracle
def test_graphs_go_on_like_pytorch():
    torch = pytest.importorskip("torch")
    for a, b in zip(gradients_through(weft), gradients_through(torch)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-9, 1e-11)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "call",
    [
        lambda f, x, y: f.jacobian(lambda x, y: x.exp(), (x, y), strict=True),
        lambda f, x, y: f.jacobian(lambda x: y * 1, x, strict=True),
        lambda f, x, y: f.jacobian(lambda x: x * 2, x, strict=True, create_graph=True),
        lambda f, x, y: f.jacobian(lambda x: x * 2, x, strategy="fastest"),
        lambda f, x, y: f.vjp(lambda x: x * 2, x),
        lambda f, x, y: f.vjp(lambda x: x * 2, x, y),
        lambda f, x, y: f.vjp(lambda x: x * 2, x, (x, x)),
        lambda f, x, y: f.vjp(lambda x, y: (x * 2, y), (x, y), (x, x)),
        lambda f, x, y: f.vjp(lambda x, y: x.sum(), (x, y), strict=True),
        lambda f, x, y: f.vjp(lambda x: [x.sum()], x),
        lambda f, x, y: f.vjp(lambda x: x, [x]),
        lambda f, x, y: f.jvp(lambda x: x, x),
        lambda f, x, y: f.jvp(lambda x, y: x, (x, y), (x,)),
        lambda f, x, y: f.hessian(lambda x: x, x),
        lambda f, x, y: f.hessian(lambda x: (x.sum(),), x),
        lambda f, x, y: f.hessian(lambda x: x.sum(), x, strict=True),
        lambda f, x, y: f.vhp(lambda x: x, x, x),
        lambda f, x, y: f.hvp(lambda x: x.sum(), x, x, strict=True),
    ],
)
def test_errors_like_pytorch(call):
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        call(torch.autograd.functional, *tensors(torch))
    with pytest.raises(theirs.type) as ours:
        call(functional, *tensors(weft))
    assert str(ours.value).split()[:4] == str(theirs.value).split()[:4]


@pytest.mark.oracle
def test_batches_of_cotangents_like_pytorch():
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        x, y = (t.requires_grad_() for t in tensors(library))
        first, second = two_outputs(x, y)
        rows = library.eye(6, dtype=library.float64)[:4].reshape(4, 2, 3), library.arange(4.0, dtype=library.float64)
        gradients = library.autograd.grad((first, second), (x, y), rows, is_grads_batched=True, create_graph=True)
        others = [y, library.ones(1, requires_grad=True)]
        options = {"is_grads_batched": True, "allow_unused": True, "retain_graph": True}
        unused = library.autograd.grad(first, others, rows[:1], **options)
        assert unused[1] is None
        found.append([*gradients, unused[0], *library.autograd.grad(gradients[0].pow(2).sum(), [x, y])])
    for a, b in zip(*found):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-10)


def test_batches_of_cotangents_that_are_none():
    x = weft.ones(2, requires_grad=True)
    for rows in (None, weft.tensor(1.0), weft.zeros(0, 2)):
        with pytest.raises(RuntimeError, match="must be a tensor whose first dimension counts cotangents"):
            weft.autograd.grad(x * 2, x, rows, is_grads_batched=True)


@pytest.mark.oracle
def test_helpers_that_programs_import():
    """A Jacobian of results that are there, put together with them as minimizers do it."""
    torch = pytest.importorskip("torch")

    def jacobian(T, several_in, several_out, create_graph):
        from_here = T.autograd.functional
        given = [T.tensor(a).requires_grad_() for a in (np.arange(3.0), np.ones((2, 2)))][: 1 + several_in]
        outputs = tuple((x.sin() * sum(y.sum() for y in given)).reshape(-1)[:2] for x in given)[: 1 + several_out]
        is_in, inputs = from_here._as_tuple(tuple(given) if several_in else given[0], "inputs", "jacobian")
        is_out, outputs = from_here._as_tuple(outputs if several_out else outputs[0], "outputs", "jacobian")
        sizes = tuple(x.numel() for x in outputs)
        basis = from_here._construct_standard_basis_for(outputs, sizes)
        rows = T._vmap_internals._vmap(lambda v: T.autograd.grad(outputs, inputs, v, create_graph=True))(basis)
        found = [
            tuple(part.view(y.shape + x.shape) for part, y in zip(row.split(sizes), outputs))
            for row, x in zip(rows, inputs)
        ]
        found = from_here._grad_postprocess(tuple(zip(*found)), create_graph=create_graph)
        return from_here._tuple_postprocess(found, (is_out, is_in))

    def flat(found):
        return [x for part in found for x in flat(part)] if isinstance(found, tuple) else [found]

    def shape_of(found):
        return tuple(map(shape_of, found)) if isinstance(found, tuple) else tuple(found.shape)

    for options in np.ndindex(2, 2, 2):
        ours, theirs = jacobian(weft, *map(bool, options)), jacobian(torch, *map(bool, options))
        assert shape_of(ours) == shape_of(theirs)
        for one, other in zip(flat(ours), flat(theirs)):
            assert one.requires_grad == other.requires_grad
            np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy())


@pytest.mark.oracle
def test_helpers_about_tuples():
    torch = pytest.importorskip("torch")
    seen = []
    for T in (weft, torch):
        from_here, x = T.autograd.functional, T.ones(2, requires_grad=True)
        noted = [from_here._as_tuple(x) == (x,), from_here._as_tuple([x, x])[1] is x]
        for wrong in (3, (x, 3)):
            with pytest.raises(TypeError) as caught:
                from_here._as_tuple(wrong, "inputs", "vjp")
            noted.append(str(caught.value))
        for create_graph in (False, True):
            for need_graph in (False, True):
                one, other = from_here._grad_preprocess((x, x), create_graph, need_graph)
                noted += [one is x, one.requires_grad, one.is_leaf, other.is_leaf]
        noted += [from_here._tuple_postprocess((1, 2), True), from_here._tuple_postprocess((1,), False)]
        seen.append(noted)
    assert seen[0] == seen[1]
