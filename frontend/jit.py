"""weft.jit: PyTorch's decorators for its older compiler, which change nothing here. `weft.compile` compiles."""

from contextlib import contextmanager
from typing import Final

from .futures import Future
from .nn.module import Module
from .public import of_module
from .reference import document

__getattr__, __dir__ = of_module(__name__)
__all__ = [
    "Final", "Future", "RecursiveScriptModule", "ScriptModule", "annotate", "export", "fork", "freeze", "fuser",
    "ignore", "is_scripting", "is_tracing", "optimize_for_inference", "optimized_execution", "script",
    "script_if_tracing", "script_method", "trace", "unused", "wait",
]  # fmt: skip


class ScriptModule(Module):
    """A base class of modules, which adds nothing: `script` and `trace` give what they got, which is none of these."""


class RecursiveScriptModule(ScriptModule):
    """What PyTorch's `script` makes of a module. Nothing is one here; programs ask whether theirs is."""


class TracerWarning(Warning):
    """What PyTorch's tracer warns of. Nothing here does; programs name it to be told nothing."""


def script(obj, *options, **more):
    """The function, module or class itself."""
    return obj


def trace(func, example_inputs=None, *options, **more):
    """The function or module itself: it is not run."""
    return func


def ignore(drop=False, **options):
    """A decorator that changes nothing, with or without parentheses."""
    return drop if callable(drop) else lambda function: function


def export(function):
    """The function itself."""
    return function


unused = script_method = script_if_tracing = export


def freeze(module, *options, **more):
    """The module itself."""
    return module


optimize_for_inference = freeze


def annotate(the_type, the_value):
    """The value."""
    return the_value


def fork(func, *args, **kwargs):
    """A Future of func(*args, **kwargs), which runs at once, as it does in PyTorch outside of a script."""
    future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future):
    """The value of a Future, when it is there."""
    return future.wait()


_fork, _wait = fork, wait  # the names that scripts use


def is_scripting():
    """False: functions run as Python."""
    return False


is_tracing = is_scripting


@contextmanager
def optimized_execution(should_optimize):
    """A block in which nothing is different."""
    yield


fuser = optimized_execution

document("jit", __name__)
