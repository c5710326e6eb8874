"""Products of elements that lie at regular distances in several dimensions: what a convolution sums.

    out[rows.second(i) + columns.second(j)] = sum over p of a[rows.first(i) + depth.first(p)]
                                                          * b[columns.first(j) + depth.second(p)]

A `Grid` gives two offsets for every number: those of the numbers 0, 1, 2 ... are those of the indices of its dimensions
in row-major order, times their strides. A `Group` is one such product; a list of them, whose results do not overlap, is
one call of the routine in compiler/emit/grid_product.py, which reads them as words. Where rows and columns are those of
matrices this is a matrix product; with the taps of a convolution as dimensions of `depth` it is a convolution without
copies of its windows.

Every element is one chain of fused multiply-adds from 0 on, in the order of p.
"""

from functools import reduce
from math import prod

from .extent import upper
from .plain import Plain
from .target import PANEL_BYTES

DIMENSIONS = 4  # of a grid
BLOCK_DEPTH = 1024  # terms of the sums that are done at once
_ALIGNMENT = 64
# Words of the head, of a grid, and of a group: sizes, then rows, columns and depth.
HEAD, GRID, SIZES = 13, 2 + 3 * DIMENSIONS, 6
# The second word: whether groups take turns, or share a panel.
TOGETHER, SHARED = 1, 2
# Of adjacent columns that are read in place: half a panel.
PIECE_BYTES = PANEL_BYTES // 2
GROUP = SIZES + 3 * GRID


class Grid(Plain):
    """`dimensions`: (extent, first stride, second stride), outermost first; the offsets of number 0."""

    __slots__ = ("dimensions", "first", "second")

    def __init__(self, dimensions, first=0, second=0):
        self.dimensions = dimensions
        self.first = first
        self.second = second

    @property
    def count(self):
        return prod(extent for extent, _, _ in self.dimensions)

    @property
    def words(self):
        missing = DIMENSIONS - len(self.dimensions)
        return [self.first, self.second, *(n for d in ((1, 0, 0),) * missing + self.dimensions for n in d)]


class Group(Plain):
    """`in_place`: columns are not packed; those of the last dimension are adjacent, in b and in the result, and a unit
    has two pieces of them, which begin where the dimension does."""

    __slots__ = ("rows", "columns", "depth", "in_place")

    def __init__(self, rows, columns, depth, in_place=False):
        self.rows = rows
        self.columns = columns
        self.depth = depth
        self.in_place = in_place

    def panels(self, size):
        if not self.in_place:
            return -(-self.columns.count // (PANEL_BYTES // size))
        return -(-prod(d[0] for d in self.columns.dimensions[:-1]) * self.pieces(size) // 2)

    def pieces(self, size):
        """Of the last dimension; 0 if columns are packed."""
        return -(-self.columns.dimensions[-1][0] * size // PIECE_BYTES) if self.in_place else 0


class Products(Plain):
    """Groups as one call. `chunk`: rows that a unit computes at most; a unit is a chunk of rows by a panel of columns.
    `together`: the groups have the same number of units, and take turns panel by panel.

    `panel`: a group of all the terms that any of the groups sums; they have its columns, and its rows shifted. The
    second offsets of their terms are numbers of its terms, rising. Row i of group k of n is row i n + k of one result,
    whose rows are neighbours. A unit does all groups, with one packed panel.
    """

    __slots__ = ("groups", "chunk", "together", "panel")

    def __init__(self, groups, chunk, together, panel=None):
        self.groups = groups
        self.chunk = chunk
        self.together = together
        self.panel = panel

    def units_of(self, group, size):
        return group.panels(size) * -(-group.rows.count // self.chunk)

    def units(self, size):
        return sum(self.units_of(g, size) for g in self._with_units)

    @property
    def _with_units(self):
        return (self.panel,) if self.panel else self.groups

    @property
    def flops(self):
        return 2 * sum(g.rows.count * g.columns.count * g.depth.count for g in self.groups)

    def _areas(self):
        """Where in the scratch memory everything is, and its size in all; see emit/grid_product.py."""
        rows = min(self.chunk, max(g.rows.count for g in self.groups)) + 1
        all_rows = max(g.rows.count for g in self.groups) + 1
        depth = reduce(upper, (g.depth.count for g in self.groups))
        rows_out, terms, terms_b, places = all_rows, depth, depth, 0
        if self.panel:
            rows, rows_out = rows * len(self.groups), all_rows * len(self.groups)
            places, terms_b = sum(g.depth.count for g in self.groups), self.panel.depth.count
            terms = max(places, terms_b)
        found, at = [], 0
        for n_bytes in (
            BLOCK_DEPTH * PANEL_BYTES,  # the panel
            rows * PANEL_BYTES,  # results
            4 * all_rows, 4 * rows_out, 4 * terms, 4 * terms_b,  # offsets of rows and terms
            4 * 32, 4 * 32, 4 * 64, 4 * 64,  # of columns; runs that are read and written: beginnings, lengths
            4 * places,  # terms of a panel that is shared
        ):  # fmt: skip
            found.append(at)
            at += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
        return found, at

    @property
    def scratch_bytes(self):
        return self._areas()[1]

    def words(self, size):
        areas, _ = self._areas()
        groups = (self.panel, *self.groups) if self.panel else self.groups
        result = [len(groups), SHARED if self.panel else TOGETHER if self.together else 0, *areas]
        for g in groups:
            result += [g.rows.count, g.columns.count, g.depth.count, self.chunk, self.units_of(g, size)]
            result.append(g.pieces(size))
            result += [*g.rows.words, *g.columns.words, *g.depth.words]
        return result
