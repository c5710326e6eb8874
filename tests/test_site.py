"""The documentation site, without building it: pages are linked, links lead somewhere, and the pages' Python runs.

`make docs` builds it, and fails on a warning or on a program of the gallery that fails.
"""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from weft import public, reference

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
WITH_CODE = ["porting", "how_compile_works", "performance", "errors", "index"]
# Run by test_docs.py and test_demo.py, in a process of their own.
RUN_ELSEWHERE = {"adding_an_op", "differences", "from_python_to_c", "gpu", "native", "quickstart"}


def module_of(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_table_of_contents():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
    listed = {line for block in blocks for line in block.split("\n") if line and not line.startswith(":")}
    assert listed == {page.stem for page in PAGES} - {"index"} | {
        "generated/gallery/index",
        "generated/reference/index",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:\s]+)\)", text):
        assert target.startswith("generated/") or (DOCS / target).exists(), target


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_python_of_a_page_runs(page, tmp_path, without_torch):
    """As a file, since compiled functions name the lines of the user's code."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    program = tmp_path / f"{page}.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), encoding="utf-8")
    exec(compile(program.read_text(encoding="utf-8"), str(program), "exec"), {"__name__": page})


def test_no_page_has_python_that_no_test_runs():
    """Here, in the files named above, or in one that has the page's name."""
    named = {page.stem for page in PAGES if (ROOT / "tests" / f"test_{page.stem}.py").exists()}
    with_python = {page.stem for page in PAGES if "```python" in page.read_text(encoding="utf-8")}
    assert with_python >= {*WITH_CODE, *RUN_ELSEWHERE}
    assert with_python - {*WITH_CODE, *RUN_ELSEWHERE} <= named


# --- the reference ----------------------------------------------------------------------------------------------------
def test_pages_of_the_reference_have_every_name_once():
    pages = module_of("site_reference")
    text = pages.page("linalg")
    directives = re.findall(r"^:::\{py:\w+\} weft\.linalg\.(\w+)", text, re.MULTILINE)
    assert sorted(directives) == sorted(n for entry in reference.entries_at("linalg") for n in entry.names)
    assert set(directives) == set(public.public_names("linalg"))
    assert ":::{py:function} weft.linalg.inv(" in text and "```pycon\n>>> weft.linalg.inv(" in text


@pytest.mark.parametrize("path", module_of("site_reference").WHOLE)
def test_every_name_of_a_whole_module_is_documented(path):
    if path == "sklearn":
        pytest.importorskip("sklearn")
    home = importlib.import_module(f"weft.{path}")
    found = dict(module_of("site_reference").documented(home, path))
    assert found and [name for name, value in found.items() if not inspect.getdoc(value)] == []


def test_text_of_docstrings_means_nothing_to_markdown():
    escaped = module_of("site_reference").escaped
    assert escaped("x * y_ of `a*b`, |x| < 2") == r"x \* y\_ of `a*b`, \|x\| \< 2"


# --- the gallery ------------------------------------------------------------------------------------------------------
def test_programs_of_the_gallery_have_a_title_and_compile():
    gallery = module_of("site_gallery")
    programs = gallery.programs()
    assert len(programs) > 6
    for path in programs:
        source = path.read_text(encoding="utf-8")
        title, _ = gallery.title_and_text(source)
        assert title and "\n" not in title, path
        compile(source, str(path), "exec")


def test_the_programs_that_were_promised_have_figures():
    gallery = module_of("site_gallery")
    drawn = {path.stem for path in gallery.programs() if path.name.startswith("plot_") or gallery.drawing_of(path)}
    assert drawn >= {"plot_char_gpt", "pinn_heat", "plot_hmc", "sampling_emcee", "pipeline_sklearn", "plot_hessian_fit"}
    assert drawn >= {"fit_iminuit", "greeks_monte_carlo", "plot_vae", "plot_small_cnn", "weights_safetensors", "digits"}


def test_every_drawing_is_of_an_example():
    for drawing in sorted((DOCS / "gallery").glob("draw_*.py")):
        example = ROOT / "examples" / drawing.name.removeprefix("draw_")
        source = drawing.read_text(encoding="utf-8")
        assert example.exists() and f"from {example.stem} import " in source
        assert "plt.subplots" in source or "plt.figure" in source


def test_a_figure_has_a_title_and_names_its_axes():
    for path in sorted((DOCS / "gallery").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        assert re.search(r"title", source) and re.search(r"x_?label|axis\(", source), path


def test_of_a_bar_of_progress_the_end_is_shown():
    assert module_of("site_gallery").without_bars("a\n 0%\r 50%\r100%\nb") == "a\n100%\nb"


def test_what_examples_import_of_each_other_is_not_missing():
    assert module_of("site_gallery").missing_libraries("import digits_page\nfrom pinn_heat import u\n") == []


def test_a_program_is_shown_with_what_it_prints(tmp_path, monkeypatch):
    gallery = module_of("site_gallery")
    source = '"""A sum\n\nOf two."""\n\nprint(1 + 1)\n'
    text = gallery.page(ROOT / "examples" / "sum.py", source, "2\n", [tmp_path / "sum-1.svg"], [])
    assert text.startswith("# A sum\n\nOf two.\n") and "![A sum](sum-1.svg)" in text and "```text\n2\n```" in text
    assert "print(1 + 1)" in text
    absent = gallery.page(ROOT / "examples" / "sum.py", source, "", [], ["iminuit"])
    assert "It needs iminuit" in absent
    assert gallery.missing_libraries("import weft\nimport no_such_library.part\n") == ["no_such_library"]


def test_a_notebook_is_shown_as_jupyter_shows_it():
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    notebooks = module_of("site_notebooks")
    new, outputs = nbformat.v4, []
    for data in ({"text/html": "<b>2</b>", "text/plain": "2"}, {"text/plain": "3"}):
        outputs.append(new.new_output("execute_result", data))
    outputs.append(new.new_output("stream", text="4\n"))
    cells = [new.new_markdown_cell("# A sum\nOf two."), new.new_code_cell("1 + 1", outputs=outputs)]
    notebook = new.new_notebook(cells=cells)
    text = notebooks.page(notebook, "examples/sum.ipynb")
    assert notebooks.title_of(notebook) == "A sum" and text.startswith("# A sum\nOf two.\n")
    assert "```python\n1 + 1\n```" in text and '<div class="shown"><b>2</b></div>' in text
    assert "```text\n3\n```" in text and "```text\n4\n```" in text


def test_a_program_that_fails_fails_the_build(tmp_path):
    gallery = module_of("site_gallery")
    (tmp_path / "wrong.py").write_text('"""Wrong"""\n\nraise ValueError("too bad")\n', encoding="utf-8")
    with pytest.raises(gallery.Failed, match=r"(?s)wrong.py: the program fails.*too bad"):
        gallery.run(tmp_path / "wrong.py", tmp_path)
