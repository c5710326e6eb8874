"""The examples, the demo with its page, and every block of Python in README.md and docs/quickstart.md run."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def run(*arguments, cwd=None, cache=None):
    environment = dict(os.environ)
    if cache is not None:
        environment["WEFT_CACHE_DIR"] = str(cache)
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


def output_of(example):
    finished = run(EXAMPLES / example)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """(what a short demo prints, its page)."""
    folder = tmp_path_factory.mktemp("demo")
    finished = run(EXAMPLES / "digits.py", "--epochs", 4, "--output", folder / "page.html", cache=folder / "cache")
    assert finished.returncode == 0, finished.stderr
    return finished.stdout, (folder / "page.html").read_text(encoding="utf-8")


@pytest.fixture
def digits(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    spec = importlib.util.spec_from_file_location("digits", EXAMPLES / "digits.py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    monkeypatch.setitem(sys.modules, "digits", module)
    spec.loader.exec_module(module)
    return module


# --- the demo --------------------------------------------------------------------------------------------------------
def test_the_demo_learns_and_says_so(demo):
    printed, _ = demo
    accuracy = float(re.search(r"test accuracy +([\d.]+) %", printed).group(1))
    assert accuracy > 85
    assert re.search(r"steps per second +eager [\d,]+, compiled [\d,]+ \(\d+\.\d times\)", printed)
    assert re.search(r"compilation +\d+ ms, compiled now", printed)
    assert "loss curves        equal bit for bit, 88 steps" in printed


def test_the_bar_shows_the_rate_of_the_last_epoch(demo):
    printed, _ = demo
    for training in ("eager", "compiled"):
        shown = re.findall(rf"{training} +(\d+)% .*? ([\d,]+) steps/s, loss [\d.]+", printed.replace("\r", "\n"))
        assert len({rate for _, rate in shown}) > 1 and {"25", "50", "75", "100"} <= {share for share, _ in shown}


def test_the_page_asks_for_nothing_from_outside(demo):
    _, page = demo
    addresses = re.findall(r"(?:src|href)=[\"']([^\"']*)", page)
    assert addresses and all(a.startswith("data:") for a in addresses)
    assert "url(" not in page and "@import" not in page and "<script" not in page


def test_the_page_shows_curves_graphs_kernels_and_images(demo):
    _, page = demo
    for words in ("cross-entropy of the batch", "0.weight.grad", "AddmmBackward0", "written in place", "GFLOP/s"):
        assert words in page
    assert page.count("<img ") == 24
    assert page.count('class="chip"') == int(re.search(r"<b>(\d+)</b><span>kernels in the program", page).group(1))


def test_the_page_shows_its_code_and_what_it_ran_on(demo, digits):
    _, page = demo
    assert "def step(x: Tensor, y: Tensor) -&gt; Tensor:" in page and "optimizer.zero_grad()" in page
    assert f"{weft.get_num_threads()} thread(s)" in page and f"weft {weft.weft_version}, Python" in page


def test_other_libraries_where_they_are_installed(demo, digits):
    printed, page = demo
    for library, name in (("torch", "PyTorch"), ("jax", "JAX")):
        is_there = importlib.util.find_spec(library) is not None
        assert (re.search(rf"^ +{name} [\d.]+ \(\w+\) [\d,]+$", printed, re.MULTILINE) is not None) == is_there
        assert (f"training steps per second, {name}" in page) == is_there
        assert (re.search(rf'class="headline".*times as many as {name} [\d.]+ \(', page) is not None) == is_there


def test_the_page_has_a_curve_for_a_phone(demo):
    _, page = demo
    assert page.count('aria-label="cross-entropy of the batch"') == 2
    assert "max-width: 600px" in page and '<div class="scrolls"><table>' in page


def test_every_element_of_the_page_is_closed(demo):
    _, page = demo
    assert unclosed(page) == []


class _Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "!doctype"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def unclosed(page):
    parser = _Elements()
    parser.feed(page)
    return parser.open


def test_one_different_bit_is_a_failure(digits, monkeypatch, tmp_path, capsys):
    assert digits.same_bits([0.5, 0.25], [0.5, 0.25])
    assert not digits.same_bits([0.5], [0.5 + 2.0**-53])
    assert not digits.same_bits([0.0], [-0.0])
    monkeypatch.setattr(digits, "same_bits", lambda first, second: False)
    monkeypatch.setattr(sys, "argv", ["digits.py", "--epochs", "1", "--output", str(tmp_path / "page.html")])
    assert digits.main() == 1
    assert "DIFFERENT" in capsys.readouterr().out
    assert "which they must not" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_demo_says_where_its_code_came_from(digits):
    class Program:
        def __init__(self, source):
            self.meta = {"source": source}

    new, old = Program("compiled"), Program("disk")
    assert digits.where_from([new, new]) == "compiled now"
    assert digits.where_from([old, old]) == "loaded from the disk cache"
    assert digits.where_from([new, old]) == "1 of 2 programs from the disk cache"


# --- examples --------------------------------------------------------------------------------------------------------
def test_autograd_basics():
    printed = output_of("autograd_basics.py")
    assert "SumBackward0" in printed and "AccumulateGrad" in printed
    assert "6 x      tensor([ 6., 12., 18.])" in printed


def test_compiled_step():
    printed = output_of("compiled_step.py")
    assert "the same as eager: True" in printed
    assert "nothing ran outside the programs" in printed


def test_logistic_regression_scipy():
    pytest.importorskip("scipy")
    printed = output_of("logistic_regression_scipy.py")
    found = [float(x) for x in re.search(r"found +\[(.*)\]", printed).group(1).split()]
    assert found == pytest.approx([1.5, -2.0, 0.7, 0.0], abs=0.25)


# --- documents -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("document", ["README.md", "docs/quickstart.md"])
def test_the_python_of_a_document_runs(document, tmp_path):
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 1
    (tmp_path / "document.py").write_text("\n".join(blocks), encoding="utf-8")
    finished = run("document.py", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr


def test_the_commands_of_the_readme_are_targets_of_the_makefile():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"make (\w+) ", readme))
    assert {"demo", "test", "lint", "bench"} <= commands
    assert commands <= set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
