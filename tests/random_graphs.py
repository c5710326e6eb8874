"""Random graphs from a seed: broadcasting, views, reductions, sharing, several outputs, commits. Not a test."""

import numpy as np

from weft.compiler import dtypes
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.shapes import contiguous_strides

_UNARY = ("neg", "abs", "relu", "exp", "tanh", "sigmoid", "sqrt", "floor", "sign", "isnan", "sin", "log1p")
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "lt", "eq", "ge")
_REDUCTIONS = ("sum", "sum", "amax", "amin", "prod", "any", "all")
_SIZES = (1, 2, 3, 5, 7, 16, 17, 33, 40, 70, 130)


class RandomGraph:
    """A graph, arrays for its inputs and numbers for its run-time scalars."""

    def __init__(self, seed, n_ops=14, sizes=_SIZES):
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"random_{seed}", dtypes.float32)
        self.sizes = sizes
        self.shape = tuple(self.pick(sizes) for _ in range(self.rng.integers(1, 4)))
        while np.prod(self.shape) > 20000:
            self.shape = self.shape[1:]
        self.values, self.arrays, self.numbers = [], [], []
        for _ in range(self.rng.integers(1, 5)):
            self.add_input()
        while len(self.graph.values) < n_ops + len(self.arrays):
            self.add_op()
        self.finish()

    def pick(self, items):
        return items[self.rng.integers(len(items))]

    def chance(self, probability):
        return self.rng.random() < probability

    def any_value(self):
        # Later values more often, so that chains grow.
        k = int(len(self.values) * np.sqrt(self.rng.random()))
        return self.values[k]

    def floating(self):
        v = self.any_value()
        return v if v.dtype.is_floating_point else TABLE["cast"](v, dtype=dtypes.float32)

    def keep(self, value):
        if np.prod(value.shape) <= 50000:
            self.values.append(value)

    # --- inputs ---------------------------------------------------------------------------------------------------
    def add_input(self):
        shape = tuple(1 if self.chance(0.2) else d for d in self.shape)[self.rng.integers(0, 2) * self.chance(0.4) :]
        dtype = self.pick([dtypes.float32] * 6 + [dtypes.float64, dtypes.int64, dtypes.int32, dtypes.bool_])
        strides = None
        if self.chance(0.25) and len(shape) > 1:
            order = self.rng.permutation(len(shape))
            steps = contiguous_strides(tuple(shape[k] for k in order))
            strides = tuple(
                int(steps[list(order).index(k)]) * (2 if self.chance(0.1) else 1) for k in range(len(shape))
            )
            strides = tuple(2 * s for s in strides) if self.chance(0.3) else strides
            strides = None if strides == contiguous_strides(shape) else strides
        strides = self.distinct(shape, strides)
        self.values.append(self.graph.input(shape, dtype, strides))
        self.arrays.append(self.numbers_of(shape, dtype))

    @staticmethod
    def distinct(shape, strides):
        """Strides without two indices at one element."""
        if strides is None:
            return None
        places = sum(np.arange(d).reshape([-1 if k == j else 1 for j in range(len(shape))]) * s
                     for k, (d, s) in enumerate(zip(shape, strides)))  # fmt: skip
        return strides if len(np.unique(places)) == places.size else None

    def numbers_of(self, shape, dtype):
        if dtype is dtypes.bool_:
            return self.rng.random(shape) < 0.5
        if dtype.is_floating_point:
            x = np.asarray(self.rng.normal(0, 1.5, shape), dtype.numpy)
            special = self.rng.random(shape) < 0.01
            return np.where(special, np.asarray(self.pick([0.0, -0.0, np.inf, -np.inf, np.nan]), x.dtype), x)
        return self.rng.integers(-4, 5, shape).astype(dtype.numpy)

    # --- ops --------------------------------------------------------------------------------------------------------
    def add_op(self):
        makers = [self.unary] * 4 + [self.binary] * 8 + [self.number_operand] * 2 + [self.reduction] * 4
        makers += [self.view] * 4 + [self.row_chain] * 2 + [self.product, self.join, self.select, self.indexed]
        makers += [self.source, self.conversion, self.extreme]
        self.pick(makers)()

    def unary(self):
        self.keep(TABLE[self.pick(_UNARY)](self.floating()))

    def binary(self):
        x = self.any_value()
        fitting = [v for v in self.values if _broadcasts(x.shape, v.shape)]
        y = self.pick(fitting)
        name = self.pick(_BINARY)
        if name == "sub" and dtypes.bool_ in (x.dtype, y.dtype):
            name = "add"
        self.keep(TABLE[name](x, y))

    def number_operand(self):
        x = self.floating()
        if self.chance(0.4):
            number = self.graph.scalar(self.pick([dtypes.float64, dtypes.int64]))
            self.numbers.append(
                float(self.rng.normal()) if number.dtype.is_floating_point else int(self.rng.integers(5))
            )
        else:
            number = self.pick([0.5, 1, 2.0, 1.0, 0.0, -1.5, 4])
        self.keep(TABLE[self.pick(["add", "mul", "sub", "div", "maximum"])](x, number))

    def reduction(self):
        x = self.any_value()
        if not x.shape or 0 in x.shape:
            return
        axes = tuple(k for k in range(len(x.shape)) if self.chance(0.5)) or (len(x.shape) - 1,)
        y = TABLE[self.pick(_REDUCTIONS)](x, axes=axes, keepdim=self.chance(0.5))
        self.keep(y)

    def view(self):
        x = self.any_value()
        kind = self.rng.integers(5)
        if kind == 0:
            self.keep(TABLE["permute"](x, axes=tuple(int(k) for k in self.rng.permutation(len(x.shape)))))
        elif kind == 1:
            shape = tuple(d for d in x.shape if d != 1) if self.chance(0.5) else (int(np.prod(x.shape)),)
            self.keep(TABLE["reshape"](x, shape=shape))
        elif kind == 2:
            place = int(self.rng.integers(len(x.shape) + 1))
            y = TABLE["reshape"](x, shape=(*x.shape[:place], 1, *x.shape[place:]))
            self.keep(TABLE["expand"](y, shape=(*x.shape[:place], self.pick([2, 3]), *x.shape[place:])))
        elif kind == 3 and 0 not in x.shape:
            self.keep(TABLE["slice"](x, spec=tuple(self.slice_of(d) for d in x.shape)))
        elif x.shape:
            cut = int(self.rng.integers(len(x.shape)))
            merged = (int(np.prod(x.shape[: cut + 1])), *x.shape[cut + 1 :])
            self.keep(TABLE["reshape"](x, shape=merged))

    def slice_of(self, d):
        start = int(self.rng.integers(d))
        if self.chance(0.3):
            return (start, -1, int(self.rng.integers(1, start + 2)))
        step = int(self.rng.integers(1, 3))
        return (start, step, int(self.rng.integers(1, (d - 1 - start) // step + 2)))

    def row_chain(self):
        x = self.floating()
        if not x.shape or 0 in x.shape:
            return
        axis = int(self.rng.integers(len(x.shape)))
        if self.chance(0.7):
            self.keep(TABLE[self.pick(["softmax", "log_softmax"])](x, axis=axis))
        else:
            self.keep(TABLE["layer_norm"](x, eps=1e-5))

    def product(self):
        x = self.floating()
        others = [v for v in self.values if v.dtype is x.dtype and len(v.shape) == 2 and v.shape[0] == x.shape[-1:]]
        if len(x.shape) == 2:
            y = self.pick(others) if others else TABLE["permute"](x, axes=(1, 0))
            if x.shape[1] == y.shape[0]:
                self.keep(TABLE["bmm"](x, y))

    def join(self):
        x = self.any_value()
        if x.shape:
            axis = int(self.rng.integers(len(x.shape)))
            self.keep(TABLE["cat"](x, x if self.chance(0.5) else TABLE["neg"](self.as_float(x)), axis=axis))

    def as_float(self, x):
        return x if x.dtype.is_floating_point else TABLE["cast"](x, dtype=dtypes.float32)

    def select(self):
        x = self.any_value()
        condition = [v for v in self.values if v.dtype is dtypes.bool_ and _broadcasts(v.shape, x.shape)]
        if condition:
            self.keep(TABLE["where"](self.pick(condition), x, 0))

    def indexed(self):
        x = self.floating()
        if not x.shape or 0 in x.shape:
            return
        axis = int(self.rng.integers(len(x.shape)))
        count = int(self.rng.integers(1, 6))
        high = x.shape[axis] + self.chance(0.05)
        if self.chance(0.5):
            index = self.graph.input((count,), dtypes.int64)
            self.arrays.append(self.rng.integers(0, high, (count,)))
            y = TABLE["index_select"](x, index, axis=axis)
            if self.chance(0.4):
                put = {"merged": x.shape} if self.chance(0.5) else {}
                y = TABLE["index_put" if put else "index_add"](x, index, y, axis=axis, **put)
            self.keep(y)
            return
        shape = tuple(count if k == axis else d for k, d in enumerate(x.shape))
        index = self.graph.input(shape, dtypes.int64)
        self.arrays.append(self.rng.integers(0, high, shape))
        y = TABLE["gather"](x, index, axis=axis)
        self.keep(TABLE["scatter_add"](x, index, y, axis=axis) if self.chance(0.4) else y)

    def source(self):
        x = self.any_value()
        kind = self.rng.integers(3)
        if kind == 0:
            y = x.apply_op(
                TABLE["uniform"], (int(self.rng.integers(1000)),), {"shape": x.shape, "dtype": dtypes.float32}
            )
        elif kind == 1 and x.shape:
            y = x.apply_op(TABLE["arange"], (1, 2), {"shape": x.shape[-1:], "dtype": dtypes.float32})
        else:
            y = x.apply_op(TABLE["full"], (2.5,), {"shape": x.shape, "dtype": dtypes.float32})
        self.keep(y)

    def conversion(self):
        x = self.any_value()
        wanted = self.pick([dtypes.float32, dtypes.float64, dtypes.bool_])
        self.keep(TABLE["cast"](x, dtype=wanted))

    def extreme(self):
        x = self.any_value()
        if x.shape and 0 not in x.shape:
            self.keep(TABLE[self.pick(["argmax", "argmin"])](x, axis=int(self.rng.integers(len(x.shape)))))

    # --- results ------------------------------------------------------------------------------------------------------
    def finish(self):
        graph = self.graph
        graph.outputs = [self.any_value() for _ in range(self.rng.integers(1, 4))]
        if self.chance(0.2):
            graph.outputs.append(graph.outputs[0])
        targets = [v for v in graph.inputs() if v.dtype is not dtypes.int64]
        for target in targets:
            if self.chance(0.5):
                self.commit(target)

    def commit(self, target):
        fitting = [v for v in self.values if v.shape == target.shape and v.dtype is target.dtype and v is not target]
        if fitting and self.chance(0.6):
            self.graph.commits.append((target, self.pick(fitting)))
        elif target.dtype.is_floating_point:
            partners = [v for v in self.values if v.shape == target.shape and v.dtype.is_floating_point] or [target]
            total = TABLE["add"](TABLE["mul"](target, 0.9), self.pick(partners))
            self.graph.commits.append((target, TABLE["cast"](total, dtype=target.dtype)))


def _broadcasts(x, y):
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x), reversed(y)))
