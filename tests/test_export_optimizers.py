"""Training steps as C functions whose optimizers count their steps, and whose learning rates their callers set."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from exported_parts import BATCH, batch

import weft
from weft import nn, optim
from weft.nn import functional as F


def made(kind, dtype=weft.float32, **options):
    """(model, optimizer of two groups, step, batch)"""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    groups = [{"params": model[0].parameters(), "lr": 0.02}, {"params": model[2].parameters(), "weight_decay": 0.3}]
    optimizer = kind(groups, **options)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step, (weft.randn(10, 6, dtype=dtype), weft.randint(0, 3, (10,)))


def is_same(native, model):
    return all(
        np.array_equal(native.state["model_" + name.replace(".", "_")], p.detach().numpy())
        for name, p in model.named_parameters()
    )


KINDS = [
    (optim.Adam, {}),
    (optim.Adam, {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    (optim.Adam, {"betas": (0.3, 0.5), "eps": 1e-3}),
    (optim.Adam, {"betas": (0, 0.5)}),
    (optim.AdamW, {}),
    (optim.AdamW, {"amsgrad": True}),
    (optim.Adamax, {}),
    (optim.Adagrad, {"lr_decay": 0.1}),
    (optim.Adadelta, {}),
    (optim.NAdam, {"weight_decay": 0.1}),
    (optim.NAdam, {"decoupled_weight_decay": True, "momentum_decay": 0.1}),
    (optim.RAdam, {}),
    (optim.RAdam, {"betas": (0.9, 0.6), "weight_decay": 0.1}),
    (optim.ASGD, {}),
    (optim.ASGD, {"t0": 20, "lambd": 0.5, "weight_decay": 0.1}),
    (optim.Adafactor, {}),
    (optim.Adafactor, {"lr": 0.3, "weight_decay": 0.1, "maximize": True}),
    (optim.RMSprop, {"centered": True, "momentum": 0.5}),
    (optim.SGD, {"momentum": 0.9, "nesterov": True}),
]


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64], ids=str)
@pytest.mark.parametrize(("kind", "options"), KINDS, ids=lambda x: getattr(x, "__name__", None))
def test_many_steps_have_the_bits_of_weft(kind, options, dtype):
    model, optimizer, step, (x, y) = made(kind, dtype, **options)
    native = weft.aot(step, (x, y))
    for _ in range(60):
        assert native(x.numpy(), y.numpy()) == step(x, y).item()
    assert is_same(native, model)
    counts = [native.state[key].item() for key in native.state if key.endswith("_step")]
    counting = kind not in (optim.Adadelta, optim.RMSprop, optim.SGD)
    assert counts == ([63, 63] if counting else [])
    if counting:
        assert [s["step"] for s in optimizer.state.values()] == [63] * 4


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=lambda x: getattr(x, "__name__", None))
def test_a_schedule(kind, options):
    model, optimizer, step, (x, y) = made(kind, **options)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    native = weft.aot(step, (x, y), learning_rates=True)
    assert native.state["optimizer_group0_lr"].dtype == np.float64
    for _ in range(20):
        for k, group in enumerate(optimizer.param_groups):
            native.state[f"optimizer_group{k}_lr"][...] = group["lr"]
        assert native(x.numpy(), y.numpy()) == step(x, y).item()
        schedule.step()
    assert is_same(native, model)


@pytest.mark.parametrize("kind", [optim.Adam, optim.NAdam, optim.RAdam, optim.ASGD, optim.Adafactor])
def test_several_steps_in_a_call_and_parameters_that_joined_late(kind):
    weft.manual_seed(0)
    first, late = nn.Linear(4, 4), nn.Linear(4, 1)
    members = [*first.parameters(), *late.parameters()]
    optimizer = kind(members, lr=0.05)
    (first(weft.ones(4)).sum()).backward()
    optimizer.step()

    def step(x):
        for _ in range(2):
            optimizer.zero_grad()
            loss = late(first(x).tanh()).square().mean()
            loss.backward()
            optimizer.step()
        return loss

    x = weft.randn(5, 4)
    native = weft.aot(step, (x,))
    assert sorted(a.item() for key, a in native.state.items() if "_step" in key) == [6, 7]
    for _ in range(10):
        assert native(x.numpy()) == step(x).item()
    assert sorted(a.item() for key, a in native.state.items() if "_step" in key) == [26, 27]


def test_an_optimizer_that_has_been_loaded_and_one_inside_an_object(tmp_path):
    class Trainer:
        def __init__(self):
            weft.manual_seed(0)
            self.model = nn.Linear(20, 3)
            self.optimizer = optim.AdamW(self.model.parameters(), lr=1)

        def step(self, x, y):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            return loss

    old, new = Trainer(), Trainer()
    x, y = batch(8)
    tensors = weft.tensor(x), weft.tensor(y)
    old.step(*tensors)
    weft.save(old.optimizer.state_dict(), tmp_path / "state")
    new.model.load_state_dict(old.model.state_dict())
    new.optimizer.load_state_dict(weft.load(tmp_path / "state"))
    weft.export(new.step, tensors, tmp_path / "step", learning_rates=True)
    native = weft.load_exported(tmp_path / "step")
    assert native.state["optimizer_step"] == 4 and native.state["optimizer_lr"] == 1
    for _ in range(5):
        assert native(x, y) == new.step(*tensors).item()


def test_a_step_that_fails_is_not_counted():
    _, _, step, (x, y) = made(optim.Adam)
    native = weft.aot(step, (x, y))
    with pytest.raises(IndexError, match="out of range"):
        native(x.numpy(), np.full(10, 7))
    assert native.state["optimizer_group0_step"] == 3
    assert native(x.numpy(), y.numpy()) == step(x, y).item()


def test_batches_of_any_size():
    weft.manual_seed(0)
    model = nn.Linear(20, 3)
    adam = optim.Adam(model.parameters(), lr=0.1)

    def step(x, y):
        adam.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        adam.step()
        return loss

    native = weft.aot(step, batch(16), dynamic_shapes=BATCH, learning_rates=True)
    for k, n in enumerate((16, 5, 1, 40, 7)):
        x, y = batch(n)
        native.state["adam_lr"][...] = adam.param_groups[0]["lr"] = 0.1 / (k + 1)
        assert native(x, y) == step(weft.tensor(x), weft.tensor(y)).item()
    assert native.state["adam_step"] == adam.state[model.weight]["step"]
    assert is_same(native, model)


# --- what is refused --------------------------------------------------------------------------------------------------
def refused(step, args, **options):
    with pytest.raises(ValueError) as raised:
        weft.aot(step, args, **options)
    return str(raised.value)


def test_a_rate_that_follows_from_the_count_in_another_way_is_refused_with_its_line():
    class Fading(optim.Optimizer):
        def update_group(self, group):
            group["lr"] *= 0.5
            for param in group["params"]:
                param.sub_(param.grad * group["lr"])

    param = weft.ones(3, requires_grad=True)
    optimizer = Fading([param], {"lr": 0.1})

    def step(x):
        optimizer.zero_grad()
        (param * x).sum().backward()
        optimizer.step()

    text = refused(step, (weft.ones(3),))
    assert re.search(r"from call to call \[.*test_export_optimizers\.py:\d+\], cannot be exported", text)


def test_rates_that_cannot_be_fields_are_refused():
    _, _, step, args = made(optim.Rprop)
    text = refused(step, args, learning_rates=True)
    assert re.search(r"the learning rate of Rprop cannot be a field: in the step of .*_optimizers\.py:\d+", text)
    assert "no optimizer makes a step" in refused(lambda x: x * 2, (weft.ones(2),), learning_rates=True)


@pytest.mark.parametrize("learning_rates", [False, True])
@pytest.mark.parametrize("kind", [optim.Adam, optim.SGD])
def test_a_schedule_inside_the_function_is_refused(kind, learning_rates):
    _, optimizer, step, args = made(kind)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def scheduled(x, y):
        loss = step(x, y)
        schedule.step()
        return loss

    text = refused(scheduled, args, learning_rates=learning_rates)
    assert "is not the same in every call" in text or "not those of one rate in every call" in text


# --- from C -----------------------------------------------------------------------------------------------------------
C_PROGRAM = """
#include "step.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY(field) memcpy(malloc(sizeof step_initial_##field), step_initial_##field, sizeof step_initial_##field)
enum { SIZE = 3, STEPS = 40 };
static float x[16 * 20], losses[STEPS];
static int64_t y[16];
static step_state state;
static void *scratch;
static pthread_barrier_t barrier;

static void *run(void *rank) {
    for (int k = 0; k < STEPS; k++) {
        if (!rank) *state.optimizer_lr = 0.1 / (k + 1);
        pthread_barrier_wait(&barrier);
        if (step_team(x, y, losses + k, &state, scratch, (int64_t)rank, SIZE)) exit(1);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int count, char **arguments) {
    for (int k = 0; k < 320; k++) x[k] = 0.125f * (k * 7 % 23 - 11);
    for (int k = 0; k < 16; k++) y[k] = k % 3;
FIELDS
    if (count > 1) {
        pthread_t threads[SIZE];
        size_t n_bytes = (step_team_scratch(SIZE) + 63) / 64 * 64;
        memset(scratch = aligned_alloc(64, n_bytes), 0, n_bytes);
        pthread_barrier_init(&barrier, NULL, SIZE);
        for (int64_t k = 0; k < SIZE; k++) pthread_create(&threads[k], NULL, run, (void *)k);
        for (int k = 0; k < SIZE; k++) pthread_join(threads[k], NULL);
    } else {
        scratch = aligned_alloc(64, (STEP_SCRATCH + 63) / 64 * 64);
        for (int k = 0; k < STEPS; k++) {
            *state.optimizer_lr = 0.1 / (k + 1);
            if (step(x, y, losses + k, &state, scratch)) return 1;
        }
    }
    if (*state.optimizer_step != *step_initial_optimizer_step + STEPS) return 2;
    for (int k = 0; k < STEPS; k++) printf("%a\\n", losses[k]);
    return 0;
}
"""


@pytest.mark.parametrize("target", ["native", "x86-64", "x86-64-v2"])
def test_a_training_with_adam_in_c(tmp_path, target):
    """Forty steps with a schedule, by one thread and by three."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    files = weft.export(step, batch(16), tmp_path / "step", target=target, threads=True, learning_rates=True)
    header = files.header.read_text()
    assert "int64_t *optimizer_step; /* a number */" in header and "double *optimizer_lr; /* a number */" in header
    x = weft.tensor([0.125 * (k * 7 % 23 - 11) for k in range(320)]).reshape(16, 20)
    y = weft.arange(16) % 3
    expected = []
    for k in range(40):
        optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
        expected.append(step(x, y).item())
    if not shutil.which("cc"):
        return
    fields = re.findall(r"^    \w+ \*(\w+);", header, re.MULTILINE)
    lines = [f"    state.{field} = COPY({field});" for field in fields]
    (tmp_path / "main.c").write_text(C_PROGRAM.replace("FIELDS", "\n".join(lines)))
    command = ["cc", "-Wall", "-Werror", "-pthread", "main.c", "step.o", "-lm", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    for more in ([], ["threads"]):
        out = subprocess.run([str(tmp_path / "main"), *more], capture_output=True, text=True, check=True).stdout
        assert [float.fromhex(line) for line in out.split()] == expected
