"""What a compiled call asks of a GPU, put off until somebody needs it, and then run as one program.

    x * 2 -> pending     steps:  input x, number 2, mul              a tensor of a PendingBlock, which has no memory yet
    .backward()                  ..., derivative of mul              whoever asks for its address begins the program
    step()                       ..., update: new memory of a leaf
    the end              key of all steps, what of their results is alive -> Program (programs.py)

Python runs in every call, as in any compiled call, and what it asks for is compared as a whole: calls that are alike
have one program. Nodes of autograd are those of eager mode, so a backward after the call, hooks, and derivatives of any
order are what they are there. Which results are alive is known from weak references to their blocks.

A change in place is a new value for the same memory, as long as all names that the trace has for that memory show the
same elements. Where they do not, what is pending is run first.
"""

import threading
from weakref import ref

from ...compiler.autodiff import vjp
from ...compiler.gpu import NotForGpu
from ...compiler.graph import Graph
from ...compiler.ops.comparison import cast
from ...compiler.ops.kinds import number_meta
from ...compiler.ops.source import full
from ...compiler.ops.view import clone
from ...compiler.shapes import contiguous_strides
from ..eager.plan import add_attributes
from ..eager.saved import Shape
from ..state.modes import state
from ..state.tensor import Tensor
from .arrays import GpuArray
from .programs import program_for

_INPUT, _OP, _DERIVE, _UPDATE = "input", "op", "derivative", "update"


class PendingBlock:
    """Memory that a trace has still to give to what it computes, in row-major order. Asking for its address does so."""

    __slots__ = ("trace", "number", "n_bytes", "block", "shown", "__weakref__")

    def __init__(self, trace, number, n_bytes):
        self.trace, self.number, self.n_bytes = trace, number, n_bytes
        self.block, self.shown = None, []

    @property
    def address(self):
        if self.block is None:
            self.trace.flush()
        if self.block is None:
            raise RuntimeError("this tensor belongs to a compiled call that failed before computing it")
        return self.block.address


class Step:
    """What is computed: `kind`, an op or a rule, numbers of the operands (or what stands for one that is not read),
    what else tells it apart, and how many values it makes from `first` on."""

    __slots__ = ("kind", "what", "operands", "attributes", "wanted", "first")

    def __init__(self, kind, what, operands, attributes, wanted, first):
        self.kind, self.what, self.operands, self.attributes = kind, what, operands, attributes
        self.wanted, self.first = wanted, first


class Trace:
    """The steps of one call on one GPU that have not run yet."""

    def __init__(self, gpu):
        self.gpu, self.programs = gpu, []
        self._begin()

    def _begin(self):
        self.steps, self.keys, self.n_values = [], [self.gpu.number, state.default_dtype], 0
        self.given = []  # arrays and numbers, in the order in which they came
        self.inputs = {}  # id of a block -> {how it is shown: number of the input}
        self.blocks = {}  # number of a value -> weak reference to the block that is to have it
        self.changed = {}  # id of a block -> (the array that was changed, number of its input, number it becomes)
        self.default_dtype = state.default_dtype

    # --- what comes in ------------------------------------------------------------------------------------------------
    def number_of(self, x):
        """The number of the value that an operand is."""
        if isinstance(x, Tensor):
            return self._of_array(x._meta)
        if x.__class__ is Shape:
            return x.dtype, tuple(x.shape)
        number = self._new(_INPUT, x.__class__, (), None if x.__class__ in (int, float, bool) else {"value": x}, None)
        self.given.append(x)
        return number

    def _of_array(self, array):
        block = array.block
        if block.__class__ is PendingBlock and block.block is None:
            if block.trace is not self:
                block.trace.flush()
            elif array.value is not None and array.value[0] is self:
                return array.value[1]
            else:
                self.flush()
        changed = self.changed.get(id(block))
        if changed is not None:
            if array.is_same(changed[0]):
                return changed[2]
            self.flush()
        shown = array.shape, array.dtype, None if array.is_contiguous else array.strides, array.offset
        known = self.inputs.setdefault(id(block), {})
        number = known.get(shown)
        if number is None:
            number = known[shown] = self._new(_INPUT, shown[:3], (), None, None)
            self.given.append(array)
        return number

    def _new(self, kind, what, operands, attributes, wanted, n_values=1):
        key = (kind, what, operands, wanted)
        key = add_attributes(key, attributes) if attributes else key
        # Attributes that cannot be told apart are no key: such a call has a program of its own.
        self.keys.append(key if key is not None else object())
        first, self.n_values = self.n_values, self.n_values + n_values
        self.steps.append(Step(kind, what, operands, attributes, wanted, first))
        return first

    # --- what is asked for --------------------------------------------------------------------------------------------
    def op(self, op, operands, attributes, meta):
        """The array of an op's result."""
        return self._pending(self._new(_OP, op, self._numbers(operands), dict(attributes), None), meta)

    def view(self, op, operand, attributes, shown):
        """Note that `shown`, an array of the operand's memory, is a view of it, if that is pending."""
        block = shown.block
        if block.__class__ is PendingBlock and block.block is None and operand.value and operand.value[0] is self:
            shown.value = self, self._new(_OP, op, (operand.value[1],), dict(attributes), None)
            block.shown.append(ref(shown))

    def derivative(self, op, wanted, given, attributes, metas):
        """The arrays of the results of a derivative, of which these are the shapes and types."""
        numbers = self._numbers(given)
        first = self._new(_DERIVE, op, numbers, dict(attributes), wanted, len(metas))
        return [self._pending(first + k, meta) for k, meta in enumerate(metas)]

    def _numbers(self, operands):
        while True:
            steps = self.steps
            numbers = tuple([self.number_of(x) for x in operands])
            # What ran meanwhile has made all numbers before it void.
            if self.steps is steps:
                return numbers

    def _pending(self, number, meta):
        shape = tuple(meta.shape)
        n_bytes = meta.dtype.size_bytes
        for n in shape:
            n_bytes *= n
        block = PendingBlock(self, number, n_bytes)
        array = GpuArray(self.gpu, block, shape, contiguous_strides(shape), 0, meta.dtype)
        array.value = self, number
        block.shown.append(ref(array))
        self.blocks[number] = ref(block)
        return array

    # --- changes in place ---------------------------------------------------------------------------------------------
    def change(self, target, value):
        """The elements of `target` become those of `value`, an array, converted. False if they have to be written at
        once, for which nothing is pending any more."""
        if not self._may_change(target):
            self.flush()
            return False
        numbers = self._numbers_of_arrays((target, value))
        if not self._may_change(target):
            self.flush()
            return False
        op, attributes = (clone, {}) if value.dtype is target.dtype else (cast, {"dtype": target.dtype})
        self._become(target, numbers[0], self._new(_OP, op, numbers[1:], attributes, None))
        return True

    def update(self, rule, row, numbers, flags, written):
        """The same of the tensors of a row that a rule writes, at the positions `written`."""
        arrays = [x._meta for x in row]
        if len({id(a.block) for a in arrays}) < len(arrays) or not all(map(self._may_change, arrays)):
            self.flush()
            return False
        given = self._numbers((*row, *numbers))
        if not all(map(self._may_change, arrays)):
            self.flush()
            return False
        first = self._new(_UPDATE, rule, given, dict(flags), written, len(written))
        for k, at in enumerate(written):
            self._become(arrays[at], given[at], first + k)
        return True

    def _numbers_of_arrays(self, arrays):
        while True:
            steps = self.steps
            numbers = tuple(map(self._of_array, arrays))
            if self.steps is steps:
                return numbers

    def _may_change(self, array):
        """Whether all names of its memory show these elements."""
        block = array.block
        if block.__class__ is PendingBlock and block.block is None:
            is_own = block.trace is self and array.value == (self, block.number)
            return is_own and all(shown() is None or shown() is array for shown in block.shown)
        known = self.inputs.get(id(block), {})
        shown = array.shape, array.dtype, None if array.is_contiguous else array.strides, array.offset
        return all(other == shown for other in known)

    def _become(self, array, before, number):
        block = array.block
        if block.__class__ is PendingBlock and block.block is None:
            self.blocks.pop(block.number, None)
            block.number, array.value = number, (self, number)
            self.blocks[number] = ref(block)
            return
        known = self.changed.get(id(block))
        self.changed[id(block)] = array, before if known is None else known[1], number

    # --- running ------------------------------------------------------------------------------------------------------
    def flush(self):
        """Run what is pending and alive, or changes memory."""
        alive = [(number, block) for number, found in self.blocks.items() if (block := found()) is not None]
        steps, given, changed, keys = self.steps, self.given, list(self.changed.values()), self.keys
        default_dtype = self.default_dtype
        self._begin()
        if not alive and not changed:
            return
        outputs = tuple([number for number, _ in alive])
        commits = tuple([(before, number) for _, before, number in changed])
        key = ("trace", tuple(keys), outputs, commits)
        program = program_for(self.gpu, key, lambda: _graph(steps, outputs, commits, default_dtype))
        if isinstance(program, NotForGpu):
            raise NotImplementedError(f"a compiled call on {self.gpu.name}: {program}")
        arrays = [x if isinstance(x, GpuArray) else None for x in given]
        self.programs.append(program)
        made = program.run(self.gpu, arrays, given)
        for (_, block), array in zip(alive, made):
            block.block = array.block


def _graph(steps, outputs, commits, default_dtype):
    """(graph, the values of what is given, None) of steps."""
    graph, values, given = Graph("call", default_dtype), [], []
    for step in steps:
        if step.kind == _INPUT:
            values.append(_input(graph, step))
            given.append(values[-1])
            continue
        operands = [values[k] if k.__class__ is int else _unread(graph, *k) for k in step.operands]
        if step.kind == _OP:
            values.append(graph.apply(step.what, tuple(operands), step.attributes))
        elif step.kind == _UPDATE:
            new = step.what(*operands, **step.attributes)
            for at in step.wanted:
                value, dtype = new[at], operands[at].dtype
                values.append(value if value.dtype is dtype else graph.apply(cast, (value,), {"dtype": dtype}))
        else:
            cotangent, out, *rest = operands
            for k in step.wanted:
                values.append(vjp(step.what, k, cotangent, out, rest, step.attributes))
    graph.outputs = [values[k] for k in outputs]
    for before, number in commits:
        graph.commits.append((values[before], graph.apply(clone, (values[number],), {})))
    return graph, given, None


def _input(graph, step):
    if step.what.__class__ is tuple:
        return graph.input(*step.what)
    if step.attributes is None:
        return graph.scalar(number_meta(step.what(1)).dtype)
    return graph.constant(step.attributes["value"])


def _unread(graph, dtype, shape):
    """What stands for an operand that a derivative does not read."""
    return graph.apply(full, (0,), {"shape": shape, "dtype": dtype})


# --- the call in flight -----------------------------------------------------------------------------------------------
class _Current(threading.local):
    trace = None


_current = _Current()


def trace_for(gpu):
    """The Trace of the call in flight in this thread, if it is on this GPU; else None."""
    trace = _current.trace
    return trace if trace is not None and trace.gpu is gpu else None


def traced(gpu, function, args, kwargs):
    """(function(*args, **kwargs), the Programs that have run): what it asks of the GPU runs as few programs."""
    if _current.trace is not None:
        return function(*args, **kwargs), ()
    trace = _current.trace = Trace(gpu)
    try:
        result = function(*args, **kwargs)
    finally:
        _current.trace = None
        trace.flush()
    return result, trace.programs
