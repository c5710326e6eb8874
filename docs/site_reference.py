"""The API reference of the documentation site: a page for each path, made from frontend/manual/ and docstrings.

conf.py calls `write_pages` before Sphinx reads its sources.
"""

import importlib
import inspect
import re

import weft
from weft import public, reference
from weft.later_families import join_all

join_all()  # methods are looked at where they stand
# What comes first on the page, in the order that a reader looks for it; all else follows by name.
FIRST = ["", "Tensor", "nn", "nn.functional", "nn.Module", "optim", "optim.Optimizer", "optim.lr_scheduler", "autograd"]
TITLES = {"": "weft: functions", "Tensor": "weft.Tensor"}
# Modules whose names stand in no list of weft's manual: all that is public in them, with the methods of classes.
WHOLE = ["distributed", "multiprocessing", "safetensors", "sklearn", "visualize"]


def write_pages(folder):
    """One page for each path, and an index."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [*FIRST, *sorted(path for path in reference.entries_by_path() if path not in FIRST)]
    for path in paths:
        (folder / f"{file_name(path)}.md").write_text(page(path), encoding="utf-8")
    for path in WHOLE:
        (folder / f"{file_name(path)}.md").write_text(page_of_whole(path), encoding="utf-8")
    lines = [
        "# Reference",
        "",
        f"Every public name of weft {weft.weft_version}, from its docstring.",
        "",
        "```{toctree}",
    ]
    lines += [":maxdepth: 2", "", *map(file_name, [*paths, *WHOLE]), "```"]
    (folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def file_name(path):
    return path.replace(".", "_") or "weft"


def page(path):
    home, groups = public.resolve(path), {}
    for entry in reference.entries_at(path):
        groups.setdefault(entry.group, []).extend(entry.names)
    lines = [f"# {TITLES.get(path, 'weft.' + path)}", ""]
    intro = inspect.getdoc(home) if path and path != "Tensor" else ""
    lines += [escaped((intro or "").split("\n\n")[0]), ""]
    for group, names in groups.items():
        lines += [f"## {group}", ""]
        for name in names:
            lines += described(
                f"weft.{path}.{name}" if path else f"weft.{name}", _found(home, name), isinstance(home, type)
            )
    return "\n".join(lines) + "\n"


def page_of_whole(path):
    """Every name of a module, and every method of its classes."""
    home = importlib.import_module(f"weft.{path}")
    lines = [f"# weft.{path}", "", escaped((inspect.getdoc(home) or "").split("\n\n")[0]), ""]
    for name, value in documented(home, path):
        lines += described(f"weft.{path}.{name}", value, "." in name)
    return "\n".join(lines) + "\n"


def documented(home, path):
    """(name, value) of all that a module's page says something about: functions, classes, and what classes have."""
    for name in public.public_names(path):
        value = getattr(home, name)
        if callable(value):
            yield name, value
        if isinstance(value, type):
            inner = (n for n in vars(value) if n[0] != "_" and callable(getattr(value, n)))
            yield from ((f"{name}.{n}", getattr(value, n)) for n in inner)


def _found(home, name):
    value = inspect.getattr_static(home, name, None)
    return getattr(home, name) if value is None else getattr(value, "__func__", value)


def described(full, value, is_member):
    """The directive of one name: signature, text, facts, example."""
    kind, signature = kind_and_signature(value, is_member)
    prose, _, example = (value.__doc__ or "" if callable(value) or kind == "py:property" else "").partition(">>> ")
    lines = [f":::{{{kind}}} {full}{signature}", ""]
    for part in inspect.cleandoc(prose).split("\n\n"):
        facts = part.splitlines() if part.startswith(tuple(f"{word}: " for word in reference.FACTS)) else [part]
        lines += [line for fact in facts for line in (escaped(fact), "")]
    if example:
        lines += ["```pycon", *inspect.cleandoc(">>> " + example).replace("<BLANKLINE>", "").splitlines(), "```", ""]
    return [*lines, ":::", ""]


def kind_and_signature(value, is_member):
    """The directive of Sphinx's that fits, and the parameters as they are written."""
    if not callable(value):
        return "py:property" if inspect.isdatadescriptor(value) else "py:attribute", ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "py:function", "(...)"
    parameters = list(signature.parameters.values())
    if is_member and parameters and parameters[0].name in ("self", "input"):
        parameters = parameters[1:]
    text = re.sub(r" at 0x[0-9a-f]+", "", str(signature.replace(parameters=parameters)))
    text = re.sub(r"<(class|function) '?([^'>]*)'?>", r"\2", text)
    kind = "py:class" if isinstance(value, type) else "py:method" if is_member else "py:function"
    return kind, text if re.fullmatch(r"[\w\s(),=*.:/'\"\[\]{}|>-]*", text) else "(...)"


def escaped(text):
    """Text whose characters mean nothing to Markdown; what is quoted in backticks stays code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part[:1] == "`" else re.sub(r"([\\*_{}\[\]<>#|$~`])", r"\\\1", part) for part in parts)
