"""Layers of sequences in weft and PyTorch with the same parameters, and comparisons of what they do. Not a test."""

import numpy as np

import weft

# Everything the tests below try a layer in: how it is called, and what is compared.
ROUNDING = {"rtol": 1e-9, "atol": 1e-11}


def numbers(seed, *shape):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def filled(layer, library):
    """The layer in float64, its parameters drawn in order of their names."""
    layer = layer.double()
    with library.no_grad():
        for k, name in enumerate(sorted(name for name, _ in layer.named_parameters())):
            parameter = dict(layer.named_parameters())[name]
            parameter.copy_(library.tensor(numbers(k + 50, *parameter.shape)))
    return layer


def arrays(values):
    return [None if v is None else v.detach().numpy() for v in values]


def assert_alike(found, wanted):
    """Lists of arrays are those of the other library, to rounding."""
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, **ROUNDING)


def derivatives(library, outputs, leaves, twice=True):
    """Outputs, first derivatives of a sum of their powers, second ones of a sum of the first's squares."""
    loss = sum((k + 1.0) * (y * y * y + y).sum() for k, y in enumerate(outputs) if y.dtype.is_floating_point)
    first = library.autograd.grad(loss, leaves, create_graph=twice)
    if not twice:
        return [*outputs, *first]
    second = library.autograd.grad(sum((g * g).sum() for g in first), leaves)
    return [*outputs, *first, *second]


def train(library, model, loss_of, batches, compile=None):
    """The losses of steps of gradient descent, as Python floats."""
    optimizer = library.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        return loss

    run = step if compile is None else compile(step)
    return [run(*(library.tensor(a) for a in batch)).item() for batch in batches], run


def trains_compiled_as_eagerly(make, loss_of, batches):
    """One compiled program does all of the step, with eager mode's bits; returns its losses."""
    found = []
    for compile in (None, weft.compile):
        weft.manual_seed(3)
        model = make(weft)
        losses, step = train(weft, model, loss_of, batches, compile)
        found.append((losses, [p.detach().numpy().tobytes() for p in model.parameters()]))
    assert found[0] == found[1]
    text = step.explain()
    assert "nothing ran outside the programs" in text and "calls are replayed" in text
    return found[1][0]
