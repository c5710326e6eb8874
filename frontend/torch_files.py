"""Reads the files of `torch.save` without PyTorch, and without executing anything.

    name/data.pkl       a pickle: a program of a small stack machine, which says how objects are put together
    name/data/0 ...     the memory of tensors
    name/byteorder      little or big

Python's own reader of pickles calls what a pickle names. This one is the stack machine alone, of which it knows the
instructions that data need; what a pickle names is looked up in a table of plain data, and anything else is refused. So
dicts, lists, numbers, strings and tensors are read, as state dicts are made of, and whole modules are not.
"""

import pickletools
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass

import numpy as np

from .compiler import dtypes
from .nn.parameter import Parameter
from .runtime.state.device import device
from .runtime.state.size import Size
from .runtime.state.tensor import tensor_of


class Refusal(Exception):
    """Something in the file that is no plain data, or damaged."""


# Types of PyTorch's storages.
_STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "LongStorage": "int64", "IntStorage": "int32",
    "BoolStorage": "bool", "HalfStorage": "float16", "BFloat16Storage": "bfloat16", "ByteStorage": "uint8",
    "CharStorage": "int8", "ShortStorage": "int16", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip


def read_pickle(archive, member):
    """The object in an open zip archive, whose pickle is this member."""
    prefix = member.removesuffix("data.pkl")
    names = set(archive.namelist())
    if f"{prefix}byteorder" in names and archive.read(f"{prefix}byteorder") != b"little":
        raise Refusal("was written on a machine with another order of bytes")
    memory = {}

    def read_storage(kind, key, count):
        if key not in memory:
            memory[key] = _array_of(archive.read(f"{prefix}data/{key}"), kind, count)
        return memory[key]

    return _Machine(read_storage).run(archive.read(member))


# --- tensors ----------------------------------------------------------------------------------------------------------
def _array_of(content, name, count):
    """Bytes as an array of elements."""
    if name not in {d.name for d in dtypes.ALL}:
        raise Refusal(f"holds a tensor of {name}, which weft does not have")
    return np.frombuffer(content, dtypes.dtype_named(name).numpy, count).copy()


def _tensor(array, offset, size, stride, requires_grad=False, *_):
    """A tensor of its own memory, from a part of an array."""
    size, stride = tuple(map(int, size)), tuple(map(int, stride))
    last = offset + sum((n - 1) * step for n, step in zip(size, stride))
    inside = offset >= 0 and all(n >= 0 for n in size) and all(step >= 0 for step in stride)
    if len(size) != len(stride) or not inside or (0 not in size and last >= array.size):
        raise Refusal(f"holds a tensor of size {size} and stride {stride}, which is not inside its memory")
    if 0 in size:
        return tensor_of(np.zeros(size, array.dtype))
    steps = [step * array.itemsize for step in stride]
    result = tensor_of(np.lib.stride_tricks.as_strided(array[offset:], size, steps).copy(order="C"))
    result.requires_grad = bool(requires_grad)
    return result


def _parameter(data, requires_grad=True, *_):
    return Parameter(data.detach(), bool(requires_grad))


@dataclass(frozen=True, slots=True)
class _Call:
    """Something that a pickle may call: what it makes is made by `function`."""

    function: object


@dataclass(frozen=True, slots=True)
class _Storage:
    """A type of memory."""

    name: str


def _values(kind):
    return lambda values=(): kind(values)


_NAMED = {
    "collections.OrderedDict": _Call(_values(OrderedDict)),
    "collections.Counter": _Call(_values(Counter)),
    "collections.defaultdict": _Call(lambda factory=None, values=(): defaultdict(None, values)),
    "torch._utils._rebuild_tensor_v2": _Call(_tensor),
    "torch._utils._rebuild_tensor": _Call(_tensor),
    "torch._utils._rebuild_parameter": _Call(_parameter),
    "torch._utils._rebuild_parameter_with_state": _Call(_parameter),
    "torch.Size": _Call(_values(Size)),
    "torch.device": _Call(lambda *given: device(*given)),
    **{f"{home}.{kind.__name__}": _Call(_values(kind)) for home in ("builtins", "__builtin__")
       for kind in (set, frozenset, list, dict, tuple)},
    **{f"{home}.complex": _Call(complex) for home in ("builtins", "__builtin__")},
    **{f"torch.{name}": _Storage(kind) for name, kind in _STORAGES.items()},
}  # fmt: skip


def _named(path):
    name = path.removeprefix("torch.")
    if path in _NAMED:
        return _NAMED[path]
    if path.startswith("torch.") and name in {d.name for d in dtypes.ALL}:
        return dtypes.dtype_named(name)
    raise Refusal(
        f"holds an object of {path}, and is refused: making it would execute code. Save plain data where it was "
        "written: torch.save(model.state_dict(), path)"
    )


# --- the machine ------------------------------------------------------------------------------------------------------
_MARK = object()


class _Machine:
    """The stack machine of pickles, with the instructions that plain data need."""

    def __init__(self, read_storage):
        self.read_storage = read_storage
        self.stack, self.memo = [], {}

    def run(self, program):
        for op, argument, _ in pickletools.genops(program):
            if op.name == "STOP":
                return self.stack.pop()
            step = _STEPS.get(op.name)
            if step is None:
                raise Refusal(f"holds a pickle with the instruction {op.name}, which plain data do not need")
            step(self, argument)
        raise Refusal("ends in the middle")

    def push(self, value):
        self.stack.append(value)

    def from_mark(self):
        """What is above the last mark."""
        position = max(k for k, x in enumerate(self.stack) if x is _MARK)
        found = self.stack[position + 1 :]
        del self.stack[position:]
        return found

    def take(self, count):
        found = self.stack[-count:]
        del self.stack[-count:]
        return found

    def memoize(self, key=None):
        self.memo[len(self.memo) if key is None else key] = self.stack[-1]

    def call(self):
        function, arguments = self.take(2)
        if not isinstance(function, _Call) or not isinstance(arguments, tuple):
            raise Refusal("holds a pickle that calls what is no function")
        self.push(function.function(*arguments))

    def stack_global(self):
        module, name = self.take(2)
        self.push(_named(f"{module}.{name}"))

    def load_memory(self):
        (identity,) = self.take(1)
        if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage":
            raise Refusal(f"holds a reference to {identity!r}, which is no memory of a tensor")
        _, kind, key, _, count = identity[:5]
        if not isinstance(kind, _Storage):
            raise Refusal(f"holds memory of an unknown type {kind!r}")
        self.push(self.read_storage(kind.name, str(key), int(count)))

    def set_items(self, values):
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise Refusal("holds a pickle that sets items of what is no dict")
        target.update(zip(values[::2], values[1::2]))

    def extend(self, kind, values):
        target = self.stack[-1]
        if not isinstance(target, kind):
            raise Refusal(f"holds a pickle that adds to what is no {kind.__name__}")
        if kind is list:
            target += values
        else:
            target.update(values)

    def build(self):
        """The attributes of an object: of an OrderedDict, as state dicts have them, and of nothing else."""
        (state,) = self.take(1)
        if not isinstance(self.stack[-1], OrderedDict) or not isinstance(state, dict) or set(state) - {"_metadata"}:
            raise Refusal("holds a pickle that sets attributes of an object")
        vars(self.stack[-1]).update(state)


def _push(machine, value):
    machine.push(value)


def _push_new(make):
    return lambda machine, _: machine.push(make())


_STEPS = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, _: None),
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT", "BINUNICODE",
         "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        _push,
    ),
    "NONE": _push_new(lambda: None),
    "NEWTRUE": _push_new(lambda: True),
    "NEWFALSE": _push_new(lambda: False),
    "EMPTY_DICT": _push_new(dict),
    "EMPTY_LIST": _push_new(list),
    "EMPTY_TUPLE": _push_new(tuple),
    "EMPTY_SET": _push_new(set),
    "MARK": _push_new(lambda: _MARK),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.from_mark())),
    "LIST": lambda machine, _: machine.push(machine.from_mark()),
    "FROZENSET": lambda machine, _: machine.push(frozenset(machine.from_mark())),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.take(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.take(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.take(3))),
    "POP": lambda machine, _: machine.take(1),
    "DUP": lambda machine, _: machine.push(machine.stack[-1]),
    "MEMOIZE": lambda machine, _: machine.memoize(),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "PUT"), lambda machine, key: machine.memoize(key)),
    **dict.fromkeys(("BINGET", "LONG_BINGET", "GET"), lambda machine, key: machine.push(machine.memo[key])),
    "GLOBAL": lambda machine, names: machine.push(_named(names.replace(" ", "."))),
    "STACK_GLOBAL": lambda machine, _: machine.stack_global(),
    "BINPERSID": lambda machine, _: machine.load_memory(),
    "REDUCE": lambda machine, _: machine.call(),
    "SETITEM": lambda machine, _: machine.set_items(machine.take(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.from_mark()),
    "APPEND": lambda machine, _: machine.extend(list, machine.take(1)),
    "APPENDS": lambda machine, _: machine.extend(list, machine.from_mark()),
    "ADDITEMS": lambda machine, _: machine.extend(set, machine.from_mark()),
    "BUILD": lambda machine, _: machine.build(),
}  # fmt: skip
