"""Two runs of one program, undecorated and compiled, and the first thing in which they differ.

A program is a generator of observations. Looking is not free of effects (asking for `grad_fn` makes nodes), so a
program chooses how close it looks: what it yields is looked at in full, `peek` asks for values and flags alone and
gives plain data.
"""

import functools
import gc
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import is_dataclass
from unittest import mock

import numpy as np
from compiled_twin import look as look_roughly
from compiled_twin import shown

import weft
from weft.runtime.record import frame_run
from weft.runtime.state.exposure import is_exposed


def undecorated(function, **options):
    return function


def peek(x):
    """Values and flags of tensors in containers, without a question that makes nodes."""
    if isinstance(x, weft.Tensor):
        flags = x.requires_grad, x.is_leaf, x._version, _strides(x)
        return ("peek", x.dtype.name, x.shape, flags, repr(x.tolist()))
    if isinstance(x, (list, tuple)):
        return [peek(v) for v in x]
    if isinstance(x, dict):
        return {k: peek(v) for k, v in x.items()}
    return repr(x) if isinstance(x, (int, float, str, np.ndarray, type(None))) else type(x).__name__


def name(x):
    """Of the node that made a tensor."""
    return x.grad_fn.name() if x.grad_fn is not None else None


def look(x):
    """All that can be asked of tensors in containers."""
    if isinstance(x, weft.Tensor):
        return (look_roughly(x), x._version, _strides(x), _graph(x.grad_fn, 3))
    if isinstance(x, (list, tuple)):
        return [look(v) for v in x]
    if isinstance(x, dict):
        return {k: look(v) for k, v in x.items()}
    return look_roughly(x)


def _strides(x):
    """Of the axes along which there is more than one element: others may be anything."""
    return [stride for stride, extent in zip(x.stride(), x.shape) if extent > 1] if x.numel() else []


def _graph(node, depth):
    """Names of the nodes behind a tensor, a few steps deep. A compiled call keeps what an in-place change is
    differentiated by in a copy, which counts for nothing."""
    while node is not None and node.name() == "CloneBackward0":
        node = node.next_functions[0][0]
    if node is None or depth == 0:
        return None
    return node.name(), [(_graph(before, depth - 1), k) for before, k in node.next_functions]


def shared(x):
    """Which of the tensors in containers share memory, in pairs."""
    arrays = [t.detach().numpy() for t in flat(x)]
    return [(i, k) for i, a in enumerate(arrays) for k, b in enumerate(arrays[:i]) if np.may_share_memory(a, b)]


def flat(x):
    """The tensors in containers, in order."""
    if isinstance(x, weft.Tensor):
        return [x]
    if isinstance(x, dict) or is_dataclass(x):
        x = list((x if isinstance(x, dict) else vars(x)).values())
    return [t for v in x for t in flat(v)] if isinstance(x, (list, tuple)) else []


@contextmanager
def reading(*tensors):
    """A block during which another thread looks at tensors; what it has met raises at the end."""
    over, met = threading.Event(), []

    def read():
        try:
            while not over.is_set():
                [(t * 1.0).tolist() for t in tensors]
                over.wait(0.0005)
        except Exception as error:
            met.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if met:
        raise met[0]


def on_arrays(compile, function, places):
    """The function's value and gradients for arrays: by tensors and eager mode where nothing is compiled."""
    if compile is weft.compile:
        return weft.value_and_grad(function, argnums=places)

    def both(*args, **kwargs):
        # As a number in place of an array: floats of the default type.
        at = places if isinstance(places, tuple) else (places,)
        given = [_leaf(x) if k in at else _copied(x) for k, x in enumerate(args)]
        with weft.enable_grad():
            value = function(*given, **{key: _copied(x) for key, x in kwargs.items()})
            if not isinstance(value, weft.Tensor):
                raise TypeError("the value is no tensor")
            if value.numel() != 1:
                raise RuntimeError("the value is not one number")
            used = value.requires_grad
            found = weft.autograd.grad(value, [given[k] for k in at], allow_unused=True) if used else [None] * len(at)
        found = [weft.zeros_like(given[k]) if g is None else g for k, g in zip(at, found)]
        found = tuple(g.detach().numpy().copy() for g in found)
        return value.item(), found if isinstance(places, tuple) else found[0]

    return both


def in_threads(function, *args):
    """What two threads that call the function at once get, and errors."""
    found = []

    def call():
        try:
            found.append(function(*args))
        except Exception as error:
            found.append(said(error))

    threads = [threading.Thread(target=call) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return found


def _leaf(x):
    if isinstance(x, weft.Tensor):
        raise TypeError("a tensor is differentiated for by other functions")
    x = np.asarray(x)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    return weft.tensor(x, requires_grad=True)


def _copied(x):
    return weft.tensor(x) if isinstance(x, np.ndarray) else x


def n_alive():
    """How many tensors there are."""
    gc.collect()
    return sum(isinstance(x, weft.Tensor) for x in gc.get_objects())


REFUSED = "RuntimeError, refused"
INFERENCE = "RuntimeError, inference"
_REFUSALS = "needed by the backward of a compiled call", "cannot be differentiated this way"


def said(error):
    """What a program shows of an error. A compiled call may refuse, in these words, to be run again in eager mode on
    inputs that have changed: that is no wrong number, but what comes after cannot be compared."""
    refused = isinstance(error, RuntimeError) and any(words in str(error) for words in _REFUSALS)
    if "Inference tensors cannot be saved" in str(error):
        return INFERENCE
    # Which of two errors comes first may differ; both are RuntimeErrors then.
    return REFUSED if refused else "RuntimeError" if type(error).__name__ == "OpError" else type(error).__name__


def observe(program, compile):
    """What the program has shown; an error that it does not catch is the last of it. Who presses Ctrl-C waits for the
    compiler here: else a call whose program is not there has not happened (docs/differences.md)."""
    weft.manual_seed(7)
    observations, n_threads, impatient = [], weft.get_num_threads(), frame_run.with_what_is_there
    try:
        frame_run.with_what_is_there = nullcontext
        for x in program(compile):
            observations.append(look(x))
    except Exception as error:
        observations.append(("raised", type(error).__name__))
    finally:
        frame_run.with_what_is_there = impatient
        weft.set_default_dtype(weft.float32)
        weft.set_grad_enabled(True)
        weft.set_num_threads(n_threads)
    return observations


def first_difference(program):
    """A text, or None if the program shows the same with and without compilation."""
    with np.errstate(all="ignore"):
        return difference_of(observe(program, undecorated), observe(program, weft.compile))


def difference_of(eager, compiled):
    """The first thing in which these observations differ, as a text, or None."""
    refused = False  # by the compiled call alone, if eager mode has raised for another reason then
    for k, (a, b) in enumerate(zip(eager, compiled)):
        if a == "OutOfRange" and isinstance(b, str):
            # Found when the program runs: what Python does behind that line, draws or errors, has been done.
            return None
        if a != b and a in ("NotImplementedError", "CheckpointError", INFERENCE):
            # What eager mode does not know a compiled call may; it runs no part of it twice, which may have changed.
            return None
        refused = refused or b == REFUSED != a
        if refused and a not in ("RuntimeError", b):
            return None
        if a != b and b != REFUSED:
            place, a, b = _innermost(a, b)
            return f"observation {k}{place}:\n eager    {_shown(a)}\n compiled {_shown(b)}"
    return None if len(eager) == len(compiled) else f"{len(eager)} observations eager, {len(compiled)} compiled"


def _innermost(a, b, place=""):
    """Where two observations differ, and what is there."""
    if type(a) is type(b) and isinstance(a, dict) and a.keys() == b.keys():
        return next(_innermost(a[k], b[k], f"{place}[{k!r}]") for k in a if a[k] != b[k])
    tensor = isinstance(a, tuple) and a[:1] in (("tensor",), ("peek",))
    if type(a) is type(b) and isinstance(a, (list, tuple)) and len(a) == len(b) and not tensor:
        return next(_innermost(x, y, f"{place}[{k}]") for k, (x, y) in enumerate(zip(a, b)) if x != y)
    return place, a, b


def _shown(seen):
    if isinstance(seen, tuple) and seen[:1] == ("tensor",):
        return shown(seen)
    return [_shown(v) for v in seen] if isinstance(seen, list) else seen


def difference_in(source):
    """The first difference of a program given as source."""
    eager = observe_eagerly(source)
    with np.errstate(all="ignore"):
        compiled = observe(_program_of(source), weft.compile)
        found = difference_of(eager, compiled)
        if found is not None:
            found = difference_of(_unversioned(_observe_as_compiled(source)), _unversioned(compiled)) and found
    return found


def _observe_as_compiled(source):
    """What a program shows in eager mode that does what compiled calls do by docs/differences.md: backwards go by what
    was in memory that NumPy arrays show too when an op read it (no write to it is an error there, or changes them), and
    checkpoints run their function once (what is written into a parameter before backward is an error). Changes of other
    memory are errors, which for what hooks have put away nobody else finds out."""

    def copied_if_shown(x):
        return (x.clone(), 0) if is_exposed(x) else (x, x._version)

    def unchanged(x, version):
        if x._version != version:
            raise RuntimeError("one of the variables needed for gradient computation has been modified")
        return x

    with (
        mock.patch.object(weft.utils.checkpoint, "saved_tensors_hooks", lambda pack, unpack: nullcontext()),
        weft.autograd.graph.saved_tensors_hooks(copied_if_shown, lambda kept: unchanged(*kept)),
    ):
        return observe(_program_of(source), undecorated)


def _unversioned(seen):
    """Without the versions of tensors: hooks on what is saved are why gradients are added up in other memory."""
    if isinstance(seen, dict):
        return {k: _unversioned(v) for k, v in seen.items()}
    if isinstance(seen, tuple) and seen[:1] == ("peek",):
        return (*seen[:3], seen[3][:2], *seen[4:])
    if isinstance(seen, tuple) and len(seen) == 4 and isinstance(seen[0], tuple) and seen[0][:1] == ("tensor",):
        return seen[0], seen[2], seen[3]
    return type(seen)(map(_unversioned, seen)) if isinstance(seen, (list, tuple)) else seen


def _program_of(source):
    namespace = {"__name__": "attacked"}
    exec(_code_of(source), namespace)
    return namespace["program"]


@functools.lru_cache(maxsize=8)
def _code_of(source):
    return compile(source, "<program>", "exec")


@functools.lru_cache(maxsize=8)
def observe_eagerly(source):
    """What a program has shown in eager mode: what its errors are counted in is compared as well."""
    with np.errstate(all="ignore"):
        return observe(_program_of(source), undecorated)


def n_errors(source):
    """How many calls of a program fail in eager mode."""
    return sum(isinstance(x, str) for x in observe_eagerly(source))


def assert_same(program):
    """What a reproducer calls."""
    difference = first_difference(program)
    assert difference is None, difference
