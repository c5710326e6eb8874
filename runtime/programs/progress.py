"""What a terminal or notebook shows while a program takes long to compile: a line that counts the seconds."""

import sys
import threading
from contextlib import contextmanager, nullcontext

PATIENCE_SECONDS = 1.5  # nothing is said of what takes less


def shown(name, n_steps):
    """`with shown("step", 2000): ...` while so many recorded ops are made a program; nothing where nobody looks on."""
    stream = sys.stderr
    return _counting(stream, name, n_steps) if _is_watched(stream) else nullcontext()


def _is_watched(stream):
    is_notebook = type(stream).__module__.startswith("ipykernel")
    return is_notebook or (hasattr(stream, "isatty") and not stream.closed and stream.isatty())


@contextmanager
def _counting(stream, name, n_steps):
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(stream, name, n_steps, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(stream, name, n_steps, done):
    text, seconds = "", PATIENCE_SECONDS
    while not done.wait(seconds if not text else 1.0):
        text = f"weft: compiling {name} ({n_steps:,} recorded ops), {seconds:.0f} s"
        stream.write(f"\r{text}")
        stream.flush()
        seconds += 1.0
    if text:
        stream.write("\r" + " " * len(text) + "\r")
        stream.flush()
