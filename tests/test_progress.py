"""What is seen of a compilation that takes long."""

import io
import sys
import time

import weft
from weft.runtime.programs import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_what_takes_long_and_then_nothing(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.01)
    with progress.shown("step", 2000):
        while "compiling" not in terminal.getvalue():
            time.sleep(0.01)
    shown = terminal.getvalue()
    assert shown.startswith("\rweft: compiling step (2,000 recorded ops), 0 s")
    assert shown.endswith("\r") and shown.rstrip("\r").rsplit("\r", 1)[-1].strip() == ""


def test_what_is_quick_and_what_nobody_sees_is_silent(monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "0")
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        if not isinstance(stream, Terminal):
            monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
        assert weft.compile(lambda x: x * 2)(weft.ones(2)).tolist() == [2.0, 2.0]
        assert stream.getvalue() == ""


def test_an_error_ends_it(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    try:
        with progress.shown("step", 10):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert terminal.getvalue() == ""
