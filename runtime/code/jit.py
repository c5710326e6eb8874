"""From LLVM IR text to machine code that can be called. The only file that imports LLVM.

    text --compile_text--> object code (bytes, may be kept on disk) --link--> Library --address("f")--> int

    library = link(compile_text(text))
    axpy = ctypes.CFUNCTYPE(None, ctypes.c_int64, ...)(library.address("axpy"))

Kernels are written with explicit vectors, folded constants and hoisted invariants, so no LLVM optimisation pass runs:
they gained nothing in run time and doubled the compile time. A large program is cut into parts (compiler/parts.py),
which threads compile at the same time (emission.py); its object code is that of all parts. Linking has three engines,
chosen by the environment variable WEFT_JIT because a wrong linker can only be told from a wrong kernel by trying
another one:

    elf     our own loader, `weft.runtime.code.elf`. The default on x86-64 Linux: a cached kernel runs without LLVM.
    lljit   LLVM's current linker. The default elsewhere, and where `elf` meets an object it does not know.
    mcjit   LLVM's previous linker, the most widely used one on Windows and 64-bit ARM. Unlike the others it ends the
            process on a damaged object, and takes any function of the process for an external one.

WEFT_CPU=x86-64, x86-64-v2, -v3 or -v4 compiles for that level instead of this machine's CPU, so that the narrower
kernels can be tested on a wide machine.
"""

import contextlib
import functools
import itertools
import os
import struct
import sys
import threading
from typing import NamedTuple

import numpy as np

from weft.compiler.later import at_fork, expect_logging, later
from weft.compiler.target import target_for
from weft.runtime.code import elf, emission
from weft.runtime.code.cpus import n_cpus, wanted
from weft.runtime.code.lasting import keep_at_end

ENGINES = ("elf", "lljit", "mcjit")
_LEVELS = {"x86-64": 8, "x86-64-v2": 8, "x86-64-v3": 8, "x86-64-v4": 16}
_WITH_HALVES = ("x86-64-v3", "x86-64-v4")  # levels that have F16C
# To their memory vectors of 64 bytes are two halves: Zen 4, of the family of Zen 3, by its flags or as LLVM names it.
_MOVING_HALVES = ("AuthenticAMD 25 ", "znver4")
EXPORT_TARGETS = {
    **{level: ("x86_64-unknown-linux-gnu", level) for level in _LEVELS},
    "aarch64": ("aarch64-unknown-linux-gnu", "generic"),
}
# What PTX is written for; a driver compiles it for its GPU, if that is not older.
PTX_ARCHITECTURES = ("sm_80", "sm_90")
# Levels 1, 2 and 3 take the same time and give the same code for our kernels; level 0 spills, up to 6 times slower.
_CODEGEN_LEVEL = 2
_library_numbers = itertools.count()
_parts = later("compiler.parts:parts")
# What begins the object code of several parts: then their number, the size of each, and what LLVM made of each.
_PARTS = b"weft parts\r\n"
# Held while code is made, from the imports that takes to the loaded library. A fork waits for it: a child would wait
# for ever for a thread that it does not have, if that held one of LLVM's locks or was importing a module. One lock
# for all who make code, so that no two can wait for each other; reentrant, because a program asks for kernels.
compiling = threading.RLock()


def _before_fork():
    compiling.acquire()
    emission.wait_for_all()


at_fork(before=_before_fork, after_in_parent=compiling.release, after_in_child=compiling.release)


class NoCompiler(ModuleNotFoundError):
    """What makes machine code is not installed. Who has another way goes on without."""

    def __init__(self, message):
        super().__init__(message, name="llvmlite")


def is_compiling():
    """Whether code is being made, in whatever thread. (From Python 3.14 on the lock can be asked.)"""
    return not repr(compiling).startswith("<unlocked")


class Target(NamedTuple):
    """What kernels are compiled for, known without LLVM so that it can be part of a cache key.

    cpu and features describe the processor in the operating system's words; with WEFT_CPU they are LLVM's level name
    and nothing. float_lanes: how many float32 a kernel's vectors hold (16 fill an AVX-512 register).
    """

    triple: str
    cpu: str
    features: str
    float_lanes: int


class Library:
    """Linked code, alive as long as this object: reference it while any of its addresses may be called. (Code that is
    alive when the interpreter ends is never freed.)

    engine names the linker that was used; refusal says why it is not the chosen one, or is None.
    """

    __slots__ = ("engine", "refusal", "_owner", "_find", "__weakref__")

    def __init__(self, engine, owner, find, refusal=None):
        self.engine = engine
        self.refusal = refusal
        self._owner = owner
        self._find = find
        keep_at_end(self)

    def address(self, name):
        """The address of a global function. Raises KeyError if the object defines none of that name."""
        try:
            with compiling:
                found = self._find(name)
        except RuntimeError as error:  # LLJIT links now, and prints which function it lacks if it does not know one
            raise KeyError(f"the object gives no global symbol {name!r}: {error}") from error
        if not found:
            raise KeyError(f"the object gives no global symbol {name!r}")
        return found

    def __repr__(self):
        return f"Library(engine={self.engine!r})"


class Compilation:
    """Modules that LLVM is making object code of, each at the same time as the others and as what the caller does
    meanwhile, if this system has threads for it. While it is begun and finished `compiling` is held."""

    __slots__ = ("_texts", "_emission")

    def __init__(self, texts):
        self._texts = texts
        self._emission = None
        tools = _tools()
        if tools is not None:
            with contextlib.suppress(OSError):  # no more threads for this process
                self._emission = emission.begin(texts, tools, _machines(target()), min(wanted(), n_cpus()))

    def wait(self):
        """Until LLVM's threads have ended: for who does not hold `compiling` meanwhile."""
        if self._emission:
            self._emission.wait()

    def finish(self):
        """The object code of all. Raises RuntimeError, with LLVM's words, on bad text; whatever is raised while the
        caller waits, such as by a handler of Ctrl-C, gets through at once."""
        objects = self._emission.finish() if self._emission else [None] * len(self._texts)
        objects = [code or _emit(text) for code, text in zip(objects, self._texts)]
        if len(objects) == 1:
            return objects[0]
        sizes = [len(objects), *map(len, objects)]
        return b"".join([_PARTS, struct.pack(f"<{len(sizes)}Q", *sizes), *objects])


def begin(ir):
    """The Compilation of a module as a whole."""
    return Compilation([ir])


def begin_in_parts(ir):
    """The Compilation of a module that may be cut into parts: calls between these cost a jump more."""
    return Compilation(_parts(ir))


def compile_text(ir):
    """Object code of a module in LLVM IR text, for `target()`. Raises RuntimeError, with LLVM's words, on bad text.

    The code is position independent: within an object every reference is relative to the instruction.
    """
    with compiling:
        return begin(ir).finish()


def assembly(ir):
    """The assembly text of what compile_text gives."""
    with compiling:
        return _machine().emit_assembly(_parse(ir))


def export_target(name):
    """What the compiler knows of a target of compile_for. Raises ValueError for another name."""
    if name == "native":
        return kernel_target()
    if name not in EXPORT_TARGETS:
        raise ValueError(f"target={name!r}: must be 'native' or one of {', '.join(EXPORT_TARGETS)}")
    return target_for(_LEVELS.get(name, 8), name in _WITH_HALVES)


def compile_for(ir, name):
    """Object code of a module for "native" or one of EXPORT_TARGETS, to be linked by a linker."""
    if name == "native":
        return compile_text(ir)
    with compiling:
        binding = _llvm()
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        triple, cpu = EXPORT_TARGETS[name]
        machine = binding.Target.from_triple(triple).create_target_machine(
            cpu=cpu, opt=_CODEGEN_LEVEL, reloc="pic", codemodel="default"
        )
        module = _parse(ir)
        module.triple = triple
        return machine.emit_object(module)


def ptx(ir, architecture):
    """The PTX text of kernels for one of PTX_ARCHITECTURES. (LLVM ends the process where it does not know a name.)"""
    assert architecture in PTX_ARCHITECTURES, architecture
    with compiling:
        binding = _llvm()
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        triple = "nvptx64-nvidia-cuda"
        machine = binding.Target.from_triple(triple).create_target_machine(
            cpu=architecture, opt=_CODEGEN_LEVEL, codemodel="default"
        )
        module = _parse(ir)
        module.triple, module.data_layout = triple, str(machine.target_data)
        return machine.emit_assembly(module)


class ManyTimes:
    """Object code that is linked again and again, as that of programs for many sizes: `elf` reads it once."""

    __slots__ = ("code", "prepared")

    def __init__(self, code):
        self.code, self.prepared = code, None


def link(code):
    """Load object code with the engine of WEFT_JIT; an object that `elf` refuses goes to `lljit`, which is noted. It is
    bytes, or ManyTimes."""
    with compiling:
        engine = _engine()
        if isinstance(code, ManyTimes):
            if engine == "elf":
                return _link_again(code)
            code = code.code
        return _LINKERS[engine](_objects(code))


def _objects(code):
    """The objects that object code consists of."""
    if not code.startswith(_PARTS):
        return [code]
    at = len(_PARTS)
    (count,) = struct.unpack_from("<Q", code, at)
    ends = list(itertools.accumulate(struct.unpack_from(f"<{count}Q", code, at + 8), initial=at + 8 + 8 * count))
    return [code[first:end] for first, end in itertools.pairwise(ends)]


def target():
    """The Target of this process. Reads /proc/cpuinfo, or asks LLVM where there is none."""
    return _describe(os.environ.get("WEFT_CPU", ""))


def kernel_target():
    """What the compiler knows of that processor."""
    found = target()
    with_halves = found.cpu in _WITH_HALVES or "f16c" in found.features.split()
    return target_for(found.float_lanes, with_halves, found.cpu.startswith(_MOVING_HALVES))


@functools.cache
def _describe(level):
    machine = os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "unknown")
    triple = f"{machine}-{sys.platform}"
    if level:
        if level not in _LEVELS:
            raise ValueError(f"WEFT_CPU={level}: must be one of {', '.join(_LEVELS)}")
        return Target(triple, level, "", _LEVELS[level])
    cpu, features = _processor()
    return Target(triple, cpu, features, 16 if "avx512f" in features.split() else 8)


def _processor():
    """(model, sorted feature flags) of the first processor."""
    try:
        # Unbuffered, because the kernel makes the text as it is read, and for a hundred processors that takes a while.
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            lines = file.read(8192).decode(errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        binding = _llvm()
        features = binding.get_host_cpu_features()
        return binding.get_host_cpu_name(), " ".join(sorted(name for name, present in features.items() if present))
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    names = ("vendor_id", "cpu family", "model", "stepping", "model name", "cpu implementer", "cpu part", "cpu variant")
    flags = fields.get("flags") or fields.get("features") or ""
    return " ".join(fields[name] for name in names if name in fields), " ".join(sorted(flags.split()))


def _engine():
    engine = os.environ.get("WEFT_JIT") or _default_engine()
    if engine not in ENGINES:
        raise ValueError(f"WEFT_JIT={engine}: must be one of {', '.join(ENGINES)}")
    return engine


def _default_engine():
    return "elf" if target().triple == "x86_64-linux" else "lljit"


# --- LLVM -------------------------------------------------------------------------------------------------------------
@functools.cache
def _llvm():
    # Imported here, at the first compile, because it maps a 180 MB library (60 to 110 ms) and a process whose kernels
    # are all in the disk cache never needs it.
    expect_logging()
    try:
        from llvmlite import binding
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "llvmlite":
            raise
        raise NoCompiler(
            "weft compiles what NumPy does not compute, eager mode's kernels for exp, sums and products too, and needs "
            "llvmlite for that, which is not installed: pip install llvmlite"
        ) from error

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def _machine():
    return _cached_machine(target())


@functools.cache
def _cached_machine(wanted):
    return _new_machine(wanted)


def _new_machine(wanted):
    binding = _llvm()
    if wanted.cpu in _LEVELS:
        cpu, features = wanted.cpu, ""
    else:
        cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=_CODEGEN_LEVEL, reloc="pic", codemodel="small"
    )


@functools.cache
def _tools():
    """What threads need to call LLVM, or None where they cannot."""
    functions = emission.functions_of(_llvm().ffi.lib)
    return functions and emission.tools_from(functions, link, _emit)


@functools.cache
def _machines(processor):
    return emission.Machines(functools.partial(_new_machine, processor))


def _emit(ir):
    return _machine().emit_object(_parse(ir))


def _parse(ir):
    binding = _llvm()
    # A context of its own: in the global one, types and metadata of every kernel ever compiled would pile up.
    module = binding.parse_assembly(ir, binding.create_context())
    module.verify()
    return module


def _link_elf(objects):
    try:
        memory, addresses = elf.load(*objects)
    except elf.CannotLoad as refusal:
        return _link_lljit(objects, refusal=str(refusal))
    return Library("elf", memory, addresses.get)


def _link_again(many):
    try:
        many.prepared = many.prepared or [elf.prepare(data) for data in _objects(many.code)]
        memory, addresses = elf.load_prepared(many.prepared)
    except elf.CannotLoad as refusal:
        return _link_lljit(_objects(many.code), refusal=str(refusal))
    return Library("elf", memory, addresses.get)


@functools.cache
def _lljit():
    return _llvm().create_lljit_compiler()


def _link_lljit(objects, refusal=None):
    jit, name = _lljit(), f"weft{next(_library_numbers)}"
    builder = _llvm().JITLibraryBuilder().add_current_process()
    for code in objects:
        builder.add_object_img(code)
    trackers = _unseen([builder.link(jit, name)])

    def find(symbol):
        tracker = jit.lookup(name, symbol)
        trackers.item().append(tracker)
        return tracker[symbol]

    return Library("lljit", trackers, find, refusal)


def _link_mcjit(objects):
    binding = _llvm()
    # One engine per library: a shared one cannot give memory back.
    empty = binding.parse_assembly("", binding.create_context())
    engine = binding.create_mcjit_compiler(empty, _new_machine(target()))
    for code in objects:
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    held = _unseen(engine)
    return Library("mcjit", held, lambda symbol: held.item().get_function_address(symbol))


def _unseen(owner):
    """A holder that hides what it holds from the garbage collector, as NumPy's arrays do.

    llvmlite's objects free their code in finalizers, which the collector calls in any order for a cycle: a context
    before the modules in it, code before a finalizer of the user's that calls it. Hidden, they go with the holder,
    after all finalizers, and one after the other.
    """
    holder = np.empty((), object)
    holder[()] = owner
    return holder


_LINKERS = {"elf": _link_elf, "lljit": _link_lljit, "mcjit": _link_mcjit}
