"""Write frontend/__init__.pyi: what type checkers and editors read of the names that `weft` itself has.

    python docs/stubs.py

Those names are collected when weft is imported (functions, in-place forms, methods of Tensor), so a checker cannot find
them in the source. Parameters are those of the functions; their types go by their names (PARAMETERS), and results are
tensors unless RESULTS says otherwise.
"""

import inspect
from pathlib import Path

import stubs_types as types
from stubs_types import BOOL, INT, TENSORS, parameters_of

import weft
from weft import public
from weft.compiler.dtypes import DType
from weft.later_families import join_all
from weft.runtime.state.tensor import Tensor

join_all()  # methods are looked at where they stand
TARGET = Path(__file__).parent.parent / "frontend" / "__init__.pyi"

HEADER = '''"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from collections.abc import Callable, Iterator, Sequence
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from os import PathLike
from typing import Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, TypeVar, overload

import numpy as _np
from typing_extensions import Self

{modules}

_F = TypeVar("_F", bound=Callable[..., Any])
_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R", covariant=True)
_S = TypeVar("_S")
{aliases}
newaxis: None
default_generator: Generator
__version__: str
weft_version: str

class dtype:
    @property
    def itemsize(self) -> builtins.int: ...
    @property
    def is_floating_point(self) -> builtins.bool: ...
    @property
    def is_complex(self) -> builtins.bool: ...
    @property
    def is_signed(self) -> builtins.bool: ...
    def to_real(self) -> dtype: ...
    def to_complex(self) -> dtype: ...

class device:
    def __init__(self, type: builtins.str | builtins.int | device, index: builtins.int | None = ...) -> None: ...
    @property
    def type(self) -> builtins.str: ...
    @property
    def index(self) -> builtins.int | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def __call__(self, function: _F) -> _F: ...

class Generator:
    def __init__(self, device: Any = ...) -> None: ...
    @property
    def device(self) -> _Device: ...
    def manual_seed(self, seed: builtins.int) -> Self: ...
    def seed(self) -> builtins.int: ...
    def initial_seed(self) -> builtins.int: ...
    def get_state(self) -> Tensor: ...
    def set_state(self, new_state: Tensor) -> Any: ...
    def clone_state(self) -> Generator: ...

class Size(builtins.tuple[builtins.int, ...]):
    def numel(self) -> builtins.int: ...

_DType = dtype
_Device = device
_Generator = Generator
_Size = Size

class CompiledFunction(Generic[_P, _R]):
    __name__: builtins.str
    __qualname__: builtins.str
    __wrapped__: Callable[..., Any]
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    @overload
    def __get__(self, instance: None, owner: Any = ...) -> CompiledFunction[_P, _R]: ...
    @overload
    def __get__(
        self: CompiledFunction[Concatenate[_S, _Q], _R], instance: _S, owner: Any = ...
    ) -> CompiledFunction[_Q, _R]: ...
    def explain(self, *args: Any, verbose: builtins.bool | Literal["times"] = ..., **kwargs: Any) -> str: ...
    def finish_compiling(self) -> None: ...
    @property
    def breaks(self) -> builtins.tuple[Any, ...]: ...
    @property
    def recordings(self) -> builtins.tuple[Any, ...]: ...

class _CompiledModule(CompiledFunction[..., Any]):
    def __getattr__(self, name: builtins.str) -> Any: ...

@overload
def compile(model: nn.Module, {options}) -> _CompiledModule: ...
@overload
def compile(model: Callable[_P, _R], {options}) -> CompiledFunction[_P, _R]: ...
@overload
def compile(model: None = ..., {options}) -> Callable[[Callable[_P, _R]], CompiledFunction[_P, _R]]: ...

class _OnArrays(Generic[_R]):
    def __call__(self, *args: Any, **kwargs: Any) -> _R: ...
    def explain(self, *args: Any, verbose: builtins.bool | Literal["times"] = ..., **kwargs: Any) -> str: ...

@overload
def value_and_grad(
    function: Callable[..., Tensor], argnums: builtins.int = ...
) -> _OnArrays[builtins.tuple[builtins.float, _Array]]: ...
@overload
def value_and_grad(
    function: Callable[..., Tensor], argnums: builtins.tuple[builtins.int, ...]
) -> _OnArrays[builtins.tuple[builtins.float, builtins.tuple[_Array, ...]]]: ...
@overload
def grad(function: Callable[..., Tensor], argnums: builtins.int = ...) -> _OnArrays[_Array]: ...
@overload
def grad(
    function: Callable[..., Tensor], argnums: builtins.tuple[builtins.int, ...]
) -> _OnArrays[builtins.tuple[_Array, ...]]: ...
@overload
def jacobian(function: Callable[..., Tensor], argnums: builtins.int = ...) -> _OnArrays[_Array]: ...
@overload
def jacobian(
    function: Callable[..., Tensor], argnums: builtins.tuple[builtins.int, ...]
) -> _OnArrays[builtins.tuple[_Array, ...]]: ...
def hessian(function: Callable[..., Tensor], argnums: builtins.int = ...) -> _OnArrays[_Array]: ...
def hvp(function: Callable[..., Tensor]) -> _OnArrays[_Array]: ...
def for_numpy(function: Callable[..., Any]) -> _OnArrays[Any]: ...

class _Mode:
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def __call__(self, function: _F) -> _F: ...

class set_grad_enabled(_Mode):
    def __init__(self, mode: builtins.bool) -> None: ...

from .amp import GradScaler as GradScaler

class autocast(_Mode):
    def __init__(
        self, device_type: str = ..., dtype: _DType | None = ..., enabled: builtins.bool = ..., cache_enabled: Any = ...
    ) -> None: ...

class inference_mode(_Mode):
    def __init__(self, mode: builtins.bool = ...) -> None: ...

class as_torch(_Mode):
    def __init__(self) -> None: ...
'''
COMPILE_OPTIONS = (
    "*, fullgraph: builtins.bool = ..., dynamic: Any = ..., backend: Any = ..., mode: Any = ..., options: Any = ..., "
    "name: builtins.str | None = ..., disable: builtins.bool = ..., recompile_limit: builtins.int | None = ..., "
    "isolate_recompiles: builtins.bool = ..., background: builtins.bool = ..."
)
MODULES = str.split("""
    accelerator amp autograd backends cpu cuda distributed distributions fft func futures jit linalg mps multiprocessing
    nn optim profiler random serialization special testing utils version xpu
""")
PLAIN_MODES = ("no_grad", "enable_grad")
MODE = """
class {name}(_Mode):
    @overload
    def __new__(cls, function: _F) -> _F: ...  # type: ignore[misc]
    @overload
    def __new__(cls) -> {name}: ...
"""
WRITTEN_ABOVE = {
    *MODULES,
    *PLAIN_MODES,
    *str.split(
        "e inf nan pi dtype device Generator Size newaxis default_generator weft_version compile set_grad_enabled "
        "autocast GradScaler inference_mode as_torch Tensor value_and_grad grad jacobian hessian hvp "
        "for_numpy"
    ),
}

RESULTS = {
    **dict.fromkeys(str.split("allclose equal can_cast __bool__ __contains__"), BOOL),
    **dict.fromkeys(
        str.split(
            "numel nelement dim ndimension sparse_dim dense_dim get_num_threads get_num_interop_threads initial_seed "
            "seed element_size data_ptr storage_offset get_device __len__ __int__ __index__ __hash__"
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
            "item tolist load qr svd geqrf lu lu_unpack unique_consecutive frexp slogdet triangular_solve histogram "
            "histogramdd atleast_1d atleast_2d atleast_3d register_hook gradient fork_rng printoptions "
            "get_printoptions register_post_accumulate_grad_hook names to_dlpack __dlpack__ __dlpack_device__ "
            "get_default_device export aot load_exported export_ptx load_ptx"
        ),
        "Any",
    ),
    **dict.fromkeys(str.split("backward save clear_cache retain_grad"), "None"),
    "fill_cache": "builtins.float",
    **dict.fromkeys(str.split("numpy __array__"), "_Array"),
    **dict.fromkeys(str.split("get_default_dtype promote_types result_type"), "_DType"),
    **dict.fromkeys(str.split("sort topk kthvalue mode cummax cummin"), "_ValuesAndIndices"),
    **dict.fromkeys(str.split("var_mean std_mean"), "builtins.tuple[Tensor, Tensor]"),
    "aminmax": "_Extremes",
    "vmap": "Callable[..., Any]",
    **dict.fromkeys(str.split("typename __repr__ __format__ get_float32_matmul_precision"), "str"),
    "broadcast_shapes": "_Size",
    "manual_seed": "_Generator",
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
    "device": "_Device",
    "grad": "Tensor | None",
}
READ_AND_WRITTEN = {"requires_grad", "grad", "data"}


def result_of(name):
    if name in RESULTS:
        return RESULTS[name]
    if name.startswith(("is_", "are_")):
        return BOOL
    return "None" if name.startswith("set_") and name != "set_" else "Tensor"


def function_lines(name, function):
    doc = first_sentence(function)
    if name in types.FUNCTION_OVERLOADS:
        return list(types.overloaded(name, types.FUNCTION_OVERLOADS[name], False))
    head = f"def {name}({parameters_of(function, False, types.OF_FUNCTIONS)}) -> {result_of(name)}:"
    return [head + (f"\n    {doc}\n    ..." if doc else " ...")]


def first_sentence(function):
    """A docstring's first paragraph, as a literal on one line; None if there is none."""
    text = inspect.getdoc(function)
    return None if not text else repr(" ".join(text.split("\n\n")[0].split())).replace("\n", " ")


def class_lines():
    lines = ["", "class Tensor:", "    def __init__(self, *args: Any, **kwargs: Any) -> None: ..."]
    special = {name for name in dir(Tensor) if name in ARITHMETIC or (name in RESULTS and name.startswith("__"))}
    for name in sorted({*public.public_names("Tensor"), *special}):
        found = inspect.getattr_static(Tensor, name)
        if callable(found) or isinstance(found, (property, staticmethod, classmethod)) or name in PROPERTIES:
            lines += ["    " + line for line in _member(name, found)]
    return lines


ARITHMETIC = {
    f"__{kind}{name}__"
    for name in str.split("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift")
    for kind in ("", "r", "i")
} | {f"__{name}__" for name in str.split("lt le gt ge eq ne neg pos abs invert getitem")}
OPERANDS = {
    **dict.fromkeys(str.split("__neg__ __pos__ __abs__ __invert__"), ""),
    **dict.fromkeys(str.split("__matmul__ __rmatmul__ __imatmul__"), ", other: Tensor"),
    "__getitem__": ", index: Any",
}


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
        return [f"def {name}(self{OPERANDS.get(name, ', other: _TensorLike | _Array | _np.generic')}) -> Tensor: ..."]
    if name in types.METHOD_OVERLOADS:
        return list(types.overloaded(name, types.METHOD_OVERLOADS[name], True))
    # Instances of a class's static or class methods have no `self` to leave out.
    parameters = parameters_of(getattr(Tensor, name), True, types.OF_FUNCTIONS)
    return [f"def {name}({parameters}) -> {result_of(name)}: ..."]


# Modules of weft's own whose types are those in their files.
WITHOUT_STUB = ["visualize"]


def text():
    modules = "\n".join(f"from . import {name} as {name}" for name in sorted([*MODULES, *WITHOUT_STUB]))
    lines = [
        HEADER.format(modules=modules, aliases=types.ALIASES, options=COMPILE_OPTIONS).rstrip(),
        *(MODE.format(name=name).rstrip() for name in PLAIN_MODES),
        *types.result_classes(),
        *class_lines(),
        "",
    ]
    for name in sorted(n for n in dir(weft) if not n.startswith("_") and n not in {*WRITTEN_ABOVE, *WITHOUT_STUB}):
        value = getattr(weft, name)
        if isinstance(value, DType):
            lines.append(f"{name}: _DType")
        elif inspect.isfunction(value) or inspect.isbuiltin(value):
            lines += function_lines(name, value)
        elif isinstance(value, type) and issubclass(value, Exception):
            lines.append(f"class {name}({', '.join(base.__name__ for base in value.__bases__)}): ...")
        else:
            lines.append(f"{name}: Any")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import stubs_of_modules
    import stubs_of_paths

    TARGET.write_text(text(), encoding="utf-8")
    stubs_of_modules.write()
    stubs_of_paths.write()
