"""What of a recorded path holds for every size: shape rules are asked with extents (compiler/extent.py), and what they
ask is noted as guards. That two recordings agree would prove nothing about a third."""

from typing import NamedTuple

from ...compiler.access import accesses
from ...compiler.decompose import decompose
from ...compiler.extent import Scope, identical, is_open
from ...compiler.graph import Graph
from ...compiler.ops import OWN
from ...compiler.ops.parts import PARTS_AT
from ...compiler.ops.table import Meta
from ...compiler.shapes import contiguous_strides
from ..programs.formulas import has_formula
from ..programs.recording import ASSIGN, BACKWARD, GRADIENTS, INPUT, NUMBER_DTYPES, UPDATE
from ..programs.sizes import in_scope, reason_of


class Refused(Exception):
    """Why calls of other sizes cannot use what was recorded."""


class OpenPath(NamedTuple):
    """The steps of a path, with Formulas in place of what follows from sizes: shape by number of a value, attributes by
    index of the step. guards: what the shape rules have asked, as those of programs are."""

    shapes: dict
    attributes: dict
    guards: list


def open_path(path, of_many, default_dtype):
    """The OpenPath of what was recorded for a program of many sizes. Refused if a shape rule says otherwise."""
    metas, _, attributes = parts = of_many.family.parts
    if len(attributes) != len(path):
        raise Refused("its program is a part of the call")
    scope = Scope(of_many.numbers)
    rules = _Rules(*in_scope(parts, scope), default_dtype)
    for k, step in enumerate(path):
        try:
            rules.look_at(step, k)
        except Refused:
            raise
        except Exception as error:  # whatever a rule does that only ints can do
            raise Refused(reason_of(error)) from None
    shapes = {vid: meta.shape for vid, meta in enumerate(metas) if has_formula(meta.shape)}
    own = {k: one for k, one in enumerate(attributes) if has_formula(one)}
    guards = [[text, comparison, answer] for (text, comparison), answer in scope.guards.items()]
    return OpenPath(shapes, own, guards)


class _Rules:
    """Asks of each step whether its results are what was supposed. strides: of each value so far, by number; None where
    nothing is known of them."""

    def __init__(self, metas, _, attributes, default_dtype):
        self.metas, self.attributes, self.default_dtype = metas, attributes, default_dtype
        self.strides = {}

    def look_at(self, step, k):
        made, own = range(step.first, step.first + len(step.metas)), self.attributes[k]
        for vid in made:
            self.strides[vid] = contiguous_strides(self.metas[vid].shape)
        if step.op is INPUT:
            shapes = [own[0]]
            if own[4] is not None:
                self.strides[step.first] = own[4]
        elif step.op in (BACKWARD, GRADIENTS):
            shapes = [self.metas[vid].shape for vid in step.detail.wanted]
        elif step.op == ASSIGN:
            self._look_at_change(*step.operands[:2])
            shapes = []
        elif step.op == UPDATE:
            shapes = [self.metas[vid].shape for vid in made]
            if any(_is_open(self.metas[vid]) for vid in (*made, *step.operands)):
                raise Refused(f"what an update changes has a size that changes [{step.line}]")
        else:
            shapes = [self._asked(step, own).shape]
        if len(shapes) != len(made) or not all(identical(s, self.metas[v].shape) for s, v in zip(shapes, made)):
            raise Refused(f"the shape of {step.op} does not follow from the sizes [{step.line}]")

    def _look_at_change(self, old, new):
        """The new value is where the old one was, or in memory of its own."""
        before = self.strides[old]
        if before is None or not identical(before, contiguous_strides(self.metas[old].shape)):
            self.strides[new] = None

    def _asked(self, step, own):
        operands = [self.metas[v] if v >= 0 else Meta((), NUMBER_DTYPES[v], True) for v in step.operands]
        is_affected = any(map(_is_open, operands)) or _holds_extent(own)
        if is_affected and step.op.name not in OWN:
            raise Refused(f"the rule of {step.op.name} is not weft's own [{step.line}]")
        if is_affected and step.op in PARTS_AT:
            raise Refused(f"a part is taken at changing places of what has a changing size [{step.line}]")
        if step.op.kind == "view" or "view" in step.op.extra:
            self._look_at_view(step, operands[0], own, is_affected)
        return step.op.infer(operands, own, self.default_dtype)

    def _look_at_view(self, step, operand, own, is_affected):
        """Whether the result is a view, and not a copy since no strides can say it, must not depend on sizes."""
        is_view = step.detail == "view"
        strides = self.strides[step.operands[0]] if step.operands and step.operands[0] >= 0 else None
        found = None if strides is None else self._strides_of_view(step.op, operand, strides, own)
        is_told = strides is not None and (found is not None) is is_view
        if is_affected and not is_told:
            raise Refused(f"whether {step.op.name} is a view depends on sizes [{step.line}]")
        if is_view:
            self.strides[step.first] = found

    def _strides_of_view(self, op, operand, strides, own):
        """None if it is a copy."""
        graph = Graph("view", self.default_dtype)
        shown = graph.input(operand.shape, operand.dtype, strides)
        graph.outputs = [graph.apply(op, (shown,), own)]
        simple, _ = decompose(graph)
        found = accesses(simple)[simple.outputs[0].number]
        return None if found is None or found.base is not simple.inputs()[0] else found.strides


def _is_open(meta):
    return any(map(is_open, meta.shape))


def _holds_extent(thing):
    if isinstance(thing, dict):
        thing = thing.values()
    elif not isinstance(thing, (list, tuple)):
        return is_open(thing)
    return any(map(_holds_extent, thing))
