"""Ops on tensors in the memory of a GPU, one at a time, with their gradients: the bits of the CPU, on a driver that is
stood in for, whose kernels run on an emulated grid."""

import numpy as np
import pytest
from cuda_stand_in import gpu_for_tensors

import weft
from weft import nn, optim
from weft.compiler.autodiff import has_rule
from weft.compiler.ops import TABLE
from weft.compiler.ops.kinds import is_unknown
from weft.nn import functional as F
from weft.runtime.gpu import programs

CUDA = weft.device("cuda", 0)
# What no kernel for a GPU computes yet (docs/gpu.md).
WITHOUT = {
    **dict.fromkeys(("integer_pow", "floor_divide", "fmod", "remainder"), "division that has no exact form there"),
}
KINDS = ("elementwise", "reduction", "movement", "source", "view", "indexing")
OPS = [n for n, op in TABLE.items() if op.samples is not None and op.kind in KINDS and n not in WITHOUT]
COMPOSITES = str.split("""
    matmul bmm linear embedding nll_loss one_hot softmax log_softmax layer_norm gelu softplus logsumexp var std cross
    logaddexp silu elu clamp lerp hypot norm windows max_pool batch_norm transpose select squeeze
""")


@pytest.fixture
def gpu(monkeypatch):
    return gpu_for_tensors(monkeypatch)


def normal(*shape, seed=0):
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def same(x, y):
    """Whether a tensor on the GPU has the bits of one on the CPU; of NaN any."""
    x, y = x.detach(), y.detach()
    assert x.device == CUDA and y.device.type == "cpu" and (x.shape, x.dtype) == (y.shape, y.dtype)
    found, wanted = x.cpu().numpy(), y.numpy()
    if found.dtype.kind != "f":
        return np.array_equal(found, wanted)
    return np.array_equal(found, wanted, equal_nan=True) and np.array_equal(np.signbit(found), np.signbit(wanted))


def operands_of(op, sample, place):
    """The operands of a sample, floats as leaves."""
    found = []
    for k, x in enumerate(sample.operands):
        if isinstance(x, np.ndarray):
            x = weft.tensor(x.astype(np.float32) if x.dtype.kind == "f" else x, device=place)
            x.requires_grad = x.dtype.is_floating_point and has_rule(op, k) and not is_unknown(op, k)
        found.append(x)
    return found


# --- the table --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [*OPS, *(n for n in COMPOSITES if n in TABLE)])
def test_an_op_and_its_gradients_have_the_bits_of_the_cpu(name, gpu):
    op = TABLE[name]
    for sample in list(op.samples())[:2]:
        if not any(isinstance(x, np.ndarray) for x in sample.operands):
            continue
        ours, theirs = operands_of(op, sample, "cuda"), operands_of(op, sample, "cpu")
        y, wanted = op(*ours, **sample.attributes), op(*theirs, **sample.attributes)
        assert same(y, wanted), name
        if not wanted.requires_grad:
            continue
        cotangent = normal(*wanted.shape, seed=3).to(wanted.dtype)
        y.backward(cotangent.cuda())
        wanted.backward(cotangent)
        for x, other in zip(ours, theirs):
            if isinstance(x, weft.Tensor):
                assert (x.grad is None) is (other.grad is None)
                assert x.grad is None or same(x.grad, other.grad), name


def test_most_of_the_table_is_here():
    assert len(OPS) > 80


@pytest.mark.parametrize("name", ["sort_rows", "cumsum_rows", "cholesky_rows"])
def test_what_has_no_kernel_is_named_and_nothing_is_moved(name, gpu):
    x = (normal(4, 4) @ normal(4, 4).T + 9 * weft.eye(4)).cuda()
    calls = {"sort_rows": x.sort, "cumsum_rows": lambda: x.cumsum(1), "cholesky_rows": lambda: weft.linalg.cholesky(x)}
    gpu.calls.clear()
    with pytest.raises(NotImplementedError, match=rf"{name}: there is no kernel for a GPU yet .* x.cpu\(\)"):
        calls[name]()
    assert not [n for n, *_ in gpu.calls if n.startswith("cuMemcpy")]


# --- programs ---------------------------------------------------------------------------------------------------------
def test_there_is_one_program_for_an_op_on_operands_of_given_shapes_and_types(gpu):
    x, y = normal(5, 6).cuda(), normal(6).cuda()
    for k in range(4):
        x * y + float(k)
    assert len(programs._programs) == 2
    x.t() * x.t()
    x.double() * 2.0
    assert len(programs._programs) == 5


def test_numbers_are_no_part_of_programs_and_the_same_few_are_copied_once(gpu):
    x = normal(7).cuda()
    x * 2.0, x * 3.0
    gpu.calls.clear()
    assert same(x * 2.0, normal(7) * 2.0) and same(x * 4.0, normal(7) * 4.0)
    assert [n for n, *_ in gpu.calls].count("cuMemcpyHtoDAsync_v2") == 1


def test_an_index_out_of_range_is_an_error_at_its_line(gpu):
    table, places = nn.Embedding(10, 3).cuda(), weft.tensor([1, 12], device="cuda")
    with pytest.raises(IndexError, match="embedding: index out of range in self; nothing was changed"):
        table(places)
    assert table(weft.tensor([1, 2], device="cuda")).shape == (2, 3)


def test_half_floats_and_composites_of_them(gpu):
    x, w = normal(5, 8), normal(8, 4, seed=1)
    for kind in (weft.float16, weft.bfloat16):
        a, b = x.to(kind), w.to(kind)
        assert (F.gelu(a.cuda() @ b.cuda())).cpu().float().tolist() == F.gelu(a @ b).float().tolist()


# --- views and changes in place ---------------------------------------------------------------------------------------
def test_views_show_the_same_memory(gpu):
    x, y = normal(4, 6), normal(4, 6).cuda()
    for t in (x, y):
        t[1].zero_()
        t.t()[2:4, ::2].mul_(3.0)
        t.view(2, 12)[:, 3] += 1.0
        t[:, -1] = 7.0
        t.diagonal().copy_(weft.arange(4.0))
        t[2:, 1:3] = normal(2, 2, seed=5)
        t.unsqueeze(1).expand(4, 1, 6)[0].add_(1.0)
    assert same(y, x) and y[1]._base is y and y[1].data_ptr() == y.data_ptr() + 24
    assert y.reshape(-1).data_ptr() == y.data_ptr() != y.t().reshape(-1).data_ptr()
    assert y.detach().data_ptr() == y.data.data_ptr() == y.data_ptr()


def test_overlapping_memory_is_read_before_it_is_written(gpu):
    x, y = normal(50), normal(50).cuda()
    for t in (x, y):
        t[1:] += t[:-1]
        t.copy_(t.flip(0))
        t[::2].add_(t[1::2])
    assert same(y, x)


def test_memory_that_is_shown_twice_is_not_written(gpu):
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        normal(1, 3).cuda().expand(4, 3).add_(1.0)


def test_changes_in_place_count_for_autograd(gpu):
    def changed(x):
        y = x * 2
        y.add_(1).mul_(y)
        y[0] = 0.0
        return y.sum()

    x, y = normal(4, 3).requires_grad_(), normal(4, 3).cuda().requires_grad_()
    changed(x).backward()
    changed(y).backward()
    assert same(y.grad, x.grad)
    z = y.exp()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        y.add_(1)


def test_a_recorded_change_of_a_view_is_refused(gpu):
    y = normal(4, 3).cuda().requires_grad_() * 2
    before = y.tolist()
    with pytest.raises(
        NotImplementedError, match=r"in-place change of a tensor on cuda:0 that shares memory.*clone\(\)"
    ):
        y[0].mul_(y[1])
    assert y.tolist() == before
    with weft.no_grad():
        y[0].mul_(2.0)
    assert y.tolist() != before


# --- autograd ---------------------------------------------------------------------------------------------------------
def test_derivatives_of_any_order(gpu):
    def orders(x):
        (first,) = weft.autograd.grad((x.sin() * x**3).sum(), x, create_graph=True)
        (second,) = weft.autograd.grad(first.exp().sum(), x, create_graph=True)
        (third,) = weft.autograd.grad(second.sum(), x)
        return first, second, third

    x = normal(5) * 0.25
    for found, wanted in zip(orders(x.cuda().requires_grad_()), orders(x.requires_grad_())):
        assert same(found, wanted)


def test_gradients_accumulate_and_hooks_run(gpu):
    def run(x):
        seen = []
        y = x * 2
        y.register_hook(lambda g: seen.append(g) or g * 3)
        y.retain_grad()
        handle = x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
        (y * y).sum().backward()
        handle.remove()
        (x * 5).sum().backward()
        return [x.grad, y.grad, *seen]

    x = normal(4)
    found, wanted = run(x.cuda().requires_grad_()), run(x.requires_grad_())
    assert len(found) == len(wanted) == 4 and all(map(same, found, wanted))
    with weft.no_grad():
        assert not (x.cuda().requires_grad_() * 2).requires_grad
    assert not (x.cuda().requires_grad_() * 2).detach().requires_grad


def test_gradients_go_from_device_to_device(gpu):
    x = normal(3, 4).requires_grad_()
    y = (x.cuda() * 2).exp().cpu()
    assert type(y.grad_fn).__name__ == "ToCopyBackward0"
    (y * y).sum().backward()
    wanted = normal(3, 4).requires_grad_()
    ((wanted * 2).exp() ** 2).sum().backward()
    assert x.grad.device.type == "cpu" and weft.allclose(x.grad, wanted.grad)


class Squared(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, cotangent):
        return 2 * ctx.saved_tensors[0] * cotangent


def test_functions_of_users_checkpoints_and_transformations(gpu):
    x = normal(4, 3)
    y = x.cuda().requires_grad_()
    Squared.apply(y).sum().backward()
    assert same(y.grad, 2 * x)
    y.grad = None
    weft.utils.checkpoint.checkpoint(lambda t: (t * t).sum(), y, use_reentrant=False).backward()
    assert same(y.grad, 2 * x)
    assert same(weft.func.grad(lambda t: (t * t).sum())(x.cuda()), 2 * x)
    assert same(weft.func.vmap(lambda row: row * row[0])(x.cuda()), x * x[:, :1])


# --- training ---------------------------------------------------------------------------------------------------------
def digits_net():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Dropout(0.1), nn.LayerNorm(40), nn.Linear(40, 10))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.SGD, {"lr": 0.1}),
        (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        (optim.Adam, {"lr": 0.01}),
        (optim.AdamW, {"lr": 0.01, "amsgrad": True}),
        (optim.RMSprop, {"lr": 0.01}),
        (optim.Adagrad, {"lr": 0.01}),
        (optim.NAdam, {"lr": 0.01}),
    ],
)
def test_a_network_is_trained_to_the_same_bits(kind, options, gpu):
    images, labels = normal(20, 64), weft.arange(20) % 10
    found = []
    for place in ("cpu", "cuda"):
        net = digits_net().to(place)
        optimizer = kind(net.parameters(), **options)
        x, y = images.to(place), labels.to(place)
        weft.manual_seed(1)
        losses, norms = [], []
        for _ in range(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(net.parameters(), 1.0).item())
            optimizer.step()
            losses.append(loss.item())
        net.eval()
        found.append((losses, norms, [p.detach() for p in net.parameters()], net(x).detach()))
    (losses, norms, params, output), (other_losses, other_norms, other_params, other_output) = found
    assert losses == other_losses and norms == other_norms and losses[-1] < losses[0]
    assert all(map(same, other_params, params)) and same(other_output, output)


def test_the_gelu_chain_and_its_gradients(gpu):
    def chain(x, w):
        for _ in range(3):
            x = F.gelu(x @ w) + x
        return F.softmax(x, 1).pow(2).sum()

    x, w = normal(9, 16), normal(16, 16, seed=1) * 0.25
    ours, theirs = w.cuda().requires_grad_(), w.clone().requires_grad_()
    value, wanted = chain(x.cuda(), ours), chain(x, theirs)
    value.backward()
    wanted.backward()
    assert value.item() == wanted.item() and same(ours.grad, theirs.grad)


def test_layers_of_other_kinds(gpu):
    weft.manual_seed(0)
    x, images = normal(2, 5, 8), normal(2, 3, 8, 8)
    layers = [
        (nn.LSTM(8, 4, batch_first=True), x),
        (nn.GRU(8, 4), x),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()), images),
    ]
    for layer, given in layers:
        gradients = []
        for place in ("cpu", "cuda"):
            layer.zero_grad()
            out = layer.to(place)(given.to(place))
            out = out[0] if isinstance(out, tuple) else out
            out.pow(2).sum().backward()
            gradients.append([out.detach().cpu(), *(p.grad.cpu() for p in layer.parameters())])
        assert all(map(weft.equal, *gradients)), layer


def test_attention_is_a_routine_that_a_gpu_has_not(gpu):
    q = normal(1, 2, 5, 8).cuda()
    with pytest.raises(NotImplementedError, match="attention_rows: there is no kernel for a GPU yet"):
        F.scaled_dot_product_attention(q, q, q)


def test_an_optimizer_made_before_the_module_moves_goes_on(gpu):
    net, x = digits_net(), normal(4, 64)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    net.cuda().eval()
    net(x.cuda()).sum().backward()
    before = net[0].weight.tolist()
    optimizer.step()
    assert net[0].weight.device == CUDA and net[0].weight.tolist() != before


def test_state_on_another_device_than_its_parameter_is_an_error(gpu):
    net, x = nn.Linear(64, 2), normal(4, 64)
    optimizer = optim.Adam(net.parameters())
    net(x).sum().backward()
    optimizer.step()
    net.cuda()
    with pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu! .an optimizer's parameter"):
        optimizer.step()


def test_mixed_state_never_writes_to_the_cpu(gpu):
    p = nn.Parameter(normal(3))
    p.grad = weft.ones(3)
    with pytest.raises(RuntimeError):
        p.data = normal(3).cuda()
        optim.SGD([p], lr=0.1).step()


# --- what programs do besides -----------------------------------------------------------------------------------------
def test_transformations_that_differentiate_what_only_shapes_are_kept_of(gpu):
    x = normal(4, 6)

    def rows(v):
        return (v * v).sum(1)

    for transform in (weft.func.jacrev, weft.func.jacfwd):
        assert same(transform(rows)(x.cuda()), transform(rows)(x))
    found = [
        weft.func.jvp(lambda v: (v * v).sin(), (x.to(place),), (weft.ones(4, 6, device=place),))
        for place in ("cuda", "cpu")
    ]
    assert all(map(same, *found))
    weight = nn.Parameter(x.cuda())
    _, tangent = weft.func.jvp(lambda v: v.exp(), (weight,), (weft.ones(4, 6, device="cuda"),))
    assert same(tangent, x.exp())


def test_anomalies_are_found(gpu):
    x = weft.zeros(3, device="cuda", requires_grad=True)
    with pytest.warns(UserWarning, match="Anomaly|Error detected"), weft.autograd.detect_anomaly():
        (x * 2).sum().backward()
        with pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan values in its 0th output"):
            (x.sqrt() * 0).sum().backward()


def test_inference_mode(gpu):
    with weft.inference_mode():
        y = normal(2, 3).cuda() * 2
        y.add_(1)
    assert y.is_inference() and same(y, normal(2, 3) * 2 + 1)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        y.add_(1)


@pytest.mark.filterwarnings("ignore")
def test_mixed_precision(gpu):
    x = normal(4, 6).cuda()
    with weft.autocast("cuda"):
        assert (x @ x.t()).dtype is weft.float16
    with weft.autocast("cuda", dtype=weft.bfloat16):
        assert (x @ x.t()).dtype is weft.bfloat16
    net = nn.Linear(6, 1).cuda()
    optimizer, scaler = optim.SGD(net.parameters(), lr=0.1), weft.amp.GradScaler("cuda")
    scaler.scale(net(x).sum()).backward()
    assert net.bias.grad.item() == 4 * scaler.get_scale() == 4 * 65536.0
    before = net.bias.item()
    scaler.step(optimizer)
    scaler.update()
    assert net.bias.item() == np.float32(before) - np.float32(0.1) * np.float32(4.0)


def test_states_and_files_go_to_the_device_of_what_they_are_for(gpu, tmp_path):
    x, net = normal(4, 6), nn.Linear(6, 1)
    optimizer = optim.Adam(net.parameters())
    net(x).sum().backward()
    optimizer.step()
    weft.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    saved, other = weft.load(tmp_path / "state.pt", map_location="cuda"), nn.Linear(6, 1).cuda()
    assert {t.device for t in saved["net"].values()} == {CUDA}
    other.load_state_dict(saved["net"])
    goes_on = optim.Adam(other.parameters())
    for state in (saved["optimizer"], optimizer.state_dict()):
        goes_on.load_state_dict(state)
        assert goes_on.state[other.weight]["exp_avg"].device == CUDA
    for model, steps, given in ((net, optimizer, x), (other, goes_on, x.cuda())):
        model.zero_grad()
        model(given).sum().backward()
        steps.step()
    assert same(other.weight, net.weight)


def test_data_sets_distributions_and_images_there(gpu):
    x = normal(4, 6)
    batches = list(weft.utils.data.DataLoader(weft.utils.data.TensorDataset(x.cuda()), batch_size=3))
    assert same(weft.cat([b for (b,) in batches]), x)
    normals = [weft.distributions.Normal(x.to(place), 2.0) for place in ("cuda", "cpu")]
    assert same(*(d.log_prob(x.to(place)) for d, place in zip(normals, ("cuda", "cpu"))))
    assert normals[0].rsample().device == CUDA
    images = normal(1, 2, 4, 4)
    for mode in ("nearest", "bilinear", "bicubic"):
        wanted = F.interpolate(images, scale_factor=2, mode=mode)
        assert same(F.interpolate(images.cuda(), scale_factor=2, mode=mode), wanted)


def test_what_is_for_the_cpu_only_says_so(gpu):
    weft.ones(2).cuda()
    with pytest.raises(NotImplementedError, match=r"hann_window: for the CPU only, got 'cuda'.*\.to\('cuda'\)"):
        weft.hann_window(5, device="cuda")
    with pytest.raises(NotImplementedError, match="orthogonal_: it is computed on the CPU"):
        nn.init.orthogonal_(weft.empty(3, 3, device="cuda"))


# --- where a GPU is ---------------------------------------------------------------------------------------------------
@pytest.mark.gpu
def test_a_gpu_trains_to_the_bits_of_the_cpu():
    if not weft.cuda.is_available():
        with pytest.raises(RuntimeError, match="weft computes on the CPU"):
            digits_net().to("cuda")
        return
    images, labels, found = normal(128, 64), weft.arange(128) % 10, []
    for place in ("cpu", "cuda"):
        net = digits_net().to(place).eval()
        optimizer = optim.Adam(net.parameters(), lr=0.01)

        def step(x, y, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        x, y = images.to(place), labels.to(place)
        losses = [run(x, y).item() for run in (step, weft.compile(step)) for _ in range(5)]
        found.append((losses, [p.detach().cpu() for p in net.parameters()]))
    (losses, params), (other_losses, other_params) = found
    assert losses == other_losses and all(map(weft.equal, params, other_params))
