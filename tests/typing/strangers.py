"""What programs of PyTorch's users do with modules, datasets and compiled methods, as strict checkers see it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from typing_extensions import assert_type

import weft
from weft import Tensor, nn
from weft import distributions as D
from weft.safetensors import load_file, save_file
from weft.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, random_split


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU())

    @weft.compile
    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.body(x) * scale


block = Block(3)
print(len(block.layers), block.layers[0], block.body[0].weight.mean(), block.body[:1])
block.layers.append(nn.Linear(3, 3))
block.apply(lambda m: None)
block.body.register_forward_hook(lambda module, args, result: None)
block.body.register_forward_hook(lambda module, args, kwargs, result: None, with_kwargs=True)
optimizer = weft.optim.SGD([{"params": block.body[0].parameters()}], lr=0.1)


class Scaled:
    @weft.compile
    def times(self, x: Tensor, scale: float = 2.0) -> Tensor:
        return x * scale

    @weft.compile(fullgraph=True)
    def twice(self, x: Tensor) -> Tensor:
        return self.times(x) + self.times(x, scale=3.0)


scaled = Scaled()
assert_type(scaled.times(weft.ones(3)), Tensor)
print(scaled.twice.explain(), scaled.times.breaks, block.forward(weft.ones(3), scale=2.0))
scaled.times(1.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Squares(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return weft.tensor(float(index)), index**2


class Untold(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(3)


assert_type(Squares()[1], tuple[Tensor, int])
first, second = random_split(TensorDataset(weft.ones(4, 2), weft.zeros(4)), [3, 1])
assert_type(first[0], tuple[Tensor, ...])
for batch in DataLoader(Squares(), batch_size=2):
    print(batch, len(second), list(Stream()), Untold()[0])

matrix = weft.ones(2, 2)
print(matrix.norm(p=2), matrix.norm("fro"), weft.linalg.matrix_norm(matrix, ord=2), weft.utils.dlpack.from_dlpack)
print(D.TransformedDistribution(D.Normal(0.0, 1.0), [D.transforms.ExpTransform()]).sample((2,)), D.constraints.real)
print(weft.utils.dlpack.from_dlpack(np.ones(3)))

assert_type(load_file("weights.safetensors")["weight"], Tensor)
save_file(weft.nn.Linear(2, 2).state_dict(), "weights.safetensors", {"epoch": "3"})
