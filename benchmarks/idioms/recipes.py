"""Ways to train that papers give a name: own optimizers and Functions, hooks, experts, adapters."""

import itertools
from collections import OrderedDict

from .registry import idiom


def mlp(T, *sizes, act=None):
    act = act or T.nn.ReLU
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [T.nn.Linear(a, b), act()]
    return T.nn.Sequential(*layers[:-1])


@idiom
def micro_batches(T, s):
    net = s.weights(mlp(T, 4, 8, 2))
    opt = T.optim.SGD(net.parameters(), lr=0.1)
    loader = itertools.cycle([(s.numbers(4, 4), s.integers(2, 4)) for _ in range(6)])
    accum = 3

    @s.compile
    def step(i, x, y):
        loss = T.nn.functional.cross_entropy(net(x), y) / accum
        loss.backward()
        if (i + 1) % accum == 0:
            opt.step()
            opt.zero_grad()
        return loss.item() * accum

    counter = itertools.count()
    return lambda: (T.tensor(step(next(counter), *next(loader))), list(net.parameters()))


@idiom
def sharpness_aware(T, s):
    net = s.weights(mlp(T, 4, 8, 1, act=T.nn.Tanh))
    base = T.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x, y = s.numbers(12, 4), s.numbers(12, 1)

    class SAM:
        def __init__(self, params, rho=0.05):
            self.params, self.rho, self.eps = list(params), rho, {}

        @T.no_grad()
        def first(self):
            norm = T.norm(T.stack([p.grad.norm(2) for p in self.params]), 2)
            for p in self.params:
                e = p.grad * (self.rho / (norm + 1e-12))
                p.add_(e)
                self.eps[p] = e

        @T.no_grad()
        def second(self):
            for p in self.params:
                p.sub_(self.eps[p])

    sam = SAM(net.parameters())

    @s.compile
    def step():
        base.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        sam.first()
        base.zero_grad()
        (net(x) - y).square().mean().backward()
        sam.second()
        base.step()
        return loss

    return lambda: (step(), list(net.parameters()))


@idiom
def own_optimizer_class(T, s):
    class SignSGD(T.optim.Optimizer):
        def __init__(self, params, lr=1e-2, beta=0.9):
            super().__init__(params, {"lr": lr, "beta": beta})

        @T.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if "momentum" not in state:
                        state["momentum"] = T.zeros_like(p)
                    m = state["momentum"]
                    m.mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                    p.add_(m.sign(), alpha=-group["lr"])

    net = s.weights(mlp(T, 4, 6, 1))
    opt = SignSGD(net.parameters(), lr=1e-3)
    x, y = s.numbers(8, 4), s.numbers(8, 1)

    @s.compile
    def step(x, y):
        opt.zero_grad()
        loss = T.nn.functional.smooth_l1_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x, y), list(net.parameters()))


@idiom
def lookahead_around_adam(T, s):
    class Lookahead:
        def __init__(self, opt, k=5, alpha=0.5):
            self.opt, self.k, self.alpha, self.n = opt, k, alpha, 0
            self.slow = [[p.detach().clone() for p in g["params"]] for g in opt.param_groups]

        def zero_grad(self):
            self.opt.zero_grad()

        def step(self):
            self.opt.step()
            self.n += 1
            if self.n % self.k == 0:
                for g, slow in zip(self.opt.param_groups, self.slow):
                    for p, q in zip(g["params"], slow):
                        q.data.add_(p.data - q.data, alpha=self.alpha)
                        p.data.copy_(q.data)

    net = s.weights(mlp(T, 3, 8, 1))
    opt = Lookahead(T.optim.Adam(net.parameters(), lr=1e-2))
    x, y = s.numbers(8, 3), s.numbers(8, 1)

    @s.compile
    def step(x, y):
        loss = T.nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x, y), list(net.parameters()))


@idiom
def quantizer_of_ones_own(T, s):
    class Round(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(x, scale)
            return T.round(x / scale).clamp(-8, 7) * scale

        @staticmethod
        def backward(ctx, g):
            x, scale = ctx.saved_tensors
            inside = (x / scale).abs() <= 7.5
            return g * inside, None

    class QLinear(T.nn.Linear):
        def forward(self, x):
            scale = self.weight.detach().abs().max() / 7
            return T.nn.functional.linear(x, Round.apply(self.weight, scale), self.bias)

    net = s.weights(T.nn.Sequential(QLinear(6, 8), T.nn.ReLU(), QLinear(8, 2)))
    opt = T.optim.SGD(net.parameters(), lr=0.05)
    x, y = s.numbers(8, 6), s.numbers(8, 2)

    @s.compile
    def step(x, y):
        opt.zero_grad()
        loss = T.nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x, y), list(net.parameters()))


@idiom
def gradient_reversal(T, s):
    class GradReverse(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, lambd):
            ctx.lambd = lambd
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.neg() * ctx.lambd, None

    feat, cls, dom = (s.weights(T.nn.Linear(a, b)) for a, b in ((5, 8), (8, 3), (8, 2)))
    opt = T.optim.SGD([*feat.parameters(), *cls.parameters(), *dom.parameters()], lr=0.05)
    xs, ys, xt = s.numbers(6, 5), s.integers(3, 6), s.numbers(6, 5)
    F = T.nn.functional
    progress = itertools.cycle([0.1, 0.5, 0.9])

    @s.compile
    def dann(xs, ys, xt, lambd):
        fs, ft = T.relu(feat(xs)), T.relu(feat(xt))
        d = dom(GradReverse.apply(T.cat([fs, ft]), lambd))
        labels = T.cat([T.zeros(6, dtype=T.long), T.ones(6, dtype=T.long)])
        loss = F.cross_entropy(cls(fs), ys) + F.cross_entropy(d, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (dann(xs, ys, xt, next(progress)), feat.weight)


@idiom
def swish_of_ones_own_outside(T, s):
    class Swish(T.autograd.Function):
        @staticmethod
        def forward(ctx, i):
            result = i * T.sigmoid(i)
            ctx.save_for_backward(i)
            return result

        @staticmethod
        def backward(ctx, grad_output):
            (i,) = ctx.saved_tensors
            sig = T.sigmoid(i)
            return grad_output * (sig * (1 + i * (1 - sig)))

    w = s.numbers(4, 4).requires_grad_()
    x = s.numbers(6, 4)
    f = s.compile(lambda x: Swish.apply(x @ w).sum())

    def call():
        w.grad = None
        loss = f(x)
        loss.backward()
        return loss, w.grad

    return call


@idiom
def activations_by_hooks(T, s):
    net = s.weights(mlp(T, 4, 6, 6, 2))
    acts = OrderedDict()

    def get(name):
        def hook(module, inp, out):
            acts[name] = out.detach()

        return hook

    for name, m in net.named_modules():
        if isinstance(m, T.nn.ReLU):
            m.register_forward_hook(get(name))
    forward = s.compile(net)
    x = s.numbers(5, 4)

    def call():
        with T.no_grad():
            out = forward(x)
        return out, {k: v.mean() for k, v in acts.items()}

    return call


@idiom
def pruned_by_gradient_hooks(T, s):
    net = s.weights(mlp(T, 4, 8, 1))
    for p in net.parameters():
        if p.dim() > 1:
            mask = (p.abs() > 0.2).float()
            p.data.mul_(mask)
            p.register_hook(lambda g, mask=mask: g * mask)
    opt = T.optim.SGD(net.parameters(), lr=0.05)
    x, y = s.numbers(8, 4), s.numbers(8, 1)

    @s.compile
    def step(x, y):
        opt.zero_grad()
        loss = T.nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x, y), list(net.parameters()))


@idiom
def uncertainty_weighted_tasks(T, s):
    class MultiTask(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = T.nn.Linear(4, 8)
            self.heads = T.nn.ModuleDict({"age": T.nn.Linear(8, 1), "sex": T.nn.Linear(8, 2)})
            self.log_vars = T.nn.ParameterDict({k: T.nn.Parameter(T.zeros(1)) for k in self.heads})

        def forward(self, x):
            h = T.relu(self.trunk(x))
            return {k: head(h) for k, head in self.heads.items()}

    net = s.weights(MultiTask())
    opt = T.optim.Adam(net.parameters(), lr=1e-2)
    losses_of = {"age": T.nn.MSELoss(), "sex": T.nn.CrossEntropyLoss()}
    x, target = s.numbers(8, 4), {"age": s.numbers(8, 1), "sex": s.integers(2, 8)}

    @s.compile
    def step(x, target):
        out = net(x)
        parts = {k: losses_of[k](out[k], target[k]) for k in out}
        total = sum(T.exp(-net.log_vars[k]) * v + net.log_vars[k] for k, v in parts.items()).squeeze()
        opt.zero_grad()
        total.backward()
        opt.step()
        parts["total"] = total
        return {k: v.item() for k, v in parts.items()}

    return lambda: ({k: T.tensor(v) for k, v in step(x, target).items()}, list(net.parameters()))


@idiom
def experts_by_gate(T, s):
    class MoE(T.nn.Module):
        def __init__(self, d=4, n=3, k=2):
            super().__init__()
            self.experts = T.nn.ModuleList(T.nn.Linear(d, d) for _ in range(n))
            self.gate = T.nn.Linear(d, n, bias=False)
            self.k = k

        def forward(self, x):
            scores = self.gate(x)
            top, idx = scores.topk(self.k, dim=-1)
            weights = T.softmax(top, dim=-1)
            out = T.zeros_like(x)
            for i, expert in enumerate(self.experts):
                w = (weights * (idx == i)).sum(-1, keepdim=True)
                out = out + w * expert(x)
            return out

    net = s.weights(MoE())
    opt = T.optim.Adam(net.parameters(), lr=1e-2)
    x, y = s.numbers(10, 4), s.numbers(10, 4)

    @s.compile
    def step(x, y):
        opt.zero_grad(set_to_none=False)
        loss = T.nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x, y), list(net.parameters()))


@idiom
def experts_by_index(T, s):
    experts = [s.weights(T.nn.Linear(4, 4)) for _ in range(2)]
    batches = itertools.cycle([(s.numbers(6, 4), s.integers(2, 6)) for _ in range(3)])

    @s.compile
    @T.no_grad()
    def route(x, which):
        out = T.empty_like(x)
        for i, expert in enumerate(experts):
            sel = which == i
            if sel.any():
                out[sel] = expert(x[sel])
        return out

    return lambda: route(*next(batches))


@idiom
def spectral_norm_by_hand(T, s):
    class SN(T.nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.weight = T.nn.Parameter(T.zeros(o, i))
            self.register_buffer("u", T.nn.functional.normalize(T.ones(o), dim=0))

        def forward(self, x):
            with T.no_grad():
                v = T.nn.functional.normalize(self.weight.t() @ self.u, dim=0)
                self.u = T.nn.functional.normalize(self.weight @ v, dim=0)
            sigma = self.u @ self.weight @ v
            return x @ (self.weight / sigma).t()

    net = s.weights(T.nn.Sequential(SN(4, 6), T.nn.ReLU(), SN(6, 1)))
    opt = T.optim.SGD(net.parameters(), lr=0.1)
    x, y = s.numbers(8, 4), s.numbers(8, 1)

    @s.compile
    def step():
        loss = (net(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(), net[0].u, net[2].weight)


@idiom
def low_rank_adapters(T, s):
    class LoRA(T.nn.Module):
        def __init__(self, base, r=2, alpha=4):
            super().__init__()
            self.base, self.scaling = base, alpha / r
            for p in base.parameters():
                p.requires_grad = False
            self.A = T.nn.Parameter(s.numbers(r, base.in_features, scale=0.1))
            self.B = T.nn.Parameter(T.zeros(base.out_features, r))

        def forward(self, x):
            return self.base(x) + (x @ self.A.T @ self.B.T) * self.scaling

    net = T.nn.Sequential(*[LoRA(m) if isinstance(m, T.nn.Linear) else m for m in s.weights(mlp(T, 6, 8, 3))])
    trainable = [p for p in net.parameters() if p.requires_grad]
    opt = T.optim.AdamW(trainable, lr=1e-2)
    x, y = s.numbers(8, 6), s.integers(3, 8)

    @s.compile
    def finetune(x, y):
        loss = T.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.item()

    return lambda: (T.tensor(finetune(x, y)), trainable)
