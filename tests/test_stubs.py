"""What type checkers and editors see of weft: frontend/__init__.pyi, written by docs/stubs.py."""

import importlib.util
import re
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


@pytest.mark.parametrize("path", MODULES.MODULES)
def test_the_stubs_of_modules_are_up_to_date(path):
    written = (ROOT / "frontend" / f"{MODULES.MODULES[path]}.pyi").read_text(encoding="utf-8")
    assert written == MODULES.text(path), "run python docs/stubs.py"


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
