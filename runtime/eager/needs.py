"""Which values the derivative of an op reads: found by running its rules once on a graph, never declared."""

from ...compiler.autodiff import vjp
from ...compiler.extent import LEAST, is_open
from ...compiler.graph import Graph
from ...compiler.ops.kinds import number_meta
from ...compiler.ops.table import Meta
from ..state.tensor import Tensor

_needs = {}
_of_steps, _MOST_STEPS = {}, 1024


def needs(op, operands, attributes, differentiated):
    """(positions of the operands the rules read, whether they read the output): found by recording the rules once."""
    kinds = tuple((x.ndim, x.dtype) if isinstance(x, Tensor) else type(x) for x in operands)
    # Equal attributes may be of different kinds (runtime/state/attributes.py).
    key = (op, kinds, differentiated, tuple(attributes.items()), tuple(map(type, attributes.values())))
    found = _needs.get(key)
    if found is None:
        metas = [x if not isinstance(x, Tensor) else Meta(x.shape, x.dtype) for x in operands]
        found = _needs[key] = needs_of(op, metas, attributes, differentiated)
    return found


def needs_of(op, metas, attributes, differentiated):
    """The same of operands that are Metas or numbers. Steps of a loop ask for the same again and again, and so do
    batches of other lengths: which sizes are equal may decide what rules read, and which are 0 or 1, but not what the
    others are."""
    kinds, seen = [], {}
    for m in metas:
        if isinstance(m, Meta):
            m = [_size_alike(n, seen) for n in m.shape], m.dtype.name
        kinds.append(m)
    # Texts tell 1, 1.0 and True apart.
    key = op, repr(kinds), repr(attributes), differentiated
    found = _of_steps.get(key)
    if found is None:
        if len(_of_steps) >= _MOST_STEPS:
            _of_steps.clear()
        found = _of_steps[key] = _recorded(op, metas, attributes, differentiated)
    return found


def _size_alike(n, seen):
    """What stands for a size: how many others came before it. Of an extent it is not asked what it is."""
    if is_open(n):
        return seen.setdefault(str(n), len(seen) + LEAST)
    return n if n < LEAST else seen.setdefault(n, len(seen) + LEAST)


def _recorded(op, metas, attributes, differentiated):
    graph = Graph("derivative")
    # What is read in float32 (autodiff.py) is read.
    values = [graph.input(m.shape, m.dtype.wide) if isinstance(m, Meta) else m for m in metas]
    out_meta = op.infer([v if hasattr(v, "shape") else number_meta(v) for v in values], attributes, graph.default_float)
    out = graph.input(out_meta.shape, out_meta.dtype.wide)
    cotangent = graph.input(out_meta.shape, out_meta.dtype.wide)
    results = [vjp(op, k, cotangent, out, values, attributes) for k, wanted in enumerate(differentiated) if wanted]
    read = _read_by(graph, results)
    needed = frozenset(k for k, v in enumerate(values) if getattr(v, "number", None) in read)
    # What a user's rule has asked for counts, whatever becomes of it.
    asked, asks_output = op.extra.get("asks", ((), False))
    return needed.union(asked), asks_output or out.number in read


def _read_by(graph, results):
    """Numbers of the values that are read on the way to the results. What is only reshaped to ask its new shape is
    not."""
    read = {r.number for r in results if hasattr(r, "number")}
    for value in reversed(graph.values):
        if value.op is not None and (value.number in read or value.op.kind != "view"):
            read.update(o.number for o in value.operands)
    return read
