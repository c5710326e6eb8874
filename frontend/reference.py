"""Docstrings: what a function is for stands at the function; the facts and examples of all of them stand in manual/.

    text_of_entry   the docstring of a function that is made from the op table, from its entry
    attach          gives the names of one of PyTorch's paths their facts and examples, and says of functions that they
                    are there, once that module is complete

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

import os
import sys
from collections import Counter
from functools import cache
from types import FunctionType

from .paths import PATHS

_ROOT = __name__.partition(".")[0]
# With `os`: pathlib alone takes a twentieth of the time of `import weft`.
FOLDER = os.path.join(os.path.dirname(__file__), "manual")
FACTS = ("Options", "Shape", "Dtypes", "Raises")


class Entry:
    """What manual/ says of some names: `facts` by their word, `example` as lines of a session. What stands there is
    taken apart when it is asked for: `import weft` does that for all of them."""

    __slots__ = ("path", "group", "names", "shared", "body", "_parts", "_more")

    def __init__(self, path, group, names, shared, body):
        self.path, self.group, self.names, self.shared, self.body = path, group, names, shared, body
        self._parts = self._more = None

    @property
    def text(self):
        return self.parts()[0]

    @property
    def facts(self):
        return self.parts()[1]

    @property
    def example(self):
        return self.parts()[2].splitlines()

    def parts(self):
        """(lines of text, facts, the example as one string)."""
        if self._parts is None:
            before, prompt, example = f"\n{self.body}".partition("\n>>> ")
            text, facts = [], self.shared
            for line in before.split("\n")[1:]:
                word = line.partition(": ")[0]
                if word in FACTS:
                    facts = facts | {word: line[len(word) + 2 :]}
                else:
                    text.append(line)
            self._parts = text, facts, prompt[1:] + example
        return self._parts

    def more(self, head):
        """The facts and the example, but for facts that a docstring says itself."""
        _, facts, example = self.parts()
        missing = [word for word in FACTS if word in facts and f"{word}: " not in head]
        if len(missing) < len(facts):
            return _joined(facts, missing, example)
        if self._more is None:
            self._more = _joined(facts, missing, example)
        return self._more


def _joined(facts, words, example):
    text = "\n".join([f"{word}: {facts[word]}" for word in words])
    return f"{text}\n\n{example}" if text and example else text or example


# --- from the table ---------------------------------------------------------------------------------------------------
_SHAPES = {1: "any; the result has the same.", 2: "any two that broadcast; the result has the shape they broadcast to."}


def text_of_entry(op, n_operands):
    """The docstring of the function of an entry."""
    rule = op.compute_dtype.__doc__ if op.compute_dtype else None  # None has a docstring from CPython 3.13 on
    facts = [f"Shape: {_SHAPES[n_operands]}"] + ([f"Dtypes: {rule}"] if rule else [])
    return "\n".join([f"{op.doc or op.name} Element by element.", "", *facts])


# --- files ------------------------------------------------------------------------------------------------------------
def read(text):
    """The entries of a file's text."""
    path = group = ""
    shared, entries = {}, []
    for block in text.split("\n\n"):
        names, _, body = block.strip("\n").partition("\n")
        if names[:1] != "=" and names.partition(": ")[0] not in FACTS:
            entries.append(Entry(path, group, names.split(), shared, body))
            continue
        lines, shared = block.strip("\n").split("\n"), dict(shared)
        while lines and lines[0][:2] in ("= ", "=="):
            line, shared = lines.pop(0), {}
            if line[1] == "=":
                path, group = _path(line[3:]), ""
            else:
                group = line[2:]
        while lines and lines[0].partition(": ")[0] in FACTS:
            word, _, fact = lines.pop(0).partition(": ")
            shared[word] = fact
        if lines and lines[0]:
            entries.append(Entry(path, group, lines[0].split(), shared, "\n".join(lines[1:])))
    return [entry for entry in entries if entry.names]


def files():
    """The names of the files in manual/."""
    return sorted(name for name in os.listdir(FOLDER) if name.endswith(".txt"))


@cache
def _texts():
    """{path: what the files say of it, as it stands there}."""
    found = {}
    for name in files():
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            said = file.read()
        for text in said.removeprefix("== ").split("\n\n== "):
            found.setdefault(_path(text.partition("\n")[0]), []).append(f"== {text}")
    return found


def _path(name):
    return name.removeprefix("weft").removeprefix(".")


@cache
def entries_at(path):
    """The entries of a path, of all files."""
    return [entry for text in _texts().get(path, ()) for entry in read(text)]


def entries_by_path():
    """{path: entries} of all files."""
    return {path: entries_at(path) for path in _texts()}


def forget():
    """Let go of what was read: it is read again when it is asked for."""
    _texts.cache_clear()
    entries_at.cache_clear()


# --- docstrings -------------------------------------------------------------------------------------------------------
# Where the entry of a name stands that has none at its own path: methods are mostly functions.
_ELSEWHERE = {
    "Tensor": ("", "nn.functional"),
    "": ("nn.functional",),
    "autograd": ("",),
    "amp": ("",),
    "testing": ("autograd",),
}


_attached = []
told_of_modules = []  # functions that are called when a module has come later


def begin():
    """From now on what is imported is attached as it comes (`document`): all that comes with weft is there."""
    _attached.append(True)
    forget()


def loaded_homes():
    """[(path, module or class)] of those that are there: in the order of the paths, by which the first says what a name
    that several have is for."""
    return [(path, home) for path in _texts() if (home := loaded(path)) is not None]


def loaded(path):
    """The module or class at a path, without importing anything; None if it is not there yet."""
    source = PATHS.get(path, path).split(" ")[0].partition(":")[0]
    module = _module(path) or _module(source)
    owner, _, name = path.rpartition(".")
    return module or getattr(_module(owner), "__dict__", {}).get(name)


def _module(path):
    return sys.modules.get(f"{_ROOT}.{path}".rstrip("."))


def document(path, module):
    """For the last line of a module that is imported only when it is asked for: it, and what its path leads to."""
    if not _attached:  # it is one of those that come with weft
        return
    for told in told_of_modules:
        told()
    attach(path, sys.modules[module])
    for inner in _texts() if path else ():
        home = loaded(inner) if inner.startswith(f"{path}.") else None
        if home is not None:
            attach(inner, home)


def attach(path, home, names=None):
    """Complete the docstrings of a module's or class's names, or of those of its names that are given, with what they
    mean."""
    given, nameless = names, []
    names = names_of(home) if given is None else given
    for place in (path, *_ELSEWHERE.get(path, ())):
        if place != path and given and all(">>> " in (value.__doc__ or "") for value in given.values()):
            break  # what other paths say need not be read
        for entry in entries_at(place):
            for name in entry.names:
                value = documented(names, name)
                if value is None:
                    continue
                _complete(value, entry)
                if type(value) is FunctionType:
                    if _is_nameless(value):
                        nameless.append((name, value))
                    _place(value, name, path, home)
    if nameless:
        _give_names(nameless, names)


def names_of(home):
    """What stands in a module or class, without its being looked up as on an instance."""
    names = {}
    for kind in reversed(home.__mro__) if isinstance(home, type) else (home,):
        names.update(vars(kind))
    return names


def documented(names, name):
    """The function, class or property of this name; None if it is nothing that has a docstring of its own."""
    value = names.get(name)
    if type(value) is not FunctionType:
        value = getattr(value, "__func__", value)
        if not (callable(value) or isinstance(value, property)):
            return None
    return value


def _is_nameless(function):
    return function.__name__[0] in "_<" or function.__name__ == "method"


def _give_names(functions, names):
    """Help shows what a function is called, not how it is made; but for what stands under many names."""
    uses = Counter(id(value) for name, value in names.items() if name[0] != "_")
    for name, function in functions:
        if uses[id(function)] <= 2 and _is_nameless(function):
            function.__name__ = name


def _place(function, name, path, home):
    """Say where a function stands, if it is not where it was made: pickle looks there, and errors name it so."""
    owner, _, called = function.__qualname__.rpartition(".")
    made = vars(sys.modules[function.__module__])
    if owner:
        made = getattr(made.get(owner), "__dict__", {})
    if getattr(made.get(called), "__func__", made.get(called)) is function:
        return
    root = sys.modules[_ROOT]
    if vars(root).get(name) is function:
        path, home = "", root
    if vars(home).get(function.__name__) is function:
        name = function.__name__
    if isinstance(home, type):
        path, _, kind = path.rpartition(".")
        name = f"{kind}.{name}"
    function.__module__, function.__qualname__ = f"{_ROOT}.{path}".rstrip("."), name


def _complete(value, entry):
    """Once for each object: names may share it."""
    head = value.__doc__ or ""
    if ">>> " in head:
        return
    head = head.rstrip() or "\n".join(entry.text)
    more = entry.more(head)
    if not more or not head:
        value.__doc__ = head or more
        return
    value.__doc__ = joined(head, more)


def joined(head, more):
    """A docstring and what is added to it, as far to the right as its other paragraphs."""
    margin = _margin(head)
    return f"{head}\n\n{margin}" + (more.replace("\n", f"\n{margin}") if margin else more)


def added(head, whole):
    """What `joined` has added."""
    return whole[len(head) + 2 + len(_margin(head)) :].replace(f"\n{_margin(head)}", "\n")


def _margin(head):
    _, is_long, last = head.rpartition("\n")
    return last[: len(last) - len(last.lstrip())] if is_long else ""
