"""What weft says when somebody asks for a name that it does not have.

    attribute_of     makes a module's `__getattr__`: a path of paths.py, or an AttributeError that explains itself
    mark_absent      gives a class the names of PyTorch's that it lacks, to explain them in the same way

PyTorch's own names are in pytorch_names.txt, which docs/pytorch_names.py writes; what is said of them is below.
"""

import re
import sys
from functools import cache
from opcode import opmap
from os.path import dirname, join

from .compiler.later import imported
from .paths import FAMILY_OF_FUNCTION, LATER, LAZY, PARENTS, PATHS
from .reference import document

_ROOT = __name__.partition(".")[0]
PYTORCH = "PyTorch 2.13"
_IMPORT_FROM = opmap["IMPORT_FROM"]
joining = []  # of later_families.py: the function that gives weft the names of a family

# What will not come, with the reason: names as "module.name", "module" for all of it, or "name" wherever it is.
_OTHER_DEVICES = "weft computes on the CPU"
_ONE_DEVICE = "weft computes on one device in a process"
_NO_INTERPRETER = "weft.compile needs no other form of a program, and saves none"
_DENSE = "weft's tensors are dense arrays"
_NO_BYTES, _NO_HALVES = "weft has no floats of 8 bits", "weft has no complex numbers of 32 bits"
_INNER = "a part of PyTorch's own machinery"
_STORES = str.split("""
    Store TCPStore FileStore HashStore PrefixStore rendezvous register_rendezvous_handler elastic run launch
""")
_MESHES, _SHARDED = ("DeviceMesh", "init_device_mesh", "device_mesh"), ("fsdp", "tensor", "pipelining", "checkpoint")
_REFUSED = {
    "cuda": _OTHER_DEVICES, "mps": _OTHER_DEVICES, "xpu": _OTHER_DEVICES, "accelerator": _OTHER_DEVICES,
    "cpu": _OTHER_DEVICES, "mtia": _OTHER_DEVICES, "nn.parallel": _ONE_DEVICE,
    **dict.fromkeys(("_refs", "_prims_common", "_decomp", "_functorch", "_higher_order_ops", "_subclasses"), _INNER),
    **dict.fromkeys(("_tensor", "monitor", "return_types", "utils.weak", "utils.backcompat"), _INNER),
    **dict.fromkeys(("nn.quantized", "nn.quantizable", "nn.qat", "nn.intrinsic"), _DENSE),
    **dict.fromkeys(("backends", "nn.backends", "nn.cpp", "utils.cpp_extension"), _OTHER_DEVICES),
    "jit": _NO_INTERPRETER, "onnx": _NO_INTERPRETER, "fx": _NO_INTERPRETER,
    "_inductor": _NO_INTERPRETER, "_dynamo": _NO_INTERPRETER, "compiler": _NO_INTERPRETER,
    "ops": "weft's ops are in weft.compiler.ops",
    "classes": _NO_INTERPRETER, "library": "ops are added as docs/adding_an_op.md says", "ao": _DENSE,
    "quantization": _DENSE, "nested": _DENSE, "masked": _DENSE,
    "Tensor.index": "dimensions are numbers, and no objects", "linalg.common_notes": "a text for PyTorch's manual",
    "nn.functional.scaled_mm": _NO_BYTES, "nn.functional.scaled_grouped_mm": _NO_BYTES, "chalf": _NO_HALVES,
    "autograd.NestedIOFunction": "PyTorch's raises: autograd.Function takes its place",
    "testing.FileCheck": "it reads the texts of PyTorch's compilers",
    "utils.tensorboard": "what it writes needs another package",
    **dict.fromkeys((f"distributed.{name}" for name in _STORES), "mpiexec tells processes of each other"),
    **dict.fromkeys((f"distributed.{name}" for name in _MESHES), "a process group is one row of ranks"),
    **dict.fromkeys((f"distributed.{name}" for name in _SHARDED), "every process has all parameters"),
    "distributed.rpc": "all processes run one program",
}  # fmt: skip
# The same for names of one kind, among functions, methods and optimizers.
_KINDS_REFUSED = [
    (r"hsp?mm|sspaddmm_?|smm", "products with a dense matrix are dense: (x @ y).to_sparse(), weft.sparse.addmm"),
    (r"(is_|to_)?(mkldnn|padded)_?.*|.*_indices_copy|ssp.*", _DENSE),
    (r"(de)?quantize.*|q_.*|QU?Int.*|per_(channel|tensor)_.*|qscheme|int_repr", _DENSE),
    (r"(indices|values)_copy|saddmm|native_norm|resize_as_sparse_|sparse_resize_.*", _DENSE),
    (r"choose_qparams_optimized|empty_quantized|bit", _DENSE),
    (r"hash_tensor", "weft has no unsigned integers of 64 bits"),
    (r"batch_norm_stats|profiler_allow_.*", _OTHER_DEVICES),
    (r"classproperty|slice_inverse|prepare_multiprocessing_environment", _INNER),
    (r".*Storage|storage_type", "tensors share memory through NumPy arrays"),
    (r"(get|set|is)_autocast_.*|.*vulkan.*|record_stream|Stream|Event", _OTHER_DEVICES),
    (r"fork|wait|while_loop|cond|compiled_with_.*", _NO_INTERPRETER),
]
# What to write instead, today.
_INSTEAD = {
    "logspace": "base ** weft.linspace(start, end, steps)", "positive": "the tensor itself",
    "scalar_tensor": "weft.tensor(number)", "xlogy": "x * y.log()",
    "gumbel_softmax": "softmax((x - log(-log(rand))) / tau)", "freeze": "model.eval()",
    "_tensor": "from weft import Tensor", "spectral_norm": "from weft.nn.utils import spectral_norm",
    "quasirandom": "scipy.stats.qmc.Sobol",
    "tensorboard": "pip install tensorboardX, then from tensorboardX import SummaryWriter",
    "ger": "weft.outer", "greater": "weft.gt",
    "greater_equal": "weft.ge", "less": "weft.lt", "less_equal": "weft.le", "not_equal": "weft.ne",
    "row_stack": "weft.vstack", "range": "weft.arange(start, end + step, step)", "fix": "weft.trunc",
    "rsub": "other - x", "vdot": "weft.dot", "compile": "model = weft.compile(model)",
    "wrap_numpy": "weft.for_numpy(function)", "save_cache_artifacts": "copy the folder WEFT_CACHE_DIR",
    "load_cache_artifacts": "set WEFT_CACHE_DIR to such a folder",
    "TCPStore": "init_process_group() in a program that mpiexec starts",
    "init_device_mesh": "weft.distributed.new_subgroups_by_enumeration",
    "DeviceMesh": "weft.distributed.new_subgroups_by_enumeration", "rpc": "weft.distributed.send and recv",
    "fsdp": "ZeroRedundancyOptimizer",
    "rad2deg": "x * (180 / weft.pi)", "deg2rad": "x * (weft.pi / 180)",
}  # fmt: skip


@cache
def _lists():
    """{module or class, without "torch.": its names as one string}: few are asked for."""
    with open(join(dirname(__file__), "pytorch_names.txt"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    pairs = [line.partition(" ")[::2] for line in lines]
    return {path.removeprefix("torch").removeprefix("."): names for path, names in pairs}


def pytorch_names(path):
    """PyTorch's names in a module or class, given without "torch."; "modules" are its modules. A name that takes `out`
    ends in =."""
    return _lists().get(path, "").split()


@cache
def names_in(path):
    """PyTorch's names in one of its modules or classes, given without "torch."."""
    return frozenset(name.rstrip("=") for name in pytorch_names(path))


def forget():
    """Let go of what was read: few names are asked for again."""
    _lists.cache_clear()
    names_in.cache_clear()


def taking_out(path):
    """The functions of one of PyTorch's modules that take the keyword `out`."""
    return [name[:-1] for name in pytorch_names(path) if name.endswith("=")]


def attribute_of(module, names=None):
    """The `__getattr__` of a module of weft's; `names()` gives those that `from ... import *` means, of one that has no
    list of them."""
    path = module.removeprefix(_ROOT).removeprefix(".")

    def __getattr__(name):
        inner = f"{path}.{name}" if path else name
        # First, because PyTorch has a function autograd.gradcheck in a module of that name.
        if inner in FAMILY_OF_FUNCTION:
            joining[0](FAMILY_OF_FUNCTION[inner])
            return vars(sys.modules[_ROOT])[name]
        if inner in LATER:
            source = f"{_ROOT}.{LATER[inner]}"
            value = vars(imported(source))[name]
            document(path, source)
            setattr(sys.modules[f"{_ROOT}.{path}".rstrip(".")], name, value)  # asked for once
            return value
        if inner in PATHS or inner in LAZY:
            return imported(f"{_ROOT}.{inner}")
        if name == "__path__" and path in PARENTS:
            # Python asks a module for it before it looks for modules below: those of the table.
            return []
        if name == "torch" and sys.modules.get("torch") is sys.modules[_ROOT]:
            return sys.modules[_ROOT]  # PyTorch's modules import it, so they show it
        if name == "__all__" and names is not None:
            return names()
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if _is_imported(sys._getframe(1)):
            raise ImportError(f"cannot import name {name!r} from {module!r}: {sentence(path, name)}", name=module)
        raise AttributeError(sentence(path, name))

    return __getattr__


def _is_imported(frame):
    """Whether the name is wanted by `from ... import name`, which would put a sentence of its own in place of ours."""
    while frame.f_globals.get("__name__") in (__name__, f"{_ROOT}.paths"):
        frame = frame.f_back
    return frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def sentence(path, name, sources=None):
    """Why weft has no `name` in a module or class (given without "weft."). `sources`: where else PyTorch has it."""
    full = f"{path}.{name}" if path else name
    if not any(is_known(place, name) for place in sources or [path]):
        return _unknown(path, name)
    reason, instead = reason_against(path, name), _INSTEAD.get(name)
    plan = f"will not have it ({reason})" if reason else "does not have it yet"
    return f"{_ROOT}.{full}: {PYTORCH} has it, weft {plan}" + (f". Write instead: {instead}" if instead else "")


def is_known(path, name):
    """Whether PyTorch has the name there."""
    full = f"{path}.{name}" if path else name
    return name in names_in(path) or full in names_in("modules") or full in _REFUSED


def reason_against(path, name):
    """Why weft will not have a name of PyTorch's; None if it will."""
    parts = [*(path.split(".") if path else ()), name]
    prefixes = [".".join(parts[:k]) for k in range(len(parts), 0, -1)]
    found = next((_REFUSED[key] for key in (*prefixes, name) if key in _REFUSED), None)
    kinds = _KINDS_REFUSED if path in ("", "Tensor", "optim") else []
    return found or next((reason for kind, reason in kinds if re.fullmatch(kind, name)), None)


def _unknown(path, name):
    """Python's own sentence, with the name that may have been meant."""
    import difflib

    home = sys.modules.get(f"{_ROOT}.{path}" if path else _ROOT)
    what = f"module '{_ROOT}{'.' if path else ''}{path}'" if home else f"type object '{path}'"
    near = difflib.get_close_matches(name, {*vars(home or object), *names_in(path)}, 1, 0.75)
    return f"{what} has no attribute {name!r}" + (f". Did you mean: {near[0]!r}?" if near else "")


# --- classes ----------------------------------------------------------------------------------------------------------
class Absent:
    """Stands in a class for a method of PyTorch's that weft's class lacks. Asking for it raises an AttributeError."""

    __slots__ = ("path", "name")

    def __init__(self, path, name):
        self.path, self.name = path, name

    def __get__(self, instance, owner=None):
        raise AttributeError(sentence(self.path, self.name))


def mark_absent(kind, path):
    """Explain the names that PyTorch's class of this path has and this class lacks. A subclass may define them.

    A `__getattr__` would do too, but a class that has one is slower to read any attribute of.
    """
    for name in names_in(path):
        if not any(name in vars(place) for place in kind.__mro__):
            setattr(kind, name, Absent(path, name))
