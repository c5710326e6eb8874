"""Steps outside compiled calls are compiled after a while: nobody may notice but by the clock."""

import copy
import gc
import weakref

import numpy as np
import pytest

import weft
from weft import nn
from weft.optim import steady
from weft.runtime.state.modes import state

MAKERS = {
    "sgd": lambda p: weft.optim.SGD(p, lr=0.05),
    "momentum": lambda p: weft.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: weft.optim.Adam(p, lr=0.01),
    "adamw": lambda p: weft.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: weft.optim.RMSprop(p, lr=0.01, centered=True),
    "adagrad": lambda p: weft.optim.Adagrad(p, lr=0.01),
    "radam": lambda p: weft.optim.RAdam(p, lr=0.01),
    "nadam": lambda p: weft.optim.NAdam(p, lr=0.01),
    "rprop": lambda p: weft.optim.Rprop(p, lr=0.01),
    "asgd": lambda p: weft.optim.ASGD(p, lr=0.01, t0=5),
}


def train(make, odd=lambda k, model, optimizer: None, n=20):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = make(model.parameters())
    x, y = weft.randn(8, 4), weft.randn(8, 1)
    for k in range(n):
        odd(k, model, optimizer)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    states = [v for s in optimizer.state.values() for v in s.values()]
    return [
        np.asarray(t.detach() if isinstance(t, weft.Tensor) else t).tobytes() for t in (*model.parameters(), *states)
    ]


@pytest.fixture
def early(monkeypatch):
    monkeypatch.setattr(steady, "STEPS_BEFORE", 3)
    monkeypatch.setattr(steady, "_pays", lambda optimizer, is_native: True)


def rate(k, model, optimizer):
    optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)


def freeze(k, model, optimizer):
    model[0].weight.requires_grad_(k % 7 != 5)


def new_state(k, model, optimizer):
    if k == 10:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def other_data(k, model, optimizer):
    if k in (8, 13):
        model[2].weight.data = model[2].weight.data.clone()


def new_group(k, model, optimizer):
    if k == 9:
        optimizer.add_param_group({"params": [nn.Parameter(weft.ones(2))], "lr": 0.3})


@pytest.mark.parametrize("odd", [lambda *_: None, rate, freeze, new_state, other_data, new_group])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_same_bits(make, odd, monkeypatch):
    eager = train(make, odd)
    monkeypatch.setattr(steady, "STEPS_BEFORE", 3)
    monkeypatch.setattr(steady, "_pays", lambda optimizer, is_native: True)
    assert train(make, odd) == eager


def test_it_is_compiled_and_replayed(early):
    w = weft.ones(3, requires_grad=True)
    optimizer = weft.optim.Adam([w], lr=0.1)
    w.grad = weft.ones(3)
    for _ in range(40):
        w.grad.mul_(0.9)
        optimizer.step()
    assert steady._steps[optimizer].recordings[0].usual is not None
    assert state.frame is None


def test_an_error_is_the_same(early):
    w = weft.ones(3, requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=0.1)
    w.grad = weft.ones(3)
    for _ in range(8):
        optimizer.step()
    before = w.tolist()
    optimizer.param_groups[0]["lr"] = "fast"
    with pytest.raises(ValueError):
        optimizer.step()
    assert w.tolist() == before


def test_optimizers_go_when_nobody_holds_them(early):
    w = weft.ones(3, requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=0.1, momentum=0.9)
    for _ in range(8):
        w.grad = weft.ones(3)
        optimizer.step()
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


def test_what_native_code_updates_is_compiled_for_several_threads_only(monkeypatch):
    monkeypatch.setattr(steady, "FEWEST_ELEMENTS", 4)
    monkeypatch.setattr(steady, "FEWEST_FOR_THREADS", 8)
    few, many = (weft.optim.SGD([weft.ones(n)]) for n in (4, 8))
    for threads, expected in ((1, (True, True, False, False)), (2, (True, True, False, True))):
        monkeypatch.setattr(steady, "get_num_threads", lambda threads=threads: threads)
        assert tuple(steady._pays(o, is_native=n) for n in (False, True) for o in (few, many)) == expected


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "adagrad", "nadam", "rprop", "asgd"])
def test_the_first_compiled_step_has_the_program_of_all_others(name):
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = MAKERS[name](model.parameters())

    @weft.compile(fullgraph=True)
    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    x = weft.randn(8, 4)
    for _ in range(4):
        step(x)
    assert [program.calls for recording in step.recordings for program in recording.programs] == [4]
