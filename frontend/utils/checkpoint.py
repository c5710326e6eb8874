"""weft.utils.checkpoint: PyTorch's way to name parts of a model whose values backward may compute again.

In weft the part simply runs. Values and gradients are those of PyTorch; eager mode keeps what backward needs, and a
compiled call decides by itself what to keep and what to compute again, for every value.
"""

__all__ = ["checkpoint", "checkpoint_sequential"]

_KEYWORDS = ("use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop")


def checkpoint(function, *args, **kwargs):
    """function(*args), with the keywords that are not checkpoint's own."""
    return function(*args, **{name: value for name, value in kwargs.items() if name not in _KEYWORDS})


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """The functions, or the modules of a Sequential, one after the other."""
    for function in functions.children() if hasattr(functions, "children") else functions:
        input = function(input)
    return input
