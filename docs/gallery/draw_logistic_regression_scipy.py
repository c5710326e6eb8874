"""Estimates with their standard errors, beside the truth"""

import matplotlib.pyplot as plt
import numpy as np
from logistic_regression_scipy import found, information, true

errors = np.sqrt(np.diag(np.linalg.inv(information)))
figure, axes = plt.subplots(figsize=(6.4, 3.2))
axes.errorbar(found.x, range(4), xerr=2 * errors, fmt="o", capsize=4, label="found, ± 2 standard errors")
axes.plot(true, range(4), "x", color="black", markersize=9, label="true")
axes.set(xlabel="coefficient (log odds per unit of the input)", title="Four coefficients of a logistic regression")
axes.set_yticks(range(4), ["first input", "second input", "third input", "intercept"])
axes.invert_yaxis()
axes.legend(loc="lower left")
