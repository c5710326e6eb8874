"""Tensors on a GPU, which a driver stands in for whose kernels run on an emulated grid: where they are, how they are
copied, their memory, and what is said where something does not go."""

import copy
import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest
from cuda_stand_in import StandIn, gpu_for_tensors

import weft
from weft import nn
from weft.runtime.code import cuda
from weft.runtime.gpu import memory

CUDA = weft.device("cuda", 0)
NO_GPU = "weft computes on the CPU, got 'cuda"


@pytest.fixture
def gpu(monkeypatch):
    return gpu_for_tensors(monkeypatch)


def normal(*shape, seed=0):
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def same(x, y):
    """Whether a tensor on the GPU has the bits of one on the CPU."""
    return x.device == CUDA and x.dtype is y.dtype and np.array_equal(x.cpu().numpy(), y.numpy(), equal_nan=True)


# --- where there is none ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.to("cuda"),
        lambda x: x.cuda(),
        lambda x: x.to(device=0),
        lambda x: nn.Linear(3, 2).to("cuda"),
        lambda x: nn.Linear(3, 2).cuda(),
        lambda x: weft.zeros(3, device="cuda:0"),
        lambda x: weft.as_tensor(x, device="cuda"),
    ],
)
def test_without_a_driver_it_is_the_error_it_was(ask, monkeypatch):
    monkeypatch.setattr(cuda, "_LIBRARIES", {})
    monkeypatch.setattr(memory, "_drivers", [])
    with pytest.raises(RuntimeError, match=NO_GPU) as error:
        ask(normal(3))
    assert "needs NVIDIA's driver, and there is none for" in str(error.value)
    assert not weft.cuda.is_available() and weft.cuda.device_count() == 0 and weft.cuda.memory_allocated() == 0
    weft.cuda.synchronize()
    with pytest.raises(RuntimeError, match="cuda.current_device: weft computes on the CPU"):
        weft.cuda.current_device()


def test_nothing_of_it_is_imported_before():
    program = """
import sys, weft
x = weft.ones(3, requires_grad=True)
(x * 2).sum().backward()
assert x.device.type == "cpu" and not x.is_cuda and x.to("cpu") is x and x.cpu() is x
print([name for name in sys.modules if "gpu" in name or name.endswith("cuda")])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# --- places -----------------------------------------------------------------------------------------------------------
def test_a_tensor_goes_to_the_gpu_and_back(gpu):
    x = normal(3, 4)
    y = x.to("cuda")
    assert (y.device, y.is_cuda, y.is_cpu, y.get_device()) == (CUDA, True, False, 0)
    assert (y.shape, y.dtype, y.ndim, y.stride(), y.is_contiguous()) == (x.shape, x.dtype, 2, (4, 1), True)
    assert y.to("cuda") is y is y.cuda() and y.to(y) is y and y.to(x.device).device == x.device
    assert same(y, x) and same(y.t(), x.t()) and same(x.to("cuda", weft.float64), x.double())
    assert x.device.type == "cpu" and not x.is_cuda and x.is_cpu and x.get_device() == -1


@pytest.mark.parametrize("kind", ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)], ids=str)
def test_every_type_and_shape_comes_back(kind, shape, gpu):
    x = (normal(*shape) * 3).to(getattr(weft, kind))
    assert x.cuda().cpu().tolist() == x.tolist() and x.cuda().dtype is x.dtype and x.cuda().shape == x.shape


def test_values_are_read_as_of_other_tensors(gpu):
    x = weft.tensor([[1.5, -2.0]]).cuda()
    assert x.tolist() == [[1.5, -2.0]] and x[0, 1].item() == -2.0 == float(x[0, 1]) and int(x[0, 0]) == 1
    assert bool(x[0, 0]) and f"{x[0, 0]:.2f}" == "1.50" and [row.tolist() for row in x] == [[1.5, -2.0]]
    assert -2.0 in x and 3.0 not in x and weft.equal(x, x) and weft.allclose(x, x + 1e-9)
    assert repr(x) == "tensor([[ 1.5000, -2.0000]], device='cuda:0')"
    assert repr(x.double().requires_grad_()) == (
        "tensor([[ 1.5000, -2.0000]], device='cuda:0', dtype=weft.float64,\n       requires_grad=True)"
    )
    assert repr(nn.Parameter(x)).startswith("Parameter containing:\ntensor([[ 1.5000, -2.0000]], device='cuda:0'")


def test_numpy_says_what_to_do(gpu):
    x = normal(3).cuda()
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu.. to copy"):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        np.asarray(x)
    assert np.array_equal(x.numpy(force=True), x.cpu().numpy())


def test_what_is_computed_on_the_cpu_says_so(gpu):
    x = normal(6).cuda()
    with pytest.raises(NotImplementedError, match=r"nonzero: it is computed on the CPU.*on cuda:0.*x\.cpu\(\)"):
        weft.nonzero(x)
    with pytest.raises(NotImplementedError, match=r"sort_rows: there is no kernel for a GPU yet .*x\.cpu\(\)"):
        x.sort()
    with pytest.raises(NotImplementedError, match="there is no kernel for a GPU yet"):
        weft.linalg.inv(weft.eye(3, device="cuda"))


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, y: x + y,
        lambda x, y: y + x,
        lambda x, y: y.add(x),
        lambda x, y: x.add_(y),
        lambda x, y: y.add_(x),
        lambda x, y: weft.cat([x, y]),
        lambda x, y: weft.where(x > 0, x, y),
        lambda x, y: nn.Linear(4, 2)(x),
    ],
)
def test_tensors_on_two_devices_are_an_error(mix, gpu):
    x, y = normal(3, 4).cuda(), normal(3, 4, seed=1)
    before = y.clone()
    with pytest.raises(
        RuntimeError, match="Expected all tensors to be on the same device.*two devices, cuda:0 and cpu!"
    ):
        mix(x, y)
    assert weft.equal(y, before)


def test_a_number_and_a_place_may_be_on_the_cpu(gpu):
    x, c, k = normal(3, 4), weft.tensor(2.5, requires_grad=True), weft.tensor([2, 0])
    y = x.cuda()
    assert same((y * c).detach(), x * c.detach()) and same((c * y).detach(), c.detach() * x)
    assert same(y[k], x[k]) and same(y[[1, 0]], x[[1, 0]])
    (y * c).sum().backward()
    assert c.grad.device.type == "cpu" and c.grad.item() == x.sum().item()
    y[k] = 0.0
    x[k] = 0.0
    assert same(y, x)


def test_creators_make_tensors_there(gpu):
    o = {"device": "cuda"}
    x = normal(2, 3).cuda()
    made = [
        weft.zeros(2, **o), weft.ones((2, 3), **o), weft.empty(2, **o), weft.full((2,), 1.0, **o), weft.eye(2, **o),
        weft.tensor([1.0], **o), weft.arange(3, **o), weft.arange(1, 7, 2, **o), weft.linspace(0, 1, 3, **o),
        weft.rand(2, **o), weft.randn(2, 3, **o), weft.randint(5, (2,), **o), weft.randperm(4, **o),
        weft.zeros_like(x), weft.ones_like(x), weft.empty_like(x), weft.full_like(x, 2.0), weft.rand_like(x),
        weft.randn_like(x), weft.randint_like(x, 5), x.new_zeros(3), x.new_ones(2, 2), x.new_full((2,), 3.0),
        x.new_tensor([1.0]), weft.as_tensor([1.0], **o), weft.asarray([1.0], **o),
    ]  # fmt: skip
    assert {t.device for t in made} == {CUDA} and all(t.is_leaf for t in made)
    assert made[7].tolist() == [1, 3, 5] and weft.zeros_like(x, device="cpu").device.type == "cpu"
    weft.manual_seed(3)
    drawn = weft.randn(4, device="cuda")
    weft.manual_seed(3)
    assert drawn.tolist() == weft.randn(4).tolist()
    leaf = weft.ones(2, device="cuda", requires_grad=True)
    assert leaf.requires_grad and leaf.is_leaf


def test_a_gpu_that_is_not_there(gpu):
    with pytest.raises(RuntimeError, match="GPU 3 was asked for, and NVIDIA's driver knows 1"):
        weft.zeros(2, device="cuda:3")
    with pytest.raises(RuntimeError, match="to: weft computes on the CPU, got 'mps'"):
        weft.zeros(2).to("mps")


# --- copies -----------------------------------------------------------------------------------------------------------
def test_copies_stay_on_the_gpu_and_files_have_what_is_in_it(gpu, tmp_path):
    x = normal(3, 4).cuda().requires_grad_()
    x.grad = x.detach() * 2
    other = copy.deepcopy(x)
    assert other.device == other.grad.device == CUDA and other.requires_grad and other is not x
    with weft.no_grad():
        other.zero_()
    assert x.sum().item() != 0 and same(other.grad, x.grad.cpu())
    assert copy.copy(x).data_ptr() == x.data_ptr() != other.data_ptr()
    # What is pickled or saved is loaded on the CPU.
    for loaded in (pickle.loads(pickle.dumps(x)), _saved(x, tmp_path / "x.pt")):
        assert loaded.device.type == "cpu" and loaded.requires_grad and weft.equal(loaded.detach(), x.detach().cpu())


def _saved(x, path):
    weft.save({"x": x}, path)
    return weft.load(path)["x"]


def test_a_module_comes_back_while_a_compiled_call_may_be_differentiated(gpu):
    """Whose node is told of memory that changes behind its back."""
    weights = weft.randn(3, requires_grad=True)
    compiled = weft.compile(lambda x: (x * weights).sum())
    losses = [compiled(weft.randn(3)) for _ in range(5)]
    net = nn.Linear(4, 3).to("cuda")
    assert net.cpu().weight.device.type == "cpu"
    losses[-1].backward()
    assert weights.grad is not None


def test_a_module_goes_there_as_the_same_parameters(gpu):
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    before, values = list(net.parameters()), {k: v.clone() for k, v in net.state_dict().items()}
    before[0].grad = weft.ones(3, 4)
    assert net.to("cuda") is net and all(p is q for p, q in zip(net.parameters(), before))
    assert {p.device for p in (*net.parameters(), *net.buffers())} == {CUDA} == {before[0].grad.device}
    assert all(type(p) is nn.Parameter and p.is_leaf and p.requires_grad for p in before)
    other = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    other.load_state_dict(net.state_dict())
    assert all(weft.equal(other.state_dict()[k], v) and v.device.type == "cpu" for k, v in values.items())
    copied = copy.deepcopy(net)
    assert {p.device for p in copied.parameters()} == {CUDA} and copied[0].weight is not net[0].weight
    assert {p.device.type for p in net.cpu().parameters()} == {"cpu"} and weft.equal(net[0].weight, values["0.weight"])
    assert {p.device for p in nn.Linear(2, 2).cuda().half().parameters()} == {CUDA}


# --- memory -----------------------------------------------------------------------------------------------------------
def test_memory_is_counted_and_used_again(gpu):
    weft.cuda.synchronize()
    before, taken = weft.cuda.memory_allocated(), len(gpu.sizes)
    x = weft.zeros(1000, device="cuda")
    assert weft.cuda.memory_allocated() == before + 4096
    address = x.data_ptr()
    del x
    assert weft.cuda.memory_allocated() == before
    y = weft.zeros(900, device="cuda")
    assert y.data_ptr() == address and len(gpu.sizes) == taken + 1
    assert weft.cuda.max_memory_allocated() == before + 4096 <= weft.cuda.memory_reserved()
    del y
    weft.cuda.empty_cache()
    assert weft.cuda.memory_reserved() == before
    assert weft.cuda.get_device_name() == "Stand-in" and weft.cuda.get_device_capability() == (9, 0)
    assert weft.cuda.current_device() == 0 and weft.cuda.is_initialized()


def test_where_memory_is_short_what_is_kept_is_given_back(gpu):
    x = weft.zeros(1000, device="cuda")
    del x
    asked, given = [], memory.gpu_of(0).device.allocate

    def allocate(size):
        asked.append(size)
        if len(asked) == 1 or size > 1 << 20:
            raise cuda.DriverError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
        return given(size)

    memory.gpu_of(0).device.allocate = allocate
    weft.zeros(2000, device="cuda")
    assert len(asked) == 2 and weft.cuda.memory_reserved() == 8192
    with pytest.raises(weft.OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate 4194304 bytes on Stand-in"):
        weft.zeros(1 << 20, device="cuda")
    del memory.gpu_of(0).device.allocate


def test_all_is_freed_once(monkeypatch):
    with monkeypatch.context() as block:
        library = gpu_for_tensors(block)
        x = normal(30, 40).cuda().requires_grad_()
        (x * 2).sum().backward()
        assert library.held() > 3
        del x
    gc.collect()
    assert library.held() == 0 and library.freed_twice == [] and library.depth == 0


def test_nobody_waits_until_a_value_is_read(gpu):
    x = normal(20, 30).cuda()
    gpu.calls.clear()
    y = (x * 2 + 1).sum(0)
    z = y.exp() @ weft.ones_like(y)
    names = {name for name, *_ in gpu.calls}
    assert "cuLaunchKernel" in names
    gpu.calls.clear()
    y + 1
    assert "cuStreamSynchronize" not in {name for name, *_ in gpu.calls}
    z.item()
    assert "cuStreamSynchronize" in {name for name, *_ in gpu.calls}


def test_a_fork_is_told(gpu, monkeypatch):
    x = normal(3).cuda()
    monkeypatch.setattr(memory.os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
        x + 1


def test_an_old_gpu_is_refused(monkeypatch):
    library = gpu_for_tensors(monkeypatch)
    library.capability = (7, 5)
    x = weft.ones(3).cuda()
    with pytest.raises(RuntimeError, match="Stand-in has compute capability 7.5, and weft's kernels need sm_80"):
        x + 1


def test_the_stand_in_knows_what_is_taken():
    library = StandIn({})
    assert library.emulating and library.held() == 0
