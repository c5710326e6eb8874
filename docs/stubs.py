"""Write frontend/__init__.pyi: what type checkers and editors read of the names that `weft` itself has.

    python docs/stubs.py

Those names are collected when weft is imported (functions, in-place forms, methods of Tensor), so a checker cannot find
them in the source. Parameters are those of the functions; their types go by their names (PARAMETERS), and results are
tensors unless RESULTS says otherwise.
"""

import inspect
from pathlib import Path

import weft
from weft.compiler.dtypes import DType
from weft.runtime.state.tensor import Tensor

TARGET = Path(__file__).parent.parent / "frontend" / "__init__.pyi"

# Names such as `int` and `float` are dtypes in weft and methods of Tensor: types are written with their module.
HEADER = '''"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from collections.abc import Callable, Iterator, Sequence
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy

from . import amp as amp
from . import autograd as autograd
from . import compiler as compiler
from . import distributions as distributions
from . import fft as fft
from . import func as func
from . import jit as jit
from . import linalg as linalg
from . import nn as nn
from . import optim as optim
from . import special as special
from . import testing as testing
from . import utils as utils
from .compiler.dtypes import DType as dtype
from .runtime.state.device import device as device
from .runtime.state.random import Generator as Generator
from .runtime.state.size import Size as Size

_F = TypeVar("_F", bound=Callable[..., Any])
_P = ParamSpec("_P")
_R = TypeVar("_R", covariant=True)
_Array = numpy.ndarray[Any, Any]
_Number = builtins.complex | builtins.float | builtins.int | builtins.bool
_TensorLike = Tensor | _Number
_Dims = builtins.int | Sequence[builtins.int] | None
_DType = dtype
_Size = Size

newaxis: None
default_generator: Generator
__version__: str
weft_version: str

class CompiledFunction(Generic[_P, _R]):
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def explain(self, *args: Any, verbose: builtins.bool = ..., **kwargs: Any) -> str: ...
    @property
    def breaks(self) -> builtins.tuple[Any, ...]: ...
    @property
    def recordings(self) -> builtins.tuple[Any, ...]: ...
    def __get__(self, instance: Any, owner: Any = ...) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

@overload
def compile(
    function: Callable[_P, _R], *, fullgraph: builtins.bool = ..., dynamic: Any = ..., backend: Any = ..., mode: Any = ...,
    options: Any = ..., disable: builtins.bool = ...,
) -> CompiledFunction[_P, _R]: ...
@overload
def compile(
    function: None = ..., *, fullgraph: builtins.bool = ..., dynamic: Any = ..., backend: Any = ..., mode: Any = ...,
    options: Any = ..., disable: builtins.bool = ...,
) -> Callable[[Callable[_P, _R]], CompiledFunction[_P, _R]]: ...

class _Mode:
    def __enter__(self) -> Any: ...
    def __exit__(self, *exception: Any) -> None: ...
    def __call__(self, function: _F) -> _F: ...

class set_grad_enabled(_Mode):
    def __init__(self, mode: builtins.bool) -> None: ...

class autocast(_Mode):
    def __init__(self, device_type: str = ..., dtype: Any = ..., enabled: builtins.bool = ..., cache_enabled: Any = ...) -> None: ...

class inference_mode(_Mode):
    def __init__(self, mode: builtins.bool = ...) -> None: ...

class as_torch(_Mode):
    def __init__(self) -> None: ...
'''  # noqa: E501
PLAIN_MODES = ("no_grad", "enable_grad")
MODE = """
class {name}(_Mode):
    @overload
    def __new__(cls, function: _F) -> _F: ...  # type: ignore[misc]
    @overload
    def __new__(cls) -> {name}: ...
"""
WRITTEN_ABOVE = set(
    str.split(
        "e inf nan pi amp autograd compiler distributions func jit linalg nn optim special testing utils dtype device "
        "Generator Size newaxis "
        "default_generator weft_version compile set_grad_enabled autocast inference_mode as_torch Tensor"
    )
) | {*PLAIN_MODES}

BOOL, INT, TENSORS = "builtins.bool", "builtins.int", "builtins.tuple[Tensor, ...]"
PARAMETERS = {
    **dict.fromkeys(str.split("other exponent"), "_TensorLike"),
    **dict.fromkeys(str.split("input tensor mask target weight"), "Tensor"),
    **dict.fromkeys(str.split("dim dims axis"), "_Dims"),
    **dict.fromkeys(str.split("keepdim keepdims requires_grad descending stable"), BOOL),
    "tensors": "Sequence[Tensor]",
    "dtype": "_DType | None",
    "generator": "Generator | None",
}
RESULTS = {
    **dict.fromkeys(str.split("allclose equal can_cast __bool__ __contains__"), BOOL),
    **dict.fromkeys(
        str.split(
            "numel nelement dim ndimension get_num_threads get_num_interop_threads initial_seed seed element_size "
            "data_ptr storage_offset get_device __len__ __int__ __index__ __hash__"
        ),
        INT,
    ),
    **dict.fromkeys(
        str.split(
            "split chunk unbind tensor_split hsplit vsplit dsplit split_with_sizes unsafe_chunk unsafe_split meshgrid "
            "broadcast_tensors unravel_index"
        ),
        TENSORS,
    ),
    **dict.fromkeys(
        str.split(
            "item tolist load size stride where nonzero sort topk kthvalue mode median nanmedian max min cummax cummin "
            "aminmax qr svd geqrf lu lu_unpack unique unique_consecutive var_mean std_mean frexp slogdet "
            "triangular_solve histogram histogramdd atleast_1d atleast_2d atleast_3d register_hook vmap gradient "
            "fork_rng printoptions get_printoptions gradcheck gradgradcheck register_post_accumulate_grad_hook storage "
            "untyped_storage type names to_dlpack __dlpack__ __dlpack_device__ value_and_grad get_default_device "
            "export aot load_exported"
        ),
        "Any",
    ),
    **dict.fromkeys(str.split("backward save clear_cache retain_grad"), "None"),
    **dict.fromkeys(str.split("numpy __array__"), "_Array"),
    **dict.fromkeys(str.split("get_default_dtype promote_types result_type"), "_DType"),
    **dict.fromkeys(str.split("grad hessian hvp for_numpy"), "Callable[..., Any]"),
    **dict.fromkeys(str.split("typename __repr__ __format__ get_float32_matmul_precision"), "str"),
    "value_and_grad": "Callable[..., builtins.tuple[builtins.float, Any]]",
    "broadcast_shapes": "Size",
    "manual_seed": "Generator",
    "__iter__": "Iterator[Tensor]",
    "__float__": "builtins.float",
    "__setitem__": "None",
}
PROPERTIES = {
    **dict.fromkeys(str.split("requires_grad is_leaf retains_grad"), BOOL),
    **dict.fromkeys(str.split("ndim output_nr itemsize nbytes"), INT),
    **dict.fromkeys(str.split("T mT H mH data real imag"), "Tensor"),
    "shape": "_Size",
    "dtype": "_DType",
    "device": "device",
    "grad": "Tensor | None",
}
READ_AND_WRITTEN = {"requires_grad", "grad", "data"}


def result_of(name):
    if name in RESULTS:
        return RESULTS[name]
    if name.startswith(("is_", "are_")):
        return BOOL
    return "None" if name.startswith("set_") and name != "set_" else "Tensor"


def parameters_of(function, is_method):
    """The text of a function's parameters; anything if they are not known."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "self, *args: Any, **kwargs: Any" if is_method else "*args: Any, **kwargs: Any"
    texts = ["self"] if is_method else []
    is_starred = False
    for parameter in parameters[1:] if is_method else parameters:
        kind, name = parameter.kind, parameter.name
        if kind is parameter.VAR_POSITIONAL:
            is_starred = True
        if kind is parameter.KEYWORD_ONLY and not is_starred:
            is_starred = True
            texts.append("*")
        texts.append(_parameter(parameter, name))
    return ", ".join(texts)


def _parameter(parameter, name):
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    type_ = "Any" if star else PARAMETERS.get(name, "Any")
    if parameter.default is None and type_ not in ("Any", "_Dims") and "None" not in type_:
        type_ += " | None"
    return f"{star}{name}: {type_}" + ("" if star or parameter.default is parameter.empty else " = ...")


def function_lines(name, function):
    doc = first_sentence(function)
    head = f"def {name}({parameters_of(function, False)}) -> {result_of(name)}:"
    return [head + (f"\n    {doc}\n    ..." if doc else " ...")]


def first_sentence(function):
    """A docstring's first paragraph, as a literal on one line; None if there is none."""
    text = inspect.getdoc(function)
    return None if not text else repr(" ".join(text.split("\n\n")[0].split())).replace("\n", " ")


def class_lines():
    lines = ["", "class Tensor:", "    def __init__(self, *args: Any, **kwargs: Any) -> None: ..."]
    for name in sorted(dir(Tensor)):
        found = inspect.getattr_static(Tensor, name)
        if name.startswith("_") and not (name.startswith("__") and (name in RESULTS or name in ARITHMETIC)):
            continue
        if name in HIDDEN or not (callable(found) or isinstance(found, property)):
            continue
        lines += ["    " + line for line in _member(name, found)]
    return lines


ARITHMETIC = {
    f"__{kind}{name}__"
    for name in str.split("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift")
    for kind in ("", "r", "i")
} | {f"__{name}__" for name in str.split("lt le gt ge eq ne neg pos abs invert getitem")}
HIDDEN = {"lend", "bump_version", "share_storage", "share_memory", "showing", "weak", "array"}


def _member(name, found):
    if isinstance(found, property) or name in PROPERTIES:
        type_ = PROPERTIES.get(name, BOOL if name.startswith("is_") else "Any")
        lines = ["@property", f"def {name}(self) -> {type_}: ..."]
        if name in READ_AND_WRITTEN:
            lines += [f"@{name}.setter", f"def {name}(self, value: Any) -> None: ..."]
        return lines
    if name in ("__eq__", "__ne__"):
        return [f"def {name}(self, other: object) -> Tensor: ...  # type: ignore[override]"]
    if name in ARITHMETIC and name not in RESULTS:
        unary = name.strip("_") in ("neg", "pos", "abs", "invert")
        return [f"def {name}(self{'' if unary else ', other: Any'}) -> Tensor: ..."]
    # Instances of a class's static or class methods have no `self` to leave out.
    return [f"def {name}({parameters_of(getattr(Tensor, name), True)}) -> {result_of(name)}: ..."]


def text():
    lines = [HEADER.rstrip(), *(MODE.format(name=name).rstrip() for name in PLAIN_MODES), *class_lines(), ""]
    for name in sorted(n for n in dir(weft) if not n.startswith("_") and n not in WRITTEN_ABOVE):
        value = getattr(weft, name)
        if isinstance(value, DType):
            lines.append(f"{name}: _DType")
        elif inspect.isfunction(value) or inspect.isbuiltin(value):
            lines += function_lines(name, value)
        elif not inspect.ismodule(value):
            lines.append(f"{name}: Any")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import stubs_of_modules

    TARGET.write_text(text(), encoding="utf-8")
    stubs_of_modules.write()
