"""A spiking net: neurons that leak, fire at a threshold and lose what they fired; a smooth slope stands in for the
step's in backward."""

import json
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, membrane, slope=25.0):
        ctx.save_for_backward(membrane)
        ctx.slope = slope
        return (membrane > 0).float()

    @staticmethod
    def backward(ctx, grad_output):
        (membrane,) = ctx.saved_tensors
        return grad_output / (ctx.slope * membrane.abs() + 1.0) ** 2, None


class Leaky(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(beta))
        self.register_buffer("threshold", torch.tensor(1.0))

    def forward(self, current, membrane):
        fired = Spike.apply(membrane - self.threshold).detach()
        membrane = self.beta.clamp(0, 1) * membrane + current - fired * self.threshold
        return Spike.apply(membrane - self.threshold), membrane


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 16), nn.Linear(16, 3)
        self.inner, self.outer = Leaky(0.9), Leaky(0.8)

    def forward(self, spikes):
        one, two = torch.zeros(spikes.size(1), 16), torch.zeros(spikes.size(1), 3)
        fired, membranes = [], []
        for step in range(spikes.size(0)):
            out, one = self.inner(self.first(spikes[step]), one)
            out, two = self.outer(self.second(out), two)
            fired.append(out)
            membranes.append(two)
        return torch.stack(fired), torch.stack(membranes)


def main():
    generator = np.random.default_rng(1)
    net = Net()
    with torch.no_grad():
        for layer in (net.first, net.second):
            layer.weight.copy_(torch.from_numpy(generator.normal(0, 0.5, tuple(layer.weight.shape)).astype(np.float32)))
            layer.bias.zero_()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def train(spikes, labels):
        fired, membranes = net(spikes)
        loss = F.cross_entropy(membranes.mean(0), labels) + 0.1 * (fired.mean(0) - F.one_hot(labels, 3)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run, losses = torch.compile(train) if "--compile" in sys.argv else train, []
    labels = torch.from_numpy(generator.integers(0, 3, 16))
    rates = generator.random((3, 12))[labels.numpy()]
    for _ in range(12):
        spikes = torch.from_numpy((generator.random((8, 16, 12)) < rates).astype(np.float32))
        losses.append(run(spikes, labels).item())
    print(json.dumps({"losses": losses}))


main()
