"""The counts with the fitted peak and background"""

import matplotlib.pyplot as plt
import numpy as np
from fit_iminuit import centers, counts, fit, width

signal, mean, sigma, background, decay = fit.values
places = np.linspace(0, 10, 400)
below = background * np.exp(-places / decay) / decay * width
peak = signal * np.exp(-0.5 * ((places - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi)) * width

figure, axes = plt.subplots(figsize=(8, 3.6))
n = counts.numpy()
axes.errorbar(centers.numpy(), n, np.sqrt(n), fmt=".", color="black", markersize=4, linewidth=0.8, label="counts")
axes.plot(places, below + peak, label=f"fit, peak at {mean:.2f} ± {fit.errors['mean']:.2f}")
axes.plot(places, below, "--", label="background alone")
axes.set(
    xlabel="measured quantity (arbitrary units)", ylabel=f"events per {width:.1f} units", title="A peak on a background"
)
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
