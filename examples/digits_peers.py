"""The demo's training step in PyTorch and JAX, where they are installed: the same network, batches and update."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from digits import Digits

Batches = list[tuple[NDArray[Any], NDArray[Any]]]

# The library and its form, a step, and what to call it with.
Made = tuple[str, tuple[Callable[..., None], list[Any]]]
N_STEPS, N_WARM = 300, 20


def steps_per_second(digits: Digits, batch_size: int, n_threads: int) -> dict[str, float]:
    """{library and form: steps in a second}, of those that are installed."""
    images, classes = digits.train_images.numpy(), digits.train_classes.numpy()
    batches = [(images[k : k + batch_size], classes[k : k + batch_size]) for k in range(0, len(images), batch_size)]
    makers = {"torch": _torch_step, "jax": _jax_step}
    found = dict(make(batches, n_threads) for library, make in makers.items() if find_spec(library))
    return {name: 1 / _median_seconds(step, itertools.cycle(given)) for name, (step, given) in found.items()}


def _median_seconds(step: Callable[..., None], batches: Iterable[tuple[Any, Any]]) -> float:
    seconds: list[float] = []
    for x, y in itertools.islice(batches, N_WARM + N_STEPS):
        started = time.perf_counter()
        step(x, y)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[N_WARM:])


def _torch_step(batches: Batches, n_threads: int) -> Made:
    import torch
    from torch import nn

    torch.set_num_threads(n_threads)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()

    given = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches]
    return f"PyTorch {torch.__version__.partition('+')[0]} (eager)", (step, given)


def _jax_step(batches: Batches, n_threads: int) -> Made:
    """jit of the whole step; JAX takes the CPUs that the process may use, whatever n_threads is."""
    import jax
    from jax import numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    sizes = ((64, 128), (128, 64), (64, 10))
    parameters = [(jax.random.normal(k, s) / s[0] ** 0.5, jnp.zeros(s[1])) for k, s in zip(keys, sizes)]
    state = [parameters, jax.tree.map(jnp.zeros_like, parameters)]

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        (*hidden, (w, b)) = parameters
        for weight, bias in hidden:
            x = jax.nn.relu(x @ weight + bias)
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ w + b), y[:, None], 1).mean()

    def momentum(m: Any, gradient: Any, p: Any) -> Any:
        return 0.9 * m + gradient + 1e-4 * p

    def moved(p: Any, m: Any) -> Any:
        return p - 0.1 * m

    def update(parameters: Any, momenta: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        momenta = jax.tree.map(momentum, momenta, gradients, parameters)
        return jax.tree.map(moved, parameters, momenta), momenta, loss

    compiled = jax.jit(update)

    def step(x: Any, y: Any) -> None:
        *state[:], loss = compiled(*state, x, y)
        loss.block_until_ready()

    given = [(jnp.asarray(x), jnp.asarray(y)) for x, y in batches]
    return f"JAX {jax.__version__} (jit)", (step, given)
