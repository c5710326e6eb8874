"""What is given to a compiled function, and how."""

from collections import namedtuple
from dataclasses import dataclass

from .registry import idiom


@idiom
def three_tensors(T, s):
    a, b, c = (s.numbers(3, 3) for _ in range(3))
    f = s.compile(lambda a, b, c: (a * b + c).sum())
    return lambda: f(a, b, c)


@idiom
def keywords(T, s):
    x, scale, shift = s.numbers(4, 5), s.numbers(5), s.numbers(5)

    @s.compile
    def normalise(x, *, scale, shift=None, epsilon=1e-5):
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + epsilon).sqrt()
        return x * scale if shift is None else x * scale + shift

    return lambda: (normalise(x, scale=scale, shift=shift), normalise(x, scale=scale))


@idiom
def dictionary_of_tensors(T, s):
    batch = {"left": s.numbers(4, 4), "right": s.numbers(4, 4)}
    f = s.compile(lambda batch: T.tanh(batch["left"] @ batch["right"]))
    return lambda: f(batch)


@idiom
def containers_made_for_each_call(T, s):
    a, b, c, d = (s.numbers(3, 3) for _ in range(4))
    f = s.compile(lambda batch, scale: batch["x"] * batch["pair"][0] * scale + batch["pair"][1])
    return lambda: f({"x": a, "pair": (b, c)}, scale=d)


@idiom
def data_class(T, s):
    @dataclass
    class Batch:
        inputs: object
        weights: object
        name: str = "train"

    batch = Batch(s.numbers(6, 2), s.numbers(6, 1))
    f = s.compile(lambda batch: (batch.inputs * batch.weights).sum(0) / batch.weights.abs().sum())
    return lambda: f(batch)


@idiom
def named_tuple(T, s):
    Point = namedtuple("Point", "x y")
    point = Point(s.numbers(5), s.numbers(5))
    f = s.compile(lambda p: Point(p.x.cos() * p.y, p.x.sin() * p.y))
    return lambda: tuple(f(point))


@idiom
def float_that_changes(T, s):
    a, b, k = s.numbers(3, 3), s.numbers(3, 3), [0]
    f = s.compile(lambda a, b, t: a * t + b * (1 - t))

    def call():
        k[0] += 1
        return f(a, b, 1.0 / (1 + k[0] % 7))

    return call


@idiom
def integer_that_changes(T, s):
    gradient, k = s.numbers(6), [0]

    @s.compile
    def corrected(gradient, count):
        return gradient * 0.1 / (1 - 0.9**count)

    def call():
        k[0] = k[0] % 8 + 1
        return corrected(gradient, k[0])

    return call


@idiom
def flags_and_strings(T, s):
    a, b = s.numbers(8), s.numbers(8)

    @s.compile
    def loss(a, b, reduction="mean", squared=True):
        error = (a - b) ** 2 if squared else (a - b).abs()
        return {"mean": error.mean, "sum": error.sum}[reduction]()

    return lambda: (loss(a, b), loss(a, b, reduction="sum"), loss(a, b, squared=False))


@idiom
def nothing_as_a_mask(T, s):
    q, k = s.numbers(4, 8), s.numbers(4, 8)

    @s.compile
    def attention(q, k, mask=None):
        scores = q @ k.t() / 8**0.5
        if mask is not None:
            scores = scores + mask
        return scores.softmax(-1)

    return lambda: attention(q, k)


@idiom
def one_tensor_twice(T, s):
    x = s.numbers(5, 5)
    f = s.compile(lambda a, b: (a - b.mean()) @ b.t())
    return lambda: f(x, x)


@idiom
def views_of_a_table(T, s):
    table = s.numbers(6, 8)
    f = s.compile(lambda row, column, block: row.sum() * column.sum() + block.t())
    return lambda: f(table[1], table[:, 2], table[2:5, 1:7])


@idiom
def tensor_made_from_a_list(T, s):
    w = s.numbers(3, 2)
    f = s.compile(lambda x: (x @ w).relu())
    return lambda: f(T.tensor([[0.5, -1.0, 2.0]]))


@idiom
def numpy_array_converted_inside(T, s):
    array, w = s.rng.standard_normal((4, 3)).astype("float32"), s.numbers(3, 2)
    f = s.compile(lambda a: T.sigmoid(T.from_numpy(a) @ w))
    return lambda: f(array)


@idiom
def shapes_in_turn(T, s):
    w, k = s.numbers(6, 3), [0]
    batches = [s.numbers(n, 6) for n in (8, 5, 3, 7)]
    f = s.compile(lambda x: (x @ w).tanh().mean(0))

    def call():
        k[0] = (k[0] + 1) % 4
        return f(batches[k[0]])

    return call


@idiom
def any_number_of_tensors(T, s):
    parts = [s.numbers(3, n) for n in (2, 4, 1)]
    f = s.compile(lambda *parts, **options: T.cat(parts, **options) * len(parts))
    return lambda: f(*parts, dim=1)


@idiom
def state_in_and_out(T, s):
    x, wx, wh = s.numbers(2, 4), s.numbers(4, 6), s.numbers(6, 6, scale=0.3)
    state = [(T.zeros(2, 6), T.zeros(2, 6))]

    @s.compile
    def cell(x, state):
        h, c = state
        gate = T.sigmoid(x @ wx + h @ wh)
        c = gate * c + (1 - gate) * T.tanh(x @ wx)
        return gate * T.tanh(c), (gate * T.tanh(c), c)

    def call():
        out, state[0] = cell(x, state[0])
        return out

    return call


@idiom
def method_of_an_object(T, s):
    class Smoother:
        def __init__(self):
            self.gain, self.level = 0.5, T.zeros(4)

        @s.compile
        def update(self, seen):
            self.level = self.level + self.gain * (seen - self.level)
            return self.level

    smoother, seen = Smoother(), s.numbers(4)
    return lambda: smoother.update(seen)


@idiom
def model_as_an_argument(T, s):
    models, x = [s.weights(T.nn.Linear(5, 3)) for _ in range(4)], s.numbers(6, 5)
    f = s.compile(lambda model, x: model(x).tanh().sum(0))

    def call():
        with T.no_grad():
            return [f(model, x) for model in models]

    return call
