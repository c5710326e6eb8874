"""What checkers find out about modules, optimizers, derivatives and compiled functions: see tensors.py."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import weft
from weft import Tensor, nn
from weft.nn import functional as F
from weft.utils.data import DataLoader, TensorDataset

x, y = weft.randn(64, 8), weft.zeros(64, 1)


# compiled functions keep their parameters and results
@weft.compile
def loss_of(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    return scale * ((x - y) ** 2).mean()


@weft.compile(fullgraph=True)
def parts(x: Tensor) -> tuple[Tensor, int]:
    return x.exp(), 3


assert_type(loss_of(x, y, scale=2.0), Tensor)
assert_type(parts(x), tuple[Tensor, int])
assert_type(loss_of.explain(verbose=True), str)
assert_type(loss_of.__name__, str)
loss_of(x)  # type: ignore[call-arg]
loss_of(x, y, scale="2")  # type: ignore[arg-type]
parts(x, y)  # type: ignore[call-arg]
loss_of.no_such_attribute  # type: ignore[attr-defined]
weft.compile(3)  # type: ignore[call-overload]


# so do methods, and modules stay modules
class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(8, width)
        self.last = nn.Sequential(nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.linear(x))

    @weft.compile
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self(x), y)

    @weft.no_grad()
    def predict(self, x: Tensor) -> NDArray[Any]:
        found: Tensor = self(x)
        return found.numpy()


model = Model(16)
assert_type(model.loss(x, y), Tensor)
assert_type(model.predict(x), NDArray[Any])
assert_type(model.linear, nn.Linear)
assert_type(model.linear(x), Tensor)
assert_type(nn.Sequential(nn.Linear(8, 4), nn.ReLU())(x), Tensor)
assert_type(nn.MSELoss()(x, y), Tensor)
assert_type(model.parameters(), Iterator[nn.Parameter])
assert_type(model.train().eval().to(weft.float64), Model)
assert_type(model.state_dict(), dict[str, Any])
assert_type(nn.LSTM(8, 4)(x)[0], Tensor)
assert_type(nn.Embedding.from_pretrained(x), nn.Embedding)
assert_type(F.relu(x), Tensor)
for name, parameter in model.named_parameters():
    assert_type((name, parameter), tuple[str, nn.Parameter])
compiled = weft.compile(model)
compiled(x)
compiled.state_dict()
model.loss(x)  # type: ignore[call-arg]
model.linear("x")  # type: ignore[arg-type]
nn.Linear(8)  # type: ignore[call-arg]
nn.Linear("8", 4)  # type: ignore[arg-type]
nn.Sequential(3)  # type: ignore[call-overload]
nn.NoSuchLayer()  # type: ignore[attr-defined]
F.relu(3)  # type: ignore[arg-type]

# optimizers and schedules
optimizer = weft.optim.Adam(model.parameters(), lr=0.02, betas=(0.9, 0.99))
weft.optim.SGD([{"params": model.linear.parameters(), "lr": 0.1}, {"params": [x]}], lr=0.01)
schedule = weft.optim.lr_scheduler.StepLR(optimizer, step_size=10)
optimizer.zero_grad()
optimizer.step()
optimizer.step(lambda: loss_of(x, y))
schedule.step()
assert_type(optimizer.param_groups[0], dict[str, Any])
assert_type(schedule.get_last_lr(), list[float])
weft.optim.Adam(3.0)  # type: ignore[arg-type]
weft.optim.lr_scheduler.StepLR(model, 10)  # type: ignore[arg-type]
optimizer.stepp()  # type: ignore[attr-defined]


# modes, as blocks and as decorators with and without parentheses
@weft.no_grad
def count(x: Tensor) -> int:
    return x.numel()


@weft.inference_mode()
def double(x: Tensor) -> Tensor:
    return 2 * x


with weft.no_grad(), weft.set_grad_enabled(True), weft.autocast("cpu"):
    assert_type(count(x), int)
assert_type(double(x), Tensor)
count("x")  # type: ignore[arg-type]
double()  # type: ignore[call-arg]

# derivatives, of tensors and of arrays
x.backward()
assert_type(weft.autograd.grad(x.sum(), [x]), tuple[Tensor, ...])
(first,) = weft.autograd.grad(x.sum(), x, create_graph=True)
assert_type(first, Tensor)


def energy(p: Tensor) -> Tensor:
    return (p**2).sum()


value, gradient = weft.value_and_grad(energy)(np.ones(3))
assert_type(value, float)
assert_type(gradient, NDArray[Any])
value, gradients = weft.value_and_grad(energy, argnums=(0, 1))(np.ones(3), 2.0)
assert_type(gradients, tuple[NDArray[Any], ...])
assert_type(weft.value_and_grad(energy).explain(), str)
gradient.backward()  # type: ignore[attr-defined]
weft.value_and_grad(3.0)  # type: ignore[call-overload]


class Square(weft.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return 2 * x * gradient


Square.apply(x)

# data, distributions, random numbers
for batch in DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, generator=weft.Generator().manual_seed(0)):
    loss_of(*batch)
normal = weft.distributions.Normal(0.0, 1.0)
assert_type(normal.sample(), Tensor)
assert_type(normal.log_prob(x), Tensor)
assert_type(weft.manual_seed(0), weft.Generator)
weft.testing.assert_close(x, x)
weft.save(model.state_dict(), "model.pt")
DataLoader(TensorDataset(x), no_such_option=1)  # type: ignore[call-arg]
