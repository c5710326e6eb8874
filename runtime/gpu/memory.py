"""GPUs in use: the driver's device, the stream that all their work goes through, and memory that is used again.

    gpu = gpu_of(0)
    with gpu:                            whose context is current in this thread; other threads wait
        block = gpu.take(n_bytes)        is free again when nobody refers to it any more
        gpu.write(block.address, array)
        gpu.launch(kernel, blocks, threads, addresses)
        gpu.read(array, block.address)   waits for all of it

Copies and kernels of one GPU run in the order in which they were begun, whichever thread began them. So a block may be
given to the next tensor while kernels that read it are still to run: what writes it comes after them.
"""

import os
import threading
from collections import deque

from ..code import cuda
from ..state.elsewhere import OutOfMemoryError, used

_ROUNDED, _LARGE, _ROUNDED_LARGE = 512, 1 << 20, 1 << 21
_OUT_OF_MEMORY = 2
# Arrays whose copies may not have been read yet are held; so many are waited for.
_MOST_HELD = 256


class Block:
    """So many bytes of a GPU, whose pool gets them back when nobody refers to the block."""

    __slots__ = ("address", "n_bytes", "_memory", "_returned")

    def __init__(self, memory, returned):
        self.address, self.n_bytes = memory.address, memory.n_bytes
        self._memory, self._returned = memory, returned

    def __del__(self):
        # Without a lock: garbage is collected in any thread, at any time.
        self._returned.append(self._memory)


class Pool:
    """Memory that was taken from the driver. `allocated` and `reserved` are bytes: in blocks, and of all."""

    def __init__(self, device, synchronize):
        self._device, self._synchronize = device, synchronize
        self._free, self._returned = {}, deque()  # n_bytes -> memories; what blocks have given back since
        self._allocated = self._reserved = 0
        self.most_allocated = self.most_reserved = 0

    def take(self, n_bytes):
        unit = _ROUNDED if n_bytes <= _LARGE else _ROUNDED_LARGE
        size = max(-(-n_bytes // unit), 1) * unit
        self._settle()
        free = self._free.get(size)
        memory = free.pop() if free else self._new(size)
        self._allocated += size
        self.most_allocated = max(self.most_allocated, self._allocated)
        return Block(memory, self._returned)

    @property
    def allocated(self):
        self._settle()
        return self._allocated

    @property
    def reserved(self):
        return self._reserved

    def forget_most(self):
        """What was the most memory so far counts no more."""
        self.most_allocated, self.most_reserved = self.allocated, self._reserved

    def give_back(self):
        """The driver gets all memory that no block has. It is waited for the kernels that may still read it."""
        self._settle()
        self._synchronize()
        for memories in self._free.values():
            for memory in memories:
                self._reserved -= memory.n_bytes
                memory.close()
        self._free.clear()

    def _settle(self):
        while self._returned:
            memory = self._returned.popleft()
            self._allocated -= memory.n_bytes
            self._free.setdefault(memory.n_bytes, []).append(memory)

    def _new(self, size):
        try:
            memory = self._device.allocate(size)
        except cuda.DriverError as error:
            if error.code != _OUT_OF_MEMORY:
                raise
            self.give_back()
            memory = self._again(size)
        self._reserved += size
        self.most_reserved = max(self.most_reserved, self._reserved)
        return memory

    def _again(self, size):
        try:
            return self._device.allocate(size)
        except cuda.DriverError as error:
            if error.code != _OUT_OF_MEMORY:
                raise
            raise OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size} bytes on {self._device.name}, of which tensors of this "
                f"process have {self._allocated}"
            ) from error


class Gpu:
    """A GPU in use. As a `with` block it is this thread's until the end of the block."""

    def __init__(self, number):
        if not used:
            used.append(True)
        self.number, self.device = number, cuda.Device(driver(), number)
        self.name, self.capability = self.device.name, self.device.capability
        self._lock, self._process, self._held = threading.RLock(), os.getpid(), []
        self._depth = 0
        with self.device:
            self._stream = self.device.stream()
        self.pool = Pool(self.device, self.synchronize)

    def __enter__(self):
        if os.getpid() != self._process:
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
                "'spawn' start method"
            )
        self._lock.acquire()
        if self._depth == 0:
            try:
                self.device.__enter__()
            except BaseException:
                self._lock.release()
                raise
        self._depth += 1
        return self

    def __exit__(self, *exception):
        self._depth -= 1
        try:
            if self._depth == 0:
                self.device.__exit__(*exception)
        finally:
            self._lock.release()

    def take(self, n_bytes):
        return self.pool.take(n_bytes)

    def write(self, address, array):
        """Copy an array without gaps there. It may change once this returns if it is small; else wait."""
        if len(self._held) >= _MOST_HELD:
            self.synchronize()
        self._held.append(array)
        self._stream.write(_Range(address, array.nbytes), array)

    def read(self, array, address):
        """Fill an array without gaps with what is there, once all work before is done."""
        self._stream.read(array, _Range(address, array.nbytes))
        self.synchronize()

    def launch(self, kernel, blocks, threads, addresses):
        self._stream.launch(kernel, blocks, threads, addresses)

    def synchronize(self):
        """Wait for all that was begun."""
        self._stream.synchronize()
        self._held.clear()


class _Range:
    __slots__ = ("address", "n_bytes")

    def __init__(self, address, n_bytes):
        self.address, self.n_bytes = address, n_bytes


_gpus, _starting, _drivers = {}, threading.Lock(), []


def gpu_of(number):
    """The GPU of that number, in use from the first time it is asked for. Raises cuda.NoDriver."""
    found = _gpus.get(number)
    if found is None:
        with _starting:
            found = _gpus.get(number)
            if found is None:
                found = _gpus[number] = Gpu(number)
    return found


def driver():
    """NVIDIA's driver. Raises cuda.NoDriver."""
    if not _drivers:
        _drivers.append(cuda.driver())
    return _drivers[0]


def gpu_count():
    """How many GPUs there are."""
    try:
        return driver().count()
    except (cuda.NoDriver, cuda.DriverError):
        return 0


def why_none():
    """What is missing, where no GPU was counted."""
    try:
        return f"NVIDIA's driver knows {driver().count()} GPUs"
    except (cuda.NoDriver, cuda.DriverError) as error:
        return str(error)


def gpu_there(number):
    """The GPU of that number; None if there is none of NVIDIA's at all. Raises cuda.NoDriver for one among others."""
    return gpu_of(number) if gpu_count() else None


def in_use():
    """The GPUs that were asked for so far."""
    return list(_gpus.values())
