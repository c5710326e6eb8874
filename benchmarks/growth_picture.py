"""The picture of a record of growth.py: seconds of the first call against the number of steps, for every side.

python -m benchmarks.growth_picture benchmarks/results/DATE-growth.json    draws it again, beside the record
"""

import json
import sys
from pathlib import Path

COLORS = {"weft": "#123a63", "jax": "#d9822b"}
TITLES = {"recurrence": "h = tanh(h @ w), with backward", "elementwise": "x = tanh(x) * 1.01"}


def write(results, path):
    """Write the picture as SVG; needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    # The same record gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "growth", "svg.fonttype": "none", "font.size": 9}):
        kinds = results["chains"]
        figure, panels = pyplot.subplots(1, len(kinds), figsize=(4.2 * len(kinds), 3.2), sharey=True, squeeze=False)
        for panel, (kind, sides) in zip(panels[0], kinds.items()):
            for side, found in sides.items():
                steps = sorted(found, key=int)
                seconds = [found[n]["first_call_seconds"] for n in steps]
                panel.loglog([int(n) for n in steps], seconds, "o-", label=side, color=COLORS.get(side), markersize=4)
            panel.set(title=TITLES.get(kind, kind), xlabel="steps written out")
            panel.grid(alpha=0.3)
            panel.legend(frameon=False)
        panels[0][0].set_ylabel("first call, seconds")
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    record = Path(sys.argv[1])
    write(json.loads(record.read_text(encoding="utf-8")), record.with_suffix(".svg"))
