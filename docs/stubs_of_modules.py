"""The .pyi files of weft's modules, for docs/stubs.py: nn, optim, distributions, linalg and the like.

Their names are collected from many files, or take any arguments, so a checker that reads the source sees too little of
some (the layers of families) and too much of others (a result that might be a tuple). Here is what they mean to a user:
functions and constructors with their parameters, and objects that may have whatever attributes.
"""

import inspect
from fnmatch import fnmatch
from pathlib import Path

from weft import nn, public

FRONTEND = Path(__file__).parent.parent / "frontend"
# Path of a module without "weft." -> the file that its stub stands beside.
MODULES = {
    "nn": "nn/__init__",
    "nn.functional": "nn/functional",
    "nn.init": "nn/init",
    "nn.utils": "nn/utils",
    "optim": "optim/__init__",
    "optim.lr_scheduler": "optim/lr_scheduler",
    "optim.swa_utils": "optim/swa_utils",
    "utils.data": "utils/data",
    "distributions": "distributions/__init__",
    "linalg": "linalg",
    "special": "special",
    "fft": "fft",
    "func": "func",
    "testing": "testing",
}
HEADER = '''"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from typing_extensions import Self

from {up} import Tensor as Tensor
'''
PARAMETER_CLASSES = """
class Parameter(Tensor):
    def __init__(self, data: Tensor, requires_grad: builtins.bool = ...) -> None: ...

class Buffer(Tensor):
    def __init__(self, data: Tensor | None = ..., *, persistent: builtins.bool = ...) -> None: ...
"""
# What is known of results beyond "a tensor" (functions) and "anything" (methods).
RESULTS = {
    "nn": {
        **dict.fromkeys(str.split("__call__ forward"), "Any"),
        **dict.fromkeys(["parameters"], "Iterator[Parameter]"),
        **dict.fromkeys(["named_parameters"], "Iterator[builtins.tuple[builtins.str, Parameter]]"),
        **dict.fromkeys(["named_buffers"], "Iterator[builtins.tuple[builtins.str, Tensor]]"),
        **dict.fromkeys(["buffers"], "Iterator[Tensor]"),
        **dict.fromkeys(str.split("children modules"), "Iterator[Module]"),
        **dict.fromkeys(str.split("named_children named_modules"), "Iterator[builtins.tuple[builtins.str, Module]]"),
        **dict.fromkeys(
            str.split("train eval to float double half bfloat16 cpu type apply requires_grad_ share_memory"), "Self"
        ),
        **dict.fromkeys(str.split("zero_grad register_buffer register_parameter register_module add_module"), "None"),
        "state_dict": "builtins.dict[builtins.str, Any]",
    },
    "optim": {
        "zero_grad": "None",
        "add_param_group": "None",
        "load_state_dict": "None",
        "state_dict": "builtins.dict[builtins.str, Any]",
    },
    "distributions": {
        **dict.fromkeys(str.split("sample rsample log_prob cdf icdf entropy perplexity"), "Tensor"),
        **dict.fromkeys(str.split("mean mode stddev variance"), "Tensor"),
        **dict.fromkeys(str.split("kl_divergence"), "Tensor"),
    },
}
RESULTS["optim.lr_scheduler"] = {
    "step": "None",
    "get_last_lr": "builtins.list[builtins.float]",
    "state_dict": "builtins.dict[builtins.str, Any]",
}
# Functions of these modules give one tensor, but for those named.
OF_TENSORS = {
    "nn.functional": str.split("lp_pool scaled_grouped_mm *_with_indices *max_pool*d multi_head_attention_forward"),
    "nn.init": str.split("calculate_gain"),
    "linalg": str.split("eig eigh qr svd slogdet lstsq lu lu_factor* ldl_factor* cholesky_ex inv_ex solve_ex"),
    "special": [],
    "fft": [],
}


def text(path):
    """The stub of a module given without "weft."."""
    up = "." * (1 + MODULES[path].count("/"))
    home = public.resolve(path)
    names = [n for n in public.public_names(path) if not n.startswith("_")]
    values = {name: getattr(home, name) for name in names}
    lines = [HEADER.format(up=up).rstrip()]
    lines += [f"from . import {n} as {n}" for n, v in values.items() if inspect.ismodule(v) and _is_below(path, n)]
    if path == "nn":
        lines.append(PARAMETER_CLASSES.rstrip())
    known = {id(v): n for n, v in values.items() if inspect.isclass(v)}
    for name in _bases_first(values):
        if name in ("Parameter", "Buffer", "Tensor"):
            continue
        value = values[name]
        if inspect.isclass(value):
            lines += _class(path, name, value, known)
        elif callable(value) and not inspect.ismodule(value):
            lines.append(f"def {name}({_parameters(value, False)}) -> {_result(path, name)}: ...")
        elif not inspect.ismodule(value):
            lines.append(f"{name}: Any")
    return "\n".join(lines) + "\n"


def _is_below(path, name):
    folder = (FRONTEND / MODULES[path]).parent
    return MODULES[path].endswith("__init__") and ((folder / f"{name}.py").exists() or (folder / name).is_dir())


def _bases_first(values):
    return sorted(values, key=lambda n: (len(values[n].__mro__) if inspect.isclass(values[n]) else 99, n))


def _result(path, name):
    found = RESULTS.get(path, {}).get(name)
    if found is not None or path not in OF_TENSORS:
        return found or "Any"
    return "Any" if any(fnmatch(name, pattern) for pattern in OF_TENSORS[path]) else "Tensor"


def _class(path, name, kind, known):
    base = next((known[id(b)] for b in kind.__mro__[1:] if id(b) in known), None)
    plain = next((b.__name__ for b in kind.__mro__ if b.__module__ == "builtins" and b is not object), None)
    yield ""
    yield f"class {name}({base or (f'builtins.{plain}' if plain else '')}):".replace("()", "")
    yield f"    def __init__({_parameters(kind, True)}) -> None: ..."
    is_free = base is None and plain is None
    if is_free:
        yield "    def __getattr__(self, name: builtins.str) -> Any: ..."
    for member in sorted(vars(kind) if base or plain else _all_members(kind)):
        found = inspect.getattr_static(kind, member)
        if member.startswith("_"):
            if member == "__call__" and is_free:
                yield "    def __call__(self, *args: Any, **kwargs: Any) -> Any: ..."
            if member in ("__iter__", "__len__", "__getitem__", "__enter__", "__exit__"):
                yield f"    def {member}(self, *args: Any) -> {'builtins.int' if member == '__len__' else 'Any'}: ..."
            continue
        result = RESULTS.get(path, {}).get(member, "Any")
        if isinstance(found, property):
            yield f"    @property\n    def {member}(self) -> {result}: ..."
        elif inspect.isfunction(found) and member != "forward":
            own, inherited = _parameters(found, True), getattr(base and kind.__mro__[1], member, None)
            differs = inherited is not None and _parameters(inherited, True) != own
            ignored = "  # type: ignore[override]" if differs else ""
            yield f"    def {member}({own}) -> {result}: ...{ignored}"
    if path == "nn" and kind is nn.Module:
        yield "    def forward(self, *args: Any, **kwargs: Any) -> Any: ..."
        yield "    training: builtins.bool"


def _all_members(kind):
    return {name for k in kind.__mro__ if k is not object for name in vars(k)}


def _parameters(function, is_method):
    """The text of a function's parameters; of a class, of its constructor's."""
    anything = "*args: Any, **kwargs: Any"
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return f"self, {anything}" if is_method else anything
    texts, is_starred = ["self"] if is_method else [], False
    for p in found[1:] if is_method and not inspect.isclass(function) else found:
        if p.kind is p.VAR_POSITIONAL:
            is_starred = True
        elif p.kind is p.KEYWORD_ONLY and not is_starred:
            is_starred = True
            texts.append("*")
        elif p.kind is p.VAR_KEYWORD:
            texts.append(f"**{p.name}: Any")
            continue
        star = "*" if p.kind is p.VAR_POSITIONAL else ""
        type_ = {bool: "builtins.bool", str: "builtins.str"}.get(type(p.default), "Any")
        texts.append(f"{star}{p.name}: {'Any' if star else type_}" + (" = ..." if p.default is not p.empty else ""))
    return ", ".join(texts)


def write():
    for path, file in MODULES.items():
        (FRONTEND / f"{file}.pyi").write_text(text(path), encoding="utf-8")
