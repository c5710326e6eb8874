"""The .pyi files of PyTorch's import paths that are not modules of docs/stubs_of_modules.py: nn.modules.linear,
utils.data.dataloader, optim.adam, cuda.amp and the like, for docs/stubs.py.

A path shows the names of the stub of its source, and of its own what that stub has not: private classes that programs
derive from or ask for (`_Loss`, `_BatchNorm`), and whole modules of settings and devices.
"""

import importlib
import inspect
from functools import cache

import stubs_of_modules as modules
from stubs_of_modules import FRONTEND, MODULES

from weft import nn, public
from weft.absent import names_in
from weft.paths import LAZY, PATHS, sources_of

# Modules of weft's own files that PyTorch has in the same places.
_FILES = [
    path
    for path in sorted({*names_in("modules"), *LAZY})
    if any((FRONTEND / path.replace(".", "/")).with_suffix(suffix).exists() for suffix in (".py", ""))
]
PATHS_OF_STUBS = [path for path in sorted({*PATHS, *_FILES}) if path not in MODULES and path != "torch_version"]
# What is imported from private names there.
PRIVATE = {
    "optim.optimizer": ["required"],
    "nn.modules.utils": str.split("_single _pair _triple _quadruple _ntuple _reverse_repeat_tuple"),
}
WRITTEN = {
    "multiprocessing": ["from multiprocessing import *"],
    "version": [
        "__version__: builtins.str",
        *(f"{name}: builtins.str | None" for name in str.split("cuda hip xpu rocm")),
    ],
}
RESULTS = {
    **dict.fromkeys(str.split("device_count get_rank get_world_size"), "builtins.int"),
    **dict.fromkeys(
        str.split("init_process_group destroy_process_group synchronize empty_cache init manual_seed_all seed_all"),
        "None",
    ),
}


def file_of(path):
    """Where the stub of a path stands, below frontend/ and without its suffix."""
    inner = path.replace(".", "/")
    has_inner = any(other.startswith(f"{path}.") for other in [*PATHS_OF_STUBS, *MODULES])
    return f"{inner}/__init__" if has_inner or (FRONTEND / inner / "__init__.py").exists() else inner


def text(path):
    """The stub of a path given without "weft."."""
    home, known = _home(path), _known()
    up = "." * (1 + file_of(path).count("/"))
    package = _shown(path)
    there = {name for name in _stub_names(package) if not name.startswith("_")} if package else set()
    lines = [f"from {up}{package} import *"] if package else []
    lines += WRITTEN.get(path, [])
    for name in _names(path):
        value = getattr(home, name)
        inner = f"{path}.{name}"
        if inner in PATHS_OF_STUBS or inner in MODULES:
            again = "  # type: ignore[no-redef]" if name in there else ""
            lines.append(f"from . import {name} as {name}{again}")
        elif name not in there:
            lines += _lines(path, name, value, known, up)
    imports = [*dict.fromkeys(line for line in lines if line.startswith("from "))]
    lines = [*imports, *(line for line in lines if not line.startswith("from "))]
    return "\n".join([*modules.heading(up, "\n".join(lines)), *lines]) + "\n"


def _lines(path, name, value, known, up):
    source = known.get(id(value)) if callable(value) else None
    if source is not None:
        place, original = source
        return [f"from {up}{place} import {original} as {name}"]
    if inspect.isclass(value):
        base = next((kind for kind in value.__mro__[1:] if id(kind) in known), None)
        if base is None:
            return modules.class_lines(path, name, value, {})
        place, original = known[id(base)]
        local = f"_{original}" if original == name else original
        heading = f"from {up}{place} import {original} as {local}"
        return [heading, *modules.class_lines(path, name, value, {id(base): local})]
    if callable(value):
        result = RESULTS.get(name) or (modules.BOOL if name.startswith("is_") else "Any")
        return [f"def {name}({modules.parameters(path, value, False)}) -> {result}: ..."]
    return [f"{name}: Any"]


def _home(path):
    return importlib.import_module(f"weft.{path}")


def _sources(path):
    return sources_of(path) if path in PATHS else [_home(path)]


def _names(path):
    """Public names, and the private classes that PyTorch's programs derive from: those of layers."""
    home, sources = _home(path), _sources(path)
    names = {*PRIVATE.get(path, ())}
    if _shown(path) is None or path in PATHS:
        names |= {*public.public_names(path)}
    if _shown(path) is None and all(f"{path}.{name}" in PATHS for name in names):  # an object of settings
        names |= {name for source in sources for name in vars(source) if not name.startswith("_")}
    if path.startswith("nn.modules."):
        for source in sources[1:]:
            names |= {n for n, value in vars(source).items() if n[0] == "_" and _is_layer(value, source)}
    return sorted(name for name in names if hasattr(home, name))


def _is_layer(value, source):
    return inspect.isclass(value) and issubclass(value, nn.Module) and value.__module__ == source.__name__


def _shown(path):
    """The shortest path to the same module, or that module, whose stub has the names of a path; None if none has."""
    if path.startswith("optim."):
        return "optim"
    first = _sources(path)[0]
    shortest = min((p for p in PATHS_OF_STUBS if _sources(p) == _sources(path)), key=lambda p: (len(p), p))
    if shortest != path:
        return shortest
    found = [other for other in MODULES if _home(other) is first or _is_path_to(other, first)]
    return min(found, key=len, default=None)


def _is_path_to(path, source):
    return path in PATHS and sources_of(path)[0] is source


def _stub_names(path):
    return {*public.public_names(path), *modules.WRITTEN_NAMES.get(path, ())}


@cache
def _known():
    """id of a class or function -> the shortest of the places with a stub that have it: ("nn", "Linear")."""
    found = {}
    for path in sorted(["", *MODULES], key=len):
        home = _home(path) if path else public.resolve("")
        for name in _stub_names(path):
            value = getattr(home, name, None)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(id(value), (path, name))
    return found


def write():
    for path in PATHS_OF_STUBS:
        target = FRONTEND / f"{file_of(path)}.pyi"
        target.parent.mkdir(exist_ok=True, parents=True)
        target.write_text(text(path), encoding="utf-8")
