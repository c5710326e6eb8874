"""Write docs/coverage.md: which of PyTorch's names weft has, and how many of PyTorch's samples of each op it passes.

    python docs/coverage.py          needs weft alone: PyTorch's names are in frontend/pytorch_names.txt, and
                                     what its samples say in docs/coverage_samples.json (tests/opinfo_record.py)

Functions get a row each. A column is a function of a name that gives a mark; add one to FORMS or SAMPLED to say more.
"""

import functools
import json
import textwrap
from pathlib import Path

import weft
from weft.absent import PYTORCH, names_in, pytorch_names, reason_against

TARGET = Path(__file__).parent / "coverage.md"
SAMPLES = Path(__file__).parent / "coverage_samples.json"
SECTIONS = str.split("""
    nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrizations optim optim.lr_scheduler optim.swa_utils
    linalg special fft sparse distributions autograd autograd.functional func utils.data testing nn.Module
""")
YES, NO, NONE = "yes", "missing", "-"
# They are rounded elsewhere than in PyTorch: differences.md.
HALVES = ("float16", "bfloat16")


def resolve(path):
    """The module or class of weft with this path (without "weft."), or None."""
    home = weft
    for part in path.split(".") if path else ():
        home = getattr(home, part, None)
    return home


def has(path, name):
    """Whether weft has the name there."""
    return hasattr(resolve(path), name)


def mark(there, in_pytorch):
    """How a form of a function stands: there, missing, or not there in PyTorch either."""
    return YES if there else NO if in_pytorch else NONE


# --- columns of the table of functions --------------------------------------------------------------------------------
def as_function(name):
    return mark(has("", name), name in names_in(""))


def as_method(name):
    return mark(has("Tensor", name), name in names_in("Tensor"))


def in_place(name):
    return mark(has("Tensor", f"{name}_"), f"{name}_" in names_in("Tensor"))


def with_out(name):
    taking = f"{name}=" in pytorch_names("")
    return mark(taking and has("", name), taking)


FORMS = {"weft.f(x)": as_function, "x.f()": as_method, "x.f_()": in_place, "out=": with_out}


# --- columns of what samples say --------------------------------------------------------------------------------------
@functools.cache
def samples():
    """{op: what tests/opinfo_record.py has counted}, other names of ops included."""
    found = json.loads(SAMPLES.read_text(encoding="utf-8"))
    others = {alias: op for op in found.values() for alias in op["aliases"]}
    return {**others, **found}


def sampled(path, name):
    """What samples say of a function; None if there are none for it. A function of weft's that is another name of one
    that is sampled has the same."""
    full = f"{path}.{name}" if path not in ("", "Tensor") else name
    if full in samples() or path == "Tensor":
        return samples().get(full)
    homes = ("", "nn.functional", "linalg", "special")
    twins = [f"{home}.{name}".lstrip(".") for home in homes if has(home, name) and has(path, name)
             and getattr(resolve(home), name) is getattr(resolve(path), name)]  # fmt: skip
    return next((samples()[twin] for twin in twins if twin in samples()), None)


def counts(kind):
    """A column: how many samples agree, of how many."""

    def column(found):
        passed, tried = found[kind]
        return f"{passed}/{tried}" if tried else NONE

    return column


def way(found):
    """Whether a compiled call makes a program of the op."""
    outside, tried = found["outside"][0], found["compiled"][1]
    if not tried:
        return NONE
    return "program" if not outside else "eager" if outside >= tried else f"eager in {outside}"


def types(found):
    """How many of the element types that PyTorch takes there are taken, and which are not, or not always rightly."""
    of = found["types"]
    lacking = [name for name, (_, tried, refused) in of.items() if refused and not tried]
    partly = [f"{name} {passed}/{tried}" for name, (passed, tried, _) in of.items() if passed < tried]
    text = f"{len(of) - len(lacking)} of {len(of)}"
    text += f"; not {' '.join(lacking)}" if lacking else ""
    return text + (f"; {', '.join(partly)}" if partly else "")


SAMPLED = {
    "forward": counts("forward"), "backward": counts("backward"), "second": counts("second"),
    "compiled": counts("compiled"), "as": way, "errors": counts("errors"), "f_": counts("inplace"),
    "out": counts("out"), "element types": types,
}  # fmt: skip


def of_samples(path, name):
    """The cells of a function."""
    found = sampled(path, name)
    return [NONE] * len(SAMPLED) if found is None else [column(found) for column in SAMPLED.values()]


# --- text -------------------------------------------------------------------------------------------------------------
def operations():
    """Names that are functions on tensors: methods that PyTorch has as functions too, and functions with `out`."""
    functions = names_in("")
    plain = {name for name in names_in("Tensor") & functions if not name.endswith("_")}
    taking = {name[:-1] for name in pytorch_names("") if name.endswith("=") and not name.endswith("_=")}
    return sorted(plain | taking)


def wrapped(names):
    return textwrap.fill(", ".join(f"`{name}`" for name in names) or "none", 120, break_on_hyphens=False)


def parted(path, names):
    """(there, not yet, never)."""
    there = [name for name in names if has(path, name)]
    absent = [name for name in names if name not in there]
    never = [name for name in absent if reason_against(path, name)]
    return there, [name for name in absent if name not in never], never


def section(title, path, names):
    there, later, never = parted(path, names)
    lines = [f"## {title}", "", f"{len(there)} of {len(names)}.", ""]
    rows = [name for name in there if sampled(path, name)]
    if rows:
        lines += [*_table(["name", *SAMPLED], [[f"`{name}`", *of_samples(path, name)] for name in rows]), ""]
    rest = [name for name in there if name not in rows]
    for heading, part in (("There, without samples" if rows else "There", rest), ("Not yet", later)):
        if part:
            lines += [f"{heading}:", "", wrapped(part), ""]
    return lines + _not_planned(path, never)


def _not_planned(path, names):
    """The names by the reason against them."""
    reasons = {}
    for name in names:
        reasons.setdefault(reason_against(path, name), []).append(name)
    lines = ["Not planned:", ""] if reasons else []
    for reason, part in reasons.items():
        lines += [f"- {reason}:", textwrap.indent(wrapped(part), "  ")]
    return [*lines, ""] if reasons else []


def _table(heads, rows):
    return ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def table(names):
    rows = [[f"`{name}`", *(column(name) for column in FORMS.values()), *of_samples("", name)] for name in names]
    return _table(["name", *FORMS, *SAMPLED], rows)


def differing():
    """Which ops have samples that do not agree, and why, where that is known."""
    lines = []
    for name, op in sorted(samples().items()):
        for kind in ("forward", "backward", "second", "compiled", "errors", "inplace", "out"):
            passed, tried = op[kind]
            if passed < tried and name not in op["aliases"]:
                lines += _item(f"`{name}`, {kind}, {tried - passed} of {tried}: {_why(op, kind)}")
    return lines


def _why(op, kind):
    types = [name for name, (passed, tried, _) in op["types"].items() if passed < tried]
    of_types = f"only {' '.join(types)}" if kind == "forward" and {*types} <= {*HALVES} else ""
    why = op["why"] if kind in op["why"] else {kind: op["why"].get("types")} if kind == "forward" else {}
    return why.get(kind) or of_types or "not looked into"


def outside():
    """Ops that run eagerly in a compiled call, by the reason."""
    reasons = {}
    for name, op in sorted(samples().items()):
        if op["outside"][0] and name not in op["aliases"]:
            reasons.setdefault(op["outside"][1], []).append(name)
    return [line for reason, names in reasons.items() for line in _item(f"{reason}: " + wrapped(names))]


def _item(text):
    return textwrap.wrap(f"- {text}", 120, subsequent_indent="  ", break_on_hyphens=False)


def summary(counted):
    lines = ["| where | there | of | not planned |", "|---|---|---|---|"]
    for title, path, names in counted:
        there, _, never = parted(path, names)
        lines.append(f"| {title} | {len(there)} | {len(names)} | {len(never)} |")
    return lines


def page():
    """The whole text."""
    functions = operations()
    other = sorted(names_in("") - set(functions))
    methods = sorted(names_in("Tensor") - set(functions) - {f"{name}_" for name in functions})
    counted = [("`torch`, functions on tensors", "", functions), ("`torch`, the rest", "", other)]
    counted += [("`Tensor`, the rest", "Tensor", methods)]
    counted += [(f"`{path}`", path, sorted(names_in(path))) for path in SECTIONS]
    lines = [
        "# Coverage",
        "",
        *INTRODUCTION.strip().splitlines(),
        "",
        *summary(counted),
        "",
        "## `torch`, functions on tensors",
        "",
    ]
    lines += [*table(functions), ""]
    for title, path, names in counted[1:]:
        lines += section(title, path, names)
    lines += ["## Samples that do not agree", "", *differing(), ""]
    lines += ["## What runs eagerly in a compiled call", "", *outside(), ""]
    return "\n".join(lines).rstrip() + "\n"


INTRODUCTION = f"""
Which names of {PYTORCH} weft has. `docs/coverage.py` writes the page by asking weft for every name: "{YES}" is there,
"{NO}" is in PyTorch alone, "{NONE}" in neither. Where weft differs from PyTorch, differences.md says so.

How much of an op is there is counted in PyTorch's own samples (OpInfo, up to five of each variant and element type),
run on both: results of all element types (forward), gradients and second derivatives in float64, equal bits of eager
and compiled calls (compiled), types of errors, in-place forms (f_) and `out=`; how many agree, of how many. "as" says
whether a compiled call makes a program of the op and its gradient, or runs some of it eagerly; "element types" how many
of those that PyTorch takes. "{NONE}" is where there is nothing to count: no sample, no derivative in PyTorch, results
that are drawn. `tests/opinfo_record.py` counts.
"""


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
