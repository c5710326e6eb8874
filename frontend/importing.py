"""Importers: modules of the table in paths.py, and weft under the name torch.

import weft.nn.modules.linear           made by PathImporter
import torch.nn                         weft.nn itself, after weft.as_torch()
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

from .absent import is_known, sentence
from .compiler.dtypes import DType
from .paths import PATHS, PathModule, sources_of
from .placement import layout
from .runtime.state.size import Size
from .runtime.state.tensor import Tensor
from .tensor_types import TensorType

_ROOT = __name__.partition(".")[0]


class PathImporter:
    """Finds the paths of the table after Python has found no file."""

    def find_spec(self, name, path=None, target=None):
        root, _, inner = name.partition(".")
        if root != _ROOT:
            return None
        if inner in PATHS:
            return ModuleSpec(name, self, is_package=True)
        path, _, last = inner.rpartition(".")
        if is_known(path, last):
            raise ModuleNotFoundError(sentence(path, last), name=name)
        return None

    def create_module(self, spec):
        return PathModule(spec.name, sources_of(spec.name.partition(".")[2]))

    def exec_module(self, module):
        pass


class FolderImporter(PathImporter):
    """Finds the paths of the table that are folders of stubs here, before Python takes the folder for a package."""

    def find_spec(self, name, path=None, target=None):
        root, _, inner = name.partition(".")
        if root == _ROOT and inner in PATHS and inner != PATHS[inner].partition(" ")[0]:
            return ModuleSpec(name, self, is_package=True)
        return None


class TorchImporter:
    """Finds modules of weft under the name torch."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.startswith("torch.") else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        try:
            # What is in the table of modules when this returns is what has been imported.
            sys.modules[name] = import_module(_ROOT + name.removeprefix("torch"))
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"No module named {name!r} in weft, which is torch here: {error}", name=name
            ) from None


class as_torch:
    """From this call on `import torch` is weft, and so are the modules of torch that weft has.

    As a context manager it ends with the block: `with weft.as_torch(): import some_program`. RuntimeError if PyTorch
    itself has been imported already.
    """

    def __init__(self):
        weft, present = sys.modules[_ROOT], sys.modules.get("torch")
        if present not in (None, weft):
            raise RuntimeError(
                f"as_torch: torch has been imported already (from {getattr(present, '__file__', '?')}), and what holds "
                "it would go on using it; call weft.as_torch() before anything imports torch"
            )
        self.importer, self.renamed = None, []
        if present is None:
            self.importer = TorchImporter()
            sys.meta_path.insert(0, self.importer)
            sys.modules["torch"] = weft
            # Libraries ask the module for its name, and some write torch.torch, which is torch.
            weft.__name__, weft.torch = "torch", weft
            self.renamed = _rename_tensors()
            self.printed = _print_as_pytorch()

    def __enter__(self):
        return sys.modules[_ROOT]

    def __exit__(self, *exception):
        if self.importer is not None:
            sys.meta_path.remove(self.importer)
            for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
                del sys.modules[name]
            weft = sys.modules[_ROOT]
            weft.__name__ = _ROOT
            del weft.torch
            for kind, name, before in self.printed:
                setattr(kind, name, before)
            for kind, module in self.renamed:
                kind.__module__ = module


# Programs compare what these print, or look for a name in it.
_PRINTED = [
    (Size, "__repr__", lambda size: f"torch.Size({list(size)})"),
    (DType, "__repr__", lambda dtype: f"torch.{dtype.name}"),
    (layout, "__repr__", lambda kind: f"torch.{kind.name}"),
    (TensorType, "__str__", lambda kind: f"torch.{kind.__name__}"),
]


def _print_as_pytorch():
    """Returns (class, name of its method, method before)."""
    before = [(kind, name, getattr(kind, name)) for kind, name, _ in _PRINTED]
    for kind, name, text in _PRINTED:
        setattr(kind, name, text)
    return before


def _rename_tensors():
    """Libraries that serve several kinds of arrays ask the class of one for its module, and call the functions that
    they know to be there: it is torch, and of parameters torch.nn.parameter. Returns (class, module before)."""
    import_module(f"{_ROOT}.nn")
    renamed = [
        (kind, kind.__module__) for kind in _with_subclasses(Tensor) if kind.__module__.partition(".")[0] == _ROOT
    ]
    for kind, module in renamed:
        kind.__module__ = "torch" if kind is Tensor else f"torch{module.removeprefix(_ROOT)}"
    return renamed


def _with_subclasses(kind):
    yield kind
    for inner in type(kind).__subclasses__(kind):
        yield from _with_subclasses(inner)


sys.meta_path.insert(0, FolderImporter())
sys.meta_path.append(PathImporter())
