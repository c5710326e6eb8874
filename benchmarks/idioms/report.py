"""Records of the idioms as a table, and what it says in sum."""

from ..report import heading, table
from ..rounds import quartiles
from ..sides import SIDES

ENOUGH = 3.0


def lines(results):
    yield from heading(results)
    yield ""
    yield from summary(results)
    yield from ["", "## Microseconds per call", ""]
    yield from table(["idiom", *sides_of(results), "bits"], [row(name, results) for name in results["idioms"]])
    yield ""
    yield "Brackets: how many times as long as `weft`, median of the rounds [quartiles]. Bits: whether weft's two modes"
    yield "agree in every bit of the first calls."
    if results["left_out"]:
        yield from ["", "No time was left for " + ", ".join(results["left_out"]) + "."]
    if problems := list(failures(results)):
        yield from ["", "## Failures", "", *[f"- {problem}" for problem in problems]]


def sides_of(results):
    present = {side for record in results["idioms"].values() for side in record["sides"]}
    return [side for side in SIDES if side in present]


def row(name, results):
    record = results["idioms"][name]
    cells = [cell(record, side) for side in sides_of(results)]
    return [name, *cells, {True: "same", False: "DIFFER", None: ""}[record.get("same_bits")]]


def cell(record, side):
    own = record["sides"].get(side, {})
    if "error" in own:
        return "failed"
    if not own.get("microseconds"):
        return ""
    text = f"{quartiles(own['microseconds'])[1]:.4g}"
    if side == "weft" or (found := ratios(record, side)) is None:
        return text
    low, middle, high = quartiles(found)
    return f"{text} ({middle:.2f} [{low:.2f}, {high:.2f}])"


def ratios(record, side):
    """Per round: how many times as long as weft a side took; None where one of them has no times."""
    own, reference = (record["sides"].get(s, {}) for s in (side, "weft"))
    if "error" in own or "error" in reference or not own.get("microseconds") or not reference.get("microseconds"):
        return None
    return [a / b for a, b in zip(own["microseconds"], reference["microseconds"])]


def middle_ratios(results, side):
    """{idiom: how many times as long as weft} for those measured on both."""
    found = {name: ratios(record, side) for name, record in results["idioms"].items()}
    return {name: quartiles(r)[1] for name, r in found.items() if r}


def summary(results):
    yield "| weft compiled against | idioms | slower | at least 3 times as fast | median ratio |"
    yield "|---|---|---|---|---|"
    for side in sides_of(results):
        of = middle_ratios(results, side)
        if side != "weft" and of:
            slower, enough = sum(r < 1 for r in of.values()), sum(r >= ENOUGH for r in of.values())
            yield f"| {side} | {len(of)} | {slower} | {enough} | {quartiles(list(of.values()))[1]:.2f} |"
    for side in sides_of(results):
        of = middle_ratios(results, side) if side != "weft" else {}
        behind = sorted((r, name) for name, r in of.items() if r < 1)
        if behind:
            yield ""
            yield f"Slower than {side}: " + ", ".join(f"{name} ({r:.2f})" for r, name in behind) + "."


def failures(results):
    """What makes a run fail: sides that raised, bits that differ. PyTorch's results differ in their last bits."""
    for name, record in results["idioms"].items():
        for side, r in record["sides"].items():
            if "error" in r:
                yield f"{name}: {side} failed: {r['error']}"
        if record.get("same_bits") is False:
            yield f"{name}: eager and compiled differ"
        if record.get("difference", 0.0) > results["options"]["tolerance"]:
            yield f"{name}: weft and torch differ by {record['difference']:.1e}"
