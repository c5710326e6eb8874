"""The gallery of the documentation site: programs that the build runs, with what they print and draw.

A program is a script of docs/gallery/ or examples/ whose docstring begins with a title. What it prints is shown, and
so are the figures of matplotlib that are open when it ends. A program that fails fails the build. One that needs a
library that is not installed is shown without its results, and says so.
"""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The demo writes a page of its own.
SKIPPED = {"digits.py", "digits_page.py"}
# Runs a program and keeps its figures: python -c RUN program folder
RUN = """
import runpy, sys
import matplotlib
matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "weft", "svg.fonttype": "none", "figure.autolayout": True})
from matplotlib import pyplot
program, stem = sys.argv[1:]
sys.argv = [program]
runpy.run_path(program, run_name="__main__")
for k in pyplot.get_fignums():
    pyplot.figure(k).savefig(f"{stem}-{k}.svg", metadata={"Date": None})
"""


class Failed(Exception):
    """A program of the gallery does not run."""


def programs():
    """The scripts, those with figures first."""
    found = [*sorted((ROOT / "docs" / "gallery").glob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]
    return [path for path in found if path.name not in SKIPPED and not path.name.startswith("_")]


def title_and_text(source):
    """The first sentence of a program's docstring, and the rest of it."""
    first, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    return first.partition(": python ")[0].rstrip("."), rest.strip()


def missing_libraries(source):
    """The top-level modules that a program imports and that are not installed."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    tops = {name.partition(".")[0] for name in names} - {"weft"}
    return sorted(name for name in tops if importlib.util.find_spec(name) is None)


def run(path, folder):
    """(what the program prints, its figures)."""
    command = [
        sys.executable,
        "-W",
        "error::DeprecationWarning:__main__",
        "-c",
        RUN,
        str(path),
        str(folder / path.stem),
    ]
    finished = subprocess.run(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False)
    if finished.returncode:
        raise Failed(f"{path}: the program fails\n{finished.stderr}")
    return finished.stdout, sorted(folder.glob(f"{path.stem}-*.svg"))


def write_pages(folder):
    """A page for each program, and an index with their first figures."""
    folder.mkdir(parents=True, exist_ok=True)
    cards, names = [], []
    for path in programs():
        source = path.read_text(encoding="utf-8")
        absent = missing_libraries(source)
        printed, figures = ("", []) if absent else run(path, folder)
        (folder / f"{path.stem}.md").write_text(page(path, source, printed, figures, absent), encoding="utf-8")
        cards += card(path, source, figures)
        names.append(path.stem)
    lines = ["# Gallery", "", "Whole programs, small enough to read. This site's build runs them all.", "", *cards]
    lines += ["```{toctree}", ":hidden:", "", *names, "```"]
    (folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def card(path, source, figures):
    title, _ = title_and_text(source)
    lines = [f"## [{title}]({path.stem}.md)", ""]
    return lines + ([f"[![{title}]({figures[0].name})]({path.stem}.md)", ""] if figures else [])


def page(path, source, printed, figures, absent):
    title, text = title_and_text(source)
    lines = [f"# {title}", "", text, ""]
    for figure in figures:
        lines += [f"![{title}]({figure.name})", ""]
    if absent:
        lines += [f"It needs {', '.join(absent)}, which this build did not have, so its results are not shown.", ""]
    tree = ast.parse(source)
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno :]).strip("\n")
    lines += [f"From `{path.relative_to(ROOT)}`:", "", "```python", code, "```", ""]
    return "\n".join(lines + (["It prints", "", "```text", printed.rstrip("\n"), "```", ""] if printed else []))
