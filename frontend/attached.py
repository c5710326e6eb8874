"""The docstrings of what comes with weft, completed as reference.py: attach completes them, in a fifth of the time:
docstrings.txt says beforehand what attach does to each name.

    attach_to_loaded    does what stands there
    text_of_loaded      what has to stand there; `python docs/reference.py` writes it

The file has a part for each path, and this a block for names to which the same is added:

    == Tensor
    +sum:Tensor.sum:sum mean:Tensor.mean:mean
    what is added to their docstrings
    ----
    =shape
    the whole docstring, of what has none

Behind the name of a function that attach moves stand its qualified name, its plain name, and its module below weft.
"""

from os.path import dirname, join

from . import reference

FILE = join(dirname(__file__), "docstrings.txt")
_ROOT = __name__.partition(".")[0]
_BLOCK, _PART = "\n----\n", "\n\n== "


def attach_to_loaded():
    """Complete the docstrings of the modules that are imported with weft, and of classes in them."""
    with open(FILE, encoding="utf-8") as file:
        parts = file.read().removeprefix("== ").removesuffix("\n").split(_PART)
    for part in parts:
        path, _, blocks = part.partition("\n")
        names = reference.names_of(reference.loaded(path))
        for block in blocks.split(_BLOCK):
            head, _, text = block.partition("\n")
            _attach(names, head[0], head[1:].split(" "), text)
    reference.begin()


def _attach(names, how, words, text):
    for word in words:
        name, *place = word.split(":")
        value = reference.documented(names, name)
        if how == "=":
            value.__doc__ = text
        elif text:
            value.__doc__ = reference.joined(value.__doc__.rstrip(), text)
        if place:
            qualified, value.__name__, module = place
            value.__qualname__, value.__module__ = qualified, f"{_ROOT}.{module}" if module else _ROOT


# --- the file ---------------------------------------------------------------------------------------------------------
def text_of_loaded():
    """The text of the file, in a process in which nothing has been attached yet."""
    parts = []
    for path, home in reference.loaded_homes():
        names = reference.names_of(home)
        before = _states(names)
        reference.attach(path, home)
        blocks = {}
        for name, state in _states(names).items():
            if state != before[name]:
                added, word = _change(name, before[name], state)
                blocks.setdefault(added, []).append(word)
        if blocks:
            written = [f"{how}{' '.join(words)}\n{text}" for (how, text), words in blocks.items()]
            parts.append(f"{path}\n{_BLOCK.join(written)}")
    return f"== {_PART.join(parts)}\n"


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
    """((how, text), name with its place)."""
    (head, *place), (doc, *new_place) = before, after
    word = name
    if new_place != place:
        qualified, plain, module = new_place
        word = f"{name}:{qualified}:{plain}:{module.removeprefix(_ROOT).removeprefix('.')}"
    if doc == head:
        return ("+", ""), word
    if not head:
        return ("=", doc), word
    head = head.rstrip()
    text = reference.added(head, doc)
    assert reference.joined(head, text) == doc, name
    return ("+", text), word
