"""Prices of options and their derivatives (greeks) in float64: divisions, exp, log and erf decide.

F. Black and M. Scholes, The Pricing of Options and Corporate Liabilities, Journal of Political Economy 81 (1973).
"""

import math

import numpy as np

from ..workload import Gradient

OPTIONS = 1 << 17


def arrays():
    between = np.random.default_rng(0).uniform
    return {
        "spot": between(80, 120, OPTIONS),
        "volatility": between(0.1, 0.5, OPTIONS),
        "rate": between(0.0, 0.1, OPTIONS),
        "years": between(0.2, 3.0, OPTIONS),
        "strike": between(80, 120, OPTIONS),
    }


def _price(exp, log, sqrt, erf, spot, volatility, rate, years, strike):
    spread = volatility * sqrt(years)
    up = (log(spot / strike) + (rate + volatility * volatility / 2) * years) / spread
    below, beyond = (0.5 * (1 + erf(x / math.sqrt(2))) for x in (up, up - spread))
    return spot * below - strike * exp(-rate * years) * beyond


def black_scholes(library, *of_options):
    return _price(library.exp, library.log, library.sqrt, library.erf, *of_options).sum()


def jax_black_scholes(jax, *of_options):
    numpy = jax.numpy
    return _price(numpy.exp, numpy.log, numpy.sqrt, jax.scipy.special.erf, *of_options).sum()


BLACK_SCHOLES = Gradient(
    "black_scholes",
    f"{OPTIONS} calls in float64, and delta, vega, rho and theta",
    arrays,
    ("spot", "volatility", "rate", "years"),
    black_scholes,
    jax_black_scholes,
)
