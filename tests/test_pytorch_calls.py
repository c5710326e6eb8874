"""Calls that compute nothing, as people write them: what they return prints the same with PyTorch."""

import warnings

import numpy as np
import pytest

import weft

CALLS = """
str(ns.device("cpu")) ; ns.zeros(3, device="cpu").device.type ; ns.tensor([1,2]).device.index
ns.ones(2,3).size(dim=0) ; list(ns.ones(2,3).shape[1:]) ; ns.ones(2,3).shape.numel() ; ns.Size([2,3]).numel()
ns.ones(2).is_complex() ; ns.finfo(ns.float32).eps ; ns.iinfo(ns.int32).max ; ns.get_num_threads() > 0
ns.randperm(4, dtype=ns.int32).dtype.itemsize ; ns.ones(2).type(ns.LongTensor).sum().item()
ns.ones(2).type('torch.DoubleTensor').element_size() ; ns.tensor([1.5]).long().item()
ns.is_floating_point(ns.ones(1)) ; ns.typename(3) ; ns.LongTensor(3).shape[0]
ns.FloatTensor([[1,2],[3,4]]).tolist() ; ns.IntTensor(np.array([1,2])).tolist()
ns.BoolTensor([True, False]).tolist() ; ns.as_tensor([1,2], dtype=ns.float32, device=ns.device('cpu')).tolist()
ns.from_numpy(np.ones(2)).to(ns.device('cpu'), ns.float32).dtype.itemsize
ns.full((2,), 3, dtype=ns.float32, device='cpu', requires_grad=True).tolist()
ns.arange(0, 1, 0.25, device='cpu').tolist() ; ns.linspace(0, 1, steps=3, device='cpu').tolist()
ns.ones(2, dtype=ns.long).tolist() ; ns.empty((2,), dtype=ns.int).shape[0]
ns.empty(2, memory_format=ns.contiguous_format).shape[0]
ns.nn.Parameter(ns.ones(2), requires_grad=False).requires_grad
ns.nn.Linear(2,3,device='cpu',dtype=ns.float64).weight.dtype.itemsize
ns.nn.Embedding(3,2,0,device='cpu').weight[0].tolist() ; ns.nn.BatchNorm1d(3, 1e-5, 0.1, True, True, 'cpu').eps
ns.nn.LayerNorm([3], device='cpu').weight.tolist() ; ns.nn.CrossEntropyLoss(None, None, -100).ignore_index
ns.nn.MSELoss(None, None, 'sum').reduction
ns.nn.functional.mse_loss(ns.ones(2), ns.zeros(2), None, None, 'sum').item()
ns.nn.functional.cross_entropy(ns.ones(2,3), ns.tensor([0,1]), None, None, -100, None, 'sum').item()
ns.optim.SGD([ns.ones(1, requires_grad=True)], 0.1, 0.9, 0, 0, True, foreach=False).param_groups[0]['nesterov']
ns.autograd.Variable(ns.ones(2), requires_grad=True).requires_grad ; isinstance(ns.ones(2), ns.autograd.Variable)
ns.autograd.Variable(ns.ones(2)).data.tolist() ; ns.utils.data.default_collate([1,2]).tolist()
ns.no_grad().__class__.__name__ ; ns.is_grad_enabled() ; ns.Generator().manual_seed(3).initial_seed()
ns.manual_seed(7).initial_seed() ; ns.initial_seed() ; ns.random.initial_seed()
ns.ones(2).numpy(force=True).tolist() ; ns.ones(2).cpu().detach().numpy().tolist()
ns.ones(2).new_full((2,), 3.0, device='cpu').tolist() ; ns.ones(2).new([1,2]).tolist()
ns.ones(2).is_contiguous(memory_format=ns.contiguous_format) ; ns.ones(2,3).t().contiguous().stride()
ns.ones(2).nbytes ; ns.ones(2).get_device() ; ns.ones(2).storage_offset() ; ns.ones(4)[2:].storage_offset()
ns.ones(2).requires_grad_(True).is_leaf ; ns.__version__ >= '2.0' ; int(ns.__version__.split('.')[0]) >= 2
ns.version.cuda ; ns.cuda.is_available(), ns.cuda.device_count() ; ns.backends.mps.is_available()
ns.accelerator.is_available() ; ns.accelerator.current_accelerator() ; ns.get_default_device().type
ns.get_float32_matmul_precision() ; ns.are_deterministic_algorithms_enabled() ; ns.is_autocast_enabled()
ns.compiler.is_compiling() ; ns.is_inference_mode_enabled() ; ns.ones(2).is_inference()
ns.cat([ns.ones(1), ns.zeros(1)], out=ns.empty(2)).tolist()
ns.stack((ns.ones(1), ns.zeros(1)), dim=0, out=ns.empty(0)).tolist()
ns.sum(ns.ones(3), 0, out=ns.empty(())).item() ; ns.nn.modules.utils._pair(3)
ns.utils._pytree.tree_flatten([1,{'a':2}])[0]
ns.nn.utils.rnn.pad_sequence([ns.ones(1), ns.ones(2)], batch_first=True).tolist()
ns.nn.utils.clip_grad_norm_([ns.ones(1)], 1.0).item() ; ns.can_cast(ns.float32, ns.float64)
ns.result_type(ns.ones(1), 3.0).itemsize ; ns.promote_types(ns.int32, ns.float32).itemsize
ns.set_grad_enabled(True).__class__.__name__ ; ns.ones(3).to('cpu', non_blocking=True).tolist()
ns.ones(3).double().to(ns.ones(1)).dtype.itemsize ; ns.ones(3, requires_grad=True).data.requires_grad
ns.set_default_dtype(ns.float32) ; ns.get_rng_state().dim() ; ns.bernoulli(ns.ones(3)).tolist()
ns.rand(2, generator=ns.Generator()).shape[0] ; ns.normal(ns.zeros(3), ns.ones(3)).shape[0]
ns.normal(2, 3, size=(1, 4)).shape[1] ; ns.nn.Module().to('cpu').training
ns.nn.Linear(1,1).to(ns.float64).weight.dtype.itemsize
ns.nn.Sequential(ns.nn.Linear(1,1)).cpu().double()[0].weight.dtype.itemsize
ns.nn.functional.dropout(ns.ones(3), 0.5, False).tolist() ; ns.tensor(3, dtype=ns.float32).item()
ns.tensor([[1]], device='cpu', dtype=ns.float32, requires_grad=True, pin_memory=False).shape[0]
ns.ones(2).ndimension() ; ns.numel(ns.ones(2,2)) ; ns.ones(1).__class__.__name__
ns.ones(2,2).type_as(ns.ones(1).long()).dtype.itemsize ; ns.ones(1).is_pinned() ; ns.is_tensor(3)
ns.strided is ns.ones(1).layout ; ns.dtype is type(ns.float32) ; isinstance(ns.float32, ns.dtype)
ns.float32.is_floating_point, ns.float32.is_complex, ns.int64.is_signed
ns.nn.init.xavier_uniform_(ns.empty(3,3), 1.0, ns.Generator()).shape[0] ; ns.squeeze(ns.ones(1,2)).shape[0]
ns.ones(1).element_size() ; ns.set_printoptions(precision=4) ; repr(ns.ones(2))
ns.nn.functional.one_hot(ns.tensor([0,1]), 3).tolist()
ns.utils.data.random_split(range(10), [7, 3], generator=ns.Generator().manual_seed(1))[0].__class__.__name__
ns.autograd.function.once_differentiable.__name__ ; ns.autocast(device_type='cpu', enabled=False).__class__.__name__
ns.cuda.amp.GradScaler(enabled=False).is_enabled() ; ns.ones(3).int().tolist()
ns.nn.Identity(54, unused=1).training ; len(list(ns.nn.Linear(1,1).named_buffers()))
"""


def each(text):
    return [call.strip() for call in text.replace("\n", ";").split(";") if call.strip()]


@pytest.mark.parametrize("call", each(CALLS))
def test_the_call_works(call):
    eval(call, {"ns": weft, "np": np})


@pytest.mark.oracle
@pytest.mark.parametrize("call", each(CALLS))
def test_the_call_gives_what_pytorch_gives(call):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (eval(call, {"ns": ns, "np": np}) for ns in (weft, torch))
    assert repr(ours) == repr(theirs)
