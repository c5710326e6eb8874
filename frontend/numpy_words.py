"""NumPy's words for keywords: PyTorch takes `axis` for `dim` and `keepdims` for `keepdim`. And words of PyTorch's that
are other ones than in the function that does the same here."""

from functools import wraps
from inspect import signature

# The functions in which the two are rare: those that are called with them every day say so themselves.
NAMES = frozenset(
    str.split("""
        aminmax argsort chunk cosine_similarity count_nonzero cross cummax cummin cumprod cumsum cumulative_trapezoid
        diff gather gradient index_select kthvalue logcumsumexp logsumexp median mode nanmean nanmedian nanquantile
        nansum quantile repeat_interleave slice_copy slice_scatter sort split split_copy std_mean take_along_dim
        tensor_split topk trapezoid trapz unbind unbind_copy unsafe_chunk unsafe_split var_mean
    """)
)
WORDS = {"axis": "dim", "keepdims": "keepdim"}
_POLYNOMIALS = str.split("hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p")
_POLYNOMIALS += [f"{kind}_polynomial_{end}" for kind in ("chebyshev", "shifted_chebyshev") for end in "tuvw"]
_OTHERS = {
    **dict.fromkeys(NAMES, WORDS),
    **{f"fft.{kind}fft{rank}": WORDS for kind in ("", "i", "r", "ir", "h", "ih") for rank in ("", "2", "n")},
    **dict.fromkeys(["fft.fftshift", "fft.ifftshift"], WORDS),
    **{f"linalg.{name}": WORDS for name in ("cross", "matrix_norm", "vecdot", "vector_norm")},
    "linalg.norm": {**WORDS, "input": "A"},
    **dict.fromkeys(["det", "slogdet", "matrix_power"], {"input": "A"}),
    "cholesky_solve": {"input2": "L"},
    **{f"special.{name}": {"n": "other"} for name in _POLYNOMIALS},
    "random_": {"from": "from_"},
    "swapaxes_": {"axis0": "dim0", "axis1": "dim1"},
    "uniform_": {"from": "low", "to": "high"},
}


# The default of `out` in methods that NumPy calls by its own signatures: np.sum(x) is x.sum(axis=None, out=None).
BY_NUMPY = object()


def without_numpys(function):
    """The function, whose signature shows nothing that is there for NumPy alone."""
    shown = signature(function)
    parameters = [p for p in shown.parameters.values() if p.default is not BY_NUMPY]
    function.__signature__ = shown.replace(parameters=parameters)
    return function


def is_numpys(name, out):
    """Whether a method is called as NumPy calls it, with out=None."""
    if out is not None and out is not BY_NUMPY:
        raise TypeError(f"{name}: the method takes no out=; weft.{name}(x, out=...) does")
    return out is None


def understanding(name, function):
    """The function of this path, which understands such words too if there are any for it."""
    words = _OTHERS.get(name)
    if words is None:
        return function

    @wraps(function)
    def function_of_words(*args, **kwargs):
        if kwargs and not words.keys().isdisjoint(kwargs):
            kwargs = {_word(key, kwargs, words): value for key, value in kwargs.items()}
        return function(*args, **kwargs)

    return function_of_words


def _word(key, kwargs, words):
    word = words.get(key, key)
    if word is not key and word in kwargs:
        raise TypeError(f"got both {key}= and {word}=, which mean the same: give one")
    return word
