"""Keywords that do what they say: out=, generator=, the older ones of losses; and gradient modes as classes."""

import contextlib
import pickle

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F
from weft.utils import workers

# --- out --------------------------------------------------------------------------------------------------------------
OUT = """
add(x, y, out=o) ; sub(x, 2, out=o) ; mul(x, y, out=o) ; div(x, y, out=o) ; exp(x, out=o) ; matmul(x, x, out=o)
mm(x, x, out=o) ; maximum(x, y, out=o) ; pow(x, 2, out=o) ; clamp(x, 0.0, 1.0, out=o) ; tanh(input=x, out=o)
where(x > 0, x, y, out=o) ; cat([x[:1], y[1:]], out=o) ; cat((x[:, :1], y[:, 1:]), dim=1, out=o) ; abs(x, out=o)
zeros(2, 2, out=o) ; ones((2, 2), out=o) ; eye(2, out=o) ; full((2, 2), 3.0, out=o) ; tril(x, out=o)
round(x, decimals=1, out=o) ; addmm(x, x, y, out=o) ; lerp(x, y, 0.5, out=o)
"""


@pytest.mark.parametrize("call", [c.strip() for c in OUT.replace("\n", ";").split(";") if c.strip()])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_out_is_written_and_returned(call, dtype):
    names = {"x": weft.tensor([[0.5, -1.0], [2.0, 3.0]]), "y": weft.tensor([[1.5, 2.5], [0.5, -1.0]])}
    names |= {"i": weft.tensor([[0, 1], [1, 0]])}
    expected = eval(f"weft.{call}", {"weft": weft, **names, "o": None})
    out = weft.full((2, 2), 7.0, dtype=getattr(weft, dtype))
    view = out[0]
    assert eval(f"weft.{call}", {"weft": weft, **names, "o": out}) is out
    assert out.dtype is getattr(weft, dtype) and out.tolist() == expected.tolist()
    assert view.tolist() == out[0].tolist(), "written into the memory there was"


def test_what_only_moves_elements_writes_into_their_own_type():
    x, i, out = weft.tensor([[0.5, -1.0], [2.0, 3.0]]), weft.tensor([[0, 1], [1, 0]]), weft.zeros(2, 2)
    assert weft.gather(x, 1, i, out=out) is out and out.tolist() == [[0.5, -1], [3, 2]]
    with pytest.raises(RuntimeError, match="gather: Expected out tensor to have dtype float32, but got float64"):
        weft.gather(x, 1, i, out=out.double())


def test_out_takes_the_shape_of_the_result():
    out = weft.empty(0)
    assert weft.add(weft.ones(2, 3), 1, out=out) is out and out.tolist() == [[2, 2, 2]] * 2
    with pytest.warns(UserWarning, match=r"resized since it had shape \[2, 3\]"):
        weft.exp(weft.zeros(2), out=out)
    assert out.tolist() == [1, 1]


def test_out_of_several_results_and_of_sums():
    x = weft.tensor([[1.0, 5.0], [7.0, 2.0]])
    values, indices = weft.empty(0), weft.empty(0, dtype=weft.int64)
    result = weft.max(x, 1, out=(values, indices))
    assert values.tolist() == [5, 7] == result.values.tolist() and indices.tolist() == [1, 0]
    total = weft.empty((), dtype=weft.float64)
    assert weft.sum(weft.tensor([1, 2]), 0, out=total).item() == 3 and total.dtype is weft.float64
    with pytest.raises(TypeError, match="argument 'out' must be a tuple of 2 Tensors"):
        weft.max(x, 1, out=values)


def test_out_errors():
    x = weft.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"add\(\): functions with out=... arguments don't support automatic"):
        weft.add(x, 1, out=weft.empty(2))
    with weft.no_grad():
        assert weft.add(x, 1, out=weft.empty(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="mul: result type float32 can't be cast to the desired output type int64"):
        weft.mul(weft.ones(2), 0.5, out=weft.empty(2, dtype=weft.int64))
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not list"):
        weft.exp(weft.ones(2), out=[])


def test_out_in_a_compiled_call():
    def f(x, out):
        weft.add(x, 1, out=out)
        weft.stack([out, x], out=x.new_empty(0))
        return weft.mul(out, 2.0, out=weft.empty_like(x)) + weft.matmul(x, x, out=weft.empty(0))

    x = weft.randn(5, 5)
    eager_out, compiled_out = weft.empty(5, 5), weft.empty(5, 5)
    expected, compiled = f(x, eager_out), weft.compile(f)
    for _ in range(4):
        assert (compiled(x, compiled_out) == expected).all() and (compiled_out == eager_out).all()


# --- generators -------------------------------------------------------------------------------------------------------
DRAWS = """
rand(3, generator=g) ; randn(2, 2, generator=g) ; randint(0, 99, (4,), generator=g) ; randperm(9, generator=g)
bernoulli(weft.full((20,), 0.5), generator=g) ; normal(0.0, 1.0, (3,), generator=g) ; rand_like(x, generator=g)
zeros(4).uniform_(generator=g) ; zeros(4).normal_(0, 2, generator=g) ; nn.init.kaiming_uniform_(x, generator=g)
nn.init.xavier_normal_(x, generator=g) ; nn.init.orthogonal_(x, generator=g) ; nn.init.trunc_normal_(x, generator=g)
nn.init.normal_(x, generator=g) ; nn.init.uniform_(x, generator=g) ; randn_like(x, generator=g)
"""


@pytest.mark.parametrize("call", [c.strip() for c in DRAWS.replace("\n", ";").split(";") if c.strip()])
def test_a_generator_is_a_stream_of_its_own(call):
    def draw(g):
        return eval(f"weft.{call}", {"weft": weft, "g": g, "x": weft.ones(3, 4)}).tolist()

    first, second = weft.Generator().manual_seed(5), weft.Generator(device="cpu")
    second.manual_seed(5)
    weft.manual_seed(1)
    expected = draw(first)
    state = weft.get_rng_state()
    assert draw(second) == expected and weft.get_rng_state().tolist() == state.tolist()
    assert draw(second) != expected or call.startswith("zeros_like")
    assert draw(None) != expected


def test_states_of_generators():
    g = weft.Generator()
    assert g.initial_seed() == 0 and g.manual_seed(-1) is g and g.initial_seed() == 2**64 - 1
    weft.rand(2, generator=g)
    state = g.get_state()
    expected = weft.rand(2, generator=g).tolist()
    assert weft.rand(2, generator=g).tolist() != expected
    again, third = pickle.loads(pickle.dumps(g)), g.clone_state()
    assert weft.rand(1, generator=again).item() == weft.rand(1, generator=third).item()
    g.set_state(state)
    assert weft.rand(2, generator=g).tolist() == expected
    assert g.seed() == g.initial_seed() and g.device == weft.device("cpu")
    with pytest.raises(TypeError, match="that get_state"):
        g.set_state(weft.ones(3))
    with pytest.raises(RuntimeError, match="less than 2"):
        g.manual_seed(2**64)
    with pytest.raises(RuntimeError, match="weft computes on the CPU"):
        weft.Generator(device="cuda")


def test_the_default_generator():
    weft.manual_seed(11)
    assert weft.initial_seed() == weft.random.initial_seed() == 11
    before = weft.get_rng_state()
    with weft.random.fork_rng(devices=[]):
        first = weft.rand(3).tolist()
    assert weft.rand(3).tolist() == first
    weft.set_rng_state(before)
    assert weft.rand(3).tolist() == first and weft.seed() == weft.initial_seed()


def test_a_generator_in_a_compiled_call():
    eager, compiled = weft.Generator().manual_seed(3), weft.Generator().manual_seed(3)

    def draw(x, g):
        return x + weft.randn(4, generator=g) * weft.rand(4)

    f, x = weft.compile(draw), weft.ones(4)
    for step in range(4):
        weft.manual_seed(step)
        expected = draw(x, eager)
        weft.manual_seed(step)
        assert (f(x, compiled) == expected).all()


# --- losses -----------------------------------------------------------------------------------------------------------
def test_older_keywords_of_losses():
    x, y = weft.tensor([[1.0, 2.0], [0.5, 0.25]]), weft.tensor([[0.0, 1.0], [1.0, 0.0]])
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        assert F.mse_loss(x, y, size_average=False) == F.mse_loss(x, y, reduction="sum")
    with pytest.warns(UserWarning, match="please use reduction='none' instead"):
        assert (F.l1_loss(x, y, reduce=False) == F.l1_loss(x, y, reduction="none")).all()
    with pytest.warns(UserWarning, match="please use reduction='mean' instead"):
        assert nn.CrossEntropyLoss(size_average=True)(x, y) == F.cross_entropy(x, y)
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        assert nn.BCEWithLogitsLoss(reduce=True, size_average=False).reduction == "sum"
    target = weft.tensor([1, 0])
    assert F.nll_loss(x, target, None, None, -100, None, "sum") == F.nll_loss(x, target, reduction="sum")
    assert F.kl_div(x, y, None, None, "batchmean") == F.kl_div(x, y, reduction="batchmean")


# --- gradient modes ---------------------------------------------------------------------------------------------------
def test_modes_are_classes():
    for mode in (weft.no_grad, weft.enable_grad, weft.inference_mode, weft.set_grad_enabled):
        assert isinstance(mode, type)
    assert isinstance(weft.no_grad(), weft.no_grad) and weft.autograd.no_grad is weft.no_grad

    @weft.no_grad
    def plain():
        return weft.is_grad_enabled()

    @weft.no_grad()
    def called():
        return weft.is_grad_enabled()

    @weft.inference_mode()
    def inference():
        return weft.is_grad_enabled(), weft.is_inference_mode_enabled()

    @weft.inference_mode
    def bare():
        return weft.is_inference_mode_enabled()

    assert not plain() and not called() and inference() == (False, True) and bare()
    assert plain.__name__ == "plain" and weft.is_grad_enabled() and not weft.is_inference_mode_enabled()
    with weft.inference_mode(mode=False):
        assert weft.is_grad_enabled() and not weft.is_inference_mode_enabled()
    with weft.no_grad(), weft.inference_mode(False):
        assert weft.is_grad_enabled()
    with weft.no_grad():
        with weft.enable_grad():
            assert weft.is_grad_enabled()
        assert not weft.is_grad_enabled()


def test_a_generator_function_under_no_grad():
    """Its body runs in the mode, whoever takes its values does not."""

    @weft.no_grad()
    def values():
        try:
            received = yield weft.is_grad_enabled()
            yield received, weft.is_grad_enabled()
        except KeyError:
            yield "caught", weft.is_grad_enabled()
        return 5

    steps = values()
    assert next(steps) is False and weft.is_grad_enabled()
    assert steps.send("word") == ("word", False) and weft.is_grad_enabled()
    assert steps.throw(KeyError("x")) == ("caught", False) and weft.is_grad_enabled()
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == 5
    unfinished = values()
    next(unfinished)
    unfinished.close()
    assert weft.is_grad_enabled()


# --- a compiled step --------------------------------------------------------------------------------------------------
def test_moving_to_the_device_is_no_step_of_a_compiled_call():
    device = weft.device("cuda" if weft.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(4, 8, device=device), nn.Tanh(), nn.Linear(8, 1)).to(device)
    twin = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    twin.load_state_dict(model.state_dict())

    def moved(x, y):
        x, y = x.to(device, non_blocking=True), y.to(device=device, dtype=weft.float32)
        with weft.autocast("cpu", enabled=False):
            loss = F.mse_loss(model(x), y.cpu())
        loss.backward()
        return loss.to("cpu")

    def plain(x, y):
        loss = F.mse_loss(twin(x), y)
        loss.backward()
        return loss

    compiled, reference = weft.compile(moved), weft.compile(plain)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, y = (weft.tensor(rng.normal(size=(6, n)).astype(np.float32)) for n in (4, 1))
        assert compiled(x, y) == reference(x, y) == plain(x, y)
        for a in (model, twin):
            a.zero_grad()

    def steps(function):
        recording = function.recordings[0]
        return function.explain().count("kernel"), len(recording.signature)

    assert steps(compiled) == steps(reference)


def test_clipping_takes_a_generator_of_parameters():
    """Once the norm was taken, a generator was empty, and nothing was clipped."""
    model = nn.Linear(3, 2)
    (model(weft.ones(4, 3)) * 10).sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    clipped = nn.utils.get_total_norm(p.grad for p in model.parameters())
    assert norm.item() > 1 and clipped.item() == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.get_total_norm([weft.tensor([float("inf")])], error_if_nonfinite=True)


def test_options_of_optimizers():
    weight = weft.ones(2, requires_grad=True)
    for kind in (weft.optim.SGD, weft.optim.Adam, weft.optim.AdamW, weft.optim.Adagrad):
        optimizer = kind([weight], lr=0.1, foreach=True, fused=False)
        assert optimizer.param_groups[0]["foreach"] is True
        with pytest.raises(RuntimeError, match="cannot be `True` together"):
            kind([weight], lr=0.1, foreach=True, fused=True)
        with pytest.raises(NotImplementedError, match="differentiable=True"):
            kind([weight], lr=0.1, differentiable=True)
    assert weft.optim.RMSprop([weight], capturable=True).param_groups[0]["capturable"]


def test_a_schedule_of_a_users_own():
    class Halving(weft.optim.lr_scheduler._LRScheduler):
        def get_lr(self):
            return [rate / 2**self.last_epoch for rate in self.base_lrs]

    optimizer = weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=0.8)
    schedule = Halving(optimizer)
    rates = []
    for _ in range(3):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step(), schedule.step()
    assert rates == [0.8, 0.4, 0.2] and schedule.get_last_lr() == [0.1]


def test_saving_takes_pytorchs_options(tmp_path):
    path = tmp_path / "x.pt"
    weft.save({"x": weft.ones(2)}, path, pickle_protocol=2, _use_new_zipfile_serialization=True)
    for place in ("cpu", weft.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage):
        assert weft.load(path, map_location=place, weights_only=False, mmap=None)["x"].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="load: weft computes on the CPU, got 'cuda:0'"):
        weft.load(path, map_location="cuda:0")
    with pytest.raises(TypeError, match="unexpected keyword argument 'compress'"):
        weft.save({}, path, compress=True)


def test_a_loader_says_that_it_has_no_workers(monkeypatch):
    monkeypatch.setattr(workers, "_said", [])
    with pytest.warns(UserWarning, match="samples are loaded in this process"):
        loader = weft.utils.data.DataLoader([1, 2, 3], 2, num_workers=2, pin_memory=True, persistent_workers=True)
    assert [batch.tolist() for batch in loader] == [[1, 2], [3]]


# --- NumPy's words ----------------------------------------------------------------------------------------------------
WORDS = """
cumsum(x, axis=0) ; cumprod(x, axis=1) ; x.cumsum(axis=0) ; sort(x, axis=0)[0] ; x.argsort(axis=1)
topk(x, 1, axis=0)[0] ; median(x, axis=0, keepdims=True)[0] ; var_mean(x, axis=1, keepdims=True)[0]
x.quantile(0.5, axis=1, keepdims=True) ; diff(x, axis=0) ; x.unbind(axis=1)[0] ; x.logsumexp(axis=1, keepdims=True)
fft.fft(x, axis=0).abs() ; fft.rfft2(x, axis=(0, 1)).abs() ; fft.fftshift(x, axis=0) ; linalg.norm(x, axis=1)
linalg.vector_norm(x, axis=0, keepdims=True) ; linalg.vecdot(x, x, axis=0) ; x.cumsum_(axis=0) ; x.cumprod_(axis=1)
cross(e, e.flip(1), axis=1) ; linalg.norm(input=x) ; det(input=x) ; matrix_power(input=x, n=3)
special.chebyshev_polynomial_t(x, n=3) ; special.laguerre_polynomial_l(x, n=2) ; x.swapaxes_(axis0=0, axis1=1)
x.uniform_(2.0, to=2.0) ; x.uniform_(**{"from": 1.0, "to": 1.0}) ; x.random_(**{"from": 1, "to": 2})
repeat_interleave(x, 2, axis=1) ; gather(x, axis=1, index=i) ; cumsum(input=x, axis=0, out=o) ; nansum(x, axis=0)
chunk(x, 2, axis=1)[0]
"""


@pytest.mark.oracle
@pytest.mark.parametrize("call", [c.strip() for c in WORDS.replace("\n", ";").split(";") if c.strip()])
def test_axis_and_keepdims_are_understood(call):
    torch = pytest.importorskip("torch")

    def found(lib):
        x = lib.tensor([[0.5, -1.0], [2.0, 3.0]])
        names = {"x": x, "i": lib.tensor([[0], [1]]), "o": lib.zeros(2, 2), "e": lib.eye(3)}
        return eval(call if call.startswith("x.") else f"lib.{call}", {"lib": lib, **names})

    np.testing.assert_allclose(np.asarray(found(weft)), found(torch).numpy(), rtol=1e-6)


def test_the_same_word_twice_is_an_error():
    with pytest.raises(TypeError, match="got both axis= and dim="):
        weft.cumsum(weft.ones(2), dim=0, axis=0)
    with pytest.warns(FutureWarning, match="only_inputs"):
        x = weft.ones(1, requires_grad=True)
        weft.autograd.grad(x * 2, x, only_inputs=False)


# --- whole numbers of other kinds -------------------------------------------------------------------------------------
WHOLE = """
eye(n) ; zeros(n, 1) ; ones((1, n)) ; arange(n) ; x.reshape(n, -1) ; x[:n] ; x.narrow(0, n - 1, n - 1) ; x.select(1, n)
x.flatten(n) ; x.flatten(n - 2, n) ; x.roll(n, n)
x.split(n, -1) ; x.split([n, n], -1) ; x.split((n - 1, n - 1, n), -1) ; x.split([n, 1, 1], 2) ; x.tensor_split(n)
x.tensor_split([n - 1, n], 2) ; x.chunk(n, -1) ; x.unfold(2, n, 1) ; x.topk(n)[0] ; x.kthvalue(n)[0] ; x.sum(n)
F.avg_pool1d(x, n) ; F.max_pool2d(x, n) ; F.adaptive_avg_pool1d(x, n) ; F.adaptive_max_pool2d(x, (n, 1))
F.conv1d(x, lib.ones(1, 3, 2), padding=n, stride=n) ; F.pad(x, (n, n)) ; F.interpolate(x, n) ; F.one_hot(i, n)
F.lp_pool1d(x, 2.0, n) ; fft.fft(x, n).abs() ; fft.fft2(x, (n, n)).abs() ; fft.fftshift(x, n) ; fft.fftfreq(n)
nn.LayerNorm((3, 2 * n))(x) ; nn.ZeroPad2d(n)(x) ; nn.MaxPool1d(n)(x) ; histc(x, n) ; linalg.norm(x, dim=n) ; x.tril(n)
tensordot(x, x.permute(1, 2, 0), n) ; unravel_index(i, (n, n))[0] ; linalg.matrix_power(x[0, :n, :n], n) ; diff(x, n)
combinations(x[0, 0], n) ; broadcast_shapes((n,), (1, n))
"""


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["NumPy's", "tensor"])
@pytest.mark.parametrize("call", [c.strip() for c in WHOLE.replace("\n", ";").split(";") if c.strip()])
def test_whole_numbers_may_be_numpys_or_tensors(call, kind):
    torch = pytest.importorskip("torch")

    def found(lib, n):
        names = {"n": n, "x": lib.arange(24.0).reshape(2, 3, 4), "i": lib.tensor([0, 1])}
        names["F"], path = lib.nn.functional, call if call[:2] in ("x.", "x[", "F.") else f"lib.{call}"
        made = eval(path, {"lib": lib, **names})
        assert n == 2  # nor has a list of such numbers been changed
        return made if isinstance(made, (list, tuple)) else [made.detach()]

    number = np.int64(2) if kind == "NumPy's" else weft.tensor(1)
    if kind == "tensor":
        # A call with the same tensor, which had another number then.
        with contextlib.suppress(Exception):
            found(weft, number)
        number.fill_(2)
    ours, theirs = found(weft, number), found(torch, 2)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)
