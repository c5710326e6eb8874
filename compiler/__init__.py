"""weft.compiler: see docs/architecture.md for what lives here.

Also PyTorch's module of this name, whose decorators say what its compiler shall leave alone. In weft all Python runs as
it stands, so they change nothing.
"""

if __name__ != "weft.compiler":
    # From the repository root `import compiler` would load a second copy of every module, with its own op table.
    raise ImportError(f"import weft.compiler, not {__name__}: this directory is installed as the package weft.compiler")


def disable(fn=None, recursive=True, *, reason=None):
    """The function itself: Python that is called runs. With or without parentheses."""
    return (lambda function: function) if fn is None else fn


allow_in_graph = assume_constant_result = disable


def is_compiling():
    """False, also inside a compiled call: the code that runs is the code that stands there."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset():
    """Nothing: a compiled function holds its own programs."""


def cudagraph_mark_step_begin():
    """Nothing: there are no graphs of another device."""


def set_stance(stance="default", **options):
    """Nothing; `weft.compile` is as it is."""
