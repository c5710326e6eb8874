"""Networks written as classes: graphs, sets, sequences, flows, diffusion, rotating positions."""

import itertools

import numpy as np

from .recipes import mlp
from .registry import idiom


@idiom
def tied_autoencoder(T, s):
    class Tied(T.nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.W = T.nn.Parameter(T.zeros(h, d))
            self.b, self.c = T.nn.Parameter(T.zeros(h)), T.nn.Parameter(T.zeros(d))

        def encode(self, x):
            return T.sigmoid(T.nn.functional.linear(x, self.W, self.b))

        def decode(self, h):
            return T.nn.functional.linear(h, self.W.t(), self.c)

        def forward(self, x):
            h = self.encode(x)
            return self.decode(h), h

    net = s.weights(Tied(8, 3))
    opt = T.optim.Adam(net.parameters(), lr=1e-2)
    x = s.numbers(10, 8)

    @s.compile
    def step(x, beta=1e-2, rho=0.1):
        out, h = net(x)
        r = h.mean(0)
        sparsity = (rho * T.log(rho / r) + (1 - rho) * T.log((1 - rho) / (1 - r))).sum()
        loss = T.nn.functional.mse_loss(out, x) + beta * sparsity
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x), net.W)


@idiom
def skip_gram(T, s):
    inp, out = s.weights(T.nn.Embedding(20, 6)), s.weights(T.nn.Embedding(20, 6))
    opt = T.optim.SGD(list(inp.parameters()) + list(out.parameters()), lr=0.5)
    batches = itertools.cycle([(s.integers(20, 8), s.integers(20, 8), s.integers(20, 8, 3)) for _ in range(4)])
    F = T.nn.functional

    @s.compile
    def sgns(center, context, negative):
        v = inp(center)
        pos = F.logsigmoid((v * out(context)).sum(1))
        neg = F.logsigmoid(-T.bmm(out(negative), v.unsqueeze(2)).squeeze(2)).sum(1)
        loss = -(pos + neg).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (sgns(*next(batches)), inp.weight)


@idiom
def matrix_factorization(T, s):
    U, V, bu, bi = (s.parameter(*shape, scale=0.1) for shape in ((10, 4), (12, 4), (10,), (12,)))
    opt = T.optim.Adam([U, V, bu, bi], lr=0.02)
    batches = itertools.cycle([(s.integers(10, 16), s.integers(12, 16), s.numbers(16)) for _ in range(3)])

    @s.compile
    def step(u, i, r):
        pred = (U[u] * V[i]).sum(-1) + bu[u] + bi[i] + 3.5
        loss = ((pred - r) ** 2).mean() + 1e-3 * (U.norm() ** 2 + V.norm() ** 2)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: (T.tensor(step(*next(batches))), U, V, bu, bi)


@idiom
def graph_convolution_by_index_add(T, s):
    src, dst = s.integers(6, 15), s.integers(6, 15)

    class GCN(T.nn.Module):
        def __init__(self, *dims):
            super().__init__()
            self.lins = T.nn.ModuleList([T.nn.Linear(a, b) for a, b in zip(dims, dims[1:])])

        def propagate(self, x, src, dst):
            deg = T.zeros(x.size(0)).index_add_(0, dst, T.ones(len(dst))).clamp(min=1)
            return T.zeros_like(x).index_add_(0, dst, x[src]) / deg.unsqueeze(1)

        def forward(self, x, src, dst):
            for i, lin in enumerate(self.lins):
                x = lin(x + self.propagate(x, src, dst))
                if i < len(self.lins) - 1:
                    x = T.relu(x)
            return x

    net = s.weights(GCN(4, 8, 3))
    opt = T.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    x, y, train_mask = s.numbers(6, 4), s.integers(3, 6), T.tensor([True, True, False, True, False, True])

    @s.compile
    def step():
        net.train()
        opt.zero_grad()
        out = net(x, src, dst)
        loss = T.nn.functional.cross_entropy(out[train_mask], y[train_mask])
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(), list(net.parameters()))


@idiom
def graph_attention(T, s):
    h, W, a = s.numbers(6, 4), s.parameter(4, 5), s.parameter(10, 1)
    adj = (s.numbers(6, 6) > 0).float() + T.eye(6)

    @s.compile
    def gat(h, adj):
        Wh = T.mm(h, W)
        e = T.nn.functional.leaky_relu(Wh @ a[:5] + (Wh @ a[5:]).T, 0.2)
        zero_vec = -9e15 * T.ones_like(e)
        attention = T.nn.functional.softmax(T.where(adj > 0, e, zero_vec), dim=1)
        return T.nn.functional.elu(attention @ Wh)

    def call():
        W.grad = a.grad = None
        out = gat(h, adj)
        out.sum().backward()
        return out, W.grad, a.grad

    return call


@idiom
def deep_sets_masked(T, s):
    phi, rho = s.weights(mlp(T, 3, 8, 8)), s.weights(T.nn.Linear(8, 1))
    opt = T.optim.Adam([*phi.parameters(), *rho.parameters()], 1e-2)
    x, lengths, y = s.numbers(4, 6, 3), T.tensor([6, 3, 4, 1]), s.numbers(4, 1)

    @s.compile
    def step(x, lengths, y):
        mask = (T.arange(x.size(1))[None, :] < lengths[:, None]).unsqueeze(-1)
        h = (phi(x) * mask).sum(1) / lengths[:, None]
        loss = T.nn.functional.mse_loss(rho(h), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x, lengths, y), list(phi.parameters()))


@idiom
def additive_attention_decoder(T, s):
    class Attn(T.nn.Module):
        def __init__(self, d=4):
            super().__init__()
            self.Wa, self.Ua, self.Va = T.nn.Linear(d, d), T.nn.Linear(d, d), T.nn.Linear(d, 1)

        def forward(self, query, keys, mask=None):
            scores = self.Va(T.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
            if mask is not None:
                scores = scores.masked_fill(mask.unsqueeze(1), float("-inf"))
            weights = T.nn.functional.softmax(scores, dim=-1)
            return T.bmm(weights, keys), weights

    attn, cell = s.weights(Attn()), s.weights(T.nn.GRUCell(4, 4, bias=False))
    keys, mask = s.numbers(2, 5, 4), T.tensor([[False] * 5, [False] * 3 + [True] * 2])

    @s.compile
    @T.no_grad()
    def decode(keys, mask, max_len=4):
        hidden, outputs, attentions = keys.mean(1), [], []
        for _ in range(max_len):
            context, weights = attn(hidden.unsqueeze(1), keys, mask=mask)
            hidden = cell(context.squeeze(1), hidden)
            outputs.append(hidden.unsqueeze(1))
            attentions.append(weights)
        return T.cat(outputs, dim=1), T.cat(attentions, dim=1)

    return lambda: decode(keys, mask)


@idiom
def conditional_random_field(T, s):
    trans = s.parameter(4, 4)
    emit, tags = s.numbers(3, 6, 4), s.integers(4, 3, 6)

    @s.compile
    def crf_nll(emit, tags):
        B, L, K = emit.shape
        score = emit[:, 0].gather(1, tags[:, :1]).squeeze(1)
        alpha = emit[:, 0]
        for t in range(1, L):
            score = score + emit[:, t].gather(1, tags[:, t : t + 1]).squeeze(1) + trans[tags[:, t - 1], tags[:, t]]
            alpha = T.logsumexp(alpha.unsqueeze(2) + trans.unsqueeze(0), dim=1) + emit[:, t]
        return (T.logsumexp(alpha, dim=1) - score).mean()

    def call():
        trans.grad = None
        nll = crf_nll(emit, tags)
        nll.backward()
        return nll, trans.grad

    return call


@idiom
def teacher_forcing_now_and_then(T, s):
    emb, out = s.weights(T.nn.Embedding(7, 5)), s.weights(T.nn.Linear(5, 7))
    cell = s.weights(T.nn.GRUCell(5, 5, bias=False))
    params = [p for m in (emb, cell, out) for p in m.parameters()]
    opt = T.optim.SGD(params, lr=0.1)
    target = s.integers(7, 2, 4)
    coin = itertools.cycle([True, False, False, True, False])

    @s.compile
    def train(target, use_teacher_forcing):
        h, inp, loss = T.zeros(2, 5), T.zeros(2, dtype=T.long), 0.0
        for t in range(target.size(1)):
            h = cell(emb(inp), h)
            logits = out(h)
            loss += T.nn.functional.cross_entropy(logits, target[:, t])
            inp = target[:, t] if use_teacher_forcing else logits.argmax(1).detach()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item() / target.size(1)

    return lambda: (T.tensor(train(target, next(coin))), params)


@idiom
def neural_ode_euler(T, s):
    class ODEFunc(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(T, 3, 8, 2, act=T.nn.Tanh)

        def forward(self, t, y):
            return self.net(T.cat([y, T.full_like(y[:, :1], t)], dim=1))

    def odeint(func, y0, ts):
        ys = [y0]
        for t0, t1 in zip(ts[:-1], ts[1:]):
            ys.append(ys[-1] + (t1 - t0) * func(t0, ys[-1]))
        return T.stack(ys)

    func = s.weights(ODEFunc())
    opt = T.optim.RMSprop(func.parameters(), lr=1e-3)
    ts, y0, true = np.linspace(0, 1, 5).tolist(), s.numbers(4, 2), s.numbers(5, 4, 2)

    @s.compile
    def step():
        opt.zero_grad()
        loss = T.mean(T.abs(odeint(func, y0, ts) - true))
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(), list(func.parameters()))


@idiom
def real_nvp(T, s):
    class Coupling(T.nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.register_buffer("mask", mask)
            self.scale, self.shift = mlp(T, 2, 6, 2, act=T.nn.Tanh), mlp(T, 2, 6, 2, act=T.nn.Tanh)

        def forward(self, x):
            xm = x * self.mask
            sc, t = T.tanh(self.scale(xm)) * (1 - self.mask), self.shift(xm) * (1 - self.mask)
            return xm + (1 - self.mask) * (x * T.exp(sc) + t), sc.sum(-1)

    class Flow(T.nn.Module):
        def __init__(self, n=4):
            super().__init__()
            self.layers = T.nn.ModuleList([Coupling(T.tensor([float(i % 2), 1.0 - i % 2])) for i in range(n)])
            self.prior = T.distributions.MultivariateNormal(T.zeros(2), T.eye(2))

        def log_prob(self, x):
            total = 0
            for layer in self.layers:
                x, ld = layer(x)
                total = total + ld
            return self.prior.log_prob(x) + total

    flow = s.weights(Flow())
    opt = T.optim.Adam(flow.parameters(), lr=1e-3)
    x = s.numbers(16, 2)

    @s.compile
    def step(x):
        loss = -flow.log_prob(x).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x), list(flow.parameters()))


@idiom
def diffusion_loss(T, s):
    class Diffusion(T.nn.Module):
        def __init__(self, n=20):
            super().__init__()
            betas = T.linspace(1e-4, 0.02, n)
            self.register_buffer("betas", betas)
            self.register_buffer("alphas_bar", T.cumprod(1 - betas, 0))
            self.net = mlp(T, 3, 16, 2, act=T.nn.SiLU)

        def extract(self, a, t, x):
            return a.gather(-1, t).reshape(t.shape[0], *((1,) * (x.dim() - 1)))

        def forward(self, x0, t, noise):
            ab = self.extract(self.alphas_bar, t, x0)
            xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
            return T.nn.functional.mse_loss(self.net(T.cat([xt, t[:, None] / 20], -1)), noise)

    model = s.weights(Diffusion())
    opt = T.optim.AdamW(model.parameters(), lr=1e-3)
    batches = itertools.cycle([(s.numbers(8, 2), s.integers(20, 8), s.numbers(8, 2)) for _ in range(3)])

    @s.compile
    def step(*batch):
        loss = model(*batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return lambda: (T.tensor(step(*next(batches))), list(model.parameters()))


@idiom
def diffusion_sampling(T, s):
    net = s.weights(mlp(T, 3, 16, 2, act=T.nn.SiLU))
    betas = T.linspace(1e-4, 0.02, 5)
    alphas = 1.0 - betas
    bar = T.cumprod(alphas, dim=0)
    noise = s.numbers(5, 4, 2)

    @s.compile
    @T.no_grad()
    def p_sample(x, i: int):
        t = T.full((x.shape[0], 1), i / 5)
        eps = net(T.cat([x, t], 1))
        mean = (x - betas[i] / T.sqrt(1 - bar[i]) * eps) / T.sqrt(alphas[i])
        if i == 0:
            return mean
        return mean + T.sqrt(betas[i]) * noise[i]

    def call():
        x = noise[0]
        for i in reversed(range(5)):
            x = p_sample(x, i)
        return x

    return call


@idiom
def rotary_transformer_block(T, s):
    class RMSNorm(T.nn.Module):
        def __init__(self, d, eps=1e-6):
            super().__init__()
            self.weight, self.eps = T.nn.Parameter(T.ones(d)), eps

        def forward(self, x):
            return x * T.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

    class SwiGLU(T.nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.w1, self.w2, self.w3 = T.nn.Linear(d, h, False), T.nn.Linear(h, d, False), T.nn.Linear(d, h, False)

        def forward(self, x):
            return self.w2(T.nn.functional.silu(self.w1(x)) * self.w3(x))

    class Block(T.nn.Module):
        def __init__(self, d=8, heads=2):
            super().__init__()
            self.h, self.n1, self.n2, self.ff = heads, RMSNorm(d), RMSNorm(d), SwiGLU(d, 16)
            self.wq, self.wk, self.wv, self.wo = (T.nn.Linear(d, d, bias=False) for _ in range(4))
            freqs = T.outer(T.arange(16.0), 1 / 10000 ** (T.arange(0, d // heads, 2) / (d // heads)))
            self.register_buffer("cos", freqs.cos(), persistent=False)
            self.register_buffer("sin", freqs.sin(), persistent=False)

        def rope(self, x):
            a, b = x[..., ::2], x[..., 1::2]
            cos, sin = self.cos[: x.size(-2)], self.sin[: x.size(-2)]
            return T.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

        def forward(self, x):
            B, L, D = x.shape
            y = self.n1(x)
            q, k, v = [w(y).reshape(B, L, self.h, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv)]
            o = T.nn.functional.scaled_dot_product_attention(self.rope(q), self.rope(k), v, is_causal=True)
            x = x + self.wo(o.transpose(1, 2).reshape(B, L, D))
            return x + self.ff(self.n2(x))

    block = s.weights(Block())
    forward = s.compile(block)
    x = s.numbers(2, 5, 8)

    def call():
        block.zero_grad()
        out = forward(x)
        out.square().mean().backward()
        return out, [p.grad for p in block.parameters()]

    return call
