"""NumPy arrays, and with them the operands of everything weft computes, between protected pages. Not a test.

    WEFT_TEST_GUARD_PAGES=end pytest ...        every array ends where a page begins that nobody may touch
    WEFT_TEST_GUARD_PAGES=begin pytest ...      every array begins behind such a page

What reads or writes outside of an array ends the process at that instruction: in eager kernels, compiled programs,
native replay, NumPy's own code. Red zones (red_zones.py) see writes only, but those into the arena too. New memory is
filled with a pattern, so that a kernel that forgets an element shows.

    | a page: its size, the array's | protected | the array's pages, flush with one end | protected |
"""

import ctypes
import os

import numpy as np

from weft.runtime.code import jit

MODES = ("end", "begin")
VARIABLE = "WEFT_TEST_GUARD_PAGES"
_SET_HANDLER = 304  # PyDataMem_SetHandler in NumPy's table of functions for extensions

# What NumPy calls to get and give back memory: malloc, calloc, realloc, free. Their first argument is a Context.
_TEXT = """
define ptr @take(ptr %context, i64 %asked) {
  %is_empty = icmp eq i64 %asked, 0
  %size = select i1 %is_empty, i64 1, i64 %asked
  %more = add i64 %size, 4095
  %pages = and i64 %more, -4096
  %total = add i64 %pages, 12288
  %map = load ptr, ptr %context
  %base = call ptr %map(ptr null, i64 %total, i32 3, i32 34, i32 -1, i64 0)
  %failed = icmp eq ptr %base, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %none, label %found
none:
  ret ptr null
found:
  store i64 %total, ptr %base
  %size_at = getelementptr i8, ptr %base, i64 8
  store i64 %size, ptr %size_at
  %protect_at = getelementptr i8, ptr %context, i64 16
  %protect = load ptr, ptr %protect_at
  %before = getelementptr i8, ptr %base, i64 4096
  call i32 %protect(ptr %before, i64 4096, i32 0)
  %first = getelementptr i8, ptr %base, i64 8192
  %behind = getelementptr i8, ptr %first, i64 %pages
  call i32 %protect(ptr %behind, i64 4096, i32 0)
  %mode_at = getelementptr i8, ptr %context, i64 32
  %mode = load i64, ptr %mode_at
  %room = sub i64 %pages, %size
  %shift = mul i64 %room, %mode
  %data = getelementptr i8, ptr %first, i64 %shift
  ret ptr %data
}

define ptr @guard_malloc(ptr %context, i64 %size) {
  %data = call ptr @take(ptr %context, i64 %size)
  %failed = icmp eq ptr %data, null
  br i1 %failed, label %none, label %found
none:
  ret ptr null
found:
  %fill_at = getelementptr i8, ptr %context, i64 24
  %fill = load ptr, ptr %fill_at
  call ptr %fill(ptr %data, i32 195, i64 %size)
  ret ptr %data
}

define ptr @guard_calloc(ptr %context, i64 %count, i64 %each) {
  %size = mul i64 %count, %each
  %data = call ptr @take(ptr %context, i64 %size)
  ret ptr %data
}

define void @guard_free(ptr %context, ptr %data, i64 %size) {
  %is_null = icmp eq ptr %data, null
  br i1 %is_null, label %done, label %give
give:
  %base = call ptr @base_of(ptr %data)
  %total = load i64, ptr %base
  %unmap_at = getelementptr i8, ptr %context, i64 8
  %unmap = load ptr, ptr %unmap_at
  call i32 %unmap(ptr %base, i64 %total)
  br label %done
done:
  ret void
}

define ptr @base_of(ptr %data) {
  %address = ptrtoint ptr %data to i64
  %page = and i64 %address, -4096
  %base = sub i64 %page, 8192
  %place = inttoptr i64 %base to ptr
  ret ptr %place
}

define ptr @guard_realloc(ptr %context, ptr %data, i64 %size) {
  %new = call ptr @guard_malloc(ptr %context, i64 %size)
  %is_null = icmp eq ptr %data, null
  br i1 %is_null, label %done, label %move
move:
  %base = call ptr @base_of(ptr %data)
  %old_at = getelementptr i8, ptr %base, i64 8
  %old = load i64, ptr %old_at
  %is_smaller = icmp ult i64 %old, %size
  %moved = select i1 %is_smaller, i64 %old, i64 %size
  %copy_at = getelementptr i8, ptr %context, i64 40
  %copy = load ptr, ptr %copy_at
  call ptr %copy(ptr %new, ptr %data, i64 %moved)
  call void @guard_free(ptr %context, ptr %data, i64 %old)
  br label %done
done:
  ret ptr %new
}
"""


class _Context(ctypes.Structure):
    _fields_ = [
        ("map", ctypes.c_void_p),
        ("unmap", ctypes.c_void_p),
        ("protect", ctypes.c_void_p),
        ("fill", ctypes.c_void_p),
        ("is_at_end", ctypes.c_int64),
        ("copy", ctypes.c_void_p),
    ]


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * 4),
    ]


def install(mode):
    """From now on new arrays of this thread lie like that."""
    if mode not in MODES:
        raise ValueError(f"{VARIABLE} is {mode!r}; it must be one of {MODES}")
    library = jit.link(jit.compile_text(_TEXT))
    system = ctypes.CDLL(None)
    found = [_address(getattr(system, name)) for name in ("mmap", "munmap", "mprotect", "memset", "memcpy")]
    context = _Context(*found[:4], mode == "end", found[4])
    names = ("malloc", "calloc", "realloc", "free")
    addresses = (ctypes.c_void_p * 4)(*(library.address(f"guard_{name}") for name in names))
    handler = _Handler(b"guard pages", 1, ctypes.addressof(context), addresses)
    # Arrays may outlive every module, and their memory is given back by these.
    for kept in (library, context, handler):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    _set_handler(handler)


def install_if_asked():
    mode = os.environ.get(VARIABLE)
    if mode:
        install(mode)


def _set_handler(handler):
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    core = getattr(np, "_core", None) or np.core
    table = (ctypes.c_void_p * (_SET_HANDLER + 1)).from_address(get(core.multiarray._ARRAY_API, None))
    capsule = new_capsule(ctypes.addressof(handler), b"mem_handler", None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(capsule))
    ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])(capsule)


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value
