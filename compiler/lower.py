"""Lowering: a fusion group becomes a loop nest. All choices of tiles, unrolling and storage are made here.

    rows, no column sums            for prefix ...            { sweeps over the row }
    column sums                     for row                   { sweeps } then the totals; the sums are in registers if
                                                              the row is short, else in memory
    column sums of very wide rows   for chunk of columns      { for row { sweeps } then the totals }
    a transposed operand            for rows by 64            { for one vector of columns { for 64 rows } }, then by
                                                              16, then those that are left over

Every value is placed as far out as its operands allow: one that no index reaches is computed once per kernel, one that
only row indices reach once per row. A value needed in a later pass over the row is taken from its registers (short
rows), computed again (cheap chains from loads), or kept in a row buffer, which is its own memory if it has any.
"""

from functools import partial
from math import prod

from .dtypes import element_of
from .extent import is_open
from .loopnest import Accumulate, Apply, At, Column, Kernel, Load, Loop, Reduce, Store, Sweep
from .lowered import Loops
from .reads import can_fail, is_expensive
from .registers import Block, Registers, strides_over
from .target import COLUMN_CHUNK, LINE_BYTES

# Values that take at most this many cheap ops from loads are computed again in later passes.
_RECOMPUTE = 3
# Rows at a time where an operand is read across: the elements of four cache lines of f32, as long as there are so many
# rows, then those of one. Of rows a multiple of 4 KB apart caches hold few lines, and each page is looked up anew: the
# more of a row is used at once, the better.
_TILES = (LINE_BYTES, LINE_BYTES // 4)
WHOLE_ROWS = 2 * COLUMN_CHUNK


def lower(group, reads, stored, scalars, target):
    """The Loops of a loop group. `stored`: its values that must be in memory; `scalars`: number -> slot."""
    elements = {element_of(v.dtype) for v in group.values}
    elements |= {element_of(r.access.base.dtype) for v in group.values for r in reads.by_value[v.number]}
    lanes = target.lanes_of_truths if _are_truths_in_a_row(group, reads, elements) else target.lanes(elements)
    nest = _Nest(group, reads, stored, scalars, lanes, target)
    nest.write()
    kernel = Kernel(tuple(nest.parameters.values()), nest.lanes, (*nest.preamble, *nest.body), nest.checks)
    return Loops(kernel, tuple(nest.bindings))


def _are_truths_in_a_row(group, reads, elements):
    """Whether all values are truths, made element by element of others that lie in memory in the same order."""
    if elements != {"i1"} or is_open(group.size) or not all(v.op.kind == "elementwise" for v in group.values):
        return False
    return all(r.access.is_whole for v in group.values for r in reads.by_value[v.number])


class _Nest(Registers):
    """The loops of one kernel."""

    def __init__(self, group, reads, stored, scalars, lanes, target):
        super().__init__(group, reads, stored, scalars, lanes)
        self.target = target

    def write(self):
        level = self.group.level
        self.row_sums = [v for v in self.group.values if v.op.kind == "reduction" and level[v.number] == "row"]
        self.column_sums = [v for v in self.group.values if v.op.kind == "reduction" and level[v.number] == "column"]
        if self.group.size == 1:
            self.inner = 0
            self.body = self.single_body()
        elif self.read_across() is not None:
            self.body = self.tiled_nest()
        elif not self.column_sums:
            self.body = self.nest(self.dims, 0, self.row_body)
        else:
            self.body = self.nest(self.dims[: self.outer_dims], 0, self.column_nest)

    def nest(self, extents, first, make_body):
        body = make_body()
        for k in reversed(range(len(extents))):
            body = [Loop(f"i{first + k}", extents[k], tuple(body))]
        return body

    def read_across(self):
        """The prefix loop, the innermost if there are several, along which something is read whose rows are walked
        across; None if there is none. Nothing else asks for an order of the loops: there are no sums."""
        if self.group.row or self.column_sums or _is_less(self.inner, self.lanes):
            return None
        found = set()
        for value in self.group.values:
            for read in self.reads.by_value[value.number]:
                *steps, lane = strides_over(read.access.collapsed, (*self.dims, self.inner))
                if not _is_less(lane, 2) and read.access.base.number not in self.inside:
                    found |= {k for k, step in enumerate(steps) if not is_open(step) and step == 1}
        return max((k for k in found if not _is_less(self.dims[k], min(_TILES))), default=None)

    def tiled_nest(self):
        """Tiles of rows by one vector of columns: what is read across is used up while its cache lines are there."""
        self.tiled = self.read_across()
        rest, body = self.dims[self.tiled], []
        for self.tile_size in _TILES:
            count = rest // self.tile_size
            if not _is_less(count, 1):
                self.is_one_tile = not is_open(count) and count == 1
                body += self.around_tiles(count, self.tile)
                self.row_offset += count * self.tile_size
                rest -= count * self.tile_size
        self.tile_size = 0
        if not _is_less(rest, 1):
            body += self.around_tiles(rest, self.row_body)
        return body

    def around_tiles(self, count, make_body):
        body = make_body()
        if not (self.tile_size and self.is_one_tile):  # or the outermost loop would be none that threads can share
            body = [Loop(f"i{self.tiled}", count, tuple(body))]
        for k in reversed(range(len(self.dims))):
            if k != self.tiled:
                body = [Loop(f"i{k}", self.dims[k], tuple(body))]
        return body

    def tile(self):
        count, rest = divmod(self.inner, self.lanes)
        self.width, self.column_terms = self.lanes, (("c", self.lanes),)
        body = [Loop("c", count, (self.tile_rows(),))]
        self.column_terms = ()
        if not _is_less(rest, 1):
            self.width, self.column_offset = rest, count * self.lanes
            body.append(self.tile_rows())
        self.width, self.column_offset = self.inner, 0
        return body

    def tile_rows(self):
        turned = self.lanes > 1 and min(_TILES) % self.lanes == 0 and not is_open(self.width)
        return Loop(self.index_names()[-1], self.tile_size, tuple(self.row_body()), turned=turned)

    def row_body(self, columns=(), unrolled=None):
        """All passes over one row, with the row's own values between them."""
        short = self.is_short(self.width) if unrolled is None else unrolled
        self.row_block, self.lane_block = Block(), Block()
        passes = self.passes(columns)
        if not short:
            self.plan_kept(passes)
        for now in sorted(passes):
            self.now = now
            # In a short row what earlier passes computed is still in registers.
            self.lane_block = Block(self.lane_block.known if short else None)
            self.sweep(passes[now], short, columns)
        self.lane_block = None
        for value in self.group.values:
            if self.group.level[value.number] == "row":
                self.finish_row_value(value)
        return self.take_row()

    def is_short(self, width):
        """Whether a row may be unrolled."""
        return not is_open(width) and -(-width // self.lanes) <= self.target.short_row

    def single_body(self):
        """A domain of one element: no loops, no vectors."""
        self.row_block, self.lane_block = Block(), None
        for value in self.group.values:
            self.finish_row_value(value)
        return self.take_row()

    def finish_row_value(self, value):
        # After everything the row reads: a commit may overwrite what it read.
        if value in self.stored or can_fail(value):
            name = self.value(value)
            if value in self.stored:
                self.row_block.stores.append(Store(self.memory(value), self.own_at(value), name))

    def take_row(self):
        block, self.row_block = self.row_block, None
        return block.statements + block.stores

    def passes(self, columns):
        """stage -> the values the pass over the row is for: reductions, stores and checks."""
        passes = {}
        for value in self.group.values:
            stage = self.stage[value.number]
            if value in self.row_sums:
                passes.setdefault(stage - 1, []).append(value)
            elif value in self.column_sums or self.is_effect(value):
                passes.setdefault(stage, []).append(value)
        return passes

    def is_effect(self, value):
        """Whether a full value must be computed even if nothing else in the group needs it."""
        is_full = self.group.level[value.number] == "full"
        return is_full and (value in self.stored or can_fail(value))

    def sweep(self, roots, short, columns):
        """One pass over the row: reductions, stores and checks of its stage."""
        block = self.lane_block
        for value in roots:
            if value in self.row_sums:
                self.reduce(value, self.read(self.reads.by_value[value.number][0], "full"))
            elif value in self.column_sums:
                name = self.read(self.reads.by_value[value.number][0], "full")
                block.statements.append(Accumulate(columns[value.number].name, name))
            elif value in self.stored:
                block.stores.append(Store(self.memory(value), self.own_at(value), self.value(value)))
            else:
                self.value(value)
        for value, (parameter, first) in self.kept.items():
            if first == self.now and value not in self.stored:
                block.stores.append(Store(parameter, self.kept_at(value), self.value(value)))
        body = tuple(block.statements + block.stores)
        rotated = not short and not is_open(self.width) and _shares_body(body)
        self.row_block.statements.append(Sweep(self.width, body, short, rotated))

    def reduce(self, value, operand):
        result = self.fresh()
        self.placement[result] = "row"
        self.lane_block.statements.append(Reduce(result, value.op, operand, element_of(value.dtype)))
        self.row_block.known[("apply", value.number)] = result

    def plan_kept(self, passes):
        """kept: values of earlier passes that later ones load: their memory and the pass that stores them."""
        self.kept, first_pass = {}, {}
        for now in sorted(passes):
            pending, seen = list(passes[now]), set()
            while pending:
                value = pending.pop()
                if value in seen:  # a chain of which each value is used twice has two to its length of ways
                    continue
                seen.add(value)
                if first_pass.setdefault(value, now) < now and self.worth_keeping(value):
                    if value not in self.kept:
                        self.kept[value] = (self.row_buffer(value), first_pass[value])
                    continue
                pending += self.full_operands(value)

    def full_operands(self, value):
        bases = [r.access.base for r in self.reads.by_value[value.number]]
        return [b for b in bases if b.number in self.inside and self.group.level[b.number] == "full"]

    def row_buffer(self, value):
        if value in self.stored:
            return self.memory(value)
        return self.scratch(self.inner, element_of(value.dtype))

    def worth_keeping(self, value):
        """Whether loading it again is cheaper than computing it again."""
        cost, pending = 0, [value]
        while pending:
            v = pending.pop()
            if is_expensive(v):
                return True
            cost += "copy" not in v.op.traits
            if cost > _RECOMPUTE:
                return True
            pending += self.full_operands(v)
        return False

    # --- column sums --------------------------------------------------------------------------------------------------
    def column_nest(self):
        if self.row_sums or is_open(self.inner) or self.inner <= WHOLE_ROWS:
            return self.column_body(in_memory=not self.is_short(self.inner))
        return self.column_chunks()

    def column_chunks(self):
        """Column sums of wide rows, as many columns at a time as have their sums in the cache."""
        count, rest = divmod(self.inner, COLUMN_CHUNK)
        self.width, self.column_terms = COLUMN_CHUNK, (("c", COLUMN_CHUNK),)
        body = [Loop("c", count, tuple(self.column_body(in_memory=True)))]
        self.column_terms = ()
        if rest:
            self.width, self.column_offset = rest, count * COLUMN_CHUNK
            body += self.column_body(in_memory=True)
        return body

    def column_body(self, in_memory=False):
        """for rows { sweeps } with column sums, and what is computed from them."""
        rows = self.dims[self.outer_dims :]
        names = self.index_names()[self.outer_dims :]
        columns = {}
        for value in self.column_sums:
            element = element_of(value.dtype)
            storage = tuple(self.scratch(self.width, element) for _ in range(3)) if in_memory else ()
            columns[value.number] = Column(self.fresh(), value.op, element, self.width, storage)
        statements = self.row_body(columns=columns, unrolled=not in_memory)
        if len(rows) == 1:
            loop = Loop(names[0], rows[0], tuple(statements), tuple(columns.values()))
        else:
            split, stride = [], 1
            for name, extent in reversed(list(zip(names, rows))):
                split.append((name, stride, extent))
                stride *= extent
            loop = Loop("r", prod(rows), tuple(statements), tuple(columns.values()), tuple(reversed(split)))
        return [loop, *self.column_epilogue(columns, in_memory)]

    def column_epilogue(self, columns, in_memory):
        self.row_block, self.lane_block, self.now = Block(), Block(), 0
        for value in self.column_sums:
            column = columns[value.number]
            if in_memory:
                load = partial(Load, parameter=column.storage[0], at=At(0, (), 1), element=column.element)
                name = self.put(("sum", column.name), load, "lane")
            else:
                name = column.name
                self.placement[name] = "lane"
            self.lane_block.known[("apply", value.number)] = name
        stores = []
        for value in self.group.values:
            if self.group.level[value.number] == "column" and value in self.stored:
                name = self.value(value)
                stores.append(Store(self.memory(value), self.own_at(value), name))
        sweep = Sweep(self.width, tuple(self.lane_block.statements + stores), not in_memory)
        result = [*self.row_block.statements, sweep]
        self.row_block = self.lane_block = None
        return result


def _is_less(extent, number):
    """Whether an extent is less, without asking: of one that the call tells nobody knows."""
    return not is_open(extent) and extent < number


def _shares_body(body):
    """Whether a sweep's reductions should take turns with one copy of its body. More copies are faster only where the
    body does nothing but load; elsewhere they just take longer to compile."""
    return any(isinstance(s, Reduce) for s in body) and any(isinstance(s, Apply) for s in body)
