"""Which names are public: what `dir(weft)` and an editor's completion show.

A name is public where PyTorch has it in the same place, where an op's entry spells it, or where OWN lists it. All
else in a module is how it is made, and may change.
"""

import sys
from types import ModuleType

from .absent import Absent, attribute_of, names_in
from .paths import LAZY, PATHS
from .runtime.state.tensor import Tensor
from .spelled import FORMS

_ROOT = __name__.partition(".")[0]

# What weft has and PyTorch has not, or not there.
OWN = {
    "": str.split("""
        as_torch clear_cache get_printoptions printoptions fork_rng grad hessian hvp value_and_grad for_numpy
        export aot load_exported weft_version int16 int32 int64 ComplexFloatTensor ComplexDoubleTensor
    """),
    "fft": str.split("hfft2 hfftn ihfft2 ihfftn"),
    "distributions": ["LogitRelaxedBernoulli"],
    "testing": ["gradcheck", "gradgradcheck"],
}
# PyTorch has these too, as what its modules happened to import.
_NOT_OFFERED = {"Tensor"}


def public_names(path):
    """The public names of a module or class of weft's, given without "weft."; those of a lazy module load it."""
    home = resolve(path)
    below = _modules_below(path)
    offered = {*names_in(path), *OWN.get(path, ()), *FORMS.get(path, ())}
    names = {name for name in offered if _is_there(home, name)}
    if path:
        names -= _NOT_OFFERED
    if not names:
        names = set(getattr(home, "__all__", ())) or {name for name in vars(home) if _is_own(home, name)}
    return sorted(names | below)


def resolve(path):
    """The module or class with a path given without "weft."."""
    home = sys.modules[_ROOT]
    for part in path.split(".") if path else ():
        home = getattr(home, part)
    return home


def _is_there(home, name):
    return any(name in vars(kind) and not isinstance(vars(kind)[name], Absent) for kind in _places(home))


def _places(home):
    """Where a name of a module or class can stand."""
    if isinstance(home, type):
        return home.__mro__
    return (home, *vars(home).get("_sources", ()))


def _is_own(home, name):
    return not name.startswith("_") and getattr(vars(home)[name], "__module__", None) == home.__name__


def _modules_below(path):
    """Modules that can be reached from here by their name."""
    prefix = f"{path}." if path else ""
    known = names_in("modules") | set(PATHS) | LAZY
    inner = {name.removeprefix(prefix).partition(".")[0] for name in known if name.startswith(prefix)}
    home = vars(resolve(path))
    ours = {name for name in inner if isinstance(home.get(name), ModuleType)}
    return {name for name in ours | {n for n in inner if prefix + n in PATHS or prefix + n in LAZY} if name[0] != "_"}


_ALWAYS = ["__doc__", "__file__", "__name__"]


def of_module(module):
    """The `__getattr__` and `__dir__` of a module, which may be given by the name PyTorch has for it."""
    path = module.removeprefix(_ROOT).removeprefix(".")

    def __dir__():
        return [*_ALWAYS, *public_names(path)]

    return attribute_of(module), __dir__


def _names_of(tensor):
    """What `dir(x)` shows: public methods, what a subclass or the user added, and Python's own names."""
    kinds = type(tensor).__mro__
    added = {name for kind in kinds[: kinds.index(Tensor)] for name in vars(kind)}
    return sorted({*public_names("Tensor"), *added, *(name for name in object.__dir__(tensor) if name[:2] == "__")})


Tensor.__dir__ = _names_of
