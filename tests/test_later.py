"""What is imported in the middle of a program (compiler/later.py), and forks that come then."""

import importlib
import subprocess
import sys
import textwrap

import pytest

from weft import paths
from weft.compiler.later import later
from weft.compiler.ops import LATER


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


# What `import weft` leaves for programs that use it: modules of weft's, and of Python's.
NOT_YET = str.split("""
    nn optim compiled explain exporting serialization distributed distributions utils fft func special linalg gradcheck
    forward_ad autograd graph amp settings runtime.eager.engine runtime.eager.function runtime.eager.needs
    runtime.code.jit runtime.code.kernels runtime.code.cache runtime.code.threads runtime.programs.program
    runtime.programs.steps runtime.replay.native compiler.emit.types compiler.translate.kinds compiler.graph
""")
NOT_YET_OF_PYTHON = str.split("llvmlite networkx logging traceback json tempfile pathlib dataclasses zipfile unittest")


def test_importing_weft_needs_few_modules():
    """A program pays for what it uses: what compiles, trains and saves comes later, and so do rare functions."""
    code = """
        import sys
        before = set(sys.modules)
        import numpy
        by_numpy = set(sys.modules)
        import weft
        ours = [name.removeprefix("weft.") for name in sys.modules if name.startswith("weft.")]
        print(*ours, "|", *(set(sys.modules) - by_numpy - before))
    """
    ours, _, new = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
    ).stdout.partition("|")
    families, ops = {*paths.FAMILY_OF_METHOD.values()}, {f"compiler.ops.{name}" for name in LATER}
    assert not {*ours.split()} & {*NOT_YET, *families, *ops}
    assert not {*new.split()} & {*NOT_YET_OF_PYTHON}
    assert len(ours.split()) < 125


def test_importing_weft_leaves_few_objects_for_the_end_of_the_process():
    """The interpreter's end looks through all of them, several times: with what modules make in excess, it took as long
    as the import of half of them."""
    code = """
        import gc, numpy
        before = len(gc.get_objects())
        import weft
        gc.collect()
        print(len(gc.get_objects()) - before)
    """
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    assert int(made.stdout) < 12_000


def test_training_without_a_compiled_function_needs_none_of_the_compiler_s_passes():
    code = """
        import sys, weft
        model = weft.nn.Sequential(weft.nn.Linear(8, 16), weft.nn.ReLU(), weft.nn.Linear(16, 4))
        optimizer = weft.optim.Adam(model.parameters())
        x, y = weft.randn(32, 8), weft.randint(0, 4, (32,))
        for _ in range(3):
            optimizer.zero_grad()
            weft.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        print(*[name.removeprefix("weft.") for name in sys.modules if name.startswith("weft.")])
    """
    text = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    ours = text.stdout.split()
    assert not {*ours} & {"compiled", "explain", "compiler.pipeline", "compiler.fuse", "compiler.emit.program"}
    assert not [name for name in ours if name.startswith("runtime.record.")]
    assert len(ours) < 380  # native code of eager mode, found on disk, is a fifth of it


# --- families of functions --------------------------------------------------------------------------------------------
def test_the_names_of_families_that_come_later_are_those_that_their_modules_list():
    for family, listed in paths.LATER_FAMILIES.items():
        module = importlib.import_module(f"weft.{family}")
        functions, both, methods = (set(names.split()) for names in listed)
        in_place = {f"{name}_" for name in vars(module).get("INPLACE", ())}
        assert functions | both == {*module.PUBLIC}, family
        assert both | methods == {*vars(module).get("METHODS", ()), *in_place}, family


@pytest.mark.parametrize("asked", ["weft.sort", "weft.Tensor.sort", "x.sort", "weft.functional.sort"])
def test_a_family_comes_when_one_of_its_names_is_asked_for(asked):
    code = f"""
        import pickle, sys, weft
        x = weft.tensor([3.0, 1.0, 2.0])
        assert "weft.ordering" not in sys.modules and "sort" in dir(weft) and "sort" in dir(x)
        {asked}
        assert "weft.ordering" in sys.modules
        assert weft.Tensor.topk is weft.Tensor.topk and weft.topk is vars(weft)["topk"] is not weft.Tensor.topk
        assert x.sort()[0].tolist() == weft.sort(x)[0].tolist() == [1.0, 2.0, 3.0]
        assert pickle.loads(pickle.dumps(weft.sort)) is weft.sort
        assert ">>> " in weft.sort.__doc__ and ">>> " in weft.Tensor.sort.__doc__
        assert (weft.sort.__module__, weft.Tensor.sort.__qualname__) == ("weft", "Tensor.sort")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_what_a_program_has_put_in_place_of_such_a_name_stays():
    code = """
        import weft
        weft.Tensor.sort, weft.msort = lambda self: "mine", "mine too"
        x = weft.tensor([2.0, 1.0])
        assert x.argsort().tolist() == [1, 0] and x.sort() == "mine" and weft.msort == "mine too"
        class Kind(weft.Tensor):
            def cumsum(self, dim):
                return super().cumsum(dim) + 1
        assert x.as_subclass(Kind).cumsum(0).tolist() == [3.0, 4.0]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_compiled_functions_ask_for_them_as_for_others():
    code = """
        import weft
        @weft.compile
        def f(x, rare):
            return (weft.einsum("i,i->", x, x) if rare else x.sum()) + x.cumsum(0)[0]
        x = weft.tensor([3.0, 4.0])
        assert [f(x, False).item() for _ in range(10)] == [10.0] * 10
        assert [f(x, True).item() for _ in range(10)] == [28.0] * 10
        assert x.sort()[0].tolist() == [3.0, 4.0] and f(x, False).item() == 10.0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_threads_that_ask_at_once_get_the_same():
    code = """
        import sys, threading, weft
        sys.setswitchinterval(1e-6)
        barrier, found = threading.Barrier(8), []
        def ask():
            barrier.wait()
            x = weft.ones(3)
            found.append((x.cumsum(0).tolist(), weft.Tensor.sort, weft.sort))
        threads = [threading.Thread(target=ask) for _ in range(8)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        assert len({(str(a), b, c) for a, b, c in found}) == 1 and len(found) == 8
        assert weft.sort.__doc__.count(">>> weft.sort") == 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


# --- the op table -----------------------------------------------------------------------------------------------------
def test_the_op_table_is_whole_for_whoever_asks():
    code = """
        import sys
        from weft.compiler import ops
        assert "weft.compiler.ops.fourier" not in sys.modules
        assert "fft_c2c" in ops.TABLE and ops.TABLE.get("no such op") is None and "no such op" not in ops.TABLE
        assert "weft.compiler.ops.fourier" not in sys.modules
        try:
            ops.table.register(ops.Op("fft_c2c", "library", None))
        except ValueError as error:
            assert "already in the table" in str(error)
        assert ops.TABLE["fft_c2c"].name == "fft_c2c" and ops.fourier is sys.modules["weft.compiler.ops.fourier"]
        assert "weft.compiler.ops.scan" not in sys.modules
        names = list(ops.TABLE)
        assert len(names) == len(ops.TABLE) == len(dict(ops.TABLE)) and ops.OWN <= {*names}
        assert all(f"weft.compiler.ops.{module}" in sys.modules for module in ops.LATER)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_the_entries_that_come_later_are_those_of_their_modules():
    code = """
        import importlib, sys
        from weft.compiler import ops
        for module, names in ops.LATER.items():
            before = {op.name for op in ops.TABLE.loaded()}
            importlib.import_module(f"weft.compiler.ops.{module}")
            new = {op.name for op in ops.TABLE.loaded()} - before
            of_others = {name for other in ops.LATER if other != module for name in ops.LATER[other].split()}
            assert new - of_others <= {*names.split()} <= {op.name for op in ops.TABLE.loaded()}, module
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


# --- the collector ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("before", ["gc.enable()", "gc.disable()", "gc.freeze()"])
def test_importing_weft_leaves_the_collector_as_it_was(before):
    code = f"""
        import gc, weakref
        class Node:
            pass
        node = Node()
        node.self, gone = node, weakref.ref(node)
        del node
        {before}
        state = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0
        import weft
        assert state == (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0)
        gc.collect()
        assert (gone() is None) == ("{before}" != "gc.freeze()")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


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
