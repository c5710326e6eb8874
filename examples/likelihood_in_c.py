"""A likelihood of 1,000 parameters, called from C in a loop: python examples/likelihood_in_c.py [folder]

The loop is a descent along its gradient, in C and in Python, with the same numbers. Without a C compiler only Python's
is run.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.nn import functional as F

PARAMETERS, SAMPLES, STEPS = 1000, 300, 200

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "nll.h"

static double beta[PARAMETERS], gradient[PARAMETERS];

int main(void) {
    void *scratch = aligned_alloc(64, NLL_VALUE_AND_GRAD_SCRATCH);
    struct timespec begun, ended;
    double value = 0;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int step = 0; step < STEPS; step++) {
        if (nll_value_and_grad(beta, &value, gradient, scratch)) return 1;
        for (int k = 0; k < PARAMETERS; k++) beta[k] = beta[k] - 0.01 * gradient[k];
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds = (ended.tv_sec - begun.tv_sec) + 1e-9 * (ended.tv_nsec - begun.tv_nsec);
    printf("%a %a %.1f\n", value, beta[PARAMETERS - 1], 1e6 * seconds / STEPS);
    free(scratch);
    return 0;
}
"""

weft.manual_seed(0)
x = weft.randn(SAMPLES, PARAMETERS, dtype=weft.float64)
y = (x[:, :10].sum(1) + weft.randn(SAMPLES, dtype=weft.float64) > 0).double()


def nll(beta: Tensor) -> Tensor:
    z = x @ beta
    return (F.softplus(z) - y * z).sum() + 0.5 * beta.square().sum()


def descent(value_and_grad: Callable[[Any], tuple[Any, Any]]) -> tuple[float, float, float]:
    """The last value, the last parameter, and microseconds for each step."""
    beta, value = np.zeros(PARAMETERS), 0.0
    for _ in range(3):
        value_and_grad(beta)  # compiles
    begun = time.perf_counter()
    for _ in range(STEPS):
        value, gradient = value_and_grad(beta)
        beta -= 0.01 * np.asarray(gradient)
    return float(value), float(beta[-1]), 1e6 * (time.perf_counter() - begun) / STEPS


weft.set_num_threads(1)  # as the function in C has
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
folder.mkdir(exist_ok=True)
files = weft.export(nll, (np.zeros(PARAMETERS),), folder / "nll", gradients=True)
print(f"object file: {files.object.stat().st_size} bytes, of which the data are {x.nbytes + y.nbytes}, in {folder}")

value, last, microseconds = descent(weft.value_and_grad(weft.compile(nll)))
print(f"Python: {value:.12f}, {microseconds:.1f} us for a step")
native = weft.load_exported(folder / "nll")
print(f"Python, the object loaded: {descent(native.value_and_grad)[2]:.1f} us for a step")

if shutil.which("cc"):
    text = PROGRAM.replace("PARAMETERS", str(PARAMETERS)).replace("STEPS", str(STEPS))
    (folder / "main.c").write_text(text, encoding="utf-8")
    # Without fused multiply-adds of the compiler's own: NumPy rounds products, too.
    command = ["cc", "-O2", "-ffp-contract=off", "main.c", "nll.o", "-lm", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    printed = subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True).stdout.split()
    in_c = [float.fromhex(number) for number in printed[:2]]
    print(f"C: {in_c[0]:.12f}, {printed[2]} us for a step")
    print("same numbers:", in_c == [value, last])
