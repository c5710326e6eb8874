"""The documents say what is so: their Python runs, and the files they name exist.

README.md and docs/quickstart.md are run by test_demo.py.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    "docs/architecture.md",
    "docs/differences.md",
    "docs/adding_an_op.md",
    "docs/native.md",
    "docs/from_python_to_c.md",
    "docs/gpu.md",
]
PACKAGES = ("frontend", "runtime", "compiler")


def text_of(document):
    return (ROOT / document).read_text(encoding="utf-8")


def run_blocks(document, tmp_path):
    """What the Python of a document prints, all blocks in order in one process with a cache of its own."""
    blocks = re.findall(r"```python\n(.*?)```", text_of(document), re.DOTALL)
    assert blocks
    (tmp_path / "document.py").write_text("\n".join(blocks), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, "-W", "error", "document.py"],
        cwd=tmp_path,
        env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_worked_example_runs_and_prints_what_it_says(tmp_path):
    printed = run_blocks("docs/adding_an_op.md", tmp_path)
    (shown,) = re.findall(r"```text\n(.*?)```", text_of("docs/adding_an_op.md"), re.DOTALL)
    assert without_times(printed) == without_times(shown)


def without_times(text):
    """Nor what is only said where no cache has the kernels."""
    text = re.sub(r"compiled in this process, .*\n", "", text)
    return re.sub(r"in [\d.e+]+ ms", "in some ms", text)


def test_the_example_of_native_functions_runs(tmp_path):
    run_blocks("docs/native.md", tmp_path)


def test_functions_are_exported_as_the_document_says(tmp_path):
    header = run_blocks("docs/from_python_to_c.md", tmp_path)
    assert "int nll_value_and_grad(const double *beta, double *value, double *grad_beta, void *scratch);" in header
    assert {path.suffix for path in tmp_path.glob("nll.*")} == {".o", ".h", ".json"}
    blocks = [block.split("```")[0] for block in text_of("docs/from_python_to_c.md").split("```c\n")]
    for name, block in zip(("energy", "step", "batches"), blocks[3:]):
        text = (tmp_path / f"{name}.h").read_text()
        for line in block.splitlines():
            assert line.strip() == "..." or line in text


def test_kernels_are_written_and_refused_as_the_document_says(tmp_path):
    printed = run_blocks("docs/gpu.md", tmp_path)
    assert {path.suffix for path in tmp_path.glob("energy.*")} == {".ptx", ".json"}
    assert "cholesky_rows is computed by a routine" in printed and "document.py:" in printed
    assert not list(tmp_path.glob("factor.*"))


def test_every_difference_is_so(tmp_path):
    run_blocks("docs/differences.md", tmp_path)


# --- files ------------------------------------------------------------------------------------------------------------
def code_map():
    """{folder: names of the files in its table} of the code map."""
    part = text_of("docs/architecture.md").partition("\n## Code map\n")[2].partition("\n## ")[0]
    found = {}
    for heading, body in re.findall(r"^### `([\w/]+)/`.*?\n(.*?)(?=^### |\Z)", part, re.DOTALL | re.MULTILINE):
        found[heading] = re.findall(r"^\| `([\w.]+)` \|", body, re.MULTILINE)
    return found


def test_the_code_map_names_every_file_once():
    expected = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            expected.setdefault(str(path.parent.relative_to(ROOT)), []).append(path.name)
    named = code_map()
    assert {folder: sorted(names) for folder, names in named.items()} == {f: sorted(n) for f, n in expected.items()}


def test_every_word_of_the_glossary_is_used():
    part = text_of("docs/architecture.md").partition("\n## Words\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| .+ \|$", part, re.MULTILINE)[1:]
    assert len(rows) > 30
    sources = "\n".join(p.read_text(encoding="utf-8") for folder in PACKAGES for p in (ROOT / folder).rglob("*.py"))
    for word in ", ".join(rows).replace("`", "").split(", "):
        assert word.removeprefix("to ").removeprefix("*") in sources.lower(), word


def test_every_line_of_the_code_map_says_something():
    for line in re.findall(r"^\| `[\w.]+\.py` \|.*$", text_of("docs/architecture.md"), re.MULTILINE):
        assert len(line.split("|")[2].split()) > 1, line


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_files_a_document_names_exist(document):
    """Names with a folder exactly; bare names somewhere in the three packages or the tests."""
    bare = {p.name for folder in (*PACKAGES, "tests") for p in (ROOT / folder).rglob("*.py")}
    for name in re.findall(r"`([\w/]+\.(?:py|md))`", text_of(document)):
        assert (ROOT / name).exists() if "/" in name else name in bare, name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_functions_a_document_names_exist(document):
    """`file.py: name` names a function, class or constant of that file."""
    for file, name in re.findall(r"`([\w/]+\.py): (\w+)`", text_of(document)):
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(def|class) {name}\b|^{name}\b.* = ", source, re.MULTILINE), f"{file}: {name}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text_of(document), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (ROOT / document).parent.joinpath(target).exists(), target
