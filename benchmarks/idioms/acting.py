"""Evaluating, choosing, searching: meters, bandits, tables of values, evolution, queues."""

import itertools
import math
import random

import numpy as np

from .registry import idiom, random_idiom


@idiom
def layers_given_by_keywords(T, s):
    class Base(T.nn.Module):
        activation = staticmethod(T.tanh)

        def __init__(self, *args, **kwargs):
            super().__init__()
            self.linear = T.nn.Linear(*args, **{k: v for k, v in kwargs.items() if k in ("bias",)})
            self.residual = kwargs.get("residual", False)

        @property
        def scale(self):
            return self.linear.weight.shape[1] ** -0.5

        def forward(self, x, *args, **kwargs):
            out = self.activation(self.linear(x) * self.scale)
            return out + x if self.residual else out

    class Gated(Base):
        activation = staticmethod(T.sigmoid)

        def forward(self, x, *args, gate=1.0, **kwargs):
            return super().forward(x, *args, **kwargs) * gate

    layers = [s.weights(Base(4, 4, residual=True)), s.weights(Gated(4, 4, bias=False))]
    x = s.numbers(5, 4)

    @s.compile
    def run(x, *extra, **options):
        for layer in layers:
            x = layer(x, *extra, **options)
        return x

    gates = itertools.cycle([0.5, 1.5])
    return lambda: run(x, "unused", gate=next(gates))


@idiom
def running_metrics(T, s):
    class Meter:
        def __init__(self):
            self.total, self.n = 0.0, 0

        def update(self, v, n=1):
            self.total += v * n
            self.n += n

        @property
        def avg(self):
            return self.total / max(1, self.n)

    net = s.weights(T.nn.Linear(4, 3))
    batches = itertools.cycle([(s.numbers(8, 4), s.integers(3, 8)) for _ in range(3)])
    loss_m, acc_m, confusion = Meter(), Meter(), T.zeros(3, 3, dtype=T.long)

    class Evaluator:
        def __init__(self, model):
            self.model = model

        @T.no_grad()
        @s.compile
        def evaluate(self, x, y):
            logits = self.model(x)
            loss = T.nn.functional.cross_entropy(logits, y)
            pred = logits.argmax(1)
            return loss, pred, T.bincount(3 * y + pred, minlength=9).reshape(3, 3)

    ev = Evaluator(net)

    def call():
        x, y = next(batches)
        loss, pred, table = ev.evaluate(x, y)
        loss_m.update(loss.item(), len(x))
        acc_m.update((pred == y).float().mean().item(), len(x))
        confusion.add_(table)
        return confusion, T.tensor([loss_m.avg, acc_m.avg])

    return call


@idiom
def train_and_eval_in_turn(T, s):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.BatchNorm1d(8), T.nn.ReLU())
            self.head = T.nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.body(x))

    net = s.weights(Net())
    opt = T.optim.SGD(net.parameters(), lr=0.1)
    x, y = s.numbers(8, 4), s.integers(2, 8)
    model = s.compile(net)
    crit = T.nn.CrossEntropyLoss()

    def call():
        model.train()
        opt.zero_grad()
        loss = crit(model(x), y)
        loss.backward()
        opt.step()
        model.eval()
        with T.no_grad():
            val = crit(model(x), y)
        return loss, val

    return call


@idiom
def linear_bandit(T, s):
    A, b = [T.eye(3) for _ in range(5)], [T.zeros(3) for _ in range(5)]
    rewards = itertools.cycle([1.0, 0.0, 0.5])

    @s.compile
    def choose(x, alpha=0.5):
        scores = []
        for Ai, bi in zip(A, b):
            inv = T.linalg.inv(Ai)
            theta = inv @ bi
            scores.append(theta @ x + alpha * T.sqrt(x @ inv @ x))
        return int(T.argmax(T.stack(scores)))

    xs = itertools.cycle([s.numbers(3) for _ in range(4)])

    def call():
        x = next(xs)
        k = choose(x)
        A[k] = A[k] + T.outer(x, x)
        b[k] = b[k] + next(rewards) * x
        return T.tensor(k)

    return call


@idiom
def tabular_q_learning(T, s):
    Q = T.zeros(6, 2)
    rng = np.random.RandomState(0)
    state = 0

    @s.compile
    def learn(s0, a, r, s1, lr=0.1, gamma=0.9):
        target = r + gamma * Q[s1].max()
        Q[s0, a] += lr * (target - Q[s0, a])

    def call():
        nonlocal state
        a = int(Q[state].argmax()) if rng.rand() > 0.3 else rng.randint(2)
        nxt = (state + 1) % 6 if a == 1 else 0
        learn(state, a, float(nxt == 5), nxt)
        state = nxt
        return Q

    return call


@idiom
def focal_and_dice(T, s):
    net = s.weights(T.nn.Conv2d(1, 1, 3, padding=1, bias=False))
    opt = T.optim.Adam(net.parameters(), lr=1e-2)
    x, y = s.numbers(2, 1, 8, 8), (s.numbers(2, 1, 8, 8) > 0).float()

    def dice(p, y, eps=1.0):
        inter = (p * y).sum((1, 2, 3))
        return 1 - ((2 * inter + eps) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + eps)).mean()

    def focal(logits, y, gamma=2.0, alpha=0.25):
        ce = T.nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="none")
        pt = T.exp(-ce)
        return (alpha * (1 - pt) ** gamma * ce).mean()

    @s.compile
    def step(x, y):
        logits = net(x)
        loss = focal(logits, y) + dice(logits.sigmoid(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        iou = ((logits > 0) & (y > 0.5)).sum() / ((logits > 0) | (y > 0.5)).sum()
        return loss, iou

    return lambda: (step(x, y), net.weight)


@random_idiom
def evolution_strategy(T, s):
    theta = s.numbers(6)
    goal = s.numbers(6)

    @s.compile
    @T.no_grad()
    def generation(theta, sigma=0.1, lr=0.05, n=10):
        eps = T.randn(n, theta.numel())
        f = -((theta + sigma * eps - goal) ** 2).sum(1)
        f = (f - f.mean()) / (f.std() + 1e-8)
        return theta + lr / (n * sigma) * (eps.T @ f)

    def call():
        nonlocal theta
        theta = generation(theta)
        return theta

    return call


@idiom
def simulated_annealing(T, s):
    rng = random.Random(3)
    D = T.cdist(s.numbers(7, 2), s.numbers(7, 2))
    tour, temp = list(range(7)), 1.0

    @s.compile
    def length(tour):
        return D[tour, T.roll(tour, -1)].sum()

    def call():
        nonlocal tour, temp
        i, j = sorted(rng.sample(range(7), 2))
        new = tour[:i] + tour[i : j + 1][::-1] + tour[j + 1 :]
        delta = (length(T.tensor(new)) - length(T.tensor(tour))).item()
        if delta < 0 or rng.random() < math.exp(-delta / temp):
            tour = new
        temp = max(0.01, temp * 0.99)
        return T.tensor(tour)

    return call


@idiom
def momentum_contrast_queue(T, s):
    class MoCo(T.nn.Module):
        def __init__(self, d=4, K=16, m=0.9):
            super().__init__()
            self.K, self.m = K, m
            self.q, self.k = T.nn.Linear(5, d), T.nn.Linear(5, d)
            self.register_buffer("queue", T.nn.functional.normalize(s.numbers(d, K), dim=0))
            self.register_buffer("ptr", T.zeros(1, dtype=T.long))

        @T.no_grad()
        def momentum(self):
            for pq, pk in zip(self.q.parameters(), self.k.parameters()):
                pk.data = pk.data * self.m + pq.data * (1.0 - self.m)

        @T.no_grad()
        def enqueue(self, keys):
            ptr = int(self.ptr)
            self.queue[:, ptr : ptr + keys.shape[0]] = keys.T
            self.ptr[0] = (ptr + keys.shape[0]) % self.K

        def forward(self, a, b):
            q = T.nn.functional.normalize(self.q(a), dim=1)
            with T.no_grad():
                self.momentum()
                k = T.nn.functional.normalize(self.k(b), dim=1)
            pos = T.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
            neg = T.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
            self.enqueue(k)
            return T.cat([pos, neg], dim=1) / 0.07

    net = s.weights(MoCo())
    opt = T.optim.SGD(net.q.parameters(), lr=0.03)
    a, b = s.numbers(4, 5), s.numbers(4, 5)

    @s.compile
    def step(a, b):
        logits = net(a, b)
        loss = T.nn.functional.cross_entropy(logits, T.zeros(len(a), dtype=T.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(a, b), net.queue, net.ptr)
