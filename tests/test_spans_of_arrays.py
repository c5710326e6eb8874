"""Layers that are called with memory that a NumPy array shows, or with tensors made for each call, are taken as a whole
like all others (runtime/replay/frame_spans.py), and read what is there when they are called."""

import numpy as np
import pytest
from compiled_twin import twin

import weft
from weft import nn
from weft.runtime.replay import native_words
from weft.runtime.replay.native import native_code_is_used

pytestmark = pytest.mark.usefixtures("python_runs")
N_CALLS, ODD_CALL = 18, 11


def network():
    weft.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def array(k, *shape):
    return (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 - 3) * np.float32(0.25 * k + 0.5)


def times_taken(compiled):
    """How often spans that something comes in with were taken."""
    tables = [
        table[0] for way in compiled._ways if way._native is not None for table in way._native.span_tables.values()
    ]
    return sum(int(row[native_words.USES]) for rows in tables for row in rows if row[native_words.N_SPAN_FRESH])


@pytest.mark.parametrize(
    "given",
    [
        lambda f, a, b: f(weft.from_numpy(a)),
        lambda f, a, b: f(weft.as_tensor(a)).numpy(),
        lambda f, a, b: weft.from_numpy(f(weft.from_numpy(b.copy(order="C"))).numpy() + f(weft.from_numpy(a)).numpy()),
    ],
)
def test_predictions_for_arrays_are_taken_as_a_whole(given):
    model = network()
    f, expected = weft.compile(lambda x: model(x)), network()
    for k in range(N_CALLS):
        arrays = array(k, 5, 3), array(k, 3, 5).T
        with weft.no_grad():
            assert given(f, *arrays).tolist() == given(expected, *arrays).tolist()
    assert times_taken(f) >= 4 or not native_code_is_used()


def test_a_tensor_made_in_the_call():
    model = network()

    def function(numbers):
        x = weft.tensor(numbers)
        return model(x.reshape(1, 3)).sum(), model(weft.tensor([numbers, numbers]))

    f = weft.compile(function)
    for k in range(N_CALLS):
        numbers = [0.5 * k, -1.0, 2.0]
        assert [y.tolist() for y in f(numbers)] == [y.tolist() for y in function(numbers)]


def predicted(change):
    """What calls give, where change(k, model, memory) comes before each. All of them read the same memory."""

    def scenario(compile):
        model, memory = network(), array(1, 5, 3)
        f = compile(lambda x: model(x) * 2)
        x = weft.from_numpy(memory)
        for k in range(N_CALLS):
            given = change(k, model, memory)
            y = f(x if given is None else given)
            yield y.tolist(), y.requires_grad
            if y.requires_grad:
                y.sum().backward()
                yield [p.grad.tolist() for p in model.parameters()], x.grad

    return twin(scenario)


def _refilled(k, model, memory):
    memory[:] = array(k, 5, 3)


def _other_shape(k, model, memory):
    return weft.from_numpy(array(k, 6, 3)) if k % 5 == 4 else None


def _other_strides(k, model, memory):
    return weft.from_numpy(array(k, 3, 5)).t() if k >= ODD_CALL else None


def _memory_of_its_own(k, model, memory):
    return weft.tensor(memory.tolist()) if k % 5 == 4 else None


def _another_type(k, model, memory):
    model.double() if k == ODD_CALL else None
    return weft.from_numpy(memory.astype(np.float64)) if k >= ODD_CALL else None


def _requires(k, model, memory):
    return weft.from_numpy(memory.copy()).requires_grad_() if k >= ODD_CALL else None


def _other_weights(k, model, memory):
    if k == ODD_CALL:
        model[0].weight = nn.Parameter(weft.ones(4, 3))


def _frozen(k, model, memory):
    model.requires_grad_(k < ODD_CALL)


def _hooked(k, model, memory):
    if k == ODD_CALL:
        model[0].register_forward_hook(lambda module, args, out: out + args[0].sum())


def _weights_in_arrays(k, model, memory):
    model[0].bias.detach().numpy()[:] = k


def _a_view(k, model, memory):
    return weft.from_numpy(array(k, 10, 3))[2:7]


def _large(k, model, memory):
    return weft.from_numpy(array(k, 40_000, 3)) if k >= ODD_CALL else None


def _a_result(k, model, memory):
    return weft.from_numpy(memory.copy()) * 2 if k >= ODD_CALL else None


@pytest.mark.parametrize(
    "change",
    [
        _refilled,
        _other_shape,
        _other_strides,
        _memory_of_its_own,
        _another_type,
        _requires,
        _other_weights,
        _frozen,
        _hooked,
        _weights_in_arrays,
        _a_view,
        _large,
        _a_result,
    ],
)
def test_what_comes_in_changes(change):
    predicted(change)()


def test_memory_that_is_refilled_in_the_middle():
    def scenario(compile):
        model, memory = network(), array(1, 5, 3)
        x = weft.from_numpy(memory)

        def function(k):
            first = model(x)
            memory[:] = array(k, 5, 3)
            second = model(x)
            if k % 7 != 6:
                memory[0, 0] = -1
            return first, second, model(x) - model(x), (x * 2).sum()

        f = compile(function)
        for k in range(N_CALLS):
            memory[:] = array(k + 3, 5, 3)
            yield [y.tolist() for y in f(k)]

    twin(scenario)()


def test_several_layers_and_arguments_read_one_array():
    def scenario(compile):
        one, two, both, memory = network(), network(), nn.Bilinear(3, 3, 2), array(1, 5, 3)
        layers = nn.ModuleList([nn.Identity(), nn.Flatten(), nn.MSELoss(), nn.CosineSimilarity()])

        def function(x, y):
            found = [one(x), two(x), both(x, y), both(x, x), layers[0](x) * 2, layers[1](x) + 1]
            return [*found, layers[2](x, y), layers[2](x, x), layers[3](x, y), one(x + y) - x[:, :2]]

        f = compile(function)
        for k in range(N_CALLS):
            memory[:] = array(k, 5, 3)
            y = weft.from_numpy(array(k + 1, 5, 3))
            yield [z.tolist() for z in f(weft.from_numpy(memory), y)]
            yield [z.tolist() for z in f(weft.from_numpy(memory), weft.from_numpy(memory))]

    twin(scenario)()


def test_training_on_arrays():
    def scenario(compile):
        model, memory, targets = network(), array(1, 6, 3), array(2, 6, 2)
        optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

        @compile
        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item() if len(x) == 5 else loss

        for k in range(N_CALLS):
            memory[:] = array(k % 4, 6, 3)
            n = 6 if k % 6 < 4 else 5
            loss = step(weft.from_numpy(memory[:n]), weft.from_numpy(targets)[:n])
            yield float(loss), [p.tolist() for p in model.parameters()]

    twin(scenario)()


def test_a_call_that_goes_another_way_behind_a_span():
    def scenario(compile):
        model, memory, odd = network(), array(1, 5, 3), []

        def function(x):
            y = model(x)
            memory[1] = 0.5
            if odd:
                return (y + x.sum()).tanh(), y
            return y * 2, y

        f = compile(function)
        for k in range(N_CALLS):
            memory[:] = array(k, 5, 3)
            odd[:] = [1] * (k % 6 == 5)
            yield [z.tolist() for z in f(weft.from_numpy(memory))]

    twin(scenario)()
