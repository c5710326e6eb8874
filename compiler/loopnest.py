"""The loop-nest IR: what one kernel does, loop by loop, with all decisions made and nothing of the machine in it.

    kernel (p0 f32, p1 f32) lanes 16 {
      for i0 < 1024 {
        sweep j < 1024 {
          %0 = load p0[1024*i0 + j] : f32
          %1 = amax over j of %0 : f32
        }
        sweep j < 1024 {
          ...
          store p1[1024*i0 + j] = %5
        }
      }
    }

A `Loop` is an ordinary loop. A `Sweep` walks the innermost dimension in vectors: its statements work on `lanes`
elements at a time, the last vector masked. Statements outside sweeps compute one number, held in every lane of a
vector, so that both kinds mix freely. A sweep's reductions may be used after it. A short sweep is unrolled, and then
what it computes stays in registers for later sweeps of the same loop body.

Where threads share sums (blocks.py), a loop around does one block after the other:

    for b < 489 {
      sweep j < 1000000 block b of 2048 {
        %0 = load p0[j] : f32
        %1 = sum over j of %0 : f32
      }
      store p1[32*b] = lanes of %1
    }

A loop may sum columns: what its sweeps `accumulate` is added up over the iterations, lane by lane. The sums are kept in
registers where the sweep is unrolled, else in `storage`, scratch memory.

Lowering (lower.py) writes this IR; emission (emit/kernel.py) turns it into LLVM IR. Names are small integers.
"""

from dataclasses import dataclass, field

from .extent import is_open

# Bytes of an element in memory; bool is "i8".


@dataclass(frozen=True, slots=True)
class At:
    """An element position: constant + sum of coefficient * loop index, and `lane` elements from lane to lane."""

    constant: int
    terms: tuple
    lane: int

    def __str__(self):
        parts = [index if c == 1 else f"{c}*{index}" for index, c in self.terms]
        if self.lane:
            parts.append("j" if self.lane == 1 else f"{self.lane}*j")
        if is_open(self.constant) or self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A pointer: name and element type in memory (bool is "i8")."""

    name: str
    element: str


@dataclass(frozen=True, slots=True)
class Constant:
    name: int
    value: object
    element: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A run-time scalar: slot `slot` of the scalars' array, "f64", "i64" or "i1"."""

    name: int
    slot: int
    element: str


@dataclass(frozen=True, slots=True)
class Index:
    """A value read from memory that takes part in an address: `name` * `stride`, in [0, size) or the program fails."""

    name: int
    stride: int
    size: int


@dataclass(frozen=True, slots=True)
class Load:
    name: int
    parameter: str
    at: At
    element: str
    indices: tuple = ()


@dataclass(frozen=True, slots=True)
class Position:
    """The element position itself, for sources such as arange."""

    name: int
    at: At


@dataclass(frozen=True, slots=True)
class Apply:
    """An op of the table on registers. `checked`: its lowering can fail."""

    name: int
    op: object
    operands: tuple
    attributes: dict = field(hash=False)
    element: str


@dataclass(frozen=True, slots=True)
class Store:
    parameter: str
    at: At
    value: int


@dataclass(frozen=True, slots=True)
class StoreLanes:
    """After a sweep over one block: what its Reduce `value` has in each of the 32 lanes, side by side."""

    parameter: str
    at: At
    value: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """In a sweep: the reduction over j of `value`; usable after the sweep."""

    name: int
    op: object
    value: int
    element: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column reduction of a loop over `extent` columns; its results are usable after the loop.

    In registers, named `name`, if `storage` is empty; else in the first of its three scratch parameters.
    """

    name: int
    op: object
    element: str
    extent: int
    storage: tuple = ()


@dataclass(frozen=True, slots=True)
class Accumulate:
    """In a sweep: take `value` into a column reduction of the loop around it."""

    column: int
    value: int


@dataclass(frozen=True, slots=True)
class Update:
    """parameter[at + index] = op(parameter[at + index], value), or = value if op is None: one element, or a vector."""

    parameter: str
    at: At
    index: Index
    op: object
    value: int


@dataclass(frozen=True, slots=True)
class Extreme:
    """The position of the first extreme of `count` elements, `stride` apart: per lane in a sweep, else of one row.

    `predicate`: what a later element must be to the best so far; the first NaN wins over everything. Of one `block`
    both, the position and the extreme itself, named `best`, are for StoreLanes. `positions`: where the positions of the
    elements are, if they are not the first, second, ... of their row.
    """

    name: int
    parameter: str
    at: At
    count: int
    stride: int
    predicate: str
    block: object = None
    best: int | None = None
    positions: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Of a loop or sweep only the iterations of one block: `size` of them from `size` * `index`."""

    index: str
    size: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """`rotated`: accumulators take turns from vector to vector, instead of one copy of the body for each. `block`: the
    sweep is over one Block, and its reductions are for StoreLanes; `closing`: after how many elements sums of floats
    close a block, if not after as many as the order of sums says."""

    extent: int
    body: tuple
    unrolled: bool = False
    rotated: bool = False
    block: Block | None = None
    closing: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """for index < extent. `split`: (name, stride, size) of indices derived from this one: index // stride % size.
    `block` and `closing` are those of a Sweep, of rows. `turned`: what its sweeps, of one vector each, read across may
    be read in rows before the loop, and turned."""

    index: str
    extent: int
    body: tuple
    columns: tuple = ()
    split: tuple = ()
    block: Block | None = None
    closing: int = 0
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """How work is cut for threads: `along` "rows" (iterations of the only outermost loop), "columns" (elements of every
    sweep) or, of products, "matrices"; in `units` of `unit` each, the last of which may be smaller. What two threads do
    is independent. A sweep without loops around it may be cut as if it were `rows` equal rows, one after another."""

    along: str
    unit: int
    units: int
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of pointers. With a cut, one call of it does some of the units. `scalars`: the first slot of every
    stretch of run-time scalars, each of which has a pointer of its own. `by_vectors`: everything is done for one vector
    of columns, then for the next; its sweeps are all unrolled, of one extent. `parts`: cut -> who touches what
    (regions.py), for the steps that share a kernel."""

    parameters: tuple
    lanes: int
    body: tuple
    checks: bool = False
    cut: Cut | None = None
    scalars: tuple = (0,)
    by_vectors: bool = False
    parts: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def sweeps(self):
        """All its sweeps, from the first to the last."""
        return [s for s in statements(self.body) if isinstance(s, Sweep)]

    @property
    def has_blocks(self):
        """Whether every iteration of its outermost loop does one Block."""
        return any(getattr(s, "block", None) for s in statements(self.body))

    @property
    def mostly_moves(self):
        """Whether memory takes the time: a few instructions on elements that lie side by side, no sums, and nothing of
        16 bits, which takes longer to convert than to read."""
        return all(p.element[1:] != "16" for p in self.parameters) and all(_moves(s) for s in statements(self.body))

    def __str__(self):
        head = ", ".join(f"{p.name} {p.element}" for p in self.parameters)
        cut = ""
        if self.cut:
            cut = f" {self.cut.units} units of {self.cut.unit} {self.cut.along}"
            cut += f" of {self.cut.rows} rows" if self.cut.rows > 1 else ""
        scalars = f" scalars from {', '.join(map(str, self.scalars))}" if len(self.scalars) > 1 else ""
        by = " by vectors" if self.by_vectors else ""
        lines = [f"kernel ({head}){scalars} lanes {self.lanes}{' checked' if self.checks else ''}{cut}{by} {{"]
        lines += _block(self.body, "  ")
        return "\n".join([*lines, "}", ""])


def _moves(s):
    if isinstance(s, Apply):
        return s.op.cost != "function"
    if isinstance(s, Load):
        return not s.indices and not is_open(s.at.lane) and s.at.lane <= 1
    if isinstance(s, Loop):
        return not s.columns
    return isinstance(s, (Constant, Scalar, Position, Store, Sweep))


def statements(body):
    """Every statement of a body, loops and sweeps before what is in them."""
    for s in body:
        yield s
        if isinstance(s, (Loop, Sweep)):
            yield from statements(s.body)


def _block(body, indent):
    lines = []
    for s in body:
        if isinstance(s, (Loop, Sweep)):
            lines.append(f"{indent}{_head(s)} {{")
            lines += _block(s.body, indent + "  ")
            lines.append(indent + "}")
        else:
            lines.append(indent + _STATEMENTS[type(s)](s))
    return lines


def _head(s):
    if isinstance(s, Sweep):
        return f"sweep j < {s.extent}{_part(s)}{' unrolled' if s.unrolled else ''}{' rotated' if s.rotated else ''}"
    text = f"for {s.index} < {s.extent}{_part(s)}{' turned' if s.turned else ''}"
    text += "".join(f", {n} = {s.index} / {stride} % {size}" for n, stride, size in s.split)
    for c in s.columns:
        place = f" in {', '.join(c.storage)}" if c.storage else ""
        text += f", %{c.name} = {c.op.name} over {s.index} : {c.element}[{c.extent}]{place}"
    return text


def _part(s):
    block = f" block {s.block.index} of {s.block.size}" if s.block else ""
    return block + (f" closing after {s.closing}" if getattr(s, "closing", 0) else "")


def _apply_text(s):
    operands = ", ".join(f"%{k}" for k in s.operands)
    attributes = "".join(f", {k}={v!r}" for k, v in sorted(s.attributes.items()))
    return f"%{s.name} = {s.op.name}({operands}{attributes}) : {s.element}"


def _load_text(s):
    indices = "".join(f" + {i.stride}*%{i.name}(<{i.size})" for i in s.indices)
    return f"%{s.name} = load {s.parameter}[{s.at}{indices}] : {s.element}"


_STATEMENTS = {
    Constant: lambda s: f"%{s.name} = {s.value!r} : {s.element}",
    Scalar: lambda s: f"%{s.name} = scalar {s.slot} : {s.element}",
    Load: _load_text,
    Position: lambda s: f"%{s.name} = position {s.at}",
    Apply: _apply_text,
    Store: lambda s: f"store {s.parameter}[{s.at}] = %{s.value}",
    StoreLanes: lambda s: f"store {s.parameter}[{s.at}] = lanes of %{s.value}",
    Update: lambda s: (
        f"{s.parameter}[{s.at} + {s.index.stride}*%{s.index.name}(<{s.index.size})] = "
        + (f"{s.op.name}(itself, %{s.value})" if s.op else f"%{s.value}")
    ),
    Extreme: lambda s: (
        f"%{s.name} = first of {s.count} that is {s.predicate} all in {s.parameter}[{s.at}], {s.stride} apart"
        + (f"{_part(s)}, itself %{s.best}" if s.block else f", at {s.positions}" if s.positions else "")
    ),
    Accumulate: lambda s: f"accumulate %{s.value} in %{s.column}",
    Reduce: lambda s: f"%{s.name} = {s.op.name} over j of %{s.value} : {s.element}",
}
