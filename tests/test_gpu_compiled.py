"""Compiled functions that are given tensors on a GPU: what they ask for is put off and runs as one program, with the
bits of eager mode there and on the CPU."""

import gc

import numpy as np
import pytest
from cuda_stand_in import gpu_for_tensors
from gpu_parts import assembled, ptxas

import weft
from weft import nn, optim
from weft.nn import functional as F
from weft.runtime.code import jit
from weft.runtime.gpu import programs


@pytest.fixture
def gpu(monkeypatch):
    return gpu_for_tensors(monkeypatch)


def normal(*shape, seed=0):
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def on_cpu(x):
    return tuple(map(on_cpu, x)) if isinstance(x, tuple) else x.detach().cpu()


def same(found, wanted):
    if isinstance(wanted, tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return np.array_equal(found.numpy(), wanted.numpy(), equal_nan=True)


def traces():
    """How many programs were made of what compiled calls have put off."""
    return sum(key[1][0] == "trace" for key in programs._programs)


# --- what a call does -------------------------------------------------------------------------------------------------
def chain(x):
    return (F.gelu(x * 2 + 1) - x.mean(1, keepdim=True)).sum()


def changed(x):
    x.add_(1)
    x.mul_(x)
    return x.sum()


def new_one_changed(x):
    y = x.exp()
    y.add_(1)
    y[0] = 0
    return y


def overlapping(x):
    x[0] = x[1] * 2
    x[1:] += x[:-1]
    return x * 2


def view_before(x):
    row = x[1]
    x.mul_(2)
    return row + 1


def view_of_new(x):
    y = x * 2
    row = y[1]
    y.mul_(3)
    return row, y


def written_by_a_view(x):
    y = x * 2
    y.view(-1)[3] = 9.0
    return y


def detached(x):
    y = x * 1
    y.detach().zero_()
    return y


def turned(x):
    x.t().add_(1)
    return x.sum(0)


def over_itself(x):
    x.copy_((x + 1).flip(0))
    return x.clone()


def views_out(x):
    y = x + 0
    return y[1], y.t(), x.view(-1)[2:5]


def read_in_the_middle(x):
    y = x * 2
    return y + 1 if y.sum().item() > 0 else y - 1


def twice(x):
    y = x + 1
    return y, y, x


BODIES = [
    chain, changed, new_one_changed, overlapping, view_before, view_of_new, written_by_a_view, detached, turned,
    over_itself, views_out, read_in_the_middle, twice,
]  # fmt: skip


@pytest.mark.parametrize("function", BODIES, ids=lambda f: f.__name__)
def test_a_call_does_what_the_function_does(function, gpu):
    ours, theirs, compiled = normal(4, 6).cuda(), normal(4, 6), weft.compile(function)
    for _ in range(3):
        found, wanted = compiled(ours), function(theirs)
        assert same(on_cpu(found), wanted if isinstance(wanted, tuple) else wanted) and same(ours.cpu(), theirs)
    assert traces() >= 1


def test_calls_that_are_alike_have_one_program(gpu):
    compiled, x = weft.compile(chain), normal(5, 7).cuda()
    first = compiled(x).item()
    n_programs, n_launches = len(programs._programs), len(gpu.launched)
    assert compiled(x).item() == first == chain(normal(5, 7)).item() and len(programs._programs) == n_programs == 1
    assert len(gpu.launched) == 2 * n_launches
    compiled(normal(6, 7).cuda())
    assert traces() == 2
    text = compiled.explain()
    assert "function: fast path: yes" in text or "chain: fast path: yes" in text
    assert f"the last call ran 1 program(s) of {n_launches} kernel(s) on a GPU" in text


def test_what_nobody_holds_is_no_result(gpu):
    def layers(x):
        for k in range(5):
            x = (x * (k + 1)).sin()
        return x

    x, compiled = normal(30, 40).cuda(), weft.compile(layers)
    assert same(compiled(x).cpu(), layers(normal(30, 40)))
    (program,) = [p for key, p in programs._programs.items() if key[1][0] == "trace"]
    assert len(program.outputs) == 1 and len(program.launches) == 1
    gc.collect()
    before = weft.cuda.memory_allocated()
    for _ in range(3):
        compiled(x)
    assert weft.cuda.memory_allocated() == before


def test_numbers_that_change_are_told_to_the_same_program(gpu):
    compiled, x = weft.compile(lambda x, rate: (x * rate).sum()), normal(7).cuda()
    for rate in (0.5, 0.25, 3.0):
        assert compiled(x, rate).item() == (normal(7) * rate).sum().item()
    assert traces() == 1


# --- derivatives ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_a_training_step_is_one_program_of_the_same_bits(kind, gpu):
    images, labels, found = normal(20, 64), weft.arange(20) % 10, []
    for place in ("cpu", "cuda"):
        weft.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.LayerNorm(40), nn.Linear(40, 10)).to(place)
        optimizer = kind(net.parameters(), lr=0.01)

        @weft.compile
        def step(x, y, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            return loss

        losses = [step(images.to(place), labels.to(place)).item() for _ in range(6)]
        found.append((losses, [on_cpu(t) for p in net.parameters() for t in (p, p.grad)]))
    (losses, tensors), (other_losses, other_tensors) = found
    assert losses == other_losses and all(map(same, other_tensors, tensors)) and losses[-1] < losses[0]
    assert traces() == 1 and len(programs._programs) == 1
    assert "the last call ran 1 program(s)" in step.explain()


def test_a_backward_after_the_call(gpu):
    layer, x = nn.Linear(6, 2).cuda(), normal(4, 6).cuda()
    compiled = weft.compile(layer)
    gradients = []
    for run in (compiled, layer):
        layer.zero_grad()
        run(x).pow(2).sum().backward()
        gradients.append(layer.weight.grad.cpu())
    assert same(*gradients)


def test_gradients_that_accumulate_and_second_derivatives(gpu):
    layer, x = nn.Linear(6, 2).cuda(), normal(4, 6).cuda()

    def add_up(x):
        (layer(x) ** 2).sum().backward()

    def second(x):
        (first,) = weft.autograd.grad((x**3).sum(), x, create_graph=True)
        return weft.autograd.grad(first.exp().sum(), x)[0]

    gradients = []
    for run in (weft.compile(add_up), add_up):
        layer.zero_grad()
        for _ in range(3):
            run(x)
        gradients.append(layer.weight.grad.cpu())
    assert same(*gradients)
    y = (normal(5) * 0.25).cuda().requires_grad_()
    assert same(weft.compile(second)(y).cpu(), second(y).cpu())


def test_the_same_draws_of_random_numbers(gpu):
    x, compiled = normal(5, 6).cuda(), weft.compile(lambda x: F.dropout(x, 0.5) * 2)
    weft.manual_seed(0)
    found = compiled(x)
    weft.manual_seed(0)
    assert same(found.cpu(), F.dropout(normal(5, 6), 0.5) * 2)


# --- where it does not go ---------------------------------------------------------------------------------------------
def test_an_index_out_of_range(gpu):
    table = nn.Embedding(5, 3).cuda()

    @weft.compile
    def look_up(places, x):
        x.mul_(2)
        return table(places).sum() + x.sum()

    x = weft.ones(2, device="cuda")
    look_up(weft.tensor([1, 2], device="cuda"), x)
    with pytest.raises(IndexError, match="call: index out of range in self; nothing was changed"):
        look_up(weft.tensor([1, 9], device="cuda"), x)
    assert x.tolist() == [2.0, 2.0]
    assert look_up(weft.tensor([1, 2], device="cuda"), x).item() == (table.weight[[1, 2]].sum() + x.sum()).item()


def test_an_op_without_a_kernel_is_an_error_at_its_line(gpu):
    def ordered(x):
        return (x * 2).sort()[0]

    with pytest.raises(NotImplementedError, match="sort_rows: there is no kernel for a GPU yet") as error:
        weft.compile(ordered)(normal(6).cuda())
    lines = [entry.lineno for entry in error.traceback if entry.name == "ordered"]
    assert lines == [ordered.__code__.co_firstlineno]


def test_what_came_before_an_exception_has_happened(gpu):
    def stopped(x):
        x.add_(1)
        raise ValueError("stop")

    x = normal(3).cuda()
    with pytest.raises(ValueError, match="stop"):
        weft.compile(stopped)(x)
    assert same(x.cpu(), normal(3) + 1)


def test_a_tensor_that_is_met_in_the_middle_runs_eagerly_and_explain_says_so(gpu):
    layer, x = nn.Linear(6, 2).cuda(), normal(4, 6).cuda()
    optimizer = optim.SGD(layer.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        loss = layer(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    weights = layer.weight.detach().clone(), layer.bias.detach().clone()
    wanted = [step().item() for _ in range(3)]
    with weft.no_grad():
        layer.weight.copy_(weights[0])
        layer.bias.copy_(weights[1])
    compiled = weft.compile(step)
    assert [compiled().item() for _ in range(3)] == wanted
    assert "a tensor on a GPU was met, and what is computed there is no part of a call's programs" in compiled.explain()


def test_calls_on_the_cpu_and_on_the_gpu_are_told_apart(gpu):
    compiled, x = weft.compile(chain), normal(4, 6)
    values = {compiled(x).item(), compiled(x.cuda()).item(), compiled(x).item(), chain(x).item()}
    assert len(values) == 1 and "float32[4, 6] -> float32[4, 6] on cuda:0" in compiled.explain()


# --- the assembler ----------------------------------------------------------------------------------------------------
@pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed: it is in the package nvidia-cuda-nvcc-cu12")
def test_the_assembler_takes_the_programs_of_a_step(monkeypatch, tmp_path):
    texts, ptx = [], jit.ptx

    def kept(ir, architecture):
        texts.append((ptx(ir, architecture), architecture))
        return ""

    gpu_for_tensors(monkeypatch, kept)
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 40), nn.GELU(), nn.Linear(40, 10)).cuda()
    optimizer = optim.Adam(net.parameters())

    def step(x, y):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = normal(20, 64).cuda(), (weft.arange(20) % 10).cuda()
    step(x, y)
    n_eager = len(texts)
    weft.compile(step)(x, y)
    assert n_eager > 10 and len(texts) == n_eager + 1
    for text, architecture in texts:
        found = assembled(text, architecture, tmp_path)
        assert found and all(registers <= 128 and spilled <= 32 for registers, spilled in found.values())


def test_how_long_calls_take_is_not_tried(gpu):
    compiled, x = weft.compile(chain), normal(5, 7).cuda()
    compiled(x)
    left = compiled._n_left.value
    compiled(x)
    assert compiled._n_left.value == left
