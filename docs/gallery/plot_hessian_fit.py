"""A fit by SciPy, with error bars from the exact Hessian

`weft.value_and_grad` feeds the optimizer, and `weft.hessian` gives the curvature at the minimum, whose inverse is the
covariance of the parameters.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import weft

rng = np.random.default_rng(0)
times = np.linspace(0, 6, 40)
true = np.array([2.0, 0.5, 3.0])
measured = true[0] * np.exp(-true[1] * times) * np.cos(true[2] * times) + 0.1 * rng.normal(size=times.size)
t, y = weft.tensor(times), weft.tensor(measured)


def model(p, t):
    return p[0] * weft.exp(-p[1] * t) * weft.cos(p[2] * t)


def half_chi_square(p):
    return 0.5 * (((model(p, t) - y) / 0.1) ** 2).sum()


found = minimize(weft.value_and_grad(half_chi_square), [1.5, 0.3, 2.8], jac=True, method="BFGS")
errors = np.sqrt(np.diag(np.linalg.inv(weft.hessian(half_chi_square)(found.x))))
for name, value, error, exact in zip(("amplitude", "decay", "frequency"), found.x, errors, true):
    print(f"{name:9} {value:.3f} +- {error:.3f}, true {exact}")
assert np.all(np.abs(found.x - true) < 5 * errors)

figure, axes = plt.subplots(figsize=(6.4, 3.2))
axes.errorbar(times, measured, 0.1, fmt=".", label="measured")
fine = np.linspace(0, 6, 300)
axes.plot(fine, model(weft.tensor(found.x), weft.tensor(fine)).numpy(), label="fit")
axes.set(xlabel="time (s)", ylabel="displacement (mm)", title="A damped oscillation")
axes.legend()
