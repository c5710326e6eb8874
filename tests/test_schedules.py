"""Schedules: whole runs against PyTorch, state that survives, errors."""

import contextlib
import copy

import numpy as np
import pytest

import weft
from weft import optim
from weft.optim import lr_scheduler

SCHEDULES = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("LinearLR", {"start_factor": 0.25, "total_iters": 4}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.5 + 1 / (1 + epoch)}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 3}),
    ("PolynomialLR", {"total_iters": 6, "power": 2.0}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    ("CyclicLR", {"base_lr": [0.01, 0.02], "max_lr": 0.5, "step_size_up": 3}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.5, "step_size_up": 2, "step_size_down": 3, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.5, "step_size_up": 2, "mode": "exp_range", "gamma": 0.9}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 2, "scale_fn": lambda x: 1 / x, "gamma": 0.9}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 14}),
    ("OneCycleLR", {"max_lr": [0.5, 1.0], "epochs": 7, "steps_per_epoch": 2, "three_phase": True, "pct_start": 0.25}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 15, "anneal_strategy": "linear", "cycle_momentum": False}),
    ("LambdaLR", {"lr_lambda": [lambda epoch: 0.9**epoch, lambda epoch: 1 / (1 + epoch)]}),
]


def two_groups(library):
    params = [library.zeros(1, requires_grad=True) for _ in range(2)]
    return library.optim.SGD([{"params": [params[0]]}, {"params": [params[1]], "lr": 0.5}], lr=0.1, momentum=0.9)


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_schedules_like_pytorch(name, options):
    torch = pytest.importorskip("torch")
    ours, theirs = two_groups(weft), two_groups(torch)
    mine = getattr(lr_scheduler, name)(ours, **options)
    reference = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    for _ in range(14):
        assert mine.get_last_lr() == [g["lr"] for g in ours.param_groups]
        np.testing.assert_allclose(mine.get_last_lr(), reference.get_last_lr(), 1e-15)
        assert [g["momentum"] for g in ours.param_groups] == [g["momentum"] for g in theirs.param_groups]
        theirs.step()
        mine.step()
        reference.step()


@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_schedules_resume(name, options):
    first, second = two_groups(weft), two_groups(weft)
    schedule, resumed = (getattr(lr_scheduler, name)(o, **options) for o in (first, second))
    for _ in range(4):
        schedule.step()
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    for _ in range(4):
        schedule.step()
        resumed.step()
    assert schedule.get_last_lr() == resumed.get_last_lr()


@pytest.mark.oracle
@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1, "cooldown": 2, "min_lr": [0.001, 0.3]},
        {"mode": "max", "patience": 0, "threshold_mode": "abs", "threshold": 0.2, "factor": 0.5},
        {"mode": "max", "patience": 0},
        {"threshold_mode": "abs", "patience": 0, "min_lr": 0.2},
    ],
)
def test_plateaus_like_pytorch(options):
    torch = pytest.importorskip("torch")
    ours, theirs = two_groups(weft), two_groups(torch)
    mine = lr_scheduler.ReduceLROnPlateau(ours, **options)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    for metric in (1.0, 0.9, 0.9, 0.9, 0.95, 0.9, 0.3, 0.31, 0.3, 0.4, 0.2, 0.2):
        mine.step(weft.tensor(metric, dtype=weft.float64))
        reference.step(metric)
        assert mine.get_last_lr() == [g["lr"] for g in theirs.param_groups]
        assert mine.num_bad_epochs == reference.num_bad_epochs


CLOSED = ("StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR", "CosineAnnealingLR")


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "options"), [c for c in SCHEDULES if c[0] in (*CLOSED, "CosineAnnealingWarmRestarts")]
)
def test_epochs_can_be_given(name, options):
    torch = pytest.importorskip("torch")
    ours, theirs = two_groups(weft), two_groups(torch)
    mine = getattr(lr_scheduler, name)(ours, **options)
    reference = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    theirs.step()
    for epoch in (3, 0, 5, 11):
        mine.step(epoch)
        with pytest.warns() if name in CLOSED else contextlib.nullcontext():
            reference.step(epoch)
        np.testing.assert_allclose(mine.get_last_lr(), reference.get_last_lr(), 1e-14)


def warm_then_restart(library, optimizer):
    schedules = library.optim.lr_scheduler
    warm = schedules.LinearLR(optimizer, 0.1, total_iters=3)
    restarts = schedules.CosineAnnealingWarmRestarts(optimizer, T_0=4)
    last = schedules.ExponentialLR(optimizer, 0.5)
    return schedules.SequentialLR(optimizer, schedulers=[warm, restarts, last], milestones=[3, 9])


def constant_and_falling(library, optimizer):
    schedules = library.optim.lr_scheduler
    both = [schedules.ConstantLR(optimizer, 0.1, total_iters=4), schedules.ExponentialLR(optimizer, gamma=0.9)]
    return schedules.ChainedScheduler(both, optimizer=optimizer)


def chain_in_a_sequence(library, optimizer):
    schedules = library.optim.lr_scheduler
    chained = schedules.ChainedScheduler([schedules.StepLR(optimizer, 2), schedules.ExponentialLR(optimizer, 0.9)])
    return schedules.SequentialLR(optimizer, [chained, schedules.ConstantLR(optimizer, 0.5, 10)], [4])


def averaging(library, optimizer):
    return library.optim.swa_utils.SWALR(optimizer, swa_lr=[0.05, 0.01], anneal_epochs=4)


def averaging_at_once(library, optimizer):
    return library.optim.swa_utils.SWALR(optimizer, 0.05, anneal_epochs=0, anneal_strategy="linear")


CHAINS = [warm_then_restart, constant_and_falling, chain_in_a_sequence, averaging, averaging_at_once]


@pytest.mark.oracle
@pytest.mark.parametrize("make", CHAINS)
def test_chains_like_pytorch(make):
    torch = pytest.importorskip("torch")
    ours, theirs = two_groups(weft), two_groups(torch)
    mine, reference = make(weft, ours), make(torch, theirs)
    for _ in range(14):
        assert mine.get_last_lr() == [g["lr"] for g in ours.param_groups]
        np.testing.assert_allclose(mine.get_last_lr(), reference.get_last_lr(), 1e-14)
        theirs.step()
        mine.step()
        reference.step()


@pytest.mark.parametrize("make", CHAINS)
def test_chains_resume(make):
    first, second = two_groups(weft), two_groups(weft)
    schedule, resumed = make(weft, first), make(weft, second)
    for _ in range(4):
        schedule.step()
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(copy.deepcopy(schedule.state_dict()))
    for _ in range(6):
        schedule.step()
        resumed.step()
    assert schedule.get_last_lr() == resumed.get_last_lr()


class Warm:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, epoch):
        return self.factor * epoch


def test_the_state_of_a_lambda_is_what_its_object_holds():
    schedule = lr_scheduler.LambdaLR(two_groups(weft), [Warm(2.0), lambda epoch: 1.0])
    state = schedule.state_dict()
    assert state["lr_lambdas"] == [{"factor": 2.0}, None]
    other = lr_scheduler.LambdaLR(two_groups(weft), [Warm(5.0), lambda epoch: 1.0])
    other.load_state_dict(state)
    assert other.lr_lambdas[0].factor == 2.0 and state["lr_lambdas"] == [{"factor": 2.0}, None]


def test_cycles_move_the_first_beta():
    param = weft.zeros(1, requires_grad=True)
    optimizer = optim.Adam([param], betas=(0.7, 0.99))
    schedule = lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=4)
    assert optimizer.param_groups[0]["betas"] == (0.95, 0.99)
    schedule.step()
    assert optimizer.param_groups[0]["betas"][0] < 0.95


def test_a_rate_kept_in_a_tensor_is_changed_there():
    rate = weft.tensor(0.5, dtype=weft.float64)
    optimizer = optim.SGD([weft.zeros(1, requires_grad=True)], lr=rate)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    schedule.step()
    assert rate.item() == 0.25 and schedule.base_lrs[0].item() == 0.5


def test_groups_added_later_get_the_common_lowest_rate():
    optimizer = two_groups(weft)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=0.2)
    listed = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=[0.2, 0.2])
    optimizer.add_param_group({"params": [weft.zeros(1, requires_grad=True)], "lr": 1.0})
    for _ in range(3):
        plateau.step(1.0)
    assert optimizer.param_groups[2]["lr"] == 0.2
    listed.step(1.0)
    with pytest.raises(RuntimeError, match="Please modify the `min_lrs` field"):
        listed.step(1.0)


def test_schedule_errors():
    optimizer = two_groups(weft)
    with pytest.raises(TypeError, match="int is not an Optimizer"):
        lr_scheduler.StepLR(3, 1)
    with pytest.raises(ValueError, match="Expected 2 lr_lambdas, but got 1"):
        lr_scheduler.LambdaLR(optimizer, [lambda epoch: 1.0])
    with pytest.raises(KeyError, match="'initial_lr' is not specified in param_groups"):
        lr_scheduler.StepLR(optimizer, 1, last_epoch=3)
    with pytest.raises(ValueError, match="Starting multiplicative factor"):
        lr_scheduler.LinearLR(optimizer, start_factor=2.0)
    with pytest.raises(ValueError, match="Ending multiplicative factor"):
        lr_scheduler.LinearLR(optimizer, end_factor=2.0)
    for options, message in (
        ({"factor": 1.0}, "Factor should be < 1.0."),
        ({"mode": "up"}, "mode up is unknown!"),
        ({"threshold_mode": "up"}, "threshold mode up is unknown!"),
        ({"min_lr": [0.0]}, "expected 2 min_lrs, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    first = lr_scheduler.StepLR(optimizer, 1)
    other = lr_scheduler.StepLR(two_groups(weft), 1)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    for call, message in (
        (lambda: lr_scheduler.ConstantLR(optimizer, factor=2.0), "Constant multiplicative factor"),
        (lambda: lr_scheduler.SequentialLR(optimizer, [], []), "expects at least one scheduler"),
        (lambda: lr_scheduler.SequentialLR(optimizer, [first], [3]), "one more than the number of milestone points"),
        (lambda: lr_scheduler.SequentialLR(optimizer, [first, other], [3]), "at index 1 has SGD"),
        (lambda: lr_scheduler.ChainedScheduler([]), "expects at least one scheduler to be chained"),
        (lambda: lr_scheduler.ChainedScheduler([plateau]), "does not support `ReduceLROnPlateau`"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, 0.1), "total_steps OR"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=0, steps_per_epoch=2), "positive integer epochs"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, 0.1, 5, pct_start=2), "Expected float between 0 and 1"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, 0.1, 5, anneal_strategy="exp"), "'cos' or 'linear'"),
        (lambda: lr_scheduler.OneCycleLR(optimizer, [0.1], 5), "max_lr has 1 values, param_groups has 2"),
        (lambda: lr_scheduler.CyclicLR(optimizer, 0.1, 0.2, mode="square"), "mode is invalid"),
        (lambda: lr_scheduler.CyclicLR(optim.Adagrad([weft.zeros(1)]), 0.1, 0.2), "must support momentum or beta1"),
        (lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 0), "Expected positive integer T_0"),
        (lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 1, 0), "Expected integer T_mult >= 1"),
        (lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 1).step(-1), "Expected non-negative epoch"),
        (lambda: optim.swa_utils.SWALR(optimizer, 0.1, anneal_epochs=-1), "anneal_epochs must be equal or greater"),
        (lambda: optim.swa_utils.SWALR(optimizer, 0.1, anneal_strategy="exp"), "anneal_strategy must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="lr_lambda should be a function, but got float"):
        lr_scheduler.MultiplicativeLR(optimizer, 0.5)
    with pytest.raises(TypeError, match="at index 0 should have `optimizer`"):
        lr_scheduler.ChainedScheduler([3], optimizer)
    once = lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=1, cycle_momentum=False, pct_start=0.0)
    once.step()
    with pytest.raises(ValueError, match="Tried to step 2 times"):
        once.step()
    with pytest.raises(NotImplementedError, match="LRScheduler must define get_lr"):
        lr_scheduler.LRScheduler(optimizer).step()


@pytest.mark.oracle
def test_a_plateau_has_pytorchs_state_and_begins_again():
    torch, plateaus = pytest.importorskip("torch"), []
    for library in (weft, torch):
        plateau = library.optim.lr_scheduler.ReduceLROnPlateau(two_groups(library), mode="max", patience=1)
        for metric in (1.0, 0.5, 0.4):
            plateau.step(metric)
        plateaus.append(plateau)
    assert plateaus[0].state_dict() == plateaus[1].state_dict() and plateaus[0].mode_worse == -float("inf")
    for plateau in plateaus:
        plateau._reset()
    assert plateaus[0].state_dict() == plateaus[1].state_dict()
