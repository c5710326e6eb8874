"""python -m weft info and cache, and what is said of extras that are not installed."""

import os
import subprocess
import sys

import pytest

import weft
from weft import info


def output_of(*arguments, code=0, **environment):
    command = [sys.executable, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment or None)
    assert finished.returncode == code, finished.stderr
    return finished.stdout


def test_info_says_what_it_runs_on():
    lines = dict(line.split(maxsplit=1) for line in info.info().splitlines())
    assert lines["weft"].startswith(weft.weft_version) and lines["threads"].startswith(str(weft.get_num_threads()))
    assert {"python", "numpy", "llvmlite", "target", "replay", "cache", "weft[sklearn]"} <= lines.keys()


def test_the_cache_is_listed_and_cleared(tmp_path):
    environment = {"WEFT_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""}
    assert "0 file(s), 0.0 MiB of 256.0 MiB" in output_of("-m", "weft", "cache", **environment)
    program = "import weft\nf = weft.compile(lambda x: (x.exp() * x).sum())\nf(weft.ones(3))"
    output_of("-c", program, **environment)
    (tmp_path / "cache" / "torn.weft").write_bytes(b"half")
    listed = output_of("-m", "weft", "cache", "list", **environment)
    assert "program of 1 kernel(s): " in listed and "exp" in listed and "4 bytes  not whole" in listed
    n_files = len(listed.splitlines()) - 1
    assert f"removed {n_files} file(s) from {tmp_path}" in output_of("-m", "weft", "cache", "clear", **environment)
    assert "none: WEFT_CACHE=0" in output_of("-m", "weft", "cache", **environment, WEFT_CACHE="0")


def test_of_a_large_cache_the_files_used_last_are_shown(tmp_path):
    environment = {"WEFT_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""}
    output_of("-c", "import weft; weft.compile(lambda x: x.exp())(weft.ones(3))", **environment)
    for k in range(25):
        (tmp_path / "cache" / f"torn{k}.weft").write_bytes(b"half")
    listed = output_of("-m", "weft", "cache", "list", **environment).splitlines()
    shown = output_of("-m", "weft", "cache", **environment).splitlines()
    assert len(listed) > 25 and len(shown) == 22
    assert shown[-1] == f"and {len(listed) - 21} more: python -m weft cache list"


def test_a_command_that_there_is_not():
    printed = output_of("-m", "weft", "cache", "empty", code=2)
    assert "no command 'cache empty'; there are info, cache, cache list, cache clear" in printed


def test_help_with_a_command():
    assert output_of("-m", "weft", "cache", "--help") == output_of("-m", "weft", "--help") != ""


def test_a_program_that_there_is_not(tmp_path):
    command = [sys.executable, "-m", "weft", "trian.py"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert finished.returncode == 2 and finished.stdout == ""
    assert finished.stderr == "weft: no program 'trian.py'; there are the commands info and cache, and -m for modules\n"


@pytest.mark.parametrize(("extra", "module"), [(e, m) for e, needed in info.EXTRAS.items() for m, _ in needed])
def test_an_extra_that_is_not_there_is_named(monkeypatch, extra, module):
    found = info.find_spec
    monkeypatch.setattr(info, "find_spec", lambda name: None if name == module else found(name))
    (line,) = [line for line in info.info().splitlines() if line.startswith(f"weft[{extra}]")]
    assert "lacks " in line and line.endswith(f"pip install 'weft[{extra}]'")


def test_drawings_say_what_to_install():
    program = (
        "import sys\nsys.modules['grandalf'] = None\n"
        "try:\n    import weft.visualize\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    assert "weft.visualize needs grandalf" in (said := output_of("-c", program)) and "pip install 'weft[demo]'" in said


def test_who_reads_may_stop_reading():
    """As in `python -m weft cache | head`: no traceback follows."""
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run([sys.executable, "-m", "weft", "info"], stdout=write, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write)
    assert ended.returncode == 0 and ended.stderr == ""
