"""Notebooks of the gallery: run by the build, and shown as a page with what their cells show."""

from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).parent.parent


def write_pages(folder):
    """{name of the page: title} of the notebooks of examples/."""
    folder.mkdir(parents=True, exist_ok=True)
    titles = {}
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        notebook = run(path, folder)
        (folder / f"{path.stem}.md").write_text(page(notebook, path.relative_to(ROOT)), encoding="utf-8")
        titles[path.stem] = title_of(notebook)
    return titles


def run(path, folder):
    """The notebook with its outputs. A cell that fails fails the build."""
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def title_of(notebook):
    return notebook.cells[0].source.partition("\n")[0].lstrip("# ")


def page(notebook, name):
    """Markdown: cells of text as they are, code in blocks, and below them what they show."""
    title, _, text = notebook.cells[0].source.partition("\n")
    lines = [title, text, "", f"From `{name}`:", ""]
    for cell in notebook.cells[1:]:
        lines += [cell.source, ""] if cell.cell_type == "markdown" else ["```python", cell.source, "```", ""]
        for output in cell.get("outputs", ()):
            lines += shown(output)
    return "\n".join(lines)


def shown(output):
    """As Jupyter shows it: HTML where there is some, else text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" in data:
        return ["````{raw} html", f'<div class="shown">{data["text/html"]}</div>', "````", ""]
    return ["```text", data["text/plain"].rstrip("\n"), "```", ""]
