"""Names of layers and modules that programs use beside forward: what PyTorch's instances have, weft's have too."""

import copy
import inspect
import pickle
import re

import pytest

import weft
from weft import nn

# What a constructor takes where it is not (): by patterns for the class's name, the first that fits.
GIVEN = {
    "RNNBase": ("LSTM", 2, 3),
    "RNNCellBase": (2, 3, True, 4),
    "MultiheadAttention": (4, 2),
    "Transformer.+Layer": (4, 2, 8),
    "Transformer": (8, 2, 1, 1, 16),
    "LazyLinear": (3,),
    "LazyConv.*": (3, 1),
    "Unflatten": (1, (2, 2)),
    "AdaptiveLogSoftmaxWithLoss": (4, 10, [4]),
    "GroupNorm": (1, 3),
    "Lazy.*|.*Loss|Container|Parameter.*|Softmax2d|[GRSC]?E?LU|Dropout.*|Flatten|Identity": (),
    "Bilinear|Conv.*": (2, 3, 1),
    "Embedding.*|(RNN|LSTM|GRU)(Cell)?|Linear": (2, 3),
    "(Sync)?BatchNorm.*|InstanceNorm.*|LayerNorm|RMSNorm|LocalResponseNorm|CrossMapLRN2d|.*[sS]huffle": (3,),
    "ConstantPad.*|Threshold|LPPool.*": (2, 2),
    "Fold": ((2, 2), (1, 1)),
    ".*Pad[123]d|.*Pool.*|(Log)?Soft(max|min)|Unfold|Max.*|Pixel.*": (1,),
}
# They are apart: constructors of modules, or several devices.
APART = {"TransformerEncoder", "TransformerDecoder", "DataParallel", "LinearCrossEntropyLoss"}


def made(library, name):
    kind = getattr(library.nn, name)
    if "Upsampl" in name:
        return kind(scale_factor=2)
    if "Fractional" in name:
        return kind(2, output_size=1)
    return kind(*next((given for pattern, given in GIVEN.items() if re.fullmatch(pattern, name)), ()))


@pytest.mark.oracle
def test_instances_have_the_public_names_of_pytorchs():
    torch = pytest.importorskip("torch")
    names = [n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type) and n not in APART]
    names = [n for n in names if issubclass(getattr(torch.nn, n), torch.nn.Module)]
    assert len(names) > 140
    missing, printed = {}, {}
    for name in names:
        theirs, ours = made(torch, name), made(weft, name)
        lacking = [n for n in dir(theirs) if n[0] != "_" and n != "T_destination" and not hasattr(ours, n)]
        if lacking:
            missing[name] = lacking
        if repr(theirs) != repr(ours):
            printed[name] = repr(ours)
    assert missing == {"MultiheadAttention": ["merge_masks"], "TransformerEncoderLayer": ["activation_relu_or_gelu"]}
    assert printed == {}


# --- losses -----------------------------------------------------------------------------------------------------------
def test_losses_take_their_inputs_by_name():
    x, y, one = weft.randn(4, 3), weft.randn(4, 3), weft.ones(4)
    assert nn.TripletMarginLoss()(anchor=x, positive=y, negative=-y) == nn.TripletMarginLoss()(x, y, -y)
    assert nn.CosineEmbeddingLoss()(input1=x, input2=y, target=one) == nn.CosineEmbeddingLoss()(x, y, one)
    assert nn.GaussianNLLLoss()(input=x, target=y, var=y.exp()) == nn.GaussianNLLLoss()(x, y, y.exp())
    assert nn.PoissonNLLLoss()(log_input=x, target=y.abs()) == nn.PoissonNLLLoss()(x, y.abs())
    assert repr(nn.TripletMarginWithDistanceLoss().distance_function) == "PairwiseDistance()"


# --- recurrent layers -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_checks_of_recurrent_layers(kind):
    layer, x = kind(3, 5, num_layers=2, bidirectional=True), weft.randn(7, 4, 3)
    h = weft.zeros(4, 4, 5)
    hidden = (h, h) if kind is nn.LSTM else h
    assert layer.get_expected_hidden_size(x, None) == (4, 4, 5)
    assert layer.get_expected_hidden_size(x[0], weft.tensor([2, 1])) == (4, 2, 5)
    layer.check_forward_args(x, hidden, None)
    with pytest.raises(RuntimeError, match=r"Expected hidden(\[0\])? size \(4, 4, 5\), got \[4, 3, 5\]"):
        layer.check_forward_args(x, (h[:, :3], h) if kind is nn.LSTM else h[:, :3], None)
    with pytest.raises(RuntimeError, match="input must have 3 dimensions, got 2"):
        layer.check_input(x[0], None)
    with pytest.raises(RuntimeError, match="input.size"):
        layer.check_input(x[..., :2], None)
    order = weft.tensor([3, 2, 1, 0])
    marked = weft.arange(80.0).reshape(4, 4, 5)
    turned = layer.permute_hidden((marked, h) if kind is nn.LSTM else marked, order)
    assert weft.equal(turned[0] if kind is nn.LSTM else turned, marked.flip(1))
    assert layer.permute_hidden(hidden, None) is hidden
    if kind is nn.LSTM:
        assert nn.LSTM(3, 5, proj_size=2).get_expected_cell_size(x, None) == (1, 4, 5)


def test_flat_weights_can_be_read_and_assigned():
    layer, x = nn.LSTM(3, 5), weft.randn(2, 4, 3)
    before, weights = layer(x)[0], layer._flat_weights
    assert [w is v for w, v in zip(weights, layer.parameters())] == [True] * 4
    assert layer.all_weights == [weights]
    layer._flat_weights = [nn.Parameter(w * 0) for w in weights]
    layer.flatten_parameters()
    assert not layer(x)[0].any()
    assert list(layer.parameters()) == layer._flat_weights
    layer._flat_weights = weights
    assert weft.equal(layer(x)[0], before)


# --- containers -------------------------------------------------------------------------------------------------------
def test_sequential_adds_and_multiplies():
    a, b = nn.Linear(2, 2), nn.Tanh()
    net = nn.Sequential(a, b)
    assert [*(net * 2)] == [*(2 * net)] == [a, b, a, b]
    net *= 2
    net += nn.Sequential(b)
    assert [*net] == [a, b, a, b, b]
    assert net.pop(key=-1) is b
    with pytest.raises(ValueError, match="Non-positive multiplication factor 0"):
        net * 0
    with pytest.raises(TypeError, match="unsupported operand"):
        net * 1.5
    for wrong in ([b], b):
        with pytest.raises(ValueError, match="only objects of Sequential class"):
            net + wrong


# --- inside modules ---------------------------------------------------------------------------------------------------
class Counting(nn.Linear):
    """Calls itself as subclasses of PyTorch's modules do."""

    n_calls = 0

    def __call__(self, *args, **kwargs):
        self.n_calls += 1
        return self._call_impl(*args, **kwargs)

    def __setstate__(self, state):
        super().__setstate__(state)
        self.is_loaded = True


def test_calls_and_copies_of_users_classes():
    layer, seen = Counting(2, 3), []
    handle = layer.register_forward_hook(lambda *_: seen.append(1))
    x = weft.randn(4, 2)
    assert weft.equal(layer(x), layer._slow_forward(x)) and layer.n_calls == 1 and seen == [1]
    handle.remove()
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert again.is_loaded and weft.equal(again(x), layer(x))


def test_tables_of_hooks():
    layer = nn.Linear(2, 2)
    assert layer._is_full_backward_hook is None and layer._get_backward_hooks() == ([], [])
    assert not (layer._state_dict_hooks or layer._load_state_dict_pre_hooks or layer._forward_hooks_with_kwargs)
    layer.register_forward_hook(lambda *_: None)
    handle = layer.register_forward_hook(lambda *_: None, with_kwargs=True)
    assert layer._forward_hooks_with_kwargs == {handle.id: True} and not layer._forward_hooks_always_called
    layer.register_full_backward_hook(print)
    assert layer._is_full_backward_hook and layer._get_backward_hooks() == ([print], [])
    layer.register_state_dict_post_hook(lambda *args: args[1].clear())
    assert layer.state_dict() == {} and len(layer._state_dict_hooks) == 1
    layer._state_dict_hooks.clear()
    assert len(layer.state_dict()) == 2
    layer.register_buffer("scratch", weft.zeros(1), persistent=False)
    assert layer._non_persistent_buffers_set == {"scratch"}


def test_trees_by_pytorchs_keywords():
    shared = nn.Linear(2, 2)
    net, seen = nn.Sequential(shared, shared), []
    assert net.apply(fn=lambda module: seen.append(type(module))) is net and seen == [nn.Linear, nn.Sequential]
    assert len(list(net.modules())) == 2 and len(list(net.modules(remove_duplicate=False))) == 3
    assert list(inspect.signature(net.pop).parameters) == ["key"]
    assert nn.Linear.__constants__ + ["mine"] == ["mine"] and not nn.Module.dump_patches
    slopes = nn.PReLU(init=0.1)
    nn.init.zeros_(slopes.weight)
    slopes.reset_parameters()
    assert slopes.weight.item() == weft.tensor(0.1).item()
