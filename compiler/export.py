"""Programs as C functions: one module that whoever links it calls without a runtime.

It holds the entry points (export_entry.py), their programs, the routines that these call, and constants. All names but
those of the entries and of what they begin with are its own.
"""

import re

from .emit.builder import Module
from .emit.gemm import emit_gemm
from .emit.gemv import emit_gemv
from .emit.grid_product import emit_grid_product
from .export_entry import constant
from .export_team import TeamEntry, team_text
from .kernels.library import ROUTINES

_FUNCTION = re.compile(r"^define [^@]*@([\w.]+)\(", re.MULTILINE)
_OWN = re.compile(r"^(?:define internal [^@]*)?@([\w.]+)(?:\(| = )", re.MULTILINE)
_EXTENT = re.compile(r"getelementptr \(i8, ptr @extents, i64 (\d+)\)")
_NAMES = re.compile(r"@(?!llvm\.)([A-Za-z_][\w.]*)")  # of a program's text, but for LLVM's own


def export_text(entries, initial, target):
    """LLVM IR text of a module with the entries and, under their names, the bytes of `initial`."""
    module = Module(target)
    for entry in entries:
        entry.emit(module)
    for name, content in initial.items():
        constant(module, name, content)
    teams = [team_text()] if any(isinstance(e, TeamEntry) for e in entries) else []
    named = [(name, body.compiled) for e in entries for name, body in zip(e.body_names, e.bodies)]
    programs = [_renamed(_extents_given(c.text) if c.plan.extents else c.text, name) for name, c in named]
    symbols = sorted({symbol for _, compiled in named for symbol in compiled.plan.symbols})
    return _joined([str(module), *map(_hidden, teams), *programs, *_routines(symbols, target)])


def _routines(symbols, target):
    """The texts of the modules that define them."""
    wanted, texts = {tuple(symbol.rsplit("_", 1)) for symbol in symbols}, []
    # A product with a vector may turn out to be one of matrices.
    wanted |= {("gemm", element) for name, element in wanted if name == "gemv"}
    for name, element in sorted(wanted):
        module = Module(target)
        if name == "gemm":
            emit_gemm(module, element, target)
        elif name == "gemv":
            emit_gemv(module, element, target)
        elif name == "grid":
            emit_grid_product(module, element)
        else:
            ROUTINES[name].emit(module, element)
        place = f"@weft_gemv_{element}_gemm = internal global ptr"
        text = str(module).replace(f"{place} null", f"{place} @weft_gemm_{element}")
        texts.append(_hidden(_with_own_names(text, f"weft_{name}_{element}")))
    return texts


def _with_own_names(text, symbol):
    """What only the routine of this symbol calls or reads is named after it: another may have the same."""
    own = [name for name in _OWN.findall(text) if not name.startswith(symbol)]
    return re.sub(rf"@({'|'.join(map(re.escape, own))})(?![\w.])", rf"@{symbol}_\1", text) if own else text


def _extents_given(text):
    """A program's text whose functions take the address of the extents as their first parameter, instead of finding
    them in a global: calls that run at once may be of different sizes."""
    functions = "|".join(map(re.escape, _FUNCTION.findall(text)))
    text = re.sub(rf"@({functions})\((\))?", lambda f: f"@{f[1]}(ptr %extents" + (f[2] or ", "), text)
    text = re.sub(r"^@extents = .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^define .*?^}$", lambda f: _with_addresses(f[0]), text, flags=re.MULTILINE | re.DOTALL)


def _with_addresses(function):
    """The places of extents, as registers: what one finds from a parameter is no constant."""
    used = sorted(set(map(int, _EXTENT.findall(function))))
    lines = "".join(f"  %extents_{k} = getelementptr i8, ptr %extents, i64 {k}\n" for k in used)
    return _EXTENT.sub(r"%extents_\1", function).replace("entry:\n", f"entry:\n{lines}", 1)


def _renamed(text, name):
    return _hidden(_NAMES.sub(lambda found: f"@{name}_{found.group(1)}", text))


def _hidden(text):
    """No function of it is seen from outside."""
    return re.sub(r"^define (?!internal )", "define internal ", text, flags=re.MULTILINE)


def _joined(texts):
    """One text, in which what is said for all functions is said once."""
    lines, common = [], {}
    for text in texts:
        for line in text.split("\n"):
            if line.startswith(("declare ", "attributes ")):
                common[line] = None
            else:
                lines.append(line)
    return "\n".join([*lines, *common, ""])
