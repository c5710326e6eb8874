"""NumPy arrays that come to show memory between a compiled call and its backward, and what is written through them."""

import random

import numpy as np
import pytest

import weft
from weft.runtime.replay.usual_calls import ReplayedCall
from weft.runtime.state import readers

N_WARM = 8  # calls until they are replayed


def functions(kind, w, b):
    def flow(x):
        h = x @ w + b
        h = h.exp() if kind == 0 else h.tanh() if kind == 1 else h * h * w.sum()
        return h if kind else (h, (h * h).sum(1))

    return flow


def numbers(*key, shape):
    return np.random.default_rng(key).normal(size=shape).astype("f4") / 2


def act(choice, arrays, out, x, w):
    """One of the things that people do with arrays of what a call has read or made."""
    if choice < 4:
        arrays.append((out.detach(), x, w.detach(), w.data)[choice].numpy())
    elif arrays and choice == 4:
        arrays[-1][...] *= np.float32(1.5)
    elif arrays and choice == 5:
        arrays[-1][...] += 0
    elif arrays:
        arrays.pop()


def gradients_of(how, outs, w, b, write):
    """Some way to differentiate, in which something may be written between two passes."""
    if how == 0:
        sum(o.sum() for o in outs).backward()
    elif how == 1:
        outs[0].sum().backward()
    elif how == 2:
        total = sum((o * o).sum() for o in outs)
        total.backward(retain_graph=True)
        write()
        total.backward()
    elif how == 3:
        return weft.autograd.grad(outs[0].sum(), (w, b))
    else:
        first = weft.autograd.grad(outs[0].sum(), (w, b), create_graph=True)
        write()
        (first[0].pow(2).sum() + first[1].sum()).backward()
    return w.grad, b.grad


def told(seed, compile):
    """What a program of steps drawn from the seed finds, bit for bit."""
    draw = random.Random(seed)
    w, b = (weft.tensor(numbers(seed, k, shape=shape)).requires_grad_() for k, shape in ((0, (4, 3)), (1, (3,))))
    flow = functions(seed % 3, w, b)
    step, found = weft.compile(flow) if compile else flow, []
    for _ in range(N_WARM):
        outs = step(weft.ones(5, 4))
        (outs if seed % 3 else outs[0]).sum().backward()
    for k in range(4):
        x = weft.tensor(numbers(seed, k, 2, shape=(5, 4)))
        outs, arrays = step(x), []
        outs = outs if isinstance(outs, tuple) else (outs,)
        for _ in range(draw.randrange(4)):
            act(draw.randrange(7), arrays, outs[draw.randrange(len(outs))], x, w)
        is_written = draw.random() < 0.5

        def write(arrays=arrays, is_written=is_written):
            if arrays and is_written:
                arrays[-1][...] *= 2

        try:
            found.append([g.numpy().tobytes() for g in gradients_of(draw.randrange(5), outs, w, b, write)])
        except RuntimeError as error:
            found.append(type(error).__name__)
        w.grad = b.grad = None
    return found


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_programs_find_what_eager_mode_finds(first):
    for seed in range(first, first + 20):
        assert told(seed, True) == told(seed, False), seed


@pytest.fixture
def many_calls():
    """A hundred results whose backward may come, of one function."""
    w = weft.ones(3, requires_grad=True)
    step = weft.compile(lambda x: (x * w).exp())
    for _ in range(N_WARM):
        step(weft.ones(3)).sum().backward()
    return [step(weft.ones(3)) for _ in range(100)]


def test_only_who_reads_the_memory_is_told(many_calls, monkeypatch):
    """All were, so that arrays of n results took n * n steps."""
    asked = []
    monkeypatch.setattr(ReplayedCall, "before_lending", lambda call, tensor: asked.append(call))
    weft.ones(3).numpy()
    assert asked == []
    arrays = [out.detach().numpy() for out in many_calls]
    assert [id(call) for call in asked] == [id(out._frame) for out in many_calls]
    del arrays, asked[:]
    del many_calls[::2]
    for out in many_calls:
        out.detach().numpy()
    assert len(asked) == 50


def test_calls_that_have_ended_are_found_however_others_end(monkeypatch):
    """The list of those alive is shortened by whoever comes, while some are alive and some are not."""
    asked, draw = [], random.Random(1)
    monkeypatch.setattr(ReplayedCall, "before_lending", lambda call, tensor: asked.append(call))
    w = weft.ones(3, requires_grad=True)
    step, alive = weft.compile(lambda x: (x * w).exp()), []
    for _ in range(N_WARM):
        step(weft.ones(3)).sum().backward()
    for _ in range(600):
        alive.append(step(weft.ones(3)))
        if draw.random() < 0.4:
            del alive[draw.randrange(len(alive))]
        if draw.random() < 0.2 and alive:
            out = draw.choice(alive)
            out.detach().numpy()
            assert asked[-1] is out._frame
    assert len(readers.readers) < 600


def test_a_call_that_lent_memory_is_still_one_program(many_calls, monkeypatch):
    """Accuracy is computed with NumPy between the call and the backward, in most training loops that do it."""
    made = []
    monkeypatch.setattr(ReplayedCall, "closed_node", lambda call: made.append(call))
    for out in many_calls:
        (out.detach().numpy() > 0).mean()
        out.sum().backward()
    assert made == []
