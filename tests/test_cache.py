"""The disk cache: what was put is found by the next process, and no file, folder or neighbour can break a program."""

import os
import struct
import subprocess
import sys
import warnings

import pytest

from weft.runtime.code import cache as cache_module
from weft.runtime.code import jit
from weft.runtime.code.cache import Cache, Entry, default_cache, default_directory, fingerprint, pack, unpack

PAYLOAD = bytes(range(256)) * 20


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "kernels")


@pytest.fixture
def fresh_default(monkeypatch, tmp_path):
    """The default cache read anew from an environment with nothing set, and forgotten afterwards."""
    for name in ("WEFT_CACHE", "WEFT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    default_cache.cache_clear()
    yield tmp_path
    default_cache.cache_clear()


def files(cache):
    return sorted(os.listdir(cache.directory))


def only_file(cache):
    (name,) = files(cache)
    return os.path.join(cache.directory, name)


def run_python(code, **environment):
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **environment}, stdout=-1, text=True)


# --- getting what was put ---------------------------------------------------------------------------------------------
def test_what_was_put_is_found_by_another_cache(cache):
    assert cache.get("key") is None
    cache.put("key", PAYLOAD)
    assert cache.get("key") == Cache(cache.directory).get("key") == Entry(PAYLOAD, "disk")
    assert cache.get("another key") is None
    assert cache.problem is None


@pytest.mark.parametrize("payload", [b"", b"x", bytes(1_000_000), memoryview(b"view"), bytearray(b"array")])
def test_any_bytes_and_any_key(cache, payload):
    key = "any / text \0, ünïcode and long " * 100
    cache.put(key, payload)
    assert cache.get(key).payload == payload


def test_putting_again_replaces(cache):
    cache.put("key", b"old")
    cache.put("key", b"new")
    assert cache.get("key").payload == b"new" and len(files(cache)) == 1


def test_pack_and_unpack():
    meta = {"arena": 4096, "names": ["a", "ü"], "scale": 0.1, "none": None}
    assert unpack(pack(meta, b"\0code\xff")) == (meta, b"\0code\xff")
    assert unpack(pack({}, b"")) == ({}, b"")


def test_only_the_owner_may_read_or_write(cache):
    cache.put("key", PAYLOAD)
    assert os.stat(cache.directory).st_mode & 0o777 == 0o700
    assert os.stat(only_file(cache)).st_mode & 0o777 == 0o600


def test_machine_code_runs_from_the_cache_without_llvm(cache, monkeypatch):
    # One fixed fingerprint for both processes, so that sources edited during the tests do not part them.
    monkeypatch.setattr(cache_module, "fingerprint", lambda: "same")
    cache.put("answer", pack({"entry": "f"}, jit.compile_text("define i64 @f() { ret i64 42 }")))
    code = f"""
import ctypes, sys
from weft.runtime.code import cache, jit
assert len(cache.fingerprint()) > 200
cache.fingerprint = lambda: "same"
meta, code = cache.unpack(cache.Cache({cache.directory!r}).get("answer").payload)
library = jit.link(code)
print(ctypes.CFUNCTYPE(ctypes.c_int64)(library.address(meta["entry"]))(), library.engine)
print([name for name in sys.modules if name.split(".")[0] in ("llvmlite", "networkx", "hashlib")])
"""
    assert run_python(code, WEFT_JIT="elf").communicate()[0] == "42 elf\n[]\n"


# --- damaged files ----------------------------------------------------------------------------------------------------
def damages(content):
    yield "empty", b""
    yield "header only", content[:44]
    yield "truncated in the header", content[:20]
    yield "truncated", content[:-1]
    yield "longer", content + b"\0"
    yield "one bit of the payload", content[:-1] + bytes([content[-1] ^ 1])
    yield "one bit of the checksum", content[:12] + bytes([content[12] ^ 128]) + content[13:]
    yield "magic", b"ELF\0" + content[4:]
    yield "foreign version", content[:8] + struct.pack("<I", cache_module.FORMAT_VERSION + 1) + content[12:]
    yield "zeros, as after a power failure", bytes(len(content))


def test_damaged_files_are_misses_and_are_rewritten(cache):
    cache.put("key", PAYLOAD)
    path = only_file(cache)
    with open(path, "rb") as file:
        content = file.read()
    for what, damaged in damages(content):
        with open(path, "wb") as file:
            file.write(damaged)
        assert cache.get("key") is None, what
        assert not os.path.exists(path), what
        cache.put("key", PAYLOAD)
        assert cache.get("key") == Entry(PAYLOAD, "disk"), what


def test_a_folder_in_the_place_of_a_file_is_a_miss(cache):
    cache.put("key", PAYLOAD)
    path = only_file(cache)
    os.remove(path)
    os.mkdir(path)
    assert cache.get("key") is None
    with pytest.warns(RuntimeWarning, match="cannot write"):
        cache.put("key", PAYLOAD)
    assert cache.get("key") == Entry(PAYLOAD, "memory")


# --- folders that cannot be used --------------------------------------------------------------------------------------
def works_in_memory(cache, problem):
    assert problem in cache.problem and "set WEFT_CACHE_DIR" in cache.problem and "WEFT_CACHE=0" in cache.problem
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the one warning was given
        assert cache.get("key") is None
        cache.put("key", PAYLOAD)
        cache.put("other", b"")
        assert cache.get("key") == Entry(PAYLOAD, "memory")
    assert cache.clear() == 0 and cache.get("key") is None


def test_a_path_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="not kept on disk") as seen:
        cache = Cache(tmp_path / "file" / "cache")
    assert len(seen) == 1
    works_in_memory(cache, "Not a directory")


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning):
        works_in_memory(Cache(tmp_path / "file"), "File exists")


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    for mode in (0o770, 0o707, 0o777):
        os.chmod(tmp_path, mode)
        with pytest.warns(RuntimeWarning):
            works_in_memory(Cache(tmp_path), "may be written by other users, and its files would be executed")
    os.chmod(tmp_path, 0o755)
    assert Cache(tmp_path).problem is None


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.warns(RuntimeWarning):
        works_in_memory(Cache(tmp_path), "belongs to user")


def test_files_in_a_refused_folder_are_not_read(cache):
    cache.put("key", PAYLOAD)
    os.chmod(cache.directory, 0o777)
    with pytest.warns(RuntimeWarning):
        assert Cache(cache.directory).get("key") is None


def test_a_folder_that_disappears_is_made_again(cache):
    os.rmdir(cache.directory)
    assert cache.get("key") is None and cache.clear() == 0
    cache.put("key", PAYLOAD)
    assert cache.get("key") == Entry(PAYLOAD, "disk")
    assert os.stat(cache.directory).st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_again(cache):
    os.rmdir(cache.directory)
    open(cache.directory, "w").close()
    with pytest.warns(RuntimeWarning, match="cannot write to .*: File exists"):
        cache.put("key", PAYLOAD)
    assert cache.get("key") == Entry(PAYLOAD, "memory")


def test_a_full_disk_keeps_what_can_be_read(cache, monkeypatch):
    cache.put("old", b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device") as seen:
        cache.put("new", b"new")
        cache.put("newer", b"newer")
    assert len(seen) == 1
    assert [cache.get(key).source for key in ("old", "new", "newer")] == ["disk", "memory", "memory"]
    assert len(files(cache)) == 1, "no temporary is left behind"


# --- the environment --------------------------------------------------------------------------------------------------
def test_where_the_default_directory_is(fresh_default, monkeypatch):
    assert default_directory() == str(fresh_default / ".cache" / "weft")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert default_directory() == str(fresh_default / ".cache" / "weft")
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh_default / "xdg"))
    assert default_directory() == str(fresh_default / "xdg" / "weft")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(fresh_default / "chosen"))
    assert default_directory() == str(fresh_default / "chosen")


def test_the_default_cache_and_clearing_it(fresh_default):
    default_cache().put("a", PAYLOAD)
    default_cache().put("b", PAYLOAD)
    (fresh_default / ".cache" / "weft" / "a note of the user").write_text("")
    assert cache_module.clear_cache() == 2
    assert default_cache().get("a") is None
    assert files(default_cache()) == ["a note of the user"]


def test_switched_off(fresh_default, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "0")
    default_cache().put("key", PAYLOAD)
    assert default_cache().get("key") is None and default_cache().problem is None
    assert cache_module.clear_cache() == 0 and os.listdir(fresh_default) == []


def test_no_home(fresh_default, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user without an entry in passwd
    with pytest.warns(RuntimeWarning):
        works_in_memory(default_cache(), "no home directory")


# --- the fingerprint --------------------------------------------------------------------------------------------------
@pytest.fixture
def of_this_cpu(monkeypatch):
    """Whatever CPU the tests are run for."""
    monkeypatch.delenv("WEFT_CPU", raising=False)


def test_what_the_fingerprint_names(of_this_cpu):
    lines = dict(line.split(" ", 1) for line in fingerprint().splitlines())
    assert set(lines) == {"format", "weft", "numpy", "llvmlite", "python", "target", "cpu", "features"}
    assert lines["llvmlite"].split()[0] == __import__("llvmlite").__version__
    assert len(lines["weft"]) == 64 and lines["features"]


def test_it_changes_with_the_cpu_and_the_files_are_not_shared(of_this_cpu, monkeypatch, cache):
    before = fingerprint()
    cache.put("key", PAYLOAD)
    lesser = jit.target()._replace(features=jit.target().features.rpartition(" ")[0])
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "target", lambda: lesser)
        assert fingerprint() != before
        assert cache.get("key") is None
    assert fingerprint() == before
    assert cache.get("key").payload == PAYLOAD


def test_it_changes_with_the_cpu_asked_for(of_this_cpu, monkeypatch):
    before = fingerprint()
    monkeypatch.setenv("WEFT_CPU", "x86-64-v3")
    assert fingerprint() != before


def test_it_changes_with_a_source_file(tmp_path):
    (tmp_path / "package").mkdir()
    source = tmp_path / "package" / "pass.py"
    seen = set()
    for text, time_ns in (("a", 1), ("b", 2), ("bc", 2), ("bc", 3)):
        source.write_text(text)
        os.utime(source, ns=(time_ns, time_ns))
        (tmp_path / "package" / "notes.txt").write_text(text)
        seen.add(cache_module._digest_of_sources([tmp_path]))
    assert len(seen) == 4


def test_sources_edited_under_a_running_process_match_nothing(tmp_path):
    (tmp_path / "pass.py").write_text("just now")
    assert cache_module._digest_of_sources([tmp_path]) != cache_module._digest_of_sources([tmp_path])


# --- many processes, much data ----------------------------------------------------------------------------------------
HAMMER = """
from weft.runtime.code import cache as cache_module
cache_module.fingerprint = lambda: "same"
cache = cache_module.Cache({directory!r})
for k in range(200):
    cache.put("shared", bytes([{mark}]) * 50_000)
    payload = cache.get("shared").payload
    assert len(payload) == 50_000 and len(set(payload)) == 1, "a torn file"
print("whole", cache.problem)
"""


def test_two_processes_write_and_read_one_key(cache, monkeypatch):
    monkeypatch.setattr(cache_module, "fingerprint", lambda: "same")
    running = [run_python(HAMMER.format(directory=cache.directory, mark=mark)) for mark in (1, 2)]
    assert [process.communicate()[0] for process in running] == ["whole None\n"] * 2
    assert len(files(cache)) == 1
    assert cache.get("shared").payload[:1] in (b"\1", b"\2")


def test_the_limit_removes_what_was_used_longest_ago(tmp_path):
    cache = Cache(tmp_path / "kernels", limit_bytes=10_000)
    for k in range(9):
        cache.put(str(k), bytes(1000))
        path = os.path.join(cache.directory, cache_module._file_name(str(k)))
        os.utime(path, (k, k))
    assert cache.get("0") is not None  # used now, so "1" is the oldest
    cache.put("9", bytes(1000))
    kept = [k for k in range(10) if cache.get(str(k))]
    assert kept == [0, 3, 4, 5, 6, 7, 8, 9]
    assert sum(size for _, size, _ in cache_module._files(cache.directory)) <= 9_000


def test_abandoned_temporaries_are_removed_and_recent_ones_are_not(tmp_path):
    cache = Cache(tmp_path / "kernels", limit_bytes=1000)
    for name, age in (("a.weft.1.tmp", 0), ("b.weft.2.tmp", None)):
        path = os.path.join(cache.directory, name)
        open(path, "w").close()
        if age is not None:
            os.utime(path, (age, age))
    cache.put("key", bytes(2000))
    assert files(cache) == ["b.weft.2.tmp"]
