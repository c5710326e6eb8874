"""Functions that optimizers, fits and samplers of other libraries call: arrays or numbers come in, and go out."""

import itertools
import math
import random

import numpy as np

from .registry import idiom


def arrays(s, count, *shape):
    return itertools.cycle([s.rng.standard_normal(shape) for _ in range(count)])


@idiom
def model_of_a_curve_fit(T, s):
    times, given = np.linspace(0, 1, 20), arrays(s, 7, 3)

    @s.compile
    def model(t, a, b, c):
        t = T.from_numpy(t)
        return (a * T.exp(-b * t) + c).numpy()

    return lambda: T.from_numpy(model(times, *map(float, next(given))))


@idiom
def value_and_gradient_for_minimize(T, s):
    x, y, given = s.numbers(12, 3).double(), s.numbers(12).double(), arrays(s, 5, 3)

    @s.compile
    def value_and_gradient(w):
        w = T.tensor(w, requires_grad=True)
        loss = ((x @ w - y) ** 2).sum() + 0.1 * w.abs().sum()
        loss.backward()
        return loss.item(), w.grad.numpy()

    def call():
        value, gradient = value_and_gradient(next(given))
        return T.tensor(value), T.from_numpy(gradient)

    return call


@idiom
def log_probability_with_a_prior(T, s):
    x, y, error, given = s.numbers(15), s.numbers(15), s.numbers(15).abs() + 0.1, arrays(s, 6, 3)

    def prior(theta):
        slope, _, spread = theta
        return 0.0 if -2.0 < slope < 2.0 and -10.0 < spread < 1.0 else -math.inf

    @s.compile
    def log_probability(theta):
        if not math.isfinite(found := prior(theta)):
            return -math.inf
        slope, shift, spread = theta
        model = slope * x + shift
        variance = error**2 + model**2 * math.exp(2 * spread)
        return found + (-0.5 * ((y - model) ** 2 / variance + T.log(variance)).sum()).item()

    return lambda: T.tensor(math.exp(log_probability(next(given))))


@idiom
def greeks_of_an_option(T, s):
    given = arrays(s, 4, 4)

    @s.compile
    def greeks(spot, strike, spread, t):
        spot, spread = (T.tensor(v, dtype=T.float64, requires_grad=True) for v in (spot, spread))
        d = (T.log(spot / strike) + spread**2 / 2 * t) / (spread * t**0.5)
        price = spot * T.special.ndtr(d) - strike * T.special.ndtr(d - spread * t**0.5)
        return [float(g) for g in T.autograd.grad(price, (spot, spread))]

    return lambda: T.tensor(greeks(*map(float, np.exp(next(given)))))


@idiom
def gradients_of_what_may_be_unused(T, s):
    a, b, c = s.parameter(3), s.parameter(3), s.parameter(3)
    x, count = itertools.cycle([s.numbers(3) for _ in range(3)]), itertools.count()

    @s.compile
    def gradients(x, uses_last):
        loss = (a * x).sum() ** 2 + (b * x).sum()
        if uses_last:
            loss = loss + c.pow(2).sum()
        return [T.zeros(3) if g is None else g for g in T.autograd.grad(loss, (a, b, c), allow_unused=True)]

    return lambda: gradients(next(x), next(count) % 2 == 0)


@idiom
def bisection_by_values(T, s):
    x = itertools.cycle([s.numbers(4) for _ in range(3)])

    @s.compile
    def middle(x):
        low, high = -10.0, 10.0
        for _ in range(8):
            found = (low + high) / 2
            if T.tanh(x - found).sum().item() > 0:
                low = found
            else:
                high = found
        return T.tensor(found)

    return lambda: middle(next(x))


@idiom
def factor_with_more_on_the_diagonal(T, s):
    x = [s.numbers(3, 3) for _ in range(3)]
    given = itertools.cycle([a @ a.T + 0.1 * T.eye(3) for a in x])

    @s.compile
    def factor(k):
        jitter = 1e-3
        for _ in range(3):
            try:
                return T.linalg.cholesky(k + jitter * T.eye(3))
            except RuntimeError:
                jitter *= 10
        return T.eye(3)

    return lambda: factor(next(given))


@idiom
def turned_and_scaled_by_chance(T, s):
    chance, x = random.Random(3), itertools.cycle([s.numbers(5) for _ in range(3)])

    @s.compile
    def augmented(x):
        if chance.random() < 0.5:
            x = x.flip(0)
        return x * chance.uniform(0.8, 1.2)

    return lambda: augmented(next(x))


@idiom
def end_told_by_an_exception(T, s):
    class Done(Exception):
        pass

    x, count = itertools.cycle([s.numbers(4) for _ in range(4)]), itertools.count(1)

    @s.compile
    def advance(x, k):
        y = T.tanh(x)
        if k % 4 == 0:
            raise Done(y)
        return y.sum()

    def call():
        try:
            return advance(next(x), next(count))
        except Done as done:
            return done.args[0]

    return call
