"""Scripts about threads, each in a process of its own."""

import os
import subprocess
import sys
import textwrap

SETUP = """
import os, sys, time, threading
import numpy as np
import weft
from weft.runtime.code import threads

def f(x, w):
    return (x @ w).tanh() @ w

x, w = weft.ones(96, 128), weft.ones(128, 128) * 0.01
expected = ((x @ w).tanh() @ w).numpy().tobytes()

def check(times=30):
    # The first calls of a program ask for a team.
    compiled = weft.compile(f)
    for _ in range(times):
        assert compiled(x, w).numpy().tobytes() == expected

def workers():
    return threads._pool().read("alive")

"""


def run(code, before="", **environment):
    """Run a script in a process of its own; it must end well."""
    script = before + SETUP + textwrap.dedent(code)
    environment = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr[-3000:])
    return done.stdout
