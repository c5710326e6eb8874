"""The same diagrams in Graphviz's language, for those who have it: dot -Tpdf."""

from ..runtime.state.tensor import Tensor
from .autograd import diagram_of_autograd
from .graphs import diagram_of_graph

_COLORS = {"leaf": "lightblue", "op": "lightgrey", "saved": "white", "output": "darkolivegreen1"}


def to_dot(what, params=None, **options):
    """The DOT text of a tensor's autograd graph, or of a compiler graph with draw_graph's options."""
    if isinstance(what, Tensor):
        return _text(diagram_of_autograd(what, params, **options))
    return _text(diagram_of_graph(what, **options))


def _text(diagram):
    lines = [f"digraph {_quoted(diagram.title)} {{", "  node [shape=box, style=filled, fontname=monospace];"]
    for box in diagram.boxes:
        label = "\n".join((box.title, *box.lines))
        lines.append(f"  {_quoted(box.key)} [label={_quoted(label)}, fillcolor={_quoted(_color(box))}];")
    lines += [f"  {_quoted(a.source)} -> {_quoted(a.target)};" for a in diagram.arrows]
    return "\n".join([*lines, "}", ""])


def _color(box):
    """Graphviz takes hue, saturation and value between 0 and 1."""
    if box.group is None:
        return _COLORS[box.kind]
    return f"{0.61803399 * (box.group + 1) % 1:.3f} 0.3 0.95"


def _quoted(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
