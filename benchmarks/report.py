"""Records as a table for the terminal, Markdown, and JSON."""

import json

from .rounds import quartiles, ratios
from .sides import SIDES


def lines(results):
    """The whole report in Markdown, which reads well in a terminal too."""
    yield from heading(results)
    yield from ["", "## Milliseconds per step", ""]
    yield from step_table(results)
    yield from ["", "Brackets: how many times as long as `weft`, median of the rounds [quartiles].", ""]
    yield from best_peer_table(results)
    yield ""
    if any(record["first_call"] for record in results["workloads"].values()):
        yield from ["## First call and memory", ""]
        yield from first_call_table(results)
        yield ""
    yield from ["## Forms and agreement", ""]
    for name, record in results["workloads"].items():
        yield from notes(name, record)


def heading(results):
    machine, options = results["machine"], results["options"]
    yield f"# Benchmarks of {machine['date']}"
    yield ""
    yield f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']};"
    yield ", ".join(f"{k} {v}" for k, v in results["versions"].items()) + ";"
    yield f"load average before: {machine['load_before']:.1f}."
    n = options["threads"]
    yield f"Every side on {n} CPU{'s' if n > 1 else ''}, {options['rounds']} rounds."


def table(header, rows):
    yield "| " + " | ".join(header) + " |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def sides_of(results):
    present = {side for record in results["workloads"].values() for side in record["sides"]}
    return [side for side in SIDES if side in present]


def step_table(results):
    sides = sides_of(results)
    rows = [
        [name, *[step_cell(record["sides"].get(side), record["sides"].get("weft")) for side in sides]]
        for name, record in results["workloads"].items()
    ]
    return table(["workload", *sides], rows)


def step_cell(record, reference):
    if record is None:
        return ""
    if "error" in record:
        return "failed"
    text = f"{quartiles(record['milliseconds'])[1]:.4g}"
    if reference is None or reference is record or "error" in reference:
        return text
    low, middle, high = quartiles(ratios(record, reference))
    return f"{text} ({middle:.2f} [{low:.2f}, {high:.2f}])"


def best_peer_table(results):
    """Who of the others is fastest, and how many times as long as weft it takes: below 1, weft loses."""
    rows = []
    for name, record in results["workloads"].items():
        sides = {side: r for side, r in record["sides"].items() if "error" not in r}
        peers = [side for side in sides if SIDES[side].package != "weft"]
        if "weft" in sides and peers:
            of = {side: quartiles(ratios(sides[side], sides["weft"])) for side in peers}
            best = min(peers, key=lambda side: of[side][1])
            low, middle, high = of[best]
            rows.append([name, best, f"{middle:.2f} [{low:.2f}, {high:.2f}]"])
    return table(["workload", "best peer", "best peer / weft"], rows) if rows else []


def first_call_table(results):
    header = ["workload", "side", "first call cold, ms", "warm", "first three calls cold, ms", "warm"]
    header += ["set up cold, ms", "warm", "memory added cold, MiB", "warm", "peak memory cold, MiB", "warm"]
    rows = []
    for name, record in results["workloads"].items():
        for side, first in record["first_call"].items():
            rows.append([name, side, *first_call_cells(first)])
    return table(header, rows)


def first_call_cells(first):
    if "error" in first:
        return ["failed"] * 10
    kinds = [first["cold"], first["warm"]]
    cells = []
    for key in ("first_call_seconds", "three_calls_seconds", "setup_seconds"):
        cells += [f"{1e3 * kind[key]:.4g}" for kind in kinds]
    cells += [f"{kind['added_bytes'] / 2**20:.1f}" for kind in kinds]
    return cells + [f"{peak_bytes(kind) / 2**20:.1f}" for kind in kinds]


def peak_bytes(kind):
    """Records made before the peak was one of their fields have its two parts."""
    return kind.get("peak_bytes", kind["imported_bytes"] + kind["added_bytes"])


def notes(name, record):
    yield f"- {name}: {record['what']}."
    for side, r in record["sides"].items():
        if "error" in r:
            yield f"  - {side} failed: {r['error']}"
            continue
        others = [f"{form} {ms:.4g} ms" for form, ms in r["forms_milliseconds"].items() if form != r["form"]]
        others += [f"{form} failed: {error}" for form, error in r["forms_failed"].items()]
        text = f"  - {side}: {r['form']}" + (f" (against {', '.join(others)})" if others else "")
        yield text + verdict_text(record["agreement"].get(side))


def verdict_text(verdict):
    if verdict is None:
        return ""
    if "same_bits" in verdict:
        return f"; {'the same bits as' if verdict['same_bits'] else 'NOT THE SAME BITS AS'} {verdict['reference']}"
    sign = "within" if verdict["agrees"] else "OUTSIDE"
    return (
        f"; differs from {verdict['reference']} by {verdict['difference']:.1e} ({verdict['where']}), "
        f"{sign} the tolerance of {verdict['tolerance']:.0e}"
    )


def failures(results):
    """What makes a run fail: sides that raised, results that disagree."""
    for name, record in results["workloads"].items():
        for side, r in record["sides"].items():
            if "error" in r:
                yield f"{name}: {side} failed: {r['error']}"
        for side, verdict in record["agreement"].items():
            if not verdict["agrees"]:
                yield f"{name}: {side}{verdict_text(verdict)}"
        for side, first in record["first_call"].items():
            if "error" in first:
                yield f"{name}: {side} failed in its first call: {first['error']}"


def write(results, folder, name):
    """name.json, the whole record, and name.md, the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / f"{name}.md").write_text("\n".join(lines(results)) + "\n")
