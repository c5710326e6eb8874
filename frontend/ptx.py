"""`weft.export_ptx`: a function as kernels for a GPU of NVIDIA's, and a description of how they are launched.

The programs are those of `weft.export`, compiled by compiler/gpu.py; runtime/programs/on_gpu.py runs them.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from . import c_names
from .compiler.export_entry import Data, Field, Given
from .runtime.code.jit import PTX_ARCHITECTURES
from .version import weft_version


@dataclass(frozen=True, slots=True)
class ExportedPtx:
    """The files that were written. `arrays` is None where there are none."""

    ptx: Path
    description: Path
    arrays: Path | None


def export_ptx(function, example_args, path, *, gradients=False, hvp=False, architecture="sm_80"):
    """Write `path`.ptx, `path`.json and, where the function has arrays of its own, `path`.npz: kernels for a GPU.

    function, example_args, gradients and hvp are as for `weft.export`; extents are those of the examples. path: without
    an ending; its last part begins the kernels' names.
    architecture: "sm_80" or "sm_90": the oldest GPU that runs the kernels, which PTX text names so; newer ones do too.

    The text holds one kernel for each of the program's products and loop nests: elementwise ops, broadcasts,
    reductions over rows, columns or everything, and chains of them such as softmax and layer norm, with their
    gradients. The description says in which order they are launched, on what memory, and with how many threads;
    `load_ptx` does that. Additions are made in the order in which weft makes them on a CPU, products and sums are
    not contracted, and nothing is approximate, so results are to have the same bits but for those of NaN.

    Returns the paths as an ExportedPtx. Raises NotImplementedError, with the op and the line of the function, for what
    has no such kernel: convolutions, attention, linear algebra, sorting, scans along rows, and
    remainders of floats. Raises ValueError or RuntimeError where `weft.export` does. Nothing is written then.

    >>> import tempfile, numpy as np
    >>> files = export_ptx(lambda x: (x * x).sum(), (np.zeros(2),), tempfile.mkdtemp() + "/energy")
    >>> files.ptx.read_text().splitlines()[5]
    '.target sm_80'
    """
    if architecture not in PTX_ARCHITECTURES:
        raise ValueError(f"export_ptx: architecture={architecture!r}: must be one of {', '.join(PTX_ARCHITECTURES)}")
    path = Path(path)
    name = path.name
    if not c_names.is_function_name(name):
        raise ValueError(f"export_ptx: the last part of the path begins names of kernels, and {name!r} cannot")
    from .gpu_programs import made  # not needed where nothing is exported

    text, programs = made(name, function, example_args, gradients, hvp, architecture)
    import json

    content = {}
    for p in programs:
        content |= _on_gpu(p)
    functions = [_described(p, content) for p in programs]
    state = {key: _of_array(a) for p in programs for key, a in _on_gpu(p).items()}
    counted = {key: a.item() for p in programs for key, a in p.known.followed.fields.items()}
    description = {
        "weft": weft_version,
        "name": name,
        "target": "ptx",
        "architecture": architecture,
        "has_arrays": bool(content),
        "state": state,
        "counted": counted,
        "functions": functions,
    }
    files = ExportedPtx(*[path.with_name(f"{name}.{e}") for e in ("ptx", "json")], None)
    files.ptx.write_text(text, encoding="utf-8")
    files.description.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    if not content:
        return files
    files = ExportedPtx(files.ptx, files.description, path.with_name(f"{name}.npz"))
    np.savez(files.arrays, **content)
    return files


def _on_gpu(program):
    """name -> array of what the function changes there; what optimizers count stays with the caller."""
    known = program.known
    return {key: a for key, a in known.state.items() if key not in known.followed.fields}


# --- the description --------------------------------------------------------------------------------------------------
def _described(program, content):
    """A function for the description; the arrays that it holds come into `content`."""
    known, gpu = program.known, program.gpu
    return {
        "name": program.name,
        "arena_bytes": gpu.arena_bytes,
        "scratch_bytes": gpu.scratch_bytes,
        "numbers": program.numbers.hex(),
        "formulas": [[slot, formula.as_list()] for slot, formula in program.formulas],
        "steps": known.followed.steps,
        "after": {key: formula.as_list() for key, formula in known.followed.after.items()},
        "checks": gpu.checks,
        "n_inputs": len(known.graph.inputs()),
        "arrays": [_place(a, known, content) for a in known.arrays],
        "launches": [
            {
                "kernel": launch.kernel,
                "blocks": launch.blocks,
                "threads": launch.threads,
                "operands": [[o.kind, o.index] for o in launch.operands],
                "ops": list(launch.ops),
            }
            for launch in gpu.launches
        ],
        "parameters": [
            {"name": p.name, "role": p.role, **(_of_array(p.array) if p.array is not None else {})}
            for p in known.parameters
        ],
    }


def _place(array, known, content):
    if isinstance(array, Given):
        return {"kind": "parameter", "index": array.parameter}
    if isinstance(array, Field):
        return {"kind": "state", "name": known.layout.state[array.place]}
    if isinstance(array, Data):
        # The value and its gradients read the same arrays.
        key = f"data {sha256(array.bytes).hexdigest()}"
        content[key] = np.frombuffer(array.bytes, np.uint8)
        return {"kind": "data", "name": key}
    return {"kind": "own", "bytes": array.n_bytes}


def _of_array(array):
    return {"shape": list(array.shape), "dtype": array.dtype.name, "elements": array.size}
