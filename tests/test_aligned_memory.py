"""Large arrays begin with a cache line, and are for NumPy and for weft what owns their memory."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.runtime.state.aligned import ALIGNED_BYTES, Memory, new_array, owned_copy, owner_of

LARGE = (256, 320)  # of float32: more than ALIGNED_BYTES


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_, np.complex64])
@pytest.mark.parametrize("n", [ALIGNED_BYTES, ALIGNED_BYTES + 1, 300_003])
def test_a_large_array_begins_with_a_line(n, dtype):
    kept = [new_array((n,), np.dtype(dtype)) for _ in range(5)]
    assert [a.ctypes.data % 64 for a in kept] == [0] * 5
    assert all(a.flags.c_contiguous and a.flags.writeable and type(a) is np.ndarray for a in kept)
    for k, a in enumerate(kept):
        a[...] = k % 2
    assert all((a == k % 2).all() for k, a in enumerate(kept))


def test_a_small_array_is_numpys_own():
    assert new_array((3, 5), np.dtype(np.float32)).base is None
    assert new_array((0, 7), np.dtype(np.float64)).shape == (0, 7)
    assert new_array((), np.dtype(np.float64)).shape == ()


def test_views_have_the_array_for_their_base():
    a = new_array(LARGE, np.dtype(np.float32))
    assert type(a.base) is Memory
    assert a[1:].base is a and a.T[2:].base is a and a.reshape(-1)[5:].base is a
    assert owner_of(a) == owner_of(a[1:]) == owner_of(a.reshape(-1)[::2]) == id(a)
    assert owner_of(a) != owner_of(new_array(LARGE, np.dtype(np.float32)))


def test_copies_of_anything():
    for given in (np.arange(20_000).reshape(100, 200).T, np.arange(30_000.0)[::-3], np.array(["a", None] * 9000)):
        copy = owned_copy(given)
        assert (copy == given).all() and copy.flags.c_contiguous and not np.may_share_memory(copy, given)


def test_tensors_of_arrays_begin_with_a_line():
    array = np.random.default_rng(0).standard_normal(LARGE).astype("f")
    for given in (array, array[:, :], weft.from_numpy(array), array.T):
        assert weft.tensor(given).data_ptr() % 64 == 0


@pytest.mark.parametrize("make", [
    lambda: weft.ones(*LARGE),
    lambda: weft.empty(LARGE, dtype=weft.float64),
    lambda: weft.zeros(size=(4, *LARGE), dtype=weft.bool),
    lambda: weft.full(LARGE, 2 + 1j),
    lambda: weft.full(LARGE, 7, dtype=weft.int32),
    lambda: weft.zeros_like(weft.ones(*LARGE), dtype=weft.int64),
    lambda: weft.ones_like(weft.ones(*LARGE)),
    lambda: weft.nn.Linear(*LARGE).weight.detach(),
])  # fmt: skip
def test_tensors_of_one_number_begin_with_a_line(make):
    kept = [make() for _ in range(5)]
    assert [x.data_ptr() % 64 for x in kept] == [0] * 5
    assert all(x.dtype is kept[0].dtype and x.shape == kept[0].shape and x.is_contiguous() for x in kept)


def test_tensors_of_one_number_hold_it():
    assert (weft.full(LARGE, 7, dtype=weft.int32) == 7).all() and (weft.full(LARGE, 2 + 1j).numpy() == 2 + 1j).all()
    assert weft.zeros(*LARGE).sum() == 0 and weft.ones(*LARGE, dtype=weft.bool).all()
    with pytest.raises(RuntimeError):
        weft.full(LARGE, 300, dtype=weft.int8).sum()


def test_results_of_compiled_calls_begin_with_a_line():
    step = weft.compile(lambda x: (x * 2 + 1, x.sum(0)))
    x = weft.randn(*LARGE)
    assert [step(x)[0].data_ptr() % 64 for _ in range(10)] == [0] * 10
    kept = []
    for k in range(12):  # more than wait for their next use
        kept.append(step(x + k)[0])
    for k, found in enumerate(kept):
        assert (found == (x + k) * 2 + 1).all()


@pytest.mark.parametrize("keep", [
    lambda y: y.numpy(),
    lambda y: y.numpy()[3:, 1],
    lambda y: y[2:],
    lambda y: y.detach(),
    lambda y: y.t()[5],
    lambda y: np.asarray(y).reshape(-1)[7:],
    lambda y: memoryview(y.numpy()),
])  # fmt: skip
def test_memory_that_a_view_shows_is_not_used_again(keep):
    step = weft.compile(lambda x: x * 3)
    x = weft.randn(*LARGE)
    for k in range(12):
        shown = keep(step(x + k))
        gc.collect()
        before = np.array(shown)
        for other in range(6):
            step(x - other)
        assert (np.array(shown) == before).all()
        assert (before == np.array(keep((x + k) * 3))).all()


def test_views_of_one_result_are_seen_to_share_memory():
    made = weft.tensor(np.ones(LARGE, "f")) * 2

    def change(x, y):
        x.mul_(2)
        return y + 1

    compiled, eager = weft.compile(change), made.clone()
    for _ in range(8):
        expected, found = change(eager, eager[10:]), compiled(made, made[10:])
        assert (found == expected).all() and (made == eager).all()
        expected, found = change(eager[3:], eager), compiled(made[3:], made)
        assert (found == expected).all() and (made == eager).all()
        made.mul_(0.25)
        eager.mul_(0.25)


def test_a_parameter_and_its_view_in_training():
    def losses(wrap):
        weight = weft.tensor(np.full(LARGE, 0.5, "f"), requires_grad=True)
        rows = weight.detach()[4:60]
        optimizer = weft.optim.SGD([weight], lr=0.1, momentum=0.9)

        @wrap
        def step(x):
            optimizer.zero_grad()
            loss = ((weight * x).tanh() ** 2).mean() * 100
            loss.backward()
            optimizer.step()
            return loss + rows.sum()

        return [step(weft.full(LARGE, k * 0.5)).item() for k in range(1, 9)] + [weight.sum().item(), rows.sum().item()]

    assert losses(weft.compile) == losses(lambda f: f)


def test_large_gradients_that_add_up():
    x = weft.tensor(np.linspace(-1, 1, 256 * 320, dtype="f").reshape(LARGE), requires_grad=True)

    def several(x):
        h = x * 2
        return (h * h + h.exp() + h.sin() + h).sum()

    for _ in range(5):
        (found,) = weft.autograd.grad(several(x), x)
        (compiled,) = weft.autograd.grad(weft.compile(several)(x), x)
        assert (found == compiled).all()


EAGER = {
    "ufunc": lambda x: x * 2,
    "kernel": lambda x: x.exp(),
    "clone": lambda x: x.clone(),
    "composite": lambda x: weft.softmax(x, -1),
    "product": lambda x: x @ x.t(),
    "reduction": lambda x: weft.stack([x, x]).sum(0),
    "numbers": lambda x: weft.rand(*LARGE),
    "gradient": lambda x: weft.autograd.grad((x.requires_grad_().tanh() * 3).sum(), x)[0],
}


@pytest.mark.parametrize("name", EAGER)
def test_eager_results_begin_with_a_line(name):
    shape = (288, 288) if name == "product" else LARGE
    x = weft.tensor(np.linspace(-2, 2, shape[0] * shape[1], dtype="f").reshape(shape))
    EAGER[name](x.detach())  # which may be evaluated by NumPy itself, in its own memory
    kept = [EAGER[name](x.detach()) for _ in range(24)]  # by Python first, then by native code
    assert [y.data_ptr() % 64 for y in kept] == [0] * 24
    assert len({y.data_ptr() for y in kept}) == 24
    if name != "numbers":
        assert all((y == kept[0]).all() for y in kept)


STEPS = """
import resource
import weft
from weft.runtime.programs import fused

fused.ELEMENTS_BEFORE = 0
weft.fill_cache()
x, c = weft.randn(1000, 1000).requires_grad_(), weft.randn(1000, 1000)
faults = []
for _ in range(80):
    x.grad = None
    (x * x).backward(c)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[-21])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library is another one")
def test_memory_of_a_step_is_there_for_the_next_one():
    """The C library gave it back to the system: 1900 pages were cleared anew in each step, which took ten times the
    time."""
    environment = {name: x for name, x in os.environ.items() if not name.startswith("MALLOC_") and "GLIBC" not in name}
    kept = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True, env=environment)
    assert int(kept.stdout) < 20 * 500
