"""Training inside of training, optimizers made of others, and gradients that are worked on before a step."""

import copy
import itertools

from .registry import idiom
from .strangers import in_turn, labels_in_turn


def network(T, s, *widths, act=None):
    """Linear layers with something in between: tanh, if nothing is said."""
    made = []
    for one, other in itertools.pairwise(widths):
        made += [T.nn.Linear(one, other), (act or T.nn.Tanh)()]
    return s.weights(T.nn.Sequential(*made[:-1]))


def fast_weights(x, ws):
    return (x @ ws[0].T + ws[1]).tanh() @ ws[2].T + ws[3]


def adapted(T, s, inner, rate=0.05):
    """Weights that are adapted to a task by two steps of `inner`, and move by their gradients there."""
    net, x, y = network(T, s, 1, 8, 1), in_turn(s, 4, 5, 1), in_turn(s, 3, 5, 1)
    optimizer = T.optim.Adam(net.parameters(), lr=0.01)

    def loss_of(ws, x, y):
        return ((fast_weights(x, ws) - y) ** 2).mean()

    @s.compile
    def outer(x, y, other_x, other_y):
        quick = [p.detach().clone().requires_grad_() for p in net.parameters()]
        for _ in range(2):
            inner(quick, lambda: loss_of(quick, x, y), rate)
        loss = loss_of(quick, other_x, other_y)
        slopes = T.autograd.grad(loss, quick)
        optimizer.zero_grad()
        for p, slope in zip(net.parameters(), slopes):
            p.grad = slope
        optimizer.step()
        return loss.detach()

    return lambda: [outer(next(x), next(y), next(x), next(y)), *net.parameters()]


@idiom
def adapted_in_place(T, s):
    def inner(ws, loss, rate):
        slopes = T.autograd.grad(loss(), ws)
        with T.no_grad():
            for w, slope in zip(ws, slopes):
                w -= rate * slope

    return adapted(T, s, inner)


@idiom
def adapted_through_data(T, s):
    def inner(ws, loss, rate):
        for w, slope in zip(ws, T.autograd.grad(loss(), ws)):
            w.data -= rate * slope

    return adapted(T, s, inner)


@idiom
def adapted_by_backward(T, s):
    def inner(ws, loss, rate):
        loss().backward()
        with T.no_grad():
            for w in ws:
                w -= rate * w.grad
                w.grad = None

    return adapted(T, s, inner)


@idiom
def adapted_by_an_optimizer(T, s):
    def inner(ws, loss, rate):
        optimizer = T.optim.SGD(ws, lr=rate, momentum=0.9)
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return adapted(T, s, inner)


@idiom
def code_fitted_by_its_own_optimizer(T, s):
    decoder, x = network(T, s, 3, 8, 5), in_turn(s, 5, 5)

    @s.compile
    def code_of(x):
        z = T.zeros(3, requires_grad=True)
        optimizer = T.optim.Adam([z], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            loss = ((decoder(z) - x) ** 2).sum() + 0.01 * z.dot(z)
            loss.backward()
            optimizer.step()
        return z.detach(), loss.item()

    def call():
        decoder.requires_grad_(False)
        z, loss = code_of(next(x))
        return [z, T.tensor(loss)]

    return call


@idiom
def model_fitted_in_one_call(T, s):
    net, x, y = network(T, s, 3, 6, 1), in_turn(s, 4, 8, 3), in_turn(s, 3, 8, 1)

    @s.compile
    def fit(x, y, epochs=3):
        optimizer = T.optim.Adam(net.parameters(), lr=0.01)
        history = []
        for _ in range(epochs):
            loss = T.nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.detach())
        return T.stack(history)

    return lambda: [fit(next(x), next(y)), *net.parameters()]


@idiom
def sharpness_as_a_class(T, s):
    net = network(T, s, 4, 8, 3)
    opt = T.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x, y = in_turn(s, 4, 8, 4), labels_in_turn(s, 3, 3, 8)

    class SAM:
        def __init__(self, params, base, rho=0.05):
            self.params, self.base, self.rho, self.e = list(params), base, rho, {}

        @T.no_grad()
        def ascend(self):
            norm = T.norm(T.stack([p.grad.norm(2) for p in self.params]), 2)
            for p in self.params:
                e = p.grad * (self.rho / (norm + 1e-12))
                p.add_(e)
                self.e[p] = e
            self.base.zero_grad()

        @T.no_grad()
        def descend(self):
            for p in self.params:
                p.sub_(self.e[p])
            self.base.step()
            self.base.zero_grad()

    sam = SAM(net.parameters(), opt)

    @s.compile
    def step(x, y):
        loss = T.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        sam.ascend()
        T.nn.functional.cross_entropy(net(x), y).backward()
        sam.descend()
        return loss.detach()

    return lambda: [step(next(x), next(y)), *net.parameters()]


@idiom
def gradients_projected_for_three_tasks(T, s):
    trunk = network(T, s, 4, 6, 6)
    heads = [s.weights(T.nn.Linear(6, 1)) for _ in range(3)]
    opt = T.optim.Adam([*trunk.parameters(), *itertools.chain(*(h.parameters() for h in heads))], lr=1e-3)
    x, y = in_turn(s, 5, 8, 4), in_turn(s, 3, 8, 3)

    @s.compile
    def step(x, y):
        h = trunk(x)
        losses = [((head(h).squeeze(-1) - y[:, i]) ** 2).mean() for i, head in enumerate(heads)]
        grads = []
        for l in losses:
            opt.zero_grad()
            l.backward(retain_graph=True)
            grads.append(T.cat([p.grad.flatten() for p in trunk.parameters()]))
        fixed = [g.clone() for g in grads]
        for i in range(3):
            for j in range(3):
                if i != j:
                    dot = fixed[i] @ grads[j]
                    if dot < 0:
                        fixed[i] -= dot / grads[j].norm() ** 2 * grads[j]
        flat, at = sum(fixed), 0
        for p in trunk.parameters():
            n = p.numel()
            p.grad = flat[at : at + n].view_as(p)
            at += n
        opt.step()
        return T.stack([l.detach() for l in losses])

    return lambda: [step(next(x), next(y)), *trunk.parameters()]


@idiom
def rates_by_layer(T, s):
    net = network(T, s, 4, 8, 2)
    x, y = in_turn(s, 4, 8, 4), in_turn(s, 3, 8, 2)

    class LARS(T.optim.Optimizer):
        def __init__(self, params, lr=0.1, trust=0.02, momentum=0.9, weight_decay=1e-4):
            super().__init__(params, {"lr": lr, "trust": trust, "momentum": momentum, "weight_decay": weight_decay})

        @T.no_grad()
        def step(self, closure=None):
            for g in self.param_groups:
                for p in g["params"]:
                    if p.grad is None:
                        continue
                    d = p.grad
                    pn, gn = p.norm(), d.norm()
                    ratio = T.where(
                        (pn > 0) & (gn > 0), g["trust"] * pn / (gn + g["weight_decay"] * pn), T.ones_like(pn)
                    )
                    d = (d + g["weight_decay"] * p) * ratio
                    st = self.state[p]
                    if "mu" not in st:
                        st["mu"] = T.zeros_like(p)
                    st["mu"].mul_(g["momentum"]).add_(d)
                    p.add_(st["mu"], alpha=-g["lr"])

    opt = LARS(net.parameters())

    @s.compile
    def step(x, y):
        opt.zero_grad()
        l = T.nn.functional.mse_loss(net(x), y)
        l.backward()
        opt.step()
        return l.detach()

    return lambda: [step(next(x), next(y)), *net.parameters()]


@idiom
def lookahead_through_data(T, s):
    net = network(T, s, 3, 6, 1)

    class Lookahead:
        def __init__(self, base, k=4, alpha=0.5):
            self.base, self.k, self.alpha, self.n = base, k, alpha, 0
            self.slow = [[p.clone().detach() for p in g["params"]] for g in base.param_groups]

        def step(self):
            self.base.step()
            self.n += 1
            if self.n % self.k:
                return
            for g, slow in zip(self.base.param_groups, self.slow):
                for p, q in zip(g["params"], slow):
                    q.data.add_(p.data - q.data, alpha=self.alpha)
                    p.data.copy_(q.data)

    la = Lookahead(T.optim.Adam(net.parameters(), lr=1e-2))
    x, y = in_turn(s, 4, 8, 3), in_turn(s, 3, 8, 1)

    @s.compile
    def step(x, y):
        net.zero_grad()
        loss = T.nn.functional.mse_loss(net(x), y)
        loss.backward()
        la.step()
        return loss.item()

    return lambda: [T.tensor(step(next(x), next(y))), *net.parameters()]


@idiom
def critic_clipped_by_data(T, s):
    G, D = network(T, s, 2, 8, 2), network(T, s, 2, 8, 1, act=T.nn.ReLU)
    og, od = T.optim.RMSprop(G.parameters(), lr=5e-4), T.optim.RMSprop(D.parameters(), lr=5e-4)
    z, real = in_turn(s, 5, 8, 2), in_turn(s, 4, 8, 2)

    @s.compile
    def critic(real, z):
        od.zero_grad()
        with T.no_grad():
            fake = G(z)
        loss = -(D(real).mean() - D(fake).mean())
        loss.backward()
        od.step()
        for p in D.parameters():
            p.data.clamp_(-0.1, 0.1)
        return loss.item()

    @s.compile
    def gen(z):
        og.zero_grad()
        loss = -D(G(z)).mean()
        loss.backward()
        og.step()
        return loss.item()

    def call():
        for _ in range(2):
            c = critic(next(real), next(z))
        return [T.tensor([c, gen(next(z))]), *G.parameters(), *D.parameters()]

    return call


@idiom
def average_as_a_module(T, s):
    net = network(T, s, 3, 6, 1)

    class EMA(T.nn.Module):
        def __init__(self, model, decay):
            super().__init__()
            self.decay, self.module = decay, copy.deepcopy(model)
            for p in self.module.parameters():
                p.requires_grad_(False)

        @T.no_grad()
        def update(self, model):
            for e, p in zip(self.module.state_dict().values(), model.state_dict().values()):
                e.copy_(self.decay * e + (1.0 - self.decay) * p)

        def forward(self, x):
            return self.module(x)

    ema, opt = EMA(net, 0.95), T.optim.AdamW(net.parameters(), lr=1e-2)
    x, y = in_turn(s, 4, 8, 3), in_turn(s, 3, 8, 1)

    @s.compile
    def step(x, y):
        opt.zero_grad()
        loss = T.nn.functional.smooth_l1_loss(net(x), y)
        loss.backward()
        opt.step()
        ema.update(net)
        return loss.detach(), ema(x).detach()

    return lambda: [*step(next(x), next(y)), *ema.parameters()]


@idiom
def adam_with_lists_of_states(T, s):
    net = network(T, s, 3, 6, 1)
    params = list(net.parameters())
    m, v = [T.zeros_like(p) for p in params], [T.zeros_like(p) for p in params]
    t = [0]
    x, y = in_turn(s, 4, 8, 3), in_turn(s, 3, 8, 1)

    @s.compile
    def train(x, y, lr=1e-2, b1=0.9, b2=0.999):
        t[0] += 1
        loss = (net(x) - y).abs().mean()
        grads = T.autograd.grad(loss, params)
        with T.no_grad():
            for i, (p, g) in enumerate(zip(params, grads)):
                m[i] = b1 * m[i] + (1 - b1) * g
                v[i] = b2 * v[i] + (1 - b2) * g * g
                mh, vh = m[i] / (1 - b1 ** t[0]), v[i] / (1 - b2 ** t[0])
                p -= lr * mh / (vh.sqrt() + 1e-8)
        return loss.item()

    return lambda: [T.tensor(train(next(x), next(y))), *params]


@idiom
def rate_searched_by_growing_it(T, s):
    net = network(T, s, 3, 8, 1)
    opt = T.optim.SGD(net.parameters(), lr=1e-5)
    x, y, found = in_turn(s, 4, 8, 3), in_turn(s, 3, 8, 1), []
    state0 = copy.deepcopy(net.state_dict())

    @s.compile
    def batch(x, y):
        opt.zero_grad()
        loss = T.nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    c = itertools.count()

    def call():
        k = next(c) % 12
        if k == 0:
            net.load_state_dict(state0)
            found.clear()
        for g in opt.param_groups:
            g["lr"] = 1e-4 * 1.8**k
        l = batch(next(x), next(y))
        found.append(l if not found else 0.9 * found[-1] + 0.1 * l)
        return [T.tensor(found[-1]), *net.parameters()]

    return call


@idiom
def ensemble_trained_at_once(T, s):
    nets = [network(T, s, 3, 6, 1) for _ in range(3)]
    params, buffers = T.func.stack_module_state(nets)
    params = {k: v.detach().requires_grad_() for k, v in params.items()}
    opt = T.optim.Adam(params.values(), lr=1e-2)
    skel = copy.deepcopy(nets[0])

    def one(p, b, x):
        return T.func.functional_call(skel, (p, b), (x,))

    x, y = in_turn(s, 4, 8, 3), in_turn(s, 3, 8, 1)

    @s.compile
    def step(x, y):
        out = T.vmap(one, in_dims=(0, 0, None))(params, buffers, x)
        loss = ((out - y) ** 2).mean((1, 2)).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), out.detach().std(0)

    return lambda: [*step(next(x), next(y)), *params.values()]


@idiom
def slopes_summed_along_a_line(T, s):
    net = network(T, s, 5, 8, 3)
    x = in_turn(s, 5, 5)

    @s.compile
    def ig(x, steps=6):
        total = T.zeros_like(x)
        for k in range(1, steps + 1):
            xi = (x * (k / steps)).detach()
            xi.requires_grad = True
            out = net(xi)[0]
            out.backward()
            total += xi.grad
        net.zero_grad()
        return x * total / steps

    return lambda: [ig(next(x))]


@idiom
def attack_in_small_steps(T, s):
    net = network(T, s, 6, 8, 3)
    x, y = in_turn(s, 4, 8, 6), labels_in_turn(s, 3, 3, 8)

    @s.compile
    def attack(x, y, eps=0.1, alpha=0.03):
        adv = x.clone().detach()
        for _ in range(4):
            adv.requires_grad_(True)
            loss = T.nn.functional.cross_entropy(net(adv), y)
            grad = T.autograd.grad(loss, adv)[0]
            adv = adv.detach() + alpha * grad.sign()
            delta = T.clamp(adv - x, min=-eps, max=eps)
            adv = (x + delta).detach()
        return adv

    return lambda: [attack(next(x), next(y))]


@idiom
def influence_of_samples(T, s):
    net = network(T, s, 3, 4, 1)
    x, y = in_turn(s, 4, 6, 3), in_turn(s, 3, 6, 1)

    @s.compile
    def influences(x, y):
        ref = T.autograd.grad(T.nn.functional.mse_loss(net(x), y), tuple(net.parameters()))
        out = []
        for xi, yi in zip(x, y):
            gi = T.autograd.grad(((net(xi) - yi) ** 2).sum(), tuple(net.parameters()))
            out.append(sum((a * b).sum() for a, b in zip(ref, gi)))
        return T.stack(out)

    return lambda: [influences(next(x), next(y))]
