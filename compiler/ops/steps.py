"""Steps whose number only the call knows: one op that goes through them, each like the last.

    result[t] = cell(sequences[t] ..., result[t - 1], constants ...)      result[-1] is `first`

or from the last to the first. A recurrent layer of a known length is written out instead (recurrent.py), step by step:
then fusion sees all of it. Of a length that is an extent the program has the kernels of one step, and a loop around
them (stepwise.py). A cell is written with ops, as the steps of the other form are, so both have the same bits.

A row of the result holds all that a step hands on: what comes after reads parts of it.
"""

from ..extent import Fixed, is_open
from ..kernels.library import Steps
from .table import Meta, Op

# name -> cell(rows of the sequences, the row before, the constants, **facts) -> row. The name and the facts are
# attributes of the op, which a graph's text tells.
CELLS = {}


def cell(function):
    CELLS[function.__name__] = function
    return function


def steps(function, sequences, first, constants, *, reverse, **facts):
    """The rows of all steps."""
    assert is_open(sequences[0].shape[0]), "steps of a known number are written out"
    attributes = {"cell": function.__name__, "n_sequences": len(sequences), "reverse": reverse, **facts}
    return STEPS(*sequences, first, *constants, **attributes)


def _infer(operands, attributes, default_float):
    first = operands[attributes["n_sequences"]]
    return Meta((operands[0].shape[0], *first.shape), first.dtype)


def row_of(operands, cell, n_sequences, reverse, **facts):
    """What one step computes, of the rows of the sequences, the row before and the constants."""
    return CELLS[cell](operands[:n_sequences], operands[n_sequences], operands[n_sequences + 1 :], **facts)


def _without_derivative(index):
    raise Fixed("a derivative goes through steps that only the call counts")


# No entry of the table: nobody calls it, and it stands for ops that are there.
STEPS = Op("steps", "routine", _infer, vjp=_without_derivative, kernel=Steps(row_of))
