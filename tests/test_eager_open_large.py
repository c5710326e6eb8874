"""Eager calls on large operands whose sizes change from call to call: one program for all sizes, which native code
calls, with the bits of steps taken one by one, and PyTorch's numbers."""

import numpy as np
import pytest

import weft
from weft.runtime.code.cache import default_cache
from weft.runtime.eager import open_nodes, plan, varied
from weft.runtime.programs import fused
from weft.runtime.replay import eager_native, native, open_large

from .test_eager_varied import CASES, forget_what_native_code_knows, in_another_thread, of_library

try:
    import torch
except ModuleNotFoundError:
    torch = None  # its numbers are compared where it is installed

IS_NATIVE = native.layout() is not None
SIZES = (7, 12, 3, 25, 2, 1, 0, 40, 17, 64, 5, 33, 9)
NAMES = (
    "softmax", "softmax of a column", "layer_norm", "var", "gelu", "mse_loss", "cross_entropy", "cumsum", "pairs",
    "attention", "doubles", "embedding", "columns", "turned product", "causal mask", "powers", "sums of both",
)  # fmt: skip
F = weft.nn.functional


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cache of this file's own: of programs for other ranges of sizes, which other tests ask for, there are few."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def all_is_large(monkeypatch, folder):
    """Programs are compiled at once, for whatever is more than a few elements."""
    monkeypatch.setenv("WEFT_CACHE_DIR", folder)
    default_cache.cache_clear()
    monkeypatch.setattr(plan, "CALLS_BEFORE_NATIVE", 1)
    monkeypatch.setattr(varied, "CALLS_BEFORE", 1)
    monkeypatch.setattr(open_nodes, "NODES_BEFORE", 1)
    monkeypatch.setattr(fused, "FEWEST_ELEMENTS", 8)
    monkeypatch.setattr(fused, "FEWEST_OF_ONE", 8)
    monkeypatch.setattr(open_large.fused, "pays", lambda kind: (True, True))
    plan.forget()
    forget_what_native_code_knows()
    yield
    plan.forget()
    default_cache.cache_clear()


@pytest.fixture
def programs(monkeypatch):
    """The rules that programs have been made of."""
    made, before = [], open_large.OpenProgram.__init__

    def begin(self, rule, *args):
        before(self, rule, *args)
        made.append((rule.op.name, rule.differentiated is not None))

    monkeypatch.setattr(open_large.OpenProgram, "__init__", begin)
    return made


def step_by_step(monkeypatch):
    monkeypatch.setattr(varied, "ask", lambda *_: None)
    monkeypatch.setattr(plan, "_told", lambda *_, busy: busy)


def gradients(library, case, n):
    *leaves, positions = of_library(library)
    for x in leaves:
        x.requires_grad_()
    made = case(library, *leaves, positions, n)
    made.square().sum().backward()
    return [made.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize("name", NAMES)
def test_bits_of_steps_and_numbers_of_pytorch(name, monkeypatch, programs):
    case = CASES[name]
    found = [gradients(weft, case, n) for n in SIZES]
    found += [gradients(weft, case, n) for n in SIZES]
    assert not IS_NATIVE or any(is_derivative for _, is_derivative in programs)
    assert not IS_NATIVE or any(not is_derivative for _, is_derivative in programs)
    step_by_step(monkeypatch)
    for n, made in zip((*SIZES, *SIZES), found):
        exact = in_another_thread(lambda n=n: gradients(weft, case, n))
        wanted = [None] * len(exact) if torch is None else gradients(torch, case, n)
        for x, y, z in zip(made, exact, wanted):
            assert (x is None) == (y is None)
            if x is not None:
                assert x.numpy().tobytes() == y.numpy().tobytes() and x.stride() == y.stride()
            if z is not None:
                np.testing.assert_allclose(x.numpy(), z.numpy(), rtol=5e-4, atol=5e-5)


def test_sizes_that_were_never_seen_are_native_codes(programs):
    rows, classes = weft.randn(400, 40), weft.arange(400) % 10
    net = weft.nn.Sequential(
        weft.nn.LayerNorm(40), weft.nn.Linear(40, 32), weft.nn.GELU(), weft.nn.Linear(32, 10), weft.nn.Softmax(1)
    )

    def step(n):
        (net(rows[:n]).log().mean() + F.cross_entropy(net(rows[n : 2 * n]), classes[:n])).backward()
        net.zero_grad()

    for n in range(20, 60):
        step(n)
    before, n_programs = plan._plans.keys() | set(), len(programs)
    calls, nodes = eager_native.taken("calls_taken"), eager_native.taken("nodes_taken")
    for n in range(60, 100):
        step(n)
    if IS_NATIVE:
        assert not plan._plans.keys() - before and len(programs) == n_programs
        assert eager_native.taken("calls_taken") - calls >= 40 * 15
        assert eager_native.taken("nodes_taken") - nodes >= 40 * 14


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers_on_lengths_as_they_come(kind, monkeypatch, programs):
    """One program with a loop over the steps, where exact lengths have them written out."""
    weft.manual_seed(0)
    layer = getattr(weft.nn, kind)(4, 6, bidirectional=kind == "GRU")
    inputs = weft.randn(16, 3, 4)

    def trained(n):
        x = inputs[:n].clone().requires_grad_()
        made, _ = layer(x)
        made.square().mean().backward()
        found = [made.detach(), x.grad, *(p.grad for p in layer.parameters())]
        layer.zero_grad()
        return [x.numpy().tobytes() for x in found]

    lengths = (5, 9, 3, 12, 7, 6, 15, 4, 9, 8)
    found = [trained(n) for n in lengths]
    names = {name for name, _ in programs}
    assert not IS_NATIVE or kind.lower() in names and f"{kind.lower()}_gradient" in names
    step_by_step(monkeypatch)
    assert found == in_another_thread(lambda: [trained(n) for n in lengths])
    if torch is not None:
        theirs = getattr(torch.nn, kind)(4, 6, bidirectional=kind == "GRU")
        theirs.load_state_dict({k: torch.from_numpy(v.detach().numpy()) for k, v in layer.state_dict().items()})
        for n in lengths:
            made, wanted = layer(inputs[:n])[0].detach(), theirs(torch.from_numpy(inputs[:n].numpy()))[0].detach()
            np.testing.assert_allclose(made.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-6)


def test_threads_share_them_with_the_same_bits(monkeypatch):
    def results():
        rows = weft.linspace(-3, 3, 700 * 600).reshape(700, 600).requires_grad_()
        made = [F.softmax(rows[:n], 1).square().sum(0) + F.layer_norm(rows[:n], (600,)).exp().mean(0) for n in lengths]
        sum(x.sum() for x in made).backward()
        return [x.detach().numpy().tobytes() for x in (*made, rows.grad)]

    lengths = (300, 500, 420, 640, 333, 610, 512, 700)
    before = weft.get_num_threads()
    try:
        found = []
        for n in (1, 2, 3):
            weft.set_num_threads(n)
            plan.forget()
            found.append(results())
        step_by_step(monkeypatch)
        found.append(in_another_thread(results))
    finally:
        weft.set_num_threads(before)
    assert found[0] == found[1] == found[2] == found[3]


def test_a_check_that_fails_raises_what_python_raises():
    table = weft.randn(50, 16)
    for n in range(3, 30):
        assert F.embedding(weft.arange(n), table).shape == (n, 16)
        assert F.one_hot(weft.arange(n) % 7, 7).sum() == n
    with pytest.raises(IndexError):
        F.embedding(weft.arange(60), table)
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        F.one_hot(weft.arange(31), 7)


def test_numbers_among_operands_are_those_of_the_call(monkeypatch):
    rows = weft.randn(100, 16)

    def results():
        found = []
        for n in range(3, 40):
            smooth, low = n / 10, -0.5 * n
            found += [F.smooth_l1_loss(rows[:n], rows[n : 2 * n], beta=smooth), F.elu(rows[:n], n / 7)]
            found += [rows[:n].clamp(low, 1.5), weft.where(rows[:n] > 0, rows[:n], low), (rows[:n] + n).logsumexp(1)]
        return [x.numpy().tobytes() for x in found]

    found = results()
    step_by_step(monkeypatch)
    assert found == in_another_thread(results)


def test_sizes_beyond_what_a_program_was_made_for(monkeypatch):
    """Some programs hold for small sizes or large ones only: the others get their own, or are Python's."""
    rows = weft.linspace(-2, 2, 3000 * 64).reshape(3000, 64)

    def results():
        lengths = (30, 31, 500, 33, 2500, 34, 2600, 501, 35, 2999)
        return [F.softmax(rows[:n], 0).cumsum(0)[-1].numpy().tobytes() for n in lengths]

    found = [results(), results()]
    step_by_step(monkeypatch)
    assert found[0] == found[1] == in_another_thread(results)


def test_nothing_is_compiled_before_it_pays(monkeypatch, programs):
    monkeypatch.setattr(fused, "pays", lambda kind: (False, False))
    rows = weft.randn(400, 40)
    for n in range(3, 60):
        F.softmax(rows[:n], 1).square().sum()
    assert not programs
    assert not IS_NATIVE or all(kind.left > 0 for kind in varied._kinds.values())


def test_what_was_computed_step_by_step_decides_when(monkeypatch):
    monkeypatch.undo()
    kind = object()
    assert not any(fused.pays(kind))
    fused.spend(kind, fused.ELEMENTS_BEFORE_FINDING)
    finds, compiles = fused.pays(kind)
    assert finds and not compiles or fused.ELEMENTS_BEFORE <= fused.ELEMENTS_BEFORE_FINDING
    fused.spend(kind, fused.ELEMENTS_BEFORE)
    assert all(fused.pays(kind))
