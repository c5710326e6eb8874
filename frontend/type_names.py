"""weft.types and weft.nn.common_types: the names that annotations in PyTorch programs use for kinds of arguments."""

import builtins as _builtins
import os as _os
import typing as _typing

from .compiler.dtypes import DType as _DType
from .runtime.state.device import device as _device
from .runtime.state.size import Size
from .runtime.state.tensor import Tensor
from .storages import TypedStorage, UntypedStorage

_T = _typing.TypeVar("_T")

# --- weft.types ---
_bool, _float, _int, _complex = _builtins.bool, _builtins.float, _builtins.int, _builtins.complex
_dtype, _layout = _DType, _typing.Any
_size = Size | _builtins.list | _builtins.tuple
Number = _int | _float | _bool
Device = _device | str | _int | None
Storage = TypedStorage | UntypedStorage
FileLike = str | _os.PathLike | _typing.IO[_builtins.bytes]
MAP_LOCATION = _typing.Callable | Device | _builtins.dict
_TensorOrTensors = Tensor | _builtins.tuple

# --- weft.nn.common_types ---
_scalar_or_tuple_any_t = _T | _builtins.tuple
_size_any_t = _size_1_t = _size_2_t = _size_3_t = _int | _builtins.tuple
_size_2_opt_t = _size_3_opt_t = _size_any_opt_t = _int | None | _builtins.tuple
_ratio_any_t = _ratio_2_t = _ratio_3_t = _float | _builtins.tuple
_tensor_list_t = Tensor | _builtins.list
