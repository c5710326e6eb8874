"""Convolutions: PyTorch's values, derivatives and errors; compiled calls give eager mode's bits."""

import itertools

import numpy as np
import pytest
from nn_helpers import numbers

import weft
from weft import nn

F = nn.functional

# (shape of the input, shape of the weight, arguments)
PLAIN = [
    ((2, 4, 9), (6, 4, 3), {}),
    ((2, 4, 9), (6, 2, 3), {"groups": 2, "stride": 2, "padding": 1}),
    ((4, 9), (4, 1, 2), {"groups": 4, "dilation": 3}),
    ((2, 3, 8, 7), (4, 3, 3, 3), {"padding": 1}),
    ((2, 3, 8, 7), (4, 3, 3, 2), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}),
    ((2, 4, 8, 7), (8, 1, 3, 3), {"groups": 4, "padding": "same"}),
    ((2, 4, 8, 8), (4, 1, 3, 3), {"groups": 4, "padding": 1, "stride": 2}),
    ((3, 8, 7), (4, 3, 2, 4), {"padding": "same"}),
    ((1, 3, 16, 16), (2, 3, 5, 5), {"padding": "valid"}),
    ((2, 3, 4, 4), (5, 3, 1, 1), {"stride": 2}),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"padding": (1, 0, 1), "stride": (1, 2, 1)}),
    ((0, 3, 5, 5), (2, 3, 3, 3), {"padding": 1}),
    ((2, 2, 6), (2, 2, 3), {"stride": [2], "padding": [1]}),
]
TRANSPOSED = [
    ((2, 4, 5), (4, 3, 3), {}),
    ((4, 5), (4, 2, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    ((2, 3, 4, 5), (3, 4, 3, 3), {"stride": 2, "padding": 1, "output_padding": (1, 0)}),
    ((2, 4, 4, 5), (4, 1, 2, 3), {"groups": 4, "dilation": 2, "output_padding": 1}),
    ((1, 3, 9, 9), (3, 2, 4, 4), {"stride": 3, "padding": 2}),
    ((1, 2, 3, 2, 3), (2, 3, 2, 2, 2), {"stride": (1, 2, 1)}),
]
CASES = [("conv", *case) for case in PLAIN] + [("conv_transpose", *case) for case in TRANSPOSED]


def name_of(kind, weight):
    return f"{kind}{len(weight) - 2}d"


def operands(kind, x, weight, how, dtype="float64"):
    channels = weight[0] if kind == "conv" else weight[1] * how.get("groups", 1)
    return [numbers(shape, k).astype(dtype) for k, shape in enumerate((x, weight, (channels,)))]


def bits_equal(a, b):
    return a.shape == b.shape and np.array_equal(a.detach().numpy(), b.detach().numpy(), equal_nan=True)


def leaves_of(arrays):
    return [weft.tensor(a, requires_grad=True) for a in arrays]


def step(function, how):
    """Value and first derivatives, as one call."""

    def run(*leaves):
        out = function(*leaves, **how)
        return out, *weft.autograd.grad((out * out).sum(), leaves)

    return run


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_calls_have_eager_bits_and_cut_nothing(case, dtype):
    kind, x, weight, how = case
    name = name_of(kind, weight)
    run = step(getattr(F, name), how)
    compiled = weft.compile(run)
    leaves = leaves_of(operands(kind, x, weight, how, dtype))
    expected = run(*leaves)
    for _ in range(2):
        assert all(bits_equal(a, b) for a, b in zip(compiled(*leaves), expected))
    assert "nothing ran outside the programs" in compiled.explain()


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_two_derivatives_are_pytorchs(case):
    torch = pytest.importorskip("torch")
    kind, x, weight, how = case
    name = name_of(kind, weight)
    arrays = operands(kind, x, weight, how)
    results = []
    for library, leaves in ((weft, leaves_of(arrays)), (torch, [torch.tensor(a, requires_grad=True) for a in arrays])):
        out = getattr(library.nn.functional, name)(*leaves, **how)
        first = library.autograd.grad((out * out * out).sum(), leaves, create_graph=True)
        second = library.autograd.grad(sum((g * g).sum() for g in first), leaves)
        results.append([np.asarray(t.detach()) for t in (out, *first, *second)])
    for ours, theirs in zip(*results):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * (1 + np.abs(theirs).max(initial=0)))


def test_the_graph_has_one_node():
    weight = weft.ones(2, 3, 3, 3, requires_grad=True)
    assert F.conv2d(weft.ones(1, 3, 5, 5), weight).grad_fn.name() == "ConvolutionBackward0"
    assert F.conv_transpose2d(weft.ones(1, 2, 5, 5), weight).grad_fn.name() == "ConvolutionBackward0"


def test_gradients_of_operands_that_need_none_are_not_there():
    x, weight = weft.ones(1, 3, 5, 5), weft.ones(2, 3, 3, 3, requires_grad=True)
    F.conv2d(x, weight).sum().backward()
    assert x.grad is None and weight.grad.tolist() == [[[[9.0] * 3] * 3] * 3] * 2


def test_any_number_of_threads_gives_the_same_bits():
    x, weight = weft.randn(4, 8, 20, 20), weft.randn(16, 8, 3, 3)
    compiled = weft.compile(step(F.conv2d, {"padding": 1}))
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    before, results = weft.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            weft.set_num_threads(count)
            results.append(compiled(*leaves))
    finally:
        weft.set_num_threads(before)
    assert all(bits_equal(a, b) for other in results[1:] for a, b in zip(results[0], other))


# --- errors -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: F.conv2d(weft.ones(1, 4, 8, 8), weft.ones(6, 3, 5, 5)),
            "Given groups=1, weight of size [6, 3, 5, 5], expected input[1, 4, 8, 8] to have 3 channels, but got 4 "
            "channels instead",
        ),
        (
            lambda: F.conv2d(weft.ones(1, 3, 2, 2), weft.ones(6, 3, 3, 3)),
            "Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3). Kernel size can't be greater "
            "than actual input size",
        ),
        (
            lambda: F.conv2d(weft.ones(4), weft.ones(6, 3, 3, 3)),
            "Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [4]",
        ),
        (
            lambda: F.conv2d(weft.ones(1, 3, 4, 4), weft.ones(6, 3, 3, 3), weft.ones(5)),
            "expected bias to be 1-dimensional with 6 elements, but got bias of size [5] instead",
        ),
        (lambda: F.conv2d(weft.ones(1, 3, 4, 4), weft.ones(6, 3, 3, 3), stride=0), "non-positive stride"),
        (lambda: F.conv2d(weft.ones(1, 3, 4, 4), weft.ones(6, 3, 3, 3), dilation=0), "dilation should be greater"),
        (lambda: F.conv2d(weft.ones(1, 3, 4, 4), weft.ones(6, 3, 3, 3), padding=-1), "negative padding"),
        (
            lambda: F.conv2d(weft.ones(1, 3, 4, 4), weft.ones(6, 3, 3, 3), stride=(1, 2, 3)),
            "expected stride to be a single integer value or a list of 2 values to match the convolution dimensions",
        ),
        (
            lambda: F.conv2d(weft.ones(1, 3, 4, 4).double(), weft.ones(6, 3, 3, 3)),
            "Input type (float64) and weight type (float32) should be the same",
        ),
        (lambda: F.conv2d(weft.ones(1, 3, 4, 4).bool(), weft.ones(6, 3, 3, 3)), "needs a floating point tensor"),
        (
            lambda: F.conv1d(weft.ones(1, 3, 4), weft.ones(6, 3, 3), stride=2, padding="same"),
            "padding='same' is not supported for strided convolutions",
        ),
        (lambda: F.conv1d(weft.ones(1, 3, 4), weft.ones(6, 3, 3), padding="full"), "Invalid padding string"),
        (
            lambda: F.conv_transpose2d(weft.ones(1, 4, 8, 8), weft.ones(3, 6, 5, 5)),
            "Given transposed=1, weight of size [3, 6, 5, 5], expected input[1, 4, 8, 8] to have 3 channels",
        ),
        (
            lambda: F.conv_transpose1d(weft.ones(1, 3, 4), weft.ones(3, 6, 3), output_padding=1),
            "output padding must be smaller than either stride or dilation",
        ),
        (lambda: F.conv_transpose1d(weft.ones(1, 3, 1), weft.ones(3, 6, 1), padding=1), "Output size is too small"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels must be divisible by groups"),
        (lambda: nn.Conv2d(4, 3, 3, groups=2), "out_channels must be divisible by groups"),
        (lambda: nn.Conv2d(4, 4, 3, groups=0), "groups must be a positive integer"),
        (lambda: nn.Conv2d(4, 4, 3, padding_mode="mirror"), "padding_mode must be one of"),
        (lambda: nn.Conv2d(4, 4, 3, padding="all"), "Invalid padding string"),
        (lambda: nn.ConvTranspose2d(4, 4, 3, padding_mode="reflect"), 'Only "zeros" padding mode is supported'),
        (
            lambda: nn.ConvTranspose1d(2, 2, 3, stride=2)(weft.ones(1, 2, 4), output_size=[20]),
            "requested an output size of [20], but valid sizes range from [9] to [10]",
        ),
    ],
)
def test_errors_say_what_was_given_and_what_is_needed(call, words):
    with pytest.raises((RuntimeError, ValueError)) as error:
        call()
    assert words in str(error.value)


# --- layers -----------------------------------------------------------------------------------------------------------
LAYERS = [
    ("Conv1d", (4, 6, 3), {"padding": "same", "padding_mode": "circular"}, (2, 4, 8)),
    ("Conv2d", (4, 6, (3, 2)), {"padding": (2, 1), "padding_mode": "reflect", "stride": 2}, (2, 4, 8, 7)),
    ("Conv2d", (4, 4, 3, 1, 1, 1, 4, False), {"padding_mode": "replicate"}, (4, 8, 7)),
    ("Conv3d", (2, 4, 2), {"groups": 2}, (1, 2, 3, 4, 3)),
    ("ConvTranspose1d", (4, 2, 3), {"stride": 2}, (2, 4, 5)),
    ("ConvTranspose2d", (4, 2, 3, 2, 1, 1), {}, (2, 4, 5, 4)),
    ("ConvTranspose3d", (2, 2, 2), {"bias": False}, (1, 2, 3, 2, 3)),
]


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "args", "how", "shape"), LAYERS, ids=str)
def test_layers_have_pytorchs_parameters_and_results(name, args, how, shape):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, name)(*args, **how), getattr(torch.nn, name)(*args, **how)
    assert repr(ours) == repr(theirs)
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    ours.load_state_dict({k: weft.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = numbers(shape).astype("float32")
    expected = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(weft.tensor(x)).detach().numpy(), expected, rtol=1e-5, atol=1e-5)


def test_parameters_are_drawn_as_in_pytorch():
    """Uniform within +-1 / sqrt(inputs of an output), weight and bias."""
    weft.manual_seed(0)
    layer = nn.Conv2d(8, 64, 3, groups=2)
    bound = 1 / (4 * 9) ** 0.5
    for parameter in layer.parameters():
        assert bound * 0.9 < parameter.abs().max().item() <= bound


@pytest.mark.oracle
def test_a_transposed_layer_is_told_the_size_of_its_result():
    torch = pytest.importorskip("torch")
    ours, theirs = (library.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1) for library in (weft, torch))
    for size in ([9, 10], (2, 3, 10, 9)):
        assert (
            ours(weft.ones(2, 2, 5, 5), output_size=size).shape
            == tuple(theirs(torch.ones(2, 2, 5, 5), output_size=size).shape)
        )  # fmt: skip


@pytest.mark.parametrize(
    ("lazy", "args", "shape"),
    [
        (nn.LazyConv1d, (4, 3), (2, 6, 8)),
        (nn.LazyConv2d, (4, 3, 1, 1, 1, 2, False), (2, 6, 8, 8)),
        (nn.LazyConv3d, (4, 2), (6, 3, 3, 3)),
        (nn.LazyConvTranspose1d, (4, 3), (2, 6, 8)),
        (nn.LazyConvTranspose2d, (4, 3, 2, 0, 1, 2), (2, 6, 8, 8)),
        (nn.LazyConvTranspose3d, (4, 2), (1, 6, 3, 3, 3)),
    ],
)
def test_lazy_layers_become_what_they_stand_for(lazy, args, shape):
    layer = lazy(*args)
    assert layer.has_uninitialized_params()
    usual = lazy.cls_to_become(6, *args)
    assert layer(weft.zeros(shape)).shape == usual(weft.zeros(shape)).shape
    assert type(layer) is lazy.cls_to_become and repr(layer) == repr(usual)
    assert [p.shape for p in layer.parameters()] == [p.shape for p in usual.parameters()]


def test_all_shapes_of_small_kernels():
    """Against sums written out, for every small combination: what the windows take is what the formula says."""
    for size, kernel, stride, padding, dilation in itertools.product((4, 5), (1, 2, 3), (1, 2, 3), (0, 1), (1, 2)):
        if dilation * (kernel - 1) + 1 > size + 2 * padding:
            continue
        x, weight = numbers((1, 1, size)), numbers((1, 1, kernel), 1)
        padded = np.pad(x[0, 0], padding)
        count = (len(padded) - dilation * (kernel - 1) - 1) // stride + 1
        expected = [
            sum(padded[o * stride + k * dilation] * weight[0, 0, k] for k in range(kernel)) for o in range(count)
        ]
        found = F.conv1d(weft.tensor(x), weft.tensor(weight), None, stride, padding, dilation)
        np.testing.assert_allclose(found.numpy()[0, 0], expected, rtol=1e-12)


def test_overlaps_are_shared_among_threads_image_by_image():
    """Every image is a stretch of memory of its own, though its elements are added to again and again."""
    from weft.compiler.ops.windows import overlap_add

    how = {"size": (20, 20), "kernel": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
    run = weft.compile(lambda g: overlap_add(g, **how))
    g, before, results = weft.randn(8, 16, 3, 3, 18, 18), weft.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            weft.set_num_threads(count)
            results.append(run(g))
    finally:
        weft.set_num_threads(before)
    assert all(bits_equal(results[0], other) for other in results[1:])
    (program,) = (p for recording in run.recordings for p in recording.programs)
    assert program.meta["has_team"]


@pytest.mark.oracle
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 0), (3, (1, 0))])
def test_gradients_by_themselves(stride, padding):
    torch = pytest.importorskip("torch")
    x, weight = numbers((2, 3, 8, 7)), numbers((4, 3, 3, 2), 1)
    results = []
    for library in (weft, torch):
        inputs, weights = library.tensor(x), library.tensor(weight)
        g = library.nn.functional.conv2d(inputs, weights, None, stride, padding)
        results.append(
            [
                library.nn.grad.conv2d_input(inputs.shape, weights, g, stride, padding).numpy(),
                library.nn.grad.conv2d_weight(inputs, weights.shape, g, stride, padding).numpy(),
            ]
        )
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_modules_have_pytorchs_paths():
    from weft.nn.modules.conv import Conv2d, _ConvNd
    from weft.nn.modules.pooling import MaxPool2d, _MaxPoolNd

    assert issubclass(Conv2d, _ConvNd) and issubclass(MaxPool2d, _MaxPoolNd)
