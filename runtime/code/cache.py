"""Compiled programs on disk, so that a new process starts with the machine code an earlier one made.

    cache = default_cache()
    entry = cache.get(key)                          # None: compile, then
    cache.put(key, pack({"arena": 4096}, code))     # the next process finds it
    meta, code = unpack(entry.payload)

A key names what was recorded; the cache adds `fingerprint()`, everything else the code depends on (versions, sources,
CPU), so a key that matches may be run. Files are checked on reading and replaced whole on writing: a truncated or
damaged one is a miss, and any number of processes may share the directory.

The files are executed. The checksum finds accidents, not attackers, so a directory that someone else owns or may write
to is refused. Whenever the directory cannot be used, programs are kept in memory, `Cache.problem` says why and what to
do, and one warning repeats it.

Environment: WEFT_CACHE_DIR is the directory (default $XDG_CACHE_HOME/weft or ~/.cache/weft), for homes that are
read-only or slow; WEFT_CACHE=0 keeps nothing at all, to measure or debug compilation.

    file:  magic | format version | SHA-256 of the rest | payload          name: SHA-256 of fingerprint and key
"""

import contextlib
import functools
import importlib.util
import os
import re
import stat
import struct
import sys
import time
import warnings
from typing import NamedTuple

import numpy as np

from weft.compiler.later import expect_logging, later
from weft.runtime.code.jit import target

try:
    # The interpreter's own SHA-256: hashlib loads OpenSSL first, which takes 3 to 5 ms of a warm start.
    from _sha2 import sha256
except ImportError:
    try:
        from _sha256 import sha256  # its name up to Python 3.11
    except ImportError:
        from hashlib import sha256

FORMAT_VERSION = 1
DEFAULT_LIMIT_BYTES = 256 << 20
_MAGIC = b"weft\x89\r\n\x00"
_HEADER = struct.Struct("<8sI32s")
_SUFFIX = ".weft"
_TEMPORARY = ".tmp"
_STALE_SECONDS = 3600
_IMPORTED_NS = time.time_ns()


class File(NamedTuple):
    """A file of the cache: its last use in seconds since 1970, its size, the meta of its payload (None: not whole)."""

    last_use: float
    size_bytes: int
    meta: object


class Entry(NamedTuple):
    """A payload that was found. source: "disk" or "memory"."""

    payload: bytes
    source: str


def pack(meta, code):
    """One payload from what JSON can hold and machine code."""
    import json  # here and in unpack: 1.5 ms, which a process that never compiles need not pay

    text = json.dumps(meta, separators=(",", ":")).encode()
    return struct.pack("<I", len(text)) + text + code


def unpack(payload):
    """The (meta, code) of pack."""
    import json

    (size,) = struct.unpack_from("<I", payload)
    return json.loads(payload[4 : 4 + size]), payload[4 + size :]


class Cache:
    """Payloads by key, in a directory if it can be trusted and written, otherwise in this process.

    directory: created if missing, for its owner only; None keeps payloads in memory. problem: why the directory is not
    used, or None.
    """

    keeps = True  # what is put there can be got

    def __init__(self, directory, limit_bytes=DEFAULT_LIMIT_BYTES):
        self.directory = directory and os.fspath(directory)
        self.limit_bytes = limit_bytes
        self.problem = None
        self._memory = {}
        self._used_bytes = None
        self._reads = self._writes = self.directory is not None and self._prepare()

    def get(self, key):
        """The Entry put under this key by any process of the same fingerprint, or None."""
        name = _file_name(key)
        if name in self._memory:
            return Entry(self._memory[name], "memory")
        payload = _read(os.path.join(self.directory, name)) if self._reads else None
        return None if payload is None else Entry(payload, "disk")

    def put(self, key, payload):
        """Keep a payload. A failure of the disk does not raise: it is warned about once, and memory serves instead."""
        name = _file_name(key)
        if self._writes:
            try:
                self._write(name, payload)
                return
            except OSError as error:
                # What is there may still be read: a full disk, or a cache that was made when an image was built.
                self._writes = False
                self._warn(f"cannot write to {self.directory}: {error.strerror}")
        self._memory[name] = bytes(payload)

    def clear(self):
        """Remove every payload; returns how many files that were."""
        self._memory.clear()
        self._used_bytes = None
        return sum(_remove(path) for _, _, path in _files(self.directory)) if self._reads else 0

    def entries(self):
        """Every File of the directory."""
        return [File(last_use, size, _meta(path)) for last_use, size, path in _files(self.directory)]

    def _prepare(self):
        """Make the directory; returns whether it can be used."""
        try:
            if not os.path.isabs(self.directory):  # what is left of ~ where no home is known
                raise FileNotFoundError(2, "no home directory")
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            distrust = _distrust(os.stat(self.directory))
        except OSError as error:
            distrust = f"cannot be used: {error.strerror}"
        if distrust:
            self._warn(f"{self.directory} {distrust}")
        return not distrust

    def _warn(self, problem):
        remedy = "set WEFT_CACHE_DIR to a folder that only you can write, or WEFT_CACHE=0 to do without"
        self.problem = f"weft: compiled programs are not kept on disk: {problem}; {remedy}"
        expect_logging()  # which warnings may go to
        warnings.warn(self.problem, RuntimeWarning, stacklevel=4)

    def _write(self, name, payload):
        os.makedirs(self.directory, mode=0o700, exist_ok=True)  # people clear caches by removing them
        content = _HEADER.pack(_MAGIC, FORMAT_VERSION, sha256(payload).digest()) + payload
        _write_whole(os.path.join(self.directory, name), content)
        if self._used_bytes is None:
            self._used_bytes = sum(size for _, size, _ in _files(self.directory))
        else:
            self._used_bytes += len(content)
        if self._used_bytes > self.limit_bytes:
            self._used_bytes = _remove_oldest(self.directory, self.limit_bytes)


class _NoCache(Cache):
    """What WEFT_CACHE=0 gives: every get is a miss."""

    keeps = False

    def __init__(self):
        super().__init__(None)

    def put(self, key, payload):
        pass


@functools.cache
def default_cache():
    """The cache the environment asks for, one per process."""
    if os.environ.get("WEFT_CACHE") == "0":
        return _NoCache()
    return Cache(default_directory())


def clear_cache():
    """Remove every compiled program from the default cache; returns how many files that were."""
    return default_cache().clear()


def fill_cache():
    """Compile what all programs on this machine share, and keep it on disk.

    Replays of compiled calls, and eager mode, run in native code that is the same for all programs. It takes some two
    seconds to compile, once per machine. Without this call that happens in the background, once a program has asked for
    it often enough, and calls go more slowly until then, with the same bits. So call this, or `python -m weft cache
    fill`, where an image for containers is built, or before times are taken.

    Returns the seconds that it took; 0.0 where everything was there, or the interpreter is one without such code.
    Raises ModuleNotFoundError, saying what to install, if it has to be compiled and llvmlite is missing.

        >>> weft.fill_cache() >= 0.0
        True
    """
    return _make_now()


_make_now = later("runtime.replay.native_making:make_now")


def default_directory():
    """$WEFT_CACHE_DIR, or weft in $XDG_CACHE_HOME (ignored unless absolute, as its standard says) or in ~/.cache."""
    chosen = os.environ.get("WEFT_CACHE_DIR")
    if chosen:
        return os.path.abspath(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "weft")


# --- the fingerprint --------------------------------------------------------------------------------------------------
def fingerprint():
    """What compiled code depends on besides its key, as text: a line each.

    weft's version is the state of its sources, so that an edited checkout never meets the kernels of its past.
    Nothing here imports LLVM, and importlib.metadata (15 ms) is not used either.
    """
    return _fingerprint(target())


@functools.cache
def _fingerprint(machine):
    return "\n".join(
        [
            f"format {FORMAT_VERSION}",
            f"weft {_digest_of_sources(_source_folders())}",
            f"numpy {np.__version__}",
            f"llvmlite {llvmlite_version()}",
            f"python {sys.implementation.name} {sys.version}",
            f"target {machine.triple} {machine.float_lanes}",
            f"cpu {machine.cpu}",
            f"features {machine.features}",
        ]
    )


def _source_folders():
    packages = ("weft.runtime", "weft.compiler")
    return [folder for name in packages for folder in importlib.util.find_spec(name).submodule_search_locations]


def _digest_of_sources(folders):
    """Digest of path, size and modification time of every Python file."""
    try:
        state = [(f.path, f.stat().st_size, f.stat().st_mtime_ns) for folder in folders for f in _python_files(folder)]
    except NotADirectoryError:
        # Imported from an archive, which is not edited in place: the version stands for its sources.
        from importlib.metadata import version

        state = [("", version("weft"), 0)]
    now = time.time_ns()
    if any(_IMPORTED_NS < changed <= now for _, _, changed in state):
        # Edited since this process imported them: what it compiles belongs to neither the old nor the new sources.
        state.append(("", os.urandom(16), now))
    return sha256(repr(sorted(state, key=str)).encode()).hexdigest()


def _python_files(folder):
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _python_files(entry.path)


def llvmlite_version():
    """Read from its version file, because importing llvmlite is what a warm start avoids."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations:
        return "absent"
    with open(os.path.join(spec.submodule_search_locations[0], "_version.py")) as file:
        return " ".join(re.findall(r"^version_\w+ = '(.*)'", file.read(), re.MULTILINE))


# --- files ------------------------------------------------------------------------------------------------------------
def _file_name(key):
    return sha256(f"{fingerprint()}\0{key}".encode()).hexdigest() + _SUFFIX


def _distrust(status):
    """Why files in this directory must not be executed, or None."""
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, and its files would be executed"
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "may be written by other users, and its files would be executed"
    return None


def _read(path):
    """The payload of a file, or None; a file that is not whole is removed."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    payload = _checked(content)
    if payload is None:
        _remove(path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the limit removes what was used longest ago
    return payload


def _meta(path):
    """The meta of a file, whose last use stays what it is."""
    try:
        with open(path, "rb") as file:
            payload = _checked(file.read())
        return None if payload is None else unpack(payload)[0]
    except (OSError, ValueError, struct.error):
        return None


def _checked(content):
    if len(content) < _HEADER.size:
        return None
    magic, version, digest = _HEADER.unpack_from(content)
    payload = content[_HEADER.size :]
    if magic != _MAGIC or version != FORMAT_VERSION or sha256(payload).digest() != digest:
        return None
    return payload


def _write_whole(path, content):
    """Readers see the old file or the new one. The temporary is new (O_EXCL) and in the same directory."""
    temporary = f"{path}.{os.getpid()}.{os.urandom(6).hex()}{_TEMPORARY}"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with open(file, "wb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _files(directory):
    """(last use, size, path) of our files, temporaries included."""
    found = []
    if directory is None or not os.path.isdir(directory):
        return found
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith((_SUFFIX, _TEMPORARY)):
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # another process removed it
                found.append((status.st_mtime, status.st_size, entry.path))
    return found


def _remove_oldest(directory, limit_bytes):
    """Bring the directory under nine tenths of the limit, so that the next writes need not look; returns its bytes."""
    files = sorted(_files(directory))
    used = sum(size for _, size, _ in files)
    now = time.time()
    for last_use, size, path in files:
        abandoned = path.endswith(_TEMPORARY) and now - last_use > _STALE_SECONDS
        over = used > 0.9 * limit_bytes and not path.endswith(_TEMPORARY)
        if (abandoned or over) and _remove(path):
            used -= size
    return used


def _remove(path):
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
