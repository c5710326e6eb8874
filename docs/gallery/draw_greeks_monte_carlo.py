"""Price and delta for other prices of the share, beside the exact formula"""

import matplotlib.pyplot as plt
import numpy as np
from greeks_monte_carlo import BARRIER, exact, price

import weft

value_and_grad = weft.value_and_grad(price)
spots = np.linspace(86, 125, 9)
found = [value_and_grad(np.array([spot, 0.25, 0.03])) for spot in spots]
fine, h = np.linspace(BARRIER, 126, 200), 1e-4
prices = [exact(spot, 0.25, 0.03) for spot in fine]
deltas = [(exact(spot + h, 0.25, 0.03) - exact(spot - h, 0.25, 0.03)) / (2 * h) for spot in fine]

figure, panels = plt.subplots(1, 2, figsize=(8, 3.4))
curves = [(prices, [value for value, _ in found]), (deltas, [greeks[0] for _, greeks in found])]
for axes, (line, points), name in zip(panels, curves, ["price of the option", "delta (price per price of the share)"]):
    axes.plot(fine, line, color="0.6", label="exact")
    axes.plot(spots, points, "o", markersize=5, label="200,000 paths")
    axes.axvline(BARRIER, color="C3", linestyle=":", label="barrier")
    axes.set(xlabel="price of the share", ylabel=name)
    axes.legend()
figure.suptitle("A down-and-out call: value and derivative along the same paths")
