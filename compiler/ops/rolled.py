"""Steps of equal form as one op: what compiler/roll.py makes of a loop in Python that a recording holds written out.

    for k < count:  outputs = body(reads ..., carried ...)

A read begins further on in every step by a number of elements that may be 0 or below 0; what is carried is an output
of the step before. Of each output the result, which is flat, holds the rows of all steps, or that of the last step and
room for the one before it:

    | kept: count rows | kept: count rows | last, before it | last, before it |
"""

from dataclasses import dataclass
from math import prod

from ..extent import Fixed
from ..kernels.library import Rolled
from .table import Meta, Op


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The graph of one step: its inputs are the reads, then what is carried; its text is what tells it from others."""

    graph: object

    def __repr__(self):
        return str(self.graph)


def regions(attributes):
    """Per output of the body, (the element of the result where its rows begin, elements of a row)."""
    found, start = [], 0
    for output, is_kept in zip(attributes["body"].graph.outputs, attributes["kept"]):
        size = prod(output.shape)
        found.append((start, size))
        start += size * (attributes["count"] if is_kept else 2)
    return found


def _infer(operands, attributes, default_float):
    outputs, last = attributes["body"].graph.outputs, attributes["kept"][-1]
    start, size = regions(attributes)[-1]
    return Meta((start + size * (attributes["count"] if last else 2),), outputs[0].dtype)


def _without_derivative(index):
    raise Fixed("a derivative goes through steps that stand for a loop")


# No entry of the table: nobody calls it, and it stands for ops that are there. Attributes: body, count; `reads`, per
# input (operand, first element, elements further on in every step); `carried`, per input after these (operand, first
# element, output): what comes before the first step, and which output does later; `kept`, per output, whether all
# steps' rows are; and `scalars`, which run-time scalar of the program is the body's first: those of every step follow
# those of the step before.
ROLLED = Op("rolled", "routine", _infer, vjp=_without_derivative, kernel=Rolled())
