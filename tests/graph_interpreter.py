"""Runs a graph twice: op by op as eager mode does, and as the compiled program. Not a test: what test_backend_* use."""

import ctypes

import numpy as np

from weft.compiler.graph import INPUT, SCALAR, Graph
from weft.compiler.pipeline import compile_graph
from weft.compiler.shapes import contiguous_strides
from weft.runtime.code import jit, kernels, threads
from weft.runtime.programs.evaluate import evaluate


class CheckFailed(Exception):
    """An op refused its operands."""


def interpret(graph, inputs, scalars=()):
    """(outputs, new contents of the committed inputs), computed op by op."""
    known, inputs, scalars = {}, iter(inputs), iter(scalars)
    for value in graph.values:
        if value.op is INPUT:
            known[value] = next(inputs)
        elif value.op is SCALAR:
            known[value] = next(scalars)
        elif value.op.name == "constant":
            known[value] = value.attributes["value"]
        else:
            known[value] = _evaluate(graph, value, [known[o] for o in value.operands])
    outputs = [np.array(known[v]) for v in graph.outputs]
    return outputs, [np.array(known[new]) for _, new in graph.commits]


def _evaluate(graph, value, operands):
    if value.op.decompose is not None:
        return _evaluate_composite(graph, value, operands)
    types = None
    if value.op.compute_dtype is not None:
        types = value.op.compute_dtype(value.operands, graph.default_float)[0]
    try:
        return evaluate(value.op, operands, value.attributes, types, value)
    except IndexError as error:
        raise CheckFailed(str(error)) from error


def _evaluate_composite(graph, value, operands):
    """A composite as a small graph of its own."""
    small = Graph("composite", graph.default_float)
    arrays, numbers, stand_ins = [], [], []
    for o, x in zip(value.operands, operands):
        if o.op.name == "constant":
            stand_ins.append(small.constant(x))
        elif o.weak:
            stand_ins.append(small.scalar(o.dtype))
            numbers.append(x)
        else:
            stand_ins.append(small.input(o.shape, o.dtype))
            arrays.append(x)
    small.outputs = [value.op.decompose(*stand_ins, **value.attributes)]
    outputs, _ = interpret(small, arrays, numbers)
    return outputs[0]


class Program:
    """A compiled graph that can be called on arrays."""

    def __init__(self, graph, **options):
        self.graph = graph
        # The routines it calls are this processor's, and need the scratch memory that they need there.
        self.compiled = compile_graph(graph, **{"target": jit.kernel_target(), **options})
        self.library = jit.link(jit.compile_text(self.compiled.text))
        self.function = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.library.address("weft_program"))
        self.arena = aligned(self.plan.arena_bytes)
        threads.reserve_scratch(self.plan.worker_bytes)

    @property
    def plan(self):
        return self.compiled.plan

    def __call__(self, inputs, scalars=()):
        """The outputs; committed inputs are written in place. CheckFailed if a check failed."""
        outputs = [np.empty(v.shape, v.dtype.numpy) for v in self.graph.outputs]
        for x in outputs:
            x.view(np.uint8).fill(0xA5) if x.ndim else None
        self.table, self.kept = self.make_table(inputs, outputs, scalars)
        if self.function(self.table.ctypes.data):
            raise CheckFailed
        return outputs

    def make_table(self, inputs, outputs, scalars):
        numbers = np.zeros(max(len(scalars), 1), np.int64)
        for k, (v, x) in enumerate(zip(self.graph.scalars(), scalars)):
            numbers[k : k + 1].view(np.float64 if v.dtype.is_floating_point else np.int64)[0] = x
        words = [self.arena.ctypes.data, numbers.ctypes.data, threads.pool_address()]
        words += [kernels.routine(symbol) for symbol in self.plan.symbols]
        words += [id(x) for x in (*inputs, *outputs)]
        return np.array(words, np.uint64), (numbers, inputs, outputs)


def aligned(n_bytes):
    raw = np.full(n_bytes + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + n_bytes]


def place_like(value, array):
    """A copy of the array with the strides the graph's input value states."""
    if value.strides is None:
        return np.array(array, order="C").reshape(value.shape)
    low = sum(min(0, (d - 1) * s) for d, s in zip(value.shape, value.strides))
    high = sum(max(0, (d - 1) * s) for d, s in zip(value.shape, value.strides))
    memory = np.zeros(high - low + 1, value.dtype.numpy)
    steps = [s * memory.itemsize for s in value.strides]
    view = np.ndarray(value.shape, memory.dtype, memory, -low * memory.itemsize, steps)
    view[...] = array
    return view


def strides_of(array):
    """What Graph.input takes: None for row-major arrays, else strides in elements."""
    steps = tuple(s // array.itemsize for s in array.strides)
    return None if steps == contiguous_strides(array.shape) else steps


def check_equal(graph, inputs, scalars=(), **options):
    """Compile and run; every output and commit must be equal to the interpreter's, bit for bit. Returns the Program."""
    placed = [place_like(v, x) for v, x in zip(graph.inputs(), inputs)]
    try:
        expected = interpret(graph, [x.copy() for x in placed], scalars)
    except CheckFailed:
        expected = None
    program = Program(graph, **options)
    before = [x.copy() for x in placed]
    if expected is None:
        try:
            program(placed, scalars)
        except CheckFailed:
            for x, y in zip(placed, before):
                assert_same(x, y, "an input after a failed check")
            return program
        raise AssertionError("the interpreter refused the operands, the program did not")
    outputs = program(placed, scalars)
    committed = {id(t): new for (t, _), new in zip(graph.commits, expected[1])}
    for k, (got, want) in enumerate(zip(outputs, expected[0])):
        assert_same(got, want, f"output {k}")
    for k, v in enumerate(graph.inputs()):
        assert_same(placed[k], committed.get(id(v), before[k]), f"input {k} afterwards")
    return program


def assert_same(got, want, what):
    """Equal bits, except that any NaN equals any NaN."""
    assert got.shape == want.shape and got.dtype == want.dtype, (what, got.shape, want.shape, got.dtype, want.dtype)
    if got.size == 0:
        return
    same = got == want
    if got.dtype.kind == "f":
        same = (same & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))
    if not np.all(same):
        where = tuple(int(k) for k in np.argwhere(~np.atleast_1d(same))[0])
        bad = (np.atleast_1d(got)[where], np.atleast_1d(want)[where])
        raise AssertionError(f"{what}: {np.count_nonzero(~same)} of {got.size} differ, first at {where}: {bad}")
