"""One self-contained HTML page: sections of drawings and tables, styles and images inside, nothing to fetch."""

import struct
import zlib
from base64 import b64encode
from html import escape

import numpy as np

_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f4f5f7; color: #1d2329;
       font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 20px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 6px; }
h2 { font-size: 19px; margin: 0 0 4px; }
h3 { font-size: 15px; margin: 26px 0 6px; }
p { margin: 0 0 14px; max-width: 112ch; color: #444c56; }
.headline { font-size: 19px; line-height: 1.35; font-weight: 600; color: #1d2329; }
section { background: #fff; border: 1px solid #dfe3e8; border-radius: 10px; padding: 22px 24px; margin-top: 22px;
          overflow-x: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin-top: 22px; }
.tile { background: #fff; border: 1px solid #dfe3e8; border-radius: 10px; padding: 14px 16px; }
.tile b { display: block; font-size: 25px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { font-size: 13px; color: #5b646f; }
.tile.bad b { color: #b3261e; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 18px; }
.pair > div { min-width: 0; }
figure { margin: 10px 0 0; overflow-x: auto; text-align: center; }
figure svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { text-align: left; color: #5b646f; font-weight: 600; border-bottom: 2px solid #dfe3e8; padding: 6px 10px 6px 0; }
td { border-bottom: 1px solid #eceff2; padding: 6px 10px 6px 0; vertical-align: top; }
th.number, td.number { text-align: right; white-space: nowrap; }
code { font: 12px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 0; overflow-x: auto; font: 13px/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.chip { display: inline-block; min-width: 15px; padding: 0 5px; border-radius: 8px; border: 1px solid; font-weight: 600;
        font-size: 12px; text-align: center; }
.bar { display: inline-block; height: 9px; border-radius: 3px; }
.images { display: grid; grid-template-columns: repeat(auto-fill, minmax(124px, 1fr)); gap: 12px; margin-top: 12px; }
.image { border: 1px solid #dfe3e8; border-radius: 8px; padding: 10px 8px 7px; text-align: center; font-size: 13px; }
.image img { width: 76px; height: 76px; image-rendering: pixelated; display: block; margin: 0 auto 6px; }
.image.wrong { border: 2px solid #d0473e; background: #fdf1f0; padding: 9px 7px 6px; }
.image small { display: block; color: #5b646f; }
.image.wrong small { color: #b3261e; }
.scrolls { overflow-x: auto; }
.narrow { display: none; }
@media (max-width: 600px) {
  main { padding: 20px 10px 40px; } section { padding: 14px; } h1 { font-size: 22px; }
  .wide { display: none; } .narrow { display: block; }
  figure svg[width] { max-width: none; } .narrow figure svg { max-width: 100%; }
  td code { white-space: normal; } .scrolls table { min-width: 760px; }
}
"""


def html_page(title, body):
    """The page of a title and HTML sections."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def html_table(headers, rows, numbers=()):
    """A table of HTML cells; `numbers` are the columns aligned to the right."""
    attributes = [' class="number"' if k in numbers else "" for k in range(len(headers))]
    head = "".join(f"<th{a}>{h}</th>" for a, h in zip(attributes, headers))
    body = "\n".join("<tr>" + "".join(f"<td{a}>{c}</td>" for a, c in zip(attributes, row)) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def figure(svg):
    """A drawing that fits the page's width and scrolls where it cannot."""
    return f"<figure>{svg}</figure>"


def png_image(pixels):
    """A grey image, floats from 0 (white) to 1 (black), as the address of a PNG inside the page."""
    pixels = np.asarray(pixels)
    if pixels.ndim != 2:
        raise ValueError(f"png_image: needs a matrix of pixels, got shape {pixels.shape}")
    grey = (255 - np.clip(pixels, 0, 1) * 255).round().astype(np.uint8)
    height, width = grey.shape
    # Each row of a PNG starts with the number of its filter; 0 is none.
    rows = np.hstack([np.zeros((height, 1), np.uint8), grey]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
