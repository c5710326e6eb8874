"""Functions that PyTorch has beside its layers and newer functions: results, derivatives and errors as PyTorch's."""

import warnings

import numpy as np
import pytest
from prepared_parts import is_prepared, prepared

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

RNG = np.random.default_rng(0)


def numbers(*shape, kind="float64"):
    return RNG.standard_normal(shape).astype(kind)


def compare(call, *arrays, gradients=True, tolerance=1e-9):
    """call(module, *tensors) on both, the gradient of a weighted sum of its results, and the compiled bits."""
    results = []
    for module in (torch, weft):
        tensors = [module.tensor(a) for a in arrays]
        if gradients:
            tensors = [t.requires_grad_() if t.dtype.is_floating_point else t for t in tensors]
        made = call(module, *tensors)
        made = made if isinstance(made, (tuple, list)) else [made]
        values = [x.detach().numpy().copy() for x in made]
        parts = [(x * module.arange(1, x.numel() + 1).reshape(x.shape)).sum() for x in made if x.requires_grad]
        if parts:
            sum(parts).backward()
        values += [np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in tensors if t.requires_grad]
        results.append(values)
    theirs, ours = results
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


def test_norms_ranges_and_powers():
    compare(lambda m, x: m.frobenius_norm(x, [0]), numbers(2, 3))
    compare(lambda m, x: m.frobenius_norm(x, [0, 1], True), numbers(2, 3))
    compare(lambda m, x: m.nuclear_norm(x), numbers(2, 3))
    compare(lambda m, x: m.nuclear_norm(x, (0, 2), True), numbers(2, 2, 3))
    compare(lambda m, x: m.vander(x), numbers(4), gradients=False)
    assert weft.autograd.gradcheck(weft.vander, weft.tensor(numbers(3), requires_grad=True))
    compare(lambda m, x: m.vander(x, 2, True), np.array([1, 2, 3]), gradients=False)
    compare(lambda m, x: m.vander(x, N=0), numbers(3), gradients=False)
    compare(lambda m, v: m.norm_except_dim(v, 2, 1), numbers(3, 4, 2))
    for arguments in ((0, 3), (0, 1, 0.3), (5, 1, -2), (1.5, 4)):
        with pytest.warns(UserWarning, match="torch.range is deprecated"):
            compare(lambda m, arguments=arguments: m.range(*arguments), gradients=False)
    with pytest.warns(UserWarning, match="deprecated"):
        compare(lambda m: m.range(0, 5, dtype=m.int64), gradients=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for wrong in ((3, 1), (0, 3, 0)):
            with pytest.raises(RuntimeError):
                torch.range(*wrong)
            with pytest.raises(RuntimeError):
                weft.range(*wrong)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments_are_reduced(reduce):
    # PyTorch has it for floats, and the derivative of the first dimension's segments.
    lengths = np.array([2, 0, 3, 1])
    for initial in (None, 1.5):
        compare(
            lambda m, x, of=initial: m.segment_reduce(x, reduce, lengths=m.tensor(lengths), initial=of),
            numbers(6, 2),
            gradients=reduce != "mean" or initial is None,
        )
    compare(lambda m, x: m.segment_reduce(x, reduce, offsets=m.tensor([0, 2, 6])), numbers(6))
    rows = np.array([[2, 1], [1, 2]])
    compare(lambda m, x: m.segment_reduce(x, reduce, lengths=m.tensor(rows), axis=1), numbers(2, 3), gradients=False)


def test_segments_that_do_not_fit_are_refused():
    for module in (torch, weft):
        with pytest.raises(RuntimeError, match="Expected all rows of lengths"):
            module.segment_reduce(module.ones(6), "sum", lengths=module.tensor([2, 1]))
        with pytest.raises(RuntimeError, match="Either lengths or offsets"):
            module.segment_reduce(module.ones(6), "sum")


def test_what_was_removed_says_what_to_write():
    for name, count in (("eig", 1), ("symeig", 1), ("lstsq", 2), ("solve", 2)):
        for module in (torch, weft):
            with pytest.raises(RuntimeError, match="deprecated since version 1.9 and is now removed"):
                getattr(module, name)(*[module.ones(2, 2)] * count)


def test_functions_of_the_same_name_still_do_nothing_but_ops():
    """A function that names linalg.solve is taken whole, though weft.solve has been asked for."""
    assert callable(weft.solve)
    matrix = weft.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=weft.float64)
    both = prepared(weft.value_and_grad(lambda x: weft.linalg.solve(matrix, x).sum()), np.array([1.0, 2.0]))
    assert is_prepared(both), both.explain()


def test_convolutions_by_one_name():
    x, w, b = numbers(2, 4, 7, 6), numbers(6, 2, 3, 2), numbers(6)
    compare(lambda m, x, w, b: m.convolution(x, w, b, [2, 1], [1, 0], [1, 2], False, [0, 0], 2), x, w, b)
    compare(lambda m, x, w: m.convolution(x, w, None, [2], [1], [1], True, [1], 1), x, numbers(4, 3, 3, 2))
    compare(lambda m, x, w: m.convolution(x, w, None, [1], [0], [1], False, [0], 1), numbers(1, 2, 5), numbers(3, 2, 2))


def test_images_read_at_places():
    theta = numbers(2, 2, 3)
    compare(lambda m, t: m.affine_grid_generator(t, [2, 3, 4, 5], True), theta)
    image, grid = numbers(2, 3, 5, 4), numbers(2, 3, 3, 2)
    for mode in (0, 1, 2):
        for padding in (0, 1, 2):
            compare(lambda m, x, g, a=mode, b=padding: m.grid_sampler(x, g, a, b, False), image, grid, tolerance=1e-7)
    compare(lambda m, x, g: m.grid_sampler_2d(x, g, 0, 0, True), image, grid)
    compare(lambda m, x, g: m.grid_sampler_3d(x, g, 0, 0, True), numbers(1, 2, 3, 4, 2), numbers(1, 2, 2, 2, 3))
    with pytest.raises(RuntimeError):
        weft.grid_sampler(weft.tensor(image), weft.tensor(grid), 3, 0, True)


def test_normalisation_with_its_statistics():
    x, w, b = numbers(3, 4, 5), numbers(5), numbers(5)
    compare(lambda m, x, w, b: m.native_layer_norm(x, [5], w, b, 1e-5), x, w, b)
    compare(lambda m, x: m.native_layer_norm(x, [4, 5], None, None, 1e-5), x)
    compare(lambda m, x, w, b: m.native_group_norm(x, w, b, 3, 4, 5, 2, 1e-5), x, numbers(4), numbers(4))
    compare(lambda m, x, w: m.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-5), x, numbers(4))
    mean, var = numbers(4), numbers(4) ** 2
    compare(
        lambda m, x, a, v: m.native_batch_norm(x, None, None, a, v, False, 0.1, 1e-5), x, mean, var, gradients=False
    )


def test_dropout_by_its_inner_names():
    x = weft.ones(1000)
    kept, mask = weft.native_dropout(x, 0.25, True)
    assert kept.equal(mask / 0.75) and 600 < mask.sum() < 850
    assert weft.native_dropout(x, 0.25, False)[0].equal(x) and weft.native_dropout(x, 0.5, None)[1].dtype is weft.bool
    rows = weft.feature_dropout(weft.ones(50, 20, 3), 0.5, True)
    assert set(rows.sum(2).flatten().tolist()) == {0.0, 6.0}
    for name in ("dropout_", "feature_dropout_", "alpha_dropout_", "feature_alpha_dropout_"):
        y = weft.ones(20, 20, 2)
        before = y.data_ptr()
        assert getattr(weft, name)(y, 0.5, True) is y and y.data_ptr() == before
        assert len(set(y.flatten().tolist())) == 2
        z = weft.ones(3, 3, 2)
        assert getattr(weft, name)(z, 0.5, False) is z and z.equal(weft.ones(3, 3, 2))
    weft.manual_seed(3)
    expected = weft.nn.functional.dropout(weft.ones(8), 0.5)
    weft.manual_seed(3)
    leaf = weft.ones(8, requires_grad=True)
    middle = leaf * 1
    weft.dropout_(middle, 0.5, True).sum().backward()
    assert middle.equal(expected) and leaf.grad.equal(expected)


def test_activations_in_place_as_functions():
    for name, arguments in (("celu_", (1.5,)), ("selu_", ()), ("threshold_", (0.1, -2.0)), ("conj_physical_", ())):
        x = numbers(5)
        ours, theirs = weft.tensor(x), torch.tensor(x)
        assert getattr(weft, name)(ours, *arguments) is ours
        getattr(torch, name)(theirs, *arguments)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)
    assert weft.rrelu_(weft.tensor([-1.0]), 0.5, 0.5).item() == -0.5
    y = weft.ones(2, requires_grad=True) * 2
    assert weft.detach_(y) is y and not y.requires_grad


def test_rows_are_scaled_down_in_place():
    table = numbers(5, 3) * 4
    ours, theirs = weft.tensor(table), torch.tensor(table)
    assert weft.embedding_renorm_(ours, weft.tensor([0, 2, 2]), 1.0, 2.0) is ours
    torch.embedding_renorm_(theirs, torch.tensor([0, 2, 2]), 1.0, 2.0)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_copies_of_complex_views():
    pairs = numbers(3, 2)
    made = weft.view_as_complex_copy(weft.tensor(pairs))
    assert made.numpy().tolist() == torch.view_as_complex_copy(torch.tensor(pairs)).numpy().tolist()
    back = weft.view_as_real_copy(made)
    assert back.numpy().tolist() == pairs.tolist()
    assert not np.shares_memory(back.numpy(), made.numpy())


# --- recurrent layers -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_recurrent_functions(kind, bidirectional, biases):
    gates = {"gru": 3, "lstm": 4}.get(kind, 1)
    directions = 2 if bidirectional else 1
    shapes = []
    for layer in range(2):
        for _ in range(directions):
            width = 3 if layer == 0 else 4 * directions
            shapes += [(gates * 4, width), (gates * 4, 4)] + ([(gates * 4,)] * 2 if biases else [])
    params = [numbers(*shape) for shape in shapes]
    state = numbers(2 * directions, 2, 4)
    states = [state, numbers(2 * directions, 2, 4)] if kind == "lstm" else [state]

    def padded(m, x, *rest):
        hx = rest[0] if len(states) == 1 else list(rest[: len(states)])
        weights = list(rest[len(states) :])
        return getattr(m, kind)(x, hx, weights, biases, 2, 0.0, False, bidirectional, True)

    def packed(m, x, *rest):
        hx = rest[0] if len(states) == 1 else list(rest[: len(states)])
        weights = list(rest[len(states) :])
        sizes = m.tensor([2, 2, 1])
        return getattr(m, kind)(x, sizes, hx, weights, biases, 2, 0.0, False, bidirectional)

    compare(padded, numbers(2, 5, 3), *states, *params, tolerance=1e-8)
    compare(packed, numbers(5, 3), *states, *params, tolerance=1e-8)


def test_recurrent_functions_check_what_they_get():
    with pytest.raises(TypeError, match="unexpected arguments"):
        weft.gru(weft.ones(1, 1, 1), weft.ones(1, 1, 1), [])
    with pytest.raises(RuntimeError, match="parameters"):
        weft.gru(weft.ones(1, 1, 1), weft.ones(1, 1, 1), [], True, 1, 0.0, False, False, False)


def test_single_steps_of_recurrent_layers():
    x, h, c = numbers(2, 3), numbers(2, 4), numbers(2, 4)
    for name, gates in (("gru_cell", 3), ("rnn_tanh_cell", 1), ("rnn_relu_cell", 1)):
        weights = [numbers(gates * 4, 3), numbers(gates * 4, 4), numbers(gates * 4), numbers(gates * 4)]
        compare(lambda m, *t, name=name: getattr(m, name)(*t), x, h, *weights)
    weights = [numbers(16, 3), numbers(16, 4), numbers(16), numbers(16)]
    compare(lambda m, x, h, c, *w: m.lstm_cell(x, (h, c), *w), x, h, c, *weights)
    compare(lambda m, x, h, *w: m.gru_cell(x, h, *w), x, h, numbers(12, 3), numbers(12, 4))


def test_a_recurrent_function_compiles():
    weights = [weft.tensor(numbers(12, 3)), weft.tensor(numbers(12, 4))]
    step = lambda x, h: weft.gru(x, h, weights, False, 1, 0.0, False, False, False)  # noqa: E731
    compiled = weft.compile(step)
    for _ in range(3):
        x, h = weft.randn(5, 2, 3, dtype=weft.float64), weft.randn(1, 2, 4, dtype=weft.float64)
        assert all((a == b).all() for a, b in zip(step(x, h), compiled(x, h)))


# --- nn ---------------------------------------------------------------------------------------------------------------
def test_pooling_with_positions():
    x = numbers(2, 3, 7, 6)
    for name, given in (("adaptive_max_pool1d", numbers(2, 3, 7)), ("adaptive_max_pool2d", x)):
        compare(lambda m, x, name=name: getattr(m.nn.functional, f"{name}_with_indices")(x, 3), given)
    compare(lambda m, x: m.nn.functional.adaptive_max_pool3d_with_indices(x, 2), numbers(1, 2, 4, 3, 5))
    samples = RNG.random((2, 3, 2))
    compare(
        lambda m, x: m.nn.functional.fractional_max_pool2d_with_indices(
            x, 2, output_size=(3, 3), _random_samples=m.tensor(samples)
        ),
        x,
    )
    values, index = weft.nn.functional.fractional_max_pool3d_with_indices(weft.rand(1, 1, 6, 6, 6), 2, (3, 3, 3))
    assert values.shape == index.shape == (1, 1, 3, 3, 3)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_channels_divided_by_neighbours_across_maps(size):
    compare(lambda m, x: m.nn.CrossMapLRN2d(size, 0.1, 0.75, 2)(x), numbers(2, 7, 3, 2), gradients=False)
    assert repr(weft.nn.CrossMapLRN2d(size)) == repr(torch.nn.CrossMapLRN2d(size))
    assert weft.autograd.gradcheck(weft.nn.CrossMapLRN2d(size), weft.tensor(numbers(1, 4, 1, 2), requires_grad=True))


def test_cross_entropy_of_a_linear_layer():
    x, w, b = numbers(4, 3), numbers(5, 3), numbers(5)
    classes = np.array([0, 4, 2, 1])
    for options in ({}, {"reduction": "sum", "label_smoothing": 0.1}, {"reduction": "none", "ignore_index": 2}):
        compare(
            lambda m, x, w, b, options=options: m.nn.functional.linear_cross_entropy(
                x, w, m.tensor(classes), linear_bias=b, **options
            ),
            x, w, b,
        )  # fmt: skip
    compare(lambda m, x, w: m.nn.functional.linear_cross_entropy(x, w, m.tensor([[1, 0]] * 4)), x, numbers(3, 2, 3))
    compare(lambda m, x, w: m.nn.functional.linear_cross_entropy(x, w, m.tensor(3)), x[0], w)
    chances = np.abs(numbers(4, 5))
    compare(lambda m, x, w: m.nn.functional.linear_cross_entropy(x, w, m.tensor(chances)), x, w)
    for module in (torch, weft):
        loss = module.nn.LinearCrossEntropyLoss(3, 5, bias=True, options=module.nn.LinearCrossEntropyOptions())
        assert loss(module.ones(2, 3), module.tensor([1, 2])).shape == ()
        with pytest.raises(RuntimeError, match="expected equal input and linear_weight"):
            module.nn.functional.linear_cross_entropy(module.ones(2, 4), module.ones(5, 3), module.tensor([1, 2]))


def test_products_of_groups():
    ends = np.array([2, 2, 5], "int32")
    a, b = numbers(5, 4, kind="float32"), numbers(3, 4, 8, kind="float32")
    expected = np.concatenate([a[:2] @ b[0], a[2:5] @ b[2]])
    made = weft.nn.functional.grouped_mm(weft.tensor(a), weft.tensor(b), offs=weft.tensor(ends))
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-5)
    wide = lambda *s: numbers(*s, kind="float32")  # noqa: E731
    ends = np.array([8, 16, 32], "int32")
    of = lambda m, x, y: m.nn.functional.grouped_mm(x, y, offs=m.tensor(ends))  # noqa: E731
    compare(of, wide(32, 16), wide(3, 16, 8), gradients=False, tolerance=1e-4)
    compare(of, wide(3, 8, 16), wide(16, 32), gradients=False, tolerance=1e-4)
    compare(of, wide(16, 32), wide(32, 8), gradients=False, tolerance=1e-4)
    compare(lambda m, x, y: m.nn.functional.grouped_mm(x, y), wide(3, 4, 16), wide(3, 16, 8), gradients=False,
            tolerance=1e-4)  # fmt: skip
    with pytest.raises(RuntimeError, match="offsets"):
        weft.nn.functional.grouped_mm(weft.ones(2, 2), weft.ones(1, 2, 2))


def test_batch_norms_are_folded_into_layers():
    for make in (
        lambda n: (n.Conv2d(3, 4, 3), n.BatchNorm2d(4), (2, 3, 5, 5), n.utils.fuse_conv_bn_eval, ()),
        lambda n: (n.ConvTranspose2d(3, 4, 3), n.BatchNorm2d(4), (2, 3, 5, 5), n.utils.fuse_conv_bn_eval, (True,)),
        lambda n: (n.Linear(3, 4, bias=False), n.BatchNorm1d(4), (6, 3), n.utils.fuse_linear_bn_eval, ()),
    ):
        layer, norm, shape, fuse, more = make(weft.nn)
        for _ in range(3):
            norm(layer(weft.randn(*shape)))
        weft.nn.init.uniform_(norm.weight)
        layer.eval(), norm.eval()
        fused = fuse(layer, norm, *more)
        x = weft.randn(*shape)
        assert fused(x).allclose(norm(layer(x)), atol=1e-5)
        assert type(fused) is type(layer) and fused.bias.requires_grad
        with pytest.raises(AssertionError, match="Fusion only for eval!"):
            fuse(layer.train(), norm, *more)
    w, b, mean, var = numbers(4, 3), numbers(4), numbers(4), numbers(4) ** 2
    fuse = lambda m, w, b, mean, var, s: m.nn.utils.fuse_linear_bn_weights(w, b, mean, var, 1e-5, s, s)  # noqa: E731
    compare(fuse, w, b, mean, var, b + 1, gradients=False)


def test_older_names_of_nn_warn():
    for module in (torch, weft):
        nn = module.nn
        with pytest.warns(FutureWarning, match="nn.Container"):
            assert [*nn.Container(a=nn.ReLU())._modules] == ["a"]
        with pytest.warns(FutureWarning, match="NLLLoss2d"):
            nn.NLLLoss2d()
        leaf = module.ones(2, requires_grad=True)
        leaf.sum().backward()
        with pytest.warns(FutureWarning, match="clip_grad_norm_"):
            assert round(nn.utils.clip_grad_norm([leaf], 1.0).item(), 3) == 1.414
        assert nn.factory_kwargs({"factory_kwargs": {"dtype": 1}, "device": 2}) == {"dtype": 1, "device": 2}
        with pytest.raises(TypeError, match="unexpected kwargs"):
            nn.factory_kwargs({"other": 1})
        with pytest.raises(TypeError, match="specified twice"):
            nn.factory_kwargs({"factory_kwargs": {"dtype": 1}, "dtype": 2})


def test_an_optimizer_works_on_other_tensors_for_a_while():
    for module in (torch, weft):
        own, other = module.ones(2, requires_grad=True), module.ones(2, requires_grad=True)
        optimizer = module.optim.Adam([own], lr=0.1)
        own.grad = module.ones(2)
        optimizer.step()
        kept, saved = own.tolist(), optimizer.state_dict()
        saved["param_groups"][0]["lr"] = 0.5
        other.grad = module.ones(2)
        with module.optim.swap_in_optimizer_params_and_state(optimizer, {"w": other}, saved):
            optimizer.step()
            assert optimizer.param_groups[0]["params"][0] is other
        assert own.tolist() == kept and optimizer.param_groups[0]["lr"] == 0.1
        np.testing.assert_allclose(other.tolist(), [0.5, 0.5], rtol=1e-5)


def test_vmap_by_its_older_names():
    from weft._vmap_internals import _vmap, vmap

    def hessian(module, of, x):
        leaf = x.detach().requires_grad_()
        (slope,) = module.autograd.grad((leaf**3).prod(), leaf, create_graph=True)
        return of(lambda v: module.autograd.grad(slope, leaf, v, retain_graph=True)[0])(module.eye(3, dtype=x.dtype))

    a = numbers(3)
    theirs = hessian(torch, torch._vmap_internals._vmap, torch.tensor(a)).numpy()
    for of in (_vmap, vmap):
        np.testing.assert_allclose(hessian(weft, of, weft.tensor(a)).numpy(), theirs, rtol=1e-9)
    assert _vmap(weft.dot, 1)(weft.ones(2, 3), weft.ones(2, 3)).tolist() == [2, 2, 2]
    with pytest.raises(NotImplementedError, match="return tensors"):
        _vmap(lambda x: None, allow_none_pass_through=True)
