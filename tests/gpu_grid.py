"""Runs kernels for a GPU on this machine: the LLVM IR that becomes PTX, compiled for the CPU. Not a test.

Of a grid one warp runs at a time. Its 32 threads are coroutines (contexts of the C library), which take turns where the
warp's threads exchange registers or wait for each other: in lane order, so that a run is the same every time.

    lane 0 ... exchange  lane 1 ... exchange  ...  lane 31 ... exchange  lane 0 goes on ...

The threads then also end in lane order. One that comes to fewer exchanges than the others is found: Divergence. So is
a write outside of the memory that a kernel was given.
"""

import ctypes
import re

import numpy as np
from llvmlite import binding

_WARP = 32
_CONTEXT_BYTES, _STACK_BYTES = 8192, 1 << 18
_ZONE, _FILL = 256, 0xA5

# Contexts of the lanes one after the other, then that of the caller.
_SUPPORT = f"""
@contexts = global ptr null
@operands = global ptr null
@blocks = global i32 0
@warps = global i32 0
@trouble = global i32 0
@slots = global [{_WARP} x i32] zeroinitializer
@ended = global [{_WARP} x i32] zeroinitializer
declare i32 @swapcontext(ptr, ptr)
declare i32 @setcontext(ptr)

define internal ptr @context_of(i32 %lane) {{
  %all = load ptr, ptr @contexts
  %at = mul i32 %lane, {_CONTEXT_BYTES}
  %own = getelementptr i8, ptr %all, i32 %at
  ret ptr %own
}}

define internal void @take_turns(i32 %tid) {{
  %lane = and i32 %tid, {_WARP - 1}
  %after = add i32 %lane, 1
  %next = and i32 %after, {_WARP - 1}
  %place = getelementptr i32, ptr @ended, i32 %next
  %over = load i32, ptr %place
  %diverged = icmp ne i32 %over, 0
  br i1 %diverged, label %give_up, label %go_on
give_up:
  store i32 1, ptr @trouble
  %caller = call ptr @context_of(i32 {_WARP})
  %never = call i32 @setcontext(ptr %caller)
  unreachable
go_on:
  %own = call ptr @context_of(i32 %lane)
  %other = call ptr @context_of(i32 %next)
  %back = call i32 @swapcontext(ptr %own, ptr %other)
  ret void
}}

define internal void @end(i32 %lane) {{
  %own = getelementptr i32, ptr @ended, i32 %lane
  store i32 1, ptr %own
  %is_first = icmp eq i32 %lane, 0
  %before = sub i32 %lane, 1
  %known = select i1 %is_first, i32 %lane, i32 %before
  %place = getelementptr i32, ptr @ended, i32 %known
  %over = load i32, ptr %place
  %in_order = icmp ne i32 %over, 0
  br i1 %in_order, label %done, label %give_up
give_up:
  store i32 1, ptr @trouble
  %caller = call ptr @context_of(i32 {_WARP})
  %never = call i32 @setcontext(ptr %caller)
  unreachable
done:
  ret void
}}

define internal i32 @exchange(i32 %tid, i32 %mask, i32 %x, i32 %from, i32 %clamp) {{
  %lane = and i32 %tid, {_WARP - 1}
  %own = getelementptr i32, ptr @slots, i32 %lane
  store i32 %x, ptr %own
  call void @take_turns(i32 %tid)
  %inside = and i32 %from, {_WARP - 1}
  %other = getelementptr i32, ptr @slots, i32 %inside
  %found = load i32, ptr %other
  call void @take_turns(i32 %tid)
  ret i32 %found
}}

define internal i1 @any(i32 %tid, i32 %mask, i1 %x) {{
entry:
  %word = zext i1 %x to i32
  %lane = and i32 %tid, {_WARP - 1}
  %own = getelementptr i32, ptr @slots, i32 %lane
  store i32 %word, ptr %own
  call void @take_turns(i32 %tid)
  br label %look
look:
  %k = phi i32 [ 0, %entry ], [ %following, %look ]
  %sum = phi i32 [ 0, %entry ], [ %more, %look ]
  %place = getelementptr i32, ptr @slots, i32 %k
  %one = load i32, ptr %place
  %more = or i32 %sum, %one
  %following = add i32 %k, 1
  %last = icmp eq i32 %following, {_WARP}
  br i1 %last, label %done, label %look
done:
  call void @take_turns(i32 %tid)
  %found = icmp ne i32 %more, 0
  ret i1 %found
}}

define internal void @meet(i32 %tid, i32 %mask) {{
  call void @take_turns(i32 %tid)
  ret void
}}
"""
_RUN = """
define void @run_{name}(i32 %lane) {{
entry:
  %operands = load ptr, ptr @operands
{loads}
  %blocks = load i32, ptr @blocks
  %warps = load i32, ptr @warps
  %all = mul i32 %blocks, %warps
  br label %next
next:
  %k = phi i32 [ 0, %entry ], [ %following, %work ]
  %over = icmp eq i32 %k, %all
  br i1 %over, label %done, label %work
work:
  %block = udiv i32 %k, %warps
  %warp = urem i32 %k, %warps
  %first = mul i32 %warp, 32
  %tid = add i32 %first, %lane
  call void @{name}(i32 %tid, i32 %block, {operands})
  %following = add i32 %k, 1
  br label %next
done:
  call void @end(i32 %lane)
  ret void
}}
"""
_KERNEL = re.compile(r"define ptx_kernel void @(\w+)\(([^)]*)\)")
_CALLS = {
    "call i32 @llvm.nvvm.read.ptx.sreg.tid.x()": "add i32 %tid, 0",
    "call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()": "add i32 %block, 0",
    "@llvm.nvvm.shfl.sync.idx.i32(": "@exchange(i32 %tid, ",
    "@llvm.nvvm.vote.any.sync(": "@any(i32 %tid, ",
    "@llvm.nvvm.bar.warp.sync(": "@meet(i32 %tid, ",
}


class Divergence(Exception):
    """Threads of a warp took different ways to where they must be together."""


def emulated_text(text):
    """The same kernels for a CPU, with the numbers of their thread and block as parameters."""
    kernels = _KERNEL.findall(text)
    text = "\n".join(line for line in text.split("\n") if not line.startswith("declare") or "@llvm.nvvm." not in line)
    for old, new in _CALLS.items():
        text = text.replace(old, new)
    assert "nvvm.read" not in text and "@llvm.nvvm" not in text
    text = _KERNEL.sub(r"define internal void @\1(i32 %tid, i32 %block, \2)", text)
    runs = []
    for name, parameters in kernels:
        count = len(parameters.split(","))
        loads = [
            f"  %place{k} = getelementptr ptr, ptr %operands, i32 {k}\n  %operand{k} = load ptr, ptr %place{k}"
            for k in range(count)
        ]
        operands = ", ".join(f"ptr %operand{k}" for k in range(count))
        runs.append(_RUN.format(name=name, loads="\n".join(loads), operands=operands))
    return "\n".join([_SUPPORT, text, *runs])


class Grid:
    """The kernels of a GpuProgram, ready to run here."""

    def __init__(self, program):
        self.program = program
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        module = binding.parse_assembly(emulated_text(program.text))
        machine = binding.Target.from_default_triple().create_target_machine(
            cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=1, jit=True
        )
        self.engine = binding.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        self.libc = ctypes.CDLL(None)
        self.contexts = np.zeros((_WARP + 1) * _CONTEXT_BYTES + 64, np.uint8)
        self.first_context = -(-self.contexts.ctypes.data // 64) * 64
        self.stacks = np.zeros(_WARP * _STACK_BYTES, np.uint8)
        self.set("contexts", self.first_context, ctypes.c_size_t)

    def word(self, name, kind):
        return kind.from_address(self.engine.get_global_value_address(name))

    def set(self, name, value, kind=ctypes.c_int32):
        self.word(name, kind).value = value

    def __call__(self, inputs, outputs, numbers=b""):
        """Run all launches on arrays of NumPy: `inputs` may be changed in place, `outputs` are written."""
        areas = {k: Area(n) for k, n in (("arena", self.program.arena_bytes), ("scratch", self.program.scratch_bytes))}
        areas["numbers"], areas["failed"] = Area(max(len(numbers), 8)), Area(1)
        areas["failed"].bytes[0] = 0
        areas["numbers"].bytes[: len(numbers)] = np.frombuffer(numbers, np.uint8)
        shown = [Area(x.nbytes) for x in outputs]
        for launch in self.program.launches:
            words = []
            for o in launch.operands:
                if o.kind == "input":
                    words.append(inputs[o.index].ctypes.data)
                elif o.kind == "output":
                    words.append(shown[o.index].address)
                else:
                    words.append(areas[o.kind].address + (8 * o.index if o.kind == "numbers" else o.index))
            self.launch(launch, words)
        for x, area in zip(outputs, shown):
            np.copyto(x.reshape(-1).view(np.uint8), area.bytes)
        for area in (*areas.values(), *shown):
            assert area.is_whole(), "a kernel wrote outside of its memory"
        self.failed = bool(areas["failed"].bytes[0])
        return outputs

    def launch(self, launch, words):
        table = np.array(words, np.uint64)
        self.set("operands", table.ctypes.data, ctypes.c_size_t)
        self.set("blocks", launch.blocks)
        self.set("warps", launch.threads // _WARP)
        self.set("trouble", 0)
        ctypes.memset(self.engine.get_global_value_address("ended"), 0, 4 * _WARP)
        function = self.engine.get_function_address(f"run_{launch.kernel}")
        for lane in range(_WARP):
            self.begin(lane, function)
        self.libc.swapcontext(ctypes.c_void_p(self.context(_WARP)), ctypes.c_void_p(self.context(0)))
        if self.word("trouble", ctypes.c_int32).value:
            raise Divergence(launch.kernel)

    def context(self, lane):
        return self.first_context + lane * _CONTEXT_BYTES

    def begin(self, lane, function):
        """A coroutine for a lane; when it ends, the next lane goes on, and after the last the caller."""
        own = self.context(lane)
        self.libc.getcontext(ctypes.c_void_p(own))
        # ucontext_t of the GNU C library: flags, link, then where the stack begins, flags, and its size.
        words = (ctypes.c_size_t * 5).from_address(own)
        words[1], words[2], words[4] = (
            self.context(lane + 1),
            self.stacks.ctypes.data + lane * _STACK_BYTES,
            _STACK_BYTES,
        )
        self.libc.makecontext(ctypes.c_void_p(own), ctypes.c_void_p(function), 1, ctypes.c_int(lane))


class Area:
    """Memory with a zone on either side that nobody may write."""

    def __init__(self, n_bytes):
        self.memory = np.full(n_bytes + 2 * _ZONE + 64, _FILL, np.uint8)
        self.start = _ZONE + -(self.memory.ctypes.data + _ZONE) % 64
        self.bytes = self.memory[self.start : self.start + n_bytes]
        self.address = self.memory.ctypes.data + self.start

    def is_whole(self):
        stop = self.start + len(self.bytes)
        return np.all(self.memory[: self.start] == _FILL) and np.all(self.memory[stop:] == _FILL)
