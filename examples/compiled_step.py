"""One decorator on a training step, the same numbers as without it: python examples/compiled_step.py"""

import weft
from weft import nn


def train(wrap):
    """Ten steps of a small regression; the losses."""
    weft.manual_seed(0)
    x = weft.randn(256, 8)
    y = (x[:, :1] * x[:, 1:2]).sin()
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02)

    @wrap
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return [step(x, y).item() for _ in range(10)], step


eager, _ = train(lambda step: step)
compiled, step = train(weft.compile)
print("losses ", " ".join(f"{loss:.4f}" for loss in compiled))
print("the same as eager:", eager == compiled)
print(step.explain())
