"""Write frontend/pytorch_names.txt: the public names of PyTorch, by which weft says of a name that it is missing.

    python docs/pytorch_names.py          needs PyTorch itself

One line per module or class: its name, then its public names. A name that ends in `=` takes the keyword `out`.
"""

import importlib
import inspect
import pkgutil
import re
import warnings
from pathlib import Path

TARGET = Path(__file__).parent.parent / "frontend" / "pytorch_names.txt"
MODULES = str.split("""
    torch torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.nn.utils.rnn
    torch.nn.utils.parametrizations torch.nn.utils.parametrize torch.nn.parameter torch.optim
    torch.optim.lr_scheduler torch.optim.swa_utils torch.linalg torch.special torch.fft torch.distributions
    torch.distributions.constraints torch.autograd torch.autograd.functional torch.autograd.graph
    torch.autograd.forward_ad torch.autograd.profiler torch.func torch.utils torch.utils.data torch.utils.checkpoint
    torch.distributed torch.cuda torch.amp torch.jit torch.random torch.testing torch.backends torch.compiler
    torch.accelerator torch.mps torch.xpu torch.cpu torch.sparse torch.profiler torch.hub torch.onnx torch._dynamo
    torch._inductor torch.nn.attention torch.nn.attention.flex_attention torch.nn.attention.bias torch.serialization
    torch.nn.modules.module torch.backends.cuda torch.backends.cudnn torch.backends.mps
    torch.backends.cpu torch.functional torch.fx
""")
CLASSES = ["torch.Tensor", "torch.nn.Module", "torch.optim.Optimizer"]
# Parts of PyTorch whose modules no program for one CPU imports.
APART = re.compile(
    r"(.*\.)?(ao|distributed|fx|onnx|package|quantization|quantized|quantizable|qat|intrinsic|nested|export|contrib|masked"
    r"|signal|datapipes|nativert|numa|mobile|backend_registration|cpp_backtrace|file_baton|hipify|viz|thnn|xeon|library"
    r"|kleidiai|cusparselt|python_native|miopen|nnpack|xnnpack|monitor|unsupported_tensor_ops|supported_ops|tunable"
    r"|green_contexts|gds|jiterator|nccl|mtia|generate_bytecode|benchmark|tensorboard\..*)(\..*)?"
)


def resolve(path):
    """The module or class with a dotted name."""
    try:
        return importlib.import_module(path)
    except ImportError:
        owner, _, name = path.rpartition(".")
        return getattr(resolve(owner), name)


def public_names(path):
    """What a module or class offers: not what it has only imported."""
    home = resolve(path)
    listed = getattr(home, "__all__", None) if path not in _MORE_THAN_LISTED else None
    return sorted({name for name in listed or dir(home) if not name.startswith("_") and is_offered(home, path, name)})


# The list of the first lacks names and has C++ classes in it, the second has none.
_MORE_THAN_LISTED = ("torch", "torch.nn.functional")
_CLASSES = re.compile(r".*Tensor|.*Storage|Size|Generator|Stream|Event|Sym(Bool|Int|Float)|OutOfMemoryError")
_INNER = re.compile(
    r"(cudnn|miopen|mkldnn|fbgemm|quantize|fake_quantize|quantized|sym|import_ir|parse|has|unify|merge|boolean|assert"
    r"|handle|q_per|choose_q|fused_moving|autocast|init_num|cpp|eager)_.*|u?int[1-7]|bits.*|float[48]_.*|q?u?int\dx?\d*"
    r"|.*_(notes|backward_elemt|backward_reduce|elemt|gather_stats|gather_stats_with_counts|update_stats|support)"
)


def is_offered(home, path, name):
    """Whether PyTorch means users to find it there."""
    value = getattr(home, name, None)
    origin = getattr(value, "__module__", None) or ""
    if inspect.ismodule(value) or origin in ("typing", "collections", "enum", "functools", "contextlib", "warnings"):
        return False
    if name in ("T_destination", "call_super_init", "dump_patches", "TYPE_CHECKING"):
        return False
    if path not in _MORE_THAN_LISTED:
        return True
    if name in ("uint8", "int8"):
        return True
    return bool(_CLASSES.fullmatch(name)) if name[0].isupper() else not _INNER.fullmatch(name)


def with_out(path, names):
    """The names, marked where they take `out`."""
    if path == "torch":
        torch = resolve("torch")
        stub = (Path(torch.__file__).parent / "_C" / "_VariableFunctions.pyi").read_text()
        taking = {name for name, body in re.findall(r"^def (\w+)\((.*?)\) ->", stub, re.M | re.S) if " out:" in body}
    else:
        home = resolve(path)
        taking = {name for name in names if re.search(r"\bout=None", getattr(home, name, None).__doc__ or "")}
        # Its documentation says nothing of it.
        taking |= {"lstsq"} & set(names)
    return [name + "=" * (name in taking) for name in names]


def modules():
    """Paths that programs import from, without what belongs to other devices or to many processes."""
    torch = resolve("torch")
    found = pkgutil.walk_packages(torch.__path__, "torch.", onerror=lambda name: None)
    names = [module.name.removeprefix("torch.") for module in found]
    # Of what is apart the topmost modules, which are imported before what is in them.
    return sorted(
        name
        for name in names
        if not re.search(r"(^|\.)_", name) and not APART.fullmatch(name.rpartition(".")[0] or "torch")
    )


def lines():
    for path in MODULES + CLASSES:
        names = public_names(path)
        functions = path in ("torch", "torch.linalg", "torch.special", "torch.fft")
        yield " ".join([path, *(with_out(path, names) if functions else names)])
    yield " ".join(["torch._inductor.options", *sorted(resolve("torch._inductor").list_options())])
    yield " ".join(["modules", *modules()])


def main():
    warnings.simplefilter("ignore")
    TARGET.write_text("\n".join(lines()) + "\n")


if __name__ == "__main__":
    main()
