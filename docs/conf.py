"""How Sphinx builds the documentation site: `make docs` writes it to build/docs.

Pages are the Markdown files beside this one. Before they are read, generated/ is written: the reference from
docstrings (site_reference.py), the gallery by running its programs and notebooks (site_gallery.py, site_notebooks.py),
and the drawings of how_compile_works.md from the code on that page.
"""

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import site_gallery  # noqa: E402
import site_notebooks  # noqa: E402
import site_reference  # noqa: E402

import weft  # noqa: E402

project, author, copyright = "weft", "the weft authors", "the weft authors"
version = release = str(weft.weft_version)
extensions = ["myst_parser"]
exclude_patterns = ["gallery"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
html_theme, html_title = "furo", f"weft {release}"
html_show_sphinx = False
html_static_path, html_css_files = ["static"], ["site.css"]
# Pages that programs of the gallery write. Sphinx wants the folder before anything is generated.
html_extra_path = ["generated/pages"]
(HERE / html_extra_path[0]).mkdir(parents=True, exist_ok=True)
# Signatures of a hundred characters are read better one parameter a line.
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"


def write_generated(app):
    folder = HERE / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    site_reference.write_pages(folder / "reference")
    write_pictures(folder / "pictures")
    write_records(folder / "records")
    (HERE / html_extra_path[0]).mkdir()
    notebooks = site_notebooks.write_pages(folder / "gallery")
    site_gallery.write_pages(folder / "gallery", HERE / html_extra_path[0], notebooks)


def write_pictures(folder):
    """The stages of the step that how_compile_works.md shows, drawn from its first block."""
    from weft import visualize

    folder.mkdir(parents=True)
    block = re.findall(r"```python\n(.*?)```", (HERE / "how_compile_works.md").read_text(encoding="utf-8"), re.DOTALL)[
        0
    ]
    names = {"__name__": "page"}
    exec(block, names)
    for stage, picture in visualize.draw_function(names["step"], dict(names["model"].named_parameters())).items():
        (folder / f"{stage}.svg").write_text(picture, encoding="utf-8")


RECORDS = "../benchmarks/results/"


def write_records(folder):
    """What the benchmarks recorded, which stands outside of docs/, as pages without a place in the contents, and the
    pictures of it."""
    folder.mkdir(parents=True)
    shown = rf"{re.escape(RECORDS)}([\w.-]+\.(?:md|svg))"
    for name in sorted(set(re.findall(shown, (HERE / "benchmarks.md").read_text(encoding="utf-8")))):
        text = (HERE / RECORDS / name).read_text(encoding="utf-8")
        head = "---\norphan: true\n---\n\n" if name.endswith(".md") else ""
        (folder / name).write_text(head + text, encoding="utf-8")


def link_records(app, name, source):
    """Links to the records lead to those pages."""
    source[0] = source[0].replace(RECORDS, "generated/records/")


def setup(app):
    app.connect("builder-inited", write_generated)
    app.connect("source-read", link_records)
    return {"parallel_read_safe": True}
