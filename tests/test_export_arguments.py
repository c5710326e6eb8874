"""Functions of dicts and tuples of arrays as C functions: an argument for each array."""

from collections import namedtuple

import numpy as np

import weft
from weft import nn

Line = namedtuple("Line", "slope offset")


def arguments_of(native):
    return [part.split(" (")[0].split("(")[-1] for part in repr(native.value).split("int ")[1].split(", ")]


def test_a_dict_of_arrays_is_an_argument_for_each():
    def f(params, x):
        scale, inner = params["scale"]
        return (params["weight"] * x * scale + inner["bias"]).exp().sum()

    params = {"weight": weft.zeros(3), "scale": (weft.tensor(1.0), {"bias": np.zeros(3, np.float32)})}
    native = weft.aot(f, (params, weft.ones(3)), gradients=True, hvp=True)
    names = ["params_weight", "params_scale_0", "params_scale_1_bias", "x", "result", "scratch)>"]
    assert arguments_of(native) == names

    x, weight, bias = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    value, *gradients = native.value_and_grad(weight, np.float32(2.0), bias, x)
    given = {"weight": weft.tensor(weight), "scale": (weft.tensor(2.0), {"bias": weft.tensor(bias)})}
    of_params, wanted = weft.func.grad_and_value(f, argnums=(0, 1))(given, weft.tensor(x))
    leaves = weft.utils._pytree.tree_leaves(of_params)
    assert value == wanted.item() and len(gradients) == len(leaves) == 4
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(gradients, leaves))


def test_parameters_of_a_module_are_arguments(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def loss(params, x):
        return weft.func.functional_call(model, params, (x,)).square().mean()

    files = weft.export(loss, (dict(model.named_parameters()), weft.ones(5, 3)), tmp_path / "loss")
    assert (
        "const float *params_0_weight, const float *params_0_bias, const float *params_2_w" in files.header.read_text()
    )
    others = [weft.randn_like(p) for p in model.parameters()]
    wanted = loss(dict(zip(dict(model.named_parameters()), others)), weft.ones(5, 3)).item()
    native = weft.load_exported(tmp_path / "loss")
    assert native(*[p.detach().numpy() for p in others], np.ones((5, 3), np.float32)) == wanted


def test_named_tuples_numbers_beside_arrays_and_names_that_meet():
    def f(line, line_slope, options):
        return (line.slope * line_slope + line.offset) ** options["power"]

    line = Line(weft.ones(2), weft.ones(2))
    native = weft.aot(f, (line, weft.ones(2), {"power": 2, "unused": None}))
    assert arguments_of(native)[:3] == ["line_slope", "line_offset", "line_slope_"]
    three = np.full(2, 3.0, np.float32)
    assert native(three, np.float32([1, 2]), three).tolist() == [100.0, 121.0]


def test_an_extent_of_an_array_in_a_dict():
    def f(data):
        return (data["x"] * data["y"]).sum()

    axes = {"data_x": {0: "n"}, "data_y": {0: "n"}}
    native = weft.aot(f, ({"x": weft.ones(4), "y": weft.ones(4)},), dynamic_shapes=axes)
    assert native(np.full(7, 2.0, np.float32), np.ones(7, np.float32)) == 14.0


def results_of(native):
    return [part.split(" (")[0] for part in repr(native.value).split("int ")[1].split(", ") if "(result)" in part]


def test_results_are_called_after_their_keys():
    x, three = weft.ones(3), np.float32([1, 2, 3])

    def fitted(x):
        return {"loss": x.sum(), "new": [x * 2, x * 3], "none": None}

    native = weft.aot(fitted, (x,))
    assert results_of(native) == ["result_loss", "result_new_0", "result_new_1"]
    loss, *scaled = native(three)
    assert loss == 6.0 and [found.tolist() for found in scaled] == [[2, 4, 6], [3, 6, 9]]
    native = weft.aot(lambda x: Line(x.mean(), x * 2), (x,), dynamic_shapes={"x": {0: "n"}})
    assert results_of(native) == ["result_slope", "result_offset"]
    assert native(np.ones(5, np.float32))[1].tolist() == [2] * 5
    assert results_of(weft.aot(lambda x: (x.sum(), {"a-b": x * 2, "a b": x * 3}), (x,))) == [
        "result_0",
        "result_1_a_b",
        "result_1_a_b_",
    ]
    assert results_of(weft.aot(lambda result_b: {"b": result_b * 2}, (x,))) == ["result_b_"]
    assert results_of(weft.aot(lambda x: (x.sum(), None, x * 2), (x,))) == ["result0", "result1"]


class Trainer:
    def __init__(self):
        self.model, self.n_steps = nn.Linear(3, 2), weft.zeros(())
        self.optimizer = weft.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.n_steps.add_(1)
        return loss

    __call__ = step


def test_methods_objects_and_modules_have_names_for_what_is_theirs():
    for made in (Trainer().step, Trainer()):
        native = weft.aot(made, (weft.ones(4, 3),))
        buffers = ["optimizer_0_momentum_buffer", "optimizer_1_momentum_buffer"]
        assert sorted(native.state) == ["model_bias", "model_weight", "n_steps", *buffers]
        native(np.ones((4, 3), np.float32))
        assert native.state["n_steps"] == 4  # three calls showed what it computes
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    for made in (model, model.forward):
        native = weft.aot(made, (weft.ones(4, 3),), dynamic_shapes={"input": {0: "n"}})
        names = ["num_batches_tracked", "running_mean", "running_var"]
        assert sorted(native.state) == [f"module_1_{name}" for name in names]
        assert native(np.ones((7, 3), np.float32)).shape == (7, 4)
