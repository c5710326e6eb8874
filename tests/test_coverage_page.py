"""docs/coverage.md says what weft says of itself, and what was counted of PyTorch's samples."""

import importlib.util
import json
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
# Ops that PyTorch's names call otherwise, or that have a form as a method in place alone.
METHODS = set(str.split("cauchy exponential fft.hfft2 fft.hfftn fft.ihfft2 fft.ihfftn geometric log_normal uniform"))
COUNTED = json.loads((ROOT / "docs" / "coverage_samples.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("coverage_page", ROOT / "docs" / "coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(text):
    """{(heading, name): the other cells} of all tables but the first."""
    rows, heading = {}, ""
    for line in text.splitlines():
        heading = line if line.startswith("## ") else heading
        if heading and line.startswith("| `"):
            name, *cells = [cell.strip() for cell in line.split("|")[1:-1]]
            rows[heading, name.strip("`")] = cells
    return rows


def test_what_the_page_calls_there_is_there():
    """More may be: whoever adds a name need not write the page."""
    rows = {name: cells for (heading, name), cells in rows_of(PAGE).items() if "functions on tensors" in heading}
    forms = ["weft.{}", "weft.Tensor.{}", "weft.Tensor.{}_", "weft.{}"]
    assert len(rows) > 300
    for name, marks in rows.items():
        for form, mark in zip(forms, marks):
            if mark == "yes":
                eval(form.format(name), {"weft": weft})


def test_the_page_says_of_samples_what_was_counted(script):
    on_page, now = rows_of(PAGE), rows_of(script.page())
    width = len(script.SAMPLED)
    assert len(on_page) > 500
    assert {key: cells[-width:] for key, cells in on_page.items()} == {key: now[key][-width:] for key in on_page}
    for part in ("## Samples that do not agree", "## What runs eagerly in a compiled call"):
        assert PAGE.partition(part)[2].partition("\n## ")[0].strip() == (
            script.page().partition(part)[2].partition("\n## ")[0].strip()
        )


def test_rows_are_the_counts_of_the_file(script):
    """By hand for one op of each kind: what the columns are made of."""
    cells = dict(zip(script.SAMPLED, script.of_samples("linalg", "svdvals")))
    counted = COUNTED["linalg.svdvals"]
    assert cells["forward"] == "{}/{}".format(*counted["forward"]) and cells["f_"] == "-"
    assert cells["as"] == "eager" and counted["outside"][0] == counted["compiled"][1]
    assert dict(zip(script.SAMPLED, script.of_samples("", "exp")))["as"] == "program"
    assert "linalg.svdvals" in PAGE.partition("## What runs")[2]
    assert script.of_samples("", "absolute") == script.of_samples("", "abs")
    assert script.of_samples("", "celu") == script.of_samples("nn.functional", "celu")
    assert set(script.of_samples("", "is_tensor")) == {"-"}


def test_every_op_of_the_file_is_on_the_page(script):
    """Operators of Python, and forms that are methods alone, are not functions of a module."""
    names = {name for _, name in rows_of(PAGE)}
    missing = {op for op in COUNTED if op.rpartition(".")[2] not in names}
    assert {op for op in missing if not op.startswith("__")} <= METHODS


@pytest.mark.oracle
@pytest.mark.parametrize("name", sorted(COUNTED)[::101])
def test_counts_are_those_of_a_new_run(name):
    pytest.importorskip("torch")
    import warnings

    from opinfo_record import counted

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = counted(name)
    assert {**found, "why": COUNTED[name]["why"]} == COUNTED[name]
