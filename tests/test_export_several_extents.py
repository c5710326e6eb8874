"""Exported functions with several extents that the caller tells: weft's bits for every combination, or status 2."""

import itertools
import json
import shutil
import subprocess

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F

SIZES = (1, 2, 3, 7, 16, 17, 64)  # 1 means other things than more do, and some of them are equal


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def same(found, expected):
    found, expected = (x if isinstance(x, (tuple, list)) else (x,) for x in (found, expected))
    assert len(found) == len(expected)
    arrays = [(np.asarray(x), y.detach().numpy()) for x, y in zip(found, expected)]
    return all(x.shape == y.shape and np.array_equal(x, y) for x, y in arrays)


def matrix(x, y, weights):
    """A kernel between two sets of points."""
    return (-(x[:, None] - y[None]).square().sum(-1)).exp() @ weights


def pairs(x, y):
    both = x[:, None] * y[None]
    return both.reshape(-1), both.mean(), weft.cat([x, y]), both.sum(0), both.t(), both.softmax(1), both.cumsum(1)


def attention(q, k):
    return F.scaled_dot_product_attention(q, k, k).reshape(q.shape[0], -1)


def picked(mask, index, x):
    """Booleans, and integers that must be indices of a row."""
    return weft.where(mask, x, 0.0).sum(1), x.gather(1, index), (mask & (index > 1)).any(1), mask.sum()


def rows(n, m):
    random = np.random.default_rng(n + m)
    return random.random((n, m)) > 0.5, random.integers(0, m, (n, m)), random.standard_normal((n, m))


def divided(x, y):
    return x.sum() / len(y) + y.sum() / (len(x) * len(y)), x * len(x), y + len(x) * len(y)


def joined(x, y):
    """Lengths that are products, of n + m and m, divided by each other."""
    both = weft.cat([x, y]).cumsum(0)
    averages = (both[:, None] * y[None]).mean(1)
    return averages.sum(0), both.sort(0)[0], averages.reshape(-1)


MATRIX = {"x": {0: "n"}, "y": {0: "m"}, "weights": {0: "m"}}
VECTORS = {"x": {0: "n"}, "y": {0: "m"}}
FUNCTIONS = [
    (matrix, MATRIX, lambda n, m: (numbers(n, 3), numbers(m, 3), numbers(m)), (5, 8)),
    # Examples of equal sizes say nothing about sizes that differ.
    (matrix, MATRIX, lambda n, m: (numbers(n, 3), numbers(m, 3), numbers(m)), (6, 6)),
    (pairs, VECTORS, lambda n, m: (numbers(n), numbers(m)), (5, 7)),
    (joined, VECTORS, lambda n, m: (numbers(n, 4), numbers(m, 4)), (5, 7)),
    (picked, ({0: "n", 1: "m"},) * 3, rows, (4, 6)),
    (divided, VECTORS, lambda n, m: (numbers(n), numbers(m)), (5, 7)),
    (attention, ({0: "b", 1: "n"}, {0: "b", 1: "m"}), lambda b, n, m: (numbers(b, n, 4), numbers(b, m, 4)), (2, 5, 7)),
]


@pytest.mark.parametrize(("function", "shapes", "made", "example"), FUNCTIONS)
def test_every_combination_of_sizes(function, shapes, made, example):
    native = weft.aot(function, made(*example), dynamic_shapes=shapes)
    sizes = SIZES if len(example) == 2 else SIZES[:5]
    for point in itertools.product(sizes, repeat=len(example)):
        args = made(*point)
        assert same(native(*args), function(*map(weft.tensor, args))), point


def loss(x, y, beta):
    z = x @ beta
    return (F.softplus(z) - y * z).mean()


def data(n, p):
    return numbers(n, p), numbers(n) > 0, numbers(p)


LOSS = {"x": {0: "rows", 1: "columns"}, "y": {0: "rows"}, "beta": {0: "columns"}}


def test_gradients_and_products_with_the_hessian():
    native = weft.aot(loss, data(6, 4), gradients=True, hvp=True, dynamic_shapes=LOSS)
    for n, p in itertools.product(SIZES, SIZES):
        x, y, beta = (weft.tensor(a) for a in data(n, p))
        leaves = [x.requires_grad_(), beta.requires_grad_()]
        value = loss(x, y, beta)
        gradients = weft.autograd.grad(value, leaves, create_graph=True)
        assert same(native.value_and_grad(*data(n, p)), [value, *gradients]), (n, p)
        vectors = numbers(n, p + 1)[:, 1:], numbers(p + 3)[3:]
        total = sum((g * weft.tensor(v)).sum() for g, v in zip(gradients, vectors))
        assert same(native.hvp(*data(n, p), *vectors), weft.autograd.grad(total, leaves)), (n, p)


def test_a_training_step_on_sequences_of_any_length():
    weft.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 11))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(words, following):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        return loss

    def words(batch, length):
        return np.random.default_rng(batch).integers(0, 11, (batch, length))

    axes = {0: "batch", 1: "length"}
    native = weft.aot(step, (words(4, 6), words(4, 6)), dynamic_shapes={"words": axes, "following": axes})
    for batch, length in [(4, 6), (1, 9), (13, 1), (1, 1), (5, 5)]:
        x, y = words(batch, length), words(batch, length)[::-1].copy()
        assert native(x, y) == step(weft.tensor(x), weft.tensor(y)).item()
    assert np.array_equal(native.state["model_3_weight"], model[3].weight.detach().numpy())


def parts(x, y):
    return x[len(y) :] * 2, x[: len(y)] + y


def test_what_is_longer_than_what():
    native = weft.aot(parts, (numbers(40), numbers(4)), dynamic_shapes=VECTORS)
    for n, m in [(40, 4), (7, 3), (64, 17), (65, 62), (100, 16)]:
        assert same(native(numbers(n), numbers(m)), parts(weft.tensor(numbers(n)), weft.tensor(numbers(m)))), (n, m)
    for n, m in [(4, 40), (3, 4), (5, 5), (0, 1), (1, 0)]:
        with pytest.raises(ValueError, match=f"n is {n}, m is {m}, which it was not made for"):
            native(numbers(n), numbers(m))


def test_extents_whose_product_is_too_large_are_not_served():
    native = weft.aot(matrix, (numbers(5, 3), numbers(8, 3), numbers(8)), dynamic_shapes=MATRIX)
    call, scratch = native.value.ctypes, native.value.scratch
    for n, m in [(2**31 - 1, 2**31 - 1), (2**31, 1), (2**62, 2**62), (-1, 5), (5, -(2**40))]:
        assert call(n, m, 0, 0, 0, 0, scratch) == 2, (n, m)


def wider(x, y):
    return x * 2 if len(x) < 10 else x.sin(), y + 1


@pytest.mark.parametrize(
    ("function", "shapes", "message"),
    [
        (lambda x, y: x + y, VECTORS, "fails with an extent of {'n': 5, 'm': 13}: add: shapes"),
        (wider, VECTORS, "does not compute the same for extents of {'n': 5, 'm': 5} and of {'n': 13"),
        (lambda x, y: x * 2 + len(x) ** 3, VECTORS, r"a Python number is .*; only a \* n \+ b"),
        (lambda x, y: (x, y), {"x": {0: "int"}, "y": {0: "m"}}, "'int' must be a name in C"),
    ],
)
def test_what_cannot_be_said(function, shapes, message):
    with pytest.raises(ValueError, match=message):
        weft.aot(function, (numbers(5), numbers(5)), dynamic_shapes=shapes)


C_PROGRAM = """
#include "loss.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static float number(int64_t k) { return 0.125f * (float)((k * 7) % 23 - 11); }

int main(void) {
    static const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 64};
    for (int i = 0; i < 49; i++) {
        int64_t n = sizes[i / 7], p = sizes[i % 7], n_bytes = loss_value_and_grad_scratch(n, p);
        if (n_bytes < 0) return 1;
        /* No more alignment than the elements need. */
        char *memory = (char *)malloc(4 * (2 * n * p + 2 * p + 1) + n + 4);
        float *x = (float *)memory + 1, *beta = x + n * p, *grad_x = beta + p, *grad_beta = grad_x + n * p;
        uint8_t *y = (uint8_t *)(grad_beta + p);
        float value;
        void *scratch = aligned_alloc(64, (n_bytes + 127) / 64 * 64);
        for (int64_t k = 0; k < n * p; k++) x[k] = number(k);
        for (int64_t k = 0; k < n; k++) y[k] = k % 3 == 0;
        for (int64_t k = 0; k < p; k++) beta[k] = number(k + 5);
        if (loss_value_and_grad(n, p, x, y, beta, &value, grad_x, grad_beta, scratch)) return 2;
        printf("%a", value);
        for (int64_t k = 0; k < n * p + p; k++) printf(" %a", grad_x[k]);
        printf("\\n");
        free(memory);
        free(scratch);
    }
    return loss(0, 3, 0, 0, 0, 0, 0) == 2 && loss_scratch(3, 0) == -1 ? 0 : 3;
}
"""


def lines_of_the_program():
    def number(k):
        return weft.tensor(0.125 * ((k * 7) % 23 - 11), dtype=weft.float32)

    for n, p in itertools.product(SIZES, SIZES):
        x = number(np.arange(n * p)).reshape(n, p).requires_grad_()
        beta = number(np.arange(p) + 5).requires_grad_()
        value = loss(x, weft.tensor(np.arange(n) % 3 == 0), beta)
        yield [value.item(), *[e for g in weft.autograd.grad(value, [x, beta]) for e in g.flatten().tolist()]]


@pytest.mark.parametrize("compiler", ["cc", "c++", "aarch64-linux-gnu-gcc"])
def test_a_program_in_c(tmp_path, compiler):
    is_arm = compiler.startswith("aarch64")
    target, run = ("aarch64", ["qemu-aarch64"]) if is_arm else ("native", [])
    files = weft.export(loss, data(6, 4), tmp_path / "loss", gradients=True, target=target, dynamic_shapes=LOSS)
    header = files.header.read_text()
    assert "int64_t loss_scratch(int64_t rows, int64_t columns);" in header
    assert "/* x [rows][columns], y [rows], beta [columns], result a number */" in header
    assert json.loads(files.description.read_text())["functions"][0]["extents"] == ["rows", "columns"]
    if not is_arm:
        loaded, args = weft.load_exported(tmp_path / "loss"), data(9, 2)
        assert loaded(*args) == loss(*map(weft.tensor, args)).item()
    if shutil.which(compiler) and all(map(shutil.which, run)):
        source = tmp_path / ("main.cpp" if compiler == "c++" else "main.c")
        source.write_text(C_PROGRAM)
        static = ["-static"] if is_arm else []
        command = [compiler, "-Wall", "-Werror", *static, str(source), str(files.object), "-lm", "-o", "main"]
        subprocess.run(command, check=True, cwd=tmp_path)
        out = subprocess.run([*run, str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
        found = [[float.fromhex(number) for number in line.split()] for line in out.splitlines()]
        assert found == list(lines_of_the_program())
