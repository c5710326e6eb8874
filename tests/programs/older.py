"""A program in the way of the first years: Variable, tensor types, .data, size_average, .cuda() if there is one."""

import json

import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter
from torch.optim.lr_scheduler import _LRScheduler
from torch.optim.optimizer import Optimizer, required
from torch.utils.data.dataloader import default_collate
from torch.utils.data.dataset import Dataset

use_cuda = torch.cuda.is_available()
FloatTensor = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if use_cuda else torch.LongTensor
Tensor = FloatTensor


class Points(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        x = FloatTensor([index / 12.0, (index % 3) - 1.0])
        return x, float(2 * x[0] - x[1])


class Scale(Module):
    def __init__(self, size):
        super().__init__()
        self.weight = Parameter(Tensor(size).fill_(1.5))

    def forward(self, input):
        return input * self.weight.expand_as(input)


class Momentum(Optimizer):
    def __init__(self, params, lr=required, decay=0.5):
        super().__init__(params, dict(lr=lr, decay=decay))

    def __setstate__(self, state):
        super().__setstate__(state)

    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d_p = p.grad.data
                state = self.state[p]
                if "buffer" not in state:
                    buf = state["buffer"] = p.data.new(p.data.size()).zero_()
                buf = state["buffer"]
                buf.mul_(group["decay"]).add_(d_p)
                p.data.add_(buf, alpha=-group["lr"])
        return loss


class Halving(_LRScheduler):
    def __init__(self, optimizer, last_epoch=-1):
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [base / 2**self.last_epoch for base in self.base_lrs]


def main():
    data = Points()
    inputs, targets = default_collate([data[k] for k in range(len(data))])
    targets = targets.type(FloatTensor).unsqueeze(1)
    model = nn.Sequential(Scale(2), nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    for k, p in enumerate(model.parameters()):
        p.data = torch.linspace(-0.4, 0.3 + 0.1 * k, p.numel()).view(p.size()).type_as(p.data)
    if use_cuda:
        model = model.cuda()
    criterion = nn.MSELoss(size_average=False)
    optimizer = Momentum(model.parameters(), lr=0.02)
    scheduler = Halving(optimizer)
    losses, rates = [], []
    for _ in range(4):
        x, y = Variable(inputs), Variable(targets, requires_grad=False)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(float(loss.data))
        rates.append(optimizer.param_groups[0]["lr"])
    weight = model[1].weight
    assert isinstance(weight, Variable) and isinstance(weight.data, FloatTensor)
    assert not weight.is_cuda and weight.size().numel() == weight.nelement() == 8
    positions = LongTensor([0, 2])
    print(json.dumps({"losses": losses, "rates": rates, "rows": weight.data[positions].tolist()}))


main()
