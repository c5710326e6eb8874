"""Eight of the walkers, and lines drawn from the posterior"""

import matplotlib.pyplot as plt
import numpy as np
from sampling_emcee import chain, positions, sampler, values

figure, (trace, lines) = plt.subplots(1, 2, figsize=(8, 3.4))
trace.plot(np.asarray(sampler.get_chain())[:, ::4, 0], linewidth=0.6)
trace.axvline(300, color="black", linestyle=":")
trace.set(xlabel="step of the chain", ylabel="slope", title="Walkers; kept from the dotted line on")

ends = np.array([0.0, 10.0])
for slope, intercept, _ in chain[:: len(chain) // 60]:
    lines.plot(ends, slope * ends + intercept, color="C1", alpha=0.15, linewidth=1)
lines.plot(positions, values, ".", color="C0", label="measured, every tenth an outlier")
lines.plot([], [], color="C1", label="drawn from the posterior")
lines.set(xlabel="x", ylabel="y", title="Outliers do not bend the line")
lines.set_ylim(top=48)
lines.legend(loc="upper left", fontsize=8)
