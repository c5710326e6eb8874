"""PyTorch, eager and compiled.

Forms of eager mode: gradients by autograd.grad or by backward(); the optimizer plain, foreach or fused.
Forms of torch.compile: the loss compiled, with backward outside; then the optimizer compiled too, or fused; and the
whole work in one graph, derivatives by torch.func, updates written out.
"""

import itertools

import numpy as np
import torch

from ..workload import Gradient, Program


def forms(workload, compiled):
    if isinstance(workload, Gradient):
        if compiled:
            return {
                "compiled loss": lambda: gradient(workload, torch.compile),
                "one graph": lambda: gradient_graph(workload),
            }
        return {"autograd.grad": lambda: gradient(workload), "backward": lambda: gradient_by_backward(workload)}
    if compiled:
        return {
            "compiled loss and optimizer": lambda: training(workload, torch.compile, torch.compile),
            "compiled loss, fused optimizer": lambda: training(workload, torch.compile, fused=True),
            "one graph": lambda: training_graph(workload),
        }
    return {
        "plain optimizer": lambda: training(workload, foreach=False),
        "foreach optimizer": lambda: training(workload, foreach=True),
        "fused optimizer": lambda: training(workload, fused=True),
    }


def tensors(workload, requires_grad):
    leaves, constants, cotangent = workload.split(
        {name: torch.from_numpy(array) for name, array in workload.arrays().items()}
    )
    return [leaf.requires_grad_(requires_grad) for leaf in leaves], constants, cotangent


def as_is(function):
    return function


def gradient(workload, wrap=as_is):
    leaves, constants, cotangent = tensors(workload, True)

    @wrap
    def function(leaves, constants):
        return workload.function(torch, *leaves, *constants)

    def step():
        value = function(leaves, constants)
        return value, *torch.autograd.grad(value, leaves, cotangent)

    return Program(step)


def gradient_by_backward(workload):
    leaves, constants, cotangent = tensors(workload, True)

    def step():
        for leaf in leaves:
            leaf.grad = None
        value = workload.function(torch, *leaves, *constants)
        value.backward(cotangent)
        return value, *[leaf.grad for leaf in leaves]

    return Program(step)


def gradient_graph(workload):
    leaves, constants, cotangent = tensors(workload, False)

    @torch.compile(fullgraph=True)
    def graph(leaves, constants, cotangent):
        def function(*leaves):
            return workload.function(torch, *leaves, *constants)

        if cotangent is not None:
            value, pull = torch.func.vjp(function, *leaves)
            return pull(cotangent), value
        # Neither vjp with a cotangent of ones nor the value first: both make the gelu chain take 5.1 ms, not 3.3.
        return torch.func.grad_and_value(function, tuple(range(len(leaves))))(*leaves)

    @torch.no_grad()
    def step():
        gradients, value = graph(leaves, constants, cotangent)
        return value, *gradients

    return Program(step)


def model_and_batches(workload):
    arrays, batches = workload.arrays()
    model = workload.model(torch)
    with torch.no_grad():
        for parameter, array in zip(model.parameters(), arrays):
            parameter.copy_(torch.from_numpy(array))
    return model, itertools.cycle([(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches])


def training(workload, wrap_loss=as_is, wrap_optimizer=as_is, **options):
    model, batches = model_and_batches(workload)
    optimizer = torch.optim.SGD(model.parameters(), lr=workload.lr, momentum=workload.momentum, **options)
    update = wrap_optimizer(optimizer.step)

    @wrap_loss
    def loss_of(x, y):
        return workload.loss(torch, model, x, y)

    def step():
        loss = loss_of(*next(batches))
        optimizer.zero_grad()
        loss.backward()
        update()
        return (loss,)

    return Program(step, lambda: list(model.parameters()))


def training_graph(workload):
    model, batches = model_and_batches(workload)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    momenta = {name: torch.zeros_like(p) for name, p in parameters.items()}

    @torch.compile(fullgraph=True)
    def graph(parameters, momenta, x, y):
        def loss_of(parameters):
            return workload.loss(torch, lambda x: torch.func.functional_call(model, parameters, x), x, y)

        gradients, loss = torch.func.grad_and_value(loss_of)(parameters)
        for name, direction in gradients.items():
            if workload.momentum:
                direction = momenta[name].mul_(workload.momentum).add_(direction)
            parameters[name].sub_(direction, alpha=workload.lr)
        return loss

    @torch.no_grad()
    def step():
        return (graph(parameters, momenta, *next(batches)),)

    return Program(step, lambda: list(parameters.values()))


def wait(arrays):
    """Results are there when a call returns."""


def to_numpy(tensor):
    return np.array(tensor.detach())


def parameters_to_numpy(arrays):
    return [to_numpy(t) for t in arrays]


def use_threads(n):
    torch.set_num_threads(n)


def versions():
    return {"torch": torch.__version__}
