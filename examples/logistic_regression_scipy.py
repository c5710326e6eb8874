"""Maximum likelihood in double precision with SciPy's optimiser: python examples/logistic_regression_scipy.py

SciPy wants a function from a vector of parameters to a value and its gradient, as arrays: that is what
`weft.value_and_grad` makes of a function of tensors. The standard errors come from the matrix of second derivatives.
"""

import numpy as np
from scipy.optimize import minimize

import weft

rng = np.random.default_rng(0)
true = np.array([1.5, -2.0, 0.7, 0.0])
inputs = np.hstack([rng.normal(size=(2000, 3)), np.ones((2000, 1))])
labels = (rng.uniform(size=2000) < 1 / (1 + np.exp(-inputs @ true))).astype(np.float64)
X, y = weft.tensor(inputs), weft.tensor(labels)


def negative_log_likelihood(beta: weft.Tensor) -> weft.Tensor:
    return weft.nn.functional.binary_cross_entropy_with_logits(X @ beta, y, reduction="sum")


value_and_grad = weft.value_and_grad(negative_log_likelihood)
found = minimize(value_and_grad, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-8})
information = weft.hessian(negative_log_likelihood)(found.x)
print("true    ", true)
print("found   ", found.x.round(3))
print("errors  ", np.sqrt(np.diag(np.linalg.inv(information))).round(3))
print("gradient", f"{np.abs(found.jac).max():.1e}", "after", found.nfev, "evaluations")
