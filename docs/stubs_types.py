"""What the stubs say of parameters and results: types by name, and the functions whose result depends on how they are
called. docs/stubs.py and docs/stubs_of_modules.py write them out.

Names such as `int` and `float` are dtypes in weft and methods of Tensor: types are written with their module.
"""

import inspect

BOOL, INT, STR, FLOAT = "builtins.bool", "builtins.int", "builtins.str", "builtins.float"
TENSORS = "builtins.tuple[Tensor, ...]"

# Of every stub: `up` leads to weft itself. A scalar is what an op takes for a number, lists of sizes may be tuples.
ALIASES = """
_Array = _np.ndarray[builtins.tuple[Any, ...], _np.dtype[Any]]
_Number = builtins.complex | builtins.float | builtins.int | builtins.bool
_Scalar = builtins.float | Tensor
_TensorLike = Tensor | _Number
_Sizes = builtins.int | Sequence[builtins.int]
_Dims = builtins.int | Sequence[builtins.int] | None
"""

# Everywhere.
PARAMETERS = {
    **dict.fromkeys(str.split("keepdim keepdims requires_grad descending stable"), BOOL),
    "dtype": "_DType | None",
    "device": "_Device | builtins.str | builtins.int | None",
    "generator": "_Generator | None",
    "reduction": STR,
    "path": "builtins.str | PathLike[builtins.str]",
}
# In functions of tensors, and in methods of tensors.
OF_FUNCTIONS = {
    **dict.fromkeys(str.split("other exponent"), "_TensorLike"),
    **dict.fromkeys(
        str.split(
            "input tensor mask target weight mat1 mat2 batch1 batch2 vec vec1 vec2 tensor1 tensor2 input1 input2 x1 x2 "
            "anchor positive negative running_mean running_var pos_weight condition"
        ),
        "Tensor",
    ),
    **dict.fromkeys(str.split("dim dims axis"), "_Dims"),
    **dict.fromkeys(str.split("kernel_size stride dilation output_padding"), "_Sizes"),
    "padding": "_Sizes | builtins.str",
    "groups": INT,
    "chunks": INT,
    "tensors": "Sequence[Tensor]",
}
# In constructors and methods of layers.
OF_LAYERS = {
    **dict.fromkeys(
        str.split(
            "in_features out_features in1_features in2_features num_embeddings embedding_dim input_size hidden_size "
            "num_layers in_channels out_channels num_features num_groups num_channels groups embed_dim num_heads "
            "d_model nhead num_encoder_layers num_decoder_layers dim_feedforward"
        ),
        INT,
    ),
    **dict.fromkeys(str.split("kernel_size stride dilation output_padding"), "_Sizes"),
    **dict.fromkeys(str.split("weight pos_weight"), "Tensor"),
    **dict.fromkeys(str.split("name target"), STR),
    "padding": "_Sizes | builtins.str",
    "fn": "Callable[[Module], Any]",
    "hook": "Callable[..., Any]",
}
# What is given to the hooks of layers: with keywords or without.
_THREE, _FOUR = ("Callable[[" + ", ".join(["Any"] * n) + "], Any]" for n in (3, 4))
HOOKS = {
    "register_forward_hook": {"hook": f"{_THREE} | {_FOUR}"},
    "register_forward_pre_hook": {"hook": f"Callable[[Any, Any], Any] | {_THREE}"},
    "register_full_backward_pre_hook": {"hook": "Callable[[Any, Any], Any]"},
    **dict.fromkeys(str.split("register_backward_hook register_full_backward_hook"), {"hook": _THREE}),
    **dict.fromkeys(str.split("register_hook register_post_accumulate_grad_hook"), {"hook": "Callable[[Any], Any]"}),
}
# In weft.optim and below it.
OF_OPTIMIZERS = {
    **dict.fromkeys(str.split("step_size T_max"), INT),
    "params": "_Parameters",
    "optimizer": "Optimizer",
    "closure": "Callable[[], Any] | None",
}
# Parameters of these names are a number as well where a word stands for them if nothing is given.
_NUMBERS_OR_WORDS = {"ord", "p"}
# Parameters of these names are a tensor where nothing, or None, stands for them, and else what the default tells.
_TENSORS_OR_SETTINGS = {"bias"}


def type_of(parameter, more):
    """The type of a parameter, from its name and its default. more: what names mean there, besides PARAMETERS."""
    name, default = parameter.name, parameter.default
    if more and name in _TENSORS_OR_SETTINGS and not isinstance(default, bool):
        return "Tensor | None"
    if name in _NUMBERS_OR_WORDS and isinstance(default, str):
        return f"{FLOAT} | {STR} | None"
    found = more.get(name) or PARAMETERS.get(name)
    if found is None or (isinstance(default, bool) and found != BOOL):
        found = {bool: BOOL, str: STR, float: "_Scalar"}.get(type(default), "Any")
    is_open = found in ("Any", "_Dims") or "None" in found
    return found if default is not None or is_open else f"{found} | None"


def parameters_of(function, is_method, more):
    """The text of a function's parameters (of a class: of its constructor's); anything if they are not known."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "self, *args: Any, **kwargs: Any" if is_method else "*args: Any, **kwargs: Any"
    texts, is_starred, is_by_position = ["self"] if is_method else [], False, False
    for parameter in found[1:] if is_method and not inspect.isclass(function) else found:
        if is_by_position and parameter.kind is not parameter.POSITIONAL_ONLY:
            texts.append("/")
        is_by_position = parameter.kind is parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.KEYWORD_ONLY and not is_starred:
            texts.append("*")
        is_starred |= parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
        texts.append(_parameter(parameter, more))
    return ", ".join(texts)


def _parameter(parameter, more):
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if star:
        return f"{star}{parameter.name}: Any"
    return f"{parameter.name}: {type_of(parameter, more)}" + ("" if parameter.default is parameter.empty else " = ...")


# --- functions whose result depends on how they are called ------------------------------------------------------------
RESULT_CLASSES = {
    "_ValuesAndIndices": "values indices",
    "_Extremes": "min max",
}
_KEEP = f"keepdim: {BOOL} = ..."
_ALONG = f"dim: {INT}, {_KEEP}, *, out: Any = ..."
_ALONG_AXIS = f"*, axis: {INT}, keepdims: {BOOL} = ..."
_EXTREME = [
    ("", "Tensor"),
    ("other: Tensor, *, out: Any = ...", "Tensor"),
    (_ALONG, "_ValuesAndIndices"),
    (_ALONG_AXIS, "_ValuesAndIndices"),
]
_PART = [("", "Tensor"), (_ALONG, "_ValuesAndIndices")]
# name -> (parameters after the tensor, result); of functions and of methods.
OVERLOADS = {
    "max": _EXTREME,
    "min": _EXTREME,
    "median": _PART,
    "nanmedian": _PART,
    "nonzero": [
        ("*, out: Any = ..., as_tuple: Literal[False] = ...", "Tensor"),
        ("*, as_tuple: Literal[True]", TENSORS),
    ],
    "unique": [
        (f"sorted: {BOOL} = ..., *, dim: {INT} | None = ...", "Tensor"),
        (
            f"sorted: {BOOL} = ..., return_inverse: {BOOL} = ..., return_counts: {BOOL} = ..., dim: {INT} | None = ...",
            "Any",
        ),
    ],
}
METHOD_OVERLOADS = {
    **OVERLOADS,
    "size": [("dim: None = ...", "_Size"), (f"dim: {INT}", INT)],
    "stride": [("dim: None = ...", f"builtins.tuple[{INT}, ...]"), (f"dim: {INT}", INT)],
    "type": [
        ("dtype: None = ...", STR),
        ("dtype: Any, non_blocking: builtins.bool = ...", "Tensor"),
    ],
    "where": [("condition: Tensor, other: _TensorLike", "Tensor")],
}
FUNCTION_OVERLOADS = {
    **{
        name: [(f"input: Tensor, {rest}".removesuffix(", "), result) for rest, result in forms]
        for name, forms in OVERLOADS.items()
    },  # fmt: skip
    "where": [
        ("condition: Tensor", TENSORS),
        ("condition: Tensor, input: _TensorLike, other: _TensorLike, *, out: Any = ...", "Tensor"),
    ],
}


def overloaded(name, forms, is_method):
    """The lines of a function that has several forms; of one that has one, that."""
    for parameters, result in forms:
        if len(forms) > 1:
            yield "@overload"
        inside = ", ".join(part for part in ("self" if is_method else "", parameters) if part)
        yield f"def {name}({inside}) -> {result}: ..."


def result_classes():
    for name, fields in RESULT_CLASSES.items():
        yield from ("", f"class {name}(NamedTuple):", *(f"    {field}: Tensor" for field in fields.split()))
