"""Sizes that a Python number says, another one in each call: prefixes, halves, loops of so many steps."""

import random

from .registry import idiom


def of_numbers(f, least=2, most=12):
    """A call with one of a few numbers, in any order."""
    rng = random.Random(5)
    return lambda: f(rng.randint(least, most))


@idiom
def first_rows(T, s):
    x = s.numbers(16, 4)
    return of_numbers(s.compile(lambda n: (x[:n] * 2).tanh().sum(1)))


@idiom
def rows_from_here_to_there(T, s):
    x = s.numbers(40)
    return of_numbers(s.compile(lambda n: (x[n : n + n] * 2).tanh().sum()))


@idiom
def split_at_a_number(T, s):
    x = s.numbers(16)
    return of_numbers(s.compile(lambda n: x[:n].mean() - x[n:].mean()))


@idiom
def numbers_up_to(T, s):
    return of_numbers(s.compile(lambda n: (T.arange(n) * 0.5).tanh().sum()))


@idiom
def running_sum_of_new_rows(T, s):
    return of_numbers(s.compile(lambda n: (T.zeros(n, 3) + 1).cumsum(0).sum()))


@idiom
def triangle_of_a_size(T, s):
    x = s.numbers(16, 16)
    return of_numbers(s.compile(lambda n: T.tril(T.ones(n, n)) @ x[:n]))


@idiom
def so_many_steps(T, s):
    x = s.numbers(6)

    @s.compile
    def f(n):
        h = x
        for _ in range(n):
            h = (h * 1.1).tanh()
        return h

    return of_numbers(f)


@idiom
def trained_on_a_prefix(T, s):
    x, w = s.numbers(12, 4), T.zeros(4, requires_grad=True)

    @s.compile
    def f(n):
        loss = (x[:n] @ w - 1).pow(2).mean()
        loss.backward()
        with T.no_grad():
            w.sub_(0.01 * w.grad)
        w.grad = None
        return loss

    return of_numbers(f)


@idiom
def mean_of_a_prefix_of_words(T, s):
    words = T.tensor([(7 * k + 3) % 10 for k in range(20)])
    table, out = s.weights(T.nn.Embedding(10, 8)), s.weights(T.nn.Linear(8, 10))

    @s.compile
    def f(n):
        with T.no_grad():
            return out(table(words[:n]).mean(0))

    return of_numbers(f)


@idiom
def attention_over_a_prefix(T, s):
    q, k, v = (s.numbers(24, 8) for _ in range(3))

    @s.compile
    def f(n):
        weights = (q[n - 1] @ k[:n].T / 8**0.5).softmax(-1)
        return weights @ v[:n]

    return of_numbers(f, 1, 20)
