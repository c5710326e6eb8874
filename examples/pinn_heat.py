"""The heat equation u_t = u_xx by a network that knows only the equation: python examples/pinn_heat.py

Its second derivative for x is a gradient of a gradient; the loss is differentiated a third time, for the weights. All
of a training step is one compiled program. Initial and boundary values hold by construction.
"""

import numpy as np

import weft
from weft import Tensor, nn
from weft.autograd import grad

weft.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = weft.optim.Adam(net.parameters(), lr=0.01)
schedule = weft.optim.lr_scheduler.ExponentialLR(optimizer, 0.9985)


def u(x: Tensor, t: Tensor) -> Tensor:
    """sin(pi x) at t = 0, and 0 at x = 0 and x = 1. The network is given numbers between -1 and 1."""
    shape = weft.sin(weft.pi * x)
    return shape + 10 * t * x * (1 - x) * net(weft.cat([2 * x - 1, 10 * t - 1], 1))


@weft.compile
def step(x: Tensor, t: Tensor) -> Tensor:
    optimizer.zero_grad()
    value = u(x, t)
    u_x, u_t = grad(value.sum(), (x, t), create_graph=True)
    (u_xx,) = grad(u_x.sum(), x, create_graph=True)
    loss = ((u_t - u_xx) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


rng, loss = np.random.default_rng(0), weft.zeros(())
for _ in range(2000):
    points = rng.uniform(size=(2, 128, 1)).astype(np.float32)
    x, t = weft.tensor(points[0], requires_grad=True), weft.tensor(0.2 * points[1], requires_grad=True)
    loss = step(x, t)
    schedule.step()

places, times = weft.linspace(0, 1, 51), weft.linspace(0, 0.2, 41)
x, t = (grid.reshape(-1, 1) for grid in weft.meshgrid(places, times, indexing="ij"))
with weft.no_grad():
    found = u(x, t)
exact = weft.exp(-(weft.pi**2) * t) * weft.sin(weft.pi * x)
print("residual     ", f"{loss.item():.1e}")
print("largest error", f"{(found - exact).abs().max().item():.4f}", "of", f"{exact.max().item():.3f}")
