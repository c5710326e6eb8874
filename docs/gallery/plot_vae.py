"""A variational autoencoder on drawn rings

Two-dimensional codes of small pictures of rings. The figure shows what the decoder makes of a grid of codes.
"""

import math

import matplotlib.pyplot as plt

import weft
from weft import nn

SIDE = 12
weft.manual_seed(0)
axis = weft.linspace(-1, 1, SIDE)
rows, columns = weft.meshgrid(axis, axis, indexing="ij")


def rings(n):
    """Rings of random radius and height."""
    radius = 0.3 + 0.5 * weft.rand(n, 1, 1)
    height = 0.8 * weft.rand(n, 1, 1) - 0.4
    distance = ((rows - height) ** 2 + columns**2).sqrt()
    return weft.exp(-(((distance - radius) / 0.15) ** 2)).reshape(n, -1)


encoder = nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.Tanh(), nn.Linear(64, 4))
decoder = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, SIDE * SIDE))
optimizer = weft.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)


@weft.compile
def step(x):
    optimizer.zero_grad()
    mean, log_variance = encoder(x).chunk(2, dim=1)
    code = mean + (0.5 * log_variance).exp() * weft.randn(mean.shape)
    misfit = nn.functional.binary_cross_entropy_with_logits(decoder(code), x, reduction="sum") / len(x)
    divergence = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(1).mean()
    loss = misfit + divergence
    loss.backward()
    optimizer.step()
    return loss


losses = [step(rings(64)).item() for _ in range(400)]
print(f"loss {losses[0]:.1f} -> {losses[-1]:.1f}")
assert math.isfinite(losses[-1])

figure, axes = plt.subplots(5, 5, figsize=(4.4, 4.8))
figure.suptitle("What codes from -2 to 2 decode to")
figure.supxlabel("second number of the code")
figure.supylabel("first number of the code")
with weft.no_grad():
    for k, code in enumerate(weft.cartesian_prod(weft.linspace(-2, 2, 5), weft.linspace(-2, 2, 5))):
        picture = decoder(code[None]).sigmoid().reshape(SIDE, SIDE)
        axes.flat[k].imshow(picture.numpy(), cmap="gray_r")
        axes.flat[k].axis("off")
