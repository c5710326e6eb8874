"""`export_ptx` writes kernels and how they are launched; the driver is stood in for by one that records its calls."""

import ctypes
import gc
import json
import re

import numpy as np
import pytest
from cuda_stand_in import StandIn
from gpu_parts import assembled, ptxas

import weft
from weft import nn, optim
from weft.nn import functional as F
from weft.runtime.code import cuda, jit
from weft.runtime.programs import on_gpu


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention_weights(scores, bias):
    """Row chains with a gradient: softmax, gelu, layer norm, a loss."""
    return (F.layer_norm(F.gelu(F.softmax(scores * 0.5 + bias, dim=1)), (scores.shape[1],)) * scores).sum()


def loaded(files, stand_in):
    """What load_ptx gives, on a driver that is not there."""
    description = json.loads(files.description.read_text())
    content = dict(np.load(files.arrays)) if files.arrays else {}
    device = cuda.Device(cuda.Driver(stand_in), 0)
    return on_gpu.loaded(device, files.ptx.read_text(), description, content)


@pytest.fixture
def on_this_machine(monkeypatch):
    """What load_ptx gives of a function, on a stand-in that runs the kernels: on_this_machine(path, f, examples)."""
    texts = []

    def recording_ptx(text, architecture, ptx=jit.ptx):
        texts.append(text)
        return ptx(text, architecture)

    def run(path, function, examples, **options):
        monkeypatch.setattr(jit, "ptx", recording_ptx)
        files = weft.export_ptx(function, examples, path, **options)
        return loaded(files, StandIn(texts[-1]))

    return run


# --- what is written --------------------------------------------------------------------------------------------------
def test_files_say_what_is_launched_on_what(tmp_path):
    files = weft.export_ptx(attention_weights, (normal(8, 300), normal(300)), str(tmp_path / "chain"), gradients=True)
    text, description = files.ptx.read_text(), json.loads(files.description.read_text())
    assert files.arrays is None and not list(tmp_path.glob("*.npz"))
    assert ".target sm_80" in text and description["architecture"] == "sm_80"
    assert [f["name"] for f in description["functions"]] == ["chain", "chain_value_and_grad"]
    kernels = re.findall(r"\.visible \.entry (\w+)\(", text)
    launched = [launch["kernel"] for f in description["functions"] for launch in f["launches"]]
    assert set(launched) == set(kernels)
    for launch in description["functions"][0]["launches"]:
        assert launch["threads"] == 128 and launch["blocks"] >= 1
        entry = text[text.index(f".entry {launch['kernel']}(") :]
        assert entry[: entry.index(")")].count(".param") == len(launch["operands"])


@pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed: it is in the package nvidia-cuda-nvcc-cu12")
def test_the_assembler_takes_what_is_written(tmp_path):
    files = weft.export_ptx(
        attention_weights, (normal(64, 1000), normal(1000)), tmp_path / "chain", gradients=True, architecture="sm_90"
    )
    found = assembled(files.ptx.read_text(), "sm_90", tmp_path)
    assert found and all(registers <= 128 and spilled <= 32 for registers, spilled in found.values())


# --- refusals ---------------------------------------------------------------------------------------------------------
def largest(x):
    y = weft.exp(x)
    return y.sort(0)[0].sum()


@pytest.mark.parametrize(
    "function, words",
    [
        (largest, r"sort_rows is computed by a routine.* \[.*test_export_ptx.py:\d+\]$"),
        (lambda x: x.cumsum(1), r"cumsum_rows is computed by a routine.* \[.*:\d+\]$"),
        (lambda x: weft.linalg.cholesky(x).sum(), r"cholesky_rows is computed by a routine.* \[.*:\d+\]$"),
        (lambda x: x % 2.0, r"remainder.*the exact remainder of floats.* \[.*:\d+\]$"),
    ],
)
def test_what_has_no_kernel_is_named_with_its_line_and_nothing_is_written(function, words, tmp_path):
    with pytest.raises(NotImplementedError, match=words):
        weft.export_ptx(function, (np.eye(4, dtype=np.float32),), tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_the_line_is_the_op_itself(tmp_path):
    with pytest.raises(NotImplementedError, match=f":{largest.__code__.co_firstlineno + 2}]$"):
        weft.export_ptx(largest, (np.eye(4, dtype=np.float32),), tmp_path / "f")


def test_names_and_architectures_are_checked(tmp_path):
    with pytest.raises(ValueError, match="architecture='sm_12': must be one of sm_80, sm_90"):
        weft.export_ptx(weft.exp, (np.ones(3),), tmp_path / "f", architecture="sm_12")
    with pytest.raises(ValueError, match="begins names of kernels, and 'a-b' cannot"):
        weft.export_ptx(weft.exp, (np.ones(3),), tmp_path / "a-b")


def test_without_a_driver_an_error_says_so(tmp_path, monkeypatch):
    weft.export_ptx(weft.exp, (np.ones(3),), tmp_path / "f")
    monkeypatch.setattr(cuda, "_LIBRARIES", {})
    with pytest.raises(RuntimeError, match="running on a GPU needs NVIDIA's driver"):
        weft.load_ptx(tmp_path / "f")


def test_a_device_that_runs_no_ptx(tmp_path):
    weft.export_ptx(weft.exp, (np.ones(3),), tmp_path / "f")
    with pytest.raises(ValueError, match="load_ptx: device must be a number or 'cuda', got 'cpu'"):
        weft.load_ptx(tmp_path / "f", device="cpu")


@pytest.mark.parametrize("device", [1, "cuda:1", weft.device("cuda", 1)], ids=str)
def test_the_gpu_is_told_as_a_number_or_a_device(device, tmp_path, monkeypatch, stand_in):
    weft.export_ptx(weft.exp, (np.ones(3),), tmp_path / "f")
    monkeypatch.setattr(cuda, "driver", lambda: cuda.Driver(stand_in))
    with pytest.raises(RuntimeError, match="GPU 1 was asked for, and NVIDIA's driver knows 1"):
        weft.load_ptx(tmp_path / "f", device=device)
    assert weft.load_ptx(tmp_path / "f", device=0).device.name == "Stand-in"


def test_a_library_that_is_not_there(monkeypatch):
    names = dict.fromkeys(["linux", "win32", "darwin"], ("libcuda_that_is_nowhere.so.1",))
    monkeypatch.setattr(cuda, "_LIBRARIES", names)
    with pytest.raises(cuda.NoDriver, match="no library libcuda_that_is_nowhere.so.1 was found"):
        cuda.driver()


# --- a recording driver -----------------------------------------------------------------------------------------------
@pytest.fixture
def stand_in():
    return StandIn()


def test_a_call_copies_launches_and_copies_back_in_one_stream(tmp_path, stand_in):
    files = weft.export_ptx(attention_weights, (normal(8, 300), normal(300)), tmp_path / "chain")
    launches = json.loads(files.description.read_text())["functions"][0]["launches"]
    functions = loaded(files, stand_in)
    stand_in.calls.clear()
    functions(normal(8, 300, seed=1), normal(300, seed=2))
    names = [name for name, *_ in stand_in.calls]
    assert names == [
        "cuCtxPushCurrent_v2",
        *["cuMemcpyHtoDAsync_v2"] * 2,
        *["cuLaunchKernel"] * len(launches),
        "cuMemcpyDtoHAsync_v2",
        "cuStreamSynchronize",
        "cuCtxPopCurrent_v2",
    ]
    assert stand_in.launched == [(launch["kernel"], launch["blocks"], launch["threads"]) for launch in launches]
    assert stand_in.depth == 0


def test_kernels_run_by_the_stand_in_give_the_numbers_of_weft(tmp_path, on_this_machine):
    """All but the GPU itself: files, memory, addresses, launches, results."""
    examples = normal(40, 300), normal(300)
    functions = on_this_machine(tmp_path / "chain", attention_weights, examples, gradients=True)
    scores, bias = normal(40, 300, seed=1), normal(300, seed=2)
    expected = attention_weights(weft.tensor(scores), weft.tensor(bias)).item()
    assert functions(scores, bias) == functions.value(scores, bias) == expected
    value, *gradients = functions.value_and_grad(scores, bias)
    wanted, wanted_gradients = weft.value_and_grad(attention_weights, argnums=(0, 1))(scores, bias)
    assert value == wanted and all(np.array_equal(x, y) for x, y in zip(gradients, wanted_gradients, strict=True))


def test_state_stays_on_the_gpu_and_is_read_when_it_is_asked_for(tmp_path, on_this_machine):
    weights = weft.tensor(normal(1000))
    table = weft.tensor(normal(3, 1000, seed=5))[1:, ::2]

    def step(gradient, rate):
        weights.sub_(gradient * rate)
        return (weights * weights).sum() + table.sum()

    gradient, rate = normal(1000, seed=1), np.float32(0.25)
    functions = on_this_machine(tmp_path / "step", step, (gradient, np.array(rate)))
    for k in range(3):
        expected = step(weft.tensor(gradient + k), weft.tensor(rate))
        assert functions(gradient + k, rate) == expected.item()
    ((name, now),) = functions.state.items()
    assert name == "weights" and np.array_equal(now, weights.numpy())


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW, optim.NAdam, optim.RAdam, optim.ASGD])
def test_a_network_is_trained(kind, tmp_path, on_this_machine):
    """The digits' step: layers, their loss with its classes, the backward pass, an update, which may count."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10))
    optimizer = kind(model.parameters(), lr=0.1, **({"momentum": 0.9} if kind is optim.SGD else {}))

    def step(images, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    images, labels = normal(20, 64), np.arange(20) % 10
    functions = on_this_machine(tmp_path / "step", step, (images, labels))
    with pytest.raises(IndexError, match="out of range"):
        functions(images, labels + 1)
    for k in range(5):
        assert functions(images + k, labels) == step(weft.tensor(images + k), weft.tensor(labels)).item()
    state = functions.state
    for name, param in model.named_parameters():
        assert np.array_equal(state["model_" + name.replace(".", "_")], param.detach().numpy())
    if kind is not optim.SGD:
        assert state["optimizer_step"] == optimizer.state[model[0].weight]["step"] == 8
    if ptxas():
        assembled((tmp_path / "step.ptx").read_text(), "sm_80", tmp_path)


def test_arguments_that_are_changed_come_back(tmp_path, on_this_machine):
    def double(x):
        x.mul_(2.0)
        return x.sum()

    functions = on_this_machine(tmp_path / "doubled", double, (normal(5, 3),))
    x = normal(5, 3, seed=3)
    before = x.copy()
    assert functions(x) == weft.tensor(2 * before).sum().item() and np.array_equal(x, 2 * before)


def test_a_position_out_of_range_is_an_error_and_nothing_is_changed(tmp_path, on_this_machine):
    def loss(x, classes):
        x.mul_(2.0)
        return F.cross_entropy(x, classes)

    functions = on_this_machine(tmp_path / "loss", loss, (normal(6, 4), np.arange(6) % 4))
    x, classes = normal(6, 4, seed=1), np.array([3, 0, 1, 2, 4, 0])
    before = x.copy()
    with pytest.raises(IndexError, match="loss: an index is out of range; nothing was changed"):
        functions(x, classes)
    assert np.array_equal(x, before)
    classes[4] = 3
    assert functions(x, classes) == loss(weft.tensor(before), weft.tensor(classes)).item()
    assert np.array_equal(x, 2 * before)


def test_arguments_are_checked(tmp_path, stand_in):
    functions = loaded(weft.export_ptx(weft.exp, (normal(5),), tmp_path / "f"), stand_in)
    with pytest.raises(TypeError, match=r"takes \(.*float32\[5\]\), but 2 arguments were given"):
        functions(normal(5), normal(5))
    with pytest.raises(ValueError, match=r"float32\[5\] was expected, got an array of shape \(6,\)"):
        functions(normal(6))


def test_everything_is_freed_once(tmp_path, stand_in):
    functions = loaded(
        weft.export_ptx(attention_weights, (normal(8, 300), normal(300)), tmp_path / "f", gradients=True), stand_in
    )
    functions.value_and_grad(normal(8, 300), normal(300))
    assert stand_in.held() > 5
    del functions
    gc.collect()
    assert stand_in.held() == 0 and stand_in.freed_twice == [] and stand_in.depth == 0
    # The context last: what is freed lies in it.
    assert stand_in.calls[-1][0] == "cuDevicePrimaryCtxRelease_v2"


def test_errors_have_the_names_of_the_driver(stand_in):
    device = cuda.Device(cuda.Driver(stand_in), 0)
    stand_in.fail["cuMemAlloc_v2"] = 2
    with (
        pytest.raises(cuda.DriverError, match=r"cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY \(2\): out of memory") as error,
        device,
    ):
        device.allocate(10)
    assert error.value.code == 2 and stand_in.depth == 0
    stand_in.fail["cuMemAlloc_v2"] = 12345
    with pytest.raises(cuda.DriverError, match=r"unknown error \(12345\)"):
        device.allocate(10)


def test_what_the_drivers_compiler_says_is_shown(stand_in):
    device = cuda.Device(cuda.Driver(stand_in), 0)
    stand_in.fail["cuModuleLoadDataEx"] = 218
    with pytest.raises(cuda.DriverError, match="CUDA_ERROR_INVALID_PTX.*: ptxas application ptx input, line 7; fatal"):
        device.load("nonsense")


def test_a_gpu_that_is_not_there_or_too_old(tmp_path, stand_in):
    with pytest.raises(cuda.NoDriver, match="GPU 1 was asked for, and NVIDIA's driver knows 1"):
        cuda.Device(cuda.Driver(stand_in), 1)
    stand_in.capability = (7, 5)
    with pytest.raises(RuntimeError, match="f was written for sm_80, and Stand-in has compute capability 7.5"):
        loaded(weft.export_ptx(weft.exp, (normal(5),), tmp_path / "f"), stand_in)


def test_a_driver_that_has_ended_before_is_no_error(stand_in):
    device = cuda.Device(cuda.Driver(stand_in), 0)
    memory = device.allocate(8)
    stand_in.fail["cuCtxPushCurrent_v2"] = 4
    memory.close()
    assert ("cuMemFree_v2",) not in [call[:1] for call in stand_in.calls]


# --- where a GPU is ---------------------------------------------------------------------------------------------------
def has_gpu():
    try:
        cuda.Device(cuda.driver(), 0)
    except (cuda.NoDriver, cuda.DriverError):
        return False
    return True


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(8, 300), (1000, 64), (64, 5000)], ids=str)
def test_a_gpu_gives_the_bits_of_weft(shape, tmp_path):
    files = weft.export_ptx(attention_weights, (normal(*shape), normal(shape[1])), tmp_path / "chain", gradients=True)
    assert files.ptx.exists()
    if not has_gpu():
        with pytest.raises(RuntimeError, match="NVIDIA's driver|CUDA"):
            weft.load_ptx(tmp_path / "chain")
        return
    functions = weft.load_ptx(tmp_path / "chain")
    scores, bias = normal(*shape, seed=1), normal(shape[1], seed=2)
    value, *gradients = functions.value_and_grad(scores, bias)
    wanted, wanted_gradients = weft.value_and_grad(attention_weights, argnums=(0, 1))(scores, bias)
    assert value == wanted and all(np.array_equal(x, y) for x, y in zip(gradients, wanted_gradients, strict=True))


def test_a_pointer_has_eight_bytes_here():
    assert ctypes.sizeof(ctypes.c_void_p) == 8
