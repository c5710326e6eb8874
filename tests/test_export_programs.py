"""Programs as people write them, as C functions: what they keep is a struct, and the bits are Python's."""

import math

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F


class Cache(nn.Module):
    def __init__(self, heads, length, width):
        super().__init__()
        self.register_buffer("k", weft.zeros(1, heads, length, width))
        self.register_buffer("v", weft.zeros(1, heads, length, width))

    def update(self, position, k, v):
        self.k[:, :, position] = k
        self.v[:, :, position] = v
        return self.k, self.v


class Block(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.cache = heads, Cache(heads, length, width // heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width))

    def forward(self, x, mask, position):
        n, length, width = x.shape
        q, k, v = (t.view(n, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        k, v = self.cache.update(position, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.norm2(x))


class Language(nn.Module):
    def __init__(self, words=17, width=16, length=10):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 2, length) for _ in range(2))
        self.register_buffer("mask", weft.tril(weft.ones(length, length, dtype=weft.bool)))

    def forward(self, word, position):
        mask, x = self.mask[None, None, position], self.words(word) + self.places(position)
        for block in self.blocks:
            x = block(x, mask, position)
        return F.linear(x, self.words.weight)


def a_language_model_with_a_cache():
    model = Language().eval()

    @weft.no_grad()
    def decode(word, position):
        scores = model(word, position)[0, -1]
        return scores, scores.argmax(-1)

    return decode, (weft.tensor([[3]]), weft.tensor([4]))


def a_training_step_of_convolutions_and_batch_norms():
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 4),
    )  # fmt: skip
    optimizer = weft.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)

    def step(x, y):
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss.detach(), "accuracy": (out.argmax(1) == y).float().mean()}

    return step, (weft.randn(8, 1, 12, 12), weft.randint(0, 4, (8,)))


def a_model_of_a_dict_with_variances():
    body, mean, spread = nn.Sequential(nn.Linear(6, 12), nn.SiLU()), nn.Linear(12, 3), nn.Linear(12, 3)

    def model(batch):
        hidden = body(batch["x"])
        m, v = mean(hidden), F.softplus(spread(hidden)) + 1e-4
        best = hidden.abs().amax(1), hidden.argmax(1)
        return {"mean": m, "variance": v, "nll": F.gaussian_nll_loss(m, batch["y"], v), "best": best}

    return model, ({"x": weft.randn(5, 6), "y": weft.randn(5, 3)},)


def a_kalman_filter():
    double = {"dtype": weft.float64}
    move, see = weft.tensor([[1.0, 0.1], [0.0, 1.0]], **double), weft.tensor([[1.0, 0.0]], **double)
    x, p = weft.zeros(2, **double), weft.eye(2, **double)

    def update(z):
        ahead, spread = move @ x, move @ p @ move.T + 0.01 * weft.eye(2, **double)
        s = see @ spread @ see.T + 0.1
        gain = weft.linalg.solve(s, see @ spread).T
        innovation = z - see @ ahead
        x.copy_(ahead + gain @ innovation)
        p.copy_((weft.eye(2, **double) - gain @ see) @ spread)
        return innovation, s

    return update, (weft.randn(1, **double),)


def molecular_dynamics():
    q, v = weft.randn(5, 3, dtype=weft.float64) * 2, weft.zeros(5, 3, dtype=weft.float64)

    def energy(q):
        far = (q[:, None] - q[None]).square().sum(-1) + weft.eye(5, dtype=weft.float64)
        return (4 * (far**-6 - far**-3)).triu(1).sum()

    def step(dt):
        v.sub_(dt / 2 * weft.func.grad(energy)(q))
        q.add_(dt * v)
        v.sub_(dt / 2 * weft.func.grad(energy)(q))
        return energy(q) + 0.5 * v.square().sum()

    return step, (weft.tensor(0.01, dtype=weft.float64),)


def two_networks_against_each_other():
    made, judge = nn.Linear(3, 4), nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6)), nn.ReLU())
    of_made, of_judge = (weft.optim.Adam(net.parameters(), 1e-2, betas=(0.5, 0.9)) for net in (made, judge))

    def step(x, z):
        of_judge.zero_grad()
        judged = F.softplus(judge(made(z).detach())).mean() + F.softplus(-judge(x)).mean()
        judged.backward()
        of_judge.step()
        of_made.zero_grad()
        fooled = F.softplus(-judge(made(z))).mean()
        fooled.backward()
        of_made.step()
        return judged.detach(), fooled.detach()

    return step, (weft.randn(5, 4), weft.randn(5, 3))


@pytest.mark.parametrize(
    "make",
    [
        a_language_model_with_a_cache,
        a_training_step_of_convolutions_and_batch_norms,
        a_model_of_a_dict_with_variances,
        a_kalman_filter,
        molecular_dynamics,
        two_networks_against_each_other,
    ],
)
def test_programs(make):
    def made():
        weft.manual_seed(0)
        return make()

    function, arguments = made()
    native = weft.aot(function, arguments)
    function, arguments = made()
    leaves = weft.utils._pytree.tree_leaves
    for _ in range(3):  # as often as it was called to find out what it does
        function(*arguments)
    for _ in range(3):
        wanted = [x.detach().numpy() for x in leaves(function(*arguments))]
        got = native(*[x.numpy() for x in leaves(arguments)])
        got = got if isinstance(got, tuple) else (got,)
        # Numbers come as Python's, which hold those of any type.
        assert len(got) == len(wanted)
        assert all(np.asarray(a, b.dtype).tobytes() == b.tobytes() and np.all(a == b) for a, b in zip(got, wanted))


def test_likelihoods_with_special_functions():
    x, y = weft.linspace(-1, 1, 30, dtype=weft.float64), weft.arange(30).double() % 7

    def nll(line, shape):
        mean, r = (line[0] + line[1] * x).exp(), F.softplus(shape) + 0.1
        counts = weft.lgamma(y + r) - weft.lgamma(r) - weft.lgamma(y + 1) + r * (r / (r + mean)).log()
        return -(counts + y * (mean / (r + mean)).log()).sum() - weft.special.log_ndtr(line).sum() + math.log(2)

    given = weft.tensor([0.3, -0.2], dtype=weft.float64), weft.tensor(0.5, dtype=weft.float64)
    native = weft.aot(nll, given, gradients=True)
    gradients, value = weft.func.grad_and_value(nll, argnums=(0, 1))(*given)
    got, *by_argument = native.value_and_grad(*[x.numpy() for x in given])
    assert got == value.item()
    assert all(np.asarray(a).tobytes() == b.numpy().tobytes() for a, b in zip(by_argument, gradients))
