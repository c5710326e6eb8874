"""Loads an x86-64 ELF relocatable object, as LLVM writes it, into memory that can be executed. Needs no LLVM.

A kernel from the disk cache is called a fraction of a millisecond after it was read, while importing LLVM first costs
60 to 110 ms. Kernels use little of ELF: four kinds of section, six of relocation, a handful of C functions. Whatever is
not in the tables below raises `CannotLoad`, and `weft.runtime.code.jit` hands the object to LLVM's own linker instead.

    memory, addresses = load(object_bytes)      # addresses["name"] is valid as long as `memory` is referenced

Several objects that need each other are loaded together. The memory of each is one private mapping:

    | .text .rodata  links (one per external function)  |  .data .bss    |
    | read + execute, once filled                       |  read + write  |

Unwinding tables (.eh_frame) are not loaded: nothing throws through a kernel.
Source: System V Application Binary Interface, AMD64 Architecture Processor Supplement, chapter 4.
"""

import collections
import ctypes
import functools
import mmap
import os
import struct

import numpy as np

# What LLVM calls where it has no instruction: memory intrinsics, `frem`, and rounding and fma on CPUs before AVX; and
# `pow`, by which exported functions compute what Python does with counts (compiler/formula.py).
EXTERNAL_FUNCTIONS = frozenset(
    ("memcpy", "memmove", "memset")
    + ("pow", "fmod", "fma", "floor", "ceil", "trunc", "rint", "roundeven")
    + ("fmodf", "fmaf", "floorf", "ceilf", "truncf", "rintf", "roundevenf")
)

_FILE_HEADER = struct.Struct("<7s9xHH20xQ12xHH")  # class, type, machine, sections: offset, count, index of names
_OBJECT_FOR_X86_64 = (b"\x7fELF\x02\x01\x01", 1, 62)
_SECTION = struct.Struct("<IIQQQQIIQQ")
_Section = collections.namedtuple("_Section", "name type flags address offset size link info alignment entry_size")
_SYMBOL = np.dtype("<u4, u1, u1, <u2, <i8, <i8")
_SYMBOL.names = ("name", "info", "other", "section", "value", "size")
_RELOCATION = np.dtype("<i8, <u4, <u4, <i8")
_RELOCATION.names = ("offset", "kind", "symbol", "addend")
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_WRITE, _ALLOC = 1, 2
_UNDEFINED = 0

# By name, because only names tell constructors (.ctors, .init_array) from data; those are for LLVM's linker.
_LOADED_SECTIONS = (".text", ".rodata", ".data", ".bss")
_SKIPPED_SECTIONS = (".eh_frame", ".note")

# How a kind of relocation is computed; 0 for kinds this loader does not know.
_RELATIVE, _THROUGH_SLOT, _ABSOLUTE = 1, 2, 3
_RULES = np.zeros(64, np.int8)
_RULES[[2, 4]] = _RELATIVE  # R_X86_64_PC32, PLT32
_RULES[[9, 41, 42]] = _THROUGH_SLOT  # R_X86_64_GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_RULES[1] = _ABSOLUTE  # R_X86_64_64

# A link is an address slot, then `jmp *slot(%rip)`: a call reaches any distance through it, a load reads the slot.
_LINK = struct.Struct("<Q2si2x")
_ADDRESS = struct.Struct("<Q")
_JUMP_AT, _JUMP, _JUMP_BACK = 8, b"\xff\x25", -14


class CannotLoad(Exception):
    """The object needs something this loader does not do; the message says what."""


class _Object(collections.namedtuple("_Object", "data sections symbols names")):
    """The file's bytes, its sections, its symbols (an array of _SYMBOL) and the text their names point into."""

    __slots__ = ()

    def name(self, symbol):
        return _text(self.names, int(self.symbols["name"][symbol]))


class Prepared(
    collections.namedtuple("Prepared", "content size writable_at global_places moved_at moved_values needed")
):
    """What of a loaded object does not depend on where it is: its bytes, for a mapping that begins at address 0, and
    how long that is; where the addresses in there are, and what they are then; (place, name) of those of functions
    that it does not define. So code that is loaded many times is read once."""

    __slots__ = ()

    def fill(self, memory, base, known):
        """Write it, with the addresses of global symbols known, and make it executable."""
        memory[: len(self.content)] = self.content
        image = np.frombuffer(memory, np.uint8)
        image[self.moved_at] = (self.moved_values + base).view(np.uint8).reshape(-1, 8)
        for place, name in self.needed:
            _ADDRESS.pack_into(memory, place, known.get(name) or external_address(name))
        _make_executable(base, self.writable_at)


def load(*objects):
    """Map, relocate and protect object files; returns (memory, {global symbol: address}).

    A symbol that is not defined is another object's of these, or one of EXTERNAL_FUNCTIONS. Raises CannotLoad for an
    object outside the tables of this module, and where the system forbids new executable memory. The memory is never
    writable and executable at once.
    """
    return load_prepared([prepare(data) for data in objects])


def load_prepared(objects):
    """The same of what `prepare` has made of each."""
    mapped, known = [], {}
    for prepared in objects:
        memory, base = _mapped(prepared.size)
        mapped.append((memory, base))
        known |= {name: base + place for name, place in prepared.global_places.items()}
    for prepared, (memory, base) in zip(objects, mapped):
        prepared.fill(memory, base, known)
    return [memory for memory, _ in mapped], known


def prepare(data):
    """The Prepared of an object file. Raises CannotLoad for one outside the tables of this module."""
    try:
        file = _read(data)
        relocations = _read_relocations(file)
    except (struct.error, IndexError, ValueError) as error:
        raise CannotLoad(f"not a whole ELF object: {error}") from error
    places, links, writable_at, size = _layout(file, relocations)
    symbols = _symbol_places(file.symbols, places, links)
    content = bytearray(_end_of_content(file, places, links))
    _fill(content, file, places)
    moved, needed = _write_links(content, file, links, symbols)
    image = np.frombuffer(content, np.uint8)
    for section, table in relocations:
        moved += _relocate(image, file, table, places[section] + table["offset"], symbols, links)
    at = np.array(moved, np.int64).reshape(-1, 1) + np.arange(8)
    values = image[at].view("<i8").ravel()
    return Prepared(bytes(content), size, writable_at, _global_places(file, symbols), at, values, needed)


@functools.cache
def external_address(name):
    """The address of one of EXTERNAL_FUNCTIONS in this process. Raises CannotLoad if it has no such function."""
    function = getattr(_process(), name, None) if name in EXTERNAL_FUNCTIONS else None
    if function is None:
        raise CannotLoad(f"refers to {name!r}, which is not among the library functions a kernel may call")
    return ctypes.cast(function, ctypes.c_void_p).value


def _mapped(size):
    """(private memory of so many bytes, its address)."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return memory, np.frombuffer(memory, np.uint8).ctypes.data


# --- reading ----------------------------------------------------------------------------------------------------------
def _read(data):
    *kind, start, count, names = _FILE_HEADER.unpack_from(data)
    if tuple(kind) != _OBJECT_FOR_X86_64:
        raise CannotLoad("not a relocatable ELF object for x86-64")
    table = data[start : start + _SECTION.size * count]
    sections = [_Section._make(fields) for fields in _SECTION.iter_unpack(table)]
    names = _content(data, sections[names])
    sections = [section._replace(name=_text(names, section.name)) for section in sections]
    for section in sections:
        if section.type == _SYMTAB:
            names = _content(data, sections[section.link])
            return _Object(data, sections, np.frombuffer(_content(data, section), _SYMBOL), names)
    raise CannotLoad("the object defines no symbol")


def _read_relocations(file):
    """(section they patch, array of _RELOCATION), for sections that are loaded."""
    return [
        (section.info, np.frombuffer(_content(file.data, section), _RELOCATION))
        for section in file.sections
        if section.type == _RELA and _is_loaded(file.sections[section.info])
    ]


def _content(data, section):
    content = data[section.offset : section.offset + section.size]
    if len(content) != section.size:
        raise ValueError(f"a section ends at byte {section.offset + section.size} of {len(data)}")
    return content


def _text(names, start):
    return names[start : names.index(b"\0", start)].decode()


def _is_loaded(section):
    if not section.flags & _ALLOC or section.name.startswith(_SKIPPED_SECTIONS):
        return False
    if not section.name.startswith(_LOADED_SECTIONS) or section.alignment > mmap.PAGESIZE:
        raise CannotLoad(f"section {section.name} of alignment {section.alignment}")
    return True


# --- placing ----------------------------------------------------------------------------------------------------------
def _layout(file, relocations):
    """Offsets in the mapping: (of each section or -1, of each symbol's link or -1, of writable data, its end)."""
    constant, writable = [], []
    for index, section in enumerate(file.sections):
        if _is_loaded(section):
            (writable if section.flags & _WRITE else constant).append(index)
    linked = _linked_symbols(file.symbols, relocations)
    places, links = np.full(len(file.sections), -1), np.full(len(file.symbols), -1)
    end = _round_up(_place(places, file.sections, constant, 0), _LINK.size)
    links[linked] = end + _LINK.size * np.arange(len(linked))
    writable_at = _round_up(end + _LINK.size * len(linked), mmap.PAGESIZE)
    end = max(_place(places, file.sections, writable, writable_at), mmap.PAGESIZE)
    if end >> 31:
        raise CannotLoad(f"{end} bytes are too far apart for relative addresses")
    return places, links, writable_at, end


def _place(places, sections, chosen, end):
    """Assign offsets from `end` on, in file order; returns the new end."""
    for index in chosen:
        places[index] = _round_up(end, max(sections[index].alignment, 1))
        end = int(places[index]) + sections[index].size
    return end


def _round_up(size, alignment):
    return -(-size // alignment) * alignment


def _linked_symbols(symbols, relocations):
    """The symbols that some relocation reads through a slot, and the external ones."""
    linked = set()
    for _, table in relocations:
        rules = _RULES[np.minimum(table["kind"], len(_RULES) - 1)]
        if not rules.all():
            raise CannotLoad(f"relocations of kind {sorted(set(table['kind'][rules == 0].tolist()))}")
        through_link = (rules == _THROUGH_SLOT) | (symbols["section"][table["symbol"]] == _UNDEFINED)
        linked.update(table["symbol"][through_link].tolist())
    return sorted(linked)


def _symbol_places(symbols, places, links):
    """Of each symbol: where it is placed, the jump of its link if it is external, -1 if it is not loaded."""
    section = symbols["section"]
    place = np.where(section < len(places), places[np.minimum(section, len(places) - 1)], -1)
    external = (section == _UNDEFINED) & (links >= 0)
    return np.where(place >= 0, place + symbols["value"], np.where(external, links + _JUMP_AT, -1))


def _global_places(file, symbols):
    defined = (file.symbols["section"] != _UNDEFINED) & (file.symbols["info"] >> 4 != 0) & (symbols >= 0)
    return {file.name(symbol): int(symbols[symbol]) for symbol in np.flatnonzero(defined)}


def _end_of_content(file, places, links):
    """Where what is written ends: the rest of the mapping is zero."""
    ends = [
        place + section.size
        for section, place in zip(file.sections, places.tolist())
        if place >= 0 and section.type != _NOBITS
    ]
    return max(*ends, int(links.max(initial=-1)) + _LINK.size, 0)


# --- writing ----------------------------------------------------------------------------------------------------------
def _fill(content, file, places):
    for section, place in zip(file.sections, places.tolist()):
        if place >= 0 and section.type != _NOBITS:
            content[place : place + section.size] = _content(file.data, section)


def _write_links(content, file, links, symbols):
    """(where addresses in there are, (place, name) of those that other objects have)."""
    moved, needed = [], []
    for symbol in np.flatnonzero(links >= 0).tolist():
        place, is_needed = int(links[symbol]), file.symbols["section"][symbol] == _UNDEFINED
        _LINK.pack_into(content, place, 0 if is_needed else max(int(symbols[symbol]), 0), _JUMP, _JUMP_BACK)
        if is_needed:
            needed.append((place, file.name(symbol)))
        else:
            moved.append(place)
    return moved, needed


def _relocate(image, file, table, at, symbols, links):
    """Patch the references at offsets `at`, and return which of them are addresses. P: the place, S: its symbol, A: the
    addend, G: the slot of the symbol."""
    symbol, addend, rules = table["symbol"], table["addend"], _RULES[table["kind"]]
    target = symbols[symbol]
    if (target < 0).any():
        raise CannotLoad(f"refers to {file.name(symbol[target < 0][0])!r}, which is not loaded")
    from_start = np.where(rules == _THROUGH_SLOT, links[symbol], target)
    _scatter(image, at, from_start + addend - at, "<i4", rules != _ABSOLUTE)  # S + A - P, G + A - P
    _scatter(image, at, target + addend, "<i8", rules == _ABSOLUTE)  # S + A
    return at[rules == _ABSOLUTE].tolist()


def _scatter(image, at, values, dtype, chosen):
    parts = values[chosen].astype(dtype).view(np.uint8).reshape(-1, np.dtype(dtype).itemsize)
    image[at[chosen, None] + np.arange(parts.shape[1])] = parts


def _make_executable(base, size_bytes):
    if size_bytes and _process().mprotect(ctypes.c_void_p(base), ctypes.c_size_t(size_bytes), 5):  # read | execute
        raise CannotLoad(f"the system refuses executable memory: {os.strerror(ctypes.get_errno())}")


@functools.cache
def _process():
    return ctypes.CDLL(None, use_errno=True)
