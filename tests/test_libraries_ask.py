"""What libraries of PyTorch's users import or ask for beside its public names."""

import inspect
import warnings

import pytest

import weft
from weft import nn


class Marked(weft.Tensor):
    """A class of tensors with a fact, as libraries for manifolds have them."""

    try:
        from weft._C import _disabled_torch_function_impl

        __torch_function__ = _disabled_torch_function_impl
    except ImportError:
        pass

    def __new__(cls, *args, mark=0, requires_grad=False, **kwargs):
        data = args[0].data if len(args) == 1 and isinstance(args[0], weft.Tensor) else weft.Tensor(*args, **kwargs)
        made = weft.Tensor._make_subclass(cls, data, requires_grad)
        made.mark = mark
        return made


class MarkedParameter(Marked, nn.Parameter):
    def __new__(cls, data=None, mark=None, requires_grad=True):
        if not isinstance(data, Marked):
            data = Marked(data, mark=mark or 0)
        made = Marked._make_subclass(cls, data, requires_grad)
        made.mark = data.mark
        return made


def test_a_subclass_shows_the_memory_and_has_its_facts():
    data = weft.arange(3.0)
    made = Marked(data, mark=7)
    data[0] = 5
    assert type(made) is Marked and made.mark == 7 and made.tolist() == [5, 1, 2]
    assert not made.requires_grad and made.is_leaf and isinstance(made * 2, weft.Tensor)


def test_a_subclass_of_a_tensor_with_a_history_is_a_leaf():
    x = weft.ones(2, requires_grad=True)
    assert not weft.Tensor._make_subclass(Marked, x * 2).requires_grad
    assert weft.Tensor._make_subclass(Marked, x * 2, True).is_leaf


@pytest.mark.parametrize(("cls", "data"), [(Marked, [1.0]), (int, weft.ones(1)), (None, weft.ones(1))])
def test_what_is_no_tensor_is_refused(cls, data):
    with pytest.raises(TypeError, match="must be Tensor, not list|does not inherit from Tensor"):
        weft.Tensor._make_subclass(cls, data)


def test_parameters_of_a_subclass_train_to_equal_bits():
    def trained(wrap):
        model = nn.Module()
        model.point = MarkedParameter(weft.tensor([0.6, 0.8]), mark=3)
        assert [name for name, _ in model.named_parameters()] == ["point"]
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
        target = weft.tensor([1.0, 0.0])

        @wrap
        def step():
            optimizer.zero_grad()
            loss = (model.point - target).pow(2).sum()
            loss.backward()
            optimizer.step()
            with weft.no_grad():
                model.point.copy_(model.point / model.point.norm())
            return loss

        losses = [step().item() for _ in range(6)]
        assert losses[-1] < losses[0] and model.point.mark == 3
        return losses, model.point.tolist()

    assert trained(lambda f: f) == trained(weft.compile)


def test_what_c_code_would_answer():
    assert weft._C._log_api_usage_once("library.thing") is None
    assert weft._C._disabled_torch_function_impl(weft.add, (), (weft.ones(1), 2), {"alpha": 3}).item() == 7


@pytest.mark.oracle
def test_reductions_have_pytorchs_names_and_numbers():
    torch = pytest.importorskip("torch")
    from weft.nn import _reduction

    theirs = torch.nn._reduction
    for name in ("none", "mean", "sum", "elementwise_mean"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert _reduction.get_enum(name) == theirs.get_enum(name)
    for size_average in (None, True, False):
        for reduce in (None, True, False):
            for form in ("legacy_get_string", "legacy_get_enum"):
                given = (size_average, reduce, False)
                assert getattr(_reduction, form)(*given) == getattr(theirs, form)(*given)
    with pytest.raises(ValueError, match="median is not a valid value for reduction"):
        _reduction.get_enum("median")
    with pytest.warns(UserWarning, match="reduction='sum'"):
        _reduction.legacy_get_string(False, True)


def test_what_spreads_over_devices_is_there_to_be_imported():
    from weft.nn.parallel.scatter_gather import gather, scatter

    with pytest.raises(RuntimeError, match="scatter: inputs cannot be spread over .*: weft computes on one device"):
        scatter(weft.ones(4), [0, 1])
    with pytest.raises(RuntimeError, match="gather: outputs cannot be brought to 0"):
        gather([weft.ones(4)], 0)


def test_containers_without_modules_are_not_filled():
    class Collection(nn.ModuleDict):
        def __init__(self, names):
            super().__init__()
            self.is_ready = True
            self.update({name: nn.Linear(1, 1) for name in names})

        def update(self, modules):
            assert self.is_ready
            super().update(modules)

    class Stack(nn.ModuleList):
        def extend(self, modules):
            raise AssertionError("there is nothing to add")

    assert list(Collection(["a", "b"])) == ["a", "b"] and len(Stack()) == 0


def test_what_a_module_takes_can_be_asked_before_and_after_native_code_runs_it():
    class Own(nn.Module):
        def __call__(self, x, scale=2):
            return x * scale

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    before = str(inspect.signature(model))
    step = weft.compile(lambda x: model(x).sum())
    for _ in range(6):
        step(weft.ones(3, 2))
    assert str(inspect.signature(model)) == before == "(*args, **kwargs)"
    assert str(inspect.signature(Own())) == "(x, scale=2)"
    assert list(inspect.signature(nn.Linear).parameters)[:2] == ["in_features", "out_features"]


def test_whether_a_module_has_backward_hooks_can_be_seen():
    model = nn.Linear(2, 2)
    assert len(model._backward_hooks) == len(model._backward_pre_hooks) == 0
    handle = model.register_full_backward_hook(lambda *gradients: None)
    assert list(model._backward_hooks) == [handle.id] and not model._backward_pre_hooks
    before = model.register_full_backward_pre_hook(lambda *gradients: None)
    assert list(model._backward_pre_hooks) == [before.id]
    handle.remove()
    assert not model._backward_hooks
