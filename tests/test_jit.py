"""From IR text to called code: an object behaves the same under every engine, and none of it needs a toolchain."""

import ctypes
import math
import os
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from weft.compiler.emit.builder import I64, PTR, Builder, Module, Type
from weft.runtime.code import elf, jit

I, D, P = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p

# One of everything a kernel may contain: constants of several sizes, a pointer table, a jump table, calls between
# functions, library functions by call and by address, an address taken, writable and zeroed globals, a large stack.
EVERYTHING = """
@table = private unnamed_addr constant [4 x double] [double 1.5, double 2.5, double 4.5, double 8.5], align 64
@counter = internal global i64 7
@zeroes = internal global [2000 x i64] zeroinitializer
@pointers = internal constant [3 x ptr] [ptr @double, ptr @kernel, ptr @fmod]
declare double @fmod(double, double)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal double @double(double %x) noinline { %y = fadd double %x, %x
  ret double %y }
define double @call(double %x) { %y = call double @double(double %x)
  %z = fadd double %y, 0.125
  ret double %z }
define double @remainder(double %x) { %y = frem double %x, 3.5
  ret double %y }
define ptr @library() { ret ptr @fmod }
define ptr @itself() { ret ptr @kernel }
define ptr @pointer(i64 %i) { %a = getelementptr [3 x ptr], ptr @pointers, i64 0, i64 %i
  %p = load ptr, ptr %a
  ret ptr %p }
define double @lookup(i64 %i) { %a = getelementptr double, ptr @table, i64 %i
  %x = load double, ptr %a
  ret double %x }
define i64 @count() { %c = load i64, ptr @counter
  %d = add i64 %c, 1
  store i64 %d, ptr @counter
  ret i64 %d }
define i64 @swap(i64 %i, i64 %new) { %a = getelementptr i64, ptr @zeroes, i64 %i
  %old = load i64, ptr %a
  store i64 %new, ptr %a
  ret i64 %old }
define i64 @switch(i64 %i) { switch i64 %i, label %z [ i64 0, label %a
   i64 1, label %b
   i64 2, label %c
   i64 3, label %d
   i64 4, label %e ]
a: call void @kernel(ptr null, i64 0)
  ret i64 11
b: ret i64 17
c: ret i64 3
d: ret i64 1234
e: ret i64 88
z: ret i64 0 }
define void @kernel(ptr %p, i64 %n) nounwind { %some = icmp sgt i64 %n, 0
  br i1 %some, label %go, label %done
go: %v = load <8 x float>, ptr %p, align 4
  %w = fadd <8 x float> %v, splat (float 1.5)
  %q = fmul <8 x float> %w, <float 0.0, float 1.0, float 2.0, float 3.0, float 4.0, float 5.0, float 6.0, float 7.0>
  store <8 x float> %q, ptr %p, align 4
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
  br label %done
done: ret void }
define i64 @stack(ptr %from, i64 %bytes, i64 %i) { %room = alloca [4096 x i64], align 64
  call void @llvm.memcpy.p0.p0.i64(ptr %room, ptr %from, i64 %bytes, i1 false)
  %a = getelementptr i64, ptr %room, i64 %i
  %x = load i64, ptr %a
  ret i64 %x }
"""


@pytest.fixture(params=jit.ENGINES)
def engine(request, monkeypatch):
    monkeypatch.setenv("WEFT_JIT", request.param)
    return request.param


@pytest.fixture(scope="module")
def everything():
    return jit.compile_text(EVERYTHING)


def function(library, name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(library.address(name))


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_constants_and_tables(engine, everything):
    library = jit.link(everything)
    assert (library.engine, library.refusal) == (engine, None)
    assert [function(library, "lookup", D, I)(i) for i in range(4)] == [1.5, 2.5, 4.5, 8.5]
    assert [function(library, "switch", I, I)(i) for i in (0, 1, 2, 3, 4, 5, -1)] == [11, 17, 3, 1234, 88, 0, 0]
    values = np.ones(8, np.float32)
    function(library, "kernel", None, P, I)(values.ctypes.data, 8)
    assert values.tolist() == [0, 0, 5, 7.5, 10, 12.5, 15, 17.5]


def test_calls_and_addresses(engine, everything):
    library = jit.link(everything)
    assert function(library, "call", D, D)(3.0) == 6.125
    assert function(library, "remainder", D, D)(-10.0) == math.fmod(-10.0, 3.5)
    assert function(library, "itself", P)() == library.address("kernel")
    pointer = function(library, "pointer", P, I)
    assert pointer(1) == library.address("kernel")
    assert ctypes.CFUNCTYPE(D, D)(pointer(0))(4.0) == 8.0
    for address in (pointer(2), function(library, "library", P)()):
        assert ctypes.CFUNCTYPE(D, D, D)(address)(-10.0, 3.5) == math.fmod(-10.0, 3.5)


def test_writable_memory_and_stack(engine, everything):
    first, second = jit.link(everything), jit.link(everything)
    assert [function(first, "count", I)() for _ in range(3)] == [8, 9, 10]
    assert function(second, "count", I)() == 8, "two libraries of one object share nothing"
    swap = function(first, "swap", I, I, I)
    assert [swap(1999, 5), swap(1999, 6), swap(0, 1)] == [0, 5, 0]
    numbers = np.arange(4096)
    assert function(first, "stack", I, P, I, I)(numbers.ctypes.data, numbers.nbytes, 4095) == 4095


def test_an_unknown_name_is_a_key_error(engine, everything):
    with pytest.raises(KeyError, match="the object gives no global symbol 'missing'"):
        jit.link(everything).address("missing")


def test_many_libraries_live_and_die(engine, everything):
    libraries = [jit.link(everything) for _ in range(20)]
    del libraries[::2]
    libraries += [jit.link(everything) for _ in range(10)]
    assert [function(library, "count", I)() for library in libraries] == [8] * 20


def test_code_outlives_the_finalizers_of_its_cycle(engine):
    """The garbage collector calls finalizers in any order. LLVM's context was once gone before the module in it, and
    code before a finalizer of the user's that calls it."""
    assert run_python(CALLED_LAST, WEFT_JIT=engine, MALLOC_PERTURB_="170").stdout == "7" * 40


CALLED_LAST = """
import ctypes, gc
from weft.runtime.code import jit

class Last:
    def __del__(self):
        print(self.function(), end="", flush=True)

gc.disable()
code = jit.compile_text("define i64 @f() { ret i64 7 }")
for _ in range(20):
    before, library, after = Last(), jit.link(code), Last()
    for last in (before, after):
        last.function = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("f"))
        last.library, last.itself = library, (before, after)
    del before, library, after, last
    gc.collect()
"""


def test_a_process_ends_cleanly_with_code_loaded(engine):
    code = """
from weft.runtime.code import jit
library = jit.link(jit.compile_text("define i64 @f() { ret i64 42 }"))
import ctypes
print(ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("f"))(), library.engine)
"""
    done = run_python(code, WEFT_JIT=engine)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"42 {engine}\n", "")


def test_a_builders_kernel_with_a_masked_tail(engine):
    module = Module()
    b = Builder(module, "scale", [("n", I64), ("x", PTR), ("y", PTR)])
    n, x, y = b.arguments
    lanes = Type("f32", jit.target().float_lanes)
    with b.loop(b.i64(0), n, lanes.lanes) as i:
        mask = b.lane_mask(i, n, lanes.lanes)
        value = b.load(b.offset(x, i, 4), lanes, mask)
        b.store(b.mul(value, b.const(3.0, lanes)), b.offset(y, i, 4), mask)
    b.finish()
    library = jit.link(jit.compile_text(str(module)))
    scale = function(library, "scale", None, I, P, P)
    x, y = np.arange(37, dtype=np.float32), np.full(38, -1, np.float32)
    scale(37, x.ctypes.data, y.ctypes.data)
    assert y.tolist() == [*(x * 3).tolist(), -1.0]


def test_threads_compile_and_link(engine):
    results = {}

    def work(k):
        library = jit.link(jit.compile_text(f"define i64 @f() {{ ret i64 {k} }}"))
        results[k] = function(library, "f", I)()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {k: k for k in range(8)}


# --- compiling --------------------------------------------------------------------------------------------------------
def test_a_product_and_a_sum_are_never_contracted():
    text = jit.assembly(
        "define float @f(float %x) { %y = fmul float %x, 3.0\n %z = fadd float %y, 1.0\n ret float %z }"
    )
    assert "mul" in text and "add" in text and "fma" not in text and "fmla" not in text


def test_compiling_is_deterministic(everything):
    assert jit.compile_text(EVERYTHING) == everything


def test_bad_text_raises_with_the_place():
    with pytest.raises(RuntimeError, match="undefined value '%y'"):
        jit.compile_text("define float @f(float %x) { ret float %y }")


def test_text_that_parses_but_is_wrong_raises():
    with pytest.raises(RuntimeError, match="does not dominate"):
        jit.compile_text("define i64 @f(i64 %x) { %y = add i64 %z, 1\n %z = add i64 %x, 1\n ret i64 %y }")


def test_an_empty_path_is_enough():
    code = 'from weft.runtime.code import jit; jit.link(jit.compile_text("define i64 @f() { ret i64 1 }")).address("f")'
    done = run_python(code, PATH="")
    assert (done.returncode, done.stderr) == (0, "")


def test_linking_imports_no_llvm(tmp_path, everything):
    path = tmp_path / "object"
    path.write_bytes(everything)
    code = f"""
import sys
from weft.runtime.code import jit
library = jit.link(open({str(path)!r}, "rb").read())
library.address("kernel"), jit.target()
print(library.engine, [name for name in sys.modules if name.startswith("llvmlite")])
"""
    assert run_python(code, WEFT_JIT="elf").stdout == "elf []\n"


# --- what is compiled for ---------------------------------------------------------------------------------------------
def test_the_target_is_a_value():
    target = jit.target()
    assert target == jit.target() and hash(target) == hash(jit.target())
    assert target.float_lanes in (8, 16)
    assert target.features == " ".join(sorted(target.features.split()))


def test_a_lesser_cpu_on_request(monkeypatch):
    wide = 'define void @f(ptr %p) nounwind "prefer-vector-width"="512" { %v = load <16 x float>, ptr %p, align 4\n'
    wide += "%w = fadd <16 x float> %v, %v\n store <16 x float> %w, ptr %p, align 4\n ret void }"
    levels = {"x86-64-v4": (16, "zmm"), "x86-64-v3": (8, "ymm"), "x86-64-v2": (8, "xmm"), "x86-64": (8, "xmm")}
    for level, (lanes, register) in levels.items():
        monkeypatch.setenv("WEFT_CPU", level)
        assert jit.target()[1:] == (level, "", lanes)
        assert register in jit.assembly(wide)


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2"])
def test_what_a_lesser_cpu_lacks_is_called(level, monkeypatch):
    """Before x86-64-v3 a fused multiply-add is a library function, and so is a remainder anywhere."""
    monkeypatch.setenv("WEFT_JIT", "elf")
    monkeypatch.setenv("WEFT_CPU", level)
    object_bytes = jit.compile_text("""
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
define void @f(ptr %p) { %x = load <4 x float>, ptr %p, align 4
  %y = call <4 x float> @llvm.fma.v4f32(<4 x float> %x, <4 x float> %x, <4 x float> splat (float -1.0))
  %z = frem <4 x float> %y, splat (float 7.0)
  store <4 x float> %z, ptr %p, align 4
  ret void }""")
    assert b"fmaf\0" in object_bytes and b"fmodf\0" in object_bytes
    library = jit.link(object_bytes)
    assert library.engine == "elf"
    values = np.array([1 + 2.0**-12, 3, -5, 0], np.float32)
    function(library, "f", None, P)(values.ctypes.data)
    assert values.tolist() == [2.0**-11 + 2.0**-24, 1, 3, -1]


def test_where_there_is_no_proc_llvm_describes_the_cpu(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.delenv("WEFT_CPU", raising=False)  # the target of this CPU is meant
    monkeypatch.setattr(jit, "open", missing, raising=False)
    cpu, features = jit._processor()
    assert cpu and ("avx512f" in features.split()) == (jit.target().float_lanes == 16)


@pytest.mark.parametrize(("variable", "read"), [("WEFT_CPU", jit.target), ("WEFT_JIT", lambda: jit.link(b""))])
def test_a_misspelt_setting_names_the_choices(monkeypatch, variable, read):
    monkeypatch.setenv(variable, "fast")
    with pytest.raises(ValueError, match=f"{variable}=fast: must be one of .*(mcjit|x86-64-v4)"):
        read()


# --- what the loader refuses ------------------------------------------------------------------------------------------
CALLS_ATAN2 = """
declare double @atan2(double, double)
define double @f(double %x) { %y = call double @atan2(double %x, double 1.0)
  ret double %y }
"""


def refused(ir):
    with pytest.raises(elf.CannotLoad) as info:
        elf.load(jit.compile_text(ir))
    return str(info.value)


def test_unknown_functions_are_refused():
    assert "'atan2', which is not among the library functions" in refused(CALLS_ATAN2)


def test_thread_local_data_is_refused():
    text = "@x = internal thread_local global i64 0\n"
    text += "define ptr @f() { %p = call ptr @llvm.threadlocal.address.p0(ptr @x)\n ret ptr %p }"
    assert "section .tbss" in refused(text)


def test_constructors_are_refused():
    entry = "{ i32, ptr, ptr }"
    text = f"@llvm.global_ctors = appending global [1 x {entry}] [{entry} {{ i32 1, ptr @f, ptr null }}]\n"
    assert "section .ctors" in refused(text + "define void @f() { ret void }")


def test_a_refused_object_goes_to_lljit_and_says_so(monkeypatch):
    monkeypatch.setenv("WEFT_JIT", "elf")
    library = jit.link(jit.compile_text(CALLS_ATAN2))
    assert library.engine == "lljit" and "atan2" in library.refusal
    assert function(library, "f", D, D)(1.0) == math.atan2(1.0, 1.0)


def test_a_function_that_exists_nowhere_is_named(monkeypatch, capfd):
    monkeypatch.setenv("WEFT_JIT", "lljit")
    library = jit.link(jit.compile_text(CALLS_ATAN2.replace("atan2", "atan3")))
    with pytest.raises(KeyError, match="no global symbol 'f'"):
        library.address("f")
    assert "atan3" in capfd.readouterr().err


def test_memory_that_may_not_be_executed_goes_to_lljit(monkeypatch, everything):
    monkeypatch.setenv("WEFT_JIT", "elf")
    monkeypatch.setattr(elf, "_process", lambda: type("Libc", (), {"mprotect": lambda *_: -1}))
    simple = jit.compile_text("define i64 @f() { ret i64 1 }")
    library = jit.link(simple)
    assert library.engine == "lljit" and "refuses executable memory" in library.refusal


@pytest.mark.parametrize("engine", ["elf", "lljit"])
def test_a_damaged_object_raises(monkeypatch, everything, engine):
    monkeypatch.setenv("WEFT_JIT", engine)
    with pytest.raises(RuntimeError, match="past the end of (the )?file"):
        jit.link(everything[:-1])


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"no object at all, but long enough to hold a header" * 2])
def test_what_is_no_object_is_refused(damage):
    with pytest.raises(elf.CannotLoad):
        elf.load(damage)


def test_a_truncated_object_is_refused(everything):
    for size in range(0, len(everything) - 1, 97):
        with pytest.raises(elf.CannotLoad):
            elf.load(everything[:size])


def test_an_unknown_relocation_is_refused(everything):
    # The first relocation of .text in this object is PC-relative: turned into kind 26 it must not be guessed at.
    section = next(s for s in elf._read(everything).sections if s.type == 4)
    damaged = bytearray(everything)
    struct.pack_into("<I", damaged, section.offset + 8, 26)
    with pytest.raises(elf.CannotLoad, match=r"relocations of kind \[26\]"):
        elf.load(bytes(damaged))


def test_global_symbols_are_found_and_internal_ones_are_not(everything):
    _, addresses = elf.load(everything)
    assert {"kernel", "call", "stack"} < set(addresses)
    assert {"double", "counter", "zeroes", "fmod", ""}.isdisjoint(addresses)


def test_code_is_never_writable_and_executable(everything):
    (memory,), addresses = elf.load(everything)
    with open("/proc/self/maps") as file:
        maps = [line.replace("-", " ", 1).split()[:3] for line in file]
    access = [a for first, end, a in maps if int(first, 16) <= addresses["kernel"] < int(end, 16)]
    assert access == ["r-xp"] and not memory.closed
