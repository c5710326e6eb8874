"""JAX: value and gradient, or the whole step, in one jitted function; parameters are donated, so updates are in place.

Forms: waiting for every step, as a loop does that reads the loss, or only for the last one of a batch of steps, which
lets JAX prepare a step while another runs.
"""

import itertools
from functools import partial

import jax
import jaxlib
import numpy as np

from ..workload import Gradient, Program

# Arrays keep the type they have: without it float64 would become float32.
jax.config.update("jax_enable_x64", True)


def forms(workload, compiled):
    build = gradient if isinstance(workload, Gradient) else training
    return {
        "jit": lambda: build(workload, lambda arrays: arrays),
        "jit, wait for each step": lambda: build(workload, jax.block_until_ready),
    }


def gradient(workload, after):
    leaves, constants, cotangent = workload.split(
        {name: jax.numpy.asarray(array) for name, array in workload.arrays().items()}
    )

    @jax.jit
    def step(leaves, constants, cotangent):
        def function(*leaves):
            return workload.jax_function(jax, *leaves, *constants)

        if cotangent is None:
            value, gradients = jax.value_and_grad(function, tuple(range(len(leaves))))(*leaves)
            return value, *gradients
        value, pull = jax.vjp(function, *leaves)
        return value, *pull(cotangent)

    return Program(lambda: after(step(leaves, constants, cotangent)))


def training(workload, after):
    arrays, batches = workload.arrays()
    # Parameters live between the calls of step, which takes the old ones and leaves the new ones.
    state = [[jax.numpy.asarray(a.T) for a in arrays], [jax.numpy.zeros(a.T.shape, a.dtype) for a in arrays]]
    loss_and_gradients = jax.value_and_grad(partial(workload.jax_loss, jax))

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(parameters, momenta, x, y):
        loss, gradients = loss_and_gradients(parameters, x, y)
        if workload.momentum:
            momenta = [workload.momentum * m + g for m, g in zip(momenta, gradients)]
            gradients = momenta
        return [p - workload.lr * g for p, g in zip(parameters, gradients)], momenta, loss

    def step():
        state[0], state[1], loss = update(*state, *next(batches))
        return after((loss,))

    batches = itertools.cycle([(jax.numpy.asarray(x), jax.numpy.asarray(y)) for x, y in batches])
    return Program(step, lambda: state[0])


def wait(arrays):
    jax.block_until_ready(arrays)


def to_numpy(array):
    return np.array(array)


def parameters_to_numpy(arrays):
    """Weights as (out, in), the shape of the other sides."""
    return [to_numpy(a).T for a in arrays]


def use_threads(n):
    """XLA takes as many threads as the process has CPUs, which child.py has set."""


def versions():
    return {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
