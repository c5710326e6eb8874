"""What the network knows at four times, beside the exact solution"""

import matplotlib.pyplot as plt
from pinn_heat import u

import weft

figure, axes = plt.subplots(figsize=(7, 3.6))
x = weft.linspace(0, 1, 60)[:, None]
for k, time in enumerate([0.0, 0.05, 0.1, 0.2]):
    with weft.no_grad():
        found = u(x, weft.full_like(x, time))
    exact = weft.exp(weft.tensor(-(weft.pi**2) * time)) * weft.sin(weft.pi * x)
    axes.plot(x.numpy(), exact.numpy(), color="0.75", linewidth=4, label=None if k else "exact")
    axes.plot(x.numpy(), found.numpy(), color=f"C{k}", label=f"network, t = {time:g}")
axes.set(xlabel="place x (length of the rod = 1)", ylabel="temperature u (start = 1)", title="A rod that cools")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
