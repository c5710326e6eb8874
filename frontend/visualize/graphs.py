"""Compiler graphs as diagrams: inputs are leaves, composites one box, numbers written into the op that reads them."""

from ..compiler.graph import Graph, parse, type_text
from .diagram import Box, Diagram, shortened
from .svg import render


def draw_graph(graph, *, groups=None, kernels=None, names=None, values=None, title=None, width_px=1080):
    """The SVG of a graph, or of its text form.

    groups: value number -> index of the kernel that computes it (a plan's "groups"); colours the boxes.
    kernels: words for the legend, one per kernel. names: value number -> name, for inputs, numbers and results.
    values: numbers of the values to draw, if not all; what they read of the others is drawn dashed.
    """
    diagram = diagram_of_graph(graph, groups=groups, kernels=kernels, names=names, values=values, title=title)
    return render(diagram, width_px)


def as_graph(graph):
    """A Graph as it is, or the one a text describes."""
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str):
        return parse(graph)
    raise TypeError(f"expected a Graph or its text form, got {type(graph).__name__}")


def diagram_of_graph(graph, *, groups=None, kernels=None, names=None, values=None, title=None):
    """The Diagram of a graph; see draw_graph."""
    graph = as_graph(graph)
    builder = _Builder(graph, {int(k): g for k, g in (groups or {}).items()}, names or {})
    builder.diagram.title = title or f"graph {graph.name}"
    builder.diagram.groups = dict(enumerate(kernels or ()))
    chosen = range(len(graph.values)) if values is None else sorted(values)
    builder.chosen = frozenset(chosen)
    for number in chosen:
        builder.add(graph.values[number])
    builder.add_results()
    return builder.diagram


def stages(graph, n_results=1):
    """{"forward", "backward", "update"} -> numbers of the values of each, in order; stages that are empty are left out.

    The forward is what the first n_results outputs need, the backward what the other outputs (gradients) need besides,
    the update what is then left for values written back in place.
    """
    graph = as_graph(graph)
    forward = _needed(graph, graph.outputs[:n_results])
    backward = _needed(graph, graph.outputs[n_results:]) - forward
    update = _needed(graph, [new for _, new in graph.commits]) - forward - backward
    found = {"forward": sorted(forward), "backward": sorted(backward), "update": sorted(update)}
    return {name: numbers for name, numbers in found.items() if any(graph.values[k].operands for k in numbers)}


def _needed(graph, results):
    stack, needed = [v.number for v in results], set()
    while stack:
        number = stack.pop()
        if number not in needed:
            needed.add(number)
            stack.extend(o.number for o in graph.values[number].operands)
    return needed


def is_number(value):
    """Whether a value is a Python number: written into its readers instead of getting a box."""
    return value.weak and not value.operands


class _Builder:
    """The diagram while it grows."""

    def __init__(self, graph, groups, names):
        self.graph, self.groups, self.names = graph, groups, names
        self.diagram = Diagram("")
        self.chosen = frozenset()
        self.scalars = {v.number: f"s{k}" for k, v in enumerate(graph.scalars())}

    def add(self, value):
        if is_number(value):
            return
        if value.is_source:
            # A leaf that several boxes read stands once; it is drawn when the first of them is.
            if any(value in v.operands and v.number in self.chosen for v in self.graph.values):
                self.diagram.add(self._leaf(value, "leaf", str(value.number)))
            return
        sources = [self._source(o, value) for o in value.operands if not is_number(o)]
        lines = [type_text(value), shortened(self._details(value))]
        box = Box(
            str(value.number),
            value.op.name,
            tuple(line for line in lines if line),
            group=self.groups.get(value.number),
            tooltip=self._tooltip(value),
        )
        self.diagram.add(box, sources)

    def _source(self, operand, reader):
        """The key of the box an operand has; values outside the drawing get one beside each reader."""
        if operand.number in self.chosen:
            return str(operand.number)
        key = f"{operand.number} for {reader.number}"
        return self.diagram.add(self._leaf(operand, "leaf" if operand.is_source else "saved", key))

    def _leaf(self, value, kind, key):
        unnamed = f"input {value.number}" if value.is_source else f"{value.op.name} %{value.number}"
        title = self.names.get(value.number, unnamed)
        return Box(key, title, (type_text(value),), kind=kind, tooltip=self._tooltip(value))

    def _details(self, value):
        """Numbers among the operands, and attributes."""
        parts = []
        if any(is_number(o) for o in value.operands):
            operands = ", ".join(self._number(o) if is_number(o) else "·" for o in value.operands)
            parts.append(f"({operands})")
        shown = {k: a for k, a in value.attributes.items() if k not in ("shape", "dtype", "keepdim")}
        parts += [f"{k}={a}" for k, a in sorted(shown.items())]
        return " ".join(parts)

    def _number(self, value):
        if value.number in self.scalars:
            return self.names.get(value.number, self.scalars[value.number])
        return str(value.attributes["value"])

    def _tooltip(self, value):
        operands = ", ".join(self._number(o) if is_number(o) else f"%{o.number}" for o in value.operands)
        attributes = "".join(f" {k}={a}" for k, a in sorted(value.attributes.items()))
        return f"%{value.number} = {value.op.name}({operands}){attributes} : {type_text(value)}"

    def add_results(self):
        for k, value in enumerate(self.graph.outputs):
            if value.number in self.chosen and not is_number(value):
                name = self.names.get(value.number, f"result {k}")
                self._result(value, f"output {k}", name, type_text(value))
        for target, new in self.graph.commits:
            if new.number in self.chosen and not is_number(new):
                name = self.names.get(target.number, f"input {target.number}")
                self._result(new, f"commit {target.number}", name, "written in place")

    def _result(self, value, key, name, line):
        self.diagram.add(Box(key, name, (line,), kind="output"), [str(value.number)])
