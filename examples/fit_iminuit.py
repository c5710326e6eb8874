"""A peak on a background, fitted by iminuit with exact gradients: python examples/fit_iminuit.py

Minuit asks for the value and for the gradient of a function of an array; both come from tensors.
"""

from math import pi, sqrt

import numpy as np
from iminuit import Minuit

import weft

rng = np.random.default_rng(0)
edges = np.linspace(0, 10, 51)
events = np.concatenate([rng.normal(6.0, 0.4, 400), rng.exponential(4.0, 1500)])
counts = weft.tensor(np.histogram(events, edges)[0].astype(float))
centers, width = weft.tensor((edges[1:] + edges[:-1]) / 2), float(edges[1] - edges[0])


def minus_two_log_likelihood(p: weft.Tensor) -> weft.Tensor:
    """Of Poisson counts; p: signal, mean, width, background, decay length."""
    signal, mean, sigma, background, decay = p
    peak = signal * (-0.5 * ((centers - mean) / sigma) ** 2).exp() / (sigma * sqrt(2 * pi))
    expected = (peak + background * (-centers / decay).exp() / decay) * width
    return 2 * (expected - counts * expected.log()).sum()


names = ["signal", "mean", "sigma", "background", "decay"]
fit = Minuit(
    weft.for_numpy(minus_two_log_likelihood),
    np.array([300.0, 5.5, 0.5, 1000.0, 3.0]),
    grad=weft.grad(minus_two_log_likelihood),
    name=names,
)
fit.errordef = Minuit.LIKELIHOOD * 2
fit.limits["sigma"] = (0.05, 5)
fit.migrad()
print("valid" if fit.valid else "not valid", f"after {fit.nfcn} values and {fit.ngrad} gradients")
for name in names:
    print(f"{name:<11}{fit.values[name]:9.2f} +- {fit.errors[name]:.2f}")
