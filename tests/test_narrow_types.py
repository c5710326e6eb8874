"""Types of 8 and 16 bits in compiled calls: in programs, with the bits of eager mode, and near PyTorch's."""

import copy
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import nn
from weft.compiler.dtypes import bfloat16, float32, uint8
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.widen import widen

try:
    import torch
except ModuleNotFoundError:
    torch = None  # tests that compare with it are marked

F = nn.functional
halves = pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16], ids=repr)
N_CALLS = 5


def words(x):
    """A tensor's type, shape and bits."""
    return x.dtype.name, tuple(x.shape), x.detach().array.tobytes()


def assert_compiled(function, *arguments):
    """In call after call what eager mode gives, all of it from programs."""
    expected = [words(x) for x in function(*arguments)]
    compiled = weft.compile(function)
    for _ in range(N_CALLS):
        assert [words(x) for x in compiled(*arguments)] == expected
    assert "nothing ran outside the programs" in compiled.explain()


# --- images, sound and tables ----------------------------------------------------------------------------------------
def images(*shape):
    numbers = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    return weft.from_numpy(numbers)


def prepared(torch, batch):
    mean, deviation = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])
    x = (batch.float() / 255 - mean[:, None, None]) / deviation[:, None, None]
    flipped = batch.flip(3).to(torch.float32)
    return x, flipped.mean((2, 3)), (batch > 127).sum(1), batch.permute(0, 2, 3, 1).contiguous()


@pytest.mark.oracle
def test_batches_of_images():
    ours = images(4, 3, 9, 17)
    theirs = torch.from_numpy(ours.numpy())
    assert_compiled(lambda batch: prepared(weft, batch), ours)
    for x, y in zip(prepared(weft, ours), prepared(torch, theirs)):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.oracle
def test_arithmetic_of_images_wraps_around():
    def changed(x, y):
        return x + y, x * y, x - y, x + 200, 255 - x, x & y, ~x, x >> 1, weft.where(x > y, x, y)

    def theirs(x, y):
        return x + y, x * y, x - y, x + 200, 255 - x, x & y, ~x, x >> 1, torch.where(x > y, x, y)

    x, y = images(5, 33), images(5, 1)
    assert_compiled(changed, x, y)
    for a, b in zip(changed(x, y), theirs(torch.from_numpy(x.numpy()), torch.from_numpy(y.numpy()))):
        assert np.array_equal(a.numpy(), b.numpy())


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["int8", "int16"])
def test_signed_integers_wrap_around(name):
    numbers = np.random.default_rng(1).integers(-(2**15), 2**15, (2, 7, 19)).astype(name)
    ours, theirs = weft.from_numpy(numbers), torch.from_numpy(numbers)

    def function(x):
        return x[0] * x[1] + 3, -x[0], x[0].abs(), x.amax(2), x.sum(), x[0].clamp(-5, 100), x[0] == x[1], x.float() / 3

    assert_compiled(function, ours)
    for a, b in zip(function(ours)[:-1], function(theirs)[:-1]):
        assert np.array_equal(a.numpy(), b.numpy())


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_divided_and_raised_by_numbers(name):
    numbers = np.random.default_rng(4).integers(-300, 300, (7, 33)).astype(name)
    numbers[0, 0] = np.iinfo(name).min

    def function(torch, x):
        signed = (x // -3, x % -7, x // -1, torch.fmod(x, -5)) if x.dtype.is_signed else ()
        return x // 3, x % 7, torch.fmod(x, 5), x**4, x**7, x**12, *signed

    assert_compiled(lambda x: function(weft, x), weft.from_numpy(numbers))
    for a, b in zip(function(weft, weft.from_numpy(numbers)), function(torch, torch.from_numpy(numbers))):
        assert np.array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("name", ["uint8", "int8", "int16"])
def test_floats_that_do_not_fit_keep_their_lower_bits(name):
    numbers = np.array([0.9, -1.9, 300.7, -70000.0, 2.0**31, 2.0**31 + 256, 2.0**33 + 512, -(2.0**40)], np.float32)
    for x in (numbers, numbers.astype(np.float64) + 1):
        assert_compiled(lambda x: (x.to(getattr(weft, name)),), weft.from_numpy(x))


def test_sound_of_16_bits():
    sound = weft.from_numpy(np.random.default_rng(2).integers(-(2**15), 2**15, 4001).astype(np.int16))
    kernel = weft.randn(1, 1, 9)

    def filtered(sound, kernel):
        x = sound.to(weft.float32) / 32768
        y = F.conv1d(x.reshape(1, 1, -1), kernel, padding=4).flatten()
        return y, (y.clamp(-1, 1) * 32767).to(weft.int16), sound.abs().amax(), sound[1:] - sound[:-1]

    assert_compiled(filtered, sound, kernel)


def test_a_table_of_8_bits_with_scales():
    table = weft.from_numpy(np.random.default_rng(3).integers(-128, 128, (50, 16)).astype(np.int8))
    scales, index = weft.rand(50, 1), weft.tensor([[3, 49, 3], [0, 7, 11]])

    def looked_up(table, scales, index):
        rows = table[index].float() * scales[index]
        return rows, rows.sum(1) @ weft.ones(16, 2), table.t()[3:5].contiguous()

    assert_compiled(looked_up, table, scales, index)


def test_memory_of_narrow_types_is_changed_in_place():
    def run(wrap):
        count, mean = weft.zeros(6, dtype=weft.uint8), weft.zeros(6, dtype=weft.bfloat16)

        def seen(x):
            count.add_((x > 0).to(weft.uint8) * 90)
            mean.mul_(0.9).add_(x.to(weft.bfloat16), alpha=0.1)
            mean[1:3] = x[1:3].to(weft.bfloat16)
            return count + 1, mean * 2

        seen = wrap(seen)
        return [words(y) for k in range(6) for y in (*seen(weft.arange(6) - k * 1.3), count, mean)]

    assert run(lambda f: f) == run(weft.compile)


def test_functions_exported_with_narrow_arguments():
    def total(image, x):
        return (image.float() / 255).sum(1) + x, image + 1

    image, x = images(4, 7), weft.ones(4, dtype=weft.float16)
    native = weft.aot(total, (image, x))
    for ours, eager in zip(native(image, x), total(image, x)):
        assert ours.dtype == eager.array.dtype and ours.tobytes() == eager.array.tobytes()
    with pytest.raises(ValueError, match="NumPy, which calls the function, has no bfloat16"):
        weft.aot(total, (image, x.to(weft.bfloat16)))


def test_header_names_narrow_types(tmp_path):
    image = images(4, 7)
    weft.export(lambda x: x.to(weft.int16) * 300, (image,), tmp_path / "table")
    assert "const uint8_t *x" in (tmp_path / "table.h").read_text()
    assert "int16_t *" in (tmp_path / "table.h").read_text()
    with pytest.raises(ValueError, match="an array of bfloat16 has no type in C"):
        weft.export(lambda x: x.float(), (image.to(weft.bfloat16),), tmp_path / "half")


# --- training ---------------------------------------------------------------------------------------------------------
def model(weft, nn):
    return nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))


def trained(make, wrap):
    """Losses, and bits of parameters and the optimizer's state after some steps; what `explain` says."""
    weft.manual_seed(3)
    step, optimizer = make()
    step, losses = wrap(step), []
    for _ in range(6):
        x, y = weft.randn(16, 12), weft.randint(0, 5, (16,))
        losses.append(step(x, y).item())
    state = [v for values in optimizer.state.values() for v in values.values() if isinstance(v, weft.Tensor)]
    bits = [words(p) for group in optimizer.param_groups for p in group["params"]] + [words(v) for v in state]
    return losses, bits, step.explain() if wrap is weft.compile else ""


def assert_trained_alike(make, is_whole=True):
    eager, compiled = trained(make, lambda f: f), trained(make, weft.compile)
    assert eager[:2] == compiled[:2] and all(np.isfinite(eager[0]))
    assert ("nothing ran outside the programs" in compiled[2]) == is_whole, compiled[2]
    assert "calls are replayed" in compiled[2]


def with_autocast(dtype):
    net = model(weft, nn)
    optimizer = weft.optim.Adam(net.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        with weft.autocast("cpu", dtype=dtype):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, optimizer


@halves
def test_autocast_in_a_compiled_step(dtype):
    assert_trained_alike(lambda: with_autocast(dtype))


def test_bfloat16_with_weights_of_float32():
    def make():
        weights = model(weft, nn)
        net = copy.deepcopy(weights).to(weft.bfloat16)
        optimizer = weft.optim.AdamW(weights.parameters(), lr=0.01)

        def step(x, y):
            with weft.no_grad():
                for low, full in zip(net.parameters(), weights.parameters()):
                    low.copy_(full)
                    low.grad = None
            loss = F.cross_entropy(net(x.to(weft.bfloat16)).float(), y)
            loss.backward()
            for low, full in zip(net.parameters(), weights.parameters()):
                full.grad = low.grad.float()
            optimizer.step()
            return loss

        return step, optimizer

    assert_trained_alike(make)


RULES = [
    (weft.optim.SGD, {"momentum": 0.9}),
    (weft.optim.Adam, {"eps": 1e-4}),
    (weft.optim.AdamW, {"eps": 1e-4, "amsgrad": True}),
    (weft.optim.RMSprop, {"eps": 1e-4}),
    (weft.optim.Adagrad, {"eps": 1e-4}),
]


@halves
@pytest.mark.parametrize(("rule", "options"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_optimizers_of_parameters_of_16_bits(dtype, rule, options):
    def make():
        net = model(weft, nn).to(dtype)
        optimizer = rule(net.parameters(), lr=0.01, **options)
        # A function of its own for each: of equal code that is called a few times each, the later ones run eagerly.
        names = {"F": F, "net": net, "optimizer": optimizer, "dtype": dtype}
        source = (
            f"def step(x, y):  # {rule.__name__} {dtype}\n optimizer.zero_grad()\n"
            " loss = F.cross_entropy(net(x.to(dtype)), y)\n loss.backward()\n optimizer.step()\n return loss"
        )
        exec(compile(source, f"{rule.__name__}_{dtype.name}.py", "exec"), names)
        return names["step"], optimizer

    assert_trained_alike(make)


@pytest.mark.oracle
def test_autocast_trains_as_pytorch_does():
    """To the digits that bfloat16 has."""

    def train(torch, nn):
        net = model(torch, nn)
        with torch.no_grad():
            for k, p in enumerate(net.parameters()):
                p.copy_(torch.tensor(np.random.default_rng(k).normal(0, 0.2, tuple(p.shape)).astype(np.float32)))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    ours, theirs = weft.compile(train(weft, nn)), train(torch, torch.nn)
    numbers = np.random.default_rng(9)
    for _ in range(10):
        x, y = numbers.normal(size=(16, 12)).astype(np.float32), numbers.integers(0, 5, 16)
        loss = ours(weft.tensor(x), weft.tensor(y)).item()
        assert loss == pytest.approx(theirs(torch.tensor(x), torch.tensor(y)).item(), rel=2e-2)


@halves
def test_a_backward_after_the_call(dtype):
    def run(wrap):
        weight = weft.linspace(-1, 1, 12).reshape(3, 4).to(dtype).requires_grad_()

        def scores(x):
            return (x @ weight).softmax(1), weight.exp().sum(0)

        scores, seen = wrap(scores), []
        for k in range(5):
            p, s = scores(weft.ones(2, 3, dtype=dtype) * (k + 1) / 4)
            (p * s).sum().backward()
            seen += [words(p), words(s), words(weight.grad)]
            weight.grad = None
        return seen

    assert run(lambda f: f) == run(weft.compile)


def test_without_native_replay():
    """The same bits where Python compares calls."""
    here = pathlib.Path(__file__)
    names = "test_sound or a_table_of_8_bits or autocast_in_a_compiled or changed_in_place or backward_after"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(here), "-k", names]
    environment = {**os.environ, "WEFT_NATIVE_REPLAY": "0"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=here.parent.parent)
    assert found.returncode == 0, found.stdout[-3000:]


# --- the pass ---------------------------------------------------------------------------------------------------------
def test_what_computes_is_widened_and_what_moves_is_not():
    graph = Graph("narrow")
    x, y, image = graph.input((3, 4), bfloat16), graph.input((4,), float32), graph.input((4,), uint8)
    moved = graph.apply(TABLE["permute"], (x,), {"axes": (1, 0)})
    graph.outputs = [
        graph.apply(TABLE["add"], (x, 0.1), {}),
        graph.apply(TABLE["mul"], (x, 0.1), {}),
        graph.apply(TABLE["add"], (x, y), {}),
        graph.apply(TABLE["mul"], (image, image), {}),
        graph.apply(TABLE["cat"], (moved, moved), {"axis": 0}),
    ]
    wide = widen(graph)[0].verify()
    assert [(v.dtype, v.shape) for v in wide.outputs] == [(v.dtype, v.shape) for v in graph.outputs]
    computed = [v.dtype.name for v in wide.values if v.op.name in ("add", "mul")]
    assert computed == ["float32", "float32", "float32", "int32"]
    assert [v.dtype for v in wide.values if v.op.name in ("permute", "cat")] == [bfloat16, bfloat16]
    # 0.1 is rounded to bfloat16 before it is added, and not before it is multiplied with.
    assert [v.dtype.name for v in wide.values if v.op.name == "cast" and v.operands[0].weak] == ["bfloat16", "float32"]


def test_a_graph_without_narrow_types_is_left_alone():
    graph = Graph("wide")
    x = graph.input((3,), float32)
    graph.outputs = [graph.apply(TABLE["mul"], (x, 2), {})]
    assert widen(graph)[0] is graph
