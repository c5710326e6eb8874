"""A diagram: boxes in an order in which every arrow points forward, and arrows between them.

    Box("3", "relu", ("float32[64, 128]",), group=2)  --Arrow("3", "7")-->  Box("7", "linear", ...)

Kinds of box, as people know them from drawings of autograd graphs: a "leaf" is data or a parameter, an "op" computes,
"saved" stands for a value made in another drawing, an "output" is a result.
"""

from dataclasses import dataclass, field

TITLE_PX, LINE_PX = 12.5, 10.5
# The widest common monospaced fonts advance 0.602 of their size.
_ADVANCE = 0.602
_PADDING_X, _PADDING_Y, _LEADING = 11, 7, 3.5
MAX_CHARACTERS = 34


@dataclass(frozen=True, slots=True)
class Box:
    """One node. `group` is the index of the kernel that computes it; `tooltip` is shown under the pointer."""

    key: str
    title: str
    lines: tuple = ()
    kind: str = "op"
    group: int | None = None
    tooltip: str = ""

    @property
    def width(self):
        widths = [len(self.title) * TITLE_PX, *(len(line) * LINE_PX for line in self.lines)]
        return max(widths) * _ADVANCE + 2 * _PADDING_X

    @property
    def height(self):
        return TITLE_PX + len(self.lines) * (LINE_PX + _LEADING) + 2 * _PADDING_Y

    def baselines(self):
        """Distance of every text's baseline from the top."""
        first = _PADDING_Y + 0.82 * TITLE_PX
        return [first] + [first + (k + 1) * (LINE_PX + _LEADING) for k in range(len(self.lines))]


@dataclass(frozen=True, slots=True)
class Arrow:
    source: str
    target: str


@dataclass(slots=True)
class Diagram:
    """What is drawn. `groups` maps the index of a kernel to its words in the legend."""

    title: str
    boxes: list = field(default_factory=list)
    arrows: list = field(default_factory=list)
    groups: dict = field(default_factory=dict)

    def add(self, box, sources=()):
        """Append a box and one arrow from each different source."""
        self.boxes.append(box)
        self.arrows += [Arrow(source, box.key) for source in dict.fromkeys(sources)]
        return box.key


def shortened(text, limit=MAX_CHARACTERS):
    return text if len(text) <= limit else text[: limit - 1] + "…"
