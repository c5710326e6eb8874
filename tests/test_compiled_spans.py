"""Calls of layers and steps of optimizers that a usual call takes as a whole (runtime/replay/frame_spans.py): that
it does, what it must not keep or share, and functions. test_compiled_span_modules.py and test_compiled_span_steps.py
change what they depend on.
"""

import gc
import sys
import warnings

import pytest
from compiled_twin import error_of, twin
from span_parts import (
    N_CALLS,
    ODD_CALL,
    batch,
    network,
    python_calls,
    seen,
    sgd,
    skip_without_native_code,
    training_step,
)

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.replay import frame_usual
from weft.runtime.state import afterwards

pytestmark = pytest.mark.usefixtures("python_runs")

# --- that it is done --------------------------------------------------------------------------------------------------


@skip_without_native_code
def test_layers_and_steps_run_no_python(monkeypatch):
    # A process that has had a sparse gradient looks for others.
    monkeypatch.setattr("weft.optim.optimizer.sparse_given", [])
    afterwards.listeners.clear()  # of functions of other tests, whose calls were timed
    model = network(nn.ReLU(), nn.LayerNorm(5), nn.Dropout(0.0), nn.Sequential(nn.Tanh(), nn.Identity()))
    step = weft.compile(training_step(model, sgd(model), nn.CrossEntropyLoss()))
    for k in range(N_CALLS):
        step(*batch(k))
    assert python_calls(step, *batch(0)) == ["zero_grad", "backward", "backward", "_as_tuple", "step"]


@skip_without_native_code
def test_layers_of_a_users_module_run_no_python():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.last(F.relu(self.first(x)))

    model = weft.compile(Net())
    with weft.no_grad():
        for k in range(N_CALLS):
            model(batch(k)[0])
        assert python_calls(model, batch(0)[0]) == ["relu"]


LAYERS = [
    nn.ReLU, nn.ReLU6, nn.SiLU, nn.Mish, nn.SELU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.Softsign,
    nn.LogSigmoid, nn.GELU, nn.LeakyReLU, nn.ELU, nn.CELU, nn.Hardtanh, nn.Softplus, nn.PReLU, nn.Identity, nn.Flatten,
    lambda: nn.Softmax(1), lambda: nn.LogSoftmax(-1), lambda: nn.LayerNorm(6), lambda: nn.RMSNorm(6),
    lambda: nn.Linear(6, 2, bias=False), lambda: nn.Unflatten(1, (2, 3)), lambda: nn.BatchNorm1d(6).eval(),
    lambda: nn.BatchNorm1d(6), lambda: nn.Dropout(0.5), lambda: nn.Dropout(0.5).eval(), lambda: nn.GLU(1),
]  # fmt: skip


@pytest.mark.parametrize("make", LAYERS)
def test_every_layer(make):
    @twin
    def scenario(compile):
        weft.manual_seed(1)
        layer = make()
        step = compile(lambda x: (layer(x) * 2.0).sum().backward())
        for k in range(N_CALLS):
            x = batch(k)[0].requires_grad_()
            yield step(x), x.grad, list(layer.buffers()), seen(p.grad for p in layer.parameters())

    scenario()


LOSSES = [
    nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss, nn.KLDivLoss,
    lambda: nn.MSELoss(reduction="sum"), lambda: nn.HuberLoss(delta=0.5),
]  # fmt: skip


@pytest.mark.parametrize("make", LOSSES)
def test_every_loss(make):
    @twin
    def scenario(compile):
        loss = make()
        step = compile(lambda x, y: loss(x, y))
        for k in range(N_CALLS):
            with weft.no_grad():
                yield step(batch(k)[0], batch(k + 50)[0].sigmoid())

    scenario()


def test_warnings_are_given_every_time():
    loss, softmax = nn.MSELoss(), nn.Softmax()
    f = weft.compile(lambda x, y: (loss(x, y), softmax(x)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(N_CALLS):
            f(weft.ones(4, 2), weft.ones(1, 2))
    assert len(caught) == 2 * N_CALLS


# --- what it must not keep or share -----------------------------------------------------------------------------------
@skip_without_native_code
def test_memory_does_not_grow_with_lessons():
    import tracemalloc

    model = network()
    optimizer = sgd(model)
    step = weft.compile(training_step(model, optimizer))
    x, y = batch(0)

    def train(n):
        for k in range(n):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + k // 20)
            step(x, y)
        # Python keeps some freed objects for later, until the collector comes.
        gc.collect()

    train(400)
    tracemalloc.start()
    train(400)
    start = tracemalloc.get_traced_memory()[0]
    train(800)
    grown = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert grown < 8000


FRESH = {
    "losses": lambda model: weft.no_grad()(lambda x, y: nn.CrossEntropyLoss()(model(x), y)),
    "layers": lambda model: weft.no_grad()(lambda x, y: nn.LeakyReLU(0.5)(nn.ReLU()(model(x)))),
    "optimizers": lambda model: training_step(model, weft.optim.SGD(model.parameters(), lr=0.1)),
}


@skip_without_native_code
@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH)
def test_objects_that_each_call_makes_are_not_kept(make):
    model = network()
    step = weft.compile(lambda x, y: make(model)(x, y))
    x, y = batch(0)
    n_objects = []
    for _ in range(3):
        for _ in range(100):
            step(x, y)
        gc.collect()
        n_objects.append(len(gc.get_objects()))
    assert n_objects[2] - n_objects[1] < 50
    assert "linear" not in python_calls(step, x, y)


@skip_without_native_code
def test_references_are_counted():
    model = network()
    optimizer = sgd(model)
    step = weft.compile(training_step(model, optimizer))
    x, y = batch(0)
    for _ in range(N_CALLS):
        step(x, y)
    usual = step.recordings[0].usual
    assert isinstance(usual, frame_usual.UsualFrame)
    group = optimizer.param_groups[0]
    fixed = [
        model,
        model[0],
        model[0].__dict__,
        model[0].weight,
        group,
        group["params"],
        group["lr"],
        optimizer.state,
        x,
    ]
    before = [sys.getrefcount(v) for v in fixed]
    for _ in range(1000):
        step(x, y)
    after = [sys.getrefcount(v) for v in fixed]
    assert max(abs(a - b) for a, b in zip(after, before)) < 100


def test_calls_in_other_threads_and_outside_are_calls_of_their_own():
    import threading

    model = network()
    step = weft.compile(weft.no_grad()(lambda x: between(model(x))))
    found, x = [], batch(0)[0]

    def between(y):
        def work():
            found.append(model(x).tolist())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return y

    for _ in range(N_CALLS):
        y = step(x)
        assert found[-1] == y.tolist() == model(x).tolist()


# --- functions --------------------------------------------------------------------------------------------------------
CLASSES, CHANCES = weft.tensor([0, 2, 1, 2]), weft.full((4, 3), 1 / 3)
ODD_LOSSES = {
    "other rows": lambda x, y: F.cross_entropy(x * 2.0, y),
    "other classes": lambda x, y: F.cross_entropy(x, CLASSES),
    "chances": lambda x, y: F.cross_entropy(x, CHANCES),
    "weights": lambda x, y: F.cross_entropy(x, y, weft.tensor([1.0, 2.0, 3.0])),
    "no weights": lambda x, y: F.cross_entropy(x, y, None),
    "a sum": lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    "smooth": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.5),
    "names": lambda x, y: F.cross_entropy(target=y, x=x),
    "another function": lambda x, y: F.nll_loss(x.log_softmax(1), y),
    "an error": lambda x, y: F.cross_entropy(x, y[:2]),
    "a constant": lambda x, y: F.cross_entropy(x, y).detach().requires_grad_(),
    "twice": lambda x, y: F.cross_entropy(x, y) + F.cross_entropy(x, y),
}


@pytest.mark.parametrize("odd", ODD_LOSSES.values(), ids=ODD_LOSSES)
@pytest.mark.parametrize("usual", [ODD_LOSSES["twice"], lambda x, y: F.cross_entropy(x, y)], ids=["twice", "once"])
def test_losses(usual, odd):
    def scenario(compile):
        model = network()
        step = compile(training_step(model, sgd(model), lambda x, y: (odd if calls[0] == ODD_CALL else usual)(x, y)))
        calls = [0]
        for k in range(N_CALLS):
            calls[0] = k
            yield error_of(step, *batch(k)), seen(model.parameters())

    twin(scenario)()


@twin
def test_numbers_are_no_tensors(compile):
    """A function of numbers has no span: they could be others next time."""
    f = compile(lambda x, y, k: F.binary_cross_entropy_with_logits(x, y, k) + F.binary_cross_entropy(x.sigmoid(), y, k))
    with weft.no_grad():
        for k in range(N_CALLS):
            yield f(batch(k)[0], batch(k + 1)[0].sigmoid(), 0.5 + k // 5)


def test_a_spanned_function_is_its_function():
    import inspect

    assert str(inspect.signature(F.nll_loss)) == (
        "(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean')"
    )
    assert F.nll_loss.__name__ == "nll_loss" and "log probabilities" in F.nll_loss.__doc__


def test_what_is_computed_outside_a_call_in_flight_is_no_part_of_it():
    from weft.runtime.state.modes import state

    model, x = network(), batch(0)[0]

    def f(x):
        with weft.no_grad():
            if calls[0] == ODD_CALL:
                frame, state.frame = state.frame, None
                kept.extend([model(x), x * 2.0, F.cross_entropy(x, CLASSES)])
                state.frame = frame
            return model(x), x * 2.0, F.cross_entropy(x, CLASSES)

    f, calls, kept = weft.compile(f), [0], []
    for k in range(N_CALLS):
        calls[0] = k
        found = f(x)
    assert [y.tolist() for y in kept] == [y.tolist() for y in found]
    assert all(y._data is not None and y._frame is None for y in kept)
