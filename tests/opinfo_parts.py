"""PyTorch's own OpInfo samples run on weft: what is translated, compared and counted.

A sample is PyTorch's call of one op: tensors, arguments, and which of them want gradients. It runs three times, on
PyTorch, on weft eagerly and on weft compiled; results, first and second derivatives must agree with PyTorch's within
a tolerance, and compiled bits with eager ones exactly.
"""

import functools
import importlib
import sys
import types
import unittest
import warnings

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
# PyTorch's test helpers only derive a class from this package's.
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))

FORWARD_DTYPES = ("float32", "float64", "int64", "int32", "bool")
OTHER_DTYPES = ("uint8", "int8", "int16", "float16", "bfloat16", "complex64", "complex128")
TOLERANCE = {
    **dict.fromkeys(("float32", "complex64"), (2e-5, 2e-5)),
    **dict.fromkeys(("float64", "complex128"), (1e-7, 1e-7)),
    "float16": (2e-3, 2e-3),
    "bfloat16": (2e-2, 2e-2),
}


@functools.cache
def op_database():
    """{name with variant: OpInfo} of the ops weft aims at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo import core
    # It looks through the stack for a TestCase, of which there is none here, and takes nine tenths of the time of all
    # samples, the more the more modules there are.
    common_utils.extract_test_fn = core.extract_test_fn = lambda: None
    found = {}
    for op in op_db:
        key = op.name if not op.variant_test_name else f"{op.name}:{op.variant_test_name}"
        if _wanted(op.name):
            found[key] = op
    return found


# Ops with their own issue or outside a CPU user's autograd: see EXCEPTIONS in test_opinfo.py for what is in reach.
_OUTSIDE = (
    *("masked.", "sparse.", "signal.", "torch.", "jiterator", "_", "native_dropout", "to_sparse"),
    *(
        "nn.functional.multi_head",
        "max_pool2d_with",
        "hash_tensor",
        "jiterator",
    ),
    "nn.functional.scaled_dot",
)
_DUNDERS = ("__getitem__", "__radd__", "__rdiv__", "__rmul__", "__rmatmul__", "__rmod__", "__rpow__", "__rsub__")
# A type that weft has not.
_TYPES = ["chalf"]


def _wanted(name):
    if name in _DUNDERS or name in ("__rand__", "__ror__", "__rxor__"):
        return True
    return name not in _TYPES and not name.startswith(_OUTSIDE)


# --- translation ------------------------------------------------------------------------------------------------------
class Untranslatable(Exception):
    """A sample about something weft does not have: another type, layout or device."""


def translated(x):
    """PyTorch's argument as weft's: tensors with their strides, types, and functions with `torch` meaning weft."""
    if isinstance(x, torch.Tensor):
        return _tensor(x)
    if isinstance(x, torch.dtype):
        return _dtype(x)
    if isinstance(x, (torch.device, torch.layout, torch.memory_format)):
        return _placement(x)
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        made = [translated(y) for y in x]
        return tuple(made) if isinstance(x, tuple) else made
    if isinstance(x, torch.Size):
        return tuple(x)
    if isinstance(x, dict):
        return {k: translated(v) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(*(translated(part) for part in (x.start, x.stop, x.step)))
    return rebound(x) if isinstance(x, types.FunctionType) else _namesake(x)


def _tensor(x):
    if (
        x.layout is not torch.strided
        or x.is_meta
        or x.ndim > 64
        or str(x.dtype)[6:] not in FORWARD_DTYPES + OTHER_DTYPES
    ):
        raise Untranslatable(f"{x.dtype} {x.layout}")
    copy = _copied(x.detach())
    if x.dtype is torch.bfloat16:  # which NumPy lacks; its values are float32's too
        made = weft.from_numpy(copy.float().numpy()).to(weft.bfloat16)
    else:
        made = weft.from_numpy(copy.resolve_conj().resolve_neg().numpy())
    made.requires_grad = x.requires_grad
    return made


def _copied(x):
    """A copy with the strides."""
    if x.is_contiguous() or 0 in x.stride():
        return x.clone() if 0 not in x.stride() else x
    copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    return copy.copy_(x)


def _dtype(x):
    name = str(x)[6:]
    if name not in FORWARD_DTYPES + OTHER_DTYPES:
        raise Untranslatable(name)
    return getattr(weft, name)


def _placement(x):
    if isinstance(x, torch.device):
        return "cpu"
    if isinstance(x, torch.memory_format) or x is torch.strided:
        return getattr(weft, str(x).removeprefix("torch."))
    raise Untranslatable(str(x))


def _namesake(x):
    """weft's function of the name that PyTorch's has; anything else stays."""
    if x is torch:
        return weft
    if isinstance(x, torch.nn.Module):
        raise Untranslatable(f"a module of PyTorch's: {type(x).__name__}")
    module = getattr(x, "__module__", None) or ""
    if isinstance(x, types.ModuleType) and x.__name__.startswith("torch"):
        return resolved(weft, x.__name__.removeprefix("torch").lstrip("."))
    if callable(x) and (module.startswith("torch") or type(x) is type(torch.add)):
        name = getattr(x, "__name__", "")
        for home in ("", "nn.functional", "linalg", "special", "Tensor"):
            theirs = resolved(torch, f"{home}.{name}")
            if theirs is x:
                return resolved(weft, f"{home}.{name}")
    return x


def resolved(root, path):
    for part in filter(None, path.split(".")):
        root = getattr(root, part)
    return root


_COMMON = "common_methods_invocations"


def rebound(function):
    """PyTorch's function of Python with its globals and closure translated."""
    if function.__module__.startswith("torch") and "_internal" not in function.__module__:
        return _namesake(function)
    spaces = {"torch": weft, "F": getattr(weft.nn, "functional", None), "np": np}
    names = {k: v for k, v in function.__globals__.items() if k not in spaces}
    for name in function.__code__.co_names:
        if isinstance(names.get(name), types.FunctionType) and "_internal" in names[name].__module__:
            names[name] = rebound(names[name])
    cells = None
    if function.__closure__:
        cells = tuple(types.CellType(translated(c.cell_contents)) for c in function.__closure__)
    made = types.FunctionType(function.__code__, {**names, **spaces}, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def function_of(op):
    """weft's function for an OpInfo; AttributeError where it has none."""
    if isinstance(op.op, types.FunctionType) and "_internal" in op.op.__module__:
        return rebound(op.op)
    try:
        in_torch = resolved(torch, op.name)
    except AttributeError:
        in_torch = None
    if (in_torch is None or isinstance(in_torch, torch.dtype)) and hasattr(torch.Tensor, op.name):
        return getattr(weft.Tensor, op.name)
    return resolved(weft, op.name)


# --- running ----------------------------------------------------------------------------------------------------------
def flat(x):
    """Tensors and numbers of nested results, in order."""
    if isinstance(x, (list, tuple)):
        return [leaf for part in x for leaf in flat(part)]
    if isinstance(x, dict):
        return [leaf for part in x.values() for leaf in flat(part)]
    return [x]


def _overlaps(outputs, operands):
    places = [
        {x.untyped_storage().data_ptr() for x in flat(part) if isinstance(x, torch.Tensor)}
        for part in (outputs, operands)
    ]
    return bool(places[0] & places[1])


class Call:
    """One sample on both sides."""

    def __init__(self, op, sample):
        self.op = op
        self.theirs = (sample.input, sample.args, sample.kwargs)
        if _overlaps([sample.kwargs.get("out")], (sample.input, *sample.args)):
            raise Untranslatable("translated tensors have memory of their own")
        kwargs = {k: v for k, v in sample.kwargs.items() if k not in ("device", "layout")}
        self.ours = translated((sample.input, tuple(sample.args), kwargs))
        self.process = sample.output_process_fn_grad
        self.our_process = translated(self.process) if isinstance(self.process, types.FunctionType) else self.process

    def run_theirs(self):
        x, args, kwargs = self.theirs
        return self.op.op(x, *args, **kwargs)

    def run_ours(self, arguments=None):
        x, args, kwargs = arguments or self.ours
        return function_of(self.op)(x, *args, **kwargs)

    def process_ours(self, result):
        return self.our_process(result)

    def leaves(self, arguments, kind):
        return [x for x in flat(arguments) if isinstance(x, kind) and x.requires_grad]


def same(ours, theirs, what, exact_dtype=True):
    """AssertionError unless the results agree."""
    ours, theirs = flat(ours), flat(theirs)
    assert len(ours) == len(theirs), f"{what}: {len(ours)} results, PyTorch has {len(theirs)}"
    for a, b in zip(ours, theirs):
        if isinstance(b, torch.Tensor):
            assert isinstance(a, weft.Tensor), f"{what}: a {type(a).__name__}, PyTorch returns a tensor"
            _same_tensor(a, b, what, exact_dtype)
        elif isinstance(b, (int, float, complex)):
            assert np.allclose(a, b, equal_nan=True), f"{what}: {a}, PyTorch has {b}"


def _same_tensor(a, b, what, exact_dtype):
    name = str(b.dtype)[6:]
    if name not in FORWARD_DTYPES + OTHER_DTYPES:
        raise Untranslatable(name)
    assert tuple(a.shape) == tuple(b.shape), f"{what}: shape {a.shape}, PyTorch has {tuple(b.shape)}"
    assert not exact_dtype or a.dtype.name == name, f"{what}: {a.dtype.name}, PyTorch has {name}"
    x, y = as_array(a), b.detach().to(torch.float32 if b.dtype is torch.bfloat16 else b.dtype).numpy(force=True)
    if x.dtype.kind in "fc":
        rtol, atol = TOLERANCE[name]
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=what, equal_nan=True)
    else:
        np.testing.assert_array_equal(x, y, err_msg=what)


def as_array(tensor):
    """The elements; those of bfloat16 as float32, which has them all."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype is weft.bfloat16 else tensor).numpy()


def projected(outputs, module, kind):
    """A weighted sum of the floating results, the weights fixed by position."""
    total = None
    for k, out in enumerate(flat(outputs)):
        if not isinstance(out, kind) or not out.requires_grad:
            continue
        weights = np.random.default_rng(k).uniform(0.5, 1.5, tuple(out.shape))
        part = (out * module.tensor(weights, dtype=out.dtype)).sum()
        part = part.real if part.is_complex() else part
        total = part if total is None else total + part
    return total


def gradients(outputs, leaves, module, kind, again):
    loss = projected(outputs, module, kind)
    if loss is None:
        return [None] * len(leaves)
    return list(module.autograd.grad(loss, leaves, create_graph=again, allow_unused=True))


def _filled(parts, leaves, zeros_like):
    return [zeros_like(x) if g is None else g for g, x in zip(parts, leaves)]


def check_derivatives(call, order):
    """First derivatives, and second ones if order is 2."""
    theirs, mine = call.leaves(call.theirs, torch.Tensor), call.leaves(call.ours, weft.Tensor)
    try:
        their_parts = gradients(call.process(call.run_theirs()), theirs, torch, torch.Tensor, True)
        present = [g for g in their_parts if g is not None]
        their_second = gradients(present, theirs, torch, torch.Tensor, False) if order == 2 else None
    except RuntimeError as error:
        raise Untranslatable(f"PyTorch has no derivative there: {error}") from None
    parts = gradients(call.our_process(call.run_ours()), mine, weft, weft.Tensor, True)
    _compare(parts, their_parts, mine, theirs, "gradient")
    if order == 2:
        second = gradients([g for g in parts if g is not None], mine, weft, weft.Tensor, False)
        _compare(second, their_second, mine, theirs, "second derivative")


def _compare(parts, their_parts, mine, theirs, what):
    zeros = lambda x: weft.zeros_like(x.detach())  # noqa: E731
    same(_filled(parts, mine, zeros), _filled(their_parts, theirs, torch.zeros_like), what)


def compile_always():
    """For scripts: functions that are made anew are compiled each time, however seldom they are called, as in tests."""
    importlib.import_module("weft.made_anew").PAYS_AFTER = 0


def check_compiled(call):
    """Results and first derivatives of the compiled call, twice, against the eager bits. Returns why parts of it ran
    outside of its programs."""
    leaves = call.leaves(call.ours, weft.Tensor)

    def run():
        out = call.our_process(call.run_ours())
        loss = projected(out, weft, weft.Tensor) if leaves else None
        parts = [] if loss is None else weft.autograd.grad(loss, leaves, allow_unused=True)
        return flat(out), [g for g in parts if g is not None]

    expected = _bits(run())
    compiled = weft.compile(run)
    for _ in range(2):
        found = _bits(compiled())
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert _equal_bits(a, b), f"compiled {a}\neager {b}"
    assert compiled.recordings, "the call was not recorded"
    # That operands show the memory of arrays is a matter of this file.
    about = ("every call is followed", "memory that a NumPy array", "memory of a NumPy array")
    return [found.reason for found in compiled.breaks if not any(words in found.reason for words in about)]


def _bits(result):
    return [as_array(x).copy() if isinstance(x, weft.Tensor) else x for x in flat(result)]


def _equal_bits(a, b):
    if not isinstance(b, np.ndarray):
        return a == b or a != a
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
