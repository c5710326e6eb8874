"""Kernels of all kinds on another processor: objects for aarch64, linked by the system's cross compiler and run under
user-mode emulation, have the bits of eager mode here. Where these are not installed, objects are made and not run."""

import json
import shutil
import subprocess

import numpy as np
import pytest

import weft
from weft.compiler import dtypes
from weft.compiler.ops import TABLE
from weft.nn import functional as F

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
NUMPY_ONLY = {"integer_pow"}  # computed by NumPy
PROGRAM = """
#include "f.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    void *scratch = aligned_alloc(64, (F_SCRATCH + 64) / 64 * 64);
    FILE *file = fopen("results.bin", "wb");
ARRAYS
    if (f(NAMES, scratch)) return 1;
WRITES
    return fclose(file);
}
"""


def on_arm(folder, function):
    """The arrays that a function of nothing but a dummy returns there; None where nothing can run it."""
    files = weft.export(function, (np.zeros(1, np.float32),), folder / "f", target="aarch64")
    assert int.from_bytes(files.object.read_bytes()[18:20], "little") == 183  # EM_AARCH64
    if not (shutil.which(COMPILER) and shutil.which(EMULATOR)):
        return None
    (described,) = json.loads(files.description.read_text())["functions"]
    parameters = described["parameters"]
    n_bytes = [p["elements"] * np.dtype(p["dtype"]).itemsize for p in parameters]
    arrays = [f"    void *p{k} = calloc({n} + 1, 1);" for k, n in enumerate(n_bytes)]
    writes = [
        f"    fwrite(p{k}, 1, {n}, file);" for k, (n, p) in enumerate(zip(n_bytes, parameters)) if p["role"] == "result"
    ]
    text = PROGRAM.replace("ARRAYS", "\n".join(arrays)).replace("WRITES", "\n".join(writes))
    (folder / "main.c").write_text(text.replace("NAMES", ", ".join(f"p{k}" for k in range(len(parameters)))))
    command = [COMPILER, "-static", "main.c", "f.o", "-lm", "-o", "main"]
    subprocess.run(command, check=True, cwd=folder)
    subprocess.run([EMULATOR, "./main"], check=True, cwd=folder)
    content, found, at = (folder / "results.bin").read_bytes(), [], 0
    for n, p in zip(n_bytes, parameters):
        if p["role"] == "result":
            found.append(np.frombuffer(content[at : at + n], p["dtype"]).reshape(p["shape"]))
            at += n
    assert at == len(content)
    return found


def assert_same_on_arm(folder, labels, compute):
    """What `compute` returns, one tensor for each label, has the same bits there, but for those of a NaN."""
    found = on_arm(folder, lambda dummy: compute())
    expected = [x.detach().numpy() for x in compute()]
    assert len(expected) == len(labels)
    if found is not None:
        different = [label for label, x, y in zip(labels, found, expected, strict=True) if not is_same(x, y)]
        assert not different


def is_same(x, y):
    if x.dtype.kind != "f":
        return np.array_equal(x, y)
    signs = [np.signbit(z) & ~np.isnan(z) for z in (x, y)]
    return np.array_equal(x, y, equal_nan=True) and np.array_equal(*signs)


def calls_of(names, floating):
    """(label, op, operands, attributes) of all samples."""
    made = []
    for name in names:
        for k, sample in enumerate(TABLE[name].samples()):
            operands = [
                weft.tensor(x.astype(floating) if x.dtype.kind == "f" else x) if isinstance(x, np.ndarray) else x
                for x in sample.operands
            ]
            made.append((f"{name} {k}", TABLE[name], operands, sample.attributes))
    return made


def names_of(*kinds):
    return [n for n, op in TABLE.items() if op.kind in kinds and op.samples is not None and n not in NUMPY_ONLY]


@pytest.mark.parametrize("floating", ["float32", "float64"])
@pytest.mark.parametrize(
    "kinds", [("elementwise",), ("reduction", "movement", "indexing", "contraction", "scan", "routine")], ids=" ".join
)
def test_ops_of_the_table(kinds, floating, tmp_path):
    calls = calls_of(names_of(*kinds), floating)
    assert len(calls) > 50

    def compute():
        return [op(*operands, **attributes) for _, op, operands, attributes in calls]

    with np.errstate(all="ignore"):
        assert_same_on_arm(tmp_path, [label for label, *_ in calls], compute)


FUNCTIONS = str.split("""
    exp log sin cos tan tanh sigmoid erf erfc lgamma digamma expm1 log1p sqrt rsqrt atan asin acos sinh cosh asinh atanh
    acosh exp2 log2 log10 reciprocal erfinv
""")


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_vector_mathematics_of_numbers_of_every_size(dtype, tmp_path):
    """Signs, zeros, infinities, subnormal and huge numbers; as many as do not fill the last vector."""
    limits = np.finfo(dtype.numpy)
    largest = np.log10(float(limits.max))
    random = np.random.default_rng(0)
    numbers = np.concatenate([
        random.choice([-1.0, 1.0], 600) * 10.0 ** random.uniform(-largest - 5, largest, 600),
        random.uniform(-4, 4, 400),
        [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, limits.tiny, limits.max, limits.smallest_subnormal],
    ]).astype(dtype.numpy)  # fmt: skip
    x = weft.tensor(numbers)
    with np.errstate(all="ignore"):
        assert_same_on_arm(tmp_path, FUNCTIONS, lambda: [getattr(weft, name)(x) for name in FUNCTIONS])


def test_sums_products_and_chains_of_rows_with_their_gradients(tmp_path):
    weft.manual_seed(0)
    rows, matrix, image = weft.randn(37, 301), weft.randn(301, 65), weft.randn(2, 3, 9, 9)
    filters, heads = weft.randn(4, 3, 3, 3), weft.randn(3, 1, 2, 17, 8)
    leaves = [rows, matrix, image, filters, heads]
    labels = ["sum", "columns", "product", "layer norm", "softmax", "convolution", "attention", "running sum", "sorted"]

    def values(rows, matrix, image, filters, heads):
        q, k, v = heads.unbind(0)
        return [
            rows.sum(),
            rows.exp().mean(0),
            rows @ matrix,
            F.gelu(F.layer_norm(rows, (301,))),
            F.log_softmax(rows, 1),
            F.conv2d(image, filters, padding=1),
            F.scaled_dot_product_attention(q, k, v),
            rows.cumsum(1),
            rows.sort(1)[0],
        ]

    def compute():
        inputs = [x.detach().clone().requires_grad_() for x in leaves]
        found = values(*inputs)
        total = sum((x * x.detach().cos()).sum() for x in found)
        return [*(x.detach() for x in found), *weft.autograd.grad(total, inputs)]

    assert_same_on_arm(tmp_path, [*labels, *[f"gradient {k}" for k in range(5)]], compute)
