"""NVIDIA's driver, called through ctypes: code from PTX text, memory of a GPU, launches of kernels.

    device = Device(driver())                        the primary context of the first GPU
    with device:                                     which is current in this thread from here on
        module, stream = device.load(text), device.stream()
        memory = device.allocate(x.nbytes)
        stream.write(memory, x)                      copies and launches of one stream run in order
        stream.launch(module.kernel("k0"), 1, 128, [memory.address])
        stream.read(x, memory)
        stream.synchronize()

Nothing but the driver's library is needed: its compiler translates PTX when a module is loaded. Every call is checked;
what fails is a DriverError with the driver's own name for it. Objects free what they hold when `close` is called, or
when nobody refers to them any more.
"""

import ctypes
import os
import sys
import weakref

_SUCCESS, _DEINITIALIZED = 0, 4
# Of cuDeviceGetAttribute and cuModuleLoadDataEx.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6
_LOG_BYTES = 8192
_NON_BLOCKING = 1  # a stream that does not wait for the default stream
_LIBRARIES = {"linux": ("libcuda.so.1", "libcuda.so"), "win32": ("nvcuda.dll",)}

_HANDLE, _ADDRESS, _SIZE, _UNSIGNED, _INT = (
    ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int,
)  # fmt: skip
_POINTER = ctypes.c_void_p
# Names in the library, and the types of what they take. All return a CUresult.
_FUNCTIONS = {
    "cuInit": (_UNSIGNED,),
    "cuGetErrorName": (_INT, _POINTER),
    "cuGetErrorString": (_INT, _POINTER),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGet": (_POINTER, _INT),
    "cuDeviceGetName": (_POINTER, _INT, _INT),
    "cuDeviceGetAttribute": (_POINTER, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_POINTER, _INT),
    "cuDevicePrimaryCtxRelease_v2": (_INT,),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuModuleLoadDataEx": (_POINTER, _POINTER, _UNSIGNED, _POINTER, _POINTER),
    "cuModuleGetFunction": (_POINTER, _HANDLE, ctypes.c_char_p),
    "cuModuleUnload": (_HANDLE,),
    "cuMemAlloc_v2": (_POINTER, _SIZE),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, _SIZE, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (_POINTER, _ADDRESS, _SIZE, _HANDLE),
    "cuStreamCreate": (_POINTER, _UNSIGNED),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuLaunchKernel": (_HANDLE, *[_UNSIGNED] * 6, _UNSIGNED, _HANDLE, _POINTER, _POINTER),
}


class NoDriver(RuntimeError):
    """There is no driver of NVIDIA's on this machine, or no GPU."""


class DriverError(RuntimeError):
    """The driver refuses something. `code`: its number of the error; `name`: the driver's name of it."""

    def __init__(self, function, code, name, text):
        super().__init__(f"{function}: {name} ({code}): {text}")
        self.code, self.name = code, name


class Driver:
    """The driver's functions: `call("cuInit", 0)` raises DriverError if the driver does not say that all is well."""

    def __init__(self, library):
        self._functions = {}
        for name, kinds in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = kinds, _INT
            self._functions[name] = function
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        code = self._functions[name](*arguments)
        if code != _SUCCESS:
            raise DriverError(name, code, self._said("cuGetErrorName", code), self._said("cuGetErrorString", code))

    def get(self, name, kind, *arguments):
        """What a function writes to where its first argument points."""
        found = kind()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value

    def count(self):
        """How many GPUs there are."""
        return self.get("cuDeviceGetCount", _INT)

    def _said(self, name, code):
        text = ctypes.c_char_p()
        self._functions[name](code, ctypes.byref(text))
        return text.value.decode() if text.value else "unknown error"


def driver():
    """The Driver of this machine. Raises NoDriver."""
    names = _LIBRARIES.get(sys.platform, ())
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        return Driver(library)
    looked = f"no library {' or '.join(names)} was found" if names else f"there is none for {sys.platform}"
    raise NoDriver(f"running on a GPU needs NVIDIA's driver, and {looked}")


class Device:
    """A GPU and its primary context, which other libraries in the process use too. `with device:` makes it current."""

    def __init__(self, its_driver, number=0):
        self.driver = its_driver
        count = its_driver.count()
        if not 0 <= number < count:
            raise NoDriver(f"GPU {number} was asked for, and NVIDIA's driver knows {count}")
        self.handle = its_driver.get("cuDeviceGet", _INT, number)
        self.context = its_driver.get("cuDevicePrimaryCtxRetain", _HANDLE, self.handle)
        self.close = weakref.finalize(
            self, _freed, its_driver, None, "cuDevicePrimaryCtxRelease_v2", self.handle, os.getpid()
        )

    @property
    def name(self):
        text = ctypes.create_string_buffer(256)
        self.driver.call("cuDeviceGetName", text, len(text), self.handle)
        return text.value.decode()

    @property
    def capability(self):
        """Such as (9, 0): of code for another one, only what is for an older one runs."""
        kinds = (_CAPABILITY_MAJOR, _CAPABILITY_MINOR)
        return tuple(self.driver.get("cuDeviceGetAttribute", _INT, kind, self.handle) for kind in kinds)

    def __enter__(self):
        self.driver.call("cuCtxPushCurrent_v2", self.context)
        return self

    def __exit__(self, *error):
        self.driver.get("cuCtxPopCurrent_v2", _HANDLE)

    def load(self, text):
        return Module(self, text)

    def allocate(self, n_bytes):
        return Memory(self, n_bytes)

    def stream(self):
        return Stream(self)


def _freed(its_driver, context, name, handle, process):
    """Give something back, in its context. When the process ends, the driver may have ended before. What a fork has
    copied is not the child's."""
    if os.getpid() != process:
        return
    try:
        if context is not None:
            its_driver.call("cuCtxPushCurrent_v2", context)
        its_driver.call(name, handle)
        if context is not None:
            its_driver.get("cuCtxPopCurrent_v2", _HANDLE)
    except DriverError as error:
        if error.code != _DEINITIALIZED:
            raise


def _owned(owner, device, name, handle):
    """What gives `handle` back when it is called, or when `owner` is gone; the device stays until then."""
    freed = weakref.finalize(owner, _freed, device.driver, device.context, name, handle, os.getpid())
    owner.device = device
    return freed


class Module:
    """The code of a PTX text."""

    def __init__(self, device, text):
        self.driver, log = device.driver, ctypes.create_string_buffer(_LOG_BYTES)
        options = (_INT * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (_POINTER * 2)(ctypes.addressof(log), _LOG_BYTES)
        content = ctypes.c_char_p(text.encode())
        try:
            handle = self.driver.get("cuModuleLoadDataEx", _HANDLE, content, 2, options, values)
        except DriverError as error:
            said = log.value.decode(errors="replace").strip()
            if said:
                error.args = (f"{error.args[0]}: {said}",)
            raise
        self.handle = handle
        self.close = _owned(self, device, "cuModuleUnload", handle)

    def kernel(self, name):
        return self.driver.get("cuModuleGetFunction", _HANDLE, self.handle, name.encode())


class Memory:
    """So many bytes of a GPU's memory, aligned to 256, at `address`."""

    def __init__(self, device, n_bytes):
        # The driver refuses to give nothing.
        self.n_bytes = n_bytes
        self.address = device.driver.get("cuMemAlloc_v2", _ADDRESS, max(n_bytes, 1))
        self.close = _owned(self, device, "cuMemFree_v2", self.address)


class Stream:
    """Copies and launches that run one after the other, beside this thread."""

    def __init__(self, device):
        self.driver = device.driver
        self.handle = device.driver.get("cuStreamCreate", _HANDLE, _NON_BLOCKING)
        self.close = _owned(self, device, "cuStreamDestroy_v2", self.handle)

    def write(self, memory, array):
        """Copy an array without gaps to memory. It must not change before `synchronize`."""
        _require_room(memory, array)
        if array.nbytes:
            self.driver.call("cuMemcpyHtoDAsync_v2", memory.address, array.ctypes.data, array.nbytes, self.handle)

    def read(self, array, memory):
        """Copy memory to an array without gaps, which has it after `synchronize`."""
        _require_room(memory, array)
        if array.nbytes:
            self.driver.call("cuMemcpyDtoHAsync_v2", array.ctypes.data, memory.address, array.nbytes, self.handle)

    def launch(self, kernel, blocks, threads, addresses):
        """A kernel of pointers on so many blocks of so many threads."""
        words = (_ADDRESS * len(addresses))(*addresses)
        first, step = ctypes.addressof(words), ctypes.sizeof(_ADDRESS)
        pointers = (_POINTER * len(addresses))(*[first + k * step for k in range(len(addresses))])
        self.driver.call("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, self.handle, pointers, None)

    def synchronize(self):
        """Wait for all of it. What a kernel does wrong is found here."""
        self.driver.call("cuStreamSynchronize", self.handle)


def _require_room(memory, array):
    assert array.nbytes <= memory.n_bytes and array.flags.c_contiguous, (array.shape, array.strides, memory.n_bytes)
