"""Mixed precision on the CPU: which functions compute in which type, PyTorch's as recorded and as its wheel says."""

import threading

import numpy as np
import pytest

import weft
from weft import nn

# x and w are float32, h is bfloat16, d float64; v are three classes.
CALLS = """
x @ w ; x.matmul(w) ; ns.mm(x, w) ; ns.bmm(x[None], w[None]) ; x @ x[0] ; ns.mv(x, x[0]) ; ns.dot(x[0], x[0])
ns.outer(x[0], x[0]) ; ns.addmm(x, x, w) ; ns.addmm(x, x, w, beta=2) ; ns.baddbmm(x[None], x[None], x[None]) ; d @ d
ns.addbmm(x, x[None], x[None]) ; ns.addmv(x[0], x, x[0]) ; ns.addr(x, x[0], x[0]) ; ns.vdot(x[0], x[0]) ; d @ d.t()
ns.einsum("ij,jk->ik", x, w) ; ns.tensordot(x, w, 1) ; ns.inner(x, w) ; ns.kron(x, w) ; ns.linalg.vecdot(x, w)
ns.linalg.multi_dot([x, w, x]) ; ns.linalg.matrix_power(h, 2) ; ns.linalg.inv(h) ; ns.fft.fft(h).abs() ; ns.trace(h)
F.linear(x, w, x[0]) ; F.linear(h, w) ; F.bilinear(x, x, ns.ones(2, 3, 3)) ; F.conv1d(x[None], w[None])
F.conv2d(x[None, None], w[None, None], x[0, :1]) ; F.conv_transpose2d(x[None, None], w[None, None]) ; x + x ; h + x
F.scaled_dot_product_attention(x[None], w[None], x[None]) ; F.prelu(x, w[0, :1]) ; F.layer_norm(h, (3,), w[0], w[1])
F.layer_norm(x @ w, (3,)) ; F.layer_norm(x, (3,), w[0], w[1]) ; F.rms_norm(h, (3,), w[0]) ; F.embedding(v, w) ; h * 2
F.group_norm(h, 3, w[0], w[1]) ; F.batch_norm(h, ns.zeros(3), ns.ones(3)) ; F.gelu(h) ; ns.softmax(h, -1) ; ns.exp(h)
F.cross_entropy(h, v) ; F.nll_loss(h, v) ; F.mse_loss(h, x) ; F.l1_loss(h, x) ; F.smooth_l1_loss(h, x) ; h.sum()
F.huber_loss(h, x)
F.kl_div(h, x.softmax(1), reduction="sum") ; F.binary_cross_entropy(h.sigmoid(), x.sigmoid()) ; h.prod()
h.mean() ; h.var()
F.binary_cross_entropy_with_logits(h, x) ; F.poisson_nll_loss(h, x) ; F.soft_margin_loss(h, x) ; h.cumsum(0)
F.margin_ranking_loss(h[0], h[1], x[0]) ; F.hinge_embedding_loss(h, x) ; F.triplet_margin_loss(h, x, x) ; h.norm()
F.cosine_embedding_loss(h, x, ns.ones(3)) ; F.multi_margin_loss(h, v) ; ns.quantile(h, 0.5) ; ns.cdist(h, x)
F.avg_pool3d(h[None, None].repeat(1, 3, 1, 1), 2) ; F.max_pool2d(h[None], 2) ; ns.cat([h, x]) ; ns.stack([h, x])
F.grid_sample(x[None, None], x[None, :, :2, None].reshape(1, 3, 1, 2), align_corners=False) ; ns.where(x > 0, h, x)
F.normalize(h) ; F.cosine_similarity(h, x) ; F.dropout(h, 0.0) ; F.pad(h, (1, 1)) ; ns.logsumexp(h, 0)
"""
CASES = [call.strip() for call in CALLS.replace("\n", ";").split(";") if call.strip()]


def evaluated(ns, call):
    """The result of a call in an open block."""
    numbers = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    x, w = ns.tensor(numbers[0]), ns.tensor(numbers[1]).requires_grad_()
    given = {"x": x, "w": w, "h": x.bfloat16(), "d": x.double(), "v": ns.tensor([0, 1, 2])}
    with ns.autocast("cpu", dtype=ns.bfloat16):
        return eval(call, {"ns": ns, "F": ns.nn.functional, **given})


@pytest.mark.oracle
@pytest.mark.parametrize("call", CASES)
def test_every_function_computes_in_the_type_that_pytorch_chooses(call):
    torch = pytest.importorskip("torch")
    ours, theirs = evaluated(weft, call), evaluated(torch, call)
    assert repr(ours.dtype).partition(".")[2] == repr(theirs.dtype).partition(".")[2]
    difference = np.abs(ours.double().detach().numpy() - theirs.double().detach().numpy())
    scale = 1 + np.abs(theirs.double().detach().numpy())
    assert (difference / scale).max() < 4e-2


def test_parameters_stay_as_they_are_and_get_gradients_in_their_type():
    layer = nn.Linear(3, 2)
    with weft.autocast("cpu"):
        out = layer(weft.ones(4, 3))
        assert out.dtype is weft.bfloat16 and layer.weight.dtype is weft.float32
        loss = nn.functional.mse_loss(out, weft.zeros(4, 2))
    loss.backward()
    assert loss.dtype is layer.weight.grad.dtype is layer.bias.grad.dtype is weft.float32


def test_blocks_nest_and_decorate():
    x = weft.ones(2, 2)

    @weft.autocast(device_type="cpu", dtype=weft.float16)
    def half(x):
        return x @ x

    with weft.autocast("cpu") as block:
        assert (x @ x).dtype is weft.bfloat16 and block.fast_dtype is weft.bfloat16
        with weft.autocast("cpu", enabled=False):
            assert (x @ x).dtype is weft.float32 and not weft.is_autocast_cpu_enabled()
        assert half(x).dtype is weft.float16 and weft.get_autocast_dtype("cpu") is weft.bfloat16
        assert weft.is_autocast_enabled("cpu") and not weft.is_autocast_enabled()
        assert not weft.is_autocast_enabled("cuda")
    assert (x @ x).dtype is weft.float32 and not weft.is_autocast_enabled("cpu")
    assert weft.amp.is_autocast_available("cpu") and not weft.amp.is_autocast_available("cuda")


def test_a_block_ends_with_an_error_in_it():
    with pytest.raises(ZeroDivisionError), weft.autocast("cpu"):
        raise ZeroDivisionError
    assert not weft.is_autocast_cpu_enabled()


def test_a_block_belongs_to_its_thread():
    found = []
    with weft.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append((weft.ones(2, 2) @ weft.ones(2, 2)).dtype))
        thread.start()
        thread.join()
    assert found == [weft.float32]


def test_a_type_of_more_bits_switches_the_block_off():
    with pytest.warns(UserWarning, match="target dtype is not supported. Disabling autocast"):
        block = weft.autocast("cpu", dtype=weft.float64)
    with block:
        assert (weft.ones(2, 2) @ weft.ones(2, 2)).dtype is weft.float32


@pytest.mark.parametrize("layer, output", [("LSTM", "bfloat16"), ("GRU", "float32"), ("RNN", "float32")])
def test_recurrent_layers_take_what_a_product_has_given(layer, output):
    steps = getattr(nn, layer)(3, 4)
    with weft.autocast("cpu"):
        out = steps(nn.Linear(3, 3)(weft.ones(5, 2, 3)))[0]
    out.float().sum().backward()
    assert repr(out.dtype) == f"weft.{output}" and steps.weight_hh_l0.grad.dtype is weft.float32


class Model(nn.Module):
    """Most kinds of layers."""

    def __init__(self):
        super().__init__()
        self.embedding, self.first = nn.Embedding(10, 8), nn.Linear(8, 12)
        self.norm, self.attention = nn.LayerNorm(12), nn.MultiheadAttention(12, 2, batch_first=True)
        self.steps, self.last = nn.LSTM(12, 12, batch_first=True), nn.Sequential(nn.ReLU(), nn.Linear(12, 10))

    def forward(self, words):
        x = self.norm(nn.functional.gelu(self.first(self.embedding(words))))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.last(self.steps(x)[0])


def trained(decorate, switched):
    """Losses and parameters of some steps; `switched` says in which of them the block is enabled."""
    weft.manual_seed(0)
    model, numbers = Model(), np.random.default_rng(0)
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-2)

    @decorate
    def step(words, classes, enabled):
        with weft.autocast("cpu", enabled=enabled):
            out = model(words)
            loss = nn.functional.cross_entropy(out.flatten(0, 1), classes.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, out

    found = []
    for enabled in switched:
        loss, out = step(*weft.tensor(numbers.integers(0, 10, (2, 2, 5))), enabled)
        assert out.dtype is (weft.bfloat16 if enabled else weft.float32)
        found.append(loss.item())
    return found, [p.detach().numpy().tobytes() for p in model.parameters()]


@pytest.mark.parametrize("switched", [[True] * 8, [True, True, True, False] * 3], ids=["always", "in turns"])
def test_compiled_steps_equal_eager_ones(switched):
    assert trained(weft.compile, switched) == trained(lambda step: step, switched)


def test_a_compiled_call_does_what_the_block_around_it_says():
    layer = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    compiled = weft.compile(lambda x: layer(x))
    x = weft.ones(2, 3)
    for k in range(12):
        with weft.autocast("cpu", enabled=k % 3 == 2):
            ours, plain = compiled(x), layer(x)
        assert ours.dtype is plain.dtype is (weft.bfloat16 if k % 3 == 2 else weft.float32)
        assert ours.tolist() == plain.tolist()


@pytest.mark.parametrize("backward_inside", [False, True])
def test_a_part_that_runs_again_computes_in_the_types_that_it_had(backward_inside):
    """It ran outside of the block the second time, in other types: an error."""
    layer, found = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), []
    for is_checkpoint in (False, True):
        layer.zero_grad()
        x = weft.ones(2, 3)
        with weft.autocast("cpu"):
            out = weft.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if is_checkpoint else layer(x)
            loss = out.float().sum()
            if backward_inside:
                loss.backward()
        if not backward_inside:
            loss.backward()
        found.append([p.grad.tolist() for p in layer.parameters()])
    assert found[0] == found[1]
    with weft.autocast("cpu"):
        plain = weft.autocast("cpu", enabled=False)
        with plain:
            out = weft.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        out.sum().backward()


# --- gradients of a scaled loss ---------------------------------------------------------------------------------------
def scaled_steps(ns, decorate=lambda step: step):
    """Scales and parameters of some steps, one of which has an infinite gradient."""
    weight = ns.ones(2, requires_grad=True)
    optimizer = ns.optim.SGD([weight], lr=0.125)
    scaler = ns.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

    @decorate
    def step(factor, clips):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        if clips:
            scaler.unscale_(optimizer)
            ns.nn.utils.clip_grad_norm_([weight], 0.5)
        scaler.step(optimizer)
        scaler.update()

    found = []
    for k in range(8):
        step(ns.tensor(float("inf") if k in (2, 6) else 1.0), k % 2 == 1)
        found.append((scaler.get_scale(), weight.tolist()))
    return found, scaler.state_dict()


@pytest.mark.oracle
def test_steps_of_scaled_losses_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    ours, theirs = scaled_steps(weft), scaled_steps(torch)
    assert ours[1] == theirs[1]
    for (scale, weight), (expected, expected_weight) in zip(ours[0], theirs[0]):
        assert scale == expected and weight == pytest.approx(expected_weight, rel=1e-6)


def test_steps_of_scaled_losses_are_the_same_in_a_compiled_call():
    assert scaled_steps(weft, weft.compile) == scaled_steps(weft)


def test_a_scaler_says_what_was_called_in_the_wrong_order():
    scaler, weight = weft.amp.GradScaler("cpu"), weft.ones(2, requires_grad=True)
    optimizer = weft.optim.SGD([weight], lr=0.5)
    for call in (lambda: scaler.step(optimizer), lambda: scaler.unscale_(optimizer), scaler.update):
        with pytest.raises(AssertionError, match="_scale is None"):
            call()
    with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable of Tensors"):
        scaler.scale(3)
    first, (second,) = scaler.scale([weight.sum(), (weight.sum(),)])
    (first + second).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="unscale_.. has already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="unscale_.. is being called after step"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="step.. has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: None)
    for options, word in (({"growth_factor": 1.0}, "growth"), ({"backoff_factor": 1.0}, "backoff")):
        with pytest.raises(AssertionError, match=f"The {word} factor must be"):
            weft.amp.GradScaler("cpu", **options)


def test_the_state_of_a_scaler_is_kept():
    scaler, other = weft.amp.GradScaler("cpu", init_scale=8.0), weft.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8 and other.is_enabled() and other.state_dict() == scaler.state_dict()
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        other.load_state_dict({})
