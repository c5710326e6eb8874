"""The docstrings of what comes with weft, completed as reference.py: attach completes them, in a fifth of the time:
docstrings.txt says beforehand what attach does to each name.

    attach_to_loaded    does what stands there
    text_of_loaded      what has to stand there; `python docs/reference.py` writes it

The file has a block for names to which the same is added:

    +.sum Tensor.sum:Tensor.sum:sum:
    what is added to their docstrings
    ----
    =Tensor.shape
    the whole docstring, of what has none

Behind the name of a function that attach moves stand its qualified name, its plain name, and its module below weft.
"""

from functools import cache
from os.path import dirname, join

from . import reference

FILE = join(dirname(__file__), "docstrings.txt")
_ROOT = __name__.partition(".")[0]
_BLOCK = "\n----\n"


def attach_to_loaded():
    """Complete the docstrings of the modules that are imported with weft, and of classes in them."""
    names_at = cache(lambda path: reference.names_of(reference.loaded(path)))
    for block in _blocks():
        head, _, text = block.partition("\n")
        how, before, doc = head[0], None, None
        for word in head[1:].split(" "):
            name, *place = word.split(":")
            path, _, name = name.rpartition(".")
            value = reference.documented(names_at(path), name)
            if how == "=":
                value.__doc__ = text
            elif text:
                # A function and the method of its name have one docstring.
                if doc is None or value.__doc__ is not before:
                    before = value.__doc__
                    doc = reference.joined(before.rstrip(), text)
                value.__doc__ = doc
            if place:
                value.__qualname__, value.__name__, module = place
                value.__module__ = f"{_ROOT}.{module}" if module else _ROOT
    reference.begin()


def _blocks():
    """One after the other: all of them at once would be what importing weft needs the most memory for."""
    with open(FILE, encoding="utf-8") as file:
        text, start = file.read(), 0
    while start < len(text):
        end = text.find(_BLOCK, start)
        end = len(text) - 1 if end < 0 else end
        yield text[start:end]
        start = end + len(_BLOCK)


# --- the file ---------------------------------------------------------------------------------------------------------
def text_of_loaded():
    """The text of the file, in a process in which nothing has been attached yet."""
    blocks = {}
    for path, home in reference.loaded_homes():
        names = reference.names_of(home)
        before = _states(names)
        reference.attach(path, home)
        for name, state in _states(names).items():
            if state != before[name]:
                added, place = _change(name, before[name], state)
                blocks.setdefault(added, []).append(f"{path}.{name}{place}")
    return _BLOCK.join(f"{how}{' '.join(words)}\n{text}" for (how, text), words in blocks.items()) + "\n"


def _states(names):
    """{name: (docstring, place) of what can be documented}; of what has several names, the first."""
    found = {}
    for name in sorted(names):
        value = reference.documented(names, name)
        if value is not None:
            found.setdefault(id(value), (name, value))
    return {name: _state(value) for name, value in found.values()}


def _state(value):
    return value.__doc__, *[getattr(value, word, None) for word in ("__qualname__", "__name__", "__module__")]


def _change(name, before, after):
    """((how, text), the new place)."""
    (head, *place), (doc, *new_place) = before, after
    word = ""
    if new_place != place:
        qualified, plain, module = new_place
        word = f":{qualified}:{plain}:{module.removeprefix(_ROOT).removeprefix('.')}"
    if doc == head:
        return ("+", ""), word
    if not head:
        return ("=", doc), word
    head = head.rstrip()
    text = reference.added(head, doc)
    assert reference.joined(head, text) == doc, name
    return ("+", text), word
