"""What type checkers and editors see of weft: frontend/__init__.pyi, written by docs/stubs.py."""

import importlib
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


def test_every_folder_is_a_package_of_the_wheel():
    """setuptools prints a page for each that is not, stubs or not."""
    listed = re.findall(r'^    "(weft[.\w]*)",$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    found = {"weft.manual"}  # which has texts
    for top, package in (("frontend", "weft"), ("compiler", "weft.compiler"), ("runtime", "weft.runtime")):
        files = [path for suffix in ("py", "pyi") for path in (ROOT / top).rglob(f"*.{suffix}")]
        found |= {".".join((package, *path.relative_to(ROOT / top).parent.parts)) for path in files}
    assert sorted(listed) == sorted(found)


MODULES = sys.modules["stubs_of_modules"] = script("stubs_of_modules")
PATHS = script("stubs_of_paths")


MADE = """
import json, stubs_of_modules as modules, stubs_of_paths as paths
made = {file: modules.text(path) for path, file in modules.MODULES.items()}
made.update((paths.file_of(path), paths.text(path)) for path in paths.PATHS_OF_STUBS)
print(json.dumps(made))
"""
FILES = [*MODULES.MODULES.values(), *map(PATHS.file_of, PATHS.PATHS_OF_STUBS)]


@pytest.fixture(scope="module")
def texts():
    """Of all modules, made in a process of its own: what tests import becomes an attribute of its package."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "docs")}
    done = subprocess.run([sys.executable, "-c", MADE], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("file", FILES)
def test_the_stubs_of_modules_are_up_to_date(file, texts):
    written = (ROOT / "frontend" / f"{file}.pyi").read_text(encoding="utf-8")
    assert written == texts[file], "run python docs/stubs.py"


def test_every_public_name_of_weft_is_in_its_stub():
    written = (ROOT / "frontend" / "__init__.pyi").read_text(encoding="utf-8")
    missing = [name for name in public.public_names("") if not re.search(rf"\b{name}\b", written)]
    assert missing == []


def test_mypy_accepts_the_stubs_and_refuses_what_is_marked_as_wrong(tmp_path):
    """tests/typing says what checkers find out. `make lint` shows it to pyright too, and the examples to both."""
    types = script("types", ".ci", "")
    types.lay_out(tmp_path)
    assert "# type: ignore" in (tmp_path / "typing_tests" / "tensors.py").read_text(encoding="utf-8")
    (tmp_path / "typing_tests" / "every_path.py").write_text("\n".join(imports_of_paths()), encoding="utf-8")
    assert types.mypy(tmp_path, "weft", "typing_tests") is None


def imports_of_paths():
    """Every public name of each of PyTorch's import paths, and the lines that test_pytorch_paths.py runs."""
    for k, path in enumerate([*MODULES.MODULES, *PATHS.PATHS_OF_STUBS]):
        yield f"import weft.{path}"
        if path.startswith("optim.") and path in PATHS.PATHS_OF_STUBS:
            names = public.public_names("optim")  # which the stub of the optimizer's own file shows
        else:
            home = importlib.import_module(f"weft.{path}")
            names = home.__all__ if path in MODULES.APART else public.public_names(path)
        yield from (f"from weft.{path} import {name} as name_{k}_{name}" for name in names)
    source = (ROOT / "tests" / "test_pytorch_paths.py").read_text(encoding="utf-8")
    lines = source.partition('IMPORTS = """')[2].partition('"""')[0].strip().splitlines()
    assert len(lines) > 30
    # In functions, where one name may come from several places; lines with stars cannot stand there.
    yield from (f"def line_{k}() -> None:\n    {line}" for k, line in enumerate(lines) if not line.endswith("*"))


def test_no_other_stub_has_been_left():
    made = {f"{file}.pyi" for file in ["__init__", *FILES]}
    assert {file.relative_to(ROOT / "frontend").as_posix() for file in (ROOT / "frontend").rglob("*.pyi")} == made


def test_folders_of_stubs_are_no_packages():
    """Python takes a folder without __init__.py for a package: what is in it is what PyTorch has there all the same."""
    folders = {file.parent for file in (ROOT / "frontend").rglob("*.pyi") if not (file.parent / "__init__.py").exists()}
    assert len(folders) > 10
    for folder in folders:
        path = folder.relative_to(ROOT / "frontend").as_posix().replace("/", ".")
        assert importlib.import_module(f"weft.{path}").__spec__.origin is not None or path in PATHS.PATHS
