"""weft: the code a PyTorch user writes, eager or with the whole step under @weft.compile.

Forms: gradients by autograd.grad or by backward().
"""

import itertools

import numpy as np

import weft

from ..workload import Gradient, Program

COMPILES_MEANWHILE = True  # in a thread of its own, while calls go on


def forms(workload, compiled):
    wrap = weft.compile if compiled else as_is
    if isinstance(workload, Gradient):
        return {
            "autograd.grad": lambda: gradient(workload, wrap),
            "backward": lambda: gradient_by_backward(workload, wrap),
        }
    return {"step": lambda: training(workload, wrap)}


def as_is(function):
    return function


def tensors(workload):
    leaves, constants, cotangent = workload.split(
        {name: weft.from_numpy(array) for name, array in workload.arrays().items()}
    )
    return [leaf.requires_grad_() for leaf in leaves], constants, cotangent


def gradient(workload, wrap):
    leaves, constants, cotangent = tensors(workload)

    @wrap
    def step():
        value = workload.function(weft, *leaves, *constants)
        return value, *weft.autograd.grad(value, leaves, cotangent)

    return Program(step)


def gradient_by_backward(workload, wrap):
    leaves, constants, cotangent = tensors(workload)

    @wrap
    def step():
        for leaf in leaves:
            leaf.grad = None
        value = workload.function(weft, *leaves, *constants)
        value.backward(cotangent)
        return value, *[leaf.grad for leaf in leaves]

    return Program(step)


def training(workload, wrap):
    parameters, batches = workload.arrays()
    model = workload.model(weft)
    with weft.no_grad():
        for parameter, array in zip(model.parameters(), parameters):
            parameter.copy_(weft.from_numpy(array))
    optimizer = weft.optim.SGD(model.parameters(), lr=workload.lr, momentum=workload.momentum)

    @wrap
    def step(x, y):
        loss = workload.loss(weft, model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    batches = itertools.cycle([(weft.from_numpy(x), weft.from_numpy(y)) for x, y in batches])
    return Program(lambda: (step(*next(batches)),), lambda: list(model.parameters()))


def wait(arrays):
    """Results are there when a call returns."""


def to_numpy(tensor):
    return tensor.detach().numpy()


def parameters_to_numpy(tensors):
    return [to_numpy(t) for t in tensors]


def use_threads(n):
    weft.set_num_threads(n)


def fill_caches():
    """What is made in the background on a new machine would be made while times are taken."""
    weft.fill_cache()


def versions():
    import llvmlite  # named in the record; weft itself loads it only when it compiles

    return {"weft": weft.weft_version, "numpy": np.__version__, "llvmlite": llvmlite.__version__}
