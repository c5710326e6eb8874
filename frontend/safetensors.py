"""Reads and writes safetensors files: named tensors and nothing else.

    8 bytes       the length of the header, little-endian
    the header    JSON: {name: {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}, "__metadata__": {...}}
    the rest      the tensors' bytes, at offsets from here, row-major and little-endian

>>> import weft
>>> content = save({"weight": weft.ones(2)}, metadata={"epoch": "3"})
>>> load(content)
{'weight': tensor([1., 1.])}
"""

import json
import math
import os

import numpy as np

from .compiler import dtypes
from .public import of_module
from .runtime.state.device import require_cpu
from .runtime.state.tensor import Tensor, tensor_of

__getattr__, __dir__ = of_module(__name__)
__all__ = ["load", "load_file", "save", "save_file"]

_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16",
    "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip
_WRITTEN = {name: code for code, name in _NAMES.items()}
_LONGEST_HEADER = 100_000_000
_METADATA = "__metadata__"


def save(tensors, metadata=None):
    """A dict of tensors, or of NumPy arrays, as bytes. `metadata`: a dict of strings."""
    if not isinstance(tensors, dict):
        raise ValueError(f"safetensors: expected a dict of [str, Tensor], got {type(tensors).__name__}")
    if any(not isinstance(x, str) for pair in (metadata or {}).items() for x in pair):
        raise ValueError("safetensors: metadata must be a dict of strings")
    header = {} if metadata is None else {_METADATA: dict(metadata)}
    arrays = {name: _array_of(name, x) for name, x in tensors.items()}
    # Wide elements first, as others write them: all are aligned then.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    end = 0
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        code = _WRITTEN[dtypes.from_numpy(arrays[name].dtype).name]
        header[name] = {"dtype": code, "shape": list(arrays[name].shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(arrays[name].tobytes() for name in order)])


def save_file(tensors, filename, metadata=None):
    """Write `save(tensors, metadata)` to a path."""
    content = save(tensors, metadata)
    with open(filename, "wb") as file:
        file.write(content)


def load(data):
    """The dict of tensors in bytes. ValueError for bytes that are damaged or of another format."""
    header, memory = _parsed(bytes(data))
    return {name: _tensor(name, entry, memory) for name, entry in header.items() if name != _METADATA}


def load_file(filename, device="cpu"):
    """The dict of tensors in the file at a path."""
    require_cpu("load_file", device)
    with open(os.fspath(filename), "rb") as file:
        return load(file.read())


def is_safetensors(start):
    """Whether a file that begins with these 9 bytes may be one."""
    return len(start) == 9 and start[8:] == b"{" and 2 <= int.from_bytes(start[:8], "little") <= _LONGEST_HEADER


def _array_of(name, x):
    if not isinstance(name, str):
        raise ValueError(f"safetensors: the key {name!r} is a {type(name).__name__}; names must be strings")
    if not isinstance(x, (Tensor, np.ndarray)):
        raise ValueError(f"safetensors: {name!r} is a {type(x).__name__}; only tensors can be saved, in one flat dict")
    array = np.asarray(x.detach().array if isinstance(x, Tensor) else x)
    if array.dtype not in dtypes._BY_NUMPY or dtypes.from_numpy(array.dtype).name not in _WRITTEN:
        raise ValueError(f"safetensors: {name!r} has element type {array.dtype}, which the format does not have")
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).reshape(array.shape)


def _parsed(data):
    """(header, the tensors' bytes)."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(_LONGEST_HEADER, len(data) - 8):
        raise ValueError("safetensors: the header is longer than the file")
    header = json.loads(data[8 : 8 + size])
    if not isinstance(header, dict):
        raise ValueError("safetensors: the header is no dict")
    return header, memoryview(data)[8 + size :]


def _tensor(name, entry, memory):
    kind = _NAMES.get(entry["dtype"])
    if kind is None:
        raise ValueError(f"safetensors: {name!r} has element type {entry['dtype']}, which weft does not have")
    shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
    size, kept = dtypes.dtype_named(kind).itemsize, dtypes.dtype_named(kind).numpy
    whole = all(isinstance(n, int) and n >= 0 for n in shape) and 0 <= begin <= end <= len(memory)
    if not whole or end - begin != math.prod(shape) * size:
        raise ValueError(f"safetensors: {name!r} of shape {shape} does not fit its bytes {begin} to {end}")
    return tensor_of(np.frombuffer(memory[begin:end], kept).copy().reshape(shape))
