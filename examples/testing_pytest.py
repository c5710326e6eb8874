"""Tests of a model, with weft's plugin for pytest: python examples/testing_pytest.py

The plugin comes with weft: it seeds every test by its name, `--weft-eager` runs compiled functions as the Python they
are, and a marker asks that a compiled function never leaves its program.
"""

import sys

import pytest

import weft
from weft import Tensor, nn
from weft.testing import assert_close, gradcheck


class Rotation(nn.Module):
    """Turns points of the plane by an angle that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.angle = nn.Parameter(weft.tensor(0.3))

    def forward(self, points: Tensor) -> Tensor:
        cos, sin = self.angle.cos(), self.angle.sin()
        return points @ weft.stack([weft.stack([cos, sin]), weft.stack([-sin, cos])])


@pytest.mark.parametrize("n", [1, 5])
def test_lengths_stay(n: int) -> None:
    points = weft.randn(n, 2)
    assert_close(Rotation()(points).norm(dim=1), points.norm(dim=1))


def test_derivatives() -> None:
    points = weft.randn(3, 2, dtype=weft.float64, requires_grad=True)
    assert gradcheck(Rotation().double(), (points,))


@pytest.mark.weft_no_breaks
def test_a_step_is_one_program_and_learns() -> None:
    model, points = Rotation(), weft.randn(20, 2)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.2)

    @weft.compile
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(points, points) for _ in range(30)]
    assert losses[-1] < 1e-3 * losses[0]


if __name__ == "__main__":
    # By this name once, however pytest found the plugin.
    sys.exit(pytest.main([__file__, "--disable-warnings", "-p", "weft.pytest_plugin", *sys.argv[1:]]))
