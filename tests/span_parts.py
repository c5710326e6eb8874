"""A model, its batches and steps, for tests of what a usual call takes as a whole. Not a test."""

import sys

import numpy as np
from compiled_twin import error_of, twin

import weft
from weft import nn, randn
from weft.nn import functional as F
from weft.runtime.replay import native

N_CALLS, ODD_CALL = 16, 10


def network(*layers):
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), *(layers or [nn.ReLU()]), nn.Linear(5, 3))


def batch(k, n=4):
    weft.manual_seed(k)
    return randn(n, 6), weft.tensor(np.arange(n) % 3)


def training_step(model, optimizer, loss_of=F.cross_entropy):
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def sgd(model, **options):
    return weft.optim.SGD(model.parameters(), **({"lr": 0.1, "momentum": 0.9} | options))


def seen(values):
    """Their elements now. NumPy arrays of them would share their memory, which makes the next call an unusual one."""
    return [x.tolist() if isinstance(x, weft.Tensor) else x for x in values]


def odd_step(change, make=sgd):
    """As odd_call, with change(optimizer, model)."""

    def scenario(compile):
        model = network()
        optimizer = make(model)
        step = compile(training_step(model, optimizer))
        for k in range(N_CALLS):
            undo = change(optimizer, model) if k == ODD_CALL else None
            yield error_of(step, *batch(k)), seen(model.parameters()), optimizer.state_dict()["param_groups"]
            yield [(list(state), seen(state.values())) for state in optimizer.state.values()]
            if undo is not None:
                undo()

    return twin(scenario)


def python_calls(function, *arguments):
    """Names of the Python functions of weft that run in a call, without those of the tests."""
    names = []

    def note(frame, event, _):
        if event == "call" and frame.f_globals.get("__name__", "").startswith("weft"):
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return names


def skip_without_native_code(function):
    """The Python way of a usual call takes nothing as a whole: there is nothing to test."""
    return function if native.layout() is not None else lambda *_: None
