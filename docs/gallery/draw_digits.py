"""Both loss curves, which are one, and some digits of the test set"""

import matplotlib.pyplot as plt
from digits import compare, load

digits = load()
compared, probabilities = compare(digits, epochs=12, output="weft-demo.html")
found, true = probabilities.argmax(1), digits.test_classes.numpy()

figure = plt.figure(figsize=(8.4, 5), layout="constrained")
curves, images = figure.subfigures(2, 1, height_ratios=[1.5, 1])
axes = curves.subplots()
axes.plot(compared.eager.losses, linewidth=4, color="0.75", label="eager")
axes.plot(compared.compiled.losses, linewidth=1, label="compiled: equal bit for bit")
axes.set(xlabel="training step", ylabel="cross entropy (nats)", title="Learning handwritten digits", yscale="log")
axes.legend()
chosen = sorted(range(len(true)), key=lambda k: (found[k] == true[k], k))[:10]
for place, k in zip(images.subplots(1, 10), chosen):
    place.imshow(digits.test_images[k].numpy().reshape(8, 8), cmap="gray_r")
    place.set_title(f"{found[k]}" if found[k] == true[k] else f"{found[k]}, is {true[k]}", fontsize=9)
    place.axis("off")
