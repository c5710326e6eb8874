"""python -m benchmarks.eager_more: further calls on small tensors and on large ones, weft and PyTorch in turns.

What benchmarks/eager_ops.py and eager_large.py do not have: functions that make, index, join, order and compare
tensors, changes in place, losses and layers. `recorded` calls have an operand that requires gradients. One thread each;
of every case the fastest of several turns counts.
"""

import argparse
from pathlib import Path

import numpy as np

from .eager_ops import in_turns, table, tensors

CALLS_BEFORE = 60  # what eager mode finds out, or hands to native code


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eager_more", description=__doc__)
    parser.add_argument("--case", help="parts of names, separated by commas; all by default")
    parser.add_argument("--kind", choices=["small", "large"], help="only these; both by default")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    import torch

    import weft
    from weft.runtime.programs import fused

    weft.fill_cache()
    torch.set_num_threads(1)
    weft.set_num_threads(1)
    # What is compiled after a while is compiled before the clock runs.
    fused.ELEMENTS_BEFORE = 0
    kinds = [small, large] if options.kind is None else [globals()[options.kind]]
    theirs, ours = ({name: call for kind in kinds for name, call in kind(side).items()} for side in (torch, weft))
    wanted = options.case.split(",") if options.case else [""]
    rows = []
    for name in theirs:
        if any(part in name for part in wanted):
            for _ in range(CALLS_BEFORE):
                ours[name]()
            rows.append((name, *in_turns(theirs[name], ours[name])))
    text = "\n".join(table("calls", rows, torch.__version__, weft.weft_version))
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def small(library):
    """3x3 tensors: the cost of a call."""
    make, f = tensors(library), library.nn.functional
    a, b, v = make(3, 3), make(3, 3), make(3)
    r, s = make(3, 3, grad=True), make(3, 3, grad=True)
    batch, image, kernel = make(2, 3, 3), make(1, 1, 3, 3), make(1, 1, 2, 2)
    mask, positive = a > 0, a.abs() + 0.5
    places, classes = library.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 0]]), library.tensor([2, 0, 1])
    target, buffer, spectrum = make(3, 3), make(3, 3), library.complex(a, b)
    exact = {
        "a - 1": lambda: a - 1,
        "1 / a": lambda: 1 / a,
        "a == b": lambda: a == b,
        "a & b of bools": lambda: mask & mask,
        "~a": lambda: ~mask,
        "argmax": lambda: a.argmax(),
        "argmax(1)": lambda: a.argmax(1),
        "argsort": lambda: a.argsort(1),
        "one_hot": lambda: f.one_hot(classes, 3),
        "all": lambda: mask.all(),
        "any(1)": lambda: mask.any(1),
        "zeros": lambda: library.zeros(3, 3),
        "zeros_like": lambda: library.zeros_like(a),
        "full": lambda: library.full((3, 3), 2.0),
        "arange": lambda: library.arange(9),
        "arange of floats": lambda: library.arange(0.0, 1.0, 0.125),
        "diag of a vector": lambda: library.diag(v),
        "unique of integers": lambda: places.unique(return_counts=True),
        "product of complex": lambda: spectrum * spectrum,
        "unfold": lambda: f.unfold(image, 2),
        "data_ptr": lambda: a.data_ptr(),
        "linspace": lambda: library.linspace(0, 1, 9),
        "eye": lambda: library.eye(3),
        "rand": lambda: library.rand(3, 3),
        "randn": lambda: library.randn(3, 3),
        "randint": lambda: library.randint(0, 9, (3, 3)),
        "randperm": lambda: library.randperm(9),
        "tensor of a list": lambda: library.tensor([1.0, 2.0, 3.0]),
        "a.double()": lambda: a.double(),
        "a.half()": lambda: a.half(),
        "a.long()": lambda: a.long(),
        "a.item()": lambda: v[0].item(),
        "a.shape[0]": lambda: a.shape[0],
        "a.numpy()": lambda: a.numpy(),
        "a.detach()": lambda: a.detach(),
        "a.copy_(b)": lambda: target.copy_(b),
        "a.zero_()": lambda: target.zero_(),
        "a.fill_(1.0)": lambda: target.fill_(1.0),
        "a.mul_(1.0)": lambda: target.mul_(1.0),
        "a += b": lambda: buffer.add_(b, alpha=0.0),
        "a.clamp_(-1, 1)": lambda: target.clamp_(-1.0, 1.0),
        "a.normal_()": lambda: target.normal_(),
        "a.uniform_()": lambda: target.uniform_(),
        "a[1] = v": lambda: target.__setitem__(1, v),
        "a[0, 2] = 1.0": lambda: target.__setitem__((0, 2), 1.0),
        "a[mask] = 0.0": lambda: target.__setitem__(mask, 0.0),
        "a.scatter_": lambda: target.scatter_(1, places, b),
        "a.scatter_add_": lambda: buffer.scatter_add_(1, places, b),
        "a.index_add_": lambda: buffer.index_add_(0, classes, b),
    }
    functions = {
        "a / b": lambda x: x / positive,
        "a ** 2": lambda x: x**2,
        "sqrt": lambda x: x.abs().sqrt(),
        "sin": lambda x: x.sin(),
        "tanh": lambda x: x.tanh(),
        "sigmoid": lambda x: x.sigmoid(),
        "silu": lambda x: f.silu(x),
        "softplus": lambda x: f.softplus(x),
        "leaky_relu": lambda x: f.leaky_relu(x, 0.1),
        "clamp": lambda x: x.clamp(-1.0, 1.0),
        "masked_fill": lambda x: x.masked_fill(mask, 0.0),
        "maximum": lambda x: library.maximum(x, b),
        "a.max(1)": lambda x: x.max(1),
        "amax": lambda x: x.amax(0),
        "prod": lambda x: x.prod(),
        "norm": lambda x: x.norm(),
        "logsumexp": lambda x: x.logsumexp(1),
        "cumsum(0)": lambda x: x.cumsum(0),
        "cumsum(1)": lambda x: x.cumsum(1),
        "sort": lambda x: x.sort(1),
        "topk": lambda x: x.topk(2, 1),
        "roll": lambda x: x.roll(1, 0),
        "flip": lambda x: x.flip(0),
        "tril": lambda x: x.tril(),
        "diagonal": lambda x: x.diagonal(),
        "outer": lambda x: library.outer(x[0], v),
        "einsum": lambda x: library.einsum("ij,jk->ik", x, b),
        "bmm": lambda x: library.bmm(batch, x.expand(2, 3, 3)),
        "dot": lambda x: library.dot(x[0], v),
        "a[:, 1]": lambda x: x[:, 1],
        "a[0:2, 1:]": lambda x: x[0:2, 1:],
        "a[..., None]": lambda x: x[..., None],
        "a[indices]": lambda x: x[classes],
        "a[indices, indices]": lambda x: x[classes, classes],
        "a[mask]": lambda x: x[mask],
        "gather": lambda x: x.gather(1, places),
        "unsqueeze": lambda x: x.unsqueeze(0),
        "squeeze": lambda x: x.squeeze(),
        "expand": lambda x: x.expand(2, 3, 3),
        "repeat": lambda x: x.repeat(2, 1),
        "permute": lambda x: x.permute(1, 0),
        "flatten": lambda x: x.flatten(),
        "view": lambda x: x.view(9),
        "chunk": lambda x: x.chunk(3),
        "split": lambda x: x.split(1, 1),
        "unbind": lambda x: x.unbind(),
        "clone": lambda x: x.clone(),
        "pad": lambda x: f.pad(x, (1, 1)),
        "conv2d": lambda x: f.conv2d(image, x[None, None, :2, :2]),
        "max_pool2d": lambda x: f.max_pool2d(x[None, None], 2),
        "embedding": lambda x: f.embedding(classes, x),
        "cross_entropy": lambda x: f.cross_entropy(x, classes),
        "nll_loss": lambda x: f.nll_loss(x, classes),
        "bce with logits": lambda x: f.binary_cross_entropy_with_logits(x, mask.float()),
        "dropout": lambda x: f.dropout(x, 0.5),
        "cdist": lambda x: library.cdist(x, b),
        "lerp": lambda x: x.lerp(b, 0.3),
        "addmm": lambda x: library.addmm(v, x, b),
        "trace": lambda x: x.trace(),
        "std(1)": lambda x: x.std(1),
    }
    found = dict(exact)
    for name, function in functions.items():
        found[name] = lambda function=function: function(a)
        found[f"{name}, recorded"] = lambda function=function: function(r)
    found["inverse"] = lambda: library.linalg.inv(s.detach())
    found["solve"] = lambda: library.linalg.solve(b, v)
    found["conv2d of a kernel"] = lambda: f.conv2d(image, kernel)
    return found


def large(library):
    """A million elements: memory and arithmetic."""
    make, f = tensors(library, 3), library.nn.functional
    n = 1000
    x, r, b, flat = make(n, n), make(n, n, grad=True), make(n, n), make(n * n)
    rng = np.random.default_rng(4)
    classes, order = library.tensor(rng.integers(0, n, n)), library.tensor(rng.permutation(n))
    whole, mask = library.tensor(rng.integers(0, 1000, (n, n))), b > 0
    target, image = make(n, n), make(4, 16, 125, 125)
    images, larger = make(4, 16, 125, 125, grad=True), make(4, 16, 250, 250)
    grid, filters = make(4, 125, 125, 2).tanh() * 1.1, make(16, 16, 4, 4)
    log, weights, leaves = f.log_softmax(x, 1), x.abs() + 0.1, [make(n, 20, grad=True) for _ in range(50)]

    def backward(make, cotangent=x):
        r.grad = None
        make(r).backward(cotangent)

    def joined():
        for part in leaves:
            part.grad = None
        library.cat(leaves, 1).backward(x)

    def of_images(function, cotangent):
        images.grad = None
        function(images).backward(cotangent)

    return {
        "cat of 50 leaves, and backward": joined,
        "x[:, ::2] = 1, 1M": lambda: target.__setitem__((slice(None), slice(None, None, 2)), 1.0),
        "x[:, 0] = v, 1M": lambda: target.__setitem__((slice(None), 0), flat[:n]),
        "fill_ of a transposed, 1M": lambda: target.t().fill_(1.0),
        "add_ of a multiple, 1M": lambda: target.add_(b, alpha=0.0),
        "kthvalue, 1M": lambda: flat.kthvalue(n * n // 3),
        "unique, 1M": lambda: whole.unique(return_counts=True),
        "multinomial, 1M": lambda: library.multinomial(weights, 1),
        "multinomial with replacement, 10k": lambda: library.multinomial(weights[:10].flatten(), 10 * n, True),
        "cat of 10 chunks, and backward": lambda: backward(lambda r: library.cat(r.chunk(10))),
        "cat of 50 parts, and backward": lambda: backward(lambda r: library.cat(r.split(20, 1), 1)),
        "rows of unbind in a stack, and backward": lambda: backward(lambda r: library.stack(r.unbind())),
        "half and back, and backward": lambda: backward(lambda r: r.half().float()),
        "zeros, 64 MiB": lambda: library.zeros(1 << 24),
        "eye, 1M": lambda: library.eye(n),
        "triu_, 1M": lambda: target.triu_(),
        "empty": lambda: library.empty(n * n),
        "zeros, 1M": lambda: library.zeros(n, n),
        "ones, 1M": lambda: library.ones(n, n),
        "arange, 1M": lambda: library.arange(n * n),
        "linspace, 1M": lambda: library.linspace(0, 1, n * n),
        "rand, 1M": lambda: library.rand(n, n),
        "randn, 1M": lambda: library.randn(n, n),
        "normal_, 1M": lambda: target.normal_(),
        "uniform_, 1M": lambda: target.uniform_(),
        "bernoulli_, 1M": lambda: target.bernoulli_(0.5),
        "randint, 1M": lambda: library.randint(0, 10, (n, n)),
        "randperm, 1M": lambda: library.randperm(n * n),
        "zero_, 1M": lambda: target.zero_(),
        "fill_, 1M": lambda: target.fill_(2.0),
        "copy_, 1M": lambda: target.copy_(b),
        "copy_ of a transposed, 1M": lambda: target.copy_(b.t()),
        "add_, 1M": lambda: target.add_(b),
        "mul_, 1M": lambda: target.mul_(0.5),
        "addcmul_, 1M": lambda: target.addcmul_(b, b, value=0.1),
        "clamp_, 1M": lambda: target.clamp_(-1.0, 1.0),
        "half, 1M": lambda: x.half(),
        "long, 1M": lambda: x.long(),
        "float of integers, 1M": lambda: whole.float(),
        "bool & bool, 1M": lambda: mask & mask,
        "any of rows, 1M": lambda: mask.any(1),
        "all, 1M": lambda: mask.all(),
        "sum of bools, 1M": lambda: mask.sum(),
        "sum of integers, 1M": lambda: whole.sum(1),
        "integers + integers, 1M": lambda: whole + whole,
        "integers // 7, 1M": lambda: whole // 7,
        "integers % 7, 1M": lambda: whole % 7,
        "bincount, 1M": lambda: library.bincount(whole.view(-1)),
        "cumsum of columns, 1M": lambda: x.cumsum(0),
        "cumsum of integers, 1M": lambda: whole.cumsum(1),
        "cumprod, 1M": lambda: x.cumprod(1),
        "argmax of columns, 1M": lambda: x.argmax(0),
        "argmax, 1M": lambda: flat.argmax(),
        "max, 1M": lambda: x.max(),
        "min of columns, 1M": lambda: x.min(0),
        "sort, 1M": lambda: x.sort(1),
        "topk, 1M": lambda: x.topk(5, 1),
        "median, 1M": lambda: x.median(1),
        "nll_loss, 1M": lambda: f.nll_loss(log, classes),
        "one_hot, 1M": lambda: f.one_hot(classes, n),
        "roll, 1M": lambda: x.roll(1, 0),
        "repeat, 1M": lambda: x[:500].repeat(2, 1),
        "stack, 1M": lambda: library.stack([x[:500], b[:500]]),
        "cat of columns, 1M": lambda: library.cat([x[:, :500], b[:, :500]], 1),
        "permute, 1M": lambda: flat.view(100, 100, 100).permute(2, 0, 1).contiguous(),
        "index_select of rows, 1M": lambda: x.index_select(0, order),
        "x[order] = b, 1M": lambda: target.__setitem__(order, b),
        "x[:, 3:] += 1, 1M": lambda: target[:, 3:].add_(1.0),
        "masked_select, 1M": lambda: x[mask],
        "x[mask] = 0, 1M": lambda: target.__setitem__(mask, 0.0),
        "nonzero, 1M": lambda: mask.nonzero(),
        "index_add_, 1M": lambda: target.index_add_(0, classes, b),
        "scatter_add_, 1M": lambda: target.scatter_add_(1, whole, b),
        "pad, 1M": lambda: f.pad(x, (1, 1, 1, 1)),
        "scatter_, 1M": lambda: target.scatter_(1, whole, b),
        "pad by reflection, 1M": lambda: f.pad(image, (2, 2, 2, 2), mode="reflect"),
        "pad by replication, 1M": lambda: f.pad(image, (2, 2, 2, 2), mode="replicate"),
        "circular pad, 1M": lambda: f.pad(image, (2, 2, 2, 2), mode="circular"),
        "grid_sample, 1M": lambda: f.grid_sample(image, grid, align_corners=False),
        "grid_sample, and backward": lambda: of_images(lambda i: f.grid_sample(i, grid, align_corners=False), image),
        "interpolate bilinear, 1M": lambda: f.interpolate(image, scale_factor=2.0, mode="bilinear"),
        "interpolate bilinear, and backward": lambda: of_images(
            lambda i: f.interpolate(i, scale_factor=2.0, mode="bilinear"), larger
        ),
        "conv_transpose2d, 1M": lambda: f.conv_transpose2d(image, filters, stride=2, padding=1),
        "conv_transpose2d, and backward": lambda: of_images(
            lambda i: f.conv_transpose2d(i, filters, stride=2, padding=1), larger
        ),
        "avg_pool2d, 1M": lambda: f.avg_pool2d(image, 2),
        "max_pool2d, 1M": lambda: f.max_pool2d(image, 2),
        "interpolate, 1M": lambda: f.interpolate(image, scale_factor=2.0),
        "lerp, 1M": lambda: x.lerp(b, 0.3),
        "addcmul, 1M": lambda: library.addcmul(x, b, b, value=0.1),
        "x + 1, and relu, recorded": lambda: f.relu(r + 1.0),
        "outer, 1M": lambda: library.outer(x[0], b[0]),
        "cdist, 1000x64": lambda: library.cdist(x[:, :64], b[:, :64]),
        "cdist, 1000x64, and backward": lambda: backward(lambda r: library.cdist(r[:, :64], b[:, :64])),
        "cdist, 300x1000": lambda: library.cdist(x[:300], b[:300]),
        "prod of rows, and backward": lambda: backward(lambda r: r.prod(1), flat[:n]),
        "rfft, 1M": lambda: library.fft.rfft(x),
        "cdist, 1000x3": lambda: library.cdist(x[:, :3], b[:, :3]),
        "prod of rows, 1M": lambda: x.prod(1),
        "hypot, 1M": lambda: library.hypot(x, b),
        "atan2, 1M": lambda: library.atan2(x, b),
        "round, 1M": lambda: x.round(),
        "sign, 1M": lambda: x.sign(),
        "isfinite, 1M": lambda: x.isfinite(),
        "nan_to_num, 1M": lambda: x.nan_to_num(),
        "dropout, 1M": lambda: f.dropout(x, 0.5),
        "log1p, 1M": lambda: mask.float().log1p(),
        "equal, 1M": lambda: library.equal(x, x.clone()),
        "allclose, 1M": lambda: library.allclose(x, x),
    }


if __name__ == "__main__":
    main()
