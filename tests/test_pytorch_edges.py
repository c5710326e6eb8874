"""Edges of functions PyTorch insists on: what is no tensor, what overlaps, NaN, infinities, and kinds of norms."""

import math

import numpy as np
import pytest

import weft

F = weft.nn.functional
OF_TENSORS = str.split("maximum minimum logical_and logical_or logical_xor atan2 logaddexp hypot dist")


@pytest.mark.parametrize("name", OF_TENSORS)
def test_numbers_are_no_tensors(name):
    function, x = getattr(weft, name), weft.ones(2)
    with pytest.raises(TypeError, match=rf"{name}\(\): argument 'other' \(position 2\) must be Tensor, not int; write"):
        function(x, 2)
    with pytest.raises(TypeError, match=r"argument 'input' \(position 1\) must be Tensor, not float"):
        function(2.0, x)
    assert function(x, np.ones(2, dtype=np.float32)).shape == function(x, weft.tensor(2.0)).shape or name == "dist"


@pytest.mark.parametrize("name", str.split("fmod eq ne lt le gt ge greater less not_equal"))
def test_the_first_of_two_is_a_tensor(name):
    function, x = getattr(weft, name), weft.ones(2)
    assert function(x, 2).shape == (2,)
    with pytest.raises(TypeError, match=r"argument 'input' \(position 1\) must be Tensor, not int"):
        function(2, x)
    assert (x > np.float64(0)).all() and (x > 0).all() and (2 * x).eq(2).all()


@pytest.mark.parametrize("function", [weft.linspace, weft.logspace])
def test_spacings_are_between_numbers(function):
    name = function.__name__
    with pytest.raises(TypeError, match=rf"{name}\(\): argument 'steps' .*must be int, not float"):
        function(0, 3, 1.0)
    with pytest.raises(
        RuntimeError, match=f"{name} only supports 0-dimensional start and end tensors, but got end with 1"
    ):
        function(0, weft.ones(2), 3)
    assert function(weft.tensor(0.0), np.float32(1), 3).tolist() == function(0, 1, steps=np.int64(3)).tolist()


def test_masks_fill_real_tensors_with_real_numbers():
    mask = weft.tensor([True, False])
    for value in (1j, weft.tensor(1j)):
        with pytest.raises(RuntimeError, match="value cannot be converted to type int64 without overflow"):
            weft.arange(2).masked_fill(mask, value)
    assert weft.ones(2, dtype=weft.complex64).masked_fill(mask, 1j).tolist() == [1j, 1]


def test_outputs_do_not_overlap_operands_in_part():
    x = weft.arange(6.0)
    with pytest.raises(RuntimeError, match="cumsum: unsupported operation: some elements of the input tensor"):
        weft.cumsum(x[:3], 0, out=x[1:4])
    with pytest.raises(RuntimeError, match="masked_select: unsupported operation"):
        weft.masked_select(x, x > 2, out=x[:3])
    assert weft.cumsum(x, 0, out=x) is x and x.tolist() == [0, 1, 3, 6, 10, 15]


@pytest.mark.parametrize("name", str.split("gelu hardshrink softshrink normalize"))
def test_functions_of_networks_write_into_outputs(name):
    x, function = weft.randn(3, 4), getattr(F, name)
    out = weft.empty(3, 4)
    assert function(x, out=out) is out and out.tolist() == function(x).tolist()


def test_linear_and_pooling_write_into_outputs():
    x, weight, out = weft.randn(3, 4), weft.randn(2, 4), weft.empty(3, 2)
    assert F.linear(x, weight, out=out) is out and out.tolist() == F.linear(x, weight).tolist()
    image, out = weft.randn(1, 1, 4, 4), weft.empty(1, 1, 2, 2)
    assert F.avg_pool2d(image, 2, out=out) is out and out.tolist() == F.avg_pool2d(image, 2).tolist()


def test_missing_numbers_pass_a_threshold():
    x = weft.tensor([math.nan, -1.0, 2.0], requires_grad=True)
    y = F.threshold(x, 0.5, -9.0)
    assert str(y.tolist()) == "[nan, -9.0, 2.0]" and str(weft.compile(F.threshold)(x, 0.5, -9.0).tolist()) == str(
        y.tolist()
    )
    assert weft.autograd.grad(y.sum(), [x])[0].tolist() == [1, 0, 1]


def test_angles_of_infinities():
    x = weft.tensor([math.inf, -math.inf, 0.0, -0.0, math.nan])
    assert str(x.angle().tolist()) == f"[0.0, {math.pi:.16}, 0.0, 0.0, nan]".replace(
        f"{math.pi:.16}", str(weft.tensor(math.pi).item())
    )


def test_vectors_are_normalized_by_the_count_of_what_is_not_zero():
    assert F.normalize(weft.tensor([[2.0, 0.0, 4.0]]), p=0.0).tolist() == [[1, 0, 2]]


def test_softmin_negates_in_the_type_of_its_input():
    x = weft.tensor([0, 1], dtype=weft.uint8)
    assert (
        F.softmin(x, 0, dtype=weft.float64).tolist()
        == F.softmax(weft.tensor([0.0, 255.0], dtype=weft.float64), 0).tolist()
    )


def test_in_place_forms_take_their_keywords():
    x = weft.tensor([1.26, -2.74])
    assert x.round_(decimals=1) is x and x.allclose(weft.tensor([1.3, -2.7]))
    z = weft.tensor([1 + 2j])
    assert z.conj_physical_() is z and z.tolist() == [1 - 2j]


def test_complex_numbers_of_real_ones_in_a_compiled_call():
    x, y = weft.ones(3, requires_grad=True), weft.full((3,), 2.0)

    def function(x):
        z = weft.complex(x * 2, y)
        return z, weft.autograd.grad((z * z).real.sum(), [x])[0]

    compiled = weft.compile(function)
    for _ in range(3):
        assert [part.tolist() for part in compiled(x)] == [part.tolist() for part in function(x)]


@pytest.mark.oracle
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_reflections_of_complex_matrices(left, transpose):
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(0)
    a, tau, other = (rng.normal(size=s) + 1j * rng.normal(size=s) for s in ((3, 3), (3,), (3, 3)))
    theirs = torch.ormqr(*map(torch.tensor, (a, tau, other)), left=left, transpose=transpose)
    mine = weft.ormqr(*map(weft.tensor, (a, tau, other)), left=left, transpose=transpose)
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), 1e-10)


def test_functions_that_move_elements_write_elsewhere():
    x, places = weft.arange(6.0), weft.tensor([0, 2, 1])
    for call in (
        lambda: weft.masked_select(x, x > -1, out=x),
        lambda: weft.take(x, places, out=x[:3]),
        lambda: weft.cat([x[:3], x[3:]], out=x),
        lambda: weft.gather(x, 0, places, out=x[3:]),
    ):
        with pytest.raises(RuntimeError, match="unsupported operation: some elements of the input tensor"):
            call()
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_types_of_some_outputs_are_fixed():
    x = weft.ones(2, 2)
    with pytest.raises(RuntimeError, match="amax: Expected out tensor to have dtype float32, but got float64 instead"):
        weft.amax(x, 0, out=weft.empty(2, dtype=weft.float64))
    with pytest.raises(RuntimeError, match="aminmax: Expected out tensor to have dtype float32, but got int32"):
        weft.aminmax(x, dim=0, out=(weft.empty(2), weft.empty(2, dtype=weft.int32)))
    out = weft.empty(2, dtype=weft.float64)
    assert weft.sum(x, 0, out=out) is out and out.tolist() == [2, 2]


def test_norms_write_into_outputs_and_those_of_nothing_are_zero():
    x, out = weft.randn(3, 4), weft.empty(3)
    assert weft.norm(x, 2, 1, out=out) is out and out.tolist() == weft.norm(x, 2, 1).tolist()
    assert weft.tensordot(x, x, 2, out=weft.empty(())).item() == weft.tensordot(x, x, 2).item()
    for order in (1, math.inf):
        assert weft.linalg.norm(weft.ones(0, 0), order).item() == 0


def test_gathering_nothing_takes_any_positions():
    assert weft.gather(weft.ones(5), 0, weft.zeros(2, 0, dtype=weft.uint8)).shape == (2, 0)
    with pytest.raises(RuntimeError, match="gather: the index must be an int64 or int32 tensor, got uint8"):
        weft.gather(weft.ones(5), 0, weft.zeros(1, dtype=weft.uint8))


def test_a_tensor_is_no_tuple_of_tensors():
    with pytest.raises(TypeError, match="argument 'tensors' .* must be tuple of Tensors, not Tensor"):
        weft.cat(weft.ones(2, 2))


def test_spherical_bessel_functions_end_at_zero():
    assert weft.special.spherical_bessel_j0(weft.tensor([math.inf, -math.inf, 0.0])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("function", [weft.max, weft.min])
def test_extremes_are_of_tensors(function):
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\): argument 'input' must be Tensor, not int"):
        function(2, weft.ones(3))


def test_softplus_above_its_threshold_is_its_argument():
    """Of float32 no choice is made there: what is added is less than such numbers can tell."""
    above = np.concatenate([np.linspace(20, 90, 5000), 20 + np.geomspace(1e-6, 1e38, 500), [np.inf]])
    for dtype, threshold in ((np.float32, 20.0), (np.float64, 20.0), (np.float32, 25.0)):
        x = weft.tensor(above.astype(dtype)).requires_grad_()
        y = weft.nn.functional.softplus(x, threshold=threshold)
        y.sum().backward()
        if dtype is np.float32:
            assert (y == x).all()
        else:
            assert (y == x)[x > 20].all()
        assert (x.grad[x > 20] == 1).all()
    low = weft.tensor([0.0, 3.0, -2.0])
    expected = np.where(low.numpy() > 1.0, low.numpy(), np.logaddexp(0, low.numpy()))
    np.testing.assert_allclose(weft.nn.functional.softplus(low, threshold=1.0).numpy(), expected, rtol=1e-6)


PRODUCTS_WITH_VECTORS = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((4, 2, 3), (3,)), ((3,), (5, 3, 2)), ((1,), (1,)), ((2, 0), (0,)),
    ((0, 3), (3,)), ((3,), (3, 0)),
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("shapes", PRODUCTS_WITH_VECTORS)
def test_derivatives_of_products_with_vectors(shapes):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in shapes]

    def gradients(library, x, y):
        out = x @ y
        first = library.autograd.grad(out, (x, y), library.ones_like(out) * 1.5, create_graph=True)
        return *first, *library.autograd.grad(sum((g * g).sum() for g in first), (x, y))

    leaves = [weft.tensor(a, requires_grad=True) for a in arrays]
    found = gradients(weft, *leaves)
    expected = gradients(torch, *[torch.tensor(a, requires_grad=True) for a in arrays])
    compiled = weft.compile(lambda x, y: gradients(weft, x, y))
    for ours, again, theirs in zip(found, [compiled(*leaves) for _ in range(3)][-1], expected):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-12)
        assert again.detach().numpy().tobytes() == ours.detach().numpy().tobytes()


@pytest.mark.parametrize("name", str.split("view_as reshape_as expand_as resize_as_ type_as"))
def test_what_is_no_tensor_has_no_shape_to_take(name):
    for other in ((2, 3), [6], 1, None, "a", {}):
        with pytest.raises(TypeError, match=rf"{name}\(\): argument .* must be Tensor, not "):
            getattr(weft.ones(6), name)(other)
    assert getattr(weft.ones(6), name)(weft.ones(6)).shape == (6,)


@pytest.mark.parametrize("name", str.split("fft2 fftn hfft2 hfftn ihfft2 ihfftn"))
def test_transforms_of_several_dimensions_name_the_argument(name):
    function, x = getattr(weft.fft, name), weft.ones(4, 4)
    with pytest.raises(TypeError, match=rf"{name}\(\): argument 's' must be int or tuple of ints, not str"):
        function(x, s="ab")
    with pytest.raises(TypeError, match=rf"{name}\(\): argument 'norm' \(position 4\) must be str, not int"):
        function(x, None, (0, 1), 2)
    assert function(x, norm="ortho").shape[0] == 4


@pytest.mark.parametrize("flag", [1, None, "a", 0.5, []])
def test_flags_that_operators_check_are_bools(flag):
    x = weft.full((3,), 0.5)
    for function, operands, name in (
        (weft.unique, (x,), "sorted"), (weft.Tensor.unique, (x,), "return_counts"), (F.kl_div, (x, x), "log_target"),
        (F.poisson_nll_loss, (x, x), "full"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"argument '{name}' must be bool, not "):
            function(*operands, **{name: flag})
        function(*operands, **{name: True})
    for dim in (True, 0.5):
        with pytest.raises(TypeError, match="argument 'dim' must be int, not "):
            weft.unique(x, dim=dim)
    assert weft.unique(x, False, True, dim=weft.tensor(0))[0].tolist() == [0.5]


@pytest.mark.oracle
@pytest.mark.parametrize("compiled", [False, True])
def test_relu_keeps_the_sign_of_zero(compiled):
    torch = pytest.importorskip("torch")
    values = [-0.0, 0.0, math.nan, -1.0, 2.0, -math.inf, math.inf] * 3
    relu = weft.compile(F.relu) if compiled else F.relu
    expected = torch.relu(torch.tensor(values))
    for found in (relu(weft.tensor(values)), relu(weft.tensor(values)), weft.tensor(values).relu_()):
        assert str(found.tolist()) == str(expected.tolist())
    x = weft.tensor([-0.0, 0.0, 1.0], requires_grad=True)
    assert weft.autograd.grad(relu(x).sum(), [x])[0].tolist() == [0, 0, 1]


@pytest.mark.oracle
@pytest.mark.parametrize("log_target", [False, True])
def test_divergences_at_probabilities_of_zero(log_target):
    torch = pytest.importorskip("torch")
    logs = [-1.0, -math.inf, 0.0, -2.0, -math.inf]
    target = [-math.inf, -math.inf, -1.0, 0.0, -1.0] if log_target else [0.0, 0.0, 0.5, 1.0, 0.5]
    found = []
    for library, compiled in ((weft, False), (weft, True), (torch, False)):
        x, y = (library.tensor(v, requires_grad=True) for v in (logs, target))
        divergence = library.nn.functional.kl_div

        def run(x, y, library=library, divergence=divergence):
            losses = divergence(x, y, reduction="none", log_target=log_target)
            return losses, *library.autograd.grad(losses.sum(), [x, y])

        results = (weft.compile(run) if compiled else run)(x, y)
        found.append([[f"{v:.6g}" for v in r.tolist()] for r in results])
    assert found[0] == found[1] == found[2]
