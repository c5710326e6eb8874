"""Write frontend/pytorch_kinds.txt: which kinds of arguments PyTorch's functions take, by which weft refuses others.

    python docs/pytorch_kinds.py          needs PyTorch itself

One line per signature: the function's name, then `parameter:kind`. A kind that ends in `?` may be None, one with `[]`
is a list (`ints` takes a number too), `=` has a default, and what follows `*` has to be given by name. A line that
begins with `~` is of a function that PyTorch writes in Python: its annotations are not checked there, and some say too
little, so that only tensors and bools are refused by them.
"""

import importlib
import inspect
import re
import warnings
from pathlib import Path

import weft

TARGET = Path(__file__).parent.parent / "frontend" / "pytorch_kinds.txt"
# Where a name of a module stands among the operators.
PREFIXES = {"": ("",), "linalg": ("linalg_",), "special": ("special_",), "fft": ("fft_",), "nn.functional": ("",)}
_KINDS = {
    "Tensor": "Tensor", "Tensor[]": "Tensor[]", "Scalar": "number", "int": "int", "SymInt": "int", "bool": "bool",
    "float": "float", "str": "str", "ScalarType": "dtype", "Generator": "Generator", "Layout": "layout",
    "Device": "device", "MemoryFormat": "memory_format",
}  # fmt: skip
# What PyTorch takes although it is declared as another kind: numbers of a list may be None there, or a list a tensor.
_DECLARED_TOO_NARROW = {
    "nn.functional.adaptive_max_pool2d": ["output_size"],
    "nn.functional.adaptive_max_pool3d": ["output_size"],
    "nn.functional.ctc_loss": ["input_lengths", "target_lengths"],
}
# Functions in Python that hand these arguments, as they are given, to operators, which check their kinds.
_HANDED_ON = {
    "unique": "input:Tensor sorted:bool= return_inverse:bool= return_counts:bool= dim:int?=",
    "nn.functional.kl_div": (
        "input:Tensor target:Tensor size_average:any?= reduce:any?= reduction:any= log_target:bool="
    ),
    "nn.functional.poisson_nll_loss": (
        "input:Tensor target:Tensor log_input:bool= full:bool= size_average:any?= "
        "eps:float= reduce:any?= reduction:any="
    ),
}
# Functions that take their numbers before the factors too, which is PyTorch's older order.
_NUMBERS_FIRST = re.compile(r"(add(mm|mv|r|bmm)|baddbmm)_? input:Tensor (\w+:Tensor \w+:Tensor) \* .*")
_OLDER_ORDERS = [
    "beta:number input:Tensor {}", "beta:number input:Tensor alpha:number {}",
    "input:Tensor beta:number {}", "input:Tensor beta:number alpha:number {}",
]  # fmt: skip
_ANNOTATED = {"Tensor": "Tensor", "bool": "bool", "str": "str", "float": "float", "int": "ints"}


def kind_of(text):
    """The word for a type of an operator's schema."""
    optional = "?" if text.endswith("?") else ""
    plain = re.sub(r"\(.*?\)", "", text.removesuffix("?"))
    if re.fullmatch(r"(Sym)?[Ii]nt\[\d*\]", plain):
        return ("ints" if "[]" not in plain else "int[]") + optional
    return _KINDS.get(plain, "any") + optional


def of_schema(name, schema):
    """The line of one operator; None if it is no function on tensors of the CPU that a user calls."""
    inside = str(schema).partition("(")[2].rpartition(" ->")[0][:-1]
    if "Dimname" in inside or re.search(r"\(\w!( -> \*)?\) (?!self)", inside):
        return None
    words = [name]
    for part in filter(None, re.split(r", (?![^\[]*\])", inside)):
        if part == "*":
            words.append("*")
            continue
        declared, default, _ = part.partition("=")
        kind, _, parameter = declared.rpartition(" ")
        words.append(f"{'input' if parameter == 'self' else parameter}:{kind_of(kind)}{default}")
    return " ".join(words)


def of_python(name, function):
    """The line of a function that PyTorch writes in Python."""
    words = [f"~{name}"]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return None
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        text = getattr(parameter.annotation, "__name__", None) if isinstance(parameter.annotation, type) else None
        text = re.sub(r"(typing\.)?Optional\[(.*)\]", r"\2 | None", text or str(parameter.annotation))
        plain, optional = text.replace("torch.", "").partition(" | None")[:2]
        kind = _ANNOTATED.get(plain.replace("Tensor.Tensor", "Tensor"), "any") if parameter.name != "dtype" else "any"
        default = "" if parameter.default is parameter.empty else "="
        words.append(f"{parameter.name}:{kind}{'?' if optional or parameter.default is None else ''}{default}")
    return " ".join(words)


def operators():
    """{name: schemas} of all that PyTorch dispatches."""
    torch = importlib.import_module("torch")
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            try:
                torch._C._dispatch_find_schema_or_throw(schema.name, schema.overload_name)
            except RuntimeError:
                continue
            found.setdefault(schema.name[6:], []).append(schema)
    return found


def lines():
    torch, known = importlib.import_module("torch"), operators()
    for path, prefixes in PREFIXES.items():
        home = importlib.import_module(f"torch.{path}".rstrip("."))
        names = {n for n in dir(home) if callable(getattr(home, n)) and not isinstance(getattr(home, n), type)}
        if not path:
            names |= set(dir(torch.Tensor))
        ours = weft.nn.functional if path == "nn.functional" else getattr(weft, path) if path else weft
        for name in sorted(
            n for n in names if n[0] != "_" and (hasattr(ours, n) or not path and hasattr(weft.Tensor, n))
        ):
            function, full = getattr(home, name, None), f"{path}.{name}".lstrip(".")
            if full in _HANDED_ON:
                made = [f"{full} {_HANDED_ON[full]}"]
            elif inspect.isfunction(function) and "_jit_internal" not in function.__code__.co_filename:
                made = [of_python(full, function)]
            else:  # an operator, or one of two that a flag chooses
                made = [of_schema(full, s) for prefix in prefixes for s in known.get(prefix + name, ())]
            for line in dict.fromkeys(filter(None, made)):
                for parameter in _DECLARED_TOO_NARROW.get(full, ()):
                    line = re.sub(rf" {parameter}:\w+", f" {parameter}:any", line)
                yield line
                numbers_first = _NUMBERS_FIRST.fullmatch(line)
                for order in _OLDER_ORDERS if numbers_first else ():
                    yield f"{full} {order.format(numbers_first[3])}"


def main():
    warnings.simplefilter("ignore")
    TARGET.write_text("\n".join(lines()) + "\n")


if __name__ == "__main__":
    main()
