"""PyTorch's import paths, as programs that are ported use them, are what the packages show: see tensors.py."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any

from typing_extensions import assert_type

import weft
import weft.backends.cudnn as cudnn
import weft.distributed as dist
import weft.multiprocessing as mp
from weft import nn
from weft.amp.grad_scaler import GradScaler
from weft.autograd.function import Function, FunctionCtx, once_differentiable
from weft.cuda.amp import autocast
from weft.distributions.kl import kl_divergence
from weft.distributions.normal import Normal
from weft.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from weft.nn.modules.conv import Conv2d, _ConvNd  # pyright: ignore[reportPrivateUsage]
from weft.nn.modules.linear import Linear
from weft.nn.modules.loss import MSELoss, _Loss  # pyright: ignore[reportPrivateUsage]
from weft.nn.modules.utils import _pair  # pyright: ignore[reportPrivateUsage]
from weft.nn.parallel import DistributedDataParallel
from weft.nn.parameter import Parameter
from weft.nn.utils.clip_grad import clip_grad_norm_
from weft.optim.adam import Adam
from weft.optim.lr_scheduler import LRScheduler, StepLR, _LRScheduler  # pyright: ignore[reportPrivateUsage]
from weft.optim.optimizer import Optimizer
from weft.profiler import profile
from weft.utils.data.dataloader import DataLoader
from weft.utils.data.dataset import Dataset, TensorDataset


class Weighted(_Loss):
    def forward(self, x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        return ((x - y) ** 2).mean()


def train(model: nn.Module, optimizer: Optimizer, schedule: LRScheduler, batches: DataLoader[Any]) -> None:
    for x, y in batches:
        with autocast(enabled=False):
            loss = Weighted()(model(x), y)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


linear: nn.Linear = Linear(3, 4)
weight: Parameter = linear.weight
assert_type(linear(weft.ones(2, 3)), weft.Tensor)
assert_type(MSELoss()(weft.ones(3), weft.ones(3)), weft.Tensor)
assert_type(kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)), weft.Tensor)
optimizer: weft.optim.Optimizer = Adam(linear.parameters(), lr=0.1)
schedule: _LRScheduler = StepLR(optimizer, 3)
dataset: Dataset[tuple[weft.Tensor, ...]] = TensorDataset(weft.ones(4, 3), weft.ones(4, 4))
train(linear, optimizer, schedule, DataLoader(dataset, batch_size=2))
print([layer for layer in linear.modules() if isinstance(layer, (_BatchNorm, _ConvNd, Conv2d))], _pair(3), weight)
print(weft.cuda.is_available(), cudnn.benchmark, mp.get_context("fork"), GradScaler(enabled=False))
print(FunctionCtx, once_differentiable, Function, DistributedDataParallel, profile)
cudnn.benchmark = True
assert_type(weft.version.cuda, str | None)
if dist.is_available():
    dist.init_process_group("gloo")
    assert_type(dist.get_rank(), int)
Linear(3, 4, no_such_option=True)  # type: ignore[call-arg]
