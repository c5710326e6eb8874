"""Run the examples of frontend/manual/ and write what they print below them.

python docs/reference.py            then read the difference: it is what the examples say now
"""

import ast
import io
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import weft
from weft import public, reference

FOLDER = Path(__file__).parent.parent / "frontend" / "manual"


def namespace():
    """What the examples can use without an import."""
    return {"weft": weft, "__name__": "example"}


def statements(lines):
    """The statements of an example, without what they print."""
    found = []
    for line in lines:
        if line.startswith(">>> "):
            found.append(line[4:])
        elif line.startswith("..."):
            found[-1] += "\n" + line[4:]
    return found


def run(source, names):
    """What a statement prints, or the last line of its error."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            exec(compile(source + "\n", "<example>", "single"), names)
        except Exception as error:
            print(f"Traceback (most recent call last):\n    ...\n{doctest_name(error)}: {error}")
    return [line or "<BLANKLINE>" for line in printed.getvalue().rstrip("\n").splitlines()]


def doctest_name(error):
    """As a traceback names the class."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def refreshed(lines):
    """An example with what it prints now."""
    names, result = namespace(), []
    for source in statements(lines):
        first, *rest = source.splitlines()
        result += [f">>> {first}", *(f"... {line}".rstrip() for line in rest), *run(source, names)]
    return result


def refresh(text):
    """A file's text with what its examples print now."""
    written, example = [], []
    for line in [*text.splitlines(), ""]:
        if example or line.startswith(">>> "):
            example.append(line)
        if not line and example:
            written += [*refreshed(example), ""]
            example = []
        elif not example:
            written.append(line)
    return "\n".join(written).rstrip("\n") + "\n"


# --- in-place forms ---------------------------------------------------------------------------------------------------
# An in-place form has the example of its function, with the first argument before the dot.
INPLACE = """== {path}
= In-place forms
Shape: the tensor keeps its own; operands broadcast to it.
Dtypes: the tensor keeps its own, to which the result must convert.
Raises: RuntimeError for a leaf that requires gradients, for a result that does not fit, and in backward() where the old values were needed.
"""  # noqa: E501


def inplace_entries():
    """The entries of all in-place methods that have none written by hand."""
    written = {name for e in entries_in("Tensor") if e.group != "In-place forms" for name in e.names}
    functions = {name: e for path in ("nn.functional", "") for e in entries_in(path) for name in e.names}
    for name in public.public_names("Tensor"):
        base = functions.get(name[:-1]) if name.endswith("_") else None
        if base and name not in written:
            example = inplace_example(name, base)
            yield "\n".join([name, f"    As {name[:-1]}, in place.", *refreshed([f">>> {example}"])])


def entries_in(path):
    return reference.entries_at(path)


def inplace_example(name, entry):
    """weft.f(x, ...) -> x.f_(...)"""
    calls = [node for source in statements(entry.example) for node in ast.walk(ast.parse(source))]
    call = next(node for node in calls if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in entry.names)
    first, *others = call.args
    call.func = ast.Attribute(value=first, attr=name, ctx=ast.Load())
    call.args = others
    return ast.unparse(call).replace("'", '"')


def inplace_text():
    return INPLACE.format(path="Tensor") + "\n" + "\n\n".join(inplace_entries()) + "\n"


# --- docstrings of what comes with weft ------------------------------------------------------------------------------
# In a process of its own, in which they have not been completed.
DOCSTRINGS = """
import importlib, sys, types
sys.modules["weft.attached"] = types.SimpleNamespace(attach_to_loaded=lambda: None)
import weft
del sys.modules["weft.attached"]
sys.stdout.reconfigure(encoding="utf-8")
sys.stdout.write(importlib.import_module("weft.attached").text_of_loaded())
"""


def docstrings_text():
    made = subprocess.run([sys.executable, "-c", DOCSTRINGS], check=True, capture_output=True, encoding="utf-8")
    return made.stdout


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.txt")):
        weft.manual_seed(0)
        path.write_text(refresh(path.read_text(encoding="utf-8")), encoding="utf-8")
    reference.forget()
    (FOLDER / "inplace.txt").write_text(inplace_text(), encoding="utf-8")
    (FOLDER.parent / "docstrings.txt").write_text(docstrings_text(), encoding="utf-8")
