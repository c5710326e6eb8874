"""What notebooks show of weft's objects: short HTML, which names no outside resource and runs no script."""

from math import prod

from .printing import printoptions

_CELL = 'style="text-align:left"'
# Pages of notebooks give <pre> the font of their text and wrap its lines, and columns would not stand below each other.
_LINES = 'style="font-family:monospace;line-height:1.35;white-space:pre;overflow-x:auto"'

# Sentences, and no columns: they are read on a phone too.
_WRAPPED = 'style="font-family:monospace;line-height:1.35;white-space:pre-wrap;overflow-wrap:anywhere"'


class Text(str):
    """A text of several lines that prompts and notebooks show as such."""

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        return f"<pre {_WRAPPED}>{escaped(self)}</pre>"


class Drawing(str):
    """An SVG text. Notebooks show it as wide as the page, or, with a tick, larger in a frame that scrolls."""

    def _repr_svg_(self):
        return str(self)

    def _repr_html_(self):
        return (
            "<style>.weft-drawing > div { overflow: auto; max-height: 80vh } .weft-drawing svg { max-width: 100%; "
            "height: auto } .weft-drawing input:checked ~ div svg { max-width: none } "
            ".weft-drawing input.twice:checked ~ div svg { zoom: 2 }</style>"
            '<div class="weft-drawing"><input type="checkbox" aria-label="full size"> full size '
            f'<input type="checkbox" class="twice" aria-label="twice the size"> twice the size<div>{self}</div></div>'
        )


def escaped(text):
    """Text as HTML shows it."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def tensor_html(tensor):
    """Shape, type and a few of the numbers."""
    with printoptions(threshold=64, edgeitems=2):
        text = repr(tensor)
    return f"<code>{escaped(tensor.dtype)} {escaped(tuple(tensor.shape))}</code><pre {_LINES}>{escaped(text)}</pre>"


def module_html(module):
    """A table of the parameters and buffers of a module, with what owns them."""
    owners = dict(module.named_modules())
    rows = [
        (name, type(owners[name.rpartition(".")[0]]).__name__, tensor, kind)
        for kind, named in (("", module.named_parameters()), ("buffer", module.named_buffers()))
        for name, tensor in named
    ]
    learnt = [_shape(tensor) for _, _, tensor, kind in rows if not kind and tensor.requires_grad]
    n_learnt = sum(prod(shape) for shape in learnt if shape is not None)
    cells = [
        (name, owner, _shape_text(tensor), tensor.dtype, kind or _learnt(tensor)) for name, owner, tensor, kind in rows
    ]
    return (
        f"<b>{escaped(type(module).__name__)}</b>, {n_learnt:,} numbers to learn"
        + _table(("name", "in", "shape", "type", ""), cells)
        + f"<details><summary>structure</summary><pre {_LINES}>{escaped(repr(module))}</pre></details>"
    )


def _learnt(tensor):
    return "" if tensor.requires_grad else "fixed"


def _shape(tensor):
    """None for a layer that has not seen its input yet."""
    try:
        return tuple(tensor.shape)
    except RuntimeError:
        return None


def _shape_text(tensor):
    shape = _shape(tensor)
    return "not known yet" if shape is None else shape


def _table(headers, rows):
    head = "".join(f"<th {_CELL}>{escaped(h)}</th>" for h in headers)
    body = "".join("<tr>" + "".join(f"<td {_CELL}>{escaped(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
