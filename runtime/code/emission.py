"""LLVM in threads of its own: modules become object code at the same time, and who waits can be interrupted.

    emission = begin(texts, tools)      # threads are at work
    objects = emission.finish()         # [bytes, or None if LLVM did not like a text]

llvmlite puts every call of LLVM under one lock of Python's. LLVM needs that for what is global: its options, its tables
of targets and symbols, engines that share a process. It does not for what is done here, as its manual says, where each
thread has a context, a module and a target machine of its own: read a text, verify it, write object code. So these
calls, and the disposal of what they made, go to LLVM directly; all else, target machines too, goes through llvmlite.

The threads run native code alone (_HELPER) and never meet the interpreter: no finalizer, no signal handler and no lock
of Python's can come in between. Each takes the next text from a list until there is none left. Who waits looks now and
then whether they have ended, and when it is interrupted the texts that were not begun are dropped. Nothing that a
thread reads is freed before it has ended: emissions that are given up stay in `_alive` until then.

Only Linux has such threads; elsewhere, and where llvmlite is not what is expected, `tools` is None and the caller goes
through llvmlite's lock, one text after the other. All of this happens while `jit.compiling` is held.
"""

import atexit
import ctypes
import functools
import sys
import time
from typing import NamedTuple

from weft.compiler.later import imported

# What a thread calls, in the order of its words, with how many arguments llvmlite has declared for it (None: not said).
_CALLED = {
    "ContextCreate": None,
    "ParseAssembly": 3,
    "VerifyModule": 2,
    "TargetMachineEmitToMemory": 4,
    "DisposeModule": 1,
    "ContextDispose": 1,
}
_COLLECTED = {"GetBufferStart": 1, "GetBufferSize": 1, "DisposeMemoryBuffer": 1, "DisposeString": None}

# Words of a list of texts: the next one, how many there are, their records, the signals to block, functions.
_NEXT = 0
# Words of a text's record: its characters, LLVM's messages of three calls, the buffer of object code (0: none).
_TEXT, _MESSAGES, _BUFFER, _RECORD_WORDS = 0, (1, 2, 3), 4, 5
# Words of a thread: its list, its target machine, its handle, whether it has ended.
_THREAD, _ENDED, _THREAD_WORDS = 2, 3, 4
_HELPER = """
define ptr @weft_helper(ptr %helper) {
entry:
  %list = load ptr, ptr %helper
  %machine.at = getelementptr i64, ptr %helper, i64 1
  %machine = load ptr, ptr %machine.at
  %count.at = getelementptr i64, ptr %list, i64 1
  %count = load i64, ptr %count.at
  %records.at = getelementptr i64, ptr %list, i64 2
  %records = load ptr, ptr %records.at
  %signals.at = getelementptr i64, ptr %list, i64 3
  %signals = load ptr, ptr %signals.at
  %sigmask.at = getelementptr i64, ptr %list, i64 4
  %sigmask = load ptr, ptr %sigmask.at
  %create.at = getelementptr i64, ptr %list, i64 5
  %create = load ptr, ptr %create.at
  %parse.at = getelementptr i64, ptr %list, i64 6
  %parse = load ptr, ptr %parse.at
  %verify.at = getelementptr i64, ptr %list, i64 7
  %verify = load ptr, ptr %verify.at
  %emit.at = getelementptr i64, ptr %list, i64 8
  %emit = load ptr, ptr %emit.at
  %dispose.at = getelementptr i64, ptr %list, i64 9
  %dispose = load ptr, ptr %dispose.at
  %leave.at = getelementptr i64, ptr %list, i64 10
  %leave = load ptr, ptr %leave.at
  %masked = call i32 %sigmask(i32 0, ptr %signals, ptr null)
  br label %next
next:
  %k = atomicrmw add ptr %list, i64 1 seq_cst
  %more = icmp ult i64 %k, %count
  br i1 %more, label %begin, label %end
begin:
  %first = mul i64 %k, 5
  %record = getelementptr i64, ptr %records, i64 %first
  %text = load ptr, ptr %record
  %said.parse = getelementptr i64, ptr %record, i64 1
  %said.verify = getelementptr i64, ptr %record, i64 2
  %said.emit = getelementptr i64, ptr %record, i64 3
  %buffer.at = getelementptr i64, ptr %record, i64 4
  %context = call ptr %create()
  %module = call ptr %parse(ptr %context, ptr %text, ptr %said.parse)
  %none = icmp eq ptr %module, null
  br i1 %none, label %done, label %check
check:
  %broken.word = call i8 %verify(ptr %module, ptr %said.verify)
  %broken = icmp ne i8 %broken.word, 0
  br i1 %broken, label %drop, label %write
write:
  %buffer = call ptr %emit(ptr %machine, ptr %module, i32 1, ptr %said.emit)
  store ptr %buffer, ptr %buffer.at
  br label %drop
drop:
  %dropped = call i32 %dispose(ptr %module)
  br label %done
done:
  %left = call i32 %leave(ptr %context)
  br label %next
end:
  %ended.at = getelementptr i64, ptr %helper, i64 3
  store atomic i64 1, ptr %ended.at release, align 8
  ret ptr null
}
"""
_STOPPED = 1 << 62  # more than any count of texts
_STACK_BYTES = 8 << 20  # what a main thread has; libraries of C other than GNU's give threads as little as 128 KiB
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0001, 0.002
# Those that a program cannot go on after: the thread in which they arise must not block them.
_OWN_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")

_alive = []  # emissions whose threads may be at work


class Tools(NamedTuple):
    """What emissions need: functions of LLVM, and the address of the native function."""

    called: tuple
    buffer_start: object
    buffer_size: object
    dispose_buffer: object
    dispose_string: object
    library: object  # of the native function, which stays alive with this
    helper: int


class Machines:
    """Target machines of one target, made by `new`: one for each thread that is at work, kept for the next ones."""

    def __init__(self, new):
        self.new, self.spare = new, []

    def take(self):
        return self.spare.pop() if self.spare else self.new()


def functions_of(library):
    """Functions of LLVM outside llvmlite's lock, by name: llvmlite's own, whose prototypes it has declared. None where
    there are no such threads, or llvmlite has them in another way."""
    if sys.platform != "linux":
        return None
    found = {}
    for name, count in {**_CALLED, **_COLLECTED}.items():
        function = getattr(getattr(library, f"LLVMPY_{name}", None), "_cfn", None)
        if not isinstance(function, ctypes._CFuncPtr):
            return None
        if count is not None and len(function.argtypes or ()) != count:
            return None
        found[name] = function
    return found


def tools_from(functions, link, compile_serially):
    """The Tools, made of functions_of; `link` loads object code, which `compile_serially` makes by llvmlite."""
    library = link(compile_serially(_HELPER))
    atexit.register(stop)
    return Tools(
        tuple(ctypes.cast(functions[name], ctypes.c_void_p).value for name in _CALLED),
        *map(functions.get, _COLLECTED),
        library=library,
        helper=library.address("weft_helper"),
    )


def begin(texts, tools, machines, n_threads):
    """An Emission of modules in IR text, at work, for the target of `machines`. Raises OSError if the system gives no
    thread."""
    _reap()
    emission = Emission(texts, tools, machines)
    _alive.append(emission)
    emission.start(min(n_threads, len(texts)))
    return emission


def stop():
    """Wait until no thread is in LLVM, at the end of the process: the texts that were not begun are dropped. What was
    made is left to who waits for it: a thread of Python's may be about to take it over, and none is to do so twice."""
    emissions = list(_alive)
    for emission in emissions:
        emission.give_up()
    for emission in emissions:
        emission.wait()


def wait_for_all():
    """Wait until no thread is in LLVM: before a fork, whose child would find its locks taken for ever."""
    for emission in _alive:
        emission.wait()
    _reap()


def _reap():
    for emission in list(_alive):
        if not emission.is_running():
            try:
                _alive.remove(emission)
            except ValueError:
                continue  # another thread has it
            emission.collect()


class Emission:
    """Texts that threads are making object code of."""

    def __init__(self, texts, tools, machines):
        self.tools, self.machines = tools, machines
        self.objects = [None] * len(texts)
        self._texts = [text.encode() for text in texts]
        self._records = (ctypes.c_size_t * (_RECORD_WORDS * len(texts)))()
        for k, text in enumerate(self._texts):
            self._records[_RECORD_WORDS * k + _TEXT] = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value
        self._signals = (ctypes.c_uint64 * 16)(_blocked())  # a sigset_t
        sigmask = ctypes.cast(_process().pthread_sigmask, ctypes.c_void_p).value
        given = len(texts), ctypes.addressof(self._records), ctypes.addressof(self._signals), sigmask, *tools.called
        self._list = (ctypes.c_size_t * (1 + len(given)))(0, *given)
        self._threads = []  # (words, target machine)

    def start(self, n_threads):
        """Begin with so many threads, or fewer if the system does not give more."""
        for _ in range(n_threads):
            machine = self.machines.take()
            address = ctypes.cast(machine._ptr, ctypes.c_void_p).value
            words = (ctypes.c_size_t * _THREAD_WORDS)(ctypes.addressof(self._list), address)
            self._threads.append((words, machine))
            if _create_thread(words, self.tools.helper):
                self.machines.spare.append(self._threads.pop()[1])
                break
        if not self._threads:
            raise OSError("no thread could be started")

    def is_running(self):
        """Whether a thread has not ended. (One without a handle was never created.)"""
        return any(words[_THREAD] and not words[_ENDED] for words, _ in self._threads)

    def finish(self):
        """The object code of each text, None where LLVM refuses it. An exception that comes meanwhile, such as that of
        Ctrl-C, ends the wait and drops what has not been begun."""
        try:
            self.wait()
        except BaseException:
            self.give_up()
            raise
        self.collect()
        if self in _alive:  # else a fork has waited for it
            _alive.remove(self)
        return self.objects

    def wait(self):
        pause = _SHORTEST_PAUSE
        while self.is_running():
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def give_up(self):
        self._list[_NEXT] = _STOPPED

    def collect(self):
        """Take over what the threads have made, all of which have ended."""
        records, tools = self._records, self.tools
        for k in range(len(self.objects)):
            first = _RECORD_WORDS * k
            for word in (*_MESSAGES, _BUFFER):
                address, records[first + word] = records[first + word], 0
                if not address:
                    continue
                if word != _BUFFER:
                    tools.dispose_string(ctypes.c_void_p(address))
                    continue
                buffer = ctypes.cast(ctypes.c_void_p(address), tools.buffer_start.argtypes[0])
                self.objects[k] = ctypes.string_at(tools.buffer_start(buffer), tools.buffer_size(buffer))
                tools.dispose_buffer(buffer)
        while self._threads:
            self.machines.spare.append(self._threads.pop()[1])


# --- the system's threads ---------------------------------------------------------------------------------------------
def _blocked():
    """A set of all signals but _OWN_SIGNALS, which the caller's threads shall get."""
    signal = imported("signal")
    own = {getattr(signal, name) for name in _OWN_SIGNALS}
    return sum(1 << (number - 1) for number in signal.valid_signals() if number not in own)


@functools.cache
def _process():
    return ctypes.CDLL(None)


def _create_thread(words, helper):
    """Start a thread that nobody joins; returns an error number, or 0."""
    process = _process()
    attributes = ctypes.create_string_buffer(256)  # a pthread_attr_t, of 56 bytes or 64
    error = process.pthread_attr_init(attributes)
    error = error or process.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
    error = error or process.pthread_attr_setdetachstate(attributes, 1)
    handle = ctypes.byref(words, _THREAD * ctypes.sizeof(ctypes.c_size_t))
    address = ctypes.c_void_p(helper)
    return error or process.pthread_create(handle, attributes, address, ctypes.byref(words))
