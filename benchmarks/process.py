"""The parent's end of a side's process."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


class SideFailed(Exception):
    """A side could not do what was asked; the text says why, in the library's words."""


class ChildProcess:
    """A process that answers requests (child.py: answer_requests). ask() sends one and returns the answer; as a context
    it ends the process.

    command: the module to run, and its arguments. cache: the folder all compilers of the process keep their results in.
    """

    def __init__(self, command, cache):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by __exit__)
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=environment(cache),
        )

    def ask(self, do, **request):
        try:
            print(json.dumps({"do": do, **request}), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise SideFailed(self._last_words()) from error
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise SideFailed(answer["error"])
        return answer

    def _last_words(self):
        self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().strip().splitlines()
        return f"process ended with status {self._process.returncode}: {words[-1] if words else 'no message'}"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        # What a process that is gone has not read stays in the buffer.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._errors.close()


class SideProcess(ChildProcess):
    """The process of one side of one workload."""

    def __init__(self, workload, side, threads, cache):
        super().__init__(["benchmarks.child", workload, side, str(threads)], cache)


def environment(cache):
    """This process's environment, every cache inside `cache`; JAX, which skips short compilations, is to keep all."""
    return {
        **os.environ,
        "WEFT_CACHE_DIR": os.path.join(cache, "weft"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "torch"),
        "JAX_COMPILATION_CACHE_DIR": os.path.join(cache, "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PLATFORMS": "cpu",
    }
