"""Maximum likelihood in double precision with SciPy's optimiser: python examples/logistic_regression_scipy.py

SciPy wants a function from a vector of parameters to a value and its gradient. The value is a float64 likelihood,
the gradient comes from autograd, and both are computed by compiled programs.
"""

import numpy as np
from scipy.optimize import minimize

import weft

rng = np.random.default_rng(0)
true = np.array([1.5, -2.0, 0.7, 0.0])
inputs = np.hstack([rng.normal(size=(2000, 3)), np.ones((2000, 1))])
labels = (rng.uniform(size=2000) < 1 / (1 + np.exp(-inputs @ true))).astype(np.float64)
X, y = weft.from_numpy(inputs), weft.from_numpy(labels)


@weft.compile
def negative_log_likelihood(beta):
    return weft.nn.functional.binary_cross_entropy_with_logits(X @ beta, y, reduction="sum")


def value_and_grad(beta):
    beta = weft.tensor(beta, requires_grad=True)
    value = negative_log_likelihood(beta)
    value.backward()
    return value.item(), beta.grad.numpy()


found = minimize(value_and_grad, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-8})
print("true    ", true)
print("found   ", found.x.round(3))
print("gradient", f"{np.abs(found.jac).max():.1e}", "after", found.nfev, "evaluations")
