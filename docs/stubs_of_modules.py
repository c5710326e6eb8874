"""The .pyi files of weft's modules, for docs/stubs.py: nn, optim, distributions, linalg and the like.

Their names are collected from many files, or take any arguments, so a checker that reads the source sees too little of
some (the layers of families) and too much of others (a result that might be a tuple). Here is what they mean to a user:
functions and constructors with their parameters, and objects that may have whatever attributes.
"""

import importlib
import inspect
import re
from fnmatch import fnmatch
from pathlib import Path

import stubs_types as types
from stubs_types import BOOL, FLOAT, STR, parameters_of

from weft import nn, public
from weft.later_families import join_all

join_all()  # methods are looked at where they stand
FRONTEND = Path(__file__).parent.parent / "frontend"
# Path of a module without "weft." -> the file that its stub stands beside.
MODULES = {
    "nn": "nn/__init__",
    "nn.functional": "nn/functional",
    "nn.init": "nn/init",
    "nn.utils": "nn/utils/__init__",
    "nn.utils.rnn": "nn/utils/rnn",
    "nn.utils.parametrizations": "nn/utils/parametrizations",
    "nn.utils.prune": "nn/utils/prune",
    "optim": "optim/__init__",
    "optim.lr_scheduler": "optim/lr_scheduler",
    "optim.swa_utils": "optim/swa_utils",
    "utils": "utils/__init__",
    "utils.data": "utils/data/__init__",
    "distributions": "distributions/__init__",
    "distributions.constraints": "distributions/constraints",
    "distributions.transforms": "distributions/transforms",
    "linalg": "linalg",
    "special": "special",
    "fft": "fft",
    "func": "func",
    "testing": "testing",
    "autograd": "autograd/__init__",
    "autograd.functional": "autograd/functional",
    "random": "random",
    "sparse": "sparse/__init__",
    "amp": "amp/__init__",
    "utils.checkpoint": "utils/checkpoint",
    "visualize": "visualize/__init__",
    "sklearn": "sklearn/__init__",
    "safetensors": "safetensors",
}
# Not found from weft itself: they need what not everybody has, and are imported when asked for.
APART = {"visualize", "sklearn", "safetensors"}
HEADER = '"""Written by docs/stubs.py from weft\'s own signatures: change those, and run it again."""'
# module -> the names that a stub may want of it.
IMPORTS = {
    "collections.abc": "Callable Iterable Iterator Mapping Sequence",
    "os": "PathLike",
    "typing": "Any Generic NamedTuple overload",
    "typing_extensions": "Self TypeVar",
}
OF_WEFT = {"_Generator": "Generator", "_Size": "Size", "_Device": "device", "_DType": "dtype", "Tensor": "Tensor"}
# What stands in a stub as it is written here, before all else; its names are not written again.
WRITTEN = {
    "nn": """
class Parameter(Tensor):
    def __init__(self, data: Tensor = ..., requires_grad: builtins.bool = ...) -> None: ...

class Buffer(Tensor):
    def __init__(self, data: Tensor | None = ..., *, persistent: builtins.bool = ...) -> None: ...

class Module:
    training: builtins.bool
    def __init__(self) -> None: ...
    def __getattr__(self, name: builtins.str) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    # With whatever parameters, and compiled or not.
    forward: Any
""",
    "optim": """
_Parameters = Iterable[Tensor | builtins.dict[builtins.str, Any] | builtins.tuple[builtins.str, Tensor]]

class Optimizer:
    param_groups: builtins.list[builtins.dict[builtins.str, Any]]
    state: builtins.dict[Any, Any]
    defaults: builtins.dict[builtins.str, Any]
    def __init__(self, params: _Parameters, defaults: Mapping[builtins.str, Any]) -> None: ...
    @overload
    def step(self, closure: None = ...) -> None: ...
    @overload
    def step(self, closure: Callable[[], Any]) -> Any: ...
""",
    "optim.lr_scheduler": "from . import Optimizer as Optimizer\n\n_LRScheduler = LRScheduler\n",
    "utils.data": """
# What a dataset's items are, where somebody says so.
_Item = TypeVar("_Item", default=Any, covariant=True)

class Dataset(Generic[_Item]):
    def __getattr__(self, name: builtins.str) -> Any: ...
    def __getitem__(self, index: Any, /) -> _Item: ...
    def __add__(self, other: Dataset[Any]) -> ConcatDataset: ...

class IterableDataset(Dataset[_Item]):
    def __iter__(self) -> Iterator[_Item]: ...

class Subset(Dataset[_Item]):
    def __init__(self, dataset: Dataset[_Item], indices: Sequence[builtins.int]) -> None: ...
    def __len__(self) -> builtins.int: ...

class TensorDataset(Dataset[builtins.tuple[Tensor, ...]]):
    tensors: builtins.tuple[Tensor, ...]
    def __init__(self, *tensors: Tensor) -> None: ...
    def __len__(self) -> builtins.int: ...

def random_split(
    dataset: Dataset[_Item], lengths: Sequence[builtins.float], generator: _Generator | None = ...
) -> builtins.list[Subset[_Item]]: ...
""",
    "optim.swa_utils": "from . import Optimizer as Optimizer\nfrom ..nn import Module as Module\n",
    "autograd": """from .. import enable_grad as enable_grad
from .. import inference_mode as inference_mode
from .. import no_grad as no_grad
from .. import set_grad_enabled as set_grad_enabled

_Tensors = Tensor | Iterable[Tensor]

class Function:
    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any: ...
    @staticmethod
    def setup_context(ctx: Any, inputs: builtins.tuple[Any, ...], output: Any) -> Any: ...
    @staticmethod
    def backward(*args: Any, **kwargs: Any) -> Any: ...
    @staticmethod
    def jvp(*args: Any, **kwargs: Any) -> Any: ...
    @staticmethod
    def vmap(*args: Any, **kwargs: Any) -> Any: ...
    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any: ...

def backward(
    tensors: _Tensors, grad_tensors: Any = ..., retain_graph: builtins.bool | None = ...,
    create_graph: builtins.bool = ..., grad_variables: Any = ..., inputs: _Tensors | None = ...,
) -> None: ...
def grad(
    outputs: _Tensors, inputs: _Tensors, grad_outputs: Any = ..., retain_graph: builtins.bool | None = ...,
    create_graph: builtins.bool = ..., only_inputs: builtins.bool = ..., allow_unused: builtins.bool | None = ...,
    is_grads_batched: builtins.bool = ..., materialize_grads: builtins.bool = ...,
) -> builtins.tuple[Tensor, ...]: ...
""",  # noqa: E501
    "amp": "from .. import autocast as autocast\n",
    "nn.utils.rnn": """
class PackedSequence(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None
    def to(self, *args: Any, **kwargs: Any) -> PackedSequence: ...

def pad_packed_sequence(
    sequence: PackedSequence, batch_first: builtins.bool = ..., padding_value: builtins.float = ...,
    total_length: builtins.int | None = ...,
) -> builtins.tuple[Tensor, Tensor]: ...
""",
    "random": "from . import manual_seed as manual_seed\n",
}
WRITTEN_NAMES = {
    "nn": str.split("Parameter Buffer Tensor"),
    "autograd": str.split("Function backward grad enable_grad inference_mode no_grad set_grad_enabled"),
    "amp": ["autocast"],
    "random": ["manual_seed", "Generator"],
    "nn.utils.rnn": str.split("PackedSequence pad_packed_sequence"),
    "utils.data": str.split("Dataset IterableDataset Subset TensorDataset random_split"),
}
# Classes of which the beginning is written there: their other members follow it.
BEGUN = {"nn": ("Module", {"forward"}), "optim": ("Optimizer", {"step"})}
# What is known of results beyond "a tensor" (functions) and "anything" (methods).
RESULTS = {
    "nn": {
        **dict.fromkeys(str.split("__call__ forward"), "Any"),
        **dict.fromkeys(["parameters"], "Iterator[Parameter]"),
        **dict.fromkeys(["named_parameters"], "Iterator[builtins.tuple[builtins.str, Parameter]]"),
        **dict.fromkeys(["named_buffers"], "Iterator[builtins.tuple[builtins.str, Tensor]]"),
        **dict.fromkeys(["buffers"], "Iterator[Tensor]"),
        **dict.fromkeys(str.split("children modules"), "Iterator[Module]"),
        **dict.fromkeys(str.split("named_children named_modules"), "Iterator[builtins.tuple[builtins.str, Module]]"),
        **dict.fromkeys(
            str.split("train eval to float double half bfloat16 cpu type apply requires_grad_ share_memory"), "Self"
        ),
        **dict.fromkeys(str.split("zero_grad register_buffer register_parameter register_module add_module"), "None"),
        "state_dict": "builtins.dict[builtins.str, Any]",
        "extra_repr": STR,
        "reset_parameters": "None",
        "get_parameter": "Parameter",
        "get_submodule": "Module",
        "get_buffer": "Tensor",
    },
    "optim": {
        "zero_grad": "None",
        "add_param_group": "None",
        "load_state_dict": "None",
        "state_dict": "builtins.dict[builtins.str, Any]",
    },
    "distributions": {
        **dict.fromkeys(str.split("sample rsample log_prob cdf icdf entropy perplexity"), "Tensor"),
        **dict.fromkeys(str.split("mean mode stddev variance"), "Tensor"),
        **dict.fromkeys(str.split("kl_divergence"), "Tensor"),
    },
}
RESULTS["optim.lr_scheduler"] = {
    "step": "None",
    "get_last_lr": "builtins.list[builtins.float]",
    "state_dict": "builtins.dict[builtins.str, Any]",
}
RESULTS["nn.utils"] = {
    **dict.fromkeys(str.split("clip_grad_norm_ get_total_norm parameters_to_vector"), "Tensor"),
    **dict.fromkeys(str.split("clip_grad_value_ clip_grads_with_norm_ vector_to_parameters"), "None"),
}
RESULTS["nn.utils.rnn"] = {
    **dict.fromkeys(str.split("pad_sequence"), "Tensor"),
    **dict.fromkeys(str.split("pack_padded_sequence pack_sequence"), "PackedSequence"),
    **dict.fromkeys(str.split("unpad_sequence unpack_sequence"), "builtins.list[Tensor]"),
}
RESULTS["func"] = dict.fromkeys(str.split("grad grad_and_value hessian jacfwd jacrev vmap"), "Callable[..., Any]")
RESULTS["autograd"] = dict.fromkeys(str.split("gradcheck gradgradcheck"), BOOL)
RESULTS["testing"] = {
    **RESULTS["autograd"],
    **dict.fromkeys(str.split("assert_close assert_allclose"), "None"),
    "make_tensor": "Tensor",
}
RESULTS["sklearn"] = {
    **dict.fromkeys(str.split("fit partial_fit set_params"), "Self"),
    **dict.fromkeys(str.split("predict predict_proba predict_log_proba"), "_Array"),
    "score": FLOAT,
}
_ARRAYS = "builtins.dict[builtins.str, Tensor]"
RESULTS["safetensors"] = {"load": _ARRAYS, "load_file": _ARRAYS, "save": "builtins.bytes", "save_file": "None"}
RESULTS["visualize"] = {
    **dict.fromkeys(str.split("draw_autograd draw_graph figure html_page html_table line_chart png_image to_dot"), STR),
    **dict.fromkeys(str.split("draw_function value_names"), "builtins.dict[builtins.str, builtins.str]"),
    "busiest_program": "builtins.tuple[Any, Any]",
    "group_color": "builtins.tuple[builtins.str, builtins.str]",
    "kernel_times": "builtins.list[builtins.float] | None",
}
# Functions of these modules give one tensor, but for those named.
OF_TENSORS = {
    "nn.functional": str.split("lp_pool scaled_grouped_mm *_with_indices *max_pool*d multi_head_attention_forward"),
    "nn.init": str.split("calculate_gain"),
    "linalg": str.split("eig eigh qr svd slogdet lstsq lu lu_factor* ldl_factor* cholesky_ex inv_ex solve_ex"),
    "special": [],
    "fft": [],
}


# Modules that give something else than one tensor, or take something else.
CALLED_ANYHOW = str.split("""
    AdaptiveLogSoftmaxWithLoss DataParallel DistributedDataParallel Identity Module ModuleDict ModuleList ParameterDict
    ParameterList RNNCellBase *MaxPool*
""")
PAIR = "builtins.tuple[Tensor, Any]"
CALLED = {
    "Sequential": ("input: Any", "Tensor"),
    "GaussianNLLLoss": ("input: Tensor, target: Tensor, var: Tensor | builtins.float", "Tensor"),
    "CTCLoss": ("log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any", "Tensor"),
    **dict.fromkeys(str.split("LSTM GRU RNN RNNBase"), ("input: Any, hx: Any = ...", PAIR)),
    "LSTMCell": ("input: Tensor, hx: Any = ...", "builtins.tuple[Tensor, Tensor]"),
}
CALLED["MultiheadAttention"] = (
    f"query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = ..., need_weights: {BOOL} = ..., "
    f"attn_mask: Tensor | None = ..., average_attn_weights: {BOOL} = ..., is_causal: {BOOL} = ...",
    PAIR,
)
CONSTRUCTORS = {
    "Sequential": ["*modules: Module", "modules: Mapping[builtins.str, Module], /"],
    "ModuleList": ["modules: Iterable[Module] | None = ..."],
    "ModuleDict": ["modules: Any = ..."],
}
SPECIAL = {
    "__iter__": "self) -> Iterator[Any]",
    "__len__": "self) -> builtins.int",
    "__getitem__": "self, index: Any, /) -> Any",
    "__setitem__": "self, index: Any, value: Any, /) -> None",
    "__contains__": "self, x: Any, /) -> builtins.bool",
    "__enter__": "self) -> Self",
    "__exit__": "self, *exception: object) -> None",
}

# Classes that may be asked for with the type of their items.
GENERIC = {"DataLoader": "Generic[_Item]", "Sampler": "Generic[_Item]"}
# What stands behind a builtin class that others derive from.
ITEMS = {"tuple": "[Any, ...]", "list": "[Any]", "dict": "[Any, Any]", "set": "[Any]"}


def text(path):
    """The stub of a module given without "weft."."""
    up = "." * (1 + MODULES[path].count("/"))
    home = importlib.import_module(f"weft.{path}") if path in APART else public.resolve(path)
    names = [n for n in (home.__all__ if path in APART else public.public_names(path)) if not n.startswith("_")]
    values = {name: getattr(home, name) for name in names}
    lines = [f"from . import {n} as {n}" for n, v in values.items() if inspect.ismodule(v) and _is_below(path, n)]
    known = {id(v): n for n, v in values.items() if inspect.isclass(v)}
    lines += WRITTEN.get(path, "").rstrip().splitlines()
    if path in BEGUN:
        lines += _members(path, getattr(home, BEGUN[path][0]), None)
    for name in _bases_first(values):
        if name not in WRITTEN_NAMES.get(path, ()) and name != BEGUN.get(path, "_")[0]:
            lines += _definition(path, name, values[name], known)
    return "\n".join([*heading(up, "\n".join(lines)), *lines]) + "\n"


def heading(up, body):
    """The first lines of a stub: imports and aliases, as far as what follows uses them."""
    aliases = []
    for line in reversed(types.ALIASES.strip().splitlines()):  # later ones are made of earlier ones
        if _uses(body, line.partition(" = ")[0]):
            aliases.insert(0, line)
            body += f"\n{line}"
    yield HEADER
    yield ""
    if _uses(body, "builtins"):
        yield "import builtins"
    for module, names in IMPORTS.items():
        used = [name for name in names.split() if _uses(body, name)]
        if used:
            yield f"from {module} import {', '.join(used)}"
    if _uses(body, "_np"):
        yield "import numpy as _np"
    yield from (f"from {up} import {name} as {local}" for local, name in OF_WEFT.items() if _uses(body, local))
    yield from aliases


def _uses(text, word):
    return re.search(rf"\b{word}\b", text) is not None


def _definition(path, name, value, known):
    if inspect.isclass(value):
        return class_lines(path, name, value, known)
    if inspect.ismodule(value):
        return [f"{name}: Any"] if not _is_below(path, name) else []
    if callable(value):
        return [f"def {name}({parameters(path, value, False)}) -> {_result(path, name)}: ..."]
    return [f"{name}: Any"]


def parameters(path, function, is_method):
    more = types.HOOKS.get(getattr(function, "__name__", None), {}) if is_method else {}
    return parameters_of(function, is_method, {**_names(path), **more})


def _names(path):
    """What parameters are by their names, in a module."""
    if path in OF_TENSORS:
        return types.OF_FUNCTIONS
    return {"nn": types.OF_LAYERS, "optim": types.OF_OPTIMIZERS}.get(path.partition(".")[0], {})


def _is_below(path, name):
    folder = (FRONTEND / MODULES[path]).parent
    is_there = any((folder / file).exists() for file in (f"{name}.py", f"{name}.pyi", name))
    return MODULES[path].endswith("__init__") and is_there


def _bases_first(values):
    return sorted(values, key=lambda n: (len(values[n].__mro__) if inspect.isclass(values[n]) else 99, n))


def _result(path, name):
    found = RESULTS.get(path, {}).get(name)
    if found is not None or path not in OF_TENSORS:
        return found or "Any"
    return "Any" if any(fnmatch(name, pattern) for pattern in OF_TENSORS[path]) else "Tensor"


def class_lines(path, name, kind, known):
    base = next((b for b in kind.__mro__[1:] if id(b) in known), None)
    if base is None and hasattr(kind, "_fields"):
        yield from ("", f"class {name}(NamedTuple):", *(f"    {field}: Any" for field in kind._fields))
        return
    plain = next((b.__name__ for b in kind.__mro__ if b.__module__ == "builtins" and b is not object), None)
    plain_text = f"builtins.{plain}{ITEMS.get(plain, '')}" if plain else GENERIC.get(name, "")
    yield ""
    yield f"class {name}({known[id(base)] if base else plain_text}):".replace("()", "")
    constructors = [("self", p) for p in CONSTRUCTORS.get(name, ())] if path == "nn" else []
    for _, given in constructors:
        yield from (["    @overload"] if len(constructors) > 1 else [])
        yield f"    def __init__(self, {given}) -> None: ..."
    if not constructors:
        yield f"    def __init__({parameters(path, kind, True)}) -> None: ..."
    if base is None and plain is None:
        yield "    def __getattr__(self, name: builtins.str) -> Any: ..."
    if path == "nn" and issubclass(kind, nn.Module):
        yield from _call(name, kind)
    yield from _members(path, kind, base or plain)


def _call(name, kind):
    """How a layer is called: with tensors where its forward has parameters without a default."""
    if any(fnmatch(name, pattern) for pattern in CALLED_ANYHOW):
        return
    parameters, result = CALLED.get(name, (None, "Tensor"))
    if parameters is None:
        found = list(inspect.signature(kind.forward).parameters.values())[1:]
        parameters = ", ".join(_argument(parameter) for parameter in found)
    yield f"    def __call__(self, {parameters}) -> {result}: ..."


def _argument(parameter):
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}: Any"
    name = parameter.name.rstrip("_")
    return f"{name}: Tensor" if parameter.default is parameter.empty else f"{name}: Any = ..."


def _members(path, kind, base):
    """The lines of what a class has, or has in place of its base's."""
    for member in sorted(_own_members(kind, base)):
        found = inspect.getattr_static(kind, member)
        if member in SPECIAL:
            yield f"    def {member}({SPECIAL[member]}: ..."
        elif member == "__call__" and base is None and path not in BEGUN:
            yield "    def __call__(self, *args: Any, **kwargs: Any) -> Any: ..."
        elif not member.startswith("_") and member not in _left_out(path):
            yield from _member(path, kind, member, found, base)


def _left_out(path):
    _, written = BEGUN.get(path, ("", set()))
    return {"forward"} | written


def _member(path, kind, member, found, base):
    result = RESULTS.get(path, {}).get(member, "Any")
    if isinstance(found, property):
        yield f"    @property\n    def {member}(self) -> {result}: ..."
    elif isinstance(found, (staticmethod, classmethod)):
        own = parameters(path, getattr(kind, member), False)
        first = "" if isinstance(found, staticmethod) else "cls, " if own else "cls"
        result = "Self" if member.startswith("from_") else result
        yield f"    @{type(found).__name__}\n    def {member}({first}{own}) -> {result}: ..."
    elif inspect.isfunction(found):
        inherited = getattr(base, member, None) if isinstance(base, type) else None
        own = parameters(path, found, True)
        ignored = "" if inherited is None else _difference(own, parameters(path, inherited, True))
        yield f"    def {member}({own}) -> {result}: ...{ignored}"


def _difference(own, inherited):
    """What checkers are to overlook where a method does not take what that of the base takes."""
    own, inherited = own.split(", "), inherited.split(", ")
    if own[: len(inherited)] == inherited and all(" = ..." in part for part in own[len(inherited) :]):
        return ""
    kinds = [[part.partition(": ")[2] for part in parts] for parts in (own, inherited)]
    if kinds[0] == kinds[1] and not any("*" in part for part in own):  # a name of another kind is only pyright's matter
        return "  # pyright: ignore[reportIncompatibleMethodOverride]"
    return "  # type: ignore[override, unused-ignore]"


def _own_members(kind, base):
    """The names of what it has itself or from private classes between it and the base that its stub names."""
    between = kind.__mro__[: kind.__mro__.index(base)] if isinstance(base, type) else kind.__mro__
    return {name for k in between if k.__module__ != "builtins" for name in vars(k)}


def write():
    for path, file in MODULES.items():
        target = FRONTEND / f"{file}.pyi"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text(path), encoding="utf-8")
