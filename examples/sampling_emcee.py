"""Posterior of a straight line with outliers, sampled by emcee: python examples/sampling_emcee.py

emcee moves many walkers at once and asks for the log density of all of them: `weft.for_numpy` makes that a compiled
function of arrays.
"""

import emcee
import numpy as np

import weft

rng = np.random.default_rng(1)
positions = rng.uniform(0, 10, 40)
values = 2.0 * positions + 1.0 + rng.normal(0, 0.5, 40)
values[::10] += 15.0  # outliers
x, y = weft.tensor(positions), weft.tensor(values)


@weft.for_numpy
def log_density(walkers: weft.Tensor) -> weft.Tensor:
    """Of shape (walkers,), for slopes, intercepts and logarithms of the scale. Student's t forgives outliers."""
    slope, intercept, log_scale = (walkers[:, k : k + 1] for k in range(3))
    residuals = (y - slope * x - intercept) / log_scale.exp()
    log_likelihood = (-1.5 * (1 + residuals**2 / 2).log() - log_scale).sum(1)
    return log_likelihood - (walkers**2).sum(1) / 200


start = np.array([1.0, 0.0, 0.0]) + 0.1 * rng.normal(size=(32, 3))
sampler = emcee.EnsembleSampler(32, 3, log_density, vectorize=True)
sampler.random_state = np.random.RandomState(2).get_state()
sampler.run_mcmc(start, 800)
chain = np.asarray(sampler.get_chain(discard=300, flat=True))
print("slope    ", f"{chain[:, 0].mean():.2f} +- {chain[:, 0].std():.2f}")
print("intercept", f"{chain[:, 1].mean():.2f} +- {chain[:, 1].std():.2f}")
print("accepted ", f"{sampler.acceptance_fraction.mean():.2f} of {800 * 32} proposals")
