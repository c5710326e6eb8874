"""Convolutions for batches of any size as C functions: one object, the bits of weft for every size."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from exported_parts import BATCH

import weft
from weft import nn, optim
from weft.nn import functional as F

SIZES = (2, 1, 3, 8, 17, 33)


def plain():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)), (1, 8, 8)


def deeper():
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 3), nn.GELU(), nn.AvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16 * 16, 3)), (1, 12, 12)


def by_channels():
    layers = [nn.Conv2d(8, 8, 3, groups=8, padding="same"), nn.Conv2d(8, 16, 1), nn.SiLU(), nn.GroupNorm(4, 16)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 36, 3)), (8, 6, 6)


def of_sequences():
    layers = [nn.Conv1d(4, 8, 5, padding=4, dilation=2), nn.Tanh(), nn.ConvTranspose1d(8, 3, 4, stride=2)]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool1d(1), nn.Flatten()), (4, 12)


def of_volumes():
    return nn.Sequential(nn.Conv3d(1, 2, 3, stride=1), nn.Flatten(), nn.Linear(16, 3)), (1, 4, 4, 4)


def normalized():
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(8, 4, 3, stride=2), nn.Flatten(), nn.Linear(64, 3)), (3, 9, 9)


def data(n, shape):
    random = np.random.default_rng(n)
    return random.standard_normal((n, *shape)).astype(np.float32), random.integers(0, 3, n)


def made(network):
    weft.manual_seed(0)
    return network()


@pytest.mark.parametrize("network", [plain, deeper, by_channels, of_sequences, of_volumes])
def test_values_and_gradients(network):
    net, shape = made(network)

    def loss(x, y):
        return F.cross_entropy(net(x), y)

    native = weft.aot(loss, data(5, shape), gradients=True, dynamic_shapes=BATCH)
    for n in SIZES:
        x, y = data(n, shape)
        value, gradient = native.value_and_grad(x, y)
        leaf = weft.tensor(x, requires_grad=True)
        expected = loss(leaf, weft.tensor(y))
        expected.backward()
        assert value == expected.item() and native(x, y) == value
        assert np.array_equal(gradient, leaf.grad.numpy())


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
@pytest.mark.parametrize("network", [plain, deeper, by_channels, of_sequences, of_volumes, normalized])
def test_training(network, kind):
    net, shape = made(network)
    optimizer = kind(net.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    native = weft.aot(step, data(5, shape), dynamic_shapes=BATCH)
    for n in SIZES:
        x, y = data(n, shape)
        assert native(x, y) == step(weft.tensor(x), weft.tensor(y)).item()
    for name, x in [*net.named_parameters(), *net.named_buffers()]:
        field = "net_" + name.replace(".", "_")
        assert np.array_equal(native.state[field], x.detach().numpy()), name


def test_the_prediction_of_a_trained_network_with_statistics():
    net, shape = made(normalized)
    for n in (4, 7):
        net(weft.tensor(data(n, shape)[0]))
    net.eval()
    native = weft.aot(lambda x: net(x).softmax(1), data(3, shape)[:1], dynamic_shapes={"x": {0: "n"}})
    for n in SIZES:
        x, _ = data(n, shape)
        assert np.array_equal(native(x), net(weft.tensor(x)).softmax(1).detach().numpy())


C_PROGRAM = """
#include "step.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY(field) memcpy(malloc(sizeof step_initial_##field), step_initial_##field, sizeof step_initial_##field)
static float x[40 * 64];
static int64_t y[40];

int main(void) {
    step_state state;
    for (int k = 0; k < 40 * 64; k++) x[k] = 0.125f * (k * 7 % 23 - 11);
    for (int k = 0; k < 40; k++) y[k] = k % 3;
FIELDS
    for (int64_t n = 1; n <= 40; n += 3) {
        int64_t n_bytes = step_scratch(n);
        float loss;
        if (n_bytes < 0) return 1;
        void *scratch = aligned_alloc(64, (n_bytes + 64) / 64 * 64);
        if (step(n, x, y, &loss, &state, scratch)) return 2;
        printf("%a\\n", loss);
        free(scratch);
    }
    return 0;
}
"""


@pytest.mark.parametrize("target", ["native", "x86-64-v2"])
def test_a_program_in_c(tmp_path, target):
    net, _ = made(plain)
    optimizer = optim.Adam(net.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    files = weft.export(step, data(5, (1, 8, 8)), tmp_path / "step", target=target, dynamic_shapes=BATCH)
    header = files.header.read_text()
    x = weft.tensor([0.125 * (k * 7 % 23 - 11) for k in range(40 * 64)]).reshape(40, 1, 8, 8)
    y = weft.arange(40) % 3
    expected = [step(x[:n], y[:n]).item() for n in range(1, 41, 3)]
    assert "int step(int64_t n, const float *x, const int64_t *y, float *result, const step_state *state" in header
    if not shutil.which("cc"):
        return
    lines = [f"    state.{field} = COPY({field});" for field in re.findall(r"^    \w+ \*(\w+);", header, re.MULTILINE)]
    (tmp_path / "main.c").write_text(C_PROGRAM.replace("FIELDS", "\n".join(lines)))
    command = ["cc", "-Wall", "-Werror", "main.c", "step.o", "-lm", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    out = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    assert [float.fromhex(line) for line in out.split()] == expected
