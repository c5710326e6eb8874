"""How an op is computed in a compiled program: what the passes ask of it, and the answers of most ops.

Every entry of the op table names its kernel, an object of a class in this folder. Passes ask the kernel and never which
op it is:

    convert      what is explicit in legal form: conversions, broadcasts                      legalize.py
    in_memory    which operands must be in memory                                             legalize.py, reads.py
    packed       which it copies if they are transposed                                       access.py
    reads        which elements of its operands it reads, and whether it can share their loop reads.py, fuse.py
    lower        the loop nest or the call that computes it                                   pipeline.py
    flops        how much it computes, for `explain`                                          pipeline.py
    can_fail     whether it checks its operands while it runs                                 schedule.py, simplify.py

What it is lowered to (lowered.py) answers the other three: what it costs, how threads share it, and what memory each of
them touches. There are three families:

    loop         works element by element; loops are shared with other ops (loop.py)
    nest         writes a loop nest of its own (nest.py)
    library      calls a routine with text of its own, by its symbol (library.py)

These classes are loaded with the op table, by every process. So they import nothing that only a compiler needs: they
are handed what they use, such as the `lowering` that knows how to make loop nests.
"""


class Read:
    """One operand of an op over the op's positions. `fusable`: element k of the op needs only the elements that the
    access names. `indexed`: (position of the index operand's read, stride, size) for reads at computed positions."""

    __slots__ = ("access", "fusable", "indexed")

    def __init__(self, access, fusable=True, indexed=None):
        self.access = access
        self.fusable = fusable
        self.indexed = indexed


class Kernel:
    """An op that is computed by itself, from operands that are in memory."""

    # "loop", "nest" or "library"; None for values that are no kernel's: views and sources.
    family = None
    # Whether what must be in memory must be there in row-major order, and not a view of something.
    needs_row_major = False
    # Positions of matrices that it copies first where their columns lie in a row, not their rows.
    packed = ()
    # Whether it shares no loop with other ops, though it is one.
    is_apart = False
    # Whether every kernel that needs the value computes it again, if it is a single number.
    may_be_inline = False

    @property
    def is_node(self):
        return self.family is not None

    @property
    def is_loop(self):
        return self.family == "loop"

    def convert(self, graph, value, operands):
        """The value in legal form, appended to the graph; None if it is copied as it is."""
        return None

    def in_memory(self, value):
        """Positions of the operands that must be in memory."""
        return range(len(value.operands))

    def reads(self, value, operands):
        """The Reads of a value, given the Accesses of its operands."""
        return [Read(a, fusable=False) for a in operands]

    def lower(self, group, lowering):
        """What computes a group (see pipeline.py: Lowering)."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it computes a group: it must define `lower`")

    def flops(self, value):
        return 0

    def can_fail(self, value):
        return False


class View(Kernel):
    """The elements of its operand, in memory or not, at other positions."""

    def in_memory(self, value):
        return ()


class Source(Kernel):
    """Elements made from numbers and positions: every kernel that reads them makes them."""

    def in_memory(self, value):
        return ()
