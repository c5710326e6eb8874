"""Line charts as SVG text."""

from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 18, 16, 52
_COLORS = ("#9cc4ec", "#123a63", "#d9822b", "#5a9e3a")


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: its name in the legend, its y at x = 1, 2, ..., and how wide it is drawn."""

    name: str
    ys: tuple
    width: float = 1.6


@dataclass(frozen=True, slots=True)
class _Axes:
    """From data to pixels. `low` and `high` are decades when y is logarithmic."""

    n: int
    low: float
    high: float
    width: int
    height: int
    log: bool

    def x(self, k):
        return _LEFT + (k - 1) / max(self.n - 1, 1) * (self.width - _LEFT - _RIGHT)

    def y(self, value):
        value = log10(value) if self.log else value
        return self.height - _BOTTOM - (value - self.low) / (self.high - self.low) * (self.height - _TOP - _BOTTOM)


def line_chart(lines, x_label, y_label, *, log=False, width=1080, height=380):
    """The SVG of curves over 1, 2, ... with labelled axes. With `log` y is logarithmic and values must be positive.

    lines: (name, ys) or (name, ys, width in pixels); later ones are drawn over earlier ones.
    """
    lines = [Line(*line) for line in lines]
    values = [y for line in lines for y in line.ys]
    if not values:
        raise ValueError("line_chart: there is nothing to draw: no line has a point")
    if not all(isfinite(y) and (y > 0 or not log) for y in values):
        raise ValueError(f"line_chart: values must be finite{' and positive with log=True' if log else ''}")
    axes = _axes(lines, values, width, height, log)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(y_label)}" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="{_FONT}" font-size="12" fill="#4c545e">',
        *_y_axis(axes),
        *_x_axis(axes),
        *(_curve(axes, line, k) for k, line in enumerate(lines)),
        *_legend(axes, lines),
        f'<text x="{(_LEFT + width - _RIGHT) / 2:.0f}" y="{height - 10}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text transform="translate(15 {(height - _BOTTOM + _TOP) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>",
        "</svg>",
    ]
    return "\n".join(parts)


def _axes(lines, values, width, height, log):
    low, high = min(values), max(values)
    if log:
        low, high = floor(log10(low)), ceil(log10(high))
    if low == high:
        low, high = low - 1, high + 1
    return _Axes(max(len(line.ys) for line in lines), low, high, width, height, log)


def ticks(low, high, wanted=6):
    """Round numbers between low and high, about as many as wanted: multiples of 1, 2 or 5 times a power of ten."""
    step = 10.0 ** floor(log10((high - low) / wanted))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= wanted)
    return [k * step for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def _y_axis(axes):
    marks = [10.0**k for k in range(axes.low, axes.high + 1)] if axes.log else ticks(axes.low, axes.high)
    lines = []
    for value in marks:
        y = axes.y(value)
        lines.append(
            f'<line x1="{_LEFT}" x2="{axes.width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e7eb"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    return lines


def _x_axis(axes):
    bottom = axes.height - _BOTTOM
    lines = [f'<line x1="{_LEFT}" x2="{axes.width - _RIGHT}" y1="{bottom}" y2="{bottom}" stroke="#8a929c"/>']
    for value in ticks(1, max(axes.n, 2), 11):
        if not 1 <= value <= axes.n:
            continue
        x = axes.x(value)
        lines.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="#8a929c"/>'
            f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{value:g}</text>'
        )
    return lines


def _curve(axes, line, k):
    points = " ".join(f"{axes.x(i):.1f},{axes.y(y):.1f}" for i, y in enumerate(line.ys, 1))
    color = _COLORS[k % len(_COLORS)]
    return (
        f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{line.width}" '
        f'stroke-linejoin="round" stroke-linecap="round"/>'
    )


def _legend(axes, lines):
    drawn = []
    for k, line in enumerate(lines):
        y, x = _TOP + 14 + 20 * k, axes.width - _RIGHT - 12
        drawn.append(
            f'<text x="{x - 34}" y="{y + 4}" text-anchor="end">{escape(line.name)}</text>'
            f'<line x1="{x - 26}" x2="{x}" y1="{y}" y2="{y}" stroke="{_COLORS[k % len(_COLORS)]}" '
            f'stroke-width="{line.width}" stroke-linecap="round"/>'
        )
    return drawn
