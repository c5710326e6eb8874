"""Docstrings: what a function is for stands at the function; the facts and examples of all of them stand in manual/.

    text_of_entry   the docstring of a function that is made from the op table, from its entry
    attach          gives the names of one of PyTorch's paths their facts and examples, once that module is complete

The files in manual/ are read by this module, by the tests (which run every example) and by the documentation site:

    == nn.functional            names below belong to this path
    = Activations               a group; facts given here hold for all its names
    Shape: any; the result has the same.

    relu relu6                  one entry for one or several names
    Raises: ...                 facts of these names alone, in place of the group's
    >>> weft.nn.functional.relu(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.])

Text before the facts is what the name is for, where no docstring stands at a function: properties, and forms that are
made by a rule. `python docs/reference.py` writes what the examples print.
"""

import inspect
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .paths import PATHS

_ROOT = __name__.partition(".")[0]
FOLDER = Path(__file__).parent / "manual"
FACTS = ("Shape", "Dtypes", "Raises")


@dataclass(slots=True)
class Entry:
    """What manual/ says of some names: `facts` by their word, `example` as lines of a session."""

    path: str
    group: str
    names: tuple
    text: list = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    example: list = field(default_factory=list)


# --- from the table ---------------------------------------------------------------------------------------------------
_SHAPES = {1: "any; the result has the same.", 2: "any two that broadcast; the result has the shape they broadcast to."}


def text_of_entry(op, n_operands):
    """The docstring of the function of an entry."""
    rule = getattr(op.compute_dtype, "__doc__", None)
    facts = [f"Shape: {_SHAPES[n_operands]}"] + ([f"Dtypes: {rule}"] if rule else [])
    return "\n".join([f"{op.doc or op.name} Element by element.", "", *facts])


# --- files ------------------------------------------------------------------------------------------------------------
def read(text):
    """The entries of a file's text."""
    path = group = ""
    shared, entry, entries = {}, None, []
    for line in text.splitlines():
        if line.startswith("== "):
            path, group, shared, entry = line[3:].removeprefix("weft").removeprefix("."), "", {}, None
        elif line.startswith("= "):
            group, shared, entry = line[2:], {}, None
        elif not line:
            entry = None
        elif entry is None and line.partition(":")[0] in FACTS:
            shared[line.partition(":")[0]] = line.partition(": ")[2]
        elif entry is None:
            entry = Entry(path, group, tuple(line.split()), facts=dict(shared))
            entries.append(entry)
        else:
            _add_line(entry, line)
    return entries


def _add_line(entry, line):
    word, _, rest = line.partition(": ")
    if entry.example or line.startswith(">>> "):
        entry.example.append(line)
    elif word in FACTS:
        entry.facts[word] = rest
    else:
        entry.text.append(line)


@cache
def entries_by_path():
    """{path: entries} of all files."""
    found = {}
    for file in sorted(FOLDER.glob("*.txt")):
        for entry in read(file.read_text(encoding="utf-8")):
            found.setdefault(entry.path, []).append(entry)
    return found


# --- docstrings -------------------------------------------------------------------------------------------------------
# Where the entry of a name stands that has none at its own path: methods are mostly functions.
_ELSEWHERE = {"Tensor": ("", "nn.functional"), "": ("nn.functional",), "autograd": ("",), "amp": ("",)}


def attach_to_loaded():
    """Complete the docstrings of the modules that are imported, and of classes in them."""
    for path in entries_by_path():
        home = _loaded(path)
        if home is not None:
            attach(path, home)


def _loaded(path):
    """The module or class at a path, without importing anything; None if it is not there yet."""
    source = PATHS.get(path, path).split(" ")[0].partition(":")[0]
    module = _module(path) or _module(source)
    owner, _, name = path.rpartition(".")
    return module or getattr(_module(owner), "__dict__", {}).get(name)


def _module(path):
    return sys.modules.get(f"{_ROOT}.{path}".rstrip("."))


def document(path, module):
    """For the last line of a module that is imported only when it is asked for: it, and what its path leads to."""
    attach(path, sys.modules[module])
    for inner in entries_by_path() if path else ():
        home = _loaded(inner) if inner.startswith(f"{path}.") else None
        if home is not None:
            attach(inner, home)


def attach(path, home):
    """Complete the docstrings of a module's or class's names."""
    for place in (path, *_ELSEWHERE.get(path, ())):
        for entry in entries_by_path().get(place, ()):
            for name in entry.names:
                value = _static(home, name)
                if callable(value) or isinstance(value, property):
                    _complete(value, entry)


def _static(home, name):
    """What stands in a module or class under a name, without its being looked up as on an instance."""
    places = home.__mro__ if isinstance(home, type) else (home,)
    value = next((vars(place)[name] for place in places if name in vars(place)), None)
    return getattr(value, "__func__", value)


def _complete(value, entry):
    """Once for each object: names may share it."""
    head = value.__doc__ or "\n".join(entry.text)
    if ">>> " in head:
        return
    head = inspect.cleandoc(head) if "\n" in head else head
    facts = [f"{word}: {entry.facts[word]}" for word in FACTS if word in entry.facts and f"{word}: " not in head]
    parts = [head, "\n".join(facts), "\n".join(entry.example)]
    value.__doc__ = "\n\n".join(part for part in parts if part)
