"""Functions that `weft.export_ptx` has written, called from Python on a GPU of NVIDIA's (runtime/code/cuda.py).

Their memory on the GPU is taken once, since all sizes are known. A call copies its arguments there, launches the
kernels in their order, and copies the results back.
"""

from pathlib import Path

import numpy as np

from ...compiler.formula import Formula
from ..code import cuda
from ..state.device import device as its_device
from .exported import Argument


class Counted:
    """Numbers of a function that follow from what optimizers count: `held` has it, name -> number, of all functions of
    one text; `numbers` are the bytes of all run-time numbers."""

    def __init__(self, described, held):
        self.held, self.steps = held, described["steps"]
        self.numbers = np.frombuffer(bytes.fromhex(described["numbers"]), np.float64).copy()
        self.formulas = [(slot, Formula.of_list(found)) for slot, found in described["formulas"]]
        self.after = {name: Formula.of_list(found) for name, found in described["after"].items()}

    def now(self):
        """The numbers of the next call."""
        for slot, formula in self.formulas:
            self.numbers[slot] = formula.evaluate(self.held)
        return self.numbers

    def step(self):
        """A call has ended."""
        before = dict(self.held)
        self.held |= {name: before[name] + n for name, n in self.steps.items()}
        self.held |= {name: formula.evaluate(before) for name, formula in self.after.items()}


class GpuFunction:
    """`f(*arguments)` of NumPy arrays gives its result, or a tuple of results; one without dimensions is a number.

    Arrays are converted as NativeFunction does it. Calls of one object must not overlap.
    """

    def __init__(self, device, module, described, content, state, held):
        self.name, self._device, self._module = described["name"], device, module
        parameters = described["parameters"]
        self._arguments = [(k, Argument(p)) for k, p in enumerate(parameters) if "argument" in p["role"]]
        self._results = [
            (k, tuple(p["shape"]), np.dtype(p["dtype"])) for k, p in enumerate(parameters) if p["role"] == "result"
        ]
        self._counted = Counted(described, held)
        with device:
            self._stream = device.stream()
            self._given = {
                k: device.allocate(p["elements"] * np.dtype(p["dtype"]).itemsize)
                for k, p in enumerate(parameters)
                if p["role"] != "state"
            }
            areas = {"arena": device.allocate(described["arena_bytes"])}
            areas["scratch"] = device.allocate(described["scratch_bytes"])
            areas["numbers"] = self._filled(self._counted.numbers)
            arrays = [self._array(a, content, state) for a in described["arrays"]]
            self._kept = areas, arrays
            inputs = described["n_inputs"]
            self._failed = areas["failed"] = device.allocate(1) if described["checks"] else None
            areas |= {"input": arrays[:inputs], "output": arrays[inputs:]}
            self._launches = [
                (
                    module.kernel(launch["kernel"]),
                    launch["blocks"],
                    launch["threads"],
                    [_address(areas, kind, index) for kind, index in launch["operands"]],
                )
                for launch in described["launches"]
            ]

    def _array(self, described, content, state):
        if described["kind"] == "parameter":
            return self._given[described["index"]]
        if described["kind"] == "state":
            return state[described["name"]]
        if described["kind"] == "data":
            return self._filled(content[described["name"]])
        return self._device.allocate(described["bytes"])

    def _filled(self, array):
        memory = self._device.allocate(array.nbytes)
        self._stream.write(memory, array)
        self._stream.synchronize()
        return memory

    def __call__(self, *arguments):
        if len(arguments) != len(self._arguments):
            expected = ", ".join(str(a) for _, a in self._arguments)
            raise TypeError(f"{self.name} takes ({expected}), but {len(arguments)} arguments were given")
        arrays = [wanted.array_of(x, {}) for (_, wanted), x in zip(self._arguments, arguments)]
        results = [np.empty(shape, dtype) for _, shape, dtype in self._results]
        stream = self._stream
        with self._device:
            for (k, _), x in zip(self._arguments, arrays):
                stream.write(self._given[k], x)
            failed = np.zeros(1, np.uint8)
            if self._failed:
                stream.write(self._failed, failed)
            if self._counted.formulas:
                stream.write(self._kept[0]["numbers"], self._counted.now())
            for launch in self._launches:
                stream.launch(*launch)
            if self._failed:
                stream.read(failed, self._failed)
            changed = [(k, x) for (k, wanted), x in zip(self._arguments, arrays) if wanted.changed]
            for k, x in [*changed, *((k, x) for (k, *_), x in zip(self._results, results))]:
                stream.read(x, self._given[k])
            stream.synchronize()
        if failed[0]:
            raise IndexError(f"{self.name}: an index is out of range; nothing was changed")
        self._counted.step()
        found = [x.item() if x.ndim == 0 else x for x in results]
        return found[0] if len(found) == 1 else tuple(found)

    def __repr__(self):
        return f"<weft GPU function {self.name}({', '.join(str(a) for _, a in self._arguments)})>"


def _address(areas, kind, index):
    if kind in ("input", "output"):
        return areas[kind][index].address
    return areas[kind].address + (8 * index if kind == "numbers" else index)


class GpuFunctions:
    """The functions of one PTX text, as attributes: `value`, `value_and_grad` and `hvp`, as far as they were asked for;
    calling it calls `value`. `device` is where they run."""

    def __init__(self, device, text, description, content):
        self.name, self.device, self._state = description["name"], device, {}
        self._counted = description["counted"]
        with device:
            module, stream = device.load(text), device.stream()
            for name in description["state"]:
                memory = self._state[name] = device.allocate(content[name].nbytes)
                stream.write(memory, content[name])
            stream.synchronize()
        self._fields = {name: (tuple(f["shape"]), np.dtype(f["dtype"])) for name, f in description["state"].items()}
        for described in description["functions"]:
            kind = described["name"][len(self.name) :].lstrip("_") or "value"
            setattr(self, kind, GpuFunction(device, module, described, content, self._state, self._counted))

    def __call__(self, *arguments):
        return self.value(*arguments)

    @property
    def state(self):
        """Name -> array: what the function changes, as it is now on the GPU, and what its optimizers have counted."""
        found = {name: np.array(x) for name, x in self._counted.items()}
        with self.device:
            stream = self.device.stream()
            for name, (shape, dtype) in self._fields.items():
                found[name] = np.empty(shape, dtype)
                stream.read(found[name], self._state[name])
            stream.synchronize()
        return found

    def __repr__(self):
        kinds = [k for k in ("value", "value_and_grad", "hvp") if hasattr(self, k)]
        return f"<weft GPU functions {self.name}: {', '.join(kinds)}>"


def load_ptx(path, *, device=0):
    """What `weft.export_ptx(..., path)` has written, to be called from Python on a GPU: a GpuFunctions.

    device: the number of the GPU, or a device such as "cuda:1". Its driver compiles the PTX text. Raises OSError if a
    file is missing, ValueError if the device is none of NVIDIA's, RuntimeError if there is no driver of theirs, no such
    GPU, or one that is older than what the text was written for.
    """
    import json

    wanted = its_device(device)
    if wanted.type != "cuda":
        raise ValueError(f"load_ptx: device must be a number or 'cuda', got {str(wanted)!r}")
    path = Path(path)
    description = json.loads(path.with_name(f"{path.name}.json").read_text(encoding="utf-8"))
    text = path.with_name(f"{path.name}.ptx").read_text(encoding="utf-8")
    content = {}
    if description["has_arrays"]:
        with np.load(path.with_name(f"{path.name}.npz")) as arrays:
            content = {name: arrays[name] for name in arrays.files}
    return loaded(cuda.Device(cuda.driver(), wanted.index or 0), text, description, content)


def loaded(device, text, description, content):
    """The functions of a PTX text on a Device."""
    wanted = tuple(map(int, (description["architecture"][3:-1], description["architecture"][-1])))
    if device.capability < wanted:
        raise RuntimeError(
            f"{description['name']} was written for {description['architecture']}, and {device.name} has compute "
            f"capability {'.'.join(map(str, device.capability))}"
        )
    return GpuFunctions(device, text, description, content)
