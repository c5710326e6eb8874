"""Where boxes go: layers from top to bottom, arrows through the gaps between boxes.

rank          the layer of a box; computed here so that leaves stand just above what reads them
order         by grandalf: long arrows cut into steps of one layer, crossings reduced by medians (Sugiyama 1981)
x             least squares: arrows as straight as the gaps between neighbours allow
components    unconnected parts are laid out one by one and put on shelves of a given width
"""

from dataclasses import dataclass

import networkx

try:
    from grandalf.graphs import Edge, Vertex, graph_core
    from grandalf.layouts import Layer, SugiyamaLayout
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"weft.visualize needs {missing.name}, which is not installed: pip install 'weft[demo]'", name=missing.name
    ) from missing

_SPACE_X, _SPACE_Y, _DUMMY_WIDTH = 16, 26, 8
# How much an arrow wants to be straight: long ones most, those from leaves least.
_LONG, _PLAIN, _FROM_LEAF = 8.0, 4.0, 1.0
_SWEEPS = 60


@dataclass(frozen=True, slots=True)
class Placement:
    """`centers`: key -> (x, y). `routes`: arrow -> points it passes, from box to box. `size`: (width, height)."""

    centers: dict
    routes: dict
    size: tuple


def place(diagram, width_px):
    """The Placement of a diagram, about width_px wide if its largest component allows it."""
    view = networkx.DiGraph()
    view.add_nodes_from(box.key for box in diagram.boxes)
    view.add_edges_from((arrow.source, arrow.target) for arrow in diagram.arrows)
    boxes = {box.key: box for box in diagram.boxes}
    position = {key: k for k, key in enumerate(boxes)}
    components = sorted(networkx.weakly_connected_components(view), key=lambda keys: min(position[k] for k in keys))
    parts = []
    for keys in components:
        arrows = [a for a in diagram.arrows if a.source in keys]
        parts.append(_place_component([boxes[k] for k in boxes if k in keys], arrows, view.subgraph(keys)))
    return _on_shelves(parts, width_px)


def ranks(view):
    """The layer of every node of a DiGraph: below all it reads, then as far down as shortens the arrows."""
    order = list(networkx.lexicographical_topological_sort(view, key=list(view).index))
    rank = {}
    for key in order:
        rank[key] = max((rank[k] + 1 for k in view.predecessors(key)), default=0)
    for key in reversed(order):
        # Moving down lengthens the arrows that come in and shortens those that go out.
        if view.out_degree(key) and view.out_degree(key) >= view.in_degree(key):
            rank[key] = min(rank[k] for k in view.successors(key)) - 1
    top = min(rank.values())
    return {key: r - top for key, r in rank.items()}


class _View:
    """What grandalf asks of a vertex: its size, and room for its position."""

    __slots__ = ("w", "h", "xy")

    def __init__(self, box):
        self.w, self.h, self.xy = box.width, box.height, (0.0, 0.0)


class _Route:
    """What grandalf asks of an edge: where to put its points."""

    __slots__ = ("points",)

    def setpath(self, points):
        self.points = points


class _Layers(SugiyamaLayout):
    """grandalf's layout with layers that are given."""

    def __init__(self, core, rank):
        super().__init__(core)
        self.given = rank
        self.xspace, self.yspace, self.dw = _SPACE_X, _SPACE_Y, _DUMMY_WIDTH

    def rank_all(self, roots, optimize=False):
        self.layers = [Layer() for _ in range(max(self.given.values()) + 1)]
        for vertex in self.g.V():
            self.grx[vertex].rank = self.given[vertex.data]
            self.layers[self.given[vertex.data]].append(vertex)


def _place_component(boxes, arrows, view):
    if len(boxes) == 1:
        (box,) = boxes
        return Placement({box.key: (box.width / 2, box.height / 2)}, {}, (box.width, box.height))
    vertices = {box.key: Vertex(box.key) for box in boxes}
    for box in boxes:
        vertices[box.key].view = _View(box)
    edges = {arrow: Edge(vertices[arrow.source], vertices[arrow.target]) for arrow in arrows}
    for edge in edges.values():
        edge.view = _Route()
    layout = _Layers(graph_core(list(vertices.values()), list(edges.values())), ranks(view))
    layout.init_all(roots=[], inverted_edges=[])
    layout.draw(8)
    _straighten(layout, view)
    layout.draw_edges()
    half_heights = {v.view.xy[1]: max(u.view.h for u in layer) / 2 for layer in layout.layers for v in layer}
    routes = {arrow: _through_layers(edge.view.points, half_heights) for arrow, edge in edges.items()}
    return _from_corner({key: v.view.xy for key, v in vertices.items()}, routes, boxes)


# --- horizontal positions -------------------------------------------------------------------------------------------
def _straighten(layout, view):
    """Move vertices within their layers, order kept, towards the least sum of weight * (x - x')**2 over the arrows.

    grandalf's own coordinates are a mean of four placements, between which boxes may overlap.
    """
    neighbours = {vertex: [] for layer in layout.layers for vertex in layer}
    for edge in layout.g.E():
        leaf = not view.in_degree(edge.v[0].data)
        chain = _chain(layout, edge)
        weight = _LONG if len(chain) > 2 else _FROM_LEAF if leaf else _PLAIN
        for upper, lower in zip(chain, chain[1:]):
            neighbours[upper].append((lower, weight))
            neighbours[lower].append((upper, weight))
    xs = {vertex: vertex.view.xy[0] for vertex in neighbours}
    for sweep in range(_SWEEPS):
        for layer in layout.layers[:: 1 if sweep % 2 else -1]:
            _settle_layer(layer, xs, neighbours)
    for vertex, x in xs.items():
        vertex.view.xy = (x, vertex.view.xy[1])


def _chain(layout, edge):
    """The vertices an edge passes, one per layer."""
    steps = layout.ctrls.get(edge)
    return [steps[rank] for rank in sorted(steps)] if steps else list(edge.v)


def _settle_layer(layer, xs, neighbours):
    """The best positions of one layer while all others stand still.

    With the sum of the gaps to its left taken off every position, "in order and not overlapping" becomes "not
    decreasing", and least squares under that is isotonic regression: pool neighbours that would collide.
    """
    gaps, blocks = [0.0], []
    for left, right in zip(layer, layer[1:]):
        gaps.append(gaps[-1] + (left.view.w + right.view.w) / 2 + _SPACE_X)
    for vertex, gap in zip(layer, gaps):
        weight = sum(w for _, w in neighbours[vertex])
        wanted = sum(w * xs[other] for other, w in neighbours[vertex]) / weight
        blocks.append([wanted - gap, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, weight, count = blocks.pop()
            before = blocks[-1]
            before[0] = (before[0] * before[1] + mean * weight) / (before[1] + weight)
            before[1] += weight
            before[2] += count
    positions = [mean for mean, _, count in blocks for _ in range(count)]
    for vertex, gap, position in zip(layer, gaps, positions):
        xs[vertex] = position + gap


# --- from grandalf's coordinates to ours ----------------------------------------------------------------------------
def _through_layers(points, half_heights):
    """Between its ends an arrow crosses every layer straight down, so that it cuts no neighbour's corner."""
    (x0, y0), *middle, (x1, y1) = points
    crossing = [(x, y + side * half_heights[y]) for x, y in middle for side in (-1, 1)]
    return [(x0, y0), *crossing, (x1, y1)]


def _from_corner(centers, routes, boxes):
    """Shift everything so that the top left corner is the origin."""
    xs = [x for points in routes.values() for x, _ in points]
    left = min([centers[b.key][0] - b.width / 2 for b in boxes] + xs)
    right = max([centers[b.key][0] + b.width / 2 for b in boxes] + xs)
    top = min(centers[b.key][1] - b.height / 2 for b in boxes)
    bottom = max(centers[b.key][1] + b.height / 2 for b in boxes)
    return _moved(Placement(centers, routes, (right - left, bottom - top)), -left, -top)


def _moved(placement, dx, dy):
    centers = {key: (x + dx, y + dy) for key, (x, y) in placement.centers.items()}
    routes = {arrow: [(x + dx, y + dy) for x, y in points] for arrow, points in placement.routes.items()}
    return Placement(centers, routes, placement.size)


def _on_shelves(parts, width_px):
    """Parts side by side; a new row where the next would not fit."""
    width_px = max(width_px, max(part.size[0] for part in parts))
    centers, routes = {}, {}
    x = y = shelf = right = 0
    for part in parts:
        if x and x + part.size[0] > width_px:
            x, y, shelf = 0, y + shelf + 1.5 * _SPACE_Y, 0
        moved = _moved(part, x, y)
        centers |= moved.centers
        routes |= moved.routes
        x += part.size[0] + 1.5 * _SPACE_X
        right, shelf = max(right, x - 1.5 * _SPACE_X), max(shelf, part.size[1])
    return Placement(centers, routes, (right, y + shelf))
