"""Python in a compiled function: conditions, loops, checks, calls of other functions."""

from .registry import idiom


@idiom
def condition_on_data(T, s):
    a, b = s.numbers(3, 3), s.numbers(3, 3)

    @s.compile
    def f(a, b):
        c = a * b
        if c.sum() > 0:
            return c + 1
        return c - 1

    return lambda: f(a, b)


@idiom
def condition_with_both_outcomes(T, s):
    batches, k = [s.numbers(4) + shift for shift in (3, -3)], [0]

    @s.compile
    def f(x):
        if x.mean() > 0:
            return x.sqrt()
        return x.abs().log()

    def call():
        k[0] ^= 1
        return f(batches[k[0]].abs() if k[0] == 0 else batches[k[0]])

    return call


@idiom
def until_converged(T, s):
    x = T.full((3,), 2.0)

    @s.compile
    def root(x):
        y = T.ones(3)
        for _ in range(20):
            better = (y + x / y) / 2
            if (better - y).abs().max() < 1e-6:
                break
            y = better
        return y

    return lambda: root(x)


@idiom
def number_read_in_the_middle(T, s):
    a, b, seen = s.numbers(3, 3), s.numbers(3, 3), [0.0]

    @s.compile
    def f(a, b):
        c = (a * b).sum()
        seen[0] = c.item()
        return a * c

    return lambda: f(a, b)


@idiom
def check_for_bad_numbers(T, s):
    x, w = s.numbers(4, 6), s.numbers(6, 3)

    @s.compile
    def f(x):
        out = x @ w
        assert T.isfinite(out).all(), "bad numbers"
        return out.softmax(-1)

    return lambda: f(x)


@idiom
def check_of_shapes(T, s):
    x, w = s.numbers(4, 6), s.numbers(6, 3)

    @s.compile
    def f(x):
        if x.ndim != 2 or x.shape[-1] != w.shape[0] or x.dtype != w.dtype:
            raise ValueError(f"expected (n, {w.shape[0]}), got {tuple(x.shape)}")
        return x @ w

    return lambda: f(x)


@idiom
def questions_about_layout(T, s):
    x = s.numbers(2, 3, 8)

    @s.compile
    def heads(x):
        b, n, c = x.size()
        y = x.view(b, n, 2, c // 2).transpose(1, 2)
        y = y if y.is_contiguous() else y.contiguous()
        return (y @ y.transpose(-2, -1)).transpose(1, 2).contiguous().view(b, n, -1)

    return lambda: heads(x)


@idiom
def list_of_layers(T, s):
    weights, x = [s.numbers(5, 5, scale=0.4) for _ in range(6)], s.numbers(3, 5)

    @s.compile
    def f(x):
        for k, w in enumerate(weights):
            x = x + T.tanh(x @ w) if k % 2 else T.relu(x @ w)
        return x

    return lambda: f(x)


@idiom
def recursion(T, s):
    leaves, w = [s.numbers(4) for _ in range(8)], s.numbers(8, 4, scale=0.4)

    def merged(nodes):
        if len(nodes) == 1:
            return nodes[0]
        half = len(nodes) // 2
        return T.tanh(T.cat([merged(nodes[:half]), merged(nodes[half:])]) @ w)

    f = s.compile(lambda leaves: merged(leaves))
    return lambda: f(leaves)


@idiom
def compiled_in_compiled(T, s):
    a, b = s.numbers(3, 3), s.numbers(3, 3)
    inner = s.compile(lambda a, b: T.tanh(a) * b)
    f = s.compile(lambda a, b: inner(a, b) + inner(b, a))
    return lambda: f(a, b)


@idiom
def comprehension_over_rows(T, s):
    x = s.numbers(6, 4)
    f = s.compile(lambda x: T.stack([row / row.norm() for row in x]))
    return lambda: f(x)


@idiom
def state_of_a_generator(T, s):
    x = s.numbers(4)

    def powers(x):
        term = T.ones(4)
        while True:
            yield term
            term = term * x

    f = s.compile(lambda x: sum(c * p for c, p in zip((1.0, 0.5, 0.25, 0.125), powers(x))))
    return lambda: f(x)


@idiom
def functions_in_a_table(T, s):
    x, k = s.numbers(4, 4), [0]
    table = {"relu": T.relu, "tanh": T.tanh, "gelu": T.nn.functional.gelu, "square": T.square}
    f = s.compile(lambda x, kind: table[kind](x) * 2)

    def call():
        k[0] = (k[0] + 1) % 4
        return f(x, list(table)[k[0]])

    return call


@idiom
def rejected_and_tried_again(T, s):
    x = s.numbers(6) + 3

    @s.compile
    def f(x):
        try:
            return x @ x[:-1]
        except RuntimeError:
            return x @ x

    return lambda: f(x)


@idiom
def backtracking(T, s):
    x = s.numbers(5)

    def value(x):
        return ((x - 1) ** 2).sum() + (x**4).sum()

    @s.compile
    def line_search(x):
        direction, rate = -2 * (x - 1) - 4 * x**3, 1.0
        while value(x + rate * direction) > value(x):
            rate /= 2
        return x + rate * direction

    return lambda: line_search(x)


@idiom
def attribute_that_changes(T, s):
    class Options:
        temperature = 1.0

    scores, k = s.numbers(3, 5), [0]
    f = s.compile(lambda scores: (scores / Options.temperature).softmax(-1))

    def call():
        k[0] += 1
        Options.temperature = 1.0 + 0.1 * (k[0] % 5)
        return f(scores)

    return call
