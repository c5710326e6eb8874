"""Memory of values between native steps: no two that are there at once overlap."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.runtime.eager.eager_scratch import places_between


def steps_of(random_numbers, n_values):
    """Steps that each make a value and read some before it, and how many bytes each value has."""
    steps, sizes = [], {}
    for slot in range(n_values):
        read = random_numbers.sample(range(slot), min(slot, random_numbers.randint(0, 3)))
        steps.append(SimpleNamespace(places=[SimpleNamespace(slot=k) for k in (*read, slot)]))
        sizes[slot] = random_numbers.choice([4, 64, 100, 1000, 4096])
    return steps, sizes


@pytest.mark.parametrize("seed", range(20))
def test_values_that_are_there_at_once_do_not_overlap(seed):
    numbers, end = random.Random(seed), [64]
    steps, sizes = steps_of(numbers, 40)
    given = {slot for slot in sizes if numbers.random() < 0.2}

    def reserve(n_bytes):
        start = end[0]
        end[0] += -(-n_bytes // 64) * 64
        return start

    between = {slot: n for slot, n in sizes.items() if slot not in given}
    found = places_between(steps, between, reserve)
    assert found.keys() == between.keys() and all(start % 64 == 0 for start in found.values())
    used = {slot: [k for k, s in enumerate(steps) if any(p.slot == slot for p in s.places)] for slot in sizes}
    for a in between:
        for b in between:
            if a < b and max(used[a][0], used[b][0]) <= min(used[a][-1], used[b][-1]):
                assert found[a] + sizes[a] <= found[b] or found[b] + sizes[b] <= found[a]
    assert end[0] < 64 + sum(-(-n // 64) * 64 for n in between.values())


def test_rules_of_many_steps_have_the_same_bits_natively():
    """Adafactor's rule has dozens of values in between, which together would need more memory than there is."""
    data = np.random.default_rng(0).standard_normal((128, 100)).astype(np.float32)
    found = []
    for at_once in (True, False):
        p = weft.nn.Parameter(weft.tensor(data))
        optimizer = weft.optim.Adafactor([p], lr=0.01)
        for k in range(30):
            p.grad = weft.tensor(data) * (0.1 * k + 0.1)
            optimizer.step() if at_once else weft.compile(optimizer.step)()
        found.append(p.detach().numpy().tobytes())
    assert found[0] == found[1]


def test_composites_of_many_steps_agree_with_one_row_at_a_time():
    x = weft.tensor(np.random.default_rng(1).standard_normal((120, 100)).astype(np.float32))
    f = lambda t: weft.nn.functional.layer_norm(t, (100,)).softmax(1).log_softmax(1)  # noqa: E731
    for _ in range(20):
        whole = f(x)
        rows = weft.cat([f(x[k : k + 1]) for k in range(0, 120, 40)])
    assert (whole[::40].numpy() == rows.numpy()).all()
