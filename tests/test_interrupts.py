"""Exceptions that come from outside at any moment: a signal handler's, for a Ctrl-C or a timeout.

State of an optimizer is there whole or not at all, no call stays open, and training can go on. Where handlers run
CPython decides: when a function begins, and after calls. A profile function is called in the same places, so here it
raises, in one place after the other. (It is called before calls of C functions too, but no handler runs there: at the
end of a `with` block, before the lock is released.)
"""

import contextlib
import copy
import random
import signal
import sys

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.nn import functional as F
from weft.runtime.eager.update import update
from weft.runtime.state.modes import state

OPTIMIZERS = {
    "SGD": {"lr": 0.01},
    "SGD momentum": {"lr": 0.01, "momentum": 0.9, "dampening": 0.5},
    "Adam": {"lr": 0.01},
    "Adam amsgrad": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "Adagrad": {"lr": 0.01},
}
KEYS = {
    "SGD": set(),
    "SGD momentum": {"momentum_buffer"},
    "Adam": {"step", "exp_avg", "exp_avg_sq"},
    "Adam amsgrad": {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    "AdamW": {"step", "exp_avg", "exp_avg_sq"},
    "RMSprop": {"step", "square_avg", "grad_avg", "momentum_buffer"},
    "Adagrad": {"step", "sum"},
}
N_PLACES = 16  # of each call; other ones for each optimizer


# In a finalizer an exception only makes a warning.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Stop(Exception):
    pass


def places_in(function):
    """In how many places an exception can come in a call of the function."""
    n = [0]

    def count(frame, event, argument):
        n[0] += event != "c_call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return n[0]


def interrupt(function, place):
    """Whether an exception that comes in this place of the call got out of it."""
    left = [place]

    def stop(frame, event, argument):
        left[0] -= event != "c_call"
        if left[0] < 0:
            sys.setprofile(None)
            raise Stop

    try:
        sys.setprofile(stop)
        try:
            function()
        finally:
            sys.setprofile(None)  # itself a place
    except Stop:
        return True
    return False


def every_place(make, first=0):
    """For some places all over a call of what `make` gives: (what was made, after the call was interrupted there)."""
    for _ in range(3):
        make()[0]()  # kernels are compiled, and eager ops find out what they look up from then on
    n = places_in(make()[0])
    step = max(1, n // N_PLACES)
    for place in range(first % step, n, step):
        function, *rest = make()
        if interrupt(function, place):
            yield place, function, *rest


def every_place_of(name, compile, calls_before=0):
    """The same of training steps; between the places of two optimizers lie those of the others."""
    return every_place(lambda: training(name, compile, calls_before), 5 * list(OPTIMIZERS).index(name))


def training(name, compile, calls_before=0):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = getattr(optim, name.split()[0])(model.parameters(), **OPTIMIZERS[name])
    x, y = weft.randn(6, 4), weft.randn(6, 1)

    @compile
    def run(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def step():
        return run(x, y)

    for _ in range(calls_before):
        step()
    return step, model, optimizer


def undecorated(function):
    return function


def require_whole(name, step, model, optimizer):
    assert state.frame is None
    for values in optimizer.state.values():
        assert not values or values.keys() == KEYS[name], values.keys()
    losses = [step().item() for _ in range(4)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert all(optimizer.state[p].keys() == KEYS[name] for p in model.parameters() if KEYS[name])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("calls_before", [0, 1])
def test_steps_in_eager_mode(name, calls_before):
    n = 0
    for _, step, model, optimizer in every_place_of(name, undecorated, calls_before):
        require_whole(name, step, model, optimizer)
        n += 1
    # What native code has taken over meanwhile has no such places any more.
    assert n >= 1


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("calls_before", [0, 1, 2, 5])
def test_compiled_steps(name, calls_before):
    for _, step, model, optimizer in every_place_of(name, weft.compile, calls_before):
        require_whole(name, step, model, optimizer)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_that_are_compiled_after_a_while(name, monkeypatch):
    monkeypatch.setattr("weft.optim.steady.STEPS_BEFORE", 2)
    monkeypatch.setattr("weft.optim.steady._pays", lambda optimizer, is_native: True)
    for _, step, model, optimizer in every_place_of(name, undecorated, 6):
        require_whole(name, step, model, optimizer)


def test_an_update_does_not_take_it_for_a_refusal():
    """An exception that comes while a rule is tried on shapes is not the rule's."""
    tries = []

    def rule(x):
        tries.append(x)
        if len(tries) == 1:
            raise Stop
        return (x * 2,)

    x = weft.ones(3)
    run = weft.compile(lambda: update(rule, [(x,)]))
    with weft.no_grad():
        with pytest.raises(Stop):
            run()
        run()
    assert x.tolist() == [2.0] * 3 and len(tries) > 1


@pytest.mark.parametrize("calls_before", [0, 2, 6])
@pytest.mark.parametrize("native", [True, False])
def test_an_exception_while_another_ends_the_call(calls_before, native, monkeypatch):
    if not native:
        monkeypatch.setattr("weft.runtime.replay.native.layout", lambda: None)

    def make():
        w, fails = weft.ones(3, requires_grad=True), [False]

        @weft.compile
        def run(x):
            loss = (w * x).sum()
            loss.backward()
            w.grad = None
            if fails[0]:
                raise ValueError
            return loss * 2

        for _ in range(calls_before):
            run(weft.ones(3))
        fails[0] = True
        return lambda: _ignoring(ValueError, run, weft.ones(3)), run, fails, w

    for _, _, run, fails, w in every_place(make):
        assert state.frame is None
        fails[0], w.grad = False, None
        assert run(weft.ones(3)).item() == 6


def _ignoring(error, function, *args):
    with contextlib.suppress(error):
        function(*args)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if KEYS[name]])
@pytest.mark.parametrize("compile", [undecorated, weft.compile])
def test_where_state_is_made(name, compile):
    """Places closer together, about where the state of the parameters is made."""

    def make():
        step, model, optimizer = training(name, compile)
        F.mse_loss(model(weft.ones(6, 4)), weft.ones(6, 1)).backward()
        group = optimizer.param_groups[0]
        return compile(lambda: optimizer.update_group(group)), step, model, optimizer

    for place in range(0, min(places_in(make()[0]), 300), 7):
        function, *rest = make()
        with weft.no_grad():
            interrupt(function, place)
        require_whole(name, *rest)


def test_a_buffer_that_is_there_holds_a_direction():
    """With dampening, a first step is not like the others: one that was interrupted has not been."""
    for place in range(200):
        w = weft.ones(3, requires_grad=True)
        optimizer = optim.SGD([w], lr=0.5, momentum=0.5, dampening=0.5)
        w.grad = weft.ones(3)
        if not interrupt(optimizer.step, place):
            break
        before = w.tolist()
        optimizer.step()
        moved = [a - b for a, b in zip(before, w.tolist())]
        # A first step moves by 0.5; a second one, if the first has been made, by 0.5 * (0.5 * 1 + 0.5 * 1).
        assert moved == [0.5] * 3 and optimizer.state[w]["momentum_buffer"].tolist() == [1.0] * 3
    assert place > 20


def test_load_state_dict_is_whole():
    def make():
        w = [weft.ones(3, requires_grad=True) for _ in range(2)]
        optimizer = optim.Adam(w, lr=0.5)
        for p in w:
            p.grad = weft.ones(3)
        optimizer.step()
        saved = copy.deepcopy(optimizer.state_dict())
        optimizer.step()
        saved["param_groups"][0]["lr"] = 0.25
        return lambda: optimizer.load_state_dict(saved), optimizer, w

    n = 0
    for _, _, optimizer, w in every_place(make):
        found = (optimizer.param_groups[0]["lr"], [optimizer.state[p]["step"] for p in w])
        assert found in ((0.5, [2, 2]), (0.25, [1, 1]))
        n += found[0] == 0.5
    assert n > 10


def test_a_state_dict_that_does_not_fit_changes_nothing():
    w = weft.ones(3, requires_grad=True)
    optimizer = optim.Adam([w])
    w.grad = weft.ones(3)
    optimizer.step()
    before = optimizer.state[w]
    bad = optimizer.state_dict()
    bad["state"] = {0: {"step": 7}, 5: {}}
    with pytest.raises(KeyError):
        optimizer.load_state_dict(bad)
    assert optimizer.state[w] is before and before["step"] == 1


def test_groups_of_adagrad_have_their_state():
    def make():
        a, b = (weft.ones(3, requires_grad=True) for _ in range(2))
        optimizer = optim.Adagrad([a])
        return lambda: optimizer.add_param_group({"params": [b]}), optimizer, a, b

    for _, _, optimizer, a, b in every_place(make):
        for p in (a, b):
            p.grad = weft.ones(3)
        optimizer.step()
        assert (b.tolist() != [1.0] * 3) == (len(optimizer.param_groups) == 2)


def test_gradient_mode_is_what_it_was():
    """But for the way out of __enter__ and the way into __exit__, where no Python can help."""

    def in_block():
        with weft.no_grad():
            weft.ones(2)

    n = places_in(in_block)
    left = []
    for place in range(n):
        interrupt(in_block, place)
        left.append(state.grad_enabled)
        state.grad_enabled = True
    assert n > 10 and left.count(False) <= 2


def test_an_attribute_of_a_module_is_the_one_in_its_table():
    def make():
        layer = nn.Linear(2, 2)
        return lambda: setattr(layer, "weight", nn.Parameter(weft.ones(2, 2))), layer

    for _, _, layer in every_place(make):
        assert layer.weight is dict(layer.named_parameters())["weight"]


def test_a_timer_that_fires_in_the_first_calls():
    def fire(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, fire)
    try:
        for seed in range(60):
            draw = random.Random(seed)
            step, model, optimizer = training("Adam", weft.compile)
            for _ in range(4):
                try:
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-4, 6e-3))
                    step()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Stop:
                    pass
                assert state.frame is None
            for values in optimizer.state.values():
                assert not values or values.keys() == KEYS["Adam"]
            assert np.isfinite(step().item())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
