"""Parameters in containers, lazy layers, hooks of modules, and hooks about their state."""

import copy
import io
from collections import OrderedDict

import numpy as np
import pytest

import weft
from weft import nn


# --- containers -------------------------------------------------------------------------------------------------------
def test_lists_of_parameters():
    params = nn.ParameterList(weft.ones(k) for k in (1, 2))
    params += (weft.zeros(3), "no tensor")
    params.append(nn.Parameter(weft.ones(4), requires_grad=False))
    assert [len(p) for p in params if isinstance(p, nn.Parameter)] == [1, 2, 3, 4] and params[3] == "no tensor"
    assert list(dict(params.named_parameters())) == ["0", "1", "2", "4"] and len(params[1:-1]) == 3
    params[-2] = weft.ones(7)
    assert isinstance(params[3], nn.Parameter) and len(params.state_dict()) == 5
    with pytest.raises(IndexError, match="index 5 is out of range"):
        params[5]
    with pytest.raises(TypeError, match="should be called with an iterable, but got Tensor"):
        params.extend(weft.ones(2))
    with pytest.raises(RuntimeError, match="ParameterList should not be called"):
        params(1)


def test_dicts_of_parameters():
    params = nn.ParameterDict({"b": weft.ones(2), "a": nn.Parameter(weft.zeros(1)), "c": 3})
    assert list(params) == ["a", "b", "c"] and list(dict(params.named_parameters())) == ["a", "b"]
    assert "b" in params and params.get("x", 5) == 5 and params.pop("c") == 3 and len(params) == 2
    params.update(OrderedDict(z=weft.ones(1), y=weft.ones(1)))
    assert list(params.keys()) == ["a", "b", "z", "y"] and params.popitem()[0] == "y"
    assert list((params | {"k": weft.ones(1)}).keys()) == ["a", "b", "z", "k"]
    assert params.setdefault("n", weft.ones(1)) is params["n"] and "n" in params.state_dict()
    del params["n"]
    params.clear()
    assert not list(params.parameters())
    with pytest.raises(AttributeError, match="'ParameterDict' object has no attribute 'x'"):
        params["x"]
    with pytest.raises(TypeError, match="cannot be used as a key as it is not a string"):
        params[1] = weft.ones(1)
    with pytest.raises(ValueError, match="element #0 has length 3; 2 is required"):
        params.update([(1, 2, 3)])
    with pytest.raises(TypeError, match="iterable of key/value pairs, but got int"):
        params.update(3)


@pytest.mark.oracle
def test_containers_print_like_pytorch():
    torch = pytest.importorskip("torch")
    for make in (
        lambda library: library.nn.ParameterList([library.ones(2, 3), library.zeros(1, dtype=library.float64), 3]),
        lambda library: library.nn.ParameterDict({"b": library.ones(2, 3), "a": library.ones(1).double(), "c": "x"}),
    ):
        assert str(make(weft)) == str(make(torch)).replace("torch.", "weft.")


def test_containers_train_in_compiled_calls():
    found = []
    for wrap in (weft.compile, lambda function: function):
        params = nn.ParameterDict({"slope": weft.ones(3), "offset": nn.Parameter(weft.zeros(1))})
        layers = nn.ParameterList([weft.ones(3, 3) * k for k in range(2)])
        optimizer = weft.optim.SGD([*params.parameters(), *layers.parameters()], lr=0.1, momentum=0.9)

        @wrap
        def step(x, params=params, layers=layers, optimizer=optimizer):
            optimizer.zero_grad()
            for weight in layers:
                x = (x @ weight).tanh()
            loss = (x * params["slope"] + params["offset"]).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        found.append([step(weft.ones(2, 3)).item() for _ in range(5)])
    assert found[0] == found[1]


def test_buffers_by_assignment():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = nn.Buffer(weft.zeros(2))
            self.scratch = nn.Buffer(weft.ones(1), persistent=False)
            self.weight = nn.Parameter(weft.ones(2))

        def forward(self, x):
            self.seen += x.detach()
            return x * self.weight + self.seen

    layer = Layer()
    assert list(dict(layer.named_buffers())) == ["seen", "scratch"] and list(layer.state_dict()) == ["weight", "seen"]
    assert isinstance(nn.Buffer(weft.ones(1)), weft.Tensor) and nn.Buffer().shape == (0,)
    layer.seen = nn.Buffer(weft.ones(2))
    compiled = weft.compile(layer)
    for k in range(3):
        assert compiled(weft.ones(2)).tolist() == [k + 3, k + 3]
    assert layer.seen.tolist() == [4, 4]


# --- lazy layers ------------------------------------------------------------------------------------------------------
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2, bias=False))

    def forward(self, x):
        return self.layers(x)


def test_lazy_layers_become_what_they_stand_for():
    net = Net()
    weight = net.layers[0].weight
    assert isinstance(weight, nn.UninitializedParameter) and repr(weight) == "<UninitializedParameter>"
    assert net(weft.ones(3, 5)).shape == (3, 2)
    assert [type(layer) for layer in net.layers] == [nn.Linear, nn.ReLU, nn.BatchNorm1d, nn.Linear]
    assert net.layers[0].weight is weight and type(weight) is nn.Parameter and weight.shape == (4, 5)
    assert net.layers[2].num_features == 4 and net.layers[2].running_var.shape == (4,)
    optimizer = weft.optim.SGD(net.parameters(), lr=0.1)
    net(weft.ones(3, 5)).sum().backward()
    optimizer.step()
    assert len(list(net.parameters())) == 5


def test_lazy_layers_load_states_and_are_copied():
    trained, net = Net(), copy.deepcopy(Net())
    trained(weft.randn(3, 5))
    net.load_state_dict(trained.state_dict())
    x = weft.randn(3, 5)
    assert net.eval()(x).equal(trained.eval()(x))
    fresh = Net()
    fresh.load_state_dict(Net().state_dict())
    assert fresh(x).shape == (3, 2)


def test_lazy_errors():
    layer = nn.LazyLinear(2)
    with pytest.raises(RuntimeError, match="uninitialized parameter"):
        layer.weight + 1
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        layer.weight.array  # noqa: B018
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        layer.weight.shape  # noqa: B018
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        nn.Linear(2, 2).load_state_dict(layer.state_dict())


# --- hooks ------------------------------------------------------------------------------------------------------------
def hooked(library):
    """What hooks see, and the gradients in the end."""
    seen = []
    layer = library.nn.Linear(2, 2)
    with library.no_grad():
        layer.weight.copy_(library.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.bias.zero_()
    layer.register_forward_hook(lambda m, args, out: seen.append(out.tolist()))
    layer.register_forward_hook(lambda m, args, kwargs, out: out * len(kwargs), with_kwargs=True, prepend=True)
    layer.register_forward_pre_hook(
        lambda m, args, kwargs: ((args[0] * 2,), {"input": None}), with_kwargs=True
    ).remove()
    layer.register_forward_pre_hook(lambda m, args, kwargs: ((), {"input": kwargs["input"] * 3}), with_kwargs=True)
    x = library.tensor([[1.0, -1.0]], requires_grad=True)
    layer(input=x).sum().backward()
    return seen, x.grad.tolist(), layer.weight.grad.tolist()


@pytest.mark.oracle
def test_hooks_with_keywords_like_pytorch():
    torch = pytest.importorskip("torch")
    assert hooked(weft) == hooked(torch)


def backward_hooks(library, needs_grad, wrap=lambda f: f):
    seen = []
    as_lists = lambda grads: [None if g is None else g.tolist() for g in grads]  # noqa: E731

    class Layer(library.nn.Module):
        def forward(self, x, factor, y):
            return x * factor * y, y.exp()

    layer = Layer()
    layer.register_full_backward_pre_hook(lambda m, grads: tuple(None if g is None else g * 2 for g in grads))
    layer.register_full_backward_hook(lambda m, inputs, outputs: seen.append((as_lists(inputs), as_lists(outputs))))
    if needs_grad:
        layer.register_full_backward_hook(lambda m, inputs, outputs: tuple(g if g is None else g + 1 for g in inputs))
    x = library.tensor([1.0, 2.0], requires_grad=needs_grad)
    y = library.tensor([0.5, 0.25], requires_grad=needs_grad)
    weight = library.ones(2, requires_grad=True)

    def run(x, y, weight):
        first, second = layer(x * 1, 3.0, y * weight if needs_grad else y)
        (first * weight).sum().backward()
        return first

    run = wrap(run)
    for _ in range(3):
        run(x, y, weight)
    return seen, as_lists([x.grad, y.grad, weight.grad])


@pytest.mark.oracle
def test_backward_hooks_like_pytorch():
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(backward_hooks(weft, True), backward_hooks(torch, True)):
        assert ours == theirs


def test_backward_hooks_in_compiled_calls():
    assert backward_hooks(weft, True, weft.compile) == backward_hooks(weft, True)


@pytest.mark.oracle
def test_backward_hooks_without_gradients_of_inputs():
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        seen = []
        layer = library.nn.Linear(2, 1, bias=False)
        with library.no_grad():
            layer.weight.fill_(2.0)
        layer.register_full_backward_hook(
            lambda m, inputs, outputs, seen=seen: seen.append((inputs, outputs[0].tolist()))
        )
        with pytest.warns(UserWarning, match="no inputs require gradients"):
            layer(library.ones(1, 2)).sum().backward()
        found.append((seen, layer.weight.grad.tolist()))
    assert found[0] == found[1]


def test_hooks_after_exceptions():
    seen = []
    layer = nn.Linear(2, 1)
    layer.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    layer.register_forward_hook(lambda m, args, out: 1 / 0, always_call=True)
    with pytest.warns(UserWarning, match="silenced: division by zero"), pytest.raises(RuntimeError, match="Linear"):
        layer(weft.ones(2, 3))
    assert seen == [None]
    bad = nn.Linear(2, 1)
    bad.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple of"):
        bad(weft.ones(1, 2))
    with nn.Linear(2, 1).register_forward_hook(lambda m, args, out: 1 / 0) as handle:
        assert handle.id in handle.hooks
    assert not handle.hooks


# --- state ------------------------------------------------------------------------------------------------------------
def test_states_of_other_libraries():
    layer = nn.Linear(2, 3)
    arrays = {"weight": np.arange(6.0).reshape(3, 2), "bias": np.ones(3, dtype=np.float32)}
    layer.load_state_dict(arrays)
    assert layer.weight.tolist() == [[0, 1], [2, 3], [4, 5]] and layer.weight.dtype is weft.float32
    with pytest.raises(RuntimeError, match="size mismatch for bias"):
        layer.load_state_dict({**arrays, "bias": np.ones(4)})
    with pytest.raises(RuntimeError, match='named "bias", expected weft.Tensor'):
        layer.load_state_dict({**arrays, "bias": "ones"})


@pytest.mark.oracle
def test_states_of_pytorch():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    ours = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    ours.load_state_dict(theirs.state_dict(keep_vars=True))
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    np.testing.assert_allclose(ours(weft.tensor(x)).tolist(), theirs(torch.tensor(x)).tolist(), 1e-5, 1e-6)


class WithExtra(nn.Linear):
    epoch = 0

    def get_extra_state(self):
        return {"epoch": self.epoch}

    def set_extra_state(self, state):
        self.epoch = state["epoch"]


class Renamed(nn.Linear):
    """Reads states in which its weight had another name."""

    def _load_from_state_dict(self, state_dict, prefix, *args):
        if prefix + "w" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
        super()._load_from_state_dict(state_dict, prefix, *args)


def test_extra_state_and_classes_that_load_by_themselves():
    first, second = nn.Sequential(WithExtra(1, 1)), nn.Sequential(WithExtra(1, 1))
    first[0].epoch = 7
    assert list(first.state_dict()) == ["0.weight", "0.bias", "0._extra_state"]
    second.load_state_dict(first.state_dict())
    assert second[0].epoch == 7
    with pytest.raises(RuntimeError, match="Missing key.*_extra_state"):
        second.load_state_dict(nn.Sequential(nn.Linear(1, 1)).state_dict())
    module = nn.Sequential(Renamed(1, 1))
    state = {"0.w": weft.ones(1, 1), "0.bias": weft.zeros(1)}
    module.load_state_dict(state)
    assert module[0].weight.item() == 1 and list(state) == ["0.w", "0.bias"]
    with pytest.raises(RuntimeError, match='Missing key.*"0.bias"'):
        module.load_state_dict({"0.w": weft.ones(1, 1)})


def test_hooks_about_states():
    module = nn.Sequential(nn.Linear(1, 1))
    seen = []
    module.register_state_dict_pre_hook(lambda m, prefix, keep_vars: seen.append((prefix, keep_vars)))
    module.register_state_dict_post_hook(lambda m, state, prefix, metadata: state.update(note=3))
    state = module.state_dict(keep_vars=True)
    assert seen == [("", True)] and state["note"] == 3 and state["0.weight"] is module[0].weight
    with pytest.raises(RuntimeError, match="Unexpected key.*note"):
        module.load_state_dict(state)
    module.register_load_state_dict_pre_hook(lambda m, state, *rest: state.pop("note"))
    module.load_state_dict(state)
    assert "note" in state
    module.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    with pytest.raises(KeyError):
        module.load_state_dict({})
    module.load_state_dict({"note": 1})


def test_assigned_states_and_set_submodules():
    layer = nn.Linear(1, 1)
    weight = weft.ones(1, 1, dtype=weft.float64)
    layer.load_state_dict({"weight": weight, "bias": nn.Parameter(weft.zeros(1))}, assign=True)
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.dtype is weft.float64
    net = nn.Sequential(nn.Sequential(nn.ReLU()))
    net.set_submodule("0.0", nn.Tanh())
    assert isinstance(net[0][0], nn.Tanh)
    with pytest.raises(AttributeError, match="has no attribute `5`"):
        net.set_submodule("0.5", nn.Tanh(), strict=True)
    with pytest.raises(ValueError, match="is not an nn.Module"):
        net.set_submodule("0.0", 3)


def test_numbers_of_older_files_and_names_of_arguments():
    """Libraries pass what `_load_from_state_dict` is given by name, and their files have rows of one number."""

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(weft.zeros(()))

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, **others):
            super()._load_from_state_dict(state_dict, prefix, local_metadata=local_metadata, **others)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(weft.zeros(()))

    model = Plain()
    model.load_state_dict({"value": weft.tensor([3.0])})
    assert model.value.shape == () and model.value.item() == 3
    with pytest.raises(RuntimeError, match="size mismatch for value"):
        model.load_state_dict({"value": weft.ones(1, 1)})
    lists = {name: [] for name in ("missing_keys", "unexpected_keys", "error_msgs")}
    Constant()._load_from_state_dict(
        state_dict={"value": weft.ones(())}, prefix="", local_metadata={}, strict=True, **lists
    )
    assert lists["missing_keys"] == []


# --- versions of classes ----------------------------------------------------------------------------------------------
def test_states_know_the_versions_of_their_modules():
    class Newer(nn.Module):
        _version = 3

        def __init__(self):
            super().__init__()
            self.norm, self.seen = nn.BatchNorm1d(2), []
            self.register_buffer("scale", weft.ones(()))

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            self.seen.append(local_metadata)
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    module, told = Newer(), []
    module._register_state_dict_hook(lambda owner, state, prefix, metadata: told.append(metadata))
    state = module.state_dict()
    assert dict(state._metadata) == {"": {"version": 3}, "norm": {"version": 2}} and told == [{"version": 3}]
    file = io.BytesIO()
    weft.save({"model": state}, file)
    file.seek(0)
    for given in (state, copy.deepcopy(state), weft.load(file)["model"]):
        module.load_state_dict(given)
        assert module.seen.pop() == {"version": 3}
    module.load_state_dict(dict(state))
    assert module.seen.pop() == {}
    module.load_state_dict(state, assign=True)
    assert module.seen.pop() == {"version": 3, "assign_to_params_buffers": True}
    with pytest.raises(RuntimeError, match="size mismatch for scale"):
        module.load_state_dict({**state, "scale": weft.ones(2)})
    module.load_state_dict({**state, "scale": weft.full((1,), 5.0)})
    assert module.scale.item() == 5


def test_batches_were_not_counted_before_version_2():
    norm = nn.BatchNorm2d(3)
    norm(weft.ones(2, 3, 1, 1))
    older = {key: value for key, value in norm.state_dict().items() if key != "num_batches_tracked"}
    assert norm.load_state_dict(older).missing_keys == [] and norm.num_batches_tracked.item() == 1
    state = norm.state_dict()
    del state["num_batches_tracked"]
    with pytest.raises(RuntimeError, match='Missing key.*"num_batches_tracked"'):
        norm.load_state_dict(state)
