"""Exported functions with an extent that the caller tells: weft's bits for every size, from one object."""

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

SIZES = (2, 3, 7, 16, 1, 17, 33, 64, 131, 700)


def same(xs, ys):
    return len(xs) == len(ys) and all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in zip(xs, ys))


def test_one_object_has_the_bits_of_weft_for_every_size():
    # 16 is also the width of a layer, 1 means other things than more do.
    f = classifier(16)
    native = weft.aot(f, batch(8), gradients=True, dynamic_shapes=BATCH)
    for n in SIZES:
        x, y = batch(n)
        assert same(native.value_and_grad(x, y), expected_of(f, x, y)), n
        assert native(x, y) == expected_of(f, x, y)[0]


def test_products_with_the_hessian_and_any_spelling_of_the_axes():
    f = classifier(16)
    native = weft.aot(f, batch(5), hvp=True, dynamic_shapes=({-2: "n"}, ("n",)))
    for n in (3, 50):
        x, y = batch(n)
        vector = batch(n + 1)[0][:n]
        assert same([native.hvp(x, y, vector)], [weft.hvp(lambda x, y=y: f(x, weft.tensor(y)))(x, vector)])


def test_results_whose_shapes_follow_the_extent():
    def f(x):
        padded = F.pad(x, (1, 2))
        return padded, x.cumsum(0), weft.cat([x, x]).reshape(-1), x.t() @ x, x @ x.t(), x.sum(0), x.argmax(1)

    native = weft.aot(f, (weft.randn(6, 4),), dynamic_shapes={"x": {0: "rows"}})
    for n in SIZES:
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        assert same(native(x), [r.numpy() for r in f(weft.tensor(x))]), n


def test_attention_over_any_length():
    weft.manual_seed(0)
    block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    native = weft.aot(lambda x: block(x), (weft.randn(2, 9, 16),), dynamic_shapes={"x": {1: "length"}})
    for n in (2, 5, 9, 40, 70):
        x = np.random.default_rng(n).standard_normal((2, n, 16)).astype(np.float32)
        assert same([native(x)], [block(weft.tensor(x)).detach().numpy()]), n


def test_division_by_the_length_in_python():
    def f(x):
        return ((x - 1) ** 2).sum() / x.shape[0] + 3 * len(x)

    native = weft.aot(f, (weft.randn(6, dtype=weft.float64),), dynamic_shapes={"x": {0: "n"}})
    for n in SIZES:
        x = np.random.default_rng(n).standard_normal(n)
        assert native(x) == f(weft.tensor(x)).item()


def test_a_training_step_on_batches_of_any_size():
    def made():
        weft.manual_seed(0)
        model = nn.Linear(20, 3)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    model, step = made()
    native = weft.aot(step, batch(16), dynamic_shapes=BATCH)
    assert len(native.state) == 4
    for n in (16, 5, 1, 40):
        x, y = batch(n)
        assert native(x, y) == step(weft.tensor(x), weft.tensor(y)).item()
    assert same(
        [native.state["model_weight"], native.state["model_bias"]], [p.detach().numpy() for p in model.parameters()]
    )


def test_threads_with_different_sizes_at_once():
    f = classifier(16)
    native, found = weft.aot(f, batch(8), gradients=True, dynamic_shapes=BATCH), {}

    def call(n):
        own = native.value_and_grad.copy()
        found[n] = [own(*batch(n)) for _ in range(50)]

    threads = [threading.Thread(target=call, args=(n,)) for n in (3, 40, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, results in found.items():
        expected = expected_of(f, *batch(n))
        assert len(results) == 50 and all(same(r, expected) for r in results)


def test_wrong_sizes_and_what_is_not_served():
    f = classifier(16)
    native = weft.aot(f, batch(8), dynamic_shapes=BATCH)
    with pytest.raises(ValueError, match=r"y: int64\[n\] was expected, got an array of shape \(5,\)"):
        native(batch(6)[0], batch(5)[1])
    with pytest.raises(ValueError, match=r"x: float32\[n, 20\] was expected, got an array of shape \(6, 19\)"):
        native(batch(6)[0][:, :19], batch(6)[1])
    with pytest.raises(ValueError, match="n is 0, which it was not made for"):
        native(*[a[:0] for a in batch(6)])
    assert (
        native.value.declaration == "int <lambda>(n (extent), x (argument))" or "n (extent)" in native.value.declaration
    )
    x, y = batch(6)
    assert native.value.ctypes(2**40, x.ctypes.data, y.ctypes.data, x.ctypes.data, native.value.scratch) == 2


def at_the_border(x):
    return x.sum() if len(x) < 10 else x.mean()


def made_outside(x):
    return x * weft.from_numpy(np.arange(len(x), dtype=np.float32))


@pytest.mark.parametrize(
    ("function", "shapes", "message"),
    [
        (lambda x: x * 2, {"z": {0: "n"}}, r"dynamic_shapes names \['z'\]; the arguments are \['x'\]"),
        (lambda x: x * 2, {"x": {1: "n"}}, "must be an axis of a tensor of 1 dimensions"),
        (lambda x: x * 2, {"x": {0: 5}}, "the name of its extent"),
        (lambda x: x * 2, {"x": 0}, r"dynamic_shapes\['x'\] is 0; it must be a dict of axes"),
        (lambda x: x * 2, 0, "dynamic_shapes=0: it must be a dict such as"),
        (lambda x: x * 2, {"x": {0: "x"}}, "must be a name in C that no argument has"),
        (lambda x, y: x.sum() + y.sum(), ({0: "n"}, {0: "n"}), r"the examples have \[5, 7\] as 'n'"),
        (at_the_border, {"x": {0: "n"}}, "does not compute the same for extents of 5 and of 13"),
        (made_outside, {"x": {0: "n"}}, "a tensor that the function makes from numbers or arrays depends"),
        (lambda x: x.sum() / (1 / len(x)), {"x": {0: "n"}}, "only a \\* n \\+ b with whole a can be computed"),
    ],
)
def test_what_cannot_have_an_extent_says_why(function, shapes, message):
    n_arguments = function.__code__.co_argcount
    args = tuple([weft.ones(5), weft.ones(7)][:n_arguments])
    with pytest.raises(ValueError, match=message):
        weft.aot(function, args, dynamic_shapes=shapes)


def test_a_slice_of_what_does_not_grow_serves_as_many_as_there_are():
    table = weft.arange(100.0)
    native = weft.aot(lambda x: x * table[: len(x)], (weft.ones(5),), dynamic_shapes={"x": {0: "n"}})
    for n in (1, 2, 99, 100):
        assert np.array_equal(native(np.full(n, 2.0)), 2 * np.arange(n, dtype=np.float32)), n
    with pytest.raises(ValueError, match="n is 101, which it was not made for"):
        native(np.ones(101))


def windows(x):
    return (x[4:] - x[:-4]).square(), x[-4:] + 0


def test_a_window_serves_what_it_fits_into():
    native = weft.aot(windows, (weft.randn(12),), dynamic_shapes={"x": {0: "n"}})
    for n in (5, 6, 12, 40):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        assert same(native(x), [r.numpy() for r in windows(weft.tensor(x))]), n
    with pytest.raises(ValueError, match="n is 4, which it was not made for"):
        native(np.ones(4, np.float32))


def test_ops_that_need_their_size_are_named():
    """Convolutions are compiled for the sizes of images."""
    filtered = nn.Conv2d(1, 2, 3)
    with pytest.raises(ValueError, match="cannot have an extent of [0-9]+ known at run time: .* is needed as a number"):
        weft.aot(lambda x: filtered(x), (weft.ones(1, 1, 8, 24),), dynamic_shapes={"x": {3: "width"}})


C_PROGRAM = """
#include "mean_loss.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    for (int64_t n = 1; n < 200; n += 33) {
        double *x = malloc(8 * n), *gradient = malloc(8 * n), value;
        int64_t n_bytes = mean_loss_value_and_grad_scratch(n);
        if (n_bytes < 0) return 1;
        void *scratch = aligned_alloc(64, n_bytes + 64 - n_bytes % 64);
        for (int64_t k = 0; k < n; k++) x[k] = 0.25 * (k % 7 - 3);
        if (mean_loss_value_and_grad(n, x, &value, gradient, scratch)) return 2;
        printf("%a\\n", value);
        for (int64_t k = 0; k < n; k++) printf("%a\\n", gradient[k]);
        free(x); free(gradient); free(scratch);
    }
    return mean_loss_scratch(0) == -1 ? 0 : 3;
}
"""


def mean_loss(x):
    return F.softplus(x).mean() + x.exp().log1p().sum()


def lines_of_the_program():
    for n in range(1, 200, 33):
        value, gradient = weft.value_and_grad(mean_loss)(0.25 * (np.arange(n) % 7 - 3))
        yield from (value, *gradient)


@pytest.mark.parametrize("compiler", ["cc", "aarch64-linux-gnu-gcc"])
def test_a_program_in_c(tmp_path, compiler):
    is_arm = compiler.startswith("aarch64")
    target, run = ("aarch64", ["qemu-aarch64"]) if is_arm else ("native", [])
    example = weft.randn(10, dtype=weft.float64)
    files = weft.export(
        mean_loss, (example,), tmp_path / "mean_loss", gradients=True, target=target, dynamic_shapes={"x": {0: "n"}}
    )
    header = files.header.read_text()
    assert "/* x [n], value a number, grad_x [n] */" in header
    assert "int64_t mean_loss_value_and_grad_scratch(int64_t n);" in header
    described = json.loads(files.description.read_text())["functions"][1]
    assert (described["extents"], described["scratch_bytes"]) == (["n"], None)
    if not is_arm:
        assert weft.load_exported(tmp_path / "mean_loss")(np.ones(4)) == mean_loss(weft.ones(4, dtype=weft.float64))
    if shutil.which(compiler) and all(map(shutil.which, run)):
        source = tmp_path / "main.c"
        source.write_text(C_PROGRAM)
        static = ["-static"] if is_arm else []
        command = [compiler, "-Wall", "-Werror", *static, str(source), str(files.object), "-lm", "-o", "main"]
        subprocess.run(command, check=True, cwd=tmp_path)
        out = subprocess.run([*run, str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
        assert [float.fromhex(line) for line in out.split()] == list(lines_of_the_program())
