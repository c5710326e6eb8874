"""Running sums, products and extremes along one dimension, and what is made of neighbouring elements."""

from .compiler import dtypes
from .compiler.ops import scan
from .compiler.ops.table import OpError
from .compiler.shapes import normalize_axis
from .operands import tensor_of, to_dtype
from .ordering import _along
from .reducing import sum
from .results import result_type
from .runtime.state.tensor import Tensor
from .shaping import cat, narrow, reshape

_Cummax, _Cummin = (result_type(name, "values", "indices") for name in ("cummax", "cummin"))


def _widened(input, dtype):
    """Integers and bools are summed as int64."""
    return to_dtype(input, dtype or (input.dtype if input.dtype.is_differentiable else dtypes.int64))


def cumsum(input, dim, *, dtype=None):
    """Sums of the elements up to each one along dim. Integers become int64."""
    axis = normalize_axis("cumsum", dim, tensor_of("cumsum", input).ndim)
    return scan.cumsum(_widened(input, dtype), axis=axis) if input.ndim else _widened(input, dtype) * 1


def cumprod(input, dim, *, dtype=None):
    """Products of the elements up to each one along dim. Integers become int64."""
    axis = normalize_axis("cumprod", dim, tensor_of("cumprod", input).ndim)
    return scan.cumprod(_widened(input, dtype), axis=axis) if input.ndim else _widened(input, dtype) * 1


def logcumsumexp(input, dim):
    """log(cumsum(exp(input))) without overflow."""
    axis = normalize_axis("logcumsumexp", dim, tensor_of("logcumsumexp", input).ndim)
    return scan.logcumsumexp(input, axis=axis) if input.ndim else input * 1


def _running(made, positions):
    def function(input, dim):
        axis = normalize_axis(made.of, dim, tensor_of(made.of, input).ndim)
        index = positions(input, axis=axis)
        return made(_along(input, index, axis, made.of), index)

    function.__name__ = made.of
    function.__doc__ = f"(values, indices) of the {made.of[3:]}imum up to each element along dim."
    return function


cummax, cummin = _running(_Cummax, scan.cummax_index), _running(_Cummin, scan.cummin_index)


# --- integrals and slopes ---------------------------------------------------------------------------------------------
def _areas(name, y, x, dx, dim):
    """Areas of the trapezoids between neighbours along dim, times 2 if dx is their width."""
    if x is not None and dx is not None:
        raise TypeError(f"{name}() takes either x or dx, not both")
    axis = normalize_axis(name, dim, y.ndim)
    if isinstance(x, Tensor) and x.ndim == 1 and x.shape[0] != y.shape[axis]:
        raise RuntimeError(f"{name}: There must be one `x` value for each sample point, got {x.shape} for {y.shape}")
    rest = max(y.shape[axis] - 1, 0)
    pairs = narrow(y, axis, y.shape[axis] - rest, rest) + narrow(y, axis, 0, rest)
    if x is None:
        return pairs, (1 if dx is None else dx) / 2.0, axis
    if x.ndim == 1 and y.ndim > 1:
        if x.shape[0] != y.shape[axis]:
            raise OpError(f"{name}: There must be one `x` value for each sample point: {x.shape} for {y.shape}")
        x = reshape(x, (-1, *(1,) * (y.ndim - 1 - axis)))
    along = axis - y.ndim + x.ndim
    width = narrow(x, along, 1, x.shape[along] - 1) - narrow(x, along, 0, x.shape[along] - 1)
    return pairs * width, 0.5, axis


def trapezoid(y, x=None, *, dx=None, dim=-1):
    """The integral of y along dim by the trapezoidal rule, at points x or dx apart."""
    areas, scale, axis = _areas("trapezoid", y, x, dx, dim)
    return sum(areas, axis) * scale


trapz = trapezoid


def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """The integrals up to each point but the first, by the trapezoidal rule."""
    areas, scale, axis = _areas("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(areas, axis) * scale


def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Slopes of input along each of dim by central differences; spacing is a distance, coordinates, or one per dim."""
    dims = _gradient_dims(input, dim)
    if edge_order not in (1, 2):
        raise RuntimeError(f"torch.gradient only supports edge_order=1 and edge_order=2, got {edge_order}")
    spacing = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError(
            f"gradient expected spacing to be unspecified, a scalar or a list of length {len(dims)}, got {len(steps)}"
        )
    if any(input.shape[d] < edge_order + 1 for d in dims):
        raise RuntimeError(
            f"gradient expected each dimension size to be at least edge_order+1 = {edge_order + 1}, got {input.shape}"
        )
    return tuple(_slope(input, step, axis, edge_order) for step, axis in zip(steps, dims))


def _gradient_dims(input, dim):
    if dim is None:
        return list(range(input.ndim))
    dims = [normalize_axis("gradient", d, input.ndim) for d in (dim if isinstance(dim, (list, tuple)) else [dim])]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"gradient: a dim appears multiple times in the list of dims {dim}")
    return dims


def _slope(x, step, axis, edge_order):
    n = x.shape[axis]

    def at(start, length):
        return narrow(x, axis, start, length)

    if isinstance(step, Tensor) and step.ndim:
        return _uneven_slope(x, step, axis, edge_order)
    middle = (at(2, n - 2) - at(0, n - 2)) / (2 * step)
    if edge_order == 1:
        first, last = (at(1, 1) - at(0, 1)) / step, (at(n - 1, 1) - at(n - 2, 1)) / step
    else:
        first = (at(0, 1) * -1.5 + at(1, 1) * 2 - at(2, 1) * 0.5) / step
        last = (at(n - 1, 1) * 1.5 - at(n - 2, 1) * 2 + at(n - 3, 1) * 0.5) / step
    return cat([first, middle, last], axis)


def _uneven_slope(x, points, axis, edge_order):
    """The derivative of the parabola through three neighbours; at the ends of the line, or the parabola."""
    if points.shape != (x.shape[axis],):
        raise RuntimeError(f"gradient: coordinates {points.shape} do not fit dimension {axis} of {x.shape}")
    n = x.shape[axis]
    width = reshape(points[1:] - points[:-1], (-1, *(1,) * (x.ndim - 1 - axis)))
    slopes = (narrow(x, axis, 1, n - 1) - narrow(x, axis, 0, n - 1)) / width

    def parts(start, length):
        return narrow(slopes, axis, start, length), narrow(width, 0, start, length)

    (before, left), (after, right) = parts(0, n - 2), parts(1, n - 2)
    middle = (before * right + after * left) / (left + right)
    first, last = parts(0, 1)[0], parts(n - 2, 1)[0]
    if edge_order == 2:
        first, last = _edge(parts(0, 1), parts(1, 1)), _edge(parts(n - 2, 1), parts(n - 3, 1))
    return cat([first, middle, last], axis)


def _edge(nearest, next_one):
    """The parabola's slope at the end of the nearest interval."""
    (near, a), (far, b) = nearest, next_one
    return near + (near - far) * (a / (a + b))


METHODS = str.split("cumsum cumprod logcumsumexp cummax cummin")
INPLACE = str.split("cumsum cumprod")
PUBLIC = [*METHODS, *str.split("trapezoid trapz cumulative_trapezoid gradient")]
