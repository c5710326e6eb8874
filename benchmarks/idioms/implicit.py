"""Layers that are equations, equations that are trained, and what trained networks attend to."""

import copy
import itertools
import math
from typing import NamedTuple

from .inner_loops import network
from .registry import idiom
from .strangers import in_turn, labels_in_turn


class Transition(NamedTuple):
    obs: object
    act: object
    rew: object
    nxt: object
    done: object


@idiom
def adjoint_of_an_equation(T, s):
    f = network(T, s, 2, 8, 2)
    params = list(f.parameters())

    class Odeint(T.autograd.Function):
        @staticmethod
        def forward(ctx, z, *ps):
            with T.no_grad():
                for _ in range(4):
                    z = z + 0.25 * f(z)
            ctx.save_for_backward(z)
            return z

        @staticmethod
        def backward(ctx, a):
            (z,) = ctx.saved_tensors
            gp = [T.zeros_like(p) for p in params]
            for _ in range(4):
                with T.enable_grad():
                    zz = z.detach().requires_grad_(True)
                    out = f(zz)
                gs = T.autograd.grad(out, [zz, *params], a)
                with T.no_grad():
                    z = z - 0.25 * out
                a = a + 0.25 * gs[0]
                gp = [g + 0.25 * h for g, h in zip(gp, gs[1:])]
            return (a, *gp)

    opt = T.optim.SGD(params, lr=0.05)
    x, y = in_turn(s, 4, 6, 2), in_turn(s, 3, 6, 2)

    @s.compile
    def step(x, y):
        opt.zero_grad()
        loss = ((Odeint.apply(x, *params) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    return lambda: [step(next(x), next(y)), *params]


@idiom
def equilibrium_with_a_hook(T, s):
    W = s.weights(T.nn.Linear(5, 5))
    U = s.weights(T.nn.Linear(3, 5))
    with T.no_grad():
        W.weight.mul_(0.3)
    opt = T.optim.Adam([*W.parameters(), *U.parameters()], lr=1e-3)

    def cell(z, x):
        return T.tanh(W(z) + U(x))

    def solve(g, z, n=8):
        for _ in range(n):
            z = g(z)
        return z

    x, y = in_turn(s, 4, 6, 3), in_turn(s, 3, 6, 5)

    @s.compile
    def step(x, y):
        with T.no_grad():
            z = solve(lambda z: cell(z, x), T.zeros(6, 5))
        z = cell(z, x)
        z0 = z.clone().detach().requires_grad_()
        f0 = cell(z0, x)

        def backward_hook(grad):
            return solve(lambda v: T.autograd.grad(f0, z0, v, retain_graph=True)[0] + grad, grad)

        z.register_hook(backward_hook)
        loss = ((z - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: [T.tensor(step(next(x), next(y))), W.weight, U.weight]


@idiom
def orthogonal_recurrence(T, s):
    class Skew(T.nn.Module):
        def forward(self, X):
            A = X.triu(1)
            return A - A.transpose(-1, -2)

    class Cayley(T.nn.Module):
        def forward(self, A):
            I = T.eye(A.size(0))
            return T.linalg.solve(I + A, I - A)

    cell = s.weights(T.nn.Linear(4, 4, bias=False))
    T.nn.utils.parametrize.register_parametrization(cell, "weight", Skew())
    T.nn.utils.parametrize.register_parametrization(cell, "weight", Cayley())
    inp, out = s.weights(T.nn.Linear(2, 4)), s.weights(T.nn.Linear(4, 1))
    ps = [*cell.parameters(), *inp.parameters(), *out.parameters()]
    opt = T.optim.RMSprop(ps, lr=1e-3, alpha=0.9)
    x, y = in_turn(s, 4, 5, 6, 2), in_turn(s, 3, 6, 1)

    @s.compile
    def step(x, y):
        h = T.zeros(6, 4)
        with T.nn.utils.parametrize.cached():
            for xt in x:
                h = T.tanh(cell(h) + inp(xt))
        loss = T.nn.functional.mse_loss(out(h), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: [T.tensor(step(next(x), next(y))), *ps]


@idiom
def sines_and_an_equation(T, s):
    class Sine(T.nn.Module):
        def forward(self, x):
            return T.sin(3 * x)

    net = network(T, s, 1, 8, 8, 1, act=Sine)
    opt = T.optim.Adam(net.parameters(), lr=1e-3)
    x = in_turn(s, 5, 10, 1)

    @s.compile
    def step(x):
        x = x.requires_grad_()
        u = net(x)
        du = T.autograd.grad(u, x, T.ones_like(u), create_graph=True)[0]
        d2 = T.autograd.grad(du, x, T.ones_like(du), create_graph=True)[0]
        loss = ((d2 + u - x.detach() ** 2) ** 2).mean() + (net(T.zeros(1, 1)) ** 2).squeeze()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: [T.tensor(step(next(x).clone())), *net.parameters()]


@idiom
def energy_learned_through_steps(T, s):
    H = network(T, s, 2, 8, 1)
    opt = T.optim.Adam(H.parameters(), lr=1e-3)
    x, y = in_turn(s, 4, 6, 2), in_turn(s, 3, 6, 2)

    def field(z):
        (g,) = T.autograd.grad(H(z).sum(), z, create_graph=True)
        return T.stack([g[:, 1], -g[:, 0]], 1)

    def rk4(z, h=0.1):
        k1 = field(z)
        k2 = field(z + h / 2 * k1)
        k3 = field(z + h / 2 * k2)
        k4 = field(z + h * k3)
        return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    @s.compile
    def step(z, y):
        z = z.clone().requires_grad_(True)
        loss = (rk4(z) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return lambda: [step(next(x), next(y)), *H.parameters()]


@idiom
def actor_and_two_critics(T, s):
    actor, q1, q2 = network(T, s, 3, 8, 2), network(T, s, 4, 8, 1), network(T, s, 4, 8, 1)
    t1, t2 = copy.deepcopy(q1), copy.deepcopy(q2)
    log_alpha = T.zeros(1, requires_grad=True)
    oq = T.optim.Adam([*q1.parameters(), *q2.parameters()], lr=1e-3)
    oa = T.optim.Adam(actor.parameters(), lr=1e-3)
    ol = T.optim.Adam([log_alpha], lr=1e-3)
    obs, act, rew, nxt, done = (
        in_turn(s, 4, 8, 3),
        in_turn(s, 3, 8, 1),
        in_turn(s, 5, 8, 1),
        in_turn(s, 4, 8, 3),
        in_turn(s, 3, 8, 1),
    )
    e1, e2 = in_turn(s, 5, 8, 1), in_turn(s, 3, 8, 1)

    def sample(o, eps):
        mu, ls = actor(o).chunk(2, dim=-1)
        std = ls.clamp(-5, 2).exp()
        u = mu + std * eps
        a = T.tanh(u)
        lp = (-0.5 * ((u - mu) / std) ** 2 - ls.clamp(-5, 2) - 0.5 * math.log(2 * math.pi)).sum(-1, keepdim=True)
        return a, lp - T.log(1 - a.pow(2) + 1e-6).sum(-1, keepdim=True)

    @s.compile
    def update(b: Transition, e1, e2):
        alpha = log_alpha.exp().detach()
        with T.no_grad():
            a2, lp2 = sample(b.nxt, e1)
            sa2 = T.cat([b.nxt, a2], -1)
            target = b.rew + 0.99 * (1 - b.done) * (T.min(t1(sa2), t2(sa2)) - alpha * lp2)
        sa = T.cat([b.obs, b.act], -1)
        lq = ((q1(sa) - target) ** 2).mean() + ((q2(sa) - target) ** 2).mean()
        oq.zero_grad()
        lq.backward()
        oq.step()
        a, lp = sample(b.obs, e2)
        sa = T.cat([b.obs, a], -1)
        la = (alpha * lp - T.min(q1(sa), q2(sa))).mean()
        oa.zero_grad()
        la.backward()
        oa.step()
        ll = -(log_alpha * (lp.detach() - 1.0)).mean()
        ol.zero_grad()
        ll.backward()
        ol.step()
        with T.no_grad():
            for t, q in ((t1, q1), (t2, q2)):
                for tp, p in zip(t.parameters(), q.parameters()):
                    tp.data.mul_(0.995)
                    tp.data.add_(0.005 * p.data)
        return {"q": lq.item(), "pi": la.item(), "alpha": alpha.item()}

    def call():
        b = Transition(next(obs), next(act), next(rew), next(nxt), (next(done) > 1).float())
        return [T.tensor(list(update(b, next(e1), next(e2)).values())), *actor.parameters(), *t1.parameters()]

    return call


@idiom
def views_of_one_batch_contrasted(T, s):
    enc = network(T, s, 6, 12, 4, act=T.nn.ReLU)
    opt = T.optim.SGD(enc.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    x, n1, n2 = in_turn(s, 4, 8, 6), in_turn(s, 5, 8, 6), in_turn(s, 3, 8, 6)
    mask = T.eye(16, dtype=T.bool)

    @s.compile
    def step(a, b, temperature=0.5):
        z = T.nn.functional.normalize(enc(T.cat([a, b])), dim=1)
        sim = z @ z.t() / temperature
        sim.masked_fill_(mask, float("-inf"))
        target = (T.arange(16) + 8) % 16
        loss = T.nn.functional.cross_entropy(sim, target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss

    def call():
        v = next(x)
        return [step(v + 0.1 * next(n1), v + 0.1 * next(n2)), *enc.parameters()]

    return call


@idiom
def columns_embedded(T, s):
    embs = T.nn.ModuleList([s.weights(T.nn.Embedding(n, 3)) for n in (5, 7, 4)])
    bn = T.nn.BatchNorm1d(2)
    head = network(T, s, 11, 8, 1, act=T.nn.ReLU)
    opt = T.optim.AdamW(
        [{"params": embs.parameters(), "weight_decay": 0.0}, {"params": [*bn.parameters(), *head.parameters()]}],
        lr=1e-2,
    )
    cat = itertools.cycle([T.stack([s.integers(n, 8) for n in (5, 7, 4)], 1) for _ in range(4)])
    num, y = in_turn(s, 5, 8, 2), labels_in_turn(s, 3, 2, 8)
    crit = T.nn.BCEWithLogitsLoss(pos_weight=T.tensor([2.0]))

    @s.compile
    def step(batch):
        bn.train()
        head.train()
        x = T.cat([*(e(batch["cat"][:, i]) for i, e in enumerate(embs)), bn(batch["num"])], dim=1)
        out = head(x).squeeze(1)
        loss = crit(out, batch["y"].float())
        loss.backward()
        gn = T.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss.item(), gn, out.detach().sigmoid()

    def call():
        l, g, o = step({"cat": next(cat), "num": next(num), "y": next(y)})
        return [T.tensor(l), g, o, bn.running_mean, *head.parameters()]

    return call


@idiom
def statistics_by_hooks(T, s):
    net = network(T, s, 4, 6, 6, 2)
    acts, grads = {}, {}
    for i, l in enumerate(net):
        l.register_forward_hook(lambda m, inp, out, i=i: acts.__setitem__(i, out.detach().mean()))
        l.register_full_backward_hook(lambda m, gi, go, i=i: grads.__setitem__(i, go[0].abs().max()))
    opt = T.optim.SGD(net.parameters(), lr=0.1)
    x, y = in_turn(s, 4, 8, 4), labels_in_turn(s, 3, 2, 8)

    @s.compile
    def step(x, y):
        opt.zero_grad()
        l = T.nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
        l.backward()
        opt.step()
        return l.detach()

    return lambda: [step(next(x), next(y)), T.stack(list(acts.values())), T.stack([grads[k] for k in sorted(grads)])]
