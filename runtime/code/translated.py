"""Native functions that are written in the subset (docs/native.md): translated once, kept on disk, bound at load.

    code = load("replay", [apply, call_op], layout)
    code.address("weft_apply")

A module refers to Python objects and C functions by name, through a table that is filled in here, so that a process
whose code is on disk imports neither the translator nor LLVM.
"""

import ctypes
import functools
import sys
from importlib import import_module

from . import jit, made_here
from .cache import default_cache, pack, unpack
from .lasting import keep_for_ever

TRANSLATOR = "weft.compiler.translate.translate"


class Translated:
    """Loaded code, which stays for ever, with the Python objects that it refers to: classes and functions of CPython's
    have its addresses.

    names: of each word of the table, ["function", name], ["object", "module:name"] or ["text", string].
    """

    def __init__(self, library, names):
        self.library = library
        self.held = [_FIND[kind](name) for kind, name in names]
        if names:
            words = (ctypes.c_size_t * len(names)).from_address(self.call_address("weft_table_address"))
            words[:] = [x if kind == "function" else id(x) for x, (kind, _) in zip(self.held, names)]

    def address(self, name):
        """Of an exported function."""
        return self.library.address(name)

    def struct_address(self, path):
        """Of a structure of a source, "module:name"."""
        return self.call_address(f"{path.replace(':', '.')}_address")

    def call_address(self, name):
        return ctypes.PYFUNCTYPE(ctypes.c_size_t)(self.library.address(name))()


def load(name, functions, layout=None):
    """The native code of these functions, and of those they call."""
    with jit.compiling:
        return _load(name, tuple(functions), layout)


def key_of(name, functions, layout):
    """What the code is kept under."""
    return f"translated {name} {layout} {_texts(functions)}"


@functools.cache
def _load(name, functions, layout):
    cache = default_cache()
    key = key_of(name, functions, layout)
    entry = cache.get(key)
    if entry is None:
        with made_here.timed(made_here.REPLAYS_AND_NODES):
            meta, text = translate(functions, layout)
            code = jit.compile_text(text)
        cache.put(key, pack(meta, code))
        names = meta["names"]
    else:
        meta, code = unpack(entry.payload)
        names = meta["names"]
    return keep_for_ever(Translated(jit.link(code), names))


def translate(functions, layout):
    """({"names": those of the table's words}, IR text)."""
    # Imported here: `ast` and the translator, which only a cache miss needs.
    translation = import_module(TRANSLATOR).translate(functions, layout._asdict() if layout else None)
    text = translation.text()
    return {"names": [list(slot) for slot in translation.slots]}, text


def _texts(functions):
    """What the code depends on beside weft's sources, which are part of every key: the text of other modules."""
    modules = {f.declaration.function.__module__ for f in functions}
    return "".join(_text(name) for name in sorted(modules) if not name.startswith("weft."))


def _text(module):
    with open(sys.modules[module].__file__, encoding="utf-8") as file:
        return file.read()


def _function(name):
    function = getattr(ctypes.pythonapi, name, None)
    if function is None:
        function = getattr(ctypes.CDLL(None), name)
    return ctypes.cast(function, ctypes.c_void_p).value


def _object(path):
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


_FIND = {"function": _function, "object": _object, "text": sys.intern}
