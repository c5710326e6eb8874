"""What differs from step to step of a loop over steps (program.py)."""

from .builder import I64, PTR


class Columns:
    """The table of a loop over steps: a row per iteration, a column for each address or offset that differs."""

    def __init__(self):
        self.columns = {}

    def operand(self, part, addresses):
        """A function from the loaded row to the pointer of one operand, whose address in every iteration is given."""
        first = addresses[0]
        if all(a == first for a in addresses):
            pointer = part.pointer(first)
            return lambda row: pointer
        if all(a.word == first.word for a in addresses):
            base, offset = part.word(first.word), self.column([a.offset for a in addresses])
            return lambda row: part.own(first, part.b.offset(base, row(offset), 1))
        slot = self.column([part.program.slot(a.word) for a in addresses])
        offset = self.column([a.offset for a in addresses])

        def pointer_at(row):
            base = part.b.load(part.b.offset(part.closure, row(slot), 8), PTR)
            return part.own(first, part.b.offset(base, row(offset), 1))

        return pointer_at

    def column(self, numbers):
        return self.columns.setdefault(tuple(numbers), len(self.columns))

    def emit(self, module):
        rows = [x for row in zip(*self.columns) for x in row]
        return module.constant_table(f"steps{len(module.globals)}", "i64", rows) if rows else None

    def load(self, b, table, k):
        """A function from a column to its number in row k, loaded once."""
        row = b.offset(table, k, 8 * len(self.columns)) if table else None
        loaded = {}

        def number(column):
            if column not in loaded:
                loaded[column] = b.load(b.offset(row, column, 8), I64)
            return loaded[column]

        return number
