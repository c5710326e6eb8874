"""Filters, samplers, bounds on evidence and models of series, as statisticians write them."""

import itertools
import math
from typing import NamedTuple

from .inner_loops import network
from .registry import idiom
from .strangers import in_turn


class Belief(NamedTuple):
    mean: object
    cov: object


@idiom
def kalman_step_of_a_named_tuple(T, s):
    A = T.tensor([[1.0, 0.1], [0.0, 1.0]])
    Hm = T.tensor([[1.0, 0.0]])
    Q, R, I = 0.01 * T.eye(2), 0.1 * T.eye(1), T.eye(2)
    z = in_turn(s, 7, 1)

    @s.compile
    def update(st: Belief, z):
        m, P = A @ st.mean, A @ st.cov @ A.T + Q
        S = Hm @ P @ Hm.T + R
        K = T.linalg.solve(S, Hm @ P).T
        innov = z - Hm @ m
        ll = -0.5 * (innov @ T.linalg.solve(S, innov) + T.logdet(S) + math.log(2 * math.pi))
        return Belief(m + K @ innov, (I - K @ Hm) @ P), ll

    st = [Belief(T.zeros(2), T.eye(2))]

    def call():
        st[0], ll = update(st[0], next(z))
        return [st[0].mean, st[0].cov, ll]

    return call


@idiom
def particles_resampled_when_few(T, s):
    parts = [s.numbers(64)]
    z, eps, u = in_turn(s, 6, 1), in_turn(s, 5, 64), itertools.cycle([0.3, 0.7, 0.1])

    @s.compile
    def step(p, z, eps, u):
        p = 0.5 * p + 25 * p / (1 + p * p) + eps
        logw = -0.5 * (z - p**2 / 20) ** 2
        w = T.softmax(logw, 0)
        ess = 1.0 / (w**2).sum()
        if ess < 32:
            edges = (T.arange(64) + u) / 64
            idx = T.searchsorted(T.cumsum(w, 0), edges).clamp(max=63)
            p = p[idx]
        return p, (w * p).sum(), ess

    def call():
        parts[0], m, e = step(parts[0], next(z) * 3, next(eps), next(u))
        return [parts[0], m, e]

    return call


@idiom
def weights_with_a_spread(T, s):
    class BayesLinear(T.nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.mu = T.nn.Parameter(s.numbers(o, i, scale=0.3))
            self.rho = T.nn.Parameter(T.full((o, i), -3.0))
            self.kl = 0.0

        def forward(self, x, eps):
            sigma = T.nn.functional.softplus(self.rho)
            w = self.mu + sigma * eps
            self.kl = (T.log(1 / sigma) + (sigma**2 + self.mu**2) / 2 - 0.5).sum()
            return x @ w.T

    l1, l2 = BayesLinear(3, 6), BayesLinear(6, 1)
    opt = T.optim.Adam([*l1.parameters(), *l2.parameters()], lr=1e-2)
    x, y, e1, e2 = in_turn(s, 4, 8, 3), in_turn(s, 3, 8, 1), in_turn(s, 5, 6, 3), in_turn(s, 5, 1, 6)

    @s.compile
    def step(x, y, e1, e2):
        out = l2(T.relu(l1(x, e1)), e2)
        nll = ((out - y) ** 2).sum()
        loss = nll + 0.01 * (l1.kl + l2.kl)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: [T.tensor(step(next(x), next(y), next(e1), next(e2))), *l1.parameters()]


@idiom
def seasons_smoothed(T, s):
    y, ab = in_turn(s, 4, 16), in_turn(s, 5, 3)

    @s.compile
    def loss(y, raw):
        a, b, g = T.sigmoid(raw).unbind()
        level, trend, season = y[0], T.tensor(0.0), [T.tensor(0.0)] * 4
        se = 0.0
        for t, v in enumerate(y.unbind()):
            f = level + trend + season[t % 4]
            se = se + (v - f).square()
            new = a * (v - season[t % 4]) + (1 - a) * (level + trend)
            trend = b * (new - level) + (1 - b) * trend
            season[t % 4] = g * (v - new) + (1 - g) * season[t % 4]
            level = new
        return se / len(y)

    def call():
        r = next(ab).clone().requires_grad_()
        l = loss(next(y), r)
        l.backward()
        return [l, r.grad]

    return call


@idiom
def particles_moved_by_a_kernel(T, s):
    x = [s.numbers(10, 2)]
    mu = T.tensor([1.0, -1.0])
    nxt = in_turn(s, 5, 10, 2)

    def logp(x):
        return T.logsumexp(T.stack([-0.5 * ((x - mu) ** 2).sum(1), -0.5 * ((x + mu) ** 2).sum(1)]), 0)

    @s.compile
    def svgd(x, eps=0.1):
        x = x.detach().requires_grad_(True)
        score = T.autograd.grad(logp(x).sum(), x)[0]
        with T.no_grad():
            d = T.cdist(x, x) ** 2
            h = d.flatten().median() / math.log(len(x)) + 1e-6
            K = T.exp(-d / h)
            phi = (K @ score + (2 / h) * (x * K.sum(1, keepdim=True) - K @ x)) / len(x)
        return (x + eps * phi).detach()

    def call():
        x[0] = svgd(x[0] + 0.01 * next(nxt))
        return [x[0]]

    return call


@idiom
def tree_of_leapfrogs(T, s):
    P = T.tensor([[2.0, 0.5], [0.5, 1.0]])

    def U(q):
        return 0.5 * q @ P @ q

    def leap(q, p, v, eps=0.3):
        def g(q):
            q = q.detach().requires_grad_()
            u = U(q)
            u.backward()
            return q.grad

        p = p - 0.5 * v * eps * g(q)
        q = q + v * eps * p
        return q, p - 0.5 * v * eps * g(q)

    def tree(q, p, v, j):
        if j == 0:
            q, p = leap(q, p, v)
            return q, p, q, p, True
        qm, pm, qp, pp, ok = tree(q, p, v, j - 1)
        if ok:
            if v < 0:
                qm, pm, _, _, ok = tree(qm, pm, v, j - 1)
            else:
                _, _, qp, pp, ok = tree(qp, pp, v, j - 1)
            d = qp - qm
            ok = ok and bool((d @ pm) * v >= 0) and bool((d @ pp) * v >= 0)
        return qm, pm, qp, pp, ok

    q, m = in_turn(s, 7, 2), in_turn(s, 5, 2)
    c = itertools.cycle([1, -1, 1])

    @s.compile
    def run(q, p, v):
        qm, pm, qp, pp, ok = tree(q, p, v, 2)
        return qm, qp, T.tensor(ok)

    return lambda: run(next(q), next(m), next(c))


@idiom
def planar_flows(T, s):
    class Planar(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.w, self.b = (T.nn.Parameter(s.numbers(2, scale=0.3)) for _ in range(3))
            self.b = T.nn.Parameter(T.zeros(1))

        def forward(self, z):
            uhat = self.u + (T.nn.functional.softplus(self.w @ self.u) - 1 - self.w @ self.u) * self.w / (
                self.w @ self.w
            )
            h = T.tanh(z @ self.w + self.b)
            psi = (1 - h**2).unsqueeze(1) * self.w
            return z + uhat * h.unsqueeze(1), T.log(T.abs(1 + psi @ uhat) + 1e-8)

    flows = T.nn.ModuleList(Planar() for _ in range(4))
    opt = T.optim.Adam(flows.parameters(), lr=1e-2)
    base = in_turn(s, 5, 16, 2)
    base_d = T.distributions.MultivariateNormal(T.zeros(2), T.eye(2))

    @s.compile
    def step(z0):
        z, ld = z0, T.zeros(len(z0))
        for f in flows:
            z, l = f(z)
            ld += l
        target = -0.5 * ((z[:, 0] ** 2 + z[:, 1] - 1) ** 2)
        loss = (base_d.log_prob(z0) - ld - target).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: [T.tensor(step(next(base))), *flows.parameters()]


@idiom
def process_with_inducing_points(T, s):
    Z = s.parameter(4, 1)
    lens, noise = T.zeros(1, requires_grad=True), T.tensor([-1.0], requires_grad=True)
    m, Lr = s.parameter(4), s.parameter(4, 4, scale=0.1)
    opt = T.optim.Adam([Z, lens, noise, m, Lr], lr=1e-2)
    x, y = in_turn(s, 4, 10, 1), in_turn(s, 3, 10)

    def k(a, b):
        return T.exp(-0.5 * ((a[:, None] - b[None]) / lens.exp()).pow(2).sum(-1))

    @s.compile
    def elbo(x, y):
        opt.zero_grad()
        Kzz = k(Z, Z) + 1e-2 * T.eye(4)
        Lz = T.linalg.cholesky(Kzz)
        A = T.linalg.solve_triangular(Lz, k(Z, x), upper=False)
        L = T.tril(Lr) + T.eye(4)
        mean = A.t() @ m
        var = 1 - (A**2).sum(0) + (L.t() @ A).pow(2).sum(0)
        s2 = noise.exp()
        ell = -0.5 * ((y - mean) ** 2 + var) / s2 - 0.5 * T.log(2 * math.pi * s2)
        kl = 0.5 * ((L**2).sum() + m @ m - 4 - 2 * T.log(T.diagonal(L).abs()).sum())
        loss = -(ell.sum() - kl)
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: [T.tensor(elbo(next(x), next(y))), Z, m]


@idiom
def series_by_conditional_squares(T, s):
    y = s.numbers(30).double().cumsum(0)
    ths = itertools.cycle([s.rng.standard_normal(3) * 0.2 for _ in range(4)])

    @s.compile
    def css(theta):
        th = T.tensor(theta, dtype=T.float64, requires_grad=True)
        phi, ma, mu = th
        d = y[1:] - y[:-1]
        e, tot = T.zeros((), dtype=T.float64), 0
        for t in range(1, 12):
            e = d[t] - mu - phi * (d[t - 1] - mu) - ma * e
            tot = tot + e**2
        tot.backward()
        return tot.item(), th.grad.numpy().copy()

    def call():
        v, g = css(next(ths))
        return [T.tensor(v), T.tensor(g)]

    return call


@idiom
def choices_by_gumbel(T, s):
    enc, dec = network(T, s, 5, 6, 4), network(T, s, 4, 6, 5)
    opt = T.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-2)
    x, u, c = in_turn(s, 4, 8, 5), itertools.cycle([s.numbers(8, 4).sigmoid() for _ in range(5)]), itertools.count()

    @s.compile
    def step(x, u, tau):
        g = -T.log(-T.log(u + 1e-9) + 1e-9)
        soft = ((enc(x) + g) / tau).softmax(-1)
        index = soft.max(-1, keepdim=True)[1]
        hard = T.zeros_like(soft).scatter_(-1, index, 1.0)
        z = hard - soft.detach() + soft
        loss = (dec(z) - x).pow(2).sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item(), index.squeeze(-1)

    def call():
        l, i = step(next(x), next(u), max(0.5, math.exp(-0.03 * next(c))))
        return [T.tensor(l), i, *enc.parameters()]

    return call


@idiom
def weights_made_by_a_network(T, s):
    hyper = network(T, s, 2, 8, 3 * 4 + 4 + 4 + 1)
    opt = T.optim.Adam(hyper.parameters(), lr=1e-3)
    z, x, y = in_turn(s, 5, 2), in_turn(s, 4, 8, 3), in_turn(s, 3, 8, 1)

    def unpack(v):
        i = 0
        for shape in ((4, 3), (4,), (1, 4), (1,)):
            n = math.prod(shape)
            yield v[i : i + n].view(*shape)
            i += n

    @s.compile
    def step(z, x, y):
        w1, b1, w2, b2 = unpack(hyper(z))
        out = T.nn.functional.linear(T.nn.functional.linear(x, w1, b1).tanh(), w2, b2)
        loss = T.nn.functional.mse_loss(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return lambda: [step(next(z), next(x), next(y)), *hyper.parameters()]
