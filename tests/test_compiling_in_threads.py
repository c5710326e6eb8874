"""LLVM in threads: the same object code for any number of them, errors, interruptions, forks, ends of the process."""

import ctypes
import gc
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

import weft
from weft.compiler.parts import parts
from weft.runtime.code import emission, jit
from weft.runtime.code.cache import default_cache

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="there are such threads on Linux alone")

# Functions that share a variable, a table, a private function and a function's address.
MODULE = """@state = internal global [4 x i64] zeroinitializer, align 64
@extents = global [2 x i64] zeroinitializer
@table = private unnamed_addr constant [3 x i64] [i64 5, i64 6, i64 7], align 64
declare i64 @llvm.smin.i64(i64, i64)
declare double @fmod(double, double)
define internal i64 @least(i64 %x, i64 %y) #0 {
  %least = call i64 @llvm.smin.i64(i64 %x, i64 %y)
  ret i64 %least
}
define internal i64 @counted(i64 %k) #0 {
  %at = getelementptr i64, ptr @table, i64 %k
  %x = load i64, ptr %at
  %before = load i64, ptr @state
  %after = add i64 %before, %x
  store i64 %after, ptr @state
  ret i64 %after
}
define internal i64 @called(ptr %f, i64 %k) #0 {
  %x = call i64 %f(i64 %k)
  ret i64 %x
}
define i64 @whole(i64 %k) #0 {
  %x = call i64 @called(ptr @counted, i64 %k)
  %seen = load i64, ptr @state
  %y = load i64, ptr getelementptr (i64, ptr @extents, i64 1)
  %z = call i64 @least(i64 %x, i64 %y)
  %w = load i64, ptr @table
  %sum = add i64 %z, %w
  %same = icmp eq i64 %x, %seen
  %result = select i1 %same, i64 %sum, i64 -1
  ret i64 %result
}
define double @rest(double %x, double %y) #0 {
  %r = call double @fmod(double %x, double %y)
  ret double %r
}
attributes #0 = { nounwind }
"""


def linked(texts):
    compilation = jit.Compilation(texts)
    return jit.link(compilation.finish())


def called(library):
    whole = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("whole"))
    rest = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(library.address("rest"))
    (ctypes.c_int64 * 2).from_address(library.address("extents"))[1] = 15
    return [whole(0), whole(2), whole(1), rest(7.5, 2.0)]


def test_parts_define_every_function_once_and_declare_the_others():
    cut = parts(MODULE, 1)
    assert len(cut) == 5 and parts(MODULE, 10**6) == [MODULE]
    assert parts(MODULE, 1) == cut
    for name in ("least", "counted", "called", "whole", "rest"):
        assert sum(f"@{name}(" in line and line.startswith("define") for t in cut for line in t.splitlines()) == 1
    assert sum("@state = global" in t for t in cut) == sum("@state = external global" in t for t in cut) == 1
    assert "@table" not in cut[0] and "constant" in cut[1] and "constant" in cut[3]
    assert "define internal" not in cut[0] and "declare i64 @least" in cut[3]


@pytest.mark.parametrize("engine", jit.ENGINES)
@pytest.mark.parametrize("size", [1, 300, 10**6])
def test_parts_are_linked_with_each_other(engine, size, monkeypatch):
    monkeypatch.setenv("WEFT_JIT", engine)
    if engine == "elf" and sys.platform != "linux":
        pytest.skip("the loader is for Linux")
    library = linked(parts(MODULE, size))
    assert called(library) == [5 + 5, 12 + 5, 15 + 5, 1.5]
    assert library.engine == engine or library.refusal


def test_private_functions_of_two_programs_do_not_meet():
    one, other = (linked(parts(MODULE, 1)) for _ in range(2))
    assert called(one) == called(other) == [10, 17, 20, 1.5]


@pytest.fixture
def uncached(monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "0")
    default_cache.cache_clear()
    yield
    default_cache.cache_clear()


def long(x, w):
    for k in range(12):
        x = weft.tanh(x @ w + k).exp().sin() - x.logsumexp(1, keepdim=True) + x.cumsum(1)
    return x


@pytest.fixture
def with_fma(monkeypatch):
    """Where the tests are run for a CPU without: nearly every function calls the C library's there."""
    if os.environ.get("WEFT_CPU") in ("x86-64", "x86-64-v2"):
        monkeypatch.setenv("WEFT_CPU", "x86-64-v3")


@pytest.fixture
def text(uncached, monkeypatch):
    """The text of a program of several parts."""
    texts, begin = [], jit.begin_in_parts
    with monkeypatch.context() as patch:
        patch.setattr(jit, "begin_in_parts", lambda ir: texts.append(ir) or begin(ir))
        weft.compile(long)(weft.ones(3, 4), weft.ones(4, 4))
    assert len(parts(texts[-1])) > 2
    return texts[-1]


@pytest.fixture
def serially(monkeypatch):
    """LLVM by llvmlite alone, one text after the other."""
    monkeypatch.setattr(jit, "_tools", lambda: None)


def code_with(n, text, monkeypatch):
    monkeypatch.setattr(jit, "wanted", lambda: n)
    monkeypatch.setattr(jit, "n_cpus", lambda: n)
    return jit.begin_in_parts(text).finish()


def test_code_is_the_same_for_any_number_of_threads(text, monkeypatch):
    code = code_with(1, text, monkeypatch)
    assert len(jit._objects(code)) == len(parts(text))
    assert all(code_with(n, text, monkeypatch) == code for n in (2, 5, 64))
    monkeypatch.setattr(jit, "_tools", lambda: None)
    assert code_with(1, text, monkeypatch) == code


def test_functions_are_the_same_code_in_parts(with_fma, text):
    """Their bits too, therefore; only calls differ, so functions that call nothing are compared."""
    whole, in_parts = jit.assembly(text), "".join(map(jit.assembly, parts(text)))
    alike = 0
    for name in (f"k{k}" for k in range(100)):
        if f"\n{name}:\n" in whole and "call" not in body(whole, name):
            assert body(whole, name) == body(in_parts, name)
            alike += 1
    assert alike > 2


def body(assembly, name):
    """The instructions of a function, without the numbers of its labels and constants."""
    text = assembly.partition(f"\n{name}:")[2].partition(".Lfunc_end")[0]
    return re.sub(r"LBB\d+|LCPI\d+|\s*#.*|\.p2align.*", "", text)


def test_a_program_in_parts_gives_the_bits_of_eager_mode(uncached, monkeypatch):
    weft.manual_seed(0)
    x, w = weft.randn(30, 40), weft.randn(40, 40)
    for n in (1, 4):
        monkeypatch.setattr(jit, "wanted", lambda n=n: n)
        monkeypatch.setattr(jit, "n_cpus", lambda n=n: n)
        compiled = weft.compile(lambda x, w: long(x, w))
        assert all(compiled(x, w).equal(long(x, w)) for _ in range(3))


def test_llvmlites_lock_is_not_taken(text):
    jit.begin_in_parts(text).finish()  # target machines are made, with the lock
    binding, taken = jit._llvm(), []
    callbacks = (lambda: taken.append(1)), (lambda: None)
    gc.disable()  # what others have left is disposed of with the lock
    binding.ffi.register_lock_callback(*callbacks)
    try:
        jit.begin_in_parts(text).finish()
        without = len(taken)
        jit.assembly("define i64 @f() { ret i64 1 }")
    finally:
        binding.ffi.unregister_lock_callback(*callbacks)
        gc.enable()
    assert len(taken) > without
    if jit._tools() is not None:
        assert without == 0


def test_llvmlite_of_another_kind_is_used_with_its_lock(text, monkeypatch):
    class Library:
        """Functions without a lock to go past."""

        def __getattr__(self, name):
            return getattr(jit._llvm().ffi.lib, name)

    assert emission.functions_of(Library()) is not None or sys.platform != "linux"
    assert emission.functions_of(object()) is None
    monkeypatch.setattr(Library, "LLVMPY_VerifyModule", ctypes.CDLL(None).getpid, raising=False)
    assert emission.functions_of(Library()) is None


def test_others_use_llvmlite_at_the_same_time(text):
    """As numba does: their calls take its lock, and ours do not wait for it."""
    code, binding, failed, end = jit.begin_in_parts(text).finish(), jit._llvm(), [], threading.Event()
    machine, small = jit._new_machine(jit.target()), parts(text)[-1]
    expected = machine.emit_object(binding.parse_assembly(small, binding.create_context()))

    def others():
        while not end.is_set():
            module = binding.parse_assembly(small, binding.create_context())
            module.verify()
            binding.initialize_all_targets()
            if machine.emit_object(module) != expected:
                failed.append(module)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        codes = [jit.begin_in_parts(text).finish() for _ in range(4)]
    finally:
        end.set()
        thread.join()
    assert codes == [code] * 4 and not failed


def test_more_threads_are_refused(text, monkeypatch):
    """As a system does that has a limit."""
    code = jit.begin_in_parts(text).finish()
    monkeypatch.setattr(emission, "_create_thread", lambda words, helper: 11)
    assert jit.begin_in_parts(text).finish() == code
    assert not emission._alive or not any(e.is_running() for e in emission._alive)


def test_errors_of_one_part_reach_the_caller():
    good = [f"define i64 @f{k}() {{ ret i64 {k} }}" for k in range(8)]
    with pytest.raises(RuntimeError, match="undefined value '%y'"):
        jit.Compilation([*good, "define float @f(float %x) { ret float %y }", *good]).finish()
    with pytest.raises(RuntimeError, match="dominate"):
        jit.Compilation(["define i64 @f(i64 %x) { %y = add i64 %z, 1\n %z = add i64 %x, 1\n ret i64 %y }"]).finish()
    assert len(jit._objects(jit.Compilation(good).finish())) == 8


def test_errors_by_llvmlite_alone_are_the_same(serially):
    test_errors_of_one_part_reach_the_caller()


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, also in a run that was begun with it switched off, as shells do in the
    background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@linux_only
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_llvm_works(text, monkeypatch):
    """The exception comes at once, and what was begun is nobody's: the next compilation gives the same code."""
    code, sleep = jit.begin_in_parts(text).finish(), emission.time.sleep
    for _ in range(5):
        compilation = jit.begin_in_parts(text)
        with monkeypatch.context() as patch:
            patch.setattr(emission.time, "sleep", lambda s: os.kill(os.getpid(), signal.SIGINT) or sleep(s))
            # It may have ended before the first look.
            patch.setattr(emission.Emission, "is_running", lambda self: True)
            with pytest.raises(KeyboardInterrupt):
                compilation.finish()
        assert jit.begin_in_parts(text).finish() == code
    emission.wait_for_all()
    assert emission._alive == []


@linux_only
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_first_call_and_again(uncached, monkeypatch):
    weft.manual_seed(0)
    x, w = weft.randn(5, 7), weft.randn(7, 7)
    count, expected, sleep = weft.zeros(()), long(x, w), emission.time.sleep

    @weft.compile
    def f(x, w):
        count.add_(1)
        return long(x, w)

    with monkeypatch.context() as patch:
        patch.setattr(emission.time, "sleep", lambda s: os.kill(os.getpid(), signal.SIGINT) or sleep(s))
        patch.setattr(emission.Emission, "is_running", lambda self: True)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                f(x, w)
            assert count.item() == 0
    for k in range(3):
        assert f(x, w).equal(expected) and count.item() == k + 1


@linux_only
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_what_a_value_needs_is_compiled(uncached, monkeypatch):
    """No second program is compiled for what was recorded so far."""
    weft.manual_seed(0)
    x, w = weft.randn(5, 7), weft.randn(7, 7)
    count, expected, begun, begin = weft.zeros(()), long(x, w), [], jit.begin_in_parts

    @weft.compile
    def f(x, w):
        count.add_(1)
        y = long(x, w)
        return y * 2 if y.sum().item() < 1e9 else y

    def interrupted(text):
        begun.append(text)
        os.kill(os.getpid(), signal.SIGINT)
        return begin(text)

    with monkeypatch.context() as patch:
        patch.setattr(jit, "begin_in_parts", interrupted)
        for k in range(3):
            with pytest.raises(KeyboardInterrupt):
                f(x, w)
            assert count.item() == 0 and len(begun) == k + 1
    for k in range(3):
        assert f(x, w).equal(expected * 2) and count.item() == k + 1


def test_ctrl_c_in_the_python_of_a_call(uncached, monkeypatch):
    """What was recorded counts if its program is there, and is not compiled for that. Other exceptions wait for it."""
    count, texts, begin, ends = weft.zeros(()), [], jit.begin_in_parts, [KeyboardInterrupt]
    monkeypatch.setattr(jit, "begin_in_parts", lambda text: texts.append(text) or begin(text))

    @weft.compile
    def f():
        count.add_(1)
        if ends:
            raise ends[0]("in the middle")
        return count * 2

    with pytest.raises(KeyboardInterrupt, match="in the middle"):
        f()
    assert not texts and count.item() == 0
    ends[0] = ValueError
    with pytest.raises(ValueError, match="in the middle"):
        f()
    assert len(texts) == 1 and count.item() == 1
    ends[0] = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt, match="in the middle"):
        f()
    assert len(texts) == 1 and count.item() == 2
    ends.clear()
    assert f().item() == 6 and count.item() == 3


def run(code):
    environment = {**os.environ, "WEFT_CACHE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr)
    return done.stdout


BEGUN = """
from weft.runtime.code import jit, emission
texts = [f"define i64 @f{k}() {{ ret i64 {k} }}" for k in range(200)]
with jit.compiling:
    begun = jit.Compilation(texts)
"""


def test_the_process_ends_while_llvm_works():
    assert run(BEGUN + "print('end')") == "end\n"


@linux_only
def test_the_process_ends_while_another_thread_waits_for_code(monkeypatch):
    """Only the thread that waits takes over what was made: two at once would let go of the same memory twice."""
    taken, collect = [], emission.Emission.collect
    monkeypatch.setattr(emission.Emission, "collect", lambda self: (taken.append(self), collect(self)))
    with jit.compiling:
        begun = jit.Compilation(["define i64 @f() { ret i64 1 }"])
    emission.stop()
    assert not taken
    with jit.compiling:
        assert begun.finish()
    assert len(taken) == 1


@linux_only
def test_a_fork_while_llvm_works():
    printed = run(
        BEGUN
        + """
import os
child = os.fork()
assert not any(e.is_running() for e in emission._alive)
code = begun.finish()
assert code == jit.Compilation(texts).finish() and len(jit._objects(code)) == 200
assert jit.link(code).address("f7")
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("end")
"""
    )
    assert printed == "end\n"
