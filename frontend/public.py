"""Which names are public: what `dir(weft)` and an editor's completion show.

A name is public where PyTorch has it in the same place, where an op's entry spells it, or where OWN lists it. All
else in a module is how it is made, and may change.
"""

import sys
from types import ModuleType

from .absent import Absent, attribute_of, names_in
from .paths import LATER, LAZY, PATHS, PathModule
from .runtime.state.tensor import Tensor
from .spelled import FORMS

_ROOT = __name__.partition(".")[0]

# What weft has and PyTorch has not, or not there.
OWN = {
    "": str.split("""
        as_torch clear_cache fill_cache get_printoptions printoptions fork_rng grad jacobian hessian hvp value_and_grad
        for_numpy export aot load_exported export_ptx load_ptx weft_version int16 int32 int64 ComplexFloatTensor
        ComplexDoubleTensor GradScaler OpError OutOfRange
    """),
    "fft": str.split("hfft2 hfftn ihfft2 ihfftn"),
    "distributions": ["LogitRelaxedBernoulli"],
    "testing": ["gradcheck", "gradgradcheck"],
    "sparse": str.split("""
        sampled_addmm spdiags BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor
        LongTensor ShortTensor
    """),
    "Generator": str.split("clone_state device get_state initial_seed manual_seed seed set_state"),
    "dtype": str.split("is_complex is_floating_point is_signed itemsize to_complex to_real"),
    "nn.Module": ["training"],
    "autograd.graph.Node": str.split("metadata name next_functions register_hook register_prehook"),
}
# PyTorch has these too, as what its modules happened to import.
_NOT_OFFERED = {"Tensor"}


def public_names(path):
    """The public names of a module or class of weft's, given without "weft."; those of a lazy module load it."""
    home = resolve(path)
    below = _modules_below(path)
    offered = {*names_in(path), *OWN.get(path, ()), *FORMS.get(path, ())}
    names = {name for name in offered if is_there(home, name) or f"{path}.{name}".lstrip(".") in LATER}
    if path:
        names -= _NOT_OFFERED
    if not names:
        sources = vars(home).get("_sources", (home,))
        names = {name for source in sources for name in vars(source).get("__all__") or _own_names(source)}
    return sorted(names | below)


def resolve(path):
    """The module or class with a path given without "weft."."""
    home = sys.modules[_ROOT]
    for part in path.split(".") if path else ():
        home = getattr(home, part)
    return home


def is_there(home, name):
    """Whether a module or class has the name, which need not have been imported yet if it is a method."""
    return any(name in vars(kind) and not isinstance(vars(kind)[name], Absent) for kind in _places(home))


def _places(home):
    """Where a name of a module or class can stand."""
    if isinstance(home, type):
        return home.__mro__
    return (home, *vars(home).get("_sources", ()))


def _own_names(home):
    """What a module without a list has defined."""
    module = getattr(home, "__name__", None)
    return {n for n, value in vars(home).items() if n[0] != "_" and getattr(value, "__module__", None) == module}


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

    return attribute_of(module, lambda: public_names(path)), __dir__


def show_public_names(kind, path):
    """Let `dir` of the instances of a class of weft's, and of the class where it has a type of its own, leave out what
    is its own business: names of the class that are not public, and that no subclass of a user's has."""
    usual = kind.__dir__

    def shown(names, of):
        ours = {name for k in kind.__mro__[:-1] for name in vars(k) if name[:2] != "__"}
        # weft's own classes say that they are torch's where weft stands for it.
        own = {_ROOT, "torch"}
        theirs = {name for k in of.__mro__ if k.__module__.partition(".")[0] not in own for name in vars(k)}
        hidden = ours - theirs - names_in(path) - {*OWN.get(path, ()), *FORMS.get(path, ())}
        return sorted({name for name in names if name not in hidden and not _is_absent(of, name)})

    kind.__dir__ = lambda self: shown(usual(self), type(self))
    if type(kind) is not type:  # what `dir` says of a class is up to the class's own type
        type(kind).__dir__ = lambda of: shown(type.__dir__(of), of)


def _is_absent(kind, name):
    found = (vars(k)[name] for k in kind.__mro__ if name in vars(k))
    return isinstance(next(found, None), Absent)


PathModule.__dir__ = lambda self: [*_ALWAYS, *public_names(self.__name__.partition(".")[2])]


# Here, because compiled calls ask whether the class is as it was when weft was loaded (compiled.py).
show_public_names(Tensor, "Tensor")
