"""The registers of a kernel while it is lowered: names, parameters, and where each statement goes.

A value is computed as far out as its operands allow: its *place* is "kernel" (once), "row" (once per row) or "lane"
(per vector of a sweep). `read` and `value` give the register of an operand at the position being written, and append
the statements that compute it unless they stand already in a block that is open.
"""

from .access import own_access
from .conversions import number_everywhere
from .dtypes import element_of, memory_element
from .extent import divides, estimated
from .graph import INPUT, SCALAR
from .kernels.kernel import Read
from .loopnest import Apply, At, Constant, Index, Load, Parameter, Position, Scalar
from .stages import stages

_PLACES = ("kernel", "row", "lane")


class Block:
    """Statements being written, and the registers already computed in them."""

    __slots__ = ("statements", "stores", "known")

    def __init__(self, known=None):
        self.statements = []
        self.stores = []
        self.known = {} if known is None else known


class Registers:
    """The domain of one group, the blocks being written to, and what they hold."""

    def __init__(self, group, reads, stored, scalars, lanes):
        self.group, self.reads, self.stored, self.scalars, self.lanes = group, reads, stored, scalars, lanes
        self.parameters, self.bindings = {}, []
        self.checks, self.count = False, 0
        self.kernel_block = Block()
        self.row_block = self.lane_block = None
        self.placement = {}
        self.inside = {v.number for v in group.values}
        self.stage = stages(group, reads)
        self.kept = {}
        self._set_domain()

    # --- domain -------------------------------------------------------------------------------------------------------
    def _set_domain(self):
        """dims: extents of the prefix loops, outermost first; inner: elements of the innermost run."""
        g = self.group
        boundaries = set(g.cuts["full"]) | {c * g.row for c in g.cuts["row"]}
        if g.outer > 1:
            boundaries.add(g.size // g.outer)
        self.inner = g.row or min(boundaries, key=estimated, default=g.size)
        steps = sorted(boundaries | {self.inner, g.size}, key=estimated)
        extents = [b // a for a, b in zip(steps, steps[1:])]
        self.dims = tuple(reversed(extents))
        self.outer_dims = 0
        size = g.size
        while g.outer > 1 and size > g.size // g.outer:
            size //= self.dims[self.outer_dims]
            self.outer_dims += 1
        self.vectors = -(-self.inner // self.lanes)
        # Where the row starts among the columns: (chunk index, chunk width) and a constant.
        self.column_terms, self.column_offset, self.width = (), 0, self.inner
        # One prefix loop may go by tiles of so many rows, from one on: then there are two loops for it, or one if there
        # is one tile.
        self.tiled, self.tile_size, self.row_offset, self.is_one_tile = len(self.dims) - 1, 0, 0, False

    @property
    def preamble(self):
        return self.kernel_block.statements

    def index_names(self):
        return [f"i{k}" for k in range(len(self.dims) + bool(self.tile_size))]

    # --- names and parameters ---------------------------------------------------------------------------------------
    def fresh(self):
        self.count += 1
        return self.count - 1

    def parameter(self, kind, what, element):
        key = (kind, what)
        if key not in self.parameters:
            self.parameters[key] = Parameter(f"p{len(self.parameters)}", element)
            self.bindings.append(key)
        return self.parameters[key].name

    def scratch(self, count, element):
        size = 1 if element in ("i8", "i1") else int(element[1:]) // 8
        name = f"p{len(self.parameters)}"
        self.parameters[("scratch", name)] = Parameter(name, "i8" if element == "i1" else element)
        self.bindings.append(("scratch", count * size))
        return name

    def memory(self, value):
        return self.parameter("value", value.number, memory_element(value.dtype))

    # --- where statements go ------------------------------------------------------------------------------------------
    def block_for(self, place):
        return {"kernel": self.kernel_block, "row": self.row_block or self.kernel_block, "lane": self.lane_block}[place]

    def put(self, key, make, place):
        """The register for `key`, made by make(name) in the block of `place` unless it is there already."""
        block = self.block_for(place)
        if key not in block.known:
            name = self.fresh()
            self.placement[name] = place
            block.statements.append(make(name))
            block.known[key] = name
        return block.known[key]

    def innermost(self, names):
        return max((self.placement[k] for k in names), key=_PLACES.index, default="kernel")

    # --- reads --------------------------------------------------------------------------------------------------------
    def at(self, access, level):
        """The position of an access at a level: At, and the place the result can have."""
        dims, names, lane_dim = self.dims, self.index_names(), True
        if level == "column":
            dims, names = self.dims[: self.outer_dims], names[: self.outer_dims]
        if level == "row" or not self.inner:
            lane_dim = False
        steps = strides_over(access.collapsed, (*dims, self.inner) if lane_dim else dims)
        lane = steps[-1] if lane_dim else 0
        row = steps[self.tiled] if dims and level != "column" else 0
        if self.tile_size and level != "column":
            of_tiles = 0 if self.is_one_tile else row * self.tile_size
            steps = (*steps[: self.tiled], of_tiles, *steps[self.tiled + 1 : len(dims)], row)
        terms = [(n, s) for n, s in zip(names, steps) if s]
        terms += [(n, width * lane) for n, width in self.column_terms if lane]
        start = access.offset + self.column_offset * lane + self.row_offset * row
        at = At(start, tuple(terms), lane)
        return at, ("lane" if lane else "row" if terms else "kernel")

    def read(self, read, level, indices=()):
        """The register of one element of an operand."""
        access = read.access
        base = access.base
        if base.number in self.inside:
            return self.value(base)
        if base.op is SCALAR:
            slot = self.scalars[base.number]
            return self.put(("scalar", slot), lambda name: Scalar(name, slot, element_of(base.dtype)), "kernel")
        if base.op.is_number:
            return self.constant(base.attributes["value"], element_of(base.dtype))
        if base.op.kind == "source" and base.op is not INPUT:
            return self.source(access, level)
        if self.reads.is_inline[base.number]:
            # Once: a recurrence of single numbers has exponentially many ways through it.
            known = self.known_value(base)
            return known or self.apply(base, [self.read(r, level) for r in self.reads.by_value[base.number]])
        at, place = self.at(access, level)
        if indices:
            place = max(place, *(self.placement[i.name] for i in indices), key=_PLACES.index)
        parameter, element = self.memory(base), element_of(base.dtype)
        key = ("load", base.number, at, indices)
        return self.put(key, lambda name: Load(name, parameter, at, element, indices), place)

    def constant(self, value, element):
        key = ("constant", repr(value), element)
        return self.put(key, lambda name: Constant(name, value, element), "kernel")

    def source(self, access, level):
        """A source at an access: its lowering gets the position instead of a load."""
        value = access.base
        number = number_everywhere(value)
        if number is not None:
            return self.constant(number, element_of(value.dtype))
        is_fill = "fill" in value.op.traits
        operands = [self.number(o) for o in value.operands]
        if is_fill:
            position = self.constant(0, "i64")
        else:
            at, place = self.at(access, level)
            position = self.put(("position", at), lambda name: Position(name, at), place)
        return self.apply(value, [position, *operands], key=("source", value.number, position))

    def number(self, value):
        """A source's operand: a number, whatever computes it."""
        known = self.reads.accesses[value.number]
        return self.read(Read(known), "row")

    def apply(self, value, names, key=None):
        place = self.innermost(names)
        self.checks |= value.op.checks_on(value.dtype.is_floating_point)
        element = element_of(value.dtype)
        names = tuple(names)
        key = key or ("apply", value.number)
        return self.put(key, lambda name: Apply(name, value.op, names, value.attributes, element), place)

    # --- values of the group ------------------------------------------------------------------------------------------
    def value(self, value):
        """The register of a group's value in the statement being written."""
        known = self.known_value(value)
        if known is not None:
            return known
        if value in self.kept and self.kept[value][1] < self.now:
            return self.reload(value)
        assert value.op.kind != "reduction", f"{value!r} is used before it is complete"
        level = self.group.level[value.number]
        reads = self.reads.by_value[value.number]
        return value.op.kernel.compute(self, value, reads, level)

    def known_value(self, value):
        """The register that holds the value already, or None."""
        for block in (self.lane_block, self.row_block, self.kernel_block):
            if block is not None and ("apply", value.number) in block.known:
                return block.known[("apply", value.number)]
        return None

    def pass_on(self, value, name):
        """A value that is in a register already."""
        self.block_for(self.placement[name]).known[("apply", value.number)] = name
        return name

    def look_up(self, table, index, level):
        """The register of a table's element where an index says."""
        indices = ()
        if table.indexed is not None:
            _, stride, size = table.indexed
            indices = (Index(self.read(index, level), stride, size),)
            self.checks = True
        return self.read(table, level, indices)

    def reload(self, value):
        parameter = self.kept[value][0]
        at = self.kept_at(value)
        return self.put(
            ("reload", value.number), lambda name: Load(name, parameter, at, element_of(value.dtype)), "lane"
        )

    def kept_at(self, value):
        if value in self.stored:
            return self.own_at(value)
        return At(self.column_offset, self.column_terms, 1)

    def own_at(self, value):
        """Where a value of the group is stored: row-major over its level's dimensions."""
        return self.at(own_access(value), self.group.level[value.number])[0]


def strides_over(collapsed, dims):
    """The stride of every loop of `dims`, outermost first, for an access in collapsed form."""
    entries = [list(e) for e in collapsed]
    result = []
    for extent in reversed(dims):
        if extent == 1 or not entries:
            result.append(0)
            continue
        size, stride = entries[-1]
        result.append(stride)
        assert divides(extent, size), (collapsed, dims)
        if size == extent:
            entries.pop()
        else:
            entries[-1] = [size // extent, stride * extent]
    return tuple(reversed(result))
