"""Random functions that are called with ever new sizes: batches, lengths, sometimes both, with things in between."""

import numpy as np

HEADER = """\
import contextlib
import copy

import numpy as np
from attack.compare import assert_same, peek, said

import weft
from weft import nn, optim, randn
from weft.nn import functional as F


def program(compile):
    weft.manual_seed({seed})
    rng = np.random.default_rng({seed})
    w, u = randn(4, requires_grad=True), randn(4, 4, requires_grad=True)
    model = nn.Sequential(nn.Linear(4, 6), nn.{layer}, nn.Linear(6, 4))
    norm, lstm = nn.BatchNorm1d(4), nn.LSTM(4, 4)
    optimizer = optim.{optimizer}
    kept, seen, held, result, flag = [], [], [], None, False
    running = weft.zeros(4)
"""
FOOTER = """

if __name__ == "__main__":
    assert_same(program)
"""
LAYERS = ("Tanh()", "ReLU()", "ReLU(inplace=True)", "Dropout(0.3)", "LayerNorm(6)", "BatchNorm1d(6)", "Identity()")
OPTIMIZERS = (
    "SGD([w, u, *model.parameters()], lr=0.05)",
    "SGD([w, *model.parameters()], lr=0.05, momentum=0.9)",
    "Adam([w, u, *model.parameters()], lr=0.02)",
)
# What becomes of h, which stays (rows of x, 4).
OPS = (
    "h = model(h)", "h = model(h)", "h = h * w + y", "h = h @ u", "h = h.tanh()", "h = h + h.mean(0)",
    "h = h - h.mean(1, keepdim=True)", "h = h.softmax(0)", "h = h * len(x)", "h = h / x.shape[0]",
    "h = h.reshape(-1, 2).sum(1).reshape(x.shape[0], 2).repeat(1, 2)", "h = weft.cat([h[1:], h[:1]])",
    "h = h.t().contiguous().t()", "h = h.reshape(-1).flip(0).view(x.shape)", "h = h + weft.arange(len(x))[:, None]",
    "h = weft.where(h > 0, h, y)", "h = h.masked_fill(y > 1, 0.5)", "h = (h @ h.t()).softmax(-1) @ y",
    "h = h.cumsum(0) / len(x)", "h = h.sort(0)[0]", "h = F.dropout(h, 0.2)", "h = F.layer_norm(h, (4,))", "h = norm(h)",
    "h = h * 1.0\nh += y", "h = h * 1.0\nh.relu_()", "h = h * 1.0\nh[:, 0] = 0.5", "h = h * 1.0\nh[1:] *= 2.0",
    "h = h * 1.0\nh[-1] = 1.0", "h = F.pad(h, (0, 0, 1, 0))[:-1]", "h = weft.stack([h, y]).sum(0)",
    "h = h.unsqueeze(1).expand(-1, 3, -1).mean(1)", "h = h[weft.arange(len(x) - 1, -1, -1)]", "h = lstm(h[None])[0][0]",
    "h = h.view(len(x), 2, 2).transpose(0, 1).reshape(2, -1).view(2, len(x), 2).transpose(0, 1).flatten(1)",
    "h = weft.zeros(len(x), 4) + h", "h = h + weft.ones(x.shape[0], x.shape[0]).tril() @ y", "h = h.clamp(-1, 1)",
    "h = h.narrow(0, 0, len(x))", "h = h.expand_as(y)", "h = weft.einsum('ij,jk->ik', h, u)",
    "h = h.chunk(2, 1)[0].repeat(1, 2)",
    "h = h * h.max(0, keepdim=True)[0]", "h = h.logsumexp(1, keepdim=True) + y", "h = h.var(0) + h", "h = h.roll(1, 0)",
    "running.mul_(0.9).add_(h.detach().mean(0))", "h = h * running", "h = F.one_hot((y > 0).long()[:, 0], 4) + h",
    "h = F.embedding((y[:, 0] > 0).long(), u) + h", "h = h.gather(1, (y > 0).long())",
    "h = h.diff(dim=0, prepend=y[:1])",
    "for part in h.unbind(1):\n    h = h + part[:, None]", "h = h.norm() + h", "h = weft.outer(h[:, 0], w)",
)  # fmt: skip
RARE = (
    "if len(x) > 20:\n    h = h * 2.0", "if len(x) % 2:\n    h = h + 1.0", "seen.append(tuple(h.shape))",
    "seen.append(h.stride())", "seen.append(h.is_contiguous())", "seen.append(h.t().is_contiguous())",
    "if flag:\n    seen.append(float(h.detach().sum()))", "if flag:\n    kept.append(h.detach())",
    "if flag:\n    raise ValueError('flag')", "if flag:\n    h = h.exp()",
    "if float(h.detach().sum()) > 0:\n    h = h * 0.5",
    "if flag:\n    print(h.detach().sum(), file=open('/dev/null', 'w'))", "h = other(h, y)",
    "if flag:\n    kept.append(h)",
)  # fmt: skip
ENDS = (
    "loss = F.mse_loss(h, y)\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()\nreturn loss",
    "loss = h.square().mean()\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()\nreturn loss.detach(), h * 1",
    "optimizer.zero_grad()\nF.cross_entropy(h, y.argmax(1)).backward()\noptimizer.step()\nreturn h.detach() * 2.0",
    "gs = weft.autograd.grad(h.sum(), [w, *model.parameters()], allow_unused=True)\nreturn list(gs)",
    "loss = h.sum()\nloss.backward()\nreturn loss, h", "return h.detach()", "return h", "return h[:, 0], h.sum()",
    "return {'a': h.t(), 'b': h.detach().mean()}", "return h.detach().view(-1), x",
    "return h.detach()[1:], h.detach()[0]",
)  # fmt: skip
EVENTS = (
    "flag = not flag", "flag = True", "flag = False", "model[0].weight.data = model[0].weight.data * 0.5",
    "model[0].weight.data.mul_(0.5)", "optimizer.param_groups[0]['lr'] = 0.01", "model.eval()", "model.train()",
    "model[2].bias.requires_grad_(not model[2].bias.requires_grad)", "held.clear()", "result = None",
    "step = compile(plain)", "norm.eval()", "running.zero_()", "w.grad = None", "model = copy.deepcopy(model)",
    "lstm.requires_grad_(False)", "size = 5", "weft.set_grad_enabled(not weft.is_grad_enabled())",
)  # fmt: skip
CALLS = (
    "x, y = randn(size, 4), randn(size, 4)", "x, y = randn(size, 4), randn(size, 4)",
    "x, y = randn(size, 4), randn(size, 4)", "x = randn(size, 4)\ny = x", "x, y = randn(4, size).t(), randn(size, 4)",
    "x, y = randn(size, 4, requires_grad=True), randn(size, 4)", "x, y = randn(2 * size, 4)[::2], randn(size, 4)",
    "x, y = weft.from_numpy(rng.normal(size=(size, 4)).astype(np.float32)), randn(size, 4)",
    "x, y = randn(size + 1, 4)[1:], randn(size, 4)",
)  # fmt: skip
AFTER = (
    "yield peek(result)", "yield peek(result)", "held.append(result)", "result = None", "pass",
    "if isinstance(result, weft.Tensor) and result.requires_grad:\n    result.sum().backward()\n    yield w.grad",
    "if weft.is_tensor(result) and result.requires_grad:\n"
    "    yield weft.autograd.grad(result.sum(), [w, u, *model.parameters()], allow_unused=True)",
    "if weft.is_tensor(result) and result.requires_grad:\n    held.append(result)\n"
    "if len(held) > 3 and weft.is_tensor(held[-3]):\n    held[-3].sum().backward()\n    yield w.grad, held.pop(-3)",
    "if weft.is_tensor(result) and result.requires_grad:\n    result.sum().backward(retain_graph=True)\n"
    "    if size % 3 == 0:\n        model[0].weight.data.mul_(0.5)\n"
    "    if size % 3 == 1:\n        with weft.no_grad():\n            model[0].weight.mul_(0.5)\n"
    "    result.sum().backward()\n    yield w.grad, str(result.grad_fn)[:12]",
    "if weft.is_tensor(result) and result.requires_grad:\n"
    "    again, leaves = size % 2 == 0, [w, u, *model.parameters()]\n"
    "    gs = weft.autograd.grad(result.sum(), leaves, allow_unused=True, create_graph=again)\n"
    "    total = sum(g.square().sum() for g in gs if g is not None)\n"
    "    if size % 2 == 0 and total.requires_grad:\n        total.backward()\n    yield total, w.grad",
    "if isinstance(result, tuple) and all(weft.is_tensor(r) and r.requires_grad for r in result):\n"
    "    (result[0].sum() + 2 * result[1].sum() if size % 2 else result[1].sum()).backward()\n    yield w.grad",
)  # fmt: skip


class RandomSizes:
    """seed -> `source`."""

    def __init__(self, seed):
        self.seed, self.rng = seed, np.random.default_rng([seed, 77])

    def pick(self, things):
        return things[int(self.rng.integers(len(things)))]

    def some(self, things, most):
        return [self.pick(things) for _ in range(int(self.rng.integers(1, most + 1)))]

    def body(self):
        parts = ["h = x * 1.5", *self.some(OPS, 5)]
        if self.rng.random() < 0.5:
            parts.insert(int(self.rng.integers(1, len(parts) + 1)), self.pick(RARE))
        if self.rng.random() < 0.4:
            parts = ["with weft.no_grad():", *_indented(_lines(parts), 1), self.pick(("return h", "return h, x.sum()"))]
        else:
            parts.append(self.pick(ENDS))
        return _lines(parts)

    def arguments(self):
        """Most programs call with arguments of one kind."""
        usual, other = self.pick(CALLS).split("\n"), self.pick(CALLS).split("\n")
        if self.rng.random() < 0.8:
            return usual
        return ["if call % 4 == 3:", *_indented(other, 1), "else:", *_indented(usual, 1)]

    @property
    def source(self):
        head = HEADER.format(seed=self.seed, layer=self.pick(LAYERS), optimizer=self.pick(OPTIMIZERS))
        lines = ["def other(h, y):", f"    return {self.pick(('h * y', 'h + y.sum(0)', 'h @ u'))}", ""]
        lines += ["def plain(x, y):", *_indented(self.body(), 1), "", "step = compile(plain)"]
        n_calls, rare = int(self.rng.integers(10, 26)), self.pick((0.0, 0.05, 0.2))
        least, most = self.pick(((1, 40), (2, 400), (2, 12)))
        lines += [f"for call in range({n_calls}):", f"    size = int(rng.integers({least}, {most}))"]
        inside = []
        for k in range(n_calls):
            if self.rng.random() < rare:
                inside += [f"if call == {k}:", *_indented(self.pick(EVENTS).split("\n"), 1)]
        inside += self.arguments()
        inside += ["result = step(x, y)", *self.pick(AFTER).split("\n")]
        lines += ["    try:", *_indented(inside, 2), "    except Exception as error:", "        yield said(error)"]
        lines += ["    yield peek([x, list(model.parameters()), list(norm.buffers()), w, u, running])"]
        lines += ["yield seen, kept, held, [p.grad for p in model.parameters()]"]
        return head + "\n" + "\n".join(_indented(lines, 1)) + "\n" + FOOTER


def _lines(parts):
    return [line for part in parts for line in part.split("\n")]


def _indented(lines, n):
    return ["    " * n + line if line else line for line in lines]
