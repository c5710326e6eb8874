"""The same program with native code and without: a process with WEFT_NATIVE_REPLAY=0 shows what Python does alone."""

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np

from .compare import _innermost, _program_of, _shown, observe, undecorated

_TESTS = Path(__file__).parents[1]
# After how many calls native code is told of an op, of one with ever new sizes and of one with many; and made at all.
SOON = {
    "weft.runtime.eager.plan.CALLS_BEFORE_NATIVE": 2,
    "weft.runtime.eager.varied.CALLS_BEFORE": 2,
    "weft.runtime.eager.plan._CALLS_OF_MANY": 0,
    "weft.runtime.replay.native_making.PAYS_AFTER": 0,
}


class Twin:
    """A process in which there is no native code of eager mode; ask(source) says what a program shows there."""

    def __init__(self):
        code = "from attack.in_python import serve; serve()"
        path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "WEFT_NATIVE_REPLAY": "0", "PYTHONPATH": path}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=pipe, stdout=pipe)

    def ask(self, source):
        pickle.dump(source, self.process.stdin)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def serve():
    """Until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what programs print is no answer
    while True:
        try:
            source = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(seen_of(source), answers)
        answers.flush()


def soon():
    """Native code takes over after few calls from now on."""
    for name, n in SOON.items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, n)


def seen_of(source):
    with np.errstate(all="ignore"):
        return observe(_program_of(source), undecorated)


_twins = []


def difference_in_python(source):
    """The first difference between eager mode with native code and without, as a text, or None."""
    if not _twins:
        _twins.append(Twin())
    for k, (a, b) in enumerate(zip(seen := seen_of(source), other := _twins[0].ask(source))):
        if a != b:
            place, a, b = _innermost(a, b)
            return f"observation {k}{place}:\n native {_shown(a)}\n python {_shown(b)}"
    return None if len(seen) == len(other) else f"{len(seen)} observations natively, {len(other)} in Python"


def end():
    """The process without native code, if there is one."""
    while _twins:
        _twins.pop().close()
