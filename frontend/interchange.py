"""Tensors on memory of others, and others on memory of tensors: DLPack and Python's buffers, through NumPy."""

import numpy as np

from .creation import from_numpy
from .runtime.state.tensor import Tensor

PUBLIC = ["from_dlpack", "frombuffer", "to_dlpack"]
CPU = (1, 0)  # DLPack's type and number of the device


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor on the memory of an array of any library that speaks DLPack (`__dlpack__`): NumPy, PyTorch, JAX, ...

    copy: True for memory of its own. Raises TypeError for what does not speak it, and for types weft does not have;
    BufferError for memory that is not the CPU's.

    >>> import numpy as np
    >>> from_dlpack(np.array([1.0, 2.0]))
    tensor([1., 2.], dtype=weft.float64)
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        raise TypeError(f"from_dlpack: expected an object with __dlpack__, got {type(ext_tensor).__name__}; "
                        "a capsule says nothing of where its memory is: give the object that made it")  # fmt: skip
    if ext_tensor.__dlpack_device__() != CPU:
        raise BufferError(f"from_dlpack: the memory is on device {ext_tensor.__dlpack_device__()}; copy it to the CPU")
    return from_numpy(np.from_dlpack(ext_tensor, copy=copy))


def to_dlpack(tensor):
    """The tensor's memory as a DLPack capsule. Libraries take the tensor itself in their `from_dlpack`."""
    return tensor.__dlpack__()


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A vector on the memory of bytes, a bytearray, an array.array, a memory map, ...

    dtype: of its elements. count: how many (-1: all). offset: how many bytes are left out at the front. Memory that
    cannot be written to is read only: in-place changes of the tensor are a RuntimeError.

    >>> frombuffer(bytearray(b"abcd"), dtype=weft.int32)
    tensor([1684234849], dtype=weft.int32)
    """
    n_bytes, size = memoryview(buffer).nbytes, dtype.size_bytes
    if n_bytes == 0 or count == 0:
        raise ValueError(f"frombuffer: both buffer length ({n_bytes}) and count ({count}) must not be 0")
    if not 0 <= offset < n_bytes:
        raise ValueError(
            f"frombuffer: offset ({offset} bytes) must be non-negative and no greater than buffer length ({n_bytes} "
            "bytes) minus 1"
        )
    if count < 0 and (n_bytes - offset) % size:
        raise ValueError(
            f"frombuffer: buffer length ({n_bytes - offset} bytes) after offset ({offset} bytes) must be a multiple of "
            f"element size ({size})"
        )
    if offset + count * size > n_bytes:
        raise ValueError(
            f"frombuffer: requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be "
            f"greater than actual buffer length ({n_bytes} bytes)"
        )
    tensor = from_numpy(np.frombuffer(buffer, dtype.numpy, count, offset))
    return tensor.requires_grad_() if requires_grad else tensor


def _dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """The tensor's memory for another library (the array API's protocol). BufferError if it requires gradients."""
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if stream not in (None, -1):
        raise BufferError(f"__dlpack__: a CPU has no streams, got stream={stream!r}")
    return self.numpy().__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


def _dlpack_device(self):
    return CPU


Tensor.__dlpack__, Tensor.__dlpack_device__ = _dlpack, _dlpack_device


def _array_namespace(self, *, api_version=None):
    """The functions of the array API standard for tensors: weft.array_api."""
    from . import array_api

    if api_version not in (None, "2021.12", "2022.12", "2023.12", array_api.__array_api_version__):
        raise ValueError(f"__array_namespace__: weft follows {array_api.__array_api_version__}, not {api_version}")
    return array_api


def _to_device(self, device, /, *, stream=None):
    """The tensor itself: there is one device."""
    return self.to(device)


Tensor.__array_namespace__, Tensor.to_device = _array_namespace, _to_device
