"""A barrier option by Monte Carlo, and its sensitivities in one backward pass: python examples/greeks_monte_carlo.py

A down-and-out call under Black and Scholes' model. The barrier is watched at every step; between two steps the path is
a Brownian bridge, whose probability of not touching the barrier is known and smooth, so derivatives along paths are
those of the expectation.
"""

from math import erf, exp, log, sqrt

import numpy as np

import weft

STRIKE, BARRIER, YEARS, N_STEPS, N_PATHS = 100.0, 85.0, 1.0, 16, 200_000
draws = weft.tensor(np.random.default_rng(0).normal(size=(N_STEPS, N_PATHS // 2)))
draws = weft.cat([draws, -draws], 1)
draws = draws / draws.std(1, keepdim=True)  # their first two moments are exact


def price(market: weft.Tensor) -> weft.Tensor:
    spot, volatility, rate = market
    dt = YEARS / N_STEPS
    steps = (rate - 0.5 * volatility**2) * dt + volatility * dt**0.5 * draws
    above = weft.cat([weft.zeros(1, N_PATHS, dtype=weft.float64), steps.cumsum(0)]) + (spot / BARRIER).log()
    touches = weft.exp(-2 * above[:-1] * above[1:] / (volatility**2 * dt))
    survives = weft.where((above[:-1] > 0) & (above[1:] > 0), 1 - touches, 0.0).prod(0)
    payoff = weft.relu(BARRIER * above[-1].exp() - STRIKE)
    return (-rate * YEARS).exp() * (survives * payoff).mean()


def exact(spot: float, volatility: float, rate: float) -> float:
    """Reiner and Rubinstein's formula, with the barrier below the strike."""

    def call(s: float) -> float:
        d = (log(s / STRIKE) + (rate + volatility**2 / 2) * YEARS) / (volatility * sqrt(YEARS))
        cdf = [0.5 * (1 + erf(x / sqrt(2))) for x in (d, d - volatility * sqrt(YEARS))]
        return s * cdf[0] - STRIKE * exp(-rate * YEARS) * cdf[1]

    mirrored: float = (spot / BARRIER) ** (1 - 2 * rate / volatility**2) * call(BARRIER**2 / spot)
    return call(spot) - mirrored


market = np.array([100.0, 0.25, 0.03])
value, greeks = weft.value_and_grad(price)(market)
print("          found    exact")
print(f"price {value:9.4f}{exact(*market):9.4f}")
for k, name in enumerate(["delta", "vega", "rho"]):
    h = np.zeros(3)
    h[k] = 1e-5
    print(f"{name:<6}{greeks[k]:9.4f}{(exact(*(market + h)) - exact(*(market - h))) / 2e-5:9.4f}")
