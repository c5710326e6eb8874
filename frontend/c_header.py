"""The C header of an exported function."""

from .compiler.dtypes import bfloat16, from_numpy

_TYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}

_PREFACE = """/* {name}: made by weft, needs no runtime. Link {name}.o with libc and libm.

   Arrays are stored row after row, without gaps; a number is an array of one element. They need no more alignment
   than their elements. Results must not overlap with arguments. `scratch` is memory of the function's own, as many
   bytes as {upper}_..._SCRATCH says, aligned to 64; its content does not matter before or after, and each thread needs
   its own. Functions return 0; or 1 if an index was out of range, a matrix could not be factorized or a distribution
   cannot have such parameters or values, and then nothing but results has been written.{more} */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif
"""

_OPEN = """
   {extents}: known at run time. `..._scratch({extents})` says how many bytes of scratch memory are needed, or -1 for
   what is not served; functions return 2 for that, and nothing has been written."""

_TEAM = """
   `..._team` is called by each of `size` threads, with its rank of 0 to size - 1 and all else the same; all return what
   the function returns. Their scratch memory has as many bytes as `..._team_scratch` says, is aligned to 64, and is
   zeros before the first call; one team uses it at a time."""

_END = """
#ifdef __cplusplus
}}
#endif
#endif /* {upper}_H */
"""


def text_of(name, functions, state):
    """The header. `state`: name of initial content -> array."""
    extents = ", ".join(functions[0].entry.extents)
    more = _OPEN.format(extents=extents) if extents else ""
    more += _TEAM if functions[0].team else ""
    parts = [_PREFACE.format(name=name, upper=name.upper(), more=more)]
    for function in functions:
        for parameter in function.parameters:
            if parameter.role == "state":
                parts += [*_struct(function.entry.name, parameter)]
    if state:
        parts.append("/* What the fields held when this was made. */")
        parts += [f"extern const {c_type(a)} {key}[{max(a.size, 1)}];" for key, a in state.items()]
        parts.append("")
    for function in functions:
        parts += _declaration(function)
    parts.append(_END.format(upper=name.upper()))
    return "\n".join(parts)


def c_type(array):
    name = from_numpy(array.dtype).name
    if name not in _TYPES:
        raise ValueError(f"export: an array of {name} has no type in C; use one of {', '.join(_TYPES)}")
    return _TYPES[name]


def numpy_type(array):
    """The name of its type, by which whoever loads the function makes arrays."""
    if from_numpy(array.dtype) is bfloat16:
        raise ValueError("export: NumPy, which calls the function, has no bfloat16: take float32 and convert it inside")
    return array.dtype.name


def _struct(name, parameter):
    yield "/* What the function changes; the caller provides the memory. */"
    yield "typedef struct {"
    for field, array in parameter.fields:
        yield f"    {c_type(array)} *{field}; /* {_shape(array)} */"
    yield f"}} {name}_state;"
    yield ""


def _declaration(function):
    name, n_bytes = function.entry.name, function.entry.scratch_bytes
    extents = [f"int64_t {extent}" for extent in function.entry.extents]
    parameters, shapes = [*extents], []
    for p in function.parameters:
        if p.role == "state":
            parameters.append(f"const {name}_state *state")
            continue
        const = "const " if p.role == "argument" else ""
        parameters.append(f"{const}{c_type(p.array)} *{p.name}")
        shapes.append(f"{p.name} {_shape(p.array)}")
    scratch = f"#define {name.upper()}_SCRATCH {n_bytes}"
    return [*_forms(function, name, extents, parameters, shapes, scratch)]


def _forms(function, name, extents, parameters, shapes, scratch):
    """Declarations for one thread, and for several."""
    yield from [
        f"/* {', '.join(shapes)} */",
        f"int64_t {name}_scratch({', '.join(extents)});" if extents else scratch,
        f"int {name}({', '.join([*parameters, 'void *scratch'])});",
    ]
    if function.team:
        yield f"int64_t {name}_team_scratch({', '.join([*extents, 'int64_t size'])});"
        yield f"int {name}_team({', '.join([*parameters, 'void *scratch', 'int64_t rank', 'int64_t size'])});"


def _shape(array):
    return "".join(f"[{d}]" for d in array.shape).replace("//", "/") or "a number"
