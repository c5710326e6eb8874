"""Optimizers and schedules: first steps by hand, whole runs against PyTorch, state that survives, errors."""

import copy
import math

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.optim import lr_scheduler

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.05, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "betas": (0.4, 0.8)}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "amsgrad": True, "weight_decay": 0.3, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.4, "centered": True, "weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.5, "maximize": True}),
    ("RMSprop", {"momentum": 0.5, "centered": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adafactor", {}),
    (
        "Adafactor",
        {"lr": 0.3, "weight_decay": 0.1, "maximize": True, "eps": (1e-4, 0.1), "d": 1.5, "beta2_decay": -0.3},
    ),
    ("Adamax", {"lr": 0.1}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1, "maximize": True, "betas": (0.4, 0.8)}),
    ("RAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.4, 0.8)}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("NAdam", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "momentum_decay": 0.3, "maximize": True}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.4, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {"lr": 0.1}),
    ("Rprop", {"lr": 0.1, "etas": (0.3, 1.7), "step_sizes": (0.05, 0.2), "maximize": True}),
    ("ASGD", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 2, "alpha": 0.5, "weight_decay": 0.1, "maximize": True}),
]
SHAPES = ((3, 4), (5,), ())


def draws(seed):
    """One array per shape; gradients above and below 1, and exact zeros."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=s) * (rng.random(s) > 0.2)) for s in SHAPES]


def leaves(library, dtype="float64"):
    return [library.tensor(a, dtype=getattr(library, dtype), requires_grad=True) for a in draws(0)]


def set_gradients(library, params, seed, skip=()):
    for k, (param, grad) in enumerate(zip(params, draws(seed))):
        param.grad = None if k in skip else library.tensor(grad, dtype=param.dtype)


def assert_equal(ours, theirs, tolerance):
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), tolerance, tolerance)


@pytest.fixture
def wide_torch():
    """PyTorch keeps numbers of its optimizers in tensors of the default type; weft keeps floats."""
    torch = pytest.importorskip("torch")
    torch.set_default_dtype(torch.float64)
    yield torch
    torch.set_default_dtype(torch.float32)


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-6)])
def test_runs_like_pytorch(name, options, dtype, tolerance, wide_torch):
    torch = wide_torch
    ours, theirs = leaves(weft, dtype), leaves(torch, dtype)
    mine = getattr(optim, name)(ours, **options)
    reference = getattr(torch.optim, name)(theirs, foreach=False, **options)
    for step in range(1, 8):
        # The second parameter joins late, so that its step count differs.
        skip = (1,) if step < 3 else ()
        set_gradients(weft, ours, step, skip)
        set_gradients(torch, theirs, step, skip)
        mine.step()
        reference.step()
        assert_equal(ours, theirs, tolerance)
    state = reference.state_dict()["state"]
    for number, values in mine.state_dict()["state"].items():
        for key, value in values.items():
            np.testing.assert_allclose(
                float(value.sum() if isinstance(value, weft.Tensor) else value), state[number][key].sum(), 1e-5, 1e-7
            )


@pytest.mark.parametrize(("name", "options"), CASES)
def test_compiled_steps_have_the_same_bits(name, options):
    results = []
    for wrap in (weft.compile, lambda function: function):
        params = leaves(weft, "float32")
        optimizer = getattr(optim, name)(params, **options)
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
        x = weft.tensor(draws(1)[0], dtype=weft.float32)

        def run(x, params=params, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((x * params[0]).sum() - params[2]) ** 2 + (params[1] ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(run)
        losses = [step(x).item() for _ in range(4) if schedule.step() is None]
        results.append((losses, [p.tolist() for p in params]))
    assert results[0] == results[1]


def one(value, grad):
    param = nn.Parameter(weft.tensor([value], dtype=weft.float64))
    param.grad = weft.tensor([grad], dtype=weft.float64)
    return param


def test_first_steps_by_hand():
    param = one(1.0, 2.0)
    optim.SGD([param], lr=0.25).step()
    assert param.item() == 0.5
    param = one(1.0, 2.0)
    optim.Adam([param], lr=0.5, eps=0.0).step()
    np.testing.assert_allclose(param.item(), 0.5, 1e-14)
    param = one(1.0, 2.0)
    optim.AdamW([param], lr=0.5, eps=0.0, weight_decay=0.5).step()
    np.testing.assert_allclose(param.item(), 0.25, 1e-14)
    param = one(1.0, 2.0)
    optim.RMSprop([param], lr=0.5, alpha=0.75, eps=0.0).step()
    np.testing.assert_allclose(param.item(), 0.0, atol=1e-14)
    param = one(1.0, 2.0)
    optim.Adagrad([param], lr=0.5, eps=0.0).step()
    np.testing.assert_allclose(param.item(), 0.5, 1e-14)


def test_updates_are_in_place_and_unrecorded():
    param = one(1.0, 2.0)
    array = param.detach().numpy()
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"):
        getattr(optim, name)([param], lr=0.1).step()
    assert np.shares_memory(array, param.detach().numpy()) and array[0] == param.item() != 1.0
    assert param.is_leaf and param.requires_grad and param.grad.item() == 2.0


def test_parameters_without_gradient_stay():
    first, second = one(1.0, 2.0), one(1.0, 2.0)
    second.grad = None
    optimizer = optim.SGD([first, second], lr=0.25, momentum=0.9)
    optimizer.step()
    assert (first.item(), second.item()) == (0.5, 1.0)
    assert second not in optimizer.state or not optimizer.state[second]


def test_training_reduces_a_loss():
    weft.manual_seed(0)
    x = weft.randn(64, 3)
    y = x @ weft.tensor([[1.0], [-2.0], [0.5]]) + 0.25
    for name, lr in (("SGD", 0.1), ("Adam", 0.1), ("AdamW", 0.1), ("RMSprop", 0.02), ("Adagrad", 0.5)):
        model = nn.Linear(3, 1)
        optimizer = getattr(optim, name)(model.parameters(), lr=lr)
        for _ in range(100):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        assert loss.item() < 0.05, name


def test_closure_runs_with_gradients():
    param = one(3.0, 0.0)
    optimizer = optim.SGD([param], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (param * param).sum()
        loss.backward()
        return loss

    with weft.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert param.item() == 0.0


def test_zero_grad():
    param = one(1.0, 2.0)
    optimizer = optim.SGD([param])
    optimizer.zero_grad(set_to_none=False)
    assert param.grad.tolist() == [0.0]
    optimizer.zero_grad()
    assert param.grad is None


def test_gradients_filled_with_zeros_stay_the_tensors_they_are():
    param = one(1.0, 2.0)
    optimizer, gradient = optim.SGD([param]), param.grad
    optimizer.zero_grad(set_to_none=False)
    assert param.grad is gradient
    param.grad = None
    (param**3).sum().backward(create_graph=True)
    optimizer.zero_grad(set_to_none=False)
    assert (param.grad.tolist(), param.grad.requires_grad, param.grad.grad_fn) == ([0.0], False, None)
    param.grad.requires_grad_()
    nn_module = weft.nn.ParameterList([param])
    gradient = param.grad
    nn_module.zero_grad(set_to_none=False)
    assert param.grad is gradient and not param.grad.requires_grad


# --- groups ---------------------------------------------------------------------------------------------------------
def test_groups_have_their_own_options():
    first, second, third = one(1.0, 1.0), one(1.0, 1.0), one(1.0, 1.0)
    optimizer = optim.SGD([{"params": [first]}, {"params": second, "lr": 0.5}], lr=0.25)
    optimizer.add_param_group({"params": (p for p in [third]), "momentum": 0.9})
    optimizer.step()
    assert [p.item() for p in (first, second, third)] == [0.75, 0.5, 0.75]
    assert [g["momentum"] for g in optimizer.param_groups] == [0, 0, 0.9]


def test_named_parameters_keep_their_names():
    optimizer = optim.SGD(nn.Linear(2, 2).named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]


def test_group_errors():
    param = one(1.0, 1.0)
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts, but got a Tensor"):
        optim.SGD(param)
    with pytest.raises(TypeError, match=r"but got a Linear; pass its parameters: model.parameters\(\)"):
        optim.SGD(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        optim.SGD([])
    with pytest.raises(TypeError, match="optimizer can only optimize Tensors, but one of the params is int"):
        optim.SGD([1])
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        optim.SGD([param * 2.0])
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optim.SGD([{"params": [param]}, {"params": [param]}])
    with pytest.raises(TypeError, match="need to be organized in ordered collections"):
        optim.SGD([{"params": {param}}])
    with pytest.raises(TypeError, match="param_group must be a dict"):
        optim.SGD([param]).add_param_group([param])
    with pytest.raises(ValueError, match="Some param names are missing"):
        optim.SGD([("a", param), one(1.0, 1.0)])
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([param, param])
    with pytest.raises(NotImplementedError, match="Optimizer must define update_group"):
        optim.Optimizer([param], {}).step()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("SGD", {"lr": -1}, "Invalid learning rate: -1"),
        ("SGD", {"lr": math.nan}, "Invalid learning rate: nan"),
        ("SGD", {"momentum": -1}, "Invalid momentum value: -1"),
        ("SGD", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
        ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
        ("Adam", {"lr": -1}, "Invalid learning rate: -1"),
        ("Adam", {"eps": -1}, "Invalid epsilon value: -1"),
        ("Adam", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ("AdamW", {"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
        ("AdamW", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
        ("RMSprop", {"alpha": -1}, "Invalid alpha value: -1"),
        ("RMSprop", {"momentum": -1}, "Invalid momentum value: -1"),
        ("Adafactor", {"d": 0.5}, "Clipping threshold d should be >= 1 but is: 0.5"),
        ("Adamax", {"lr": -1}, "Invalid learning rate: -1"),
        ("RAdam", {"eps": -1}, "Invalid epsilon value: -1"),
        ("NAdam", {"momentum_decay": -1}, "Invalid momentum_decay value: -1"),
        ("Adadelta", {"rho": 1.5}, "Invalid rho value: 1.5"),
        ("Rprop", {"etas": (1.5, 2.0)}, "Invalid eta values: 1.5, 2.0"),
        ("ASGD", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
        ("LBFGS", {"lr": -1}, "Invalid learning rate: -1"),
        ("Adagrad", {"lr_decay": -1}, "Invalid lr_decay value: -1"),
        ("Adagrad", {"initial_accumulator_value": -1}, "Invalid initial_accumulator_value value: -1"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(ValueError) as error:
        getattr(optim, name)([one(1.0, 1.0)], **options)
    assert str(error.value) == message


# --- state ----------------------------------------------------------------------------------------------------------
def test_a_group_without_parameters():
    with pytest.raises(KeyError, match="needs the key 'params', and this one has"):
        optim.SGD([{"lr": 0.1}])


@pytest.mark.parametrize(("name", "options"), CASES)
def test_state_survives(name, options):
    params = leaves(weft)
    optimizer = getattr(optim, name)(params, **options)
    for step in (1, 2):
        set_gradients(weft, params, step)
        optimizer.step()
    copies = copy.deepcopy(params)
    other = getattr(optim, name)(copies, lr=123.0)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    for p, own in ((params, optimizer), (copies, other)):
        set_gradients(weft, p, 3)
        own.step()
    assert [p.tolist() for p in params] == [p.tolist() for p in copies]


def test_loading_converts_state_to_the_parameter():
    wide, narrow = [leaves(weft, d) for d in ("float64", "float32")]
    optimizer, other = optim.Adam(wide), optim.Adam(narrow)
    set_gradients(weft, wide, 1)
    optimizer.step()
    other.load_state_dict(optimizer.state_dict())
    assert other.state[narrow[0]]["exp_avg"].dtype is weft.float32 and other.state[narrow[0]]["step"] == 1
    other.state[narrow[0]]["exp_avg"].fill_(0.0)
    assert optimizer.state[wide[0]]["exp_avg"].abs().sum().item() > 0


@pytest.mark.oracle
def test_pytorch_state_continues_here():
    torch = pytest.importorskip("torch")
    theirs = leaves(torch)
    reference = torch.optim.Adam(theirs, foreach=False)
    set_gradients(torch, theirs, 1)
    reference.step()
    ours = [weft.tensor(p.detach().numpy(), requires_grad=True) for p in theirs]
    mine = optim.Adam(ours)
    saved = reference.state_dict()
    mine.load_state_dict(saved)
    arrays = {n: {k: v.numpy() for k, v in values.items()} for n, values in saved["state"].items()}
    mine.load_state_dict({"state": arrays, "param_groups": saved["param_groups"]})
    for library, params, optimizer in ((torch, theirs, reference), (weft, ours, mine)):
        set_gradients(library, params, 2)
        optimizer.step()
    assert_equal(ours, theirs, 1e-14)


def test_loaded_options_are_the_optimizers_own():
    """Numbers, lists, tuples with lists in them, tensors: what is changed in one place stays as it was in the other."""
    options = {
        "lr": 0.5,
        "marks": [1, 2],
        "pair": ([3], 4),
        "limit": weft.tensor(2.0),
        "note": None,
        "betas": (0.9, 0.8),
    }
    first, second = (optim.SGD([{"params": [one(1.0, 1.0)], **copy.deepcopy(options)}]) for _ in range(2))
    saved = first.state_dict()
    second.load_state_dict(saved)
    second.load_state_dict({**saved, "param_groups": [{**saved["param_groups"][0], "params": ["by name"]}]})
    ours, theirs = saved["param_groups"][0], second.param_groups[0]
    theirs["lr"] = 0.1
    theirs["marks"].append(3)
    theirs["pair"][0].append(5)
    theirs["limit"].mul_(3.0)
    assert (ours["lr"], ours["marks"], ours["pair"], ours["limit"].item()) == (0.5, [1, 2], ([3], 4), 2.0)
    assert (theirs["marks"], theirs["pair"], theirs["limit"].item()) == ([1, 2, 3], ([3, 5], 4), 6.0)
    plain, other = optim.Adam([one(1.0, 1.0)], lr=0.5), optim.Adam([one(1.0, 1.0)])
    saved = plain.state_dict()
    other.load_state_dict(saved)
    other.param_groups[0]["lr"] = 0.25
    assert saved["param_groups"][0]["lr"] == plain.param_groups[0]["lr"] == 0.5


def test_loading_errors():
    one_group = optim.SGD([one(1.0, 1.0)])
    two_groups = optim.SGD([{"params": [one(1.0, 1.0)]}, {"params": [one(1.0, 1.0)]}])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        one_group.load_state_dict(two_groups.state_dict())
    two_params = optim.SGD([one(1.0, 1.0), one(1.0, 1.0)])
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        one_group.load_state_dict(two_params.state_dict())


def test_text():
    assert repr(optim.SGD([one(1.0, 1.0)], lr=0.1)) == (
        "SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n"
        "    lr: 0.1\n    maximize: False\n    momentum: 0\n"
        "    nesterov: False\n    weight_decay: 0\n)"
    )
