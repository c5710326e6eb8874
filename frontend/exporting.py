"""`weft.export`: a function as an object file, a C header and a description of both, for programs without Python.

What a call of the function computes is one program (one for its value, one with gradients, one for products with the
Hessian), compiled again for one thread and for the processor that is asked for. Arrays that the function finds outside
its arguments are data of the object; those that it changes are fields of a struct, which the caller provides.
"""

from dataclasses import dataclass
from pathlib import Path

from . import c_header, c_names
from .runtime.programs.exported import loaded
from .runtime.state.modes import frame_hidden
from .runtime.state.tracebacks import shortening
from .version import weft_version


@dataclass(frozen=True, slots=True)
class Exported:
    """The files that were written."""

    object: Path
    header: Path
    description: Path


@shortening
def export(
    function,
    example_args,
    path,
    *,
    gradients=False,
    hvp=False,
    target="native",
    dynamic_shapes=None,
    threads=False,
    learning_rates=False,
):
    """Write `path`.o, `path`.h and `path`.json: the function as C functions that need no runtime.

    function: whatever weft.compile takes whole; it must not read values in the middle, nor draw random numbers.
    example_args: a tuple. Tensors and arrays give shape and type of the C functions' arguments; what else there is
    (numbers, flags) is what it is here for good. A dict or a tuple of arrays becomes an argument for each array in it,
    called `params_weight` after the key: weft.func.functional_call has its parameters as arguments that way. What is
    returned is `result`, `result0` and so on of a tuple, or `result_loss` after the key.
    path: without an ending; its last part is the name of the C function.
    gradients: also `<name>_value_and_grad`, for all floating arguments; the function then returns one number, as does
    hvp: also `<name>_hvp`, the product of the Hessian with a vector for each floating argument.
    target: "native", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4" or "aarch64" (for Linux).
    dynamic_shapes: which axes have an extent that the caller tells, such as {"x": {0: "n"}, "y": {0: "n", 1: "m"}}; or
    a tuple of such dicts, one for each argument. Extents, up to four, are then the first parameters of the C functions,
    in the order in which arguments have them; what has one name has one length, of 2 or more in the examples. The
    function is also called with other extents, and must compute the same for all.
    threads: also `<name>_team` for each function, which several threads of the caller run together.
    learning_rates: those of the optimizers are fields too, `double *<optimizer>_lr`, which the caller may change.

    Tensors that the function reads and were not given are data of the object. Those that it changes in place (the
    parameters of a training step, the buffers of its optimizer) are fields of `<name>_state`, and `<name>_initial_...`
    has what they hold now. Steps that optimizers count, as Adam does, are fields `int64_t *<optimizer>_step`, and the
    numbers that some keep beside it, such as NAdam's product of momenta, fields `double *<optimizer>_mu_product`. The
    function is called three times to learn this, with all it does to them. Results have the bits of weft's; one object
    has no global state, and its functions may run in several threads at once.
    Returns the paths as an Exported. Raises ValueError or RuntimeError, and writes nothing, if that cannot be done.

    >>> import tempfile, numpy as np
    >>> files = export(lambda x: (x * x).sum(), (np.zeros(2),), tempfile.mkdtemp() + "/energy", gradients=True)
    >>> files.header.read_text().splitlines()[-5]
    'int energy_value_and_grad(const double *x, double *value, double *grad_x, void *scratch);'
    """
    path = Path(path)
    name = path.name
    if not c_names.is_function_name(name):
        without = f"; {path.stem!r} could, without its ending" if c_names.is_function_name(path.stem) else ""
        raise ValueError(
            f"export: the last part of the path names a C function, and {name!r} cannot be one's name{without}"
        )
    functions, state, code = _made(
        name, function, example_args, gradients, hvp, target, dynamic_shapes, threads, learning_rates
    )
    import json

    files = Exported(*[path.with_name(f"{name}.{ending}") for ending in ("o", "h", "json")])
    header = c_header.text_of(name, functions, state)
    files.object.write_bytes(code)
    files.header.write_text(header, encoding="utf-8")
    files.description.write_text(json.dumps(_description(name, target, functions), indent=1) + "\n", encoding="utf-8")
    return files


@shortening
def aot(function, example_args, *, gradients=False, hvp=False, dynamic_shapes=None, learning_rates=False):
    """The same as `export`, kept in memory: native functions of NumPy arrays, and their addresses for other libraries.

    Returns a NativeFunctions, whose `value`, `value_and_grad` and `hvp` can be called. Arguments and errors are those
    of `export`. A call costs one or two microseconds more than the program itself, has no history and no hooks, and
    takes one thread; `weft.value_and_grad` is for the rest.

    >>> import numpy as np
    >>> energy = aot(lambda x: (x * x).sum(), (np.zeros(2),), gradients=True)
    >>> energy.value_and_grad(np.array([3.0, 4.0]))
    (25.0, array([6., 8.]))
    """
    name = getattr(function, "__name__", "")
    name = name if c_names.is_function_name(name) else "function"
    functions, _, code = _made(
        name, function, example_args, gradients, hvp, "native", dynamic_shapes, with_rates=learning_rates
    )
    return loaded(code, _description(name, "native", functions))


def _made(name, function, example_args, gradients, hvp, target, dynamic_shapes, threads=False, with_rates=False):
    """(the Functions, name -> array of the state's content, object code)."""
    from .c_functions import functions_of, object_of  # not needed where nothing is exported

    if not callable(function):
        raise TypeError(f"export: expected a function or a module, got {type(function).__name__}")
    options = target, dynamic_shapes, threads, with_rates
    with frame_hidden():  # in the middle of a compiled call these are calls of their own
        functions, state = functions_of(name, function, example_args, gradients, hvp, *options)
        return functions, state, object_of(functions, state, target)


# --- the description --------------------------------------------------------------------------------------------------
def _description(name, target, functions):
    return {
        "weft": weft_version,
        "name": name,
        "target": target,
        "functions": [
            {
                "name": f.entry.name,
                "scratch_bytes": f.entry.scratch_bytes,
                "extents": list(f.entry.extents),
                **({"team": f.team.name} if f.team else {}),
                "parameters": [_of_parameter(p) for p in f.parameters],
            }
            for f in functions
        ],
    }


def _of_parameter(parameter):
    if parameter.role == "state":
        return {"name": parameter.name, "role": "state", "fields": [_of_array(n, a) for n, a in parameter.fields]}
    return {"role": parameter.role, **_of_array(parameter.name, parameter.array)}


def _of_array(name, array):
    return {"name": name, "shape": list(array.shape), "dtype": c_header.numpy_type(array), "elements": array.size}
