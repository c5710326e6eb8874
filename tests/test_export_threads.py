"""Exported functions that several threads of a C program run together: the bits of one thread, and of weft."""

import ctypes
import itertools
import json
import shutil
import subprocess
import threading

import numpy as np
import pytest
from exported_parts import BATCH, batch, classifier, expected_of

import weft
from weft import nn
from weft.nn import functional as F
from weft.runtime.code import jit


def library(files):
    """The object, loaded by weft's own loader: no compiler is needed to call it from Python's threads."""
    return jit.link(files.object.read_bytes())


class Team:
    """`size` threads that call a C function, with scratch memory that is zeros at first."""

    def __init__(self, functions, name, size, extents=()):
        # Arguments bring their types along.
        self.call = ctypes.CFUNCTYPE(ctypes.c_int)(functions.address(name))
        n_bytes = ctypes.CFUNCTYPE(ctypes.c_int64)(functions.address(f"{name}_scratch"))
        self.extents, self.size = [ctypes.c_int64(n) for n in extents], size
        self.memory = np.zeros(max(n_bytes(*self.extents, ctypes.c_int64(size)), 0) + 64, np.uint8)
        self.scratch = -(-self.memory.ctypes.data // 64) * 64

    def __call__(self, *arrays):
        """What each thread returns."""
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        found = [None] * self.size

        def run(rank):
            numbers = ctypes.c_void_p(self.scratch), ctypes.c_int64(rank), ctypes.c_int64(self.size)
            found[rank] = self.call(*self.extents, *pointers, *numbers)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


def test_any_number_of_threads_has_the_bits_of_one(tmp_path):
    f = classifier(64)
    files = weft.export(f, batch(64), tmp_path / "loss", gradients=True, threads=True)
    assert json.loads(files.description.read_text())["functions"][1]["team"] == "loss_value_and_grad_team"
    functions, (expected, slope) = library(files), expected_of(f, *batch(64))
    for size in (1, 2, 3, 8):
        team, value, gradient = (
            Team(functions, "loss_value_and_grad_team", size),
            np.empty(1, "f4"),
            np.empty((64, 20), "f4"),
        )
        for _ in range(5):
            value[:], gradient[:] = 7, 7
            assert team(*batch(64), value, gradient) == [0] * size
            assert value.item() == expected and np.array_equal(gradient, slope), size
        # A class that is not there: all threads say so, and the next call is as before.
        x, y = batch(64)
        y[5] = 3
        assert team(x, y, value, gradient) == [1] * size
        assert team(*batch(64), value, gradient) == [0] * size and value.item() == expected


def test_sizes_known_at_run_time(tmp_path):
    f = classifier(64)
    files = weft.export(f, batch(64), tmp_path / "loss", gradients=True, threads=True, dynamic_shapes=BATCH)
    functions = library(files)
    for size, n in itertools.product((1, 2, 3), (1, 2, 3, 16, 64, 300)):
        team, value, gradient = (
            Team(functions, "loss_value_and_grad_team", size, [n]),
            np.empty(1, "f4"),
            np.empty((n, 20), "f4"),
        )
        assert team(*batch(n), value, gradient) == [0] * size
        expected, slope = expected_of(f, *batch(n))
        assert value.item() == expected and np.array_equal(gradient, slope), (size, n)
    nothing = np.empty(0)
    assert Team(functions, "loss_team", 3, [0])(nothing, nothing, nothing) == [2] * 3


def test_what_threads_do_not_share_is_done_by_the_first(tmp_path):
    """Few numbers, a sort, and products of several sizes."""

    def f(x, w):
        return x.sort(1)[0].cumsum(1), (x @ w).softmax(1) @ w.t(), x[:2, :2].sum()

    weft.manual_seed(0)
    for rows in (2, 150):
        x, w = weft.randn(rows, 40), weft.randn(40, 30)
        functions = library(weft.export(f, (x, w), tmp_path / f"mixed{rows}", threads=True))
        for size in (1, 3):
            results = [np.empty(r.shape, "f4") for r in f(x, w)]
            assert Team(functions, f"mixed{rows}_team", size)(x.numpy(), w.numpy(), *results) == [0] * size
            assert all(np.array_equal(a, b.numpy()) for a, b in zip(results, f(x, w)))


C_PROGRAM = """
#include "step.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 3 };
static float x[16 * 20], losses[10];
static int64_t y[16];
static step_state state;
static void *scratch;

static void *run(void *rank) {
    for (int k = 0; k < 10; k++)
        if (step_team(x, y, losses + k, &state, scratch, (int64_t)rank, SIZE)) exit(1);
    return NULL;
}

int main(void) {
    pthread_t threads[SIZE];
    size_t n_bytes = (step_team_scratch(SIZE) + 63) / 64 * 64;
    memset(scratch = aligned_alloc(64, n_bytes), 0, n_bytes);
    for (int k = 0; k < 320; k++) x[k] = 0.125f * (k * 7 % 23 - 11);
    for (int k = 0; k < 16; k++) y[k] = k % 3;
FIELDS
    for (int64_t k = 0; k < SIZE; k++) pthread_create(&threads[k], NULL, run, (void *)k);
    for (int k = 0; k < SIZE; k++) pthread_join(threads[k], NULL);
    for (int k = 0; k < 10; k++) printf("%a\\n", losses[k]);
    return 0;
}
"""


@pytest.mark.parametrize("compiler", ["cc", "aarch64-linux-gnu-gcc"])
def test_a_training_in_threads_of_c(tmp_path, compiler):
    """Ten steps follow each other, without anything between them but the function's own waits."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    is_arm = compiler.startswith("aarch64")
    target, run = ("aarch64", ["qemu-aarch64"]) if is_arm else ("native", [])
    files = weft.export(step, batch(16), tmp_path / "step", target=target, threads=True)
    x = weft.tensor([0.125 * (k * 7 % 23 - 11) for k in range(320)]).reshape(16, 20)
    y = weft.arange(16) % 3
    expected = [step(x, y).item() for _ in range(10)]
    assert "int step_team(" in files.header.read_text()
    if not (shutil.which(compiler) and all(map(shutil.which, run))):
        return
    fields = json.loads(files.description.read_text())["functions"][0]["parameters"][-1]["fields"]
    lines = [
        f"    state.{f['name']} = memcpy(malloc(4 * {f['elements']}), step_initial_{f['name']}, 4 * {f['elements']});"
        for f in fields
    ]
    (tmp_path / "main.c").write_text(C_PROGRAM.replace("FIELDS", "\n".join(lines)))
    static = ["-static"] if is_arm else []
    command = [compiler, "-Wall", "-Werror", "-pthread", *static, "main.c", "step.o", "-lm", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    out = subprocess.run([*run, str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    assert [float.fromhex(line) for line in out.split()] == expected
