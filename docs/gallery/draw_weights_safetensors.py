"""What the file holds, and what the encoder does with it"""

import matplotlib.pyplot as plt
from weights_safetensors import arrays, doubled, model

import weft

weft.manual_seed(1)
words = weft.randn(1, 10, 16)
with weft.no_grad():
    before, after = model(words)[0, :, 0].numpy(), doubled(words)[0, :, 0].numpy()

figure, (bars, lines) = plt.subplots(1, 2, figsize=(8.4, 3.8), width_ratios=[1, 1.2])
names = sorted(arrays, key=lambda name: arrays[name].size)
bars.barh(names, [arrays[name].size for name in names])
bars.set(xlabel="numbers of 32 bits", title="Arrays in the file")
bars.tick_params("y", labelsize=8)
lines.plot(before, "o-", label="the weights as saved")
lines.plot(after, "s--", label="twice the weights, from the other file")
lines.set(xlabel="place in the sequence", ylabel="first of 16 outputs", title="The encoder with both")
lines.set_ylim(top=4)
lines.legend(loc="upper left", fontsize=8)
