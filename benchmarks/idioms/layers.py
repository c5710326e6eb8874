"""Models and parts of models, trained by one step of SGD each."""

from .registry import idiom
from .steps import stepped


def trained(T, s, model, x, y, criterion=None):
    s.weights(model)
    step = stepped(T, s, model, T.optim.SGD(model.parameters(), lr=1e-5), criterion)
    return lambda: step(x, y)


@idiom
def own_module(T, s):
    class Block(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = T.nn.Linear(16, 16), T.nn.Linear(16, 16)
            self.scale = T.nn.Parameter(T.ones(16))

        def forward(self, x):
            return x + self.scale * self.b(T.tanh(self.a(x)))

    model = T.nn.Sequential(Block(), Block(), T.nn.Linear(16, 4))
    return trained(T, s, model, s.numbers(8, 16), s.numbers(8, 4))


@idiom
def module_lists(T, s):
    nn = T.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
            self.heads = nn.ModuleDict({"mean": nn.Linear(8, 2), "spread": nn.Linear(8, 2)})

        def forward(self, x):
            for layer in self.layers:
                x = nn.functional.silu(layer(x))
            return {name: head(x) for name, head in self.heads.items()}

    def likelihood(out, y):
        spread = nn.functional.softplus(out["spread"]) + 1e-3
        return (((y - out["mean"]) / spread) ** 2 / 2 + spread.log()).mean()

    return trained(T, s, Model(), s.numbers(8, 8), s.numbers(8, 2), likelihood)


@idiom
def batch_norm(T, s):
    nn = T.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    return trained(T, s, model, s.numbers(8, 16), s.numbers(8, 4))


@idiom
def layer_norm(T, s):
    nn = T.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    return trained(T, s, model, s.numbers(8, 16), s.numbers(8, 4))


@idiom
def norm_by_hand(T, s):
    class Norm(T.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = T.nn.Parameter(T.ones(width))

        def forward(self, x):
            return x * T.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    model = T.nn.Sequential(T.nn.Linear(16, 32), Norm(32), T.nn.SiLU(), T.nn.Linear(32, 4))
    return trained(T, s, model, s.numbers(8, 16), s.numbers(8, 4))


@idiom
def embedding_and_cross_entropy(T, s):
    nn = T.nn
    model = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(24, 20))
    return trained(T, s, model, s.integers(20, 8, 3), s.integers(20, 8), nn.functional.cross_entropy)


def attention_head(T, width, n_heads):
    class Attention(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.mixed, self.out = T.nn.Linear(width, 3 * width), T.nn.Linear(width, width)
            self.register_buffer("mask", T.tril(T.ones(16, 16)))

        def forward(self, x):
            b, n, c = x.shape
            q, k, v = (part.view(b, n, n_heads, c // n_heads).transpose(1, 2) for part in self.mixed(x).split(c, dim=2))
            scores = (q @ k.transpose(-2, -1)) * (c // n_heads) ** -0.5
            scores = scores.masked_fill(self.mask[:n, :n] == 0, float("-inf"))
            y = T.nn.functional.softmax(scores, dim=-1) @ v
            return self.out(y.transpose(1, 2).contiguous().view(b, n, c))

    return Attention()


@idiom
def masked_attention(T, s):
    return trained(T, s, attention_head(T, 8, 2), s.numbers(2, 5, 8), s.numbers(2, 5, 8))


@idiom
def transformer_block(T, s):
    nn = T.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.attention = attention_head(T, 8, 2)
            self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    return trained(T, s, nn.Sequential(Block(), Block()), s.numbers(2, 5, 8), s.numbers(2, 5, 8))


@idiom
def recurrent_loop(T, s):
    wx, wh, xs = s.parameter(4, 8), s.parameter(8, 8, scale=0.3), s.numbers(10, 2, 4)

    @s.compile
    def step(xs):
        wx.grad = wh.grad = None
        h = T.zeros(2, 8)
        for x in xs:
            h = T.tanh(x @ wx + h @ wh)
        loss = (h * h).sum()
        loss.backward()
        return loss.detach()

    return lambda: step(xs)


@idiom
def gated_recurrence(T, s):
    class Cell(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.gates, self.new = T.nn.Linear(10, 12), T.nn.Linear(10, 6)

        def forward(self, xs):
            h, seen = xs.new_zeros(2, 6), []
            for x in xs.unbind(1):
                r, z = T.sigmoid(self.gates(T.cat([x, h], 1))).chunk(2, 1)
                h = (1 - z) * T.tanh(self.new(T.cat([x, r * h], 1))) + z * h
                seen.append(h)
            return T.stack(seen, 1)

    return trained(T, s, Cell(), s.numbers(2, 4, 4), s.numbers(2, 4, 6))


@idiom
def mixture_of_experts(T, s):
    nn = T.nn

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(6, 3)
            self.experts = nn.ModuleList(nn.Linear(6, 4) for _ in range(3))

        def forward(self, x):
            shares = self.gate(x).softmax(-1).unsqueeze(1)
            return (shares * T.stack([expert(x) for expert in self.experts], dim=-1)).sum(-1)

    return trained(T, s, Mixture(), s.numbers(8, 6), s.numbers(8, 4))


@idiom
def gates_and_squeezing(T, s):
    nn = T.nn

    class Squeeze(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up, self.wide = nn.Linear(8, 2), nn.Linear(2, 8), nn.Linear(8, 16)

        def forward(self, x):
            x = x * T.sigmoid(self.up(T.relu(self.down(x.mean(1, keepdim=True)))))
            value, gate = self.wide(x).chunk(2, dim=-1)
            return value * nn.functional.sigmoid(gate)

    return trained(T, s, Squeeze(), s.numbers(4, 3, 8), s.numbers(4, 3, 8))


@idiom
def contrast_of_two_views(T, s):
    model, F = T.nn.Linear(8, 4), T.nn.functional

    def contrast(out, other):
        a, b = F.normalize(out, dim=1), F.normalize(other, dim=1)
        scores = a @ b.t() / 0.1
        target = T.arange(len(scores))
        return (F.cross_entropy(scores, target) + F.cross_entropy(scores.t(), target)) / 2

    return trained(T, s, model, s.numbers(6, 8), s.numbers(6, 4), contrast)


@idiom
def padded_sequences(T, s):
    embedding, head, F = T.nn.Embedding(12, 6), T.nn.Linear(6, 3), T.nn.functional
    model = s.weights(T.nn.ModuleList([embedding, head]))
    words, label = s.integers(12, 5, 7), s.integers(3, 5)
    lengths = T.tensor([7, 3, 5, 1, 6])
    optimizer = T.optim.SGD(model.parameters(), lr=1e-4)

    @s.compile
    def step(words, lengths, label):
        mask = T.arange(words.shape[1])[None, :] < lengths[:, None]
        mean = (embedding(words) * mask.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)
        loss = F.cross_entropy(head(mean), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(words, lengths, label)


@idiom
def tied_weights(T, s):
    nn = T.nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, words):
            return self.head(T.tanh(self.embedding(words)))

    return trained(T, s, Tied(), s.integers(10, 8), s.integers(10, 8), nn.CrossEntropyLoss())


@idiom
def frozen_trunk(T, s):
    nn = T.nn
    trunk = s.weights(nn.Sequential(nn.Linear(16, 16), nn.ReLU())).requires_grad_(False)
    model = s.weights(nn.Linear(16, 4))
    step = stepped(T, s, lambda x: model(trunk(x)), T.optim.Adam(model.parameters(), lr=1e-5))
    x, y = s.numbers(8, 16), s.numbers(8, 4)
    return lambda: step(x, y)


@idiom
def hook_on_a_layer(T, s):
    nn = T.nn
    model, seen = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)), {}
    model[1].register_forward_hook(lambda module, args, out: seen.update(active=(out > 0).float().mean().detach()))
    call = trained(T, s, model, s.numbers(8, 16), s.numbers(8, 4))
    return lambda: (call(), seen["active"])


@idiom
def sum_by_einsum(T, s):
    q, k, v = s.numbers(2, 4, 6), s.numbers(2, 5, 6), s.numbers(2, 5, 3)

    @s.compile
    def f(q, k, v):
        shares = T.softmax(T.einsum("bqd,bkd->bqk", q, k), dim=-1)
        return T.einsum("bqk,bkd->bqd", shares, v)

    return lambda: f(q, k, v)
