"""What a compiled function gives back, and what is done with it."""

from collections import namedtuple

from .registry import idiom


def pair(s, *shape):
    return s.numbers(*shape), s.numbers(*shape)


@idiom
def dictionary_of_results(T, s):
    a, b = pair(s, 3, 3)
    f = s.compile(lambda a, b: {"sum": a + b, "parts": [a * b, (a - b, T.exp(a))]})
    return lambda: f(a, b)


@idiom
def named_results(T, s):
    Moments = namedtuple("Moments", "mean deviation")
    x = s.numbers(10, 3)
    f = s.compile(lambda x: Moments(x.mean(0), x.std(0)))

    def call():
        found = f(x)
        return found.mean, found.deviation

    return call


@idiom
def views_as_results(T, s):
    a, b = pair(s, 4, 4)
    f = s.compile(lambda a, b: ((a + b).t(), (a * b)[1:], (a - b).reshape(2, 8)))
    return lambda: f(a, b)


@idiom
def pieces_of_one_result(T, s):
    x = s.numbers(4, 12)
    f = s.compile(lambda x: (x * 2 + 1).chunk(3, dim=1))
    return lambda: f(x)


@idiom
def argument_handed_back(T, s):
    a, b = pair(s, 3, 3)
    f = s.compile(lambda a, b: (a, a + b, a))
    return lambda: f(a, b)


@idiom
def kept_on_an_object(T, s):
    class Layer:
        last = None

    layer, (a, b) = Layer(), pair(s, 4, 4)

    @s.compile
    def f(a, b):
        layer.last = T.tanh(a @ b)

    def call():
        f(a, b)
        return layer.last

    return call


@idiom
def appended_to_a_list(T, s):
    a, b = pair(s, 4)
    history = []

    @s.compile
    def f(a, b):
        history.append((a * b).sum())
        return a - b

    def call():
        out = f(a, b)
        del history[:-5]
        return out, history[-1]

    return call


@idiom
def result_with_history(T, s):
    w = s.parameter(4, 4)
    x = s.numbers(3, 4)
    f = s.compile(lambda x: (x @ w).relu())
    return lambda: f(x)


@idiom
def result_detached(T, s):
    w, x = s.parameter(4, 4), s.numbers(3, 4)
    f = s.compile(lambda x: (x @ w).softmax(-1).detach())
    return lambda: f(x)


@idiom
def result_to_numpy(T, s):
    model = s.weights(T.nn.Sequential(T.nn.Linear(6, 12), T.nn.ReLU(), T.nn.Linear(12, 2)))
    array = s.rng.standard_normal((5, 6)).astype("float32")
    predict = s.compile(lambda x: model(x))

    def call():
        with T.no_grad():
            return T.from_numpy(predict(T.from_numpy(array)).numpy())

    return call


@idiom
def result_to_a_number(T, s):
    a, b = pair(s, 8)
    f = s.compile(lambda a, b: (a * b).sum() / (a.norm() * b.norm()))
    return lambda: T.tensor(f(a, b).item())


@idiom
def number_from_inside(T, s):
    a, b = pair(s, 8)
    f = s.compile(lambda a, b: ((a - b) ** 2).mean().item())
    return lambda: T.tensor(f(a, b))


@idiom
def result_to_a_list(T, s):
    x = s.numbers(3, 5)
    f = s.compile(lambda x: x.argmax(dim=1))
    return lambda: T.tensor(f(x).tolist())


@idiom
def truth_as_a_result(T, s):
    a, b = pair(s, 6)
    f = s.compile(lambda a, b: bool((a < b).any()))
    return lambda: T.tensor(f(a, b))


@idiom
def result_of_one_is_given_to_the_next(T, s):
    a, b = pair(s, 3, 3)
    f, g = s.compile(lambda a, b: T.tanh(a) * b), s.compile(lambda a, b: T.exp(a) + b)
    return lambda: g(f(a, b), b)


@idiom
def result_used_eagerly(T, s):
    a, b = pair(s, 4, 4)
    f = s.compile(lambda a, b: T.tanh(a @ b))
    return lambda: f(a, b).sum() + 1


@idiom
def best_of_a_row(T, s):
    x = s.numbers(6, 9)
    f = s.compile(lambda x: tuple(x.max(dim=1)))
    return lambda: f(x)
