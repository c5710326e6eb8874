"""The same program beside PyTorch, within rounding: what both modes of weft have wrong together.

The program is run twice, undecorated: with weft, and with torch under weft's name. Both compute in float64, so that
rounding decides no `if`. Random numbers and the first values of layers are weft's in both; whatever else draws is left
out (`cannot_run`).
"""

import builtins
import re
import traceback
import warnings
from contextlib import nullcontext
from dataclasses import is_dataclass
from types import SimpleNamespace

import numpy as np
import torch

import weft

from . import compare

# Gradients that are 0 but for rounding are made large by optimizers that divide by their size.
RTOL, ATOL = 1e-4, 1e-5
# float32 comes in where a program asks for it.
RTOL_SINGLE = 2e-3
# Programs with this line are run in the types that they have, not in float64.
TYPED = "# types as they are"
RTOL_OF_HALVES = {"float16": 2e-2, "bfloat16": 8e-2}
_IN_BACKWARD = "raised in a backward"
_OF_ARRAYS = "arrays and tensors, which mix in weft"


# --- torch under weft's name ------------------------------------------------------------------------------------------
def _theirs(ours):
    """weft's tensor as torch's, with memory of its own."""
    made = torch.from_numpy(ours.detach().numpy().copy())
    return made.requires_grad_(ours.requires_grad)


def _drawn(name):
    def draw(*args, **kwargs):
        if "dtype" in kwargs:
            kwargs["dtype"] = getattr(weft, str(kwargs["dtype"]).split(".")[1])
        return _theirs(getattr(weft, name)(*args, **kwargs))

    return draw


def _dropout(x, p=0.5, training=True, inplace=False):
    if not training:
        return x
    return x * _theirs(weft.nn.functional.dropout(weft.ones(*x.shape), p)).to(x.dtype)


class _Dropout(torch.nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.p = p

    def forward(self, x):
        return _dropout(x, self.p, self.training)


class _Under:
    """A module of torch in which some names stand for something else."""

    def __init__(self, module, names):
        self._module, self._names = module, names

    def __getattr__(self, name):
        return self._names[name] if name in self._names else getattr(self._module, name)


class _Layers(_Under):
    """torch.nn; layers begin with the parameters that weft's begin with."""

    def __getattr__(self, name):
        found = super().__getattr__(name)
        of_layers = isinstance(found, type) and issubclass(found, torch.nn.Module) and name != "Module"
        return self._layer(name, found) if of_layers and name not in self._names else found

    def _layer(self, name, kind):
        def make(*args, **kwargs):
            made = kind(*args, **kwargs)
            if any(isinstance(x, (torch.nn.Module, list)) for x in args) or not list(made.parameters()):
                return made
            state = getattr(weft.nn, name)(*args, **kwargs).state_dict()
            made.load_state_dict({key: _theirs(value) for key, value in state.items()})
            return made

        return make


def _torch_modules(lines):
    functional = _Under(torch.nn.functional, {"dropout": _dropout})
    nn = _Layers(torch.nn, {"functional": functional, "Dropout": _Dropout})
    names = {name: _drawn(name) for name in ("randn", "rand")}
    names |= {"nn": nn, "manual_seed": weft.manual_seed, "set_default_dtype": _set_default_dtype}
    return {"weft": _Under(torch, names), "weft.nn": nn, "attack.compare": _comparison(torch.Tensor, lines)}


def _set_default_dtype(dtype):
    weft.set_default_dtype(getattr(weft, str(dtype).split(".")[1]))
    torch.set_default_dtype(dtype)


# --- what is seen -----------------------------------------------------------------------------------------------------
def _comparison(kind, lines):
    """What programs of these lines import from compare.py, for tensors of this type."""

    def flat(x):
        if isinstance(x, kind):
            return [x]
        x = vars(x) if is_dataclass(x) else x
        x = list(x.values()) if isinstance(x, dict) else x
        return [t for v in x for t in flat(v)] if isinstance(x, (list, tuple)) else []

    def shared(x):
        arrays = [t.detach().numpy() for t in flat(x)]
        return [(i, k) for i, a in enumerate(arrays) for k, b in enumerate(arrays[:i]) if np.may_share_memory(a, b)]

    def said(error):
        if kind is torch.Tensor and re.search("ndarray|NumPy|numpy", str(error)):
            return _OF_ARRAYS
        line = _lines_of(error, lines)
        inside = any(word in line for word in ("backward", "grad(", "step(", "Grad"))
        return _IN_BACKWARD if inside else "raised" if isinstance(error, Exception) else type(error).__name__

    def peek(x):
        return _seen(x, kind)

    return SimpleNamespace(
        flat=flat,
        shared=shared,
        said=said,
        peek=peek,
        n_alive=lambda: 0,
        name=lambda x: x.grad_fn is not None,
        assert_same=None,
        in_threads=compare.in_threads,
        reading=lambda *_: nullcontext(),
    )


def _lines_of(error, lines):
    """The program's own lines that raised it."""
    found = traceback.walk_tb(error.__traceback__)
    return "\n".join(lines[at - 1] for frame, at in found if frame.f_code.co_filename == "<program>")


def _seen(x, kind, with_gradient=False):
    if isinstance(x, kind):
        gradient = _seen(x.grad, kind) if with_gradient and x.is_leaf else None
        # PyTorch says of views that were made without history that they require gradients, if their base does.
        required = x.requires_grad and not (x._is_view() and x.grad_fn is None)
        flags = str(x.dtype).split(".")[-1], tuple(x.shape), required, x.is_leaf
        return ("tensor", flags, _numbers_of(x.detach()), gradient)
    if isinstance(x, (list, tuple)):
        return [_seen(v, kind, with_gradient) for v in x]
    if isinstance(x, dict):
        return {k if isinstance(k, str) else n: _seen(v, kind, with_gradient) for n, (k, v) in enumerate(x.items())}
    return x if isinstance(x, (bool, int, float, str, np.ndarray, type(None))) else type(x).__name__


def _numbers_of(x):
    """A copy as NumPy has it; floats of 16 bits as numbers that it knows."""
    kept = str(x.dtype).split(".")[-1]
    return np.array((x.float() if kept in RTOL_OF_HALVES else x).numpy()), kept


def _observed(source, modules, kind):
    def importer(name, *rest):
        return modules[name] if name in modules else builtins.__import__(name, *rest)

    namespace = {"__name__": "attacked", "__builtins__": {**vars(builtins), "__import__": importer}}
    found = []
    weft.manual_seed(7)
    if TYPED not in source:
        weft.set_default_dtype(weft.float64)
        torch.set_default_dtype(torch.float64)
    try:
        exec(compile(source, "<program>", "exec"), namespace)
        for x in namespace["program"](compare.undecorated):
            found.append(_seen(x, kind, True))
    except Exception as error:
        found.append(f"raised {type(error).__name__}: {str(error)[:200]}")
    finally:
        weft.set_default_dtype(weft.float32)
        torch.set_default_dtype(torch.float32)
        weft.set_grad_enabled(True)
        torch.set_grad_enabled(True)
    return found


def _agree(a, b):
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[1] == b[1] and _close_numbers(a[2], b[2]) and _agree(a[3], b[3])
    if isinstance(a, (int, float)) and isinstance(b, tuple):
        # Optimizers count their steps in numbers.
        return b[1][1] == () and a == b[2][0]
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_agree, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_agree(a[k], b[k]) for k in a)
    if isinstance(a, str) and isinstance(b, str):
        return _without_numbers(a) == _without_numbers(b)
    if isinstance(a, (int, float, np.ndarray)) and isinstance(b, (int, float, np.ndarray)):
        return np.shape(a) == np.shape(b) and _close(np.asarray(a), np.asarray(b))
    return type(a) is type(b) and a is b is None


def _close_numbers(a, b):
    (a, kept), (b, _) = a, b
    return _close(a, b, RTOL_OF_HALVES.get(kept))


def _close(a, b, rtol=None):
    if a.dtype.kind not in "fc":
        return bool((a == b).all())
    rtol = rtol or (RTOL if a.dtype in (np.float64, np.complex128) else RTOL_SINGLE)
    return np.allclose(a, b, rtol=rtol, atol=ATOL if rtol == RTOL else rtol, equal_nan=True)


def _without_numbers(text):
    """Digits at a rounding may differ, and names of types say what module they are from."""
    return "raised" if text.startswith("raised") else re.sub(r"-?\d+\.?\d*(e[+-]?\d+)?|inf|nan|\s", "", text)


# --- programs ---------------------------------------------------------------------------------------------------------
# Draws that are not the same number, and what docs/differences.md says is different on purpose or what PyTorch leaves
# open: operands that overlap what is changed, types that are promoted in every function.
_LEFT_OUT = "reset_parameters", "default_dtype(weft.float32)", "pool = {", "data(50 + call", "on_arrays"
# Generators and draws that are torch's own, and names that torch has not.
_LEFT_OUT += (
    "generator=rng",
    "rng.get_state",
    "utils.prune",
    "randn_like",
    "bernoulli",
    "normal_",
    "randperm",
    "randint",
)
_LEFT_OUT += "multinomial", "gumbel", "rrelu", "alpha_dropout", "dropout1d", "uniform_", "exponential_", "rng_state"
_LEFT_OUT += "weft.normal", "distributions", "nn.init"
_INSTEAD = (
    ("np.float32", "np.float64"),
    (".float()", ".double()"),
    # The history of what is overwritten whole.
    (".zero_()", ".mul_(0.0)"),
    (".fill_(0.5)", ".mul_(0.5)"),
    # Optimizers count their steps in numbers, which are no tensors that change.
    (".get('step')", ".get('none')"),
    ("type(error).__name__", "'an error'"),
    ("    nn.utils.clip_grad_value_(model.parameters(), 0.05)", "    pass"),
)


def cannot_run(source):
    return any(word in source for word in _LEFT_OUT)


def _in_double(source):
    for weft_has, instead in _INSTEAD:
        source = source.replace(weft_has, instead)
    return source


def difference_beside_torch(source):
    """The first difference between weft in eager mode and torch, as a text, or None."""
    if cannot_run(source) and TYPED not in source:
        return None
    if TYPED not in source:
        source = _in_double(source)
    lines = source.split("\n")
    ours = {"attack.compare": _comparison(weft.Tensor, lines)}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a = _observed(source, ours, weft.Tensor)
        b = _observed(source, _torch_modules(lines), torch.Tensor)
    for k, (x, y) in enumerate(zip(a, b)):
        if isinstance(y, str) and y == _OF_ARRAYS:
            return None
        if not _agree(x, y):
            return f"observation {k}{_shown(*_innermost(x, y))}"
        if isinstance(x, str) and x == y == _IN_BACKWARD and TYPED not in source:
            # What a backward has done before its error is not the same.
            return None
    return None if len(a) == len(b) else f"{len(a)} observations with weft, {len(b)} with torch"


def _innermost(a, b, place=""):
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return next(_innermost(x, y, f"{place}[{k}]") for k, (x, y) in enumerate(zip(a, b)) if not _agree(x, y))
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next(_innermost(a[k], b[k], f"{place}[{k!r}]") for k in a if not _agree(a[k], b[k]))
    return place, a, b


def _shown(place, a, b):
    return f"{place}:\n weft  {a}\n torch {b}"
