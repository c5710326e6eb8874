"""Entry points of exported programs: C functions on pointers.

    i32 @name(ptr array, ..., ptr scratch)              0, or 1 if a check failed
    i32 @name(i64 n, ..., ptr array, ..., ptr scratch)  the same with extents; 2 if they are not served
    i64 @name_scratch(i64 n, ...)                       bytes of scratch memory, or -1

A program (emit/program.py) is called on a table of words: its arena, run-time numbers, routines and arrays. An entry
point makes that table on the stack, from its parameters and what is known now: the routines are in the same module, the
numbers and the arrays that are constants are data of it. So nothing is global that changes, and a function may run in
several threads at once, each with scratch memory of its own.

With extents there may be several programs, each for those that its guards name; the first that holds is called.
"""

from dataclasses import dataclass
from functools import reduce
from hashlib import sha256

from .emit.builder import F64, I32, I64, PTR, Builder, Reg
from .emit.program import ARRAY_DATA_OFFSET, FIRST_SYMBOL_WORD
from .extent import evaluate, is_open, marked

LARGEST_EXTENT = 2**31 - 1
# So that no number overflows: of several extents the product, and of scratch memory the bytes.
_LARGEST_PRODUCT, _MOST_BYTES = 2.0**40, 2.0**60
_SCRATCH_ALIGNMENT = 64
_POINTER_WORDS = ARRAY_DATA_OFFSET // 8 + 1  # of what stands for an array in the table
NOT_SERVED = 2
_NULL = Reg("null", PTR)


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

    n_bytes: object


@dataclass(frozen=True, slots=True)
class FieldFollowed:
    """A number in the struct that others follow from: an int64 to which each call adds `steps`, or a float64, in which
    a call leaves what the Formula `after` says, if there is one."""

    name: str
    place: Field
    steps: int | None
    after: object = None


@dataclass(frozen=True, slots=True)
class Body:
    """A program of an entry. `arrays`: Given, Field, Data or Own for every input and output; `numbers`: the run-time
    numbers, as the bytes of 64-bit words; `open_numbers`: (slot, type, polynomial) of those that follow the extents;
    `guards`: (polynomial, comparison, answer) that say for which extents it is. Extents are registers by name.
    `formulas`: (slot, Formula) of the numbers that follow from `fields`, which are FieldFollowed."""

    compiled: object
    arrays: tuple
    numbers: bytes
    open_numbers: tuple = ()
    guards: tuple = ()
    formulas: tuple = ()
    fields: tuple = ()

    @property
    def scratch_bytes(self):
        """A number, or an extent."""
        return self._own_start + sum(aligned(a.n_bytes) for a in self.arrays if isinstance(a, Own))

    @property
    def _own_start(self):
        return aligned(self.compiled.plan.arena_bytes)

    def emit(self, b, name, parameters, scratch, extents, pool=_NULL):
        """Fill the table and call the program `name`; the i32 it gives."""
        symbols = self.compiled.plan.symbols
        first_array = FIRST_SYMBOL_WORD + len(symbols)
        table = b.alloca(I64, first_array + len(self.arrays))
        standing = b.alloca(I64, _POINTER_WORDS * max(len(self.arrays), 1))
        followed = {f.name: _address(b, f.place, parameters, scratch, None, extents) for f in self.fields}
        values = {f.name: b.load(followed[f.name], F64 if f.steps is None else I64) for f in self.fields}
        floats = {name: b.convert(x, "f64") for name, x in values.items()}
        words = [
            scratch,
            self._emit_numbers(b, extents, floats),
            *(Reg(f"@weft_{symbol}", PTR) for symbol in symbols),
        ]
        words.insert(2, pool)
        own = self._own_start
        for k, array in enumerate(self.arrays):
            at = b.offset(standing, k, 8 * _POINTER_WORDS)
            b.store(_address(b, array, parameters, scratch, own, extents), b.offset(at, ARRAY_DATA_OFFSET, 1))
            own += aligned(array.n_bytes) if isinstance(array, Own) else 0
            words.append(at)
        for k, word in enumerate(words):
            b.store(word, b.offset(table, k, 8))
        failed = b.call(I64, f"{name}_weft_program", [*self.emit_extents(b, extents), table])
        moving = [f for f in self.fields if f.steps or f.after]
        if moving:
            with b.when(b.cmp("eq", failed, b.i64(0))):
                for f in moving:
                    new = f.after.emit(b, floats) if f.after else b.add(values[f.name], b.i64(f.steps))
                    b.store(new, followed[f.name])
        return b.convert(b.cmp("ne", failed, b.i64(0)), "i32")

    def _emit_numbers(self, b, extents, values):
        numbers = _data(b.module, self.numbers)
        if not (self.open_numbers or self.formulas):
            return numbers
        own = b.alloca(I64, len(self.numbers) // 8)
        for slot in range(len(self.numbers) // 8):
            b.store(b.load(b.offset(numbers, slot, 8), I64), b.offset(own, slot, 8))
        for slot, element, polynomial in self.open_numbers:
            b.store(b.convert(number_of(b, polynomial, extents), element), b.offset(own, slot, 8))
        for slot, formula in self.formulas:
            b.store(formula.emit(b, values), b.offset(own, slot, 8))
        return own

    def emit_extents(self, b, extents):
        texts = self.compiled.plan.extents
        if not texts:
            return []
        table = b.alloca(I64, len(texts))
        for k, text in enumerate(texts):
            b.store(number_of(b, text, extents), b.offset(table, k, 8))
        return [table]

    def emit_holds(self, b, extents):
        holds = []
        for n in extents.values():
            holds += [b.cmp("ge", n, b.i64(1)), b.cmp("le", n, b.i64(LARGEST_EXTENT))]
        floats = {name: b.convert(n, "f64") for name, n in extents.items()}
        product = reduce(b.mul, floats.values())
        holds.append(b.cmp("le", product, b.const(_LARGEST_PRODUCT, F64)))
        holds.append(b.cmp("le", number_of(b, self.scratch_bytes, floats, F64), b.const(_MOST_BYTES, F64)))
        for polynomial, comparison, answer in self.guards:
            found = b.cmp(_PREDICATES[comparison], number_of(b, polynomial, extents), b.i64(0))
            holds.append(found if answer else b.not_(found))
        return reduce(b.and_, holds)


_PREDICATES = {"<": "lt", "<=": "le", "==": "eq"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A C function. `bodies`: its program, or those for several extents; `n_parameters`: but for the extents and the
    scratch memory; `n_numbers`: of so many numbers it gives one, and also gets the forms that SciPy calls; `extents`:
    names of those that are its first parameters."""

    name: str
    bodies: tuple
    n_parameters: int
    n_numbers: int | None = None
    extents: tuple = ()

    @property
    def body_names(self):
        return [f"{self.name}_for{k}" if self.extents else self.name for k in range(len(self.bodies))]

    @property
    def scratch_bytes(self):
        """None if it depends on extents."""
        return None if self.extents else self.bodies[0].scratch_bytes

    def emit(self, module):
        pointers = [*[(f"a{k}", PTR) for k in range(self.n_parameters)], ("scratch", PTR)]
        if self.extents:
            self._emit_choice(module, self._extent_parameters(), pointers)
            return
        b = Builder(module, self.name, pointers, result="i32")
        *parameters, scratch = b.arguments
        b.finish(self.bodies[0].emit(b, self.name, parameters, scratch, {}))
        if self.n_numbers is not None:
            self.emit_integrand(module)
            self.emit_filter(module)

    def _extent_parameters(self):
        return [(f"extent_{name}", I64) for name in self.extents]

    def _emit_choice(self, module, numbers, pointers):
        for name, body in zip(self.body_names, self.bodies):
            b = Builder(module, name, [*numbers, *pointers], result="i32", linkage="internal")
            *arrays, scratch = b.arguments[len(numbers) :]
            b.finish(body.emit(b, name, arrays, scratch, registers(b, self.extents)))
        b = Builder(module, self.name, [*numbers, *pointers], result="i32")
        which, result = which_body(b, self.bodies, self.extents), b.const(NOT_SERVED, I32)
        for k, name in enumerate(self.body_names):
            result = b.when_value(
                b.cmp("eq", which, b.i64(k)), result, lambda name=name: b.call(I32, name, b.arguments)
            )
        b.finish(result)
        b = Builder(module, f"{self.name}_scratch", numbers, result="i64")
        which, n_bytes = which_body(b, self.bodies, self.extents), b.i64(-1)
        for k, body in enumerate(self.bodies):
            own = number_of(b, body.scratch_bytes, registers(b, self.extents))
            n_bytes = b.select(b.cmp("eq", which, b.i64(k)), own, n_bytes)
        b.finish(n_bytes)

    def emit_integrand(self, module):
        """`double name_scipy(int n, double *x, void *scratch)`, for integration: NaN if there are other numbers than
        so many, or a check failed."""
        b = Builder(module, f"{self.name}_scipy", [("n", I32), ("x", PTR), ("scratch", PTR)], result="double")
        n, x, scratch = b.arguments
        value = b.alloca(F64, 1)
        b.store(b.const(float("nan"), F64), value)
        failed = self._call(b, b.cmp("eq", n, b.const(self.n_numbers, I32)), x, value, scratch)
        b.finish(b.select(failed, b.const(float("nan"), F64), b.load(value, F64)))

    def emit_filter(self, module):
        """`int name_filter(double *x, intptr_t n, double *value, void *scratch)`, for filters of arrays: 0 in that
        case, which SciPy raises an error for."""
        parameters = [("x", PTR), ("n", I64), ("value", PTR), ("scratch", PTR)]
        b = Builder(module, f"{self.name}_filter", parameters, result="i32")
        x, n, value, scratch = b.arguments
        failed = self._call(b, b.cmp("eq", n, b.i64(self.n_numbers)), x, value, scratch)
        b.finish(b.select(failed, b.const(0, I32), b.const(1, I32)))

    def _call(self, b, may_be, x, value, scratch):
        """Whether it has failed, or may not be called with these numbers."""
        code = b.alloca(I32, 1)
        b.store(b.const(1, I32), code)
        with b.when(may_be):
            b.store(b.call(I32, self.name, [x, value, scratch]), code)
        return b.cmp("ne", b.load(code, I32), b.const(0, I32))


def registers(b, names):
    """Of extents, which are the first parameters."""
    return dict(zip(names, b.arguments))


def which_body(b, bodies, names):
    """The first of the bodies that is for these extents, or -1."""
    if not names:
        return b.i64(0)
    which = b.i64(-1)
    for k, body in reversed(list(enumerate(bodies))):
        which = b.select(body.emit_holds(b, registers(b, names)), b.i64(k), which)
    return which


def _address(b, array, parameters, scratch, own, extents):
    if isinstance(array, Given):
        return parameters[array.parameter]
    if isinstance(array, Field):
        return b.load(b.offset(parameters[array.parameter], array.place, 8), PTR)
    if isinstance(array, Data):
        return _data(b.module, array.bytes)
    return b.offset(scratch, number_of(b, own, extents), 1) if is_open(own) else b.offset(scratch, own, 1)


class _Computed:
    """A register as a number: arithmetic with it is code. Of floats it is an estimate."""

    def __init__(self, b, register):
        self.b, self.register = b, register

    def _of(self, other):
        return other.register if isinstance(other, _Computed) else self.b.const(other, self.register.type)

    def _made(self, emit, other):
        return _Computed(self.b, emit(self.register, self._of(other)))

    def __add__(self, other):
        return self._made(self.b.add, other)

    def __mul__(self, other):
        return self._made(self.b.mul, other)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other):
        # What is divided is 0 or more where it is used: a guard says so.
        return self._made(self.b.div, other)

    def __neg__(self):
        return self * -1


def number_of(b, extent, extents, type=I64):
    """The register of an extent, given as such, as its text or as a polynomial; or of a number."""
    text = str(extent)
    found = evaluate(marked(text) or text, {name: _Computed(b, register) for name, register in extents.items()})
    return found.register if isinstance(found, _Computed) else b.const(found, type)


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


def aligned(n_bytes):
    return (n_bytes + _SCRATCH_ALIGNMENT - 1) // _SCRATCH_ALIGNMENT * _SCRATCH_ALIGNMENT
