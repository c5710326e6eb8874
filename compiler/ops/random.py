"""Random numbers from a counter: element k of call c under seed s is a fixed function of (s, c, k).

So a draw does not depend on threads, fusion or the order of evaluation. The function is the finaliser of SplitMix64
(Steele, Lea, Flood, OOPSLA 2014) over key + k * golden ratio, with the key mixed from seed and call the same way.
"""

import functools
from functools import partial

import numpy as np

from .. import dtypes
from ..kernels.kernel import Source
from . import samples
from .arithmetic import add, div, floor, mul, neg, sqrt, sub
from .comparison import cast, lt
from .kinds import composite, infer_by_decomposition
from .samples import Sample
from .source import shaped
from .table import Meta, Op, register
from .transcendental import cos, log

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


def _mix(z):
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


@functools.lru_cache(maxsize=64)
def _mixed_seed(seed):
    return _mix((seed + _GOLDEN) & _MASK)


def call_key(seed, call):
    """The 64-bit key of one random call, as a signed integer (an int64 operand)."""
    return _signed(_mix((_mixed_seed(seed) + call * _GOLDEN) & _MASK))


def call_keys(seed, first, n):
    """The keys of n calls, as a tuple."""
    start = np.uint64((_mixed_seed(seed) + first * _GOLDEN) & _MASK)
    return tuple(_mixed(start + np.arange(n, dtype=np.uint64) * np.uint64(_GOLDEN)).view(np.int64).tolist())


def _mixed(z):
    """`_mix` of an array of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    return z ^ (z >> np.uint64(31))


def _evaluate_uniform(key, shape, dtype):
    count = int(np.prod(shape, dtype=np.int64))
    z = _mixed(np.uint64(int(key) & _MASK) + np.arange(count, dtype=np.uint64) * np.uint64(_GOLDEN))
    bits = 24 if dtype is dtypes.float32 else 53
    return ((z >> np.uint64(64 - bits)).astype(dtype.numpy) * dtype.numpy.type(2.0**-bits)).reshape(shape)


def _signed(constant):
    return constant - (1 << 64) if constant >= 1 << 63 else constant


def _lower_uniform(b, positions, key, shape, dtype):
    t = positions.type
    z = b.add(key, b.mul(positions, b.const(_signed(_GOLDEN), t)))
    z = b.mul(b.xor(z, b.lshr(z, b.const(30, t))), b.const(_signed(_FIRST), t))
    z = b.mul(b.xor(z, b.lshr(z, b.const(27, t))), b.const(_signed(_SECOND), t))
    z = b.xor(z, b.lshr(z, b.const(31, t)))
    element, bits = ("f32", 24) if dtype is dtypes.float32 else ("f64", 53)
    number = b.convert(b.lshr(z, b.const(64 - bits, t)), element)
    return b.mul(number, b.const(2.0**-bits, number.type))


# Uniform in [0, 1), a multiple of 2^-24 (float32) or 2^-53 (float64).
uniform = register(
    Op(
        "uniform",
        "source",
        shaped,
        _evaluate_uniform,
        kernel=Source(),
        traits=frozenset(["positions"]),
        lower=_lower_uniform,
        samples=lambda: [
            Sample((call_key(1, k),), {"shape": s, "dtype": d})
            for k, (s, d) in enumerate((((2, 3), dtypes.float32), ((70,), dtypes.float64), ((), dtypes.float32)))
        ],
    )
)


def normal_from(u, v):
    """Standard normal numbers from two uniform draws of one shape (Box and Muller, 1958)."""
    radius = sqrt(mul(log(sub(1.0, u)), -2.0))
    return mul(radius, cos(mul(v, 6.283185307179586)))


box_muller = composite(
    "box_muller",
    lambda operands, attributes, default_float: Meta(operands[0].shape, operands[0].dtype),
    normal_from,
    samples=lambda: [Sample((samples.numbers(0, (2, 3), 0.1, 0.9), samples.numbers(1, (2, 3), 0.0, 1.0)))],
)


# --- what is made of draws, in one step of eager mode -----------------------------------------------------------------
class Drawn:
    """What `rule` makes of uniform numbers, of other numbers and of attributes. `op` is a composite of the draws' keys
    and those numbers, whose draws have the attributes `shape` and `dtype`. It is in no table: a compiled call records
    the ops of the rule, and so does eager mode if there are many elements (runtime/state/random.py)."""

    __slots__ = ("op", "rule", "n_draws")

    def __init__(self, name, rule, n_draws=1):
        def decompose(*operands, shape, dtype, **attributes):
            draws = [uniform(key, shape=shape, dtype=dtype) for key in operands[:n_draws]]
            return rule(*draws, *operands[n_draws:], **attributes)

        self.op = Op(name, "composite", partial(infer_by_decomposition, decompose), decompose=decompose)
        self.rule, self.n_draws = rule, n_draws


normal = Drawn("drawn_normal", lambda u, v: box_muller(u, v), 2)
scaled_normal = Drawn("drawn_scaled_normal", lambda u, v, std, mean: add(mul(box_muller(u, v), std), mean), 2)
between = Drawn("drawn_between", lambda u, width, low: add(mul(u, width), low))
exponential = Drawn("drawn_exponential", lambda u, above_0, rate: div(neg(log(add(u, above_0))), rate))
whole_between = Drawn("drawn_whole", lambda u, n, low, type: cast(add(floor(mul(u, n)), low), dtype=type))
below = Drawn("drawn_below", lambda u, p, type: cast(lt(u, p), dtype=type))
