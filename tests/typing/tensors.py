"""What checkers find out about tensors: never run, read by them alone (.ci/types, and tests/test_stubs.py).

assert_type says which type an expression has. A line with `type: ignore` is one that they must refuse: both are told
to complain about such a comment where there is nothing to refuse.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import numpy as np
from typing_extensions import assert_type

import weft
from weft import Size, Tensor

x, n = weft.randn(3, 4), weft.arange(3)

# arithmetic and comparisons, with tensors, numbers and arrays on either side
assert_type(x + x, Tensor)
assert_type(2 * x - 1, Tensor)
assert_type(x / np.ones(4), Tensor)
assert_type(-(x**2) @ x.T, Tensor)
assert_type(1.0 - x, Tensor)
assert_type(x // 2 % 3, Tensor)
assert_type(x > 0, Tensor)
assert_type(x == x, Tensor)
assert_type((x >= 0) & (x < 1), Tensor)
assert_type(~(x > 0), Tensor)
assert_type(x[:, 0], Tensor)
assert_type(x[x > 0], Tensor)
x += 1
x[0] = 3.0
assert_type(x, Tensor)
x + "1"  # type: ignore[operator]
x @ 2.0  # type: ignore[operator]
x < None  # type: ignore[operator]

# what a tensor says of itself
assert_type(x.shape, Size)
assert_type(x.shape[0], int)
assert_type(x.size(), Size)
assert_type(x.size(0), int)
assert_type(x.numel(), int)
assert_type(x.dtype, weft.dtype)
assert_type(x.device, weft.device)
assert_type(x.requires_grad, bool)
assert_type(x.grad, Tensor | None)
assert_type(x.dtype.itemsize, int)
assert_type(float(x.sum()), float)
assert_type(bool(x.any()), bool)
assert_type(len(x), int)
assert_type(x.is_contiguous(), bool)
x.shape = (4, 3)  # type: ignore[assignment, misc]
x.no_such_method()  # type: ignore[attr-defined]
x.bump_version()  # type: ignore[attr-defined]
length: str = x.numel()  # type: ignore[assignment]

# results that depend on how a function is called
assert_type(x.max(), Tensor)
assert_type(x.max(0).values, Tensor)
assert_type(weft.min(x, dim=1).indices, Tensor)
assert_type(x.max(x), Tensor)
assert_type(x.sort().indices, Tensor)
assert_type(x.topk(2).values, Tensor)
assert_type(weft.where(x > 0, x, 0.0), Tensor)
assert_type(weft.where(x > 0), tuple[Tensor, ...])
assert_type(x.nonzero(), Tensor)
assert_type(x.nonzero(as_tuple=True), tuple[Tensor, ...])
assert_type(x.split(2), tuple[Tensor, ...])
assert_type(weft.var_mean(x), tuple[Tensor, Tensor])
values, indices = x.median(dim=0)
assert_type(values, Tensor)
assert_type(x.max(), Tensor)

# functions
assert_type(weft.zeros(2, 3, dtype=weft.float64), Tensor)
assert_type(weft.tensor([1.0, 2.0], requires_grad=True), Tensor)
assert_type(weft.cat([x, x]), Tensor)
assert_type(weft.exp(x).sum(dim=0), Tensor)
assert_type(weft.linalg.norm(x), Tensor)
assert_type(weft.fft.rfft(x), Tensor)
assert_type(weft.allclose(x, x), bool)
assert_type(weft.is_tensor(x), bool)
assert_type(weft.pi, float)
weft.exp("1")  # type: ignore[arg-type]
weft.zeros(2, dtype="float64")  # type: ignore[arg-type]
weft.no_such_function(x)  # type: ignore[attr-defined]
