"""What type checkers and editors see of weft: frontend/__init__.pyi, written by docs/stubs.py."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from weft import public

ROOT = Path(__file__).parent.parent


def script(name, folder="docs", suffix=".py"):
    path = ROOT / folder / f"{name}{suffix}"
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.modules["stubs_types"] = script("stubs_types")  # the scripts import it from their own folder


def test_the_stubs_are_up_to_date():
    written = (ROOT / "frontend" / "__init__.pyi").read_text(encoding="utf-8")
    assert written == script("stubs").text(), "run python docs/stubs.py"


MODULES = script("stubs_of_modules")


MADE = "import json, stubs_of_modules as made; print(json.dumps({path: made.text(path) for path in made.MODULES}))"


@pytest.fixture(scope="module")
def texts():
    """Of all modules, made in a process of its own: what tests import becomes an attribute of its package."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "docs")}
    done = subprocess.run([sys.executable, "-c", MADE], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", MODULES.MODULES)
def test_the_stubs_of_modules_are_up_to_date(path, texts):
    written = (ROOT / "frontend" / f"{MODULES.MODULES[path]}.pyi").read_text(encoding="utf-8")
    assert written == texts[path], "run python docs/stubs.py"


def test_every_public_name_of_weft_is_in_its_stub():
    written = (ROOT / "frontend" / "__init__.pyi").read_text(encoding="utf-8")
    missing = [name for name in public.public_names("") if not re.search(rf"\b{name}\b", written)]
    assert missing == []


def test_mypy_accepts_the_stubs_and_refuses_what_is_marked_as_wrong(tmp_path):
    """tests/typing says what checkers find out. `make lint` shows it to pyright too, and the examples to both."""
    types = script("types", ".ci", "")
    types.lay_out(tmp_path)
    assert "# type: ignore" in (tmp_path / "typing_tests" / "tensors.py").read_text(encoding="utf-8")
    assert types.mypy(tmp_path, "weft", "typing_tests") is None


def test_the_stubs_of_paths_show_the_names_of_their_packages():
    """`from weft.distributions.normal import Normal` is known to checkers, and no other stub has been left there."""
    made = {f"{path}.pyi" for path in [*MODULES.MODULES.values(), "__init__"]}
    made |= {f"{path.replace('.', '/')}.pyi" for path in MODULES.SAME_AS_PACKAGE}
    assert {file.relative_to(ROOT / "frontend").as_posix() for file in (ROOT / "frontend").rglob("*.pyi")} == made
    for path in MODULES.SAME_AS_PACKAGE:
        package, _, name = path.rpartition(".")
        assert (ROOT / "frontend" / f"{path.replace('.', '/')}.pyi").read_text(encoding="utf-8").endswith("import *\n")
        assert public.resolve(path) is not None and package in MODULES.MODULES
