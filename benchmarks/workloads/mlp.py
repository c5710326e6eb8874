"""Classifiers of linear layers and ReLU, trained with momentum: the digits demo, and one of ten times its size."""

from functools import partial

import numpy as np

from ..workload import Training


def arrays(widths, batch, n_batches):
    """Weights drawn as PyTorch's Linear draws them; classes that a linear map of the inputs decides."""
    rng = np.random.default_rng(0)
    parameters = []
    for n_in, n_out in zip(widths, widths[1:]):
        bound = 1 / np.sqrt(n_in)
        parameters += [rng.uniform(-bound, bound, shape).astype(np.float32) for shape in ((n_out, n_in), n_out)]
    teacher = rng.standard_normal((widths[0], widths[-1]), dtype=np.float32)
    inputs = [rng.random((batch, widths[0]), dtype=np.float32) for _ in range(n_batches)]
    return parameters, [(x, ((x - 0.5) @ teacher).argmax(axis=1)) for x in inputs]


def model(library, widths):
    layers = []
    for n_in, n_out in zip(widths, widths[1:]):
        layers += [library.nn.Linear(n_in, n_out), library.nn.ReLU()]
    return library.nn.Sequential(*layers[:-1])


def loss(library, model, x, y):
    return library.nn.functional.cross_entropy(model(x), y)


def jax_loss(jax, parameters, x, y):
    *hidden, last = zip(parameters[::2], parameters[1::2])
    for weight, bias in hidden:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = last
    log_probabilities = jax.nn.log_softmax(x @ weight + bias)
    return -jax.numpy.take_along_axis(log_probabilities, y[:, None], axis=1).mean()


def classifier(name, widths, batch, n_batches):
    shape = "-".join(str(w) for w in widths)
    return Training(
        name,
        f"classifier {shape} with ReLU, batch {batch}, SGD step with momentum",
        partial(arrays, widths, batch, n_batches),
        partial(model, widths=widths),
        loss,
        jax_loss,
        # A rate so low that thousands of steps stay in the first part of training: every round does the same work.
        lr=0.01,
        momentum=0.9,
    )


DIGITS_MLP = classifier("digits_mlp", (64, 128, 64, 10), 64, 28)
MLP_TRAIN = classifier("mlp_train", (784, 512, 512, 10), 128, 8)
