"""What an exported function may not ask of its arguments: their values, which are another caller's in C."""

import re

import numpy as np
import pytest

import weft

# Each would make a number of the examples a number for good.
READERS = {
    "item": lambda x: weft.ones(3) * x.item(),
    "float": lambda x: weft.ones(3) * float(x),
    "int": lambda x: x * int(x),
    "range": lambda x: sum(x * k for k in range(int(x))),
    "a condition": lambda x: x * 2 if x else x * 3,
    "a position": lambda x: weft.arange(10)[int(x) :].sum() + x,
    "tolist": lambda x: x + weft.tensor(x.tolist()),
    "a text": lambda x: x * len(f"{x}"),
    "NumPy": lambda x: x + weft.tensor(np.sin(x.numpy())),
    "a function of NumPy": lambda x: x + float(np.linalg.norm(x)),
    "an array": lambda x: x + weft.as_tensor(np.array(x)),
    "DLPack": lambda x: x + weft.tensor(np.from_dlpack(x) * 2),
    "a storage": lambda x: x + weft.tensor(list(x.storage())),
    "allclose": lambda x: x * 2 if weft.allclose(x, x) else x,
    "nonzero": lambda x: x + len(x.reshape(1).nonzero()),
}


@pytest.mark.parametrize("what", READERS)
def test_reading_values_of_an_argument_is_refused_with_its_line(what):
    with pytest.raises((ValueError, RuntimeError), match=re.escape("export_values.py:") + r"\d+|linalg\.py:\d+"):
        weft.aot(READERS[what], (weft.tensor(1.5, dtype=weft.float64),))


def test_other_arguments_and_tensors_outside_may_be_read():
    """What the function finds outside is what it is when it is exported."""
    scale = weft.tensor(3.0)
    native = weft.aot(lambda x: x * scale.item() + len(x) + x.shape[0] + x.numel(), (weft.ones(2),))
    assert native(np.full(2, 5.0, np.float32)).tolist() == [21.0, 21.0]
    assert weft.aot(lambda x, power: x**power, (weft.ones(2), 2))(np.full(2, 3.0, np.float32)).tolist() == [9.0, 9.0]


def test_reading_is_refused_for_other_extents_and_gradients_too():
    def f(x):
        return (x * float(x[0])).sum()

    for options in ({"gradients": True}, {"dynamic_shapes": {"x": {0: "n"}}}):
        with pytest.raises((ValueError, RuntimeError), match="read"):
            weft.aot(f, (weft.ones(4),), **options)


RESULTS = {
    "sort": lambda x: x.sort(dim=1),
    "max": lambda x: x.max(0),
    "slogdet": lambda x: weft.linalg.slogdet(x[:3]),
    "parts of a dict": lambda x: {"largest": x.topk(2), "mean": x.mean()},
}


@pytest.mark.parametrize("what", RESULTS)
def test_results_with_names_are_several_results(what):
    x = weft.tensor(np.random.default_rng(0).standard_normal((5, 3)))
    wanted = weft.utils._pytree.tree_leaves(RESULTS[what](x))
    found = weft.aot(RESULTS[what], (weft.ones(5, 3, dtype=weft.float64),))(x.numpy())
    assert len(found) == len(wanted) and all(np.array_equal(a, b.numpy()) for a, b in zip(found, wanted))


def test_what_distributions_check_is_part_of_what_is_exported():
    data = weft.randn(20, dtype=weft.float64)

    def likelihood(theta):
        return -weft.distributions.Normal(theta[0], theta[1]).log_prob(data).sum()

    native, theta = weft.aot(likelihood, (weft.ones(2, dtype=weft.float64),), gradients=True), np.array([0.3, 0.2])
    value, gradient = weft.value_and_grad(likelihood)(theta)
    assert native.value_and_grad(theta)[0] == value and (native.value_and_grad(theta)[1] == gradient).all()
    with pytest.raises(IndexError, match="what a distribution checks is out of range; nothing was changed"):
        native(-theta)
