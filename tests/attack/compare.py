"""Two runs of one program, undecorated and compiled, and the first thing in which they differ.

A program is a generator of observations. Looking is not free of effects (asking for `grad_fn` makes nodes), so a program
chooses how close it looks: what it yields is looked at in full, `peek` asks for values and flags alone and gives plain
data.
"""

import weakref

import numpy as np
from compiled_twin import look as look_roughly
from compiled_twin import shown, undecorated

import weft


def peek(x):
    """Values and flags of tensors in containers, without a question that makes nodes."""
    if isinstance(x, weft.Tensor):
        flags = x.requires_grad, x.is_leaf, x._version, tuple(x.stride())
        return ("peek", x.dtype.name, x.shape, flags, repr(x.tolist()))
    if isinstance(x, (list, tuple)):
        return [peek(v) for v in x]
    if isinstance(x, dict):
        return {k: peek(v) for k, v in x.items()}
    if isinstance(x, weakref.ref):
        return "dead" if x() is None else "alive"
    return repr(x) if isinstance(x, (int, float, str, np.ndarray, type(None))) else type(x).__name__


def look(x):
    """All that can be asked of tensors in containers."""
    if isinstance(x, weft.Tensor):
        return (look_roughly(x), x._version, tuple(x.stride()), _graph(x.grad_fn, 3))
    if isinstance(x, (list, tuple)):
        return [look(v) for v in x]
    if isinstance(x, dict):
        return {k: look(v) for k, v in x.items()}
    return look_roughly(x)


def _graph(node, depth):
    """Names of the nodes behind a tensor, a few steps deep."""
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
    if isinstance(x, dict):
        x = list(x.values())
    return [t for v in x for t in flat(v)] if isinstance(x, (list, tuple)) else []


REFUSED = "RuntimeError, refused"
_REFUSALS = "needed by the backward of a compiled call", "cannot be differentiated this way"


def said(error):
    """What a program shows of an error. A compiled call may refuse, in these words, to be run again in eager mode on
    inputs that have changed: that is no wrong number, but what comes after cannot be compared."""
    refused = isinstance(error, RuntimeError) and any(words in str(error) for words in _REFUSALS)
    return REFUSED if refused else type(error).__name__


def observe(program, compile):
    """What the program has shown; an error that it does not catch is the last of it."""
    weft.manual_seed(7)
    observations = []
    try:
        for x in program(compile):
            observations.append(look(x))
    except Exception as error:
        observations.append(("raised", type(error).__name__))
    finally:
        weft.set_default_dtype(weft.float32)
    return observations


def first_difference(program):
    """A text, or None if the program shows the same with and without compilation."""
    with np.errstate(all="ignore"):
        eager, compiled = observe(program, undecorated), observe(program, weft.compile)
    for k, (a, b) in enumerate(zip(eager, compiled)):
        if b == REFUSED and a != b:
            if a != "RuntimeError":
                return None
        elif a != b:
            return f"observation {k}:\n eager    {_shown(a)}\n compiled {_shown(b)}"
    return None if len(eager) == len(compiled) else f"{len(eager)} observations eager, {len(compiled)} compiled"


def _shown(seen):
    if isinstance(seen, tuple) and seen and isinstance(seen[0], tuple) and seen[0][:1] == ("tensor",):
        return (shown(seen[0]), *seen[1:])
    return [_shown(v) for v in seen] if isinstance(seen, list) else seen


def difference_in(source):
    """The first difference of a program given as source."""
    namespace = {"__name__": "attacked"}
    exec(compile(source, "<program>", "exec"), namespace)
    return first_difference(namespace["program"])


def assert_same(program):
    """What a reproducer calls."""
    difference = first_difference(program)
    assert difference is None, difference
