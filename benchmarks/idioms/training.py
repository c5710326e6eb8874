"""Steps that train the models of papers: transformers, contrast, GANs, agents, learning to learn."""

import itertools
import math
from collections import deque, namedtuple

from .registry import idiom, random_idiom


def small_gpt(T):
    class CausalSelfAttention(T.nn.Module):
        def __init__(self, d, heads, block):
            super().__init__()
            self.heads = heads
            self.qkv, self.proj = T.nn.Linear(d, 3 * d), T.nn.Linear(d, d)
            self.register_buffer("bias", T.tril(T.ones(block, block)).view(1, 1, block, block))

        def forward(self, x):
            B, L, C = x.size()
            q, k, v = self.qkv(x).split(C, dim=2)
            q, k, v = (t.view(B, L, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :L, :L] == 0, float("-inf"))
            att = T.nn.functional.softmax(att, dim=-1)
            y = (att @ v).transpose(1, 2).contiguous().view(B, L, C)
            return self.proj(y)

    class Block(T.nn.Module):
        def __init__(self, d=8):
            super().__init__()
            self.ln_1, self.ln_2 = T.nn.LayerNorm(d), T.nn.LayerNorm(d)
            self.attn = CausalSelfAttention(d, 2, 16)
            self.mlp = T.nn.ModuleDict(
                {"c_fc": T.nn.Linear(d, 4 * d), "act": T.nn.GELU(), "c_proj": T.nn.Linear(4 * d, d)}
            )
            m = self.mlp
            self.mlpf = lambda x: m.c_proj(m.act(m.c_fc(x)))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlpf(self.ln_2(x))

    class GPT(T.nn.Module):
        def __init__(self, vocab=11, d=8):
            super().__init__()
            self.wte, self.wpe = T.nn.Embedding(vocab, d), T.nn.Embedding(16, d)
            self.h = T.nn.ModuleList([Block(d) for _ in range(2)])
            self.lm_head = T.nn.Linear(d, vocab, bias=False)

        def forward(self, idx, targets=None):
            pos = T.arange(0, idx.size(1), dtype=T.long).unsqueeze(0)
            x = self.wte(idx) + self.wpe(pos)
            for block in self.h:
                x = block(x)
            logits = self.lm_head(x)
            loss = None
            if targets is not None:
                flat_logits = logits.view(-1, logits.size(-1))
                loss = T.nn.functional.cross_entropy(flat_logits, targets.view(-1), ignore_index=-1)
            return logits, loss

    return GPT()


@idiom
def causal_self_attention(T, s):
    gpt = s.weights(small_gpt(T))
    opt = T.optim.AdamW(gpt.parameters(), lr=1e-3)
    data = s.integers(11, 100)
    starts = itertools.cycle([[0, 9], [20, 33], [50, 61]])

    def get_batch():
        ix = next(starts)
        return T.stack([data[i : i + 8] for i in ix]), T.stack([data[i + 1 : i + 9] for i in ix])

    @s.compile
    def train(x, y):
        logits, loss = gpt(x, y)
        gpt.zero_grad(set_to_none=True)
        loss.backward()
        T.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        opt.step()
        return loss.item()

    return lambda: T.tensor(train(*get_batch()))


@idiom
def key_value_cache(T, s):
    wq, wk, wv = (s.numbers(8, 8, scale=0.3) for _ in range(3))
    tokens = itertools.cycle([s.numbers(1, 8) for _ in range(7)])
    cache = {"k": T.empty(0, 8), "v": T.empty(0, 8)}

    @s.compile
    @T.no_grad()
    def decode(x, cache):
        cache["k"] = T.cat([cache["k"], x @ wk])
        cache["v"] = T.cat([cache["v"], x @ wv])
        att = T.softmax((x @ wq) @ cache["k"].T / 8**0.5, -1)
        return att @ cache["v"]

    def call():
        if len(cache["k"]) >= 8:
            cache["k"], cache["v"] = cache["k"][:0], cache["v"][:0]
        return decode(next(tokens), cache)

    return call


@idiom
def beam_search(T, s):
    E, W, U = s.numbers(7, 5), s.numbers(5, 5), s.numbers(5, 7)

    @s.compile
    @T.inference_mode()
    def beam(width=3, length=4):
        h = T.zeros(1, 5)
        seqs, scores = T.zeros(1, 1, dtype=T.long), T.zeros(1)
        for _ in range(length):
            h = T.tanh(E[seqs[:, -1]] + h @ W)
            logp = T.log_softmax(h @ U, dim=-1)
            total = scores[:, None] + logp
            scores, flat_idx = total.flatten().topk(width)
            parent, token = flat_idx // 7, flat_idx % 7
            seqs = T.cat([seqs[parent], token[:, None]], dim=1)
            h = h[parent]
        return seqs, scores

    return lambda: beam()


@idiom
def info_nce(T, s):
    enc = s.weights(T.nn.Sequential(T.nn.Linear(6, 12), T.nn.ReLU(inplace=True), T.nn.Linear(12, 4)))
    opt = T.optim.Adam(enc.parameters(), lr=3e-3)
    views = itertools.cycle([(s.numbers(8, 6), s.numbers(8, 6)) for _ in range(3)])

    def info_nce(z1, z2, temperature=0.2):
        z = T.nn.functional.normalize(T.cat([z1, z2]), dim=1)
        sim = z @ z.T / temperature
        n = z1.shape[0]
        sim.fill_diagonal_(float("-inf"))
        labels = T.cat([T.arange(n, 2 * n), T.arange(0, n)])
        return T.nn.functional.cross_entropy(sim, labels)

    @s.compile
    def step(a, b):
        loss = info_nce(enc(a), enc(b))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(*next(views)), list(enc.parameters()))


@idiom
def triplets_hard_mining(T, s):
    net = s.weights(T.nn.Linear(5, 3))
    opt = T.optim.SGD(net.parameters(), lr=0.05)
    x, labels = s.numbers(12, 5), s.integers(3, 12)

    @s.compile
    def step(x, labels, margin=0.5):
        e = net(x)
        dist = (e.unsqueeze(0) - e.unsqueeze(1)).pow(2).sum(2).clamp(min=1e-12).sqrt()
        same = labels[None, :] == labels[:, None]
        pos = (dist * same.float()).max(1).values
        neg = dist.masked_fill(same, 1e9).min(1).values
        loss = T.relu(pos - neg + margin).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss, same.sum()

    return lambda: (step(x, labels), net.weight)


@random_idiom
def gan_two_optimizers(T, s):
    G = s.weights(T.nn.Sequential(T.nn.Linear(3, 8), T.nn.LeakyReLU(0.2), T.nn.Linear(8, 2)))
    D = s.weights(T.nn.Sequential(T.nn.Linear(2, 8), T.nn.LeakyReLU(0.2), T.nn.Linear(8, 1)))
    oG = T.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    oD = T.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
    bce = T.nn.BCEWithLogitsLoss()
    real = itertools.cycle([s.numbers(8, 2) for _ in range(4)])

    @s.compile
    def train(x):
        ones, zeros = T.ones(x.size(0), 1), T.zeros(x.size(0), 1)
        oD.zero_grad()
        fake = G(T.randn(x.size(0), 3))
        d_real, d_fake = bce(D(x), ones), bce(D(fake.detach()), zeros)
        d_real.backward()
        d_fake.backward()
        oD.step()
        oG.zero_grad()
        g_loss = bce(D(fake), ones)
        g_loss.backward()
        oG.step()
        return (d_real + d_fake).item(), g_loss.item()

    return lambda: ([T.tensor(v) for v in train(next(real))], list(G.parameters()), list(D.parameters()))


@random_idiom
def vae(T, s):
    class VAE(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = T.nn.Linear(12, 8), T.nn.Linear(8, 2), T.nn.Linear(8, 2)
            self.fc3, self.fc4 = T.nn.Linear(2, 8), T.nn.Linear(8, 12)

        def encode(self, x):
            h1 = T.nn.functional.relu(self.fc1(x))
            return self.fc21(h1), self.fc22(h1)

        def reparameterize(self, mu, logvar):
            std = T.exp(0.5 * logvar)
            return mu + T.randn_like(std) * std

        def decode(self, z):
            return T.sigmoid(self.fc4(T.nn.functional.relu(self.fc3(z))))

        def forward(self, x):
            mu, logvar = self.encode(x.view(-1, 12))
            return self.decode(self.reparameterize(mu, logvar)), mu, logvar

    def loss_function(recon_x, x, mu, logvar):
        BCE = T.nn.functional.binary_cross_entropy(recon_x, x.view(-1, 12), reduction="sum")
        return BCE - 0.5 * T.sum(1 + logvar - mu.pow(2) - logvar.exp())

    model = s.weights(VAE())
    optimizer = T.optim.Adam(model.parameters(), lr=1e-3)
    x = T.sigmoid(s.numbers(8, 3, 4))

    @s.compile
    def train(data):
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        optimizer.step()
        return loss.item()

    return lambda: (T.tensor(train(x)), list(model.parameters()))


Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


@idiom
def deep_q_learning(T, s):
    def dqn():
        return T.nn.Sequential(T.nn.Linear(4, 16), T.nn.ReLU(), T.nn.Linear(16, 2))

    policy, target = s.weights(dqn()), dqn()
    target.load_state_dict(policy.state_dict())
    opt = T.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
    memory = deque(maxlen=20)
    for k in range(20):
        memory.append(Transition(s.numbers(1, 4), T.tensor([[k % 2]]), s.numbers(1, 4), T.tensor([float(k % 3)])))
    picks = itertools.cycle([s.rng.permutation(20)[:8].tolist() for _ in range(5)])

    @s.compile
    def optimize(batch, gamma=0.99, tau=0.005):
        state, action, reward = T.cat(batch.state), T.cat(batch.action), T.cat(batch.reward)
        q = policy(state).gather(1, action)
        with T.no_grad():
            nxt = target(T.cat(batch.next_state)).max(1).values
        loss = T.nn.SmoothL1Loss()(q, (nxt * gamma + reward).unsqueeze(1))
        opt.zero_grad()
        loss.backward()
        T.nn.utils.clip_grad_value_(policy.parameters(), 100)
        opt.step()
        with T.no_grad():
            for p, t in zip(policy.parameters(), target.parameters()):
                t.copy_(tau * p + (1 - tau) * t)
        return loss

    def call():
        batch = Transition(*zip(*[memory[i] for i in next(picks)]))
        return optimize(batch), list(target.parameters())

    return call


@random_idiom
def reinforce_with_sampled_actions(T, s):
    policy = s.weights(T.nn.Sequential(T.nn.Linear(4, 8), T.nn.ReLU(), T.nn.Linear(8, 2), T.nn.Softmax(dim=-1)))
    opt = T.optim.Adam(policy.parameters(), lr=1e-2)
    states = [s.numbers(4) for _ in range(5)]

    @s.compile
    def episode():
        log_probs, rewards = [], []
        for st in states:
            m = T.distributions.Categorical(policy(st))
            a = m.sample()
            log_probs.append(m.log_prob(a))
            rewards.append(1.0 if a.item() == 1 else 0.0)
        R, returns = 0, deque()
        for r in rewards[::-1]:
            R = r + 0.99 * R
            returns.appendleft(R)
        returns = T.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = T.stack([-lp * R for lp, R in zip(log_probs, returns)]).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (episode(), list(policy.parameters()))


@idiom
def ppo_clipped(T, s):
    class ActorCritic(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = T.nn.Sequential(T.nn.Linear(4, 16), T.nn.Tanh())
            self.pi, self.v = T.nn.Linear(16, 3), T.nn.Linear(16, 1)

        def forward(self, x):
            h = self.body(x)
            return T.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)

    net = s.weights(ActorCritic())
    opt = T.optim.Adam(net.parameters(), lr=3e-4, eps=1e-5)
    roll = {"obs": s.numbers(32, 4), "act": s.integers(3, 32), "adv": s.numbers(32)}
    roll |= {"ret": s.numbers(32), "logp": -T.ones(32)}
    orders = itertools.cycle([s.order(32) for _ in range(3)])

    @s.compile
    def minibatch(idx, clip=0.2):
        dist, value = net(roll["obs"][idx])
        ratio = (dist.log_prob(roll["act"][idx]) - roll["logp"][idx]).exp()
        adv = roll["adv"][idx]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg = -T.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
        vf = 0.5 * (value - roll["ret"][idx]).pow(2).mean()
        loss = pg + 0.5 * vf - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        T.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        return pg.item(), vf.item()

    def call():
        order = next(orders)
        out = [minibatch(T.tensor(order[k : k + 16])) for k in (0, 16)]
        return [T.tensor(v) for v in out], list(net.parameters())

    return call


@idiom
def maml_with_functional_call(T, s):
    net = s.weights(T.nn.Sequential(T.nn.Linear(1, 8), T.nn.Tanh(), T.nn.Linear(8, 1)))
    opt = T.optim.Adam(net.parameters(), lr=1e-2)
    tasks = itertools.cycle([[(s.numbers(5, 1), s.numbers(5, 1)) for _ in range(2)] for _ in range(2)])

    @s.compile
    def meta_step(support, query, inner_lr=0.05):
        params = dict(net.named_parameters())
        loss = T.nn.functional.mse_loss(T.func.functional_call(net, params, (support[0],)), support[1])
        grads = T.autograd.grad(loss, params.values(), create_graph=True)
        fast = {k: p - inner_lr * g for (k, p), g in zip(params.items(), grads)}
        outer = T.nn.functional.mse_loss(T.func.functional_call(net, fast, (query[0],)), query[1])
        opt.zero_grad()
        outer.backward()
        opt.step()
        return outer

    return lambda: (meta_step(*next(tasks)), list(net.parameters()))


@idiom
def reptile(T, s):
    net = s.weights(T.nn.Sequential(T.nn.Linear(1, 6), T.nn.Tanh(), T.nn.Linear(6, 1)))
    tasks = itertools.cycle([(s.numbers(6, 1), s.numbers(6, 1)) for _ in range(3)])

    @s.compile
    def inner(x, y, lr=0.05):
        loss = ((net(x) - y) ** 2).mean()
        net.zero_grad()
        loss.backward()
        for p in net.parameters():
            p.data -= lr * p.grad.data
        return loss

    def call():
        before = {k: v.clone() for k, v in net.state_dict().items()}
        x, y = next(tasks)
        for _ in range(3):
            loss = inner(x, y)
        after = net.state_dict()
        net.load_state_dict({k: before[k] + 0.3 * (after[k] - before[k]) for k in before})
        return loss, list(net.parameters())

    return call


@idiom
def prototypes(T, s):
    enc = s.weights(T.nn.Sequential(T.nn.Linear(4, 8), T.nn.ReLU(), T.nn.Linear(8, 3)))
    opt = T.optim.SGD(enc.parameters(), lr=0.1)
    sup, qry = s.numbers(3, 5, 4), s.numbers(12, 4)
    y = T.arange(3).repeat_interleave(4)

    @s.compile
    def episode(support, query, y):
        protos = enc(support).mean(1)
        logits = -(T.cdist(enc(query), protos) ** 2)
        loss = T.nn.functional.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item(), (logits.argmax(1) == y).float().mean().item()

    return lambda: ([T.tensor(v) for v in episode(sup, qry, y)], list(enc.parameters()))


@idiom
def distillation(T, s):
    F = T.nn.functional
    teacher = s.weights(T.nn.Sequential(T.nn.Linear(6, 16), T.nn.ReLU(), T.nn.Linear(16, 4))).eval()
    student = s.weights(T.nn.Linear(6, 4))
    opt = T.optim.SGD(student.parameters(), lr=0.1)
    x, y = s.numbers(16, 6), s.integers(4, 16)

    @s.compile
    def step(x, y, temp=3.0, alpha=0.7):
        with T.no_grad():
            soft = F.softmax(teacher(x) / temp, dim=1)
        out = student(x)
        kd = F.kl_div(F.log_softmax(out / temp, dim=1), soft, reduction="batchmean") * temp * temp
        loss = alpha * kd + (1 - alpha) * F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x, y), student.weight)


@idiom
def mixup(T, s):
    net = s.weights(T.nn.Linear(5, 3))
    opt = T.optim.SGD(net.parameters(), lr=0.1, weight_decay=5e-4)
    x, y = s.numbers(10, 5), s.integers(3, 10)
    lams, perms = itertools.cycle(s.rng.beta(1, 1, 4)), itertools.cycle([s.integers(10, 10) for _ in range(3)])
    crit = T.nn.CrossEntropyLoss()

    @s.compile
    def step(x, y, perm, lam):
        mixed = lam * x + (1 - lam) * x[perm]
        out = net(mixed)
        loss = lam * crit(out, y) + (1 - lam) * crit(out, y[perm])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return lambda: (step(x, y, next(perms), next(lams)), net.weight)


@idiom
def ignored_tokens(T, s):
    emb, head = s.weights(T.nn.Embedding(9, 6, padding_idx=0)), s.weights(T.nn.Linear(6, 9))
    opt = T.optim.Adam(itertools.chain(emb.parameters(), head.parameters()), lr=0.01)
    tok = s.integers(9, 4, 7)

    @s.compile
    def mlm(tokens):
        mask = (tokens % 3 == 1) & (tokens != 0)
        labels = tokens.masked_fill(~mask, -100)
        inputs = T.where(mask, T.full_like(tokens, 8), tokens)
        logits = head(emb(inputs))
        loss = T.nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return lambda: (mlm(tok), emb.weight)
