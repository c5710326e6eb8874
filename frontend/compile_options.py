"""What torch.compile's keywords mean here, and PyTorch's modules about its compiler: _dynamo, _inductor, settings.

There is one way to compile, and none of PyTorch's names for others changes a result: backends are accepted by name, and
those that run a graph as it stands, "eager" for one, leave calls to eager mode. A backend that is a function would be
handed a graph of torch.fx, and there is none. Settings can be read once they are set, and change nothing.
"""

from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

from . import compiler
from .absent import attribute_of, names_in
from .compiler.later import later

# PyTorch's backends, and whether calls are compiled; those that PyTorch calls experimental, or for debugging.
_BACKENDS = {"inductor": True, "cudagraphs": True, "openxla": True, "tvm": True}
_OTHERS = {
    "eager": False, "eager_noexcept": False, "eager_debug": False, "pre_dispatch_eager": False, "aot_eager": True,
    "aot_eager_decomp_partition": True, "aot_eager_default_partitioner": True, "aot_ts": True, "ts": True,
    "onnxrt": True, "invoke_subgraph": True, "openxla_eval": True,
}  # fmt: skip
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_SETTINGS = {"backend": "inductor"}


def is_compiled(fullgraph, dynamic, backend, mode, options, name, recompile_limit, shapes_spec):
    """Whether calls are compiled with these keywords of torch.compile; an error for those that PyTorch refuses, or that
    have no meaning here."""
    if dynamic not in (None, True, False):
        raise TypeError(f"compile: dynamic must be None, True or False, got {dynamic!r}")
    if not isinstance(name, (str, type(None))):
        raise TypeError(f"compile: name must be a str, got {type(name).__name__}")
    if recompile_limit is not None and (not isinstance(recompile_limit, int) or recompile_limit < 0):
        raise ValueError(f"compile: recompile_limit must be a number of programs, got {recompile_limit!r}")
    if shapes_spec is not None:
        raise NotImplementedError("compile: shapes_spec is not understood: weft._dynamo.mark_dynamic marks dimensions")
    if mode is not None and options is not None:
        raise RuntimeError(
            "compile: Either mode or options can be specified, but both can't be specified at the same time."
        )
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"compile: unrecognized mode={mode!r}, should be one of: {', '.join(_MODES)}")
    if options is not None:
        _check_options(options)
    return _is_compiled_by(backend) or bool(fullgraph)


def _is_compiled_by(backend):
    if backend is None:
        backend = _SETTINGS["backend"]
    if isinstance(backend, str):
        known = {**_BACKENDS, **_OTHERS}
        if backend not in known:
            raise RuntimeError(
                f"compile: Invalid backend: {backend!r}, see `weft.compiler.list_backends()` for available backends: "
                f"{', '.join(list_backends(None))}. Each of them is weft's own compiler, or eager mode"
            )
        return known[backend]
    what = getattr(backend, "__name__", type(backend).__name__)
    if not callable(backend):
        raise TypeError(f"compile: backend must be the name of one, got {what}: {backend!r}")
    raise NotImplementedError(
        f"compile: backend={what} is a function of a torch.fx graph, and weft makes none: leave backend out, and see "
        "what is compiled with f.explain(verbose=True), weft.visualize and weft.export. 'eager' compiles nothing"
    )


def _check_options(options):
    if not isinstance(options, dict):
        raise TypeError(f"compile: options must be a dict, got {type(options).__name__}")
    for option in options:
        if str(option).replace("-", "_") not in names_in("_inductor.options"):
            raise RuntimeError(
                f"compile: Unexpected optimization option {option}, see `weft._inductor.list_options()`; none changes "
                "what weft does"
            )


# --- weft.compiler, weft._dynamo, weft._inductor ----------------------------------------------------------------------
def list_backends(exclude_tags=("debug", "experimental")):
    """The names that weft.compile takes for `backend`; with None those for debugging too."""
    return sorted({**_BACKENDS, **(_OTHERS if not exclude_tags else {})})


def set_default_backend(backend):
    """What weft.compile takes for `backend` where none is given: a name."""
    if backend is not None:
        _is_compiled_by(backend)
    _SETTINGS["backend"] = backend or "inductor"


def get_default_backend():
    """The name that weft.compile takes for `backend` where none is given."""
    return _SETTINGS["backend"]


def list_mode_options(mode=None, dynamic=None):
    """PyTorch's modes, none of which has options here."""
    return {} if mode in _MODES else {name: {} for name in _MODES}


def list_options():
    """The options that weft.compile takes, none of which changes anything."""
    return sorted(names_in("_inductor.options"))


def substitute_in_graph(original_fn, *, can_constant_fold_through=False, skip_signature_check=False):
    """A decorator that changes nothing: Python that a compiled function calls runs."""
    return lambda function: function


def nested_compile_region(fn=None, options=None):
    """The function itself: a part of a program that comes several times is recorded several times."""
    return (lambda function: function) if fn is None else fn


def explain(f, *given, **given_by_name):
    """What `weft.compile(f).explain` says, of the arguments that the result is called with."""

    def inner(*args, **kwargs):
        return _compile(f).explain(*args, **kwargs)

    return inner(*given, **given_by_name) if given or given_by_name else inner


def optimize(backend="inductor", *, nopython=False, dynamic=None, disable=False, **others):
    """weft.compile as a decorator with arguments, by PyTorch's older name."""
    return lambda function: _compile(function, backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


def graph_break(msg=""):
    """Nothing: what cannot be compiled is found without being marked."""


def inductor_compile(gm, example_inputs=None, options=None):
    """NotImplementedError: PyTorch's takes a graph of torch.fx."""
    raise NotImplementedError("_inductor.compile takes a torch.fx graph, and weft makes none: weft.compile(function)")


def reset():
    """Nothing to reset: a compiled function holds its own programs."""


_compile = later("compiled:compile")


class _Settings(ModuleType):
    """A module of settings: what has been set can be read, in parts such as `triton` too."""

    def patch(self, changes=None, value=None, **by_name):
        """A block, or the decorator of a function, in which settings are others."""
        changes = {changes: value} if isinstance(changes, str) else {**(changes or {}), **by_name}
        return _patched(vars(self), changes)


@contextmanager
def _patched(settings, changes):
    before = {name: settings[name] for name in changes if name in settings}
    settings.update(changes)
    try:
        yield
    finally:
        for name in changes:
            settings.pop(name, None)
        settings.update(before)


def _module(path, **contents):
    about = "PyTorch's names for its compiler and its settings: see weft.compile."
    kind = _Settings if path.endswith("config") else ModuleType
    module = kind(f"weft.{path}", about)
    module.__dict__.update(contents, __getattr__=attribute_of(module.__name__))
    return module


config = dynamo_config = _module(
    "_dynamo.config",
    suppress_errors=False,
    cache_size_limit=8,
    recompile_limit=8,
    accumulated_cache_size_limit=256,
    verbose=False,
    capture_scalar_outputs=False,
    capture_dynamic_output_shape_ops=False,
    optimize_ddp=False,
    assume_static_by_default=True,
    automatic_dynamic_shapes=True,
    guard_nn_modules=True,
    inline_inbuilt_nn_modules=True,
)
inductor_config = _module(
    "_inductor.config",
    **{part: SimpleNamespace() for part in ("triton", "cpp", "cuda", "trace", "aot_inductor")},
    **dict.fromkeys(("debug", "max_autotune", "coordinate_descent_tuning", "freezing", "fallback_random"), False),
    epilogue_fusion=True,
    fx_graph_cache=True,
)
dynamo = _module(
    "_dynamo",
    config=dynamo_config,
    reset=reset,
    mark_dynamic=later("dynamic:mark_dynamic"),
    maybe_mark_dynamic=later("dynamic:maybe_mark_dynamic"),
    mark_static=later("dynamic:mark_static"),
    list_backends=list_backends,
    explain=explain,
    optimize=optimize,
    graph_break=graph_break,
    substitute_in_graph=substitute_in_graph,
    disable=compiler.disable,
    allow_in_graph=compiler.allow_in_graph,
    assume_constant_result=compiler.assume_constant_result,
    is_compiling=compiler.is_compiling,
    set_stance=compiler.set_stance,
)
inductor = _module(
    "_inductor",
    config=inductor_config,
    compile=inductor_compile,
    list_options=list_options,
    list_mode_options=list_mode_options,
    cudagraph_mark_step_begin=compiler.cudagraph_mark_step_begin,
)
