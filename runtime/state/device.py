"""PyTorch's device objects. weft computes on the CPU: others can be named, asked and compared, but not used."""

from ...compiler import dtypes
from ...compiler.later import later

_TYPES = str.split("""
    cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu mtia privateuseone
""")


class device:
    """device("cpu"), device("cuda:1"), device("cuda", 1): a type and an index, which may be None.

    As a context manager or decorator it says where new tensors are made, which can only be the CPU.
    """

    __slots__ = ("type", "index")

    def __new__(cls, type, index=None):
        if isinstance(type, device):
            return type
        key = _parsed(type, index)
        known = _known.get(key)
        if known is None:
            self = object.__new__(cls)
            self.type, self.index = key
            known = _known.setdefault(key, self)
        return known

    def __eq__(self, other):
        if not isinstance(other, device):
            return NotImplemented
        return self.type == other.type and self.index == other.index

    def __hash__(self):
        return hash((self.type, self.index))

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self):
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __reduce__(self):
        return device, (self.type, self.index)

    def __enter__(self):
        require_cpu("device", self)
        return self

    def __exit__(self, *exception):
        pass

    def __call__(self, function):
        require_cpu("device", self)
        return function


def _parsed(kind, index):
    """(type, index) of what a user wrote. A number alone is an accelerator's, in PyTorch's way."""
    if isinstance(kind, int) and not isinstance(kind, bool):
        return "cuda", kind
    if not isinstance(kind, str):
        raise TypeError(f"device(): argument 'type' must be str, int or device, not {type(kind).__name__}")
    name, colon, number = kind.partition(":")
    if name not in _TYPES:
        is_dtype = isinstance(getattr(dtypes, name, None), dtypes.DType)
        instead = f"weft.{name} is the dtype of this name" if is_dtype else "weft computes on the CPU"
        raise RuntimeError(
            f"Expected one of {', '.join(_TYPES)} device type at start of device string: {kind}; {instead}"
        )
    if not colon:
        return name, None if index is None else int(index)
    if index is not None:
        raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {kind}")
    if not number.isdecimal():
        raise RuntimeError(f"Invalid device string: '{kind}'")
    return name, int(number)


_known = {}
# One object for all who name it, so that a look tells it.
CPU = device("cpu")


_gpu_there, _gpu_count = later("runtime.gpu.memory:gpu_there"), later("runtime.gpu.memory:gpu_count")
_why_no_gpu = later("runtime.gpu.memory:why_none")


def gpu_given(function, given):
    """The GPU that a user's device names, None for the CPU and for None. RuntimeError for one that is not there."""
    if given is None or given is CPU or given == "cpu":
        return None
    wanted = device(given)
    found = _gpu_there(wanted.index or 0) if wanted.type == "cuda" else None
    if found is None:
        require_cpu(function, wanted)
    return found


def require_cpu(function, given):
    """RuntimeError unless a device that a user gave is the CPU, or None."""
    if given is None or given is CPU or given == "cpu":
        return
    wanted = device(given)
    if wanted.type == "cuda" and _gpu_count():
        raise NotImplementedError(
            f"{function}: for the CPU only, got {str(wanted)!r}; make it there and copy it with .to({str(wanted)!r})"
        )
    if wanted.type != "cpu":
        is_cuda = wanted.type == "cuda"
        raise RuntimeError(
            f"{function}: weft computes on the CPU, got {str(wanted)!r}"
            + (f" ({_why_no_gpu()})" if is_cuda else "")
            + '; leave the device out, or choose it as in device = "cuda" if weft.cuda.is_available() else "cpu"'
            + (". A function of arrays can be exported for a GPU: weft.export_ptx" if is_cuda else "")
        )
