"""weft.types and weft.nn.common_types: the names that annotations in PyTorch programs use for kinds of arguments."""

import builtins
import os
from typing import IO, Any, TypeVar

from .compiler.dtypes import DType
from .runtime.state.device import device as _device
from .runtime.state.size import Size
from .runtime.state.tensor import Tensor
from .storages import TypedStorage, UntypedStorage

_T = TypeVar("_T")

# --- weft.types ---
_bool, _float, _int, _complex = builtins.bool, builtins.float, builtins.int, builtins.complex
_dtype, _layout = DType, Any
_size = Size | builtins.list | builtins.tuple
Number = _int | _float | _bool
Device = _device | str | _int | None
Storage = TypedStorage | UntypedStorage
FileLike = str | os.PathLike | IO[builtins.bytes]
_TensorOrTensors = Tensor | builtins.tuple

# --- weft.nn.common_types ---
_scalar_or_tuple_any_t = _T | builtins.tuple
_size_any_t = _size_1_t = _size_2_t = _size_3_t = _int | builtins.tuple
_size_2_opt_t = _size_3_opt_t = _size_any_opt_t = _int | None | builtins.tuple
_ratio_any_t = _ratio_2_t = _ratio_3_t = _float | builtins.tuple
_tensor_list_t = Tensor | builtins.list
