"""Write docs/coverage.md: which of PyTorch's names weft has, by asking both.

    python docs/coverage.py          needs weft alone: PyTorch's names are in frontend/pytorch_names.txt

Functions get a row each. A column is a function of a name that gives a mark; add one to COLUMNS to say more of them.
"""

import textwrap
from pathlib import Path

import weft
from weft.absent import PYTORCH, names_in, pytorch_names, reason_against

TARGET = Path(__file__).parent / "coverage.md"
SECTIONS = str.split("""
    nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrizations optim optim.lr_scheduler optim.swa_utils
    linalg special fft distributions autograd autograd.functional func utils.data testing nn.Module
""")
YES, NO, NONE = "yes", "missing", "-"


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


COLUMNS = {"weft.f(x)": as_function, "x.f()": as_method, "x.f_()": in_place, "out=": with_out}


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
    for heading, part in (("There", there), ("Not yet", later), ("Not planned", never)):
        if part:
            lines += [f"{heading}:", "", wrapped(part), ""]
    return lines


def table(names):
    lines = ["| name | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name in names:
        lines.append(f"| `{name}` | " + " | ".join(column(name) for column in COLUMNS.values()) + " |")
    return lines


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
    lines = ["# Coverage", "", *introduction(), "", *summary(counted), "", "## `torch`, functions on tensors", ""]
    lines += [*table(functions), ""]
    for title, path, names in counted[1:]:
        lines += section(title, path, names)
    return "\n".join(lines).rstrip() + "\n"


def introduction():
    return textwrap.wrap(
        f"Which names of {PYTORCH} weft has. `docs/coverage.py` writes the page by asking weft for every name: "
        f'"{YES}" is there, "{NO}" is in PyTorch alone, "{NONE}" in neither. It says nothing of how much of a function '
        "is there; where weft differs from PyTorch, differences.md says so.",
        120,
    )


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
