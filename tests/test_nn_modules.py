"""weft.nn: Module, its registration, state, modes and containers."""

import copy
from collections import OrderedDict

import numpy as np
import pytest

import weft
from weft import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.scale = nn.Parameter(weft.ones(2))
        self.register_buffer("seen", weft.zeros(1))
        self.register_buffer("scratch", weft.zeros(1), persistent=False)
        self.register_parameter("absent", None)

    def forward(self, x):
        return self.second(self.first(x)) * self.scale


# --- registration and traversal -------------------------------------------------------------------------------------
def test_names_follow_registration():
    net = Net()
    names = ["scale", "first.weight", "first.bias", "second.1.weight"]
    assert [name for name, _ in net.named_parameters()] == names
    assert [name for name, _ in net.named_modules()] == ["", "first", "second", "second.0", "second.1"]
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert [name for name, _ in net.named_buffers()] == ["seen", "scratch"]
    assert list(net.state_dict()) == ["scale", "seen", *names[1:]]
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale"]


def test_attribute_and_table_agree():
    net = Net()
    replacement = nn.Parameter(weft.zeros(2))
    net.scale = replacement
    assert net.scale is replacement and dict(net.named_parameters())["scale"] is replacement
    net.scale = None
    assert net.scale is None and "scale" not in dict(net.named_parameters())
    del net.first
    assert not hasattr(net, "first") and "first.weight" not in net.state_dict()
    net.second = nn.Identity()
    assert isinstance(dict(net.named_children())["second"], nn.Identity)
    net.seen = weft.ones(1)
    assert net.state_dict()["seen"].item() == 1.0


def test_name_can_change_its_kind():
    net = Net()
    net.seen = nn.Parameter(weft.ones(1))
    assert "seen" in dict(net.named_parameters()) and "seen" not in dict(net.named_buffers())


def test_shared_members_count_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert len(net.state_dict()) == 4
    twice = nn.Sequential(net[0], net[0])
    assert len(list(twice.modules())) == 2


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scale", 3.0, "cannot assign 'float' object to parameter 'scale' (weft.nn.Parameter or None required)"),
        (
            "scale",
            weft.ones(2),
            "cannot assign 'Tensor' object to parameter 'scale' (weft.nn.Parameter or None required)",
        ),
        ("seen", 3.0, "cannot assign 'float' object to buffer 'seen' (weft.Tensor or None required)"),
        ("first", 3.0, "cannot assign 'float' object to child module 'first' (weft.nn.Module or None required)"),
    ],
)
def test_wrong_assignments(name, value, message):
    with pytest.raises(TypeError) as error:
        setattr(Net(), name, value)
    assert str(error.value) == message


def test_registration_errors():
    net = Net()
    with pytest.raises(KeyError, match="attribute 'forward' already exists"):
        net.register_parameter("forward", nn.Parameter(weft.ones(1)))
    with pytest.raises(KeyError, match="buffer name can.+t contain a dot"):
        net.register_buffer("a.b", weft.ones(1))
    with pytest.raises(KeyError, match="module name can.+t be empty string"):
        net.add_module("", nn.ReLU())
    with pytest.raises(TypeError, match="int is not a Module subclass"):
        net.add_module("x", 3)
    with pytest.raises(TypeError, match=r"list is not a Module subclass; write Sequential\(\*modules\)"):
        nn.Sequential([nn.ReLU()])
    with pytest.raises(TypeError, match="cannot assign 'Tensor' object to parameter 'p'"):
        net.register_parameter("p", weft.ones(1))

    class Hasty(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(weft.ones(1))

    with pytest.raises(AttributeError, match="cannot assign parameters before Module.__init__.*call super"):
        Hasty()
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'missing'"):
        _ = net.missing
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)
    with pytest.raises(TypeError, match="Parameter: data is a list; it must be a Tensor"):
        nn.Parameter([1.0])


def test_parameter_shares_memory_with_its_data():
    data = weft.zeros(3)
    param = nn.Parameter(data)
    assert param.requires_grad and param.is_leaf and isinstance(param, weft.Tensor)
    data.fill_(2.0)
    assert param.tolist() == [2.0, 2.0, 2.0]
    assert not nn.Parameter(data, requires_grad=False).requires_grad


def test_submodules_by_path():
    net = Net()
    assert net.get_submodule("second.1") is net.second[1] and net.get_submodule("") is net
    assert net.get_parameter("second.1.weight") is net.second[1].weight
    with pytest.raises(AttributeError, match="Sequential has no attribute `7` that is a module"):
        net.get_submodule("second.7")
    with pytest.raises(AttributeError, match="Linear has no attribute `scale` that is a parameter"):
        net.get_parameter("first.scale")


# --- modes, conversion, copies --------------------------------------------------------------------------------------
def test_modes_reach_all_modules():
    net = Net()
    assert net.eval() is net and not any(module.training for module in net.modules())
    assert net.train() is net and all(module.training for module in net.modules())
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        net.train(1)


def test_train_is_called_on_children():
    class Frozen(nn.Module):
        def train(self, mode=True):
            return super().train(False)

    net = nn.Sequential(Frozen(), nn.ReLU()).train()
    assert (net[0].training, net[1].training) == (False, True)


def test_conversion_keeps_identity_and_converts_gradients():
    net = Net()
    weight = net.first.weight
    net(weft.ones(1, 3)).sum().backward()
    assert net.double() is net and net.first.weight is weight
    assert weight.dtype is weft.float64 and weight.grad.dtype is weft.float64 and weight.requires_grad
    assert net.seen.dtype is weft.float64
    assert net.to(weft.float32).first.weight.dtype is weft.float32
    assert net.to("cpu") is net
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
        net.to(weft.int64)
    with pytest.raises(RuntimeError, match="weft computes on the CPU, got 'cuda'"):
        net.to("cuda")


def test_apply_visits_children_first():
    seen = []
    Net().apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_zero_grad():
    net = Net()
    net(weft.ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0.0, 0.0]
    net.zero_grad()
    assert net.scale.grad is None


def test_deep_copies_are_independent():
    net = Net()
    twin = copy.deepcopy(net)
    assert isinstance(twin.scale, nn.Parameter) and twin.scale is not net.scale
    assert twin.scale is twin._parameters["scale"]
    with weft.no_grad():
        net.scale.fill_(5.0)
    assert twin.scale.tolist() == [1.0, 1.0]


def test_hooks_change_arguments_and_results():
    layer = nn.Identity()
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1.0,))
    after = layer.register_forward_hook(lambda module, args, output: output * 10.0)
    assert layer(weft.tensor([1.0])).tolist() == [20.0]
    before.remove()
    assert layer(weft.tensor([1.0])).tolist() == [10.0]
    after.remove()
    assert layer(weft.tensor([1.0])).tolist() == [1.0]
    seen = []
    layer.register_forward_hook(lambda module, args, output: seen.append(output))
    layer(weft.tensor([1.0]))
    assert len(seen) == 1


# --- state_dict -----------------------------------------------------------------------------------------------------
def test_state_dict_shares_memory_and_loads_in_place():
    net, other = Net(), Net()
    weight = other.first.weight
    result = other.load_state_dict(net.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    assert other.first.weight is weight and weight.tolist() == net.first.weight.tolist()
    assert not net.state_dict()["scale"].requires_grad and net.state_dict(keep_vars=True)["scale"] is net.scale
    with weft.no_grad():
        net.state_dict()["scale"].fill_(7.0)
    assert net.scale.tolist() == [7.0, 7.0]


def test_loading_errors_name_the_keys_and_change_nothing():
    net = Net()
    before = net.scale.tolist()
    state = net.state_dict()
    del state["seen"]
    state["scale"] = weft.full((2,), 9.0)
    state["more"] = weft.zeros(1)
    state["first.bias"] = weft.zeros(5)
    state["first.weight"] = 3
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    assert str(error.value).split("\n\t") == [
        "Error(s) in loading state_dict for Net:",
        'Missing key(s) in state_dict: "seen". ',
        'Unexpected key(s) in state_dict: "more". ',
        'While copying the parameter named "first.weight", expected weft.Tensor from checkpoint but received '
        "<class 'int'>",
        "size mismatch for first.bias: copying a param with shape (5,) from checkpoint, "
        "the shape in current model is (4,).",
    ]
    assert net.scale.tolist() == before
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like"):
        net.load_state_dict([])


def test_loading_without_strict_reports_keys():
    net = Net()
    result = net.load_state_dict({"scale": weft.full((2,), 9.0), "more": weft.zeros(1)}, strict=False)
    assert result.unexpected_keys == ["more"] and "first.weight" in result.missing_keys
    assert net.scale.tolist() == [9.0, 9.0]


# --- containers -----------------------------------------------------------------------------------------------------
def test_sequential_is_a_list_of_modules():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert (
        len(net) == 3 and isinstance(net[-1], nn.Linear) and [type(m).__name__ for m in net[1:]] == ["ReLU", "Linear"]
    )
    net.append(nn.Sigmoid())
    net[1] = nn.Tanh()
    del net[2]
    assert [type(m).__name__ for m in net] == ["Linear", "Tanh", "Sigmoid"]
    assert list(net._modules) == ["0", "1", "2"]
    net.insert(1, nn.ReLU())
    assert [type(m).__name__ for m in net] == ["Linear", "ReLU", "Tanh", "Sigmoid"]
    assert isinstance(net.pop(-1), nn.Sigmoid) and len(net) == 3
    named = nn.Sequential(OrderedDict([("a", nn.Identity()), ("b", nn.ReLU())]))
    assert named(weft.tensor([-1.0])).tolist() == [0.0] and list(named._modules) == ["a", "b"]
    assert list(named[:1]._modules) == ["a"]
    assert len(net + named) == 5
    with pytest.raises(IndexError, match="index 9 is out of range for 3 modules"):
        _ = net[9]


def test_module_list_and_dict():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    layers += [nn.ReLU()]
    assert len(layers) == 4 and len(list(layers.parameters())) == 6 and len(layers[1:3]) == 2
    table = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
    table["c"] = nn.Identity()
    assert list(table) == ["a", "b", "c"] and "a" in table and len(table) == 3
    assert isinstance(table.pop("a"), nn.ReLU) and "a" not in table
    table.clear()
    assert len(table) == 0


def oracle_net(library):
    class Block(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = library.nn.LayerNorm((2, 3), bias=False)
            self.layers = library.nn.ModuleList([library.nn.Linear(3, 3) for _ in range(2)] + [library.nn.Tanh()])
            self.table = library.nn.ModuleDict({"x": library.nn.GELU("tanh"), "y": library.nn.Sequential()})
            self.drop = library.nn.Dropout(0.1)
            self.codes = library.nn.Embedding(4, 5, padding_idx=-1)

    return library.nn.Sequential(Block(), library.nn.Flatten(), library.nn.LeakyReLU(0.2, True))


@pytest.mark.oracle
def test_text_is_pytorchs():
    torch = pytest.importorskip("torch")
    assert repr(oracle_net(weft)) == repr(oracle_net(torch))
    assert list(oracle_net(weft).state_dict()) == list(oracle_net(torch).state_dict())
    plain = "ReLU ReLU6 SiLU Mish SELU Hardswish Hardsigmoid Sigmoid Tanh Softsign LogSigmoid GELU LeakyReLU ELU CELU "
    plain += "Hardtanh Softplus PReLU GLU Softmax LogSoftmax Dropout Flatten Identity MSELoss L1Loss SmoothL1Loss "
    plain += "HuberLoss KLDivLoss NLLLoss CrossEntropyLoss BCELoss BCEWithLogitsLoss Sequential ModuleList ModuleDict"
    for name in plain.split():
        assert repr(getattr(nn, name)()) == repr(getattr(torch.nn, name)())
    for name in ("ReLU", "ReLU6", "SiLU", "Mish", "SELU", "ELU", "CELU", "Hardtanh", "LeakyReLU", "Dropout"):
        assert repr(getattr(nn, name)(inplace=True)) == repr(getattr(torch.nn, name)(inplace=True))
    for name in ("LayerNorm", "RMSNorm"):
        assert repr(getattr(nn, name)(3)) == repr(getattr(torch.nn, name)(3))


# --- adaptive softmax -------------------------------------------------------------------------------------------------
def adaptive(library, **options):
    layer = library.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], **options).double()
    with library.no_grad():
        for k, param in enumerate(layer.parameters()):
            values = library.linspace(-1, 1, param.numel(), dtype=library.float64).reshape(param.shape)
            param.copy_((values * (k + 3)).sin())
    return layer


@pytest.mark.oracle
@pytest.mark.parametrize("options", [{}, {"div_value": 2.0, "head_bias": True}])
def test_adaptive_softmax_like_pytorch(options):
    torch = pytest.importorskip("torch")
    found = []
    for library in (weft, torch):
        layer = adaptive(library, **options)
        x = library.linspace(-1, 1, 40, dtype=library.float64).reshape(5, 8).cos().requires_grad_()
        output, loss = layer(x, library.tensor([0, 5, 11, 2, 7]))
        loss.backward()
        single = layer(x[0], library.tensor(4)).output
        values = [
            output,
            loss,
            single,
            layer.log_prob(x),
            layer.predict(x),
            x.grad,
            *(p.grad for p in layer.parameters()),
        ]
        found.append([v.detach().numpy() for v in values])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, 1e-9, 1e-12)


def test_adaptive_softmax_errors():
    layer = adaptive(weft)
    x = weft.ones(2, 8).double()
    for target, message in (
        (weft.tensor([0, 12]), r"Target values should be in \[0, 11\], but values in range \[0, 12\]"),
        (weft.tensor([0]), "same size in the batch dimension"),
        (weft.tensor(0), "0D target tensor expects 1D input"),
        (weft.zeros(2, 1).long(), "multi-target not supported"),
    ):
        with pytest.raises(RuntimeError, match=message):
            layer(x, target)
    for cutoffs in ([], [3, 3], [12], [0, 3]):
        with pytest.raises(ValueError, match="cutoffs should be a sequence of"):
            nn.AdaptiveLogSoftmaxWithLoss(8, 12, cutoffs)


def test_a_module_compiles_itself():
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x, names = weft.randn(5, 3), list(model.state_dict())
    plain = model(x)
    assert model.compile() is None
    for _ in range(4):
        assert weft.equal(model(x), plain) and list(model.state_dict()) == names
    model(x).sum().backward()
    assert model[0].weight.grad is not None
    twin = copy.deepcopy(model)
    with weft.no_grad():
        model[0].weight.mul_(2)
    assert weft.equal(twin(x), plain) and not weft.equal(model(x), plain)


@pytest.mark.parametrize("kind", [nn.Module, weft.optim.Optimizer, weft.Tensor, weft.Generator])
def test_every_name_that_a_class_lists_can_be_asked_for(kind):
    """Libraries copy docstrings from class to class, by all names there are."""
    assert [name for name in dir(kind) if name[:2] != "__" and not hasattr(kind, name)] == []


# --- functions in the class -----------------------------------------------------------------------------------------
def scaled(module, x):
    return x * module.scale


def filtered(T):
    """A module whose class holds functions of the library, which are no methods, and one of its own, which is."""

    class Filter(T.nn.Module):
        blur, squash, size, bend = T.conv2d, T.tanh, T.linalg.vector_norm, T.special.erf
        act, own = T.nn.functional.gelu, scaled

        def __init__(self):
            super().__init__()
            self.scale = T.nn.Parameter(T.tensor(1.5))

        def forward(self, x, kernel):
            y = self.squash(self.blur(self.own(x), weight=kernel, padding=1))
            return self.act(self.bend(y)) / self.size(y)

    class Narrower(Filter):
        squash = T.sigmoid

    return Filter(), Narrower()


@pytest.mark.oracle
@pytest.mark.parametrize("k", [0, 1])
def test_functions_in_a_class_are_no_methods(k):
    torch = pytest.importorskip("torch")
    rng, seen = np.random.default_rng(1), []
    arrays = [(rng.normal(size=(2, 1, 5, 5)), rng.normal(size=(1, 1, 3, 3))) for _ in range(6)]
    for T, wrap in ((torch, lambda f: f), (weft, lambda f: f), (weft, weft.compile)):
        module, found = filtered(T)[k], []
        call = wrap(module)
        for pair in arrays:
            out = call(*map(T.tensor, pair))
            module.zero_grad()
            out.sum().backward()
            found += [out.detach().numpy(), module.scale.grad.numpy()]
        seen.append(found)
    for theirs, ours, compiled in zip(*seen):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert (ours == compiled).all()
