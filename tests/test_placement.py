"""Devices, layouts and the other keywords that compute nothing: accepted where PyTorch takes them, or said why not."""

import copy
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import nn


# --- devices ----------------------------------------------------------------------------------------------------------
def test_a_device_is_compared_printed_and_kept():
    cpu = weft.device("cpu")
    assert (cpu.type, cpu.index, str(cpu), repr(cpu)) == ("cpu", None, "cpu", "device(type='cpu')")
    second = weft.device("cuda:1")
    assert second == weft.device("cuda", 1) != weft.device("cuda") and second == weft.device(1)
    assert repr(second) == "device(type='cuda', index=1)" and str(second) == "cuda:1"
    assert {cpu: 1}[weft.device(type="cpu")] == 1 and weft.device(cpu) is cpu
    assert pickle.loads(pickle.dumps(second)) == second == copy.deepcopy(second)
    assert weft.ones(1).device == cpu and isinstance(weft.ones(1).device, weft.device)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: weft.device("gpu"), "Expected one of cpu, cuda"),
        (lambda: weft.device("cuda:x"), "Invalid device string: 'cuda:x'"),
        (lambda: weft.device("cuda:0", 1), "must not include an index"),
        (lambda: weft.device(None), "must be str, int or device, not NoneType"),
    ],
)
def test_what_is_no_device(make, message):
    with pytest.raises((RuntimeError, TypeError), match=message):
        make()


CREATORS = """
zeros(2, **o) ; ones((2, 3), **o) ; empty(2, **o) ; full((2,), 1.0, **o) ; tensor([1.0], **o) ; arange(3, **o)
arange(0, 3, 1, **o) ; linspace(0, 1, 3, **o) ; eye(2, **o) ; rand(2, **o) ; randn(2, 3, **o) ; randint(0, 9, (2,), **o)
randint(5, (2,), **o) ; randperm(4, **o) ; zeros_like(x, **o) ; ones_like(x, **o) ; empty_like(x, **o)
full_like(x, 2.0, **o) ; rand_like(x, **o) ; randn_like(x, **o) ; randint_like(x, 5, **o) ; normal(0.0, 1.0, (2,), **o)
"""


def each(text):
    return [call.strip() for call in text.replace("\n", ";").split(";") if call.strip()]


@pytest.mark.parametrize("call", each(CREATORS))
def test_creators_take_places(call):
    names = {"x": weft.ones(2, 3)}
    for options in ({"device": "cpu"}, {"device": weft.device("cpu"), "layout": weft.strided, "pin_memory": False}):
        assert eval(f"weft.{call}", {"weft": weft, "o": options, **names}).device == weft.device("cpu")
    assert not eval(f"weft.{call}", {"weft": weft, "o": {"requires_grad": False}, **names}).requires_grad
    function = call.partition("(")[0]
    with pytest.raises(RuntimeError, match="weft computes on the CPU, got 'cuda'"):
        eval(f"weft.{call}", {"weft": weft, "o": {"device": "cuda"}, **names})
    with pytest.raises(RuntimeError, match="tensors are dense, got layout=weft.sparse_coo"):
        eval(f"weft.{call}", {"weft": weft, "o": {"layout": weft.sparse_coo}, **names})
    with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'sparse'") as error:
        eval(f"weft.{call}", {"weft": weft, "o": {"sparse": True}, **names})
    assert function in str(error.value) or function.endswith("_like")


LAYERS = """
Linear(2, 3, **o) ; Linear(2, 3, False, **o) ; Embedding(4, 2, **o) ; LayerNorm(3, **o) ; RMSNorm(3, **o)
BatchNorm1d(3, **o) ; BatchNorm2d(3, affine=False, **o) ; PReLU(2, **o)
"""


@pytest.mark.parametrize("call", each(LAYERS))
def test_layers_take_places(call):
    layer = eval(f"nn.{call}", {"nn": nn, "o": {"device": weft.device("cpu"), "dtype": weft.float64}})
    assert all(p.dtype is weft.float64 for p in layer.parameters())
    with pytest.raises(RuntimeError, match="weft computes on the CPU, got 'mps'"):
        eval(f"nn.{call}", {"nn": nn, "o": {"device": "mps"}})


def test_every_spelling_of_to():
    x = weft.ones(2, 3)
    cpu = weft.device("cpu")
    same = [x.to("cpu"), x.to(cpu), x.to(device=cpu), x.to(cpu, weft.float32), x.to(weft.zeros(1)), x.to(cpu, None)]
    same += [x.to(cpu, non_blocking=True), x.to(cpu, weft.float32, True), x.to(memory_format=weft.channels_last)]
    same += [x.to(other=weft.zeros(1)), x.to(dtype=weft.float32, device="cpu:0"), x.cpu(), x.to(None)]
    same += [x.contiguous(memory_format=weft.contiguous_format), x.float(memory_format=weft.preserve_format)]
    assert all(y is x for y in same)
    assert x.to(cpu, weft.float64, copy=True).dtype is weft.float64 and x.to(cpu, copy=True) is not x
    assert x.clone(memory_format=weft.channels_last).is_contiguous(memory_format=weft.contiguous_format)
    for move in (
        lambda: x.to("cuda"),
        lambda: x.to(weft.device("cuda", 0)),
        lambda: x.to(0),
        x.cuda,
        lambda: x.cuda(1),
    ):
        with pytest.raises(RuntimeError, match="weft computes on the CPU, got 'cuda"):
            move()


def test_modules_move_to_where_they_are():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    cpu = weft.device("cpu")
    for moved in (net.to(cpu), net.to("cpu"), net.to(device=cpu, non_blocking=True), net.cpu(), net.to(cpu, None)):
        assert moved is net
    assert net.to(cpu, weft.float64)[0].weight.dtype is weft.float64
    assert net.to(weft.zeros(1))[0].weight.dtype is weft.float32
    assert net.type(weft.float64)[1].running_mean.dtype is weft.float64
    for move in (net.cuda, lambda: net.to("cuda"), lambda: net.cuda(1), lambda: net.to(weft.device("mps"))):
        with pytest.raises(RuntimeError, match="Module.to: weft computes on the CPU"):
            move()


def test_a_device_as_a_context():
    with weft.device("cpu"):
        assert weft.ones(1).device.type == "cpu"
    with pytest.raises(RuntimeError, match="weft computes on the CPU"), weft.device("cuda"):
        pass
    weft.set_default_device("cpu")
    assert weft.get_default_device() == weft.device("cpu")
    with pytest.raises(RuntimeError, match="set_default_device: weft computes on the CPU"):
        weft.set_default_device("cuda")


def test_questions_about_other_devices():
    assert not (weft.cuda.is_available() or weft.backends.mps.is_available() or weft.xpu.is_available())
    assert not weft.accelerator.is_available() and weft.accelerator.current_accelerator() is None
    assert weft.cuda.device_count() == 0 and weft.cuda.memory_allocated() == weft.cuda.max_memory_allocated() == 0
    weft.cuda.manual_seed(1), weft.cuda.manual_seed_all(1), weft.cuda.empty_cache(), weft.mps.manual_seed(3)
    assert weft.version.cuda is None and weft.cpu.is_available()
    weft.backends.cudnn.benchmark = weft.backends.cudnn.deterministic = True
    assert weft.backends.cudnn.benchmark
    weft.backends.cuda.matmul.allow_tf32 = True
    with weft.backends.cudnn.flags(enabled=False), weft.cuda.device(0):
        pass
    for call in (weft.cuda.get_device_name, weft.cuda.current_device, weft.cuda.Stream, weft.cuda.Event):
        with pytest.raises(RuntimeError, match="weft computes on the CPU, there is no cuda device"):
            call()


def test_what_tensors_say_of_themselves():
    x = weft.arange(6, dtype=weft.float64).reshape(2, 3)
    assert not (x.is_cuda or x.is_sparse or x.is_xpu or x.is_mps or x.is_quantized or x.is_meta or x.is_complex())
    assert x.is_cpu and x.layout is weft.strided and x.get_device() == -1 and not x.is_pinned()
    assert (x.element_size(), x.nbytes, x.itemsize, x.storage_offset()) == (8, 48, 8, 0)
    assert (x[1].storage_offset(), x[1:, 2].storage_offset(), x.t()[1].storage_offset()) == (3, 5, 1)
    assert x[1].data_ptr() == x.data_ptr() + 24 and x.pin_memory() is x and x.share_memory_() is x
    assert x.is_signed() and not weft.ones(1).bool().is_signed() and weft.is_floating_point(x)
    assert weft.typename(x) == "weft.DoubleTensor" and weft.typename([]) == "list"
    assert weft.is_nonzero(x[0, 1]) and not weft.is_nonzero(x[0, 0]) and weft.is_same_size(x, x + 1)
    assert weft.is_tensor(x) and not weft.is_storage(x) and weft.numel(x) == 6


# --- new tensors ------------------------------------------------------------------------------------------------------
def test_new_tensors_like_one():
    x = weft.ones(2, dtype=weft.float64)
    made = [x.new_zeros(3), x.new_ones((3,)), x.new_empty(3), x.new_full((3,), 2), x.new_tensor([1, 2, 3])]
    made += [x.new(3), x.new([1, 2, 3]), x.new(weft.ones(3).size()), x.new_zeros(size=(3,), device="cpu")]
    assert all(y.shape == (3,) and y.dtype is weft.float64 for y in made)
    assert weft.tensor([1]).new([2**60 + 1]).item() == 2**60 + 1
    assert x.new_ones(2, dtype=weft.int64).dtype is weft.int64 and x.new_zeros(2, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="weft computes on the CPU"):
        x.new_zeros(2, device="cuda")


def test_asarray():
    array = np.arange(3.0)
    assert np.shares_memory(weft.asarray(array).numpy(), array)
    assert not np.shares_memory(weft.asarray(array, copy=True).numpy(), array)
    assert weft.asarray([1, 2]).dtype is weft.int64 and weft.asarray(weft.ones(2)).tolist() == [1, 1]
    with pytest.raises(ValueError, match="without a copy"):
        weft.asarray(array, dtype=weft.float32, copy=False)
    assert weft.as_tensor(array, weft.float32, "cpu").dtype is weft.float32


# --- tensor types -----------------------------------------------------------------------------------------------------
def test_older_tensor_types():
    assert weft.FloatTensor(2, 3).shape == (2, 3) and weft.FloatTensor([1, 2]).dtype is weft.float32
    assert weft.LongTensor([1.7]).tolist() == [1] and weft.DoubleTensor(np.ones(2)).dtype is weft.float64
    assert weft.FloatTensor().shape == (0,) and weft.FloatTensor(weft.ones(4).size()).shape == (4,)
    x = weft.ones(2)
    assert (
        isinstance(x, weft.FloatTensor) and not isinstance(x, weft.LongTensor) and not isinstance(3, weft.FloatTensor)
    )
    assert x.type() == "weft.FloatTensor" and x.type(weft.LongTensor).dtype is weft.int64
    assert weft.tensor([1]).type(weft.Tensor).dtype is weft.float32
    assert x.type("torch.DoubleTensor").dtype is weft.float64 and x.type(weft.int32).dtype is weft.int32
    assert pickle.loads(pickle.dumps(weft.FloatTensor)) is weft.FloatTensor

    def annotated(x: "weft.FloatTensor | None") -> weft.FloatTensor | None:
        return x

    assert annotated(x) is x
    with pytest.raises(ValueError, match="invalid type: 'FooTensor'; expected a dtype, or one of"):
        x.type("FooTensor")
    with pytest.raises(TypeError, match="FloatTensor: data must be a sequence"):
        weft.FloatTensor(2.5)
    with pytest.raises(TypeError, match=r"expected a LongTensor \(got FloatTensor\)"):
        weft.LongTensor(x)


def test_default_tensor_type():
    weft.set_default_tensor_type(weft.DoubleTensor)
    try:
        assert weft.ones(1).dtype is weft.tensor([1]).type(weft.Tensor).dtype is weft.float64
    finally:
        weft.set_default_tensor_type("torch.FloatTensor")
    assert weft.ones(1).dtype is weft.float32
    with pytest.raises(TypeError, match="only floating-point types"):
        weft.set_default_tensor_type(weft.LongTensor)


def test_limits_of_types():
    limits = weft.finfo(weft.float32)
    assert (limits.bits, limits.eps, limits.tiny, limits.resolution) == (32, 2.0**-23, 2.0**-126, pytest.approx(1e-6))
    assert limits == weft.finfo() != weft.finfo(weft.float64) and limits.min == -limits.max
    assert weft.iinfo(weft.int64).max == 2**63 - 1 and "bits=32" in repr(weft.iinfo(weft.int32))
    with pytest.raises(TypeError, match="use iinfo"):
        weft.finfo(weft.int64)


# --- shapes -----------------------------------------------------------------------------------------------------------
def test_shapes_count_elements():
    x = weft.ones(2, 3, 4)
    assert x.shape == x.size() == (2, 3, 4) == weft.Size([2, 3, 4]) and isinstance(x.shape, tuple)
    assert isinstance(x.shape, weft.Size) and x.shape.numel() == 24 and x.shape[1:].numel() == 12
    assert isinstance(x.shape[:2] + (5,), weft.Size) and (1,) + x.shape == (1, 2, 3, 4)  # noqa: RUF005
    assert x.shape[-1] == x.size(-1) == x.size(dim=2) == 4 and type(x.shape[0]) is int
    assert weft.zeros(x.shape[1:]).shape == (3, 4) and weft.zeros(x.size()).shape == x.shape
    assert weft.Tensor(x.size()).shape == x.shape and hash(x.shape) == hash((2, 3, 4))
    assert str(x.shape) == "(2, 3, 4)" and pickle.loads(pickle.dumps(x.shape)) == x.shape


# --- settings ---------------------------------------------------------------------------------------------------------
def test_switches_are_kept():
    weft.set_float32_matmul_precision("high")
    assert weft.get_float32_matmul_precision() == "high"
    weft.use_deterministic_algorithms(True, warn_only=True)
    assert weft.are_deterministic_algorithms_enabled() and weft.get_deterministic_debug_mode() == 1
    weft.use_deterministic_algorithms(False)
    weft.set_float32_matmul_precision("highest")
    with pytest.raises(ValueError, match="'low' is not one of highest, high, medium"):
        weft.set_float32_matmul_precision("low")
    with pytest.raises(RuntimeError, match="expected 0, 1, 2"):
        weft.set_deterministic_debug_mode("loud")


def test_versions_compare():
    assert weft.__version__ >= "2.2" and weft.__version__ > "1.13.1" and not weft.__version__ < "2.9"
    assert weft.__version__ >= (2, 0) and weft.__version__ != "2.2" and weft.__version__ == "2.13.0"
    assert [int(n) for n in weft.__version__.split("+")[0].split(".")] == [2, 13, 0]
    assert weft.__version__.endswith("+weft." + weft.weft_version)
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert 'version = {attr = "weft.version.weft_version"}' in project


def test_decorators_of_compilers_change_nothing():
    def f(x):
        return x + 1

    for same in (weft.jit.script(f), weft.jit.ignore(f), weft.jit.ignore()(f), weft.jit.export(f), weft.jit.unused(f)):
        assert same is f
    assert weft.jit.trace(f, weft.ones(1)) is f and not weft.jit.is_scripting()
    assert weft.compiler.disable(f) is f and weft.compiler.disable(recursive=False)(f) is f
    assert not weft.compiler.is_compiling()
    assert weft.compile(f, disable=True) is f
    compiled = weft.compile(f, fullgraph=True, mode="reduce-overhead", dynamic=False, backend="inductor")
    assert compiled(weft.ones(1)).tolist() == [2]
    assert weft.compile(mode="default")(f)(weft.ones(1)).tolist() == [2]
    with pytest.raises(RuntimeError, match="unrecognized mode=.fast., should be one of: default"):
        weft.compile(f, mode="fast")


def test_mixed_precision_is_off():
    with weft.autocast("cpu", enabled=False), weft.amp.autocast(device_type="cpu", dtype=weft.float32, enabled=False):
        assert not weft.is_autocast_enabled()
    with pytest.warns(UserWarning, match="'cuda'.*not available"), weft.cuda.amp.autocast():
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler = weft.cuda.amp.GradScaler(enabled=False)
        assert weft.amp.GradScaler("cpu", enabled=False).get_scale() == 1.0
    weight = weft.ones(2, requires_grad=True)
    optimizer = weft.optim.SGD([weight], lr=0.5)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer), scaler.step(optimizer), scaler.update()
    assert weight.tolist() == [0.5, 0.5] and scaler.state_dict() == {}
    scaler.load_state_dict(scaler.state_dict())

    @weft.autocast("cpu", enabled=False)
    def f(x):
        return x * 2

    assert f(weft.ones(1)).tolist() == [2]


def test_types_that_no_tensor_has_can_be_listed_and_compared():
    sizes = {weft.uint16: 2, weft.uint32: 4, weft.float8_e5m2: 1, weft.float8_e4m3fn: 1, weft.chalf: 4, weft.quint8: 1}
    assert weft.ones(1).dtype not in sizes and isinstance(weft.uint64, weft.dtype)
    assert all(kind.itemsize == size for kind, size in sizes.items())
    assert not weft.uint16.is_signed and weft.float8_e5m2.is_floating_point and weft.complex32.is_complex
    assert pickle.loads(pickle.dumps(weft.uint16)) is weft.uint16 and str(weft.chalf) == "weft.complex32"
    x = weft.ones(2)
    for attempt in (
        lambda: weft.zeros(2, dtype=weft.uint16),
        lambda: x.to(weft.float8_e5m2),
        lambda: weft.nn.Linear(2, 2, dtype=weft.uint32),
        lambda: weft.set_default_dtype(weft.float8_e5m2),
    ):
        with pytest.raises(TypeError, match="weft has no tensors of"):
            attempt()


def test_the_memory_under_a_tensor():
    x = weft.arange(12, dtype=weft.float64).reshape(3, 4)
    for memory, size, n in ((x.untyped_storage(), 1, 96), (x.storage(), 8, 12)):
        assert (memory.nbytes(), memory.element_size(), memory.size(), len(memory)) == (96, size, n, n)
        assert memory.data_ptr() == x.data_ptr() and weft.is_storage(memory) and memory.device == weft.device("cpu")
    assert x[1:].untyped_storage() == x.t().untyped_storage() == x.detach().untyped_storage() == x.untyped_storage()
    assert x.clone().untyped_storage() != x.untyped_storage() and x[2].storage().data_ptr() == x.data_ptr()
    assert x[1].storage().tolist() == list(range(12)) and x.storage()[5] == 5.0 and x.storage()[1:3] == [1.0, 2.0]
    assert len({x.untyped_storage(), x[0].untyped_storage(), weft.ones(3).untyped_storage()}) == 2
    half = weft.tensor([1.5, -2], dtype=weft.bfloat16)
    assert (
        half.storage().tolist() == [1.5, -2] and half.storage().dtype is weft.bfloat16 and half.storage().nbytes() == 4
    )
    assert isinstance(x.storage(), weft.TypedStorage) and isinstance(x.storage().untyped(), weft.UntypedStorage)
    assert sys.getsizeof(weft.zeros(1000).storage()) - sys.getsizeof(weft.zeros(10).storage()) == 3960
    assert x.is_set_to(x.view(3, 4)) and not x.is_set_to(x.t()) and not x.is_set_to(x.clone())


def test_the_memory_under_a_tensor_is_not_changed_through_its_storage():
    memory = weft.ones(3).storage()
    for change in (lambda: memory.resize_(0), lambda: memory.fill_(1), lambda: memory.__setitem__(0, 1.0)):
        with pytest.raises(RuntimeError, match="change the tensor instead"):
            change()


@pytest.mark.oracle
def test_sizes_of_storages_are_pytorchs():
    import torch

    def of(ns):
        x = ns.zeros(4, 6)
        parts = [x, x[1:, 2:], x.t(), x[0].expand(3, 6), x.reshape(-1)[::2], ns.zeros(()), ns.zeros(0, 3), x.half()]
        return [(p.untyped_storage().nbytes(), len(p.storage()), p.storage().element_size()) for p in parts]

    assert of(weft) == of(torch)
