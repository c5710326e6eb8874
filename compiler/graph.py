"""The graph: values in static single assignment form, in recorded order.

    graph mlp {
      %0 = input() : float32[64, 10]
      %1 = scalar() : float64[] weak
      %2 = mul(%0, %1) : float32[64, 10]
      %3 = sum(%2) {axes=(0, 1), keepdim=False} : float32[]
      return %3
    }

A graph is a list of `Value`s; passes are functions from graph to graph. Storage is plain lists because recording,
activity, CSE and liveness only walk it in order. `verify()` runs between all passes in tests.
"""

import ast
import re

from . import dtypes
from .extent import is_open
from .kernels.kernel import Source
from .ops.table import TABLE, Op


def _not_callable(operands, attributes):
    raise AssertionError("a source value is made by Graph.input or Graph.scalar, not by calling its op")


INPUT = Op("input", "source", _not_callable, kernel=Source())
SCALAR = Op("scalar", "source", _not_callable, kernel=Source())
_SOURCES = {"input": INPUT, "scalar": SCALAR}


class Value:
    """One SSA value: the result of `op` on `operands`. Compared by identity.

    `strides` (elements) is set on inputs that are not row-major contiguous, else None. `weak` marks a Python number.
    """

    __slots__ = ("graph", "op", "operands", "attributes", "shape", "dtype", "weak", "strides", "number")

    def __init__(self, graph, op, operands, attributes, shape, dtype, *, weak=False, strides=None):
        self.graph = graph
        self.op = op
        self.operands = operands
        self.attributes = attributes
        self.shape = shape
        self.dtype = dtype
        self.weak = weak
        self.strides = strides
        self.number = len(graph.values)
        graph.values.append(self)

    def apply_op(self, op, operands, attributes):
        return self.graph.apply(op, operands, attributes)

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def is_source(self):
        return self.op is INPUT or self.op is SCALAR

    def __repr__(self):
        return f"%{self.number}:{self.op.name}"


class Graph:
    """Values in recorded order, and which of them are the outputs.

    `commits` pairs an input with the value that must be in that input's memory when the program ends: an in-place
    update, kept functional inside the graph.
    """

    def __init__(self, name="graph", default_float=dtypes.float32):
        self.name = name
        self.default_float = default_float
        self.values = []
        self.outputs = []
        self.commits = []

    # --- building -------------------------------------------------------------------------------------------------
    def input(self, shape, dtype, strides=None):
        return Value(self, INPUT, (), {}, tuple(shape), dtype, strides=strides)

    def scalar(self, dtype):
        """A Python number known only at run time: float64, int64 or bool, converted where it is used."""
        return Value(self, SCALAR, (), {}, (), dtype, weak=True)

    def apply(self, op, operands, attributes):
        """Append op(*operands). Python numbers among the operands become `constant` values."""
        operands = tuple(x if isinstance(x, Value) else self.constant(x) for x in operands)
        meta = op.infer(operands, attributes, self.default_float)
        return Value(self, op, operands, dict(attributes), meta.shape, meta.dtype)

    def constant(self, number):
        """A Python number written in a rule or decomposition."""
        op, attributes = TABLE["constant"], {"value": number}
        return Value(self, op, (), attributes, (), op.infer((), attributes, self.default_float).dtype, weak=True)

    def copy_value(self, value, operands):
        """Append a copy of another graph's value on operands of this graph."""
        return Value(
            self,
            value.op,
            operands,
            value.attributes,
            value.shape,
            value.dtype,
            weak=value.weak,
            strides=value.strides,
        )

    # --- views of the graph (computed, never stored) --------------------------------------------------------------
    def inputs(self):
        return [v for v in self.values if v.op is INPUT]

    def scalars(self):
        return [v for v in self.values if v.op is SCALAR]

    def results(self):
        """Every value that must exist when the program ends."""
        return [*self.outputs, *(new for _, new in self.commits)]

    def users(self):
        """value number -> numbers of the values that read it, in recorded order, each once."""
        users = [[] for _ in self.values]
        for v in self.values:
            for operand in dict.fromkeys(v.operands):
                users[operand.number].append(v.number)
        return users

    # --- text -----------------------------------------------------------------------------------------------------
    def __str__(self):
        lines = [f"graph {self.name} {{"]
        lines += [f"  {_line(v)}" for v in self.values]
        for target, new in self.commits:
            lines.append(f"  commit %{target.number} <- %{new.number}")
        lines.append("  return " + ", ".join(f"%{v.number}" for v in self.outputs))
        return "\n".join([*lines, "}", ""])

    def __repr__(self):
        return f"Graph({self.name}, {len(self.values)} values)"

    def verify(self):
        """AssertionError with the offending line if an invariant does not hold."""
        for k, v in enumerate(self.values):
            assert v.graph is self and v.number == k, f"{v!r} stands at {k}"
            for operand in v.operands:
                assert operand.graph is self and operand.number < k, f"{_line(v)}: operand {operand!r} is not earlier"
            assert all((isinstance(d, int) or is_open(d)) and d >= 0 for d in v.shape), _line(v)
            if not v.is_source and v.op.infer is not None:
                meta = v.op.infer(v.operands, v.attributes, self.default_float)
                given = (meta.shape, meta.dtype)
                assert given == (v.shape, v.dtype), f"{_line(v)}: the op's rule gives {given}"
        self.verify_results()
        return self

    def verify_results(self):
        """The part of `verify` that memory outside the program depends on. It runs always."""
        for v in [*self.results(), *(target for target, _ in self.commits)]:
            assert v.graph is self and self.values[v.number] is v, f"result {v!r} is not in the graph"
        for target, new in self.commits:
            if target.op is not INPUT or (target.shape, target.dtype) != (new.shape, new.dtype):
                # Not an assert, which python -O leaves out: the program would write over other memory.
                raise AssertionError(f"commit {_line(target)} <- {_line(new)}")


def type_text(v):
    text = f"{v.dtype.name}[{', '.join(map(str, v.shape))}]"
    if v.strides is not None:
        text += f" strides ({', '.join(map(str, v.strides))})"
    return text + (" weak" if v.weak else "")


def _line(v):
    operands = ", ".join(f"%{o.number}" for o in v.operands)
    attributes = ""
    if v.attributes:
        attributes = " {" + ", ".join(f"{k}={_attribute_text(a)}" for k, a in sorted(v.attributes.items())) + "}"
    return f"%{v.number} = {v.op.name}({operands}){attributes} : {type_text(v)}"


def _attribute_text(a):
    return a.name if isinstance(a, dtypes.DType) else repr(a)


_LINE = r"%(\d+) = (\w+)\(([^)]*)\)(?: \{(.*)\})? : (\w+)\[([\d, ]*)\](?: strides \(([-\d, ]*)\))?( weak)?$"


def parse(text):
    """The graph whose text this is: parse(str(graph)) prints the same."""
    lines = [line.strip() for line in text.strip().splitlines()]
    graph = Graph(lines[0].split()[1])
    for line in lines[1:-1]:
        if line.startswith("commit"):
            target, new = re.findall(r"%(\d+)", line)
            graph.commits.append((graph.values[int(target)], graph.values[int(new)]))
        elif line.startswith("return"):
            graph.outputs = [graph.values[int(k)] for k in re.findall(r"%(\d+)", line)]
        else:
            _parse_line(graph, line)
    return graph


def _parse_line(graph, line):
    match = re.match(_LINE, line)
    if match is None:
        raise ValueError(f"graph text: cannot read the line {line!r}")
    _, name, operands, attributes, dtype, shape, strides, weak = match.groups()
    op = _SOURCES.get(name) or TABLE[name]
    values = tuple(graph.values[int(k)] for k in re.findall(r"%(\d+)", operands))
    parsed = {}
    if attributes:
        call = ast.parse(f"f({attributes})", mode="eval").body
        for keyword in call.keywords:
            if isinstance(keyword.value, ast.Name):
                parsed[keyword.arg] = dtypes.dtype_named(keyword.value.id)
            else:
                parsed[keyword.arg] = ast.literal_eval(keyword.value)
    numbers = tuple(int(d) for d in shape.split(",") if d.strip())
    steps = None if strides is None else tuple(int(d) for d in strides.split(",") if d.strip())
    return Value(graph, op, values, parsed, numbers, dtypes.dtype_named(dtype), weak=bool(weak), strides=steps)
