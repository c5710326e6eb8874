"""Hamiltonian Monte Carlo on a banana

`weft.value_and_grad` makes of a log-density on tensors a function of NumPy arrays, compiled, in float64. The sampler is
plain NumPy: 200 walkers move at once.
"""

import timeit

import matplotlib.pyplot as plt
import numpy as np

import weft


def log_density(x):
    """The sum over walkers of the log-density of a bent normal distribution."""
    bent = x[:, 1] - 0.5 * x[:, 0] ** 2
    return -0.5 * (x[:, 0] ** 2 + (bent / 0.5) ** 2).sum()


value_and_grad = weft.value_and_grad(log_density)
rng = np.random.default_rng(0)
walkers, kept, accepted = rng.normal(size=(200, 2)), [], []


def log_densities(x):
    return -0.5 * (x[:, 0] ** 2 + ((x[:, 1] - 0.5 * x[:, 0] ** 2) / 0.5) ** 2)


for sweep in range(60):
    x, momentum = walkers.copy(), rng.normal(size=walkers.shape)
    before = log_densities(x) - 0.5 * (momentum**2).sum(1)
    for _ in range(12):  # leapfrog
        momentum += 0.1 * value_and_grad(x)[1]
        x += 0.2 * momentum
        momentum += 0.1 * value_and_grad(x)[1]
    after = log_densities(x) - 0.5 * (momentum**2).sum(1)
    taken = np.log(rng.uniform(size=len(x))) < after - before
    walkers[taken] = x[taken]
    accepted.append(taken.mean())
    if sweep >= 10:
        kept.append(walkers.copy())

chains = np.stack(kept)
points = chains.reshape(-1, 2)
print(f"accepted {np.mean(accepted):.0%}, mean {points.mean(0).round(2)}, exact [0, 0.5]")

seconds = min(timeit.repeat(lambda: value_and_grad(walkers), number=100, repeat=30)) / 100
print(f"value and gradient of {len(walkers)} walkers, from NumPy to NumPy: {1e6 * seconds:.0f} us")

figure, (traces, plane) = plt.subplots(1, 2, figsize=(8.4, 3.6))
for k in range(4):
    traces.plot(chains[:, k, 0] - 6 * k, linewidth=1)
traces.set(xlabel="sweep", ylabel="x, one walker below the other", yticks=[], title="Four of 200 chains")
plane.plot(points[:, 0], points[:, 1], ".", markersize=1, alpha=0.4, rasterized=True)
plane.set(xlabel="x", ylabel="y", title=f"All {len(points):,} points")
