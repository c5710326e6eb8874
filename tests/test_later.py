"""What is imported in the middle of a program (compiler/later.py), and forks that come then."""

import subprocess
import sys
import textwrap

import pytest

from weft.compiler.later import later


def test_a_function_is_imported_when_it_is_called():
    code = """
        import sys, weft
        assert "weft.compiler.emit.sort" not in sys.modules
        assert weft.sort(weft.tensor([2.0, 1.0]))[0].tolist() == [1.0, 2.0]
        assert "weft.optim" not in sys.modules and "weft.compiled" not in sys.modules
        assert "optim" in dir(weft) and "compile" in dir(weft)
        assert weft.optim.SGD and weft.compile(lambda x: x + 1)(weft.tensor(1.0)).item() == 2.0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_importing_weft_needs_few_modules():
    """A program pays for what it uses: what compiles, trains and saves comes later. The op table is whole."""
    code = """
import sys, weft
print(len([m for m in sys.modules if m.partition('.')[0] == 'weft' and not m.startswith('weft.compiler.ops')]))
"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert int(printed) < 195


def test_what_is_given_makes_the_function():
    assert later("compiler.vmath:FUNCTIONS.get", "nothing of that name", min)(3, 2) == 2
    with pytest.raises(AttributeError, match="absent"):
        later("compiler.later:absent")()


def test_a_fork_waits_for_imports_of_other_threads(tmp_path):
    (tmp_path / "slow.py").write_text("import time\nentered.set()\ntime.sleep(0.3)\nvalue = 1\n")
    code = """
        import builtins, os, sys, threading
        from weft.compiler.later import imported
        sys.path.insert(0, sys.argv[1])
        builtins.entered = threading.Event()
        other = threading.Thread(target=imported, args=("slow",))
        other.start()
        builtins.entered.wait()
        child = os.fork()
        if child == 0:
            os._exit(imported("slow").value)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=True, timeout=300)


def test_a_fork_takes_the_lock_of_logging_after_that_of_compiling():
    """Whoever compiles may log, and waits for that lock then: a fork that held it would wait for the compiler."""
    code = """
        import os, sys, threading, time
        import weft
        assert "logging" not in sys.modules  # which takes 3 ms
        import logging
        from weft.compiler.later import expect_logging
        from weft.runtime.code import jit
        expect_logging()
        entered, forks = threading.Event(), threading.Event()
        os.register_at_fork(before=forks.set)
        def compiles():
            with jit.compiling:
                entered.set()
                forks.wait()
                time.sleep(0.1)  # so that the fork comes as far as it can
                logging.getLogger("of one who compiles")
        other = threading.Thread(target=compiles)
        other.start()
        entered.wait()
        child = os.fork()
        if child == 0:
            with jit.compiling:
                logging.getLogger("of the child")
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        other.join()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=300)


@pytest.mark.parametrize("statement", ["from weft import *", "import weft; compile = weft.compile; optim = weft.optim"])
def test_names_come_by_every_way_of_asking(statement):
    code = f"{statement}\nassert compile(lambda: 1)() == 1 and optim.Adam"
    subprocess.run([sys.executable, "-c", code], check=True)
