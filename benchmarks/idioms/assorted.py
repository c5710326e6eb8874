"""What else people write: recall until stable, penalties, filters of logits, NumPy in the middle."""

import contextlib
import itertools
import math
from collections import OrderedDict, defaultdict
from enum import Enum
from functools import partial

import numpy as np

from .recipes import mlp
from .registry import idiom


@idiom
def hopfield_until_stable(T, s):
    patterns = T.sign(s.numbers(2, 16))
    W = patterns.T @ patterns / 16
    W.fill_diagonal_(0)
    starts = itertools.cycle([T.sign(s.numbers(16)) for _ in range(3)])

    @s.compile
    def recall(x):
        for k in range(10):
            new = T.where(W @ x >= 0, 1.0, -1.0)
            if T.equal(new, x):
                return new, k
            x = new
        return x, -1

    def call():
        x, k = recall(next(starts))
        return x, T.tensor(k)

    return call


@idiom
def self_organising_map(T, s):
    grid = T.stack(T.meshgrid(T.arange(4.0), T.arange(4.0), indexing="ij"), -1).reshape(16, 2)
    W = s.numbers(16, 3)
    xs = itertools.cycle(s.numbers(5, 3))

    @s.compile
    def fit(x, lr, radius):
        best = (W - x).norm(dim=1).argmin()
        d = ((grid - grid[best]) ** 2).sum(1)
        h = T.exp(-d / (2 * radius**2))
        W.add_(lr * h[:, None] * (x - W))
        return best

    k = itertools.count()

    def call():
        t = next(k) % 50
        return fit(next(xs), 0.5 * (1 - t / 50), 2.0 * math.exp(-t / 25)), W

    return call


@idiom
def echo_state(T, s):
    Win, Wr = s.numbers(10, 1), s.numbers(10, 10) * 0.2
    u = s.numbers(8, 1)

    @s.compile
    def collect(u):
        x = T.zeros(10)
        states = T.zeros(len(u), 10)
        for t in range(len(u)):
            x = 0.7 * x + 0.3 * T.tanh(Win @ u[t] + Wr @ x)
            states[t] = x
        return states

    return lambda: collect(u)


@idiom
def wasserstein_penalty(T, s):
    critic = s.weights(mlp(T, 2, 8, 1, act=T.nn.Tanh))
    opt = T.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    real, fake, mix = s.numbers(8, 2), s.numbers(8, 2), T.sigmoid(s.numbers(8, 1))

    def penalty(real, fake):
        x = (mix * real + (1 - mix) * fake).requires_grad_(True)
        out = critic(x)
        ones = T.ones(out.size())
        (g,) = T.autograd.grad(outputs=out, inputs=x, grad_outputs=ones, create_graph=True, retain_graph=True)
        return ((g.norm(2, dim=1) - 1) ** 2).mean()

    @s.compile
    def step(real, fake, lam=10.0):
        loss = critic(fake).mean() - critic(real).mean() + lam * penalty(real, fake)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(real, fake), list(critic.parameters()))


@idiom
def top_k_top_p(T, s):
    logits = itertools.cycle([s.numbers(2, 12) for _ in range(3)])

    @s.compile
    def filtered(logits, top_k=5, top_p=0.8, temperature=0.7):
        logits = logits / temperature
        v, _ = T.topk(logits, top_k)
        logits[logits < v[:, [-1]]] = -float("inf")
        sorted_logits, idx = T.sort(logits, descending=True)
        cum = T.cumsum(T.softmax(sorted_logits, -1), -1)
        remove = cum > top_p
        remove[..., 1:] = remove[..., :-1].clone()
        remove[..., 0] = 0
        mask = remove.scatter(1, idx, remove)
        return T.softmax(logits.masked_fill(mask, -float("inf")), -1)

    return lambda: filtered(next(logits))


@idiom
def per_sample_gradients(T, s):
    net = s.weights(mlp(T, 3, 5, 2))
    x, y = s.numbers(6, 3), s.integers(2, 6)

    def loss(params, x, y):
        return T.nn.functional.cross_entropy(T.func.functional_call(net, params, (x[None],)), y[None])

    @s.compile
    def clipped(x, y):
        params = {k: v.detach() for k, v in net.named_parameters()}
        g = T.func.vmap(T.func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
        norms = T.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)
        scale = (1.0 / norms).clamp(max=1.0)
        return {k: (v * scale.view(-1, *[1] * (v.dim() - 1))).mean(0) for k, v in g.items()}

    return lambda: clipped(x, y)


@idiom
def lbfgs_closure(T, s):
    w = s.parameter(4)
    X, y = s.numbers(12, 4), s.numbers(12)
    opt = T.optim.LBFGS([w], lr=0.5, max_iter=3, history_size=4)

    @s.compile
    def closure():
        opt.zero_grad()
        loss = ((X @ w - y) ** 2).mean() + 0.1 * w.abs().sum()
        loss.backward()
        return loss

    return lambda: (opt.step(closure), w)


@idiom
def hinge_svm(T, s):
    X, y = s.numbers(30, 4), T.sign(s.numbers(30))
    w, b = T.zeros(4, requires_grad=True), T.zeros(1, requires_grad=True)
    opt = T.optim.SGD([{"params": [w], "weight_decay": 0.01}, {"params": [b]}], lr=0.05)
    order = itertools.cycle([s.order(30)[:10] for _ in range(3)])

    @s.compile
    def step(idx):
        margin = y[idx] * (X[idx] @ w + b)
        loss = T.clamp(1 - margin, min=0).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss, int((margin < 1).sum())

    def call():
        loss, n = step(next(order))
        return loss, T.tensor(n), w, b

    return call


@idiom
def frozen_by_name(T, s):
    parts = OrderedDict(backbone=mlp(T, 4, 8, 8), neck=T.nn.LayerNorm(8), head=T.nn.Linear(8, 2))
    net = s.weights(T.nn.Sequential(parts))
    for name, p in net.named_parameters():
        p.requires_grad_("backbone" not in name)
    groups = [
        {"params": [p for n, p in net.named_parameters() if p.requires_grad and p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for n, p in net.named_parameters() if p.requires_grad and p.ndim <= 1], "weight_decay": 0.0},
    ]
    opt = T.optim.AdamW(groups, lr=1e-2)
    sched = T.optim.lr_scheduler.OneCycleLR(opt, max_lr=[0.01, 0.02], total_steps=10**6)
    x, y = s.numbers(8, 4), s.integers(2, 8)

    @s.compile
    def step(x, y):
        loss = T.nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    def call():
        loss = step(x, y)
        sched.step()
        return loss, list(net.parameters())

    return call


@idiom
def numpy_in_the_middle(T, s):
    x = s.numbers(10)

    @s.compile
    def f(x):
        y = (x * 2).tanh()
        order = np.argsort(y.numpy())
        z = y[T.from_numpy(order)]
        return z.cumsum(0), float(np.median(z.numpy()))

    def call():
        a, b = f(x)
        return a, T.tensor(b)

    return call


class Mode(Enum):
    MEAN = 1
    MAX = 2


@idiom
def enumeration_and_partial(T, s):
    modes = itertools.cycle(Mode)
    pool = {Mode.MEAN: partial(T.mean, dim=1), Mode.MAX: lambda x: T.max(x, dim=1)[0]}
    x, w = s.numbers(4, 6, 3), s.numbers(3, 2)

    @s.compile
    def pooled(x, mode=Mode.MEAN):
        return pool[mode](x @ w)

    return lambda: pooled(x, mode=next(modes))


@idiom
def nested_state_updated(T, s):
    state = {"params": {"w": s.numbers(4, 2), "b": T.zeros(2)}, "opt": [T.zeros(4, 2), T.zeros(2)], "step": 0}
    x, y = s.numbers(8, 4), s.numbers(8, 2)

    def loss_fn(params, x, y):
        return ((x @ params["w"] + params["b"] - y) ** 2).mean()

    grad_fn = T.func.grad_and_value(loss_fn)

    @s.compile
    def train(state, x, y):
        grads, loss = grad_fn(state["params"], x, y)
        mom = [0.9 * m + g for m, g in zip(state["opt"], grads.values())]
        params = {k: p - 0.05 * m for (k, p), m in zip(state["params"].items(), mom)}
        return {"params": params, "opt": mom, "step": state["step"] + 1}, loss

    def call():
        nonlocal state
        state, loss = train(state, x, y)
        return loss, state["params"]

    return call


@idiom
def optional_loss_parts(T, s):
    net = s.weights(mlp(T, 4, 8, 4))
    opt = T.optim.SGD(net.parameters(), lr=0.05)
    x = s.numbers(8, 4)

    @contextlib.contextmanager
    def frozen(module):
        flags = [p.requires_grad for p in module.parameters()]
        for p in module.parameters():
            p.requires_grad_(False)
        yield
        for p, flag in zip(module.parameters(), flags):
            p.requires_grad_(flag)

    @s.compile
    def step(x, *, l2=None, l1=None):
        losses = defaultdict(float)
        out = net(x)
        losses["rec"] = (out - x).pow(2).mean()
        if l2 is not None:
            losses["l2"] = l2 * sum(p.pow(2).sum() for p in net.parameters())
        if l1 is not None:
            losses["l1"] = l1 * sum(p.abs().sum() for p in net.parameters())
        total = sum(losses.values())
        opt.zero_grad()
        total.backward()
        opt.step()
        return total

    options = itertools.cycle([{}, {"l2": 1e-3}, {"l1": 1e-4, "l2": 1e-3}])

    def call():
        loss = step(x, **next(options))
        with frozen(net[0]):
            pass
        return loss, list(net.parameters())

    return call


@idiom
def outlier_mask_in_place(T, s):
    xs = itertools.cycle([s.numbers(20) for _ in range(3)])

    @s.compile
    def winsorize(x, k=1.5):
        x = x.clone()
        m, sd = x.mean(), x.std()
        x[x > m + k * sd] = m
        x[(x - m).abs() > k * sd] *= 0.5
        good = x.abs() < 1
        return x, x[good].mean(), good.sum()

    return lambda: winsorize(next(xs))


@idiom
def loss_written_as_a_module(T, s):
    class CenterLoss(T.nn.Module):
        def __init__(self, classes, d):
            super().__init__()
            self.centers = T.nn.Parameter(s.numbers(classes, d))

        def forward(self, feats, labels):
            return (feats - self.centers.index_select(0, labels)).pow(2).sum(1).mean() / 2

    net, crit = s.weights(mlp(T, 4, 8, 3)), CenterLoss(3, 3)
    opt_net = T.optim.SGD(net.parameters(), lr=0.1)
    opt_cent = T.optim.SGD(crit.parameters(), lr=0.5)
    x, y = s.numbers(8, 4), s.integers(3, 8)

    @s.compile
    def step(x, y, alpha=0.1):
        f = net(x)
        loss = T.nn.functional.cross_entropy(f, y) + alpha * crit(f, y)
        opt_net.zero_grad()
        opt_cent.zero_grad()
        loss.backward()
        for p in crit.parameters():
            p.grad.data *= 1.0 / alpha
        opt_net.step()
        opt_cent.step()
        return loss

    return lambda: (step(x, y), crit.centers)


@idiom
def compiled_loss_only(T, s):
    net = s.weights(mlp(T, 4, 8, 1))
    opt = T.optim.Adam(net.parameters(), lr=1e-3)
    x, y = s.numbers(8, 4), s.numbers(8, 1)

    @s.compile
    def log_cosh(pred, target):
        d = pred - target
        return (d + T.nn.functional.softplus(-2 * d) - math.log(2)).mean()

    def call():
        opt.zero_grad()
        loss = log_cosh(net(x), y)
        loss.backward()
        opt.step()
        return loss, list(net.parameters())

    return call


@idiom
def model_compiled_and_detached_targets(T, s):
    online, target = s.weights(mlp(T, 4, 8, 4)), s.weights(mlp(T, 4, 8, 4))
    pred = s.weights(T.nn.Linear(4, 4))
    for p in target.parameters():
        p.requires_grad = False
    opt = T.optim.Adam([*online.parameters(), *pred.parameters()], lr=1e-3)
    a, b = s.numbers(8, 4), s.numbers(8, 4)

    def cosine(p, z):
        return 2 - 2 * T.nn.functional.cosine_similarity(p, z.detach(), dim=-1)

    @s.compile
    def byol(a, b, tau=0.99):
        loss = (cosine(pred(online(a)), target(b)) + cosine(pred(online(b)), target(a))).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        for o, t in zip(online.parameters(), target.parameters()):
            t.data = tau * t.data + (1 - tau) * o.data
        return loss

    return lambda: (byol(a, b), list(target.parameters()))


@idiom
def einsum_everywhere(T, s):
    q, k, v, w = s.numbers(2, 5, 2, 4), s.numbers(2, 5, 2, 4), s.numbers(2, 5, 2, 4), s.numbers(2, 4, 8)

    @s.compile
    def mha(q, k, v, w):
        scores = T.einsum("bihd,bjhd->bhij", q, k) / 2.0
        causal = T.ones(5, 5, dtype=T.bool).tril()
        scores = T.where(causal, scores, T.tensor(-1e9))
        mixed = T.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
        return T.einsum("bihd,hdm->bim", mixed, w)

    return lambda: mha(q, k, v, w)
