"""A small convolutional net that tells crosses from circles

Two convolutions and pooling on pictures of 12 by 12, drawn with noise.
"""

import matplotlib.pyplot as plt

import weft
from weft import nn

SIDE = 12
weft.manual_seed(0)
axis = weft.linspace(-1, 1, SIDE)
rows, columns = weft.meshgrid(axis, axis, indexing="ij")


def pictures(n):
    """(pictures, 1 where there is a circle)."""
    labels = weft.randint(0, 2, (n,))
    size = 0.4 + 0.4 * weft.rand(n, 1, 1)
    circle = ((rows**2 + columns**2).sqrt() - size).abs() < 0.15
    cross = ((rows - columns).abs() < 0.2) | ((rows + columns).abs() < 0.2)
    inside = (rows.abs() < size) & (columns.abs() < size)
    drawn = weft.where(labels[:, None, None] == 1, circle.float(), (cross & inside).float())
    return (drawn + 0.3 * weft.randn(n, SIDE, SIDE))[:, None], labels


model = nn.Sequential(
    *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(16 * 9, 2)),
)
optimizer = weft.optim.Adam(model.parameters(), lr=3e-3)


@weft.compile
def step(x, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss


losses = [step(*pictures(32)).item() for _ in range(60)]
x, labels = pictures(200)
with weft.no_grad():
    found = model(x).argmax(1)
print(f"right: {(found == labels).float().mean().item():.0%} of 200 new pictures")

figure, axes = plt.subplots(2, 6, figsize=(7, 3))
figure.suptitle("New pictures, and what the net takes them for")
for k, place in enumerate(axes.flat):
    place.imshow(x[k, 0].numpy(), cmap="gray_r")
    place.set_title("circle" if found[k] else "cross", fontsize=9)
    place.axis("off")
