"""float16 and bfloat16: computed in float32 and rounded to the type after every op; recorded values and PyTorch's."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest

import weft
from weft import nn

HALVES = [weft.float16, weft.bfloat16]
halves = pytest.mark.parametrize("dtype", HALVES, ids=repr)


def test_rounding_to_bfloat16_goes_to_even():
    """1 + 2^-8 lies between 1 and 1 + 2^-7: to the even one; so does 1 + 3 * 2^-8, upwards."""
    x = weft.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1.0, 3.4e38, float("inf"), float("nan")]).bfloat16()
    assert x.tolist()[:6] == [1.0, 1 + 2**-6, 1 + 2**-7, -1.0, float("inf"), float("inf")]
    assert x.isnan().tolist() == [False] * 6 + [True]
    assert weft.tensor([65504.0, 65520.0, 2049.0]).half().tolist() == [65504.0, float("inf"), 2048.0]


@halves
def test_every_op_is_rounded_once(dtype):
    x = weft.tensor([0.1, 3.0, -7.0], dtype=dtype)
    wide = x.float()
    for function in (lambda x: x * x, weft.exp, weft.sigmoid, lambda x: x / 3, lambda x: x.softmax(0), weft.mean):
        for _ in range(3):
            ours = function(x)
            assert ours.dtype is dtype and ours.tolist() == function(wide).to(dtype).tolist()


@halves
def test_sums_and_products_are_added_up_in_float32(dtype):
    x = weft.full((5000,), 1.0, dtype=dtype)
    assert x.sum().item() == weft.tensor(5000.0).to(dtype).item() and x.sum().dtype is dtype
    assert (x @ x).item() == x.sum().item() and x.mean().item() == 1
    assert (
        weft.full((2, 3), 300.0, dtype=weft.float16).hypot(weft.zeros(3, dtype=weft.float16)).tolist()[0] == [300.0] * 3
    )


def test_promotion():
    half, brain = weft.ones(2, dtype=weft.float16), weft.ones(2, dtype=weft.bfloat16)
    assert (half + brain).dtype is weft.float32 and (half + weft.arange(2)).dtype is weft.float16
    assert (half + 0.1).dtype is weft.float16 and (half * weft.tensor(0.1)).dtype is weft.float16
    assert (half + weft.ones(2)).dtype is weft.float32 and weft.promote_types(weft.half, weft.uint8) is weft.float16
    assert (half > brain).dtype is weft.bool


def test_numbers_are_rounded_except_by_products():
    x = weft.tensor([0.1], dtype=weft.bfloat16)
    assert (x == 0.1).item() and not (x < 0.1).item()
    # 3 * 0.1 in float32, not 3 * 0.10009765625.
    assert (weft.tensor([3.0], dtype=weft.bfloat16) * 0.1).item() == weft.tensor(0.3).bfloat16().item()


@halves
def test_creation_and_draws(dtype):
    for x in (weft.tensor([1.5, 2], dtype=dtype), weft.zeros(2, dtype=dtype), weft.full((2,), 0.5, dtype=dtype),
              weft.arange(2, dtype=dtype), weft.linspace(0, 1, 2, dtype=dtype), weft.eye(2, dtype=dtype)[1],
              weft.rand(2, dtype=dtype), weft.randn(2, dtype=dtype), weft.ones(2).to(dtype), weft.empty(2, dtype=dtype),
              weft.tensor([weft.tensor(1.0, dtype=dtype), 2], dtype=dtype)):  # fmt: skip
        assert x.dtype is dtype and x.shape == (2,) and x.element_size() == 2
    draws = weft.rand(4000, dtype=dtype)
    assert draws.min().item() >= 0 and draws.max().item() < 1 and 0.4 < draws.float().mean().item() < 0.6


@halves
def test_views_changes_in_place_and_indices(dtype):
    x = weft.zeros(2, 3, dtype=dtype)
    x[0] = 1.5
    x[:, 1] += weft.tensor([2.0, 2.0])
    x.t()[2].mul_(0.1)
    x[weft.tensor([1]), weft.tensor([2])] = -3.0
    assert x.tolist() == [[1.5, 3.5, weft.tensor(1.5 * 0.1).to(dtype).item()], [0.0, 2.0, -3.0]]
    assert (
        x[x > 1].tolist() == [1.5, 3.5, 2.0]
        and x.nonzero().shape == (5, 2)
        and (-0.0 * x[1, :1]).nonzero().numel() == 0
    )
    assert weft.cat([x, x.new_ones(1, 3)]).sort(0)[0][0].tolist()[2] == -3.0
    assert x.max(1)[0].tolist() == [3.5, 2.0] and bool(x[0, 0]) and float(x[0, 0]) == 1.5 and int(x[0, 1]) == 3
    assert weft.equal(x, x.clone()) and weft.allclose(x, x + 0) and x.argmax().item() == 1


def test_numpy():
    array = np.array([1.5, 2], dtype=np.float16)
    x = weft.from_numpy(array)
    x += 1
    assert array.tolist() == [2.5, 3] and x.numpy().dtype == np.float16 and weft.tensor(array).dtype is weft.float16
    brain = x.bfloat16()
    with pytest.raises(TypeError, match=r"unsupported ScalarType BFloat16.*\.float\(\)"):
        brain.numpy()
    with pytest.raises(TypeError, match="BFloat16"):
        np.asarray(brain)


def test_printing_limits_and_names():
    assert repr(weft.tensor([1.5, 2.25]).bfloat16()) == "tensor([1.5000, 2.2500], dtype=weft.bfloat16)"
    assert repr(weft.tensor([1.0, 2.0]).half()) == "tensor([1., 2.], dtype=weft.float16)"
    assert weft.finfo(weft.bfloat16).eps == 2**-7 and weft.finfo(weft.float16).max == 65504
    assert weft.finfo(weft.bfloat16).max == 3.3895313892515355e38 and weft.finfo(weft.bfloat16).bits == 16
    assert (
        weft.HalfTensor([1, 2]).dtype is weft.half and weft.ones(2).type("torch.BFloat16Tensor").dtype is weft.bfloat16
    )
    assert weft.ones(2).half().is_floating_point() and weft.bfloat16.is_signed


@halves
def test_files_and_copies(dtype, tmp_path):
    x = weft.tensor([[1.5, float("nan")], [float("inf"), -0.1]], dtype=dtype)
    weft.save({"x": x}, tmp_path / "x.weft")
    weft.save({"x": x}, tmp_path / "x.safetensors")
    made = [weft.load(tmp_path / name)["x"] for name in ("x.weft", "x.safetensors")]
    for y in (*made, pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone(), weft.tensor(x)):
        assert y.dtype is dtype and y.array.tobytes() == x.array.tobytes()


# --- gradients --------------------------------------------------------------------------------------------------------
@halves
def test_gradients_have_the_type(dtype):
    x = weft.tensor([0.5, -2.0], dtype=dtype, requires_grad=True)
    y = (x * x).exp().sum()
    assert y.grad_fn.name() == "SumBackward0" and y.dtype is dtype
    (first,) = weft.autograd.grad(y, x, create_graph=True)
    assert (
        first.dtype is dtype
        and first.tolist() == weft.tensor([2 * 0.5 * np.exp(0.25), -4 * np.exp(4)]).to(dtype).tolist()
    )
    first.sum().backward()
    assert x.grad.dtype is dtype and weft.isfinite(x.grad).all()


def test_what_a_derivative_does_not_read_may_change():
    x = weft.ones(2, dtype=weft.bfloat16, requires_grad=True)
    y = x * 1
    z = y + 1
    y.mul_(3)
    z.sum().backward()
    assert x.grad.tolist() == [1, 1]


@halves
def test_a_module_trains(dtype):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)
    assert {p.dtype for p in model.parameters()} == {dtype} and next(
        model.bfloat16().parameters()
    ).dtype is weft.bfloat16
    model.half() if dtype is weft.float16 else model.bfloat16()
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02, eps=1e-4)
    x = weft.randn(32, 4).to(dtype)
    y = x[:, :1] * 0.5
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4 and {p.grad.dtype for p in model.parameters()} == {dtype}


@halves
def test_norms_do_not_overflow(dtype):
    x = weft.full((2, 4, 3), 1000.0, dtype=dtype)
    x[:, ::2] = -1000.0
    x[0] *= -1
    functional = nn.functional
    for y in (functional.batch_norm(x, None, None, training=True), functional.group_norm(x, 2),
              functional.rms_norm(x, (3,)), functional.normalize(x), functional.layer_norm(x, (4, 3))):  # fmt: skip
        assert y.dtype is dtype and 0.3 < y.float().abs().mean().item() < 1.1


# --- compiled calls ---------------------------------------------------------------------------------------------------
@halves
def test_compiled_training_has_the_same_bits(dtype):
    def train(wrap):
        weft.manual_seed(1)
        layer = nn.Linear(3, 2).to(dtype)
        optimizer = weft.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
        x, y = weft.randn(5, 3).to(dtype), weft.randn(5, 2)

        def step():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(layer(x).float(), y)
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        losses = [step().item() for _ in range(6)]
        return losses, layer.weight.array.tobytes(), step

    eager, compiled = train(lambda f: f), train(weft.compile)
    assert eager[:2] == compiled[:2]
    assert "nothing ran outside the programs" in compiled[2].explain()


@pytest.mark.parametrize("change", ["neg_", "zero_", "floor_divide_", "set"])
@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float32], ids=repr)
def test_changes_in_place_without_a_kernel_have_their_history(change, dtype):
    """They kept the history that the tensor had before, and so gave wrong gradients: 6 for 0 of floor_divide_."""

    def run():
        leaf = weft.ones(3, dtype=dtype, requires_grad=True)
        y = leaf * 3
        if change == "set":
            y[0] = 5
        else:
            getattr(y, change)(*[2] * (change == "floor_divide_"))
        total = (y * y).sum()
        if total.requires_grad:
            total.backward()
        return (
            y.tolist(),
            y.requires_grad,
            y.grad_fn and y.grad_fn.name(),
            None if leaf.grad is None else leaf.grad.tolist(),
        )

    expected, compiled = run(), weft.compile(run)
    assert [compiled() for _ in range(3)] == [expected] * 3


def test_storage_in_halves_and_computing_in_float32():
    """What mixed precision amounts to: weights of 16 bits are read, the rest is one program."""
    weight = weft.randn(4, 3).bfloat16()

    @weft.compile
    def loss_of(x, w):
        return ((x @ w.float()).tanh() ** 2).sum()

    x = weft.randn(2, 4, requires_grad=True)
    expected = ((x @ weight.float()).tanh() ** 2).sum()
    for _ in range(4):
        assert loss_of(x, weight).item() == expected.item()


# --- against PyTorch --------------------------------------------------------------------------------------------------
VALUES = np.concatenate([
    np.random.default_rng(0).normal(size=60) * 3, np.random.default_rng(1).normal(size=40) * 1e-3,
    [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 1e-7, 6e-8],
])  # fmt: skip
SAME_BITS = {
    **{
        name: (lambda x, m, name=name: getattr(m, name)(x))
        for name in str.split("""
        neg abs sign floor ceil trunc round sqrt reciprocal exp exp2 expm1 log log2 log10 log1p tanh sigmoid sin cos tan
        atan asin acos sinh cosh relu square isnan isinf frac
    """)
    },
    **{
        name: (lambda x, m, name=name: getattr(m, name)(x, x.flip(0)))
        for name in str.split("""
        add sub mul div maximum minimum fmod remainder eq lt ge atan2 pow hypot logaddexp nextafter
    """)
    },
    **{
        f"{name} of a number": (lambda x, m, name=name: getattr(m, name)(x, -7.3))
        for name in str.split("""
        add sub mul div fmod remainder floor_divide eq lt ge pow
    """)
    },
    "number - x": lambda x, m: 0.1 - x,
    "number / x": lambda x, m: 0.1 / x,
    "number ** x": lambda x, m: 0.1**x,
    "0-d sum": lambda x, m: x + m.tensor(0.1),
    "0-d product": lambda x, m: x * m.tensor(0.1, dtype=m.float64),
    "int64": lambda x, m: x + m.arange(2000, 2108),
    "clamp": lambda x, m: x.clamp(-0.1, 0.3),
    "where": lambda x, m: m.where(x > 0, x, 0.1),
    "softmax": lambda x, m: x[:100].reshape(10, 10).softmax(1),
    "sum": lambda x, m: x[:100].reshape(10, 10).sum(1),
    "mean": lambda x, m: x[:100].reshape(10, 10).mean(0),
    "var": lambda x, m: x[:100].reshape(10, 10).var(1),
    "matmul": lambda x, m: x[:100].reshape(10, 10) @ x[:100].reshape(10, 10),
    "silu": lambda x, m: m.nn.functional.silu(x),
    "selu": lambda x, m: m.nn.functional.selu(x),
    "rms_norm": lambda x, m: m.nn.functional.rms_norm(x[:100], (100,)),
    "layer_norm": lambda x, m: m.nn.functional.layer_norm(x[:100], (100,)),
}


@pytest.mark.oracle
@halves
def test_bits_of_pytorch(dtype):
    torch = pytest.importorskip("torch")
    theirs, ours = (m.tensor(VALUES, dtype=m.float64).to(getattr(m, dtype.name)) for m in (torch, weft))
    wrong = []
    for name, function in SAME_BITS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a, b = function(ours, weft), function(theirs, torch)
        x, y = a.float().numpy(), b.float().numpy()
        if str(b.dtype)[6:] != a.dtype.name or not np.array_equal(x, y, equal_nan=True):
            wrong.append((name, x[x != y][:3], y[x != y][:3]))
    assert not wrong


@pytest.mark.oracle
@halves
def test_files_of_pytorch(dtype):
    torch = pytest.importorskip("torch")
    buffer = io.BytesIO()
    torch.save({"x": torch.tensor([1.5, -2.0, float("inf")], dtype=getattr(torch, dtype.name))}, buffer)
    buffer.seek(0)
    loaded = weft.load(buffer)["x"]
    assert loaded.dtype is dtype and loaded.tolist() == [1.5, -2.0, float("inf")]


@halves
def test_composed_functions_do_not_overflow(dtype):
    x = weft.tensor([50.0, -40.0], dtype=dtype)
    assert weft.linalg.vector_norm(x, ord=6).item() == weft.linalg.vector_norm(x.float(), ord=6).to(dtype).item()
    margin = nn.functional.soft_margin_loss(x, -weft.ones(2, dtype=dtype))
    assert margin.dtype is dtype and margin.item() == 25 and x.norm(dtype=weft.float64).dtype is weft.float64


@halves
def test_zero_dimensions(dtype):
    x = weft.tensor(2.0, dtype=dtype)
    assert x.acosh().shape == () and x.softmax(0).item() == 1 and x.max(0)[0].item() == 2 and x.unique().tolist() == [2]
    assert repr(x) == f"tensor(2., dtype={dtype!r})" and x.tolist() == 2 and float(x.mean()) == 2
    image = weft.ones(1, 1, 2, dtype=dtype)
    assert nn.functional.interpolate(image, size=3, mode="linear").tolist() == [[[1.0, 1.0, 1.0]]]


ROUNDED_ONCE = {
    "addmm": lambda m, x, y: m.addmm(x, x, y, beta=-4.775, alpha=2.0315),
    "baddbmm": lambda m, x, y: m.baddbmm(x[None], x[None], y[None], beta=0.3),
    "addbmm": lambda m, x, y: m.addbmm(x, m.stack([x, y]), m.stack([y, x]), beta=0.3, alpha=1.7),
    "addmv": lambda m, x, y: m.addmv(x[0], y, x[1], alpha=0.7),
    "avg_pool": lambda m, x, y: m.nn.functional.avg_pool2d(x[None], 3, padding=1, count_include_pad=False),
    "adaptive": lambda m, x, y: m.nn.functional.adaptive_avg_pool1d(x, 3),
    "hardswish": lambda m, x, y: m.nn.functional.hardswish(x * 2),
}


@halves
@pytest.mark.parametrize("name", ROUNDED_ONCE)
def test_these_are_rounded_once(name, dtype):
    generator = np.random.default_rng(0)
    x, y = (weft.from_numpy(generator.normal(size=(8, 8)).astype(np.float32)).to(dtype) for _ in range(2))
    found = ROUNDED_ONCE[name](weft, x, y)
    assert found.dtype is dtype
    assert weft.equal(found, ROUNDED_ONCE[name](weft, x.float(), y.float()).to(dtype))
    compiled = weft.compile(lambda x, y: ROUNDED_ONCE[name](weft, x, y))
    assert weft.equal(compiled(x, y), found)


def test_hardswish_has_the_type_of_its_operand(monkeypatch):
    monkeypatch.setattr(weft.runtime.state.modes.state, "default_dtype", weft.float64)
    assert nn.functional.hardswish(weft.ones(2, dtype=weft.float32)).dtype is weft.float32


@halves
def test_draws_that_numpy_makes(dtype):
    weft.manual_seed(0)
    two, three = weft.tensor([2.0, 3.0], dtype=dtype), weft.tensor([1.0, 2.0, 3.0], dtype=dtype, requires_grad=True)
    drawn = [
        weft.distributions.Gamma(two, two).sample((50,)),
        weft.distributions.StudentT(two + 3).sample((50,)),
        weft.distributions.VonMises(two, two).sample((50,)),
        weft.distributions.Dirichlet(three).rsample((50,)),
    ]
    assert [x.dtype for x in drawn] == [dtype] * 4
    assert 0.7 < drawn[0].float().mean().item() < 1.4 and drawn[2].abs().max().item() < 3.2
    assert abs(drawn[3].sum(-1).float().mean().item() - 1) < 0.01
    drawn[3][:, 0].sum().backward()
    assert three.grad.dtype is dtype and three.grad[0].item() > 0 > three.grad[2].item()
    assert nn.functional.fractional_max_pool2d(weft.ones(1, 1, 9, 9, dtype=dtype), 2, 4).dtype is dtype
