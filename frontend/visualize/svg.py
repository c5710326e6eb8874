"""A diagram as SVG text: boxes in the colours of autograd drawings, or of their kernels, with a legend below."""

from html import escape

from ..notebooks import Drawing
from .diagram import LINE_PX, TITLE_PX
from .layout import place

FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_MARGIN, _ARROW, _LEGEND_ROW, _LEGEND_PX = 14, 5.5, 22, 10.5
_HUES = ((0, 75), (158, 188), (225, 360))
# kind -> (fill, border, words in the legend)
KINDS = {
    "leaf": ("#d3e8fb", "#5b95c9", "data, parameter"),
    "op": ("#e9ebee", "#9aa1aa", "op"),
    "saved": ("#ffffff", "#9aa1aa", "value of another stage"),
    "output": ("#cdeeb8", "#64a33b", "result"),
}


def group_color(index):
    """(fill, border) of a kernel. Hues avoid the blue of leaves and the green of results; the golden ratio spreads
    them, so that kernels of near numbers differ."""
    place_in_hues = (0.61803399 * (index + 1)) % 1 * sum(stop - start for start, stop in _HUES)
    for start, stop in _HUES:
        if place_in_hues < stop - start:
            break
        place_in_hues -= stop - start
    hue, light = start + place_in_hues, (87, 80)[index % 2]
    return f"hsl({hue:.0f}, 70%, {light}%)", f"hsl({hue:.0f}, 45%, 47%)"


def render(diagram, width_px=1080):
    """The SVG of a diagram. It names no outside resource."""
    if not diagram.boxes:
        raise ValueError(f"{diagram.title}: there is nothing to draw: the graph has no values")
    placement = place(diagram, width_px)
    width, height = placement.size
    legend, legend_width, legend_height = _legend(diagram, max(width, 420))
    total_width = max(width, legend_width) + 2 * _MARGIN
    total_height = height + legend_height + 2 * _MARGIN
    shift = (total_width - width) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(diagram.title)}" '
        f'width="{total_width:.0f}" height="{total_height:.0f}" '
        f'viewBox="0 0 {total_width:.0f} {total_height:.0f}" font-family="{FONT}">',
        f"<desc>{'; '.join(_description(diagram))}</desc>",
        f'<g transform="translate({shift:.1f} {_MARGIN})">',
        *_arrows(diagram, placement),
        *(_box(box, *placement.centers[box.key]) for box in diagram.boxes),
        "</g>",
        f'<g transform="translate({_MARGIN} {height + _MARGIN + 20:.1f})">',
        *legend,
        "</g>",
        "</svg>",
    ]
    return Drawing("\n".join(parts))


def _description(diagram):
    """The drawing in words, for those who do not see it: each box with the boxes that it reads."""
    titles = {box.key: box.title for box in diagram.boxes}
    sources = {}
    for arrow in diagram.arrows:
        sources.setdefault(arrow.target, []).append(titles[arrow.source])
    for box in diagram.boxes:
        read = f" from {', '.join(sources[box.key])}" if box.key in sources else ""
        yield escape(f"{' '.join((box.title, *box.lines))}{read}")


# --- boxes -----------------------------------------------------------------------------------------------------------
def _box(box, x, y):
    fill, border, _ = KINDS[box.kind]
    if box.group is not None:
        fill, border = group_color(box.group)
    left, top = x - box.width / 2, y - box.height / 2
    texts = []
    for k, (text, baseline) in enumerate(zip((box.title, *box.lines), box.baselines())):
        style = f'font-size="{LINE_PX}" fill="#4c545e"' if k else f'font-size="{TITLE_PX}" font-weight="600"'
        texts.append(f'<text x="{x:.1f}" y="{top + baseline:.1f}" text-anchor="middle" {style}>{escape(text)}</text>')
    hint = f"<title>{escape(box.tooltip)}</title>" if box.tooltip else ""
    return (
        f'<g>{hint}<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="4" '
        f'fill="{fill}" stroke="{border}"{_dash(box.kind)}/>{"".join(texts)}{_tag(box, left, top)}</g>'
    )


def _dash(kind):
    return ' stroke-dasharray="4 3"' if kind == "saved" else ""


def _tag(box, left, top):
    """The kernel's number in the corner: colours alone are too few to tell twenty kernels apart."""
    if box.group is None:
        return ""
    _, border = group_color(box.group)
    text = str(box.group)
    width = 8 + 5.6 * len(text)
    return (
        f'<rect x="{left - 5:.1f}" y="{top - 7:.1f}" width="{width:.1f}" height="13" rx="6.5" fill="{border}"/>'
        f'<text x="{left - 5 + width / 2:.1f}" y="{top + 2.8:.1f}" font-size="9" font-weight="700" fill="#ffffff" '
        f'text-anchor="middle">{text}</text>'
    )


# --- arrows ----------------------------------------------------------------------------------------------------------
def _arrows(diagram, placement):
    boxes = {box.key: box for box in diagram.boxes}
    leaves_at = _ports(diagram.arrows, placement, boxes, end=0)
    arrives_at = _ports(diagram.arrows, placement, boxes, end=-1)
    lines = []
    for arrow in diagram.arrows:
        points = placement.routes[arrow]
        start = (leaves_at[arrow], points[0][1] + boxes[arrow.source].height / 2)
        stop = (arrives_at[arrow], points[-1][1] - boxes[arrow.target].height / 2)
        lines.append(_arrow([start, *points[1:-1], stop]))
    return lines


def _ports(arrows, placement, boxes, end):
    """arrow -> where it touches its box: several arrows at one box are spread in the order they come from."""
    at_box = {}
    for arrow in arrows:
        at_box.setdefault(arrow.target if end else arrow.source, []).append(arrow)
    ports = {}
    for key, touching in at_box.items():
        neighbour = -2 if end else 1
        touching = sorted(touching, key=lambda a: placement.routes[a][neighbour][0])
        step = min(13.0, 0.7 * boxes[key].width / len(touching))
        for k, arrow in enumerate(touching):
            ports[arrow] = placement.centers[key][0] + (k - (len(touching) - 1) / 2) * step
    return ports


def _arrow(points):
    """A smooth line through the points, vertical at each, and its head."""
    (x, y), (tip_x, tip_y) = points[0], points[-1]
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in [*points[1:-1], (tip_x, tip_y - _ARROW)]:
        middle = (y + to_y) / 2
        path.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    head = f"M{tip_x:.1f} {tip_y:.1f}l-3.4 -{_ARROW + 1}h6.8z"
    return (
        f'<path d="{"".join(path)}" fill="none" stroke="#8a929c" stroke-width="1.2"/><path d="{head}" fill="#6a727c"/>'
    )


# --- legend ----------------------------------------------------------------------------------------------------------
def _legend(diagram, width):
    """(SVG lines, width, height) of the kinds and kernels that occur, in rows no wider than the drawing."""
    kinds = {box.kind for box in diagram.boxes if box.group is None}
    entries = [(*look, _dash(kind)) for kind, look in KINDS.items() if kind in kinds]
    shown = sorted({box.group for box in diagram.boxes if box.group is not None})
    entries += [(*group_color(k), f"{k}  {diagram.groups.get(k, 'kernel')}", "") for k in shown]
    lines, x, row, widest = [], 0.0, 0, 0.0
    for fill, border, words, dash in entries:
        needed = 24 + len(words) * _LEGEND_PX * 0.602 + 18
        if x and x + needed > width:
            x, row = 0.0, row + 1
        y = row * _LEGEND_ROW
        lines.append(
            f'<rect x="{x:.1f}" y="{y}" width="16" height="11" rx="3" fill="{fill}" stroke="{border}"{dash}/>'
            f'<text x="{x + 22:.1f}" y="{y + 9.5}" font-size="{_LEGEND_PX}" fill="#4c545e">{escape(words)}</text>'
        )
        x += needed
        widest = max(widest, x)
    return lines, widest, 20 + (row + 1) * _LEGEND_ROW
