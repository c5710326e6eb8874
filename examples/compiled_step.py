"""One decorator on a training step, the same numbers as without it: python examples/compiled_step.py"""

from collections.abc import Callable

import weft
from weft import Tensor, nn

weft.manual_seed(0)
x = weft.randn(256, 8)
y = (x[:, :1] * x[:, 1:2]).sin()


def new_step() -> Callable[[Tensor, Tensor], Tensor]:
    """One step of training a small network, which is the same one every time."""
    weft.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


eager, compiled = new_step(), weft.compile(new_step())  # @weft.compile, written as a call
eager_losses = [eager(x, y).item() for _ in range(10)]
losses = [compiled(x, y).item() for _ in range(10)]
print("losses ", " ".join(f"{loss:.4f}" for loss in losses))
print("the same as eager:", losses == eager_losses)
print(compiled.explain())
