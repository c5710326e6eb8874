"""Programs as C functions: one module that whoever links it calls without a runtime.

    i32 @name(ptr array, ..., ptr scratch)          0, or 1 if a check failed

A program (emit/program.py) is called on a table of words: its arena, run-time numbers, routines and arrays. An entry
point makes that table on the stack, from its parameters and what is known now: the routines are in the same module, the
numbers and the arrays that are constants are data of it. So nothing is global that changes, and a function may run in
several threads at once, each with scratch memory of its own.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from .emit.builder import F64, I32, I64, PTR, Builder, Module, Reg
from .emit.gemm import emit_gemm
from .emit.gemv import emit_gemv
from .emit.grid_product import emit_grid_product
from .emit.program import ARRAY_DATA_OFFSET, FIRST_SYMBOL_WORD
from .kernels.library import ROUTINES

_SCRATCH_ALIGNMENT = 64
_POINTER_WORDS = ARRAY_DATA_OFFSET // 8 + 1  # of what stands for an array in the table
_NAMES = re.compile(r"@(?!llvm\.)([A-Za-z_][\w.]*)")  # of a program's text, but for LLVM's own


@dataclass(frozen=True, slots=True)
class Given:
    """An array that the caller has at hand: which parameter it is."""

    parameter: int


@dataclass(frozen=True, slots=True)
class Field:
    """An array whose address is a field of the struct that a parameter points to."""

    parameter: int
    place: int


@dataclass(frozen=True, slots=True)
class Data:
    """An array that is a constant of the module: its bytes."""

    bytes: bytes


@dataclass(frozen=True, slots=True)
class Own:
    """An array that nobody asks for: how many bytes of the scratch memory it takes."""

    n_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A C function. `compiled`: its program; `arrays`: Given, Field, Data or Own for every input and output; `numbers`:
    the run-time numbers, as the bytes of 64-bit words; `n_parameters`: but for the scratch memory; `of_numbers`: it
    also gets the form `double name_scipy(int n, double *x, void *scratch)`, which gives NaN if a check failed."""

    name: str
    compiled: object
    arrays: tuple
    numbers: bytes
    n_parameters: int
    of_numbers: bool = False

    @property
    def scratch_bytes(self):
        return self._own_start + sum(_aligned(a.n_bytes) for a in self.arrays if isinstance(a, Own))

    @property
    def _own_start(self):
        return _aligned(self.compiled.plan.arena_bytes)

    def emit(self, module):
        names = [f"a{k}" for k in range(self.n_parameters)]
        b = Builder(module, self.name, [(n, PTR) for n in (*names, "scratch")], result="i32")
        *parameters, scratch = b.arguments
        symbols = self.compiled.plan.symbols
        first_array = FIRST_SYMBOL_WORD + len(symbols)
        table = b.alloca(I64, first_array + len(self.arrays))
        standing = b.alloca(I64, _POINTER_WORDS * max(len(self.arrays), 1))
        numbers = _data(module, self.numbers)
        words = [scratch, numbers, Reg("null", PTR), *(Reg(f"@weft_{symbol}", PTR) for symbol in symbols)]
        own = self._own_start
        for k, array in enumerate(self.arrays):
            if isinstance(array, Given):
                pointer = parameters[array.parameter]
            elif isinstance(array, Field):
                pointer = b.load(b.offset(parameters[array.parameter], array.place, 8), PTR)
            elif isinstance(array, Data):
                pointer = _data(module, array.bytes)
            else:
                pointer = b.offset(scratch, own, 1)
                own += _aligned(array.n_bytes)
            at = b.offset(standing, k, 8 * _POINTER_WORDS)
            b.store(pointer, b.offset(at, ARRAY_DATA_OFFSET, 1))
            words.append(at)
        for k, word in enumerate(words):
            b.store(word, b.offset(table, k, 8))
        failed = b.call(I64, f"{self.name}_weft_program", [table])
        b.finish(b.convert(b.cmp("ne", failed, b.i64(0)), "i32"))
        if self.of_numbers:
            self.emit_of_numbers(module)

    def emit_of_numbers(self, module):
        b = Builder(module, f"{self.name}_scipy", [("n", I32), ("x", PTR), ("scratch", PTR)], result="double")
        _, x, scratch = b.arguments
        value = b.alloca(F64, 1)
        failed = b.call(I32, self.name, [x, value, scratch])
        number = b.load(value, F64)
        b.finish(b.select(b.cmp("ne", failed, b.const(0, I32)), b.const(float("nan"), F64), number))


def _data(module, content):
    """Bytes that functions of the module share."""
    return constant(module, f"data_{sha256(content).hexdigest()[:16]}", content, "internal ")


def constant(module, name, content, linkage=""):
    """Bytes that are there when the code is; their address."""
    text = "".join(f"\\{byte:02X}" for byte in content or b"\0")
    module.globals[name] = (
        f'@{name} = {linkage}constant [{len(content) or 1} x i8] c"{text}", align {_SCRATCH_ALIGNMENT}'
    )
    return Reg(f"@{name}", PTR)


def export_text(entries, initial, target):
    """LLVM IR text of a module with the entries and, under their names, the bytes of `initial`."""
    module = Module(target)
    for entry in entries:
        entry.emit(module)
    for name, content in initial.items():
        constant(module, name, content)
    programs = [_renamed(e.compiled.text, e.name) for e in entries]
    symbols = sorted({symbol for e in entries for symbol in e.compiled.plan.symbols})
    return _joined([str(module), *programs, *_routines(symbols, target)])


def _routines(symbols, target):
    """The texts of the modules that define them."""
    wanted, texts = {tuple(symbol.rsplit("_", 1)) for symbol in symbols}, []
    # A product with a vector may turn out to be one of matrices.
    wanted |= {("gemm", element) for name, element in wanted if name == "gemv"}
    for name, element in sorted(wanted):
        module = Module(target)
        if name == "gemm":
            emit_gemm(module, element, target)
        elif name == "gemv":
            emit_gemv(module, element, target)
        elif name == "grid":
            emit_grid_product(module, element)
        else:
            ROUTINES[name].emit(module, element)
        place = f"@weft_gemv_{element}_gemm = internal global ptr"
        texts.append(_hidden(str(module).replace(f"{place} null", f"{place} @weft_gemm_{element}")))
    return texts


def _renamed(text, name):
    return _hidden(_NAMES.sub(lambda found: f"@{name}_{found.group(1)}", text))


def _hidden(text):
    """No function of it is seen from outside."""
    return re.sub(r"^define (?!internal )", "define internal ", text, flags=re.MULTILINE)


def _joined(texts):
    """One text, in which what is said for all functions is said once."""
    lines, common = [], {}
    for text in texts:
        for line in text.split("\n"):
            if line.startswith(("declare ", "attributes ")):
                common[line] = None
            else:
                lines.append(line)
    return "\n".join([*lines, *common, ""])


def _aligned(n_bytes):
    return -(-n_bytes // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT
