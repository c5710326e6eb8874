"""Programs whose operands lie between protected pages (guard_pages.py), each mode in a process of its own.

The whole suite runs like that too, by hand: see guard_pages.py.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from guard_pages import MODES

_PROGRAMS = """
import sys
sys.path.insert(0, {tests!r})
import guard_pages
guard_pages.install({mode!r})
import ctypes
import numpy as np
import weft
from attack.worker import outcome, source_of
{body}
"""
_RANDOM = """
for seed in range(4):
    kind, source = source_of(seed)
    assert outcome(source) is None, source
"""
# Extents around those of vectors, tiles and blocks, where kernels have their ends.
_EXTENTS = """
F = weft.nn.functional
for rows, columns in ((1, 1), (7, 16), (5, 131)):
    def step(x, w, b):
        h = F.layer_norm((x @ w).tanh() + b, (columns,)).softmax(-1)
        return (h * x[:, :1]).sum(0).cumsum(0).max() + F.gelu(h.t()[:3]).mean() + x.square().sum(0)[-1]
    results = []
    for f in (step, weft.compile(step)):
        weft.manual_seed(rows)
        x, w, b = (weft.randn(*s, requires_grad=True) for s in ((rows, columns), (columns, columns), (columns,)))
        for _ in range(5):
            f(x, w, b).backward()
        results.append([p.grad.tolist() for p in (x, w, b)])
    assert results[0] == results[1]
images = weft.randn(2, 3, 9, 11, requires_grad=True)
convolution = weft.nn.Conv2d(3, 5, 3, padding=1, stride=2)
weft.compile(lambda: F.max_pool2d(convolution(images), 2).sum())().backward()
for stride in (2, 4, 5):
    apart = weft.compile(lambda v: [(v[:, k::stride] * 2.0, v.double()[:, k::stride] * 2.0) for k in range(2)])
    for n in (7, 16 * stride, 16 * stride + 1, 37 * stride - 1):
        v = weft.randn(2, n)
        for results in apart(v), apart(v):
            for k, pair in enumerate(results):
                assert [p.tolist() for p in pair] == 2 * [(v.double()[:, k::stride] * 2.0).tolist()]
# Few elements of many places apart: LLVM once loaded whole vectors of lanes that nobody looked at.
turned = weft.compile(lambda x, y: (x * y).prod(0))
for rows in (2, 3, 4, 5):
    for _ in range(2):
        turned(weft.randn(4, rows).t(), weft.randn(4, rows).t())
out, _ = weft.nn.LSTM(3, 5, batch_first=True)(weft.randn(2, 7, 3))
out.sum().backward()
"""
_OUTSIDE = """
x = weft.ones(1000)
array = x.numpy()
ctypes.memset(array.ctypes.data + {offset}, 0, 1)
"""


def run(mode, body):
    text = _PROGRAMS.format(tests=str(Path(__file__).parent), mode=mode, body=body)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("body", [_RANDOM, _EXTENTS], ids=["random", "extents"])
def test_programs_touch_nothing_outside_of_their_operands(mode, body):
    done = run(mode, body)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("mode", "offset"), [("end", 4000), ("begin", -1)])
def test_a_byte_outside_ends_the_process(mode, offset):
    assert run(mode, _OUTSIDE.format(offset=offset)).returncode == -signal.SIGSEGV


def test_the_mode_must_be_one_of_two():
    done = run("middle", "")
    assert "WEFT_TEST_GUARD_PAGES is 'middle'; it must be one of ('end', 'begin')" in done.stderr
