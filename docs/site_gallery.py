"""The gallery of the documentation site: programs that the build runs, with what they print and draw.

A program is a script of docs/gallery/ or examples/ whose docstring begins with a title. What it prints is shown, and
so are the figures of matplotlib that are open when it ends. An example draws nothing, so that it needs no matplotlib:
docs/gallery/draw_NAME.py imports examples/NAME.py, which runs it, and draws what it found. A program that fails fails
the build. One that needs a library that is not installed is shown without its results, and says so. The index
has the notebooks of examples/ too, whose pages site_notebooks.py writes.
"""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES, DRAWN = ROOT / "examples", ROOT / "docs" / "gallery"
# Parts of the demo.
SKIPPED = {"digits_page.py", "digits_peers.py"}
# Runs a program and keeps its figures: python -c RUN program stem
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
    examples = [path for path in sorted(EXAMPLES.glob("*.py")) if path.name not in SKIPPED]
    return [*sorted(DRAWN.glob("plot_*.py")), *sorted(examples, key=lambda path: drawing_of(path) is None)]


def drawing_of(path):
    """The script that draws what an example found; None if there is none."""
    drawing = DRAWN / f"draw_{path.name}"
    return drawing if drawing.exists() else None


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
    there = {path.stem for path in EXAMPLES.glob("*.py")}
    return sorted(name for name in tops - there if importlib.util.find_spec(name) is None)


def run(path, folder):
    """(what the program prints, its figures)."""
    program = drawing_of(path) or path
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", RUN, program, folder / path.stem]
    # Drawings import examples; so do the worker processes of an example that has some.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])}
    finished = subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, check=False
    )
    if finished.returncode:
        raise Failed(f"{path}: the program fails\n{finished.stderr.decode()}")
    return without_bars(finished.stdout.decode()), sorted(folder.glob(f"{path.stem}-*.svg"))


def without_bars(printed):
    """Of a line that was written over and over, as a bar of progress is, what stood there last."""
    return "\n".join(line.rpartition("\r")[2] for line in printed.split("\n"))


def write_pages(folder, written_pages, notebooks):
    """A page for each program, and an index with their first figures. Pages of HTML that they write are kept too.

    notebooks: the titles of pages that are there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cards, names = [], []
    for path in programs():
        source = path.read_text(encoding="utf-8")
        absent = missing_libraries(source + figure_source(path))
        printed, figures = ("", []) if absent else run(path, folder)
        written = [moved(kept, written_pages).name for kept in sorted(folder.glob("*.html"))]
        text = page(path, source, printed, figures, absent, written)
        (folder / f"{path.stem}.md").write_text(text, encoding="utf-8")
        cards += card(path.stem, title_and_text(source)[0], figures)
        names.append(path.stem)
    for stem, title in notebooks.items():
        cards += card(stem, title, [])
        names.append(stem)
    lines = ["# Gallery", "", "Whole programs, small enough to read. This site's build runs them all.", ""]
    lines += ["::::{container} gallery", *cards, "::::", "", "```{toctree}", ":hidden:", "", *names, "```"]
    (folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def moved(path, folder):
    return path.rename(folder / path.name)


def figure_source(path):
    drawing = drawing_of(path)
    return drawing.read_text(encoding="utf-8") if drawing else ""


def card(stem, title, figures):
    picture = [f"[![{title}]({figures[0].name})]({stem}.md)", ""] if figures else []
    return [":::{container} card", *picture, f"[{title}]({stem}.md)", ":::"]


def page(path, source, printed, figures, absent, written=()):
    title, text = title_and_text(source)
    lines = [f"# {title}", "", text, ""]
    for figure in figures:
        lines += [f"![{title}]({figure.name})", ""]
    if absent:
        lines += [f"It needs {', '.join(absent)}, which this build did not have, so its results are not shown.", ""]
    lines += [f"From `{path.relative_to(ROOT)}`:", "", *code_block(source)]
    if printed:
        lines += ["It prints", "", "```text", printed.strip("\n"), "```", ""]
    lines += [f'It writes <a href="../../{name}">this page</a>.\n' for name in written]
    drawing = drawing_of(path)
    if drawing:
        lines += [f"The figure is drawn by `{drawing.relative_to(ROOT)}`:", "", *code_block(figure_source(path))]
    return "\n".join(lines)


def code_block(source):
    """The lines of a program behind its docstring."""
    tree = ast.parse(source)
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno :]).strip("\n")
    return ["```python", code, "```", ""]
