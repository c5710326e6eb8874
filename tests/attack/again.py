"""Random programs whose graphs are used again later: forward with sizes that repeat or were never seen, 0 and 1 too,
and behind it passes over what calls before have left, and changes of all that a node may have kept, or goes to.

What is looked for is what native code supposes and Python has changed since.
"""

import numpy as np

import weft

HEADER = """\
# types as they are
import contextlib
import copy
import gc

import numpy as np
from attack.compare import assert_same, name, peek, said

import weft
from weft import randn
from weft.nn import functional as F


class Halved(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 0.5

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 0.5 + x * 0.0


def program(compile):
    weft.manual_seed({seed})
    rng = np.random.default_rng({seed})
    w, u = randn(4, requires_grad=True), randn(4, 4, requires_grad=True)
    long = weft.linspace(-1, 1, 600)
    kept, seen, hooks, x = [], [], [], w
"""
FOOTER = """

if __name__ == "__main__":
    assert_same(program)
"""
# What a call is given: x, which mostly is a leaf, and y, both of n rows.
GIVEN = (
    "x, y = randn(n, 4, requires_grad=True), randn(n, 4)", "x, y = randn(n, 4, requires_grad=True), randn(n, 4)",
    "x, y = randn(n, 4, requires_grad=True), randn(n, 4, requires_grad=True)",
    "x, y = randn(4, n).t().requires_grad_(), randn(n, 4)", "x, y = randn(n, 4), randn(2 * n, 4)[::2]",
    "x, y = long[: 4 * n].view(n, 4).clone().requires_grad_(), long[4 : 4 * n + 4].view(n, 4)",
    "x, y = randn(n, 4).double().requires_grad_(), randn(n, 4).double()",
    "x, y = randn(n, 4).to(weft.bfloat16).requires_grad_(), randn(n, 4).to(weft.bfloat16)",
    "x, y = randn(n, 4).half().requires_grad_(), randn(n, 4)",
    "x, y = randn(n, 4, requires_grad=True), (randn(n, 4) * 3).int()",
    "x, y = randn(n, 4, requires_grad=True), randn(n, 4) > 0",
    "x, y = randn(n, 4, requires_grad=True), randn(n, 4).double()", "x = y = randn(n, 4, requires_grad=True)",
    "x, y = randn(n, 4, requires_grad=True) * 1.0, randn(n, 4)", "x, y = long[: 4 * n].view(n, 4), randn(n, 4)",
    "x, y = randn(n, 4, requires_grad=True), weft.ones(4)", "x, y = randn(n, 4, requires_grad=True), randn(n, 1)",
    "x, y = weft.complex(randn(n, 4), randn(n, 4)).requires_grad_(), randn(n, 4)",
    "with weft.inference_mode():\n    y = randn(n, 4)\nx = randn(n, 4, requires_grad=True)",
)  # fmt: skip
# What becomes of h; y stays.
OPS = (
    "h = h * y", "h = h * w", "h = h + y", "h = y - h", "h = h / 2", "h = h / (w * w + 1)", "h = h.exp()",
    "h = h.sin()", "h = h.abs().sqrt()", "h = h.square()", "h = h ** 3", "h = h.abs() ** 0.5", "h = 2.0 ** h",
    "h = h.tanh()", "h = h.sigmoid()", "h = h.relu()", "h = F.gelu(h)", "h = F.silu(h)", "h = F.softplus(h)",
    "h = F.leaky_relu(h, 0.1)", "h = h.abs()", "h = h.log1p()", "h = h.clamp(-0.5, 0.5)", "h = h.clamp_min(0.1)",
    "h = h.round()", "h = h.sign()", "h = weft.maximum(h, y)", "h = weft.where(h > 0, h, h * 2)",
    "h = weft.where(h > 0, h, y)", "h = h.masked_fill(h > 1, 0.5)", "h = h @ u", "h = (h @ u.t()) @ u", "h = h @ w",
    "h = h.t() @ h", "h = h.softmax(-1)", "h = h.softmax(0)", "h = h.log_softmax(-1)", "h = h.sum(0)",
    "h = h.sum(-1, keepdim=True)", "h = h.mean(0)", "h = h.mean()", "h = h.var(0)", "h = h.std(-1)", "h = h.norm()",
    "h = h.amax(-1)", "h = h.max(0).values", "h = h.min(-1, keepdim=True)[0]", "h = h.cumsum(0)",
    "h = h.logsumexp(-1)", "h = h.sort(0)[0]", "h = h.topk(1, 0)[0]", "h = h.t()",
    "h = h.reshape(-1)", "h = h.view(-1, 2)", "h = h[0]", "h = h[1:]", "h = h[..., ::2]", "h = h[:, 1]", "h = h[-1:]",
    "h = h.unsqueeze(1)", "h = h.expand(3, *h.shape)", "h = h.flip(0)", "h = h.roll(1, 0)", "h = weft.cat([h, h * 2])",
    "h = weft.cat([h, y])", "h = weft.stack([h, h], 1)", "h = h.chunk(2, -1)[1]", "a, b = h.unbind(-1)[:2]\nh = a * b",
    "h = h.split(1)[0]", "h = F.pad(h, (1, 2))", "h = h[weft.arange(len(h) - 1, -1, -1)]",
    "h = h.index_select(0, weft.arange(0, len(h), 2))", "h = h[h > 0]", "h = h.gather(-1, (h > 0).long())",
    "h = h.double()", "h = h.float()", "h = h.to(weft.bfloat16)", "h = h.clone()", "h = h.contiguous()",
    "h = h.t().contiguous()", "h = h * 1.0\nh += 1", "h = h * 1.0\nh.exp_()", "h = h.sin()\nh[:1] = 0.5",
    "h = h * 1.0\nh.view(-1)[:2].mul_(2.0)", "h = h * 1.0\nh.relu_()", "h = h * 1.0\nh *= w", "h = h.exp()\nh.add_(y)",
    "h = F.mse_loss(h, h.detach() * 0.5)", "h = F.layer_norm(h, h.shape[-1:])", "h = weft.addcmul(h, h, h, value=0.5)",
    "h = h + h", "h = h * h", "h = h - h.detach()", "h = h.lerp(h * 2, 0.25)", "h = h.tril()", "h = h.repeat(2, 1)",
    "h = h.squeeze()", "h = h.diagonal()", "h = weft.outer(h.reshape(-1), w)", "h = weft.einsum('ij,jk->ik', h, u)",
    "h = h.cos() * h", "h = Halved.apply(h)", "h = h.real", "h = h.abs()", "with weft.no_grad():\n    h = h * 2",
    "h = h.pow(2).sum(-1).sqrt()", "h = h.fmod(0.7)", "h = h.atan2(h + 1)",
    "h = F.cross_entropy(h, weft.zeros(len(h), dtype=weft.int64))", "h = h.movedim(0, -1)",
    "h = h.masked_select(h < 0)", "h = h.narrow(0, 0, len(h) // 2)", "h = h.scatter(0, (h > 9).long(), 0.25)",
    "h = h.detach().requires_grad_()", "h = h.erf()", "h = h.reciprocal()",
)  # fmt: skip
# A call's own passes, and none.
PASSES = (
    "pass", "pass", "h.sum().backward()", "h.sum().backward()", "h.sum().backward(retain_graph=True)",
    "h.backward(weft.ones_like(h))", "h.backward(h.detach())",
    "h.backward(long[: h.numel()].view(h.shape).to(h.dtype))", "h.backward(weft.ones_like(h[..., :1]).expand_as(h))",
    "h.sum().backward(inputs=[w])", "h.sum().backward(inputs=[x, u])",
    "yield weft.autograd.grad(h.sum(), [x], allow_unused=True)",
    "yield weft.autograd.grad(h.sum(), [w, x], allow_unused=True, retain_graph=True)",
    "yield weft.autograd.grad(h, [m], weft.ones_like(h), retain_graph=True)",
    "yield weft.autograd.grad(h.sum(), [m, x, w], allow_unused=True)",
    "g = weft.autograd.grad(h.sum(), x, create_graph=True)[0]\nyield g\n(g * g).sum().backward()",
    "g = weft.autograd.grad(h.square().sum(), [x, w], create_graph=True, allow_unused=True)\n"
    "yield weft.autograd.grad(g[0].sum(), [x, u], allow_unused=True)",
    "h.sum().backward(create_graph=True)\nx.grad = w.grad = u.grad = None", "(h.sum() + m.sum()).backward()",
    "weft.autograd.backward([h.sum(), m.sum()])", "h.square().mean().backward()",
    "m.sum().backward()\nh.sum().backward()", "h.mean().backward()\nx.grad.mul_(2.0)",
    "with weft.autograd.set_detect_anomaly(True):\n    h.sum().backward()",
    "with weft.enable_grad():\n    h.sum().backward()", "h.abs().max().backward()",
)  # fmt: skip
# What happens to a call's tensors before its passes, or to an old one's before another pass: x, m, h.
CHANGES = (
    "pass", "x.data.mul_(0.5)", "with weft.no_grad():\n    x.mul_(0.5)", "with weft.no_grad():\n    w.add_(0.1)",
    "m.data.add_(1.0)", "m.detach().mul_(2.0)", "m.mul_(2.0)", "h.add_(1.0)", "with weft.no_grad():\n    h.zero_()",
    "y.add_(1)", "y[:1] = 0", "h.detach()[:1].zero_()", "m.view(-1)[:1].mul_(3.0)", "u.data = u.data.clone() * 0.5",
    "x.data = x.data.clone()", "x.data = x.data[:1]", "x.data = x.data.t().contiguous().t()", "m.data = m.data * 2.0",
    "h.data = weft.zeros(3)", "x.requires_grad_(False)", "w.requires_grad_(False)",
    "w.requires_grad_(True)", "x.requires_grad_(True)", "x.grad = None", "x.grad = weft.ones_like(x)",
    "x.grad = long[1 : 4 * len(x) + 1].view(len(x), 4)", "w.grad = long[3:7]", "w.grad = long[2:6].clone()",
    "x.grad = weft.ones_like(x).t().contiguous().t()", "w.grad = weft.ones(4)", "w.grad = w.detach()",
    "w.grad = weft.ones(1).expand(4)", "w.grad = None", "u.grad = u.detach().t()", "u.grad = None", "w.grad.zero_()",
    "w.grad[:2] = 1.0", "kept_view = w.grad.view(2, 2)\nkept_view.add_(1.0)", "x.grad = y.detach()",
    "w.grad.requires_grad_()", "w.grad.numpy()[...] = 2.0", "x.grad.data.mul_(0.5)", "w.grad = copy.deepcopy(w.grad)",
    "m.retain_grad()", "h.retain_grad()", "yield m.grad, h.grad", "m.requires_grad_()",
    "hooks.append(m.register_hook(lambda g: g * 2.0))", "hooks.append(h.register_hook(lambda g: g * 2.0))",
    "hooks.append(x.register_hook(lambda g: g.clamp(-1, 1)))", "hooks.append(w.register_hook(lambda g: g.mul_(2.0)))",
    "hooks.append(x.register_hook(lambda g: seen.append(g)))",
    "hooks.append(m.register_hook(lambda g: seen.append(g)))", "hooks.append(w.register_hook(lambda g: long[:4]))",
    "hooks.append(w.register_hook(lambda g: long[4:8].data))",
    "hooks.append(m.register_hook(lambda g: g.t().contiguous().t()))",
    "hooks.append(m.register_hook(lambda g: g[..., :1].expand_as(g)))",
    "hooks.append(m.register_hook(lambda g: g.detach()))", "hooks.append(m.register_hook(lambda g: g.clone().data))",
    "hooks.append(m.register_hook(lambda g: g.mul_(0.5)))",
    "hooks.append(m.register_hook(lambda g: weft.from_numpy(g.numpy())))",
    "hooks.append(m.register_hook(lambda g: seen.append((g * w.detach().sum()).sum().item())))",
    "hooks.append(w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone())))",
    "hooks.append(w.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', None)))",
    "hooks.append(h.grad_fn.register_hook(lambda given, gave: seen.append(gave[0].clone())))",
    "hooks.append(h.grad_fn.register_hook(lambda given, gave: [g if g is None else g * 2 for g in given]))",
    "hooks.append(m.grad_fn.register_prehook(lambda gave: (gave[0] * 0.5,)))",
    "hooks.append(m.register_hook(lambda g: seen.append((w * w).sum().backward())))",
    "hooks.append(m.register_hook(lambda g: m.sum().backward(retain_graph=True)))",
    "hooks.append(m.register_hook(lambda g: weft.set_grad_enabled(True)))", "[hook.remove() for hook in hooks]",
    "[hook.remove() for hook in hooks[-1:]]", "seen.clear()", "gc.collect()",
    "seen.append(h.grad_fn(weft.ones_like(h)))", "x.detach_()", "m.detach_()",
    "h.sum().backward(retain_graph=True)\nx.grad = None", "x.set_(weft.ones(2, 4))",
    "weft.set_default_dtype(weft.float64)", "weft.set_default_dtype(weft.float32)", "weft.set_num_threads(2)",
    "weft.set_num_threads(1)", "seen.append([node is None for node, _ in h.grad_fn.next_functions])",
    "h.grad_fn.next_functions[0][0].register_hook(lambda *_: seen.append('ran'))", "m = copy.deepcopy(m.detach())",
    "x.swapaxes_(0, 1)", "x.unsqueeze_(0)", "h.copy_(h.detach() + 1)", "w.data[:2] = 0.5", "m.fill_(0.5)", "m.t_()",
    "x.numpy()[...] = 1.0", "x.detach().numpy()[...] = 1.0", "y.numpy()[...] = 1", "h *= 2",
    "h.grad_fn.metadata['n'] = 1", "seen.append(h.grad_fn(None))", "m.swapdims_(0, -1)",
)  # fmt: skip
AROUND = (
    "contextlib.nullcontext()", "contextlib.nullcontext()", "contextlib.nullcontext()", "weft.no_grad()",
    "weft.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)",
    "weft.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t * 1.0)",
    "weft.autograd.graph.save_on_cpu()", "weft.autograd.graph.allow_mutation_on_saved_tensors()",
    "weft.set_grad_enabled(call % 2 == 0)",
)  # fmt: skip
SIZES = (
    "n = call % 40", "n = 2 + call", "n = 3", "n = (3, 5)[call % 2]", "n = int(rng.integers(0, 30))",
    "n = (2 + call, 7)[call % 3 == 0]", "n = (1, 0, 4, 2 + call)[call % 4]", "n = 40 - call if call < 40 else call",
)  # fmt: skip
LOOKS = (
    "yield peek([x, m, h, x.grad, w.grad, u.grad])", "yield peek([x.grad, w.grad, u.grad, h]), name(h), name(m)",
    "yield peek([h, m, x.grad, w.grad, w, y])", "yield peek(seen), peek([w.grad, u.grad, long])",
)  # fmt: skip
N_CALLS = 60
N_TRIED = 4


class RandomAgain:
    """seed -> `source`."""

    def __init__(self, seed):
        self.seed, self.rng = seed, np.random.default_rng([seed, 99])

    def pick(self, things):
        return things[int(self.rng.integers(len(things)))]

    def chance(self, probability):
        return self.rng.random() < probability

    def body(self):
        """(the lines that make m of h, those that make the result), most of which run with three rows."""
        h, parts = weft.linspace(-1, 1.5, 12, requires_grad=True).view(3, 4), []
        for _ in range(2):
            parts.append([])
            for _ in range(int(self.rng.choice([1, 1, 2, 3]))):
                text = self.pick(OPS)
                for _ in range(N_TRIED):
                    found = _tried_out(text, h)
                    if found is not None and found.requires_grad:
                        break
                    text = self.pick(OPS)
                h = h if found is None else found
                parts[-1] += text.split("\n")
        return parts

    def some(self, things, most):
        return [self.pick(things) for _ in range(int(self.rng.integers(1, most + 1)))]

    def function(self, k):
        first, last = self.body()
        lines = [
            f"def f{k}(x, y):",
            "    h = x",
            *_indented(first),
            "    m = h",
            *_indented(last),
            "    return m, h",
            "",
        ]
        return [*lines, f"f{k} = compile(f{k})"]

    def at(self, calls, text):
        """A statement in some calls, whose error is shown."""
        lines = [*_tried(text)]
        return lines if calls is None else [f"if call % {calls[0]} == {calls[1]}:", *_indented(lines)]

    def when(self):
        return None if self.chance(0.4) else self.pick(((2, 1), (3, 2), (5, 4), (N_CALLS, 20), (N_CALLS, 40), (20, 19)))

    def call(self, k, given, around):
        lines = [*given.split("\n"), f"with {around}:", f"    m, h = f{k}(x, y)"]
        lines = _tried("\n".join([*lines, "kept.append((x, y, m, h))"]))
        lines.append("    continue")
        for _ in range(int(self.rng.choice([0, 0, 1, 1, 2]))):
            lines += self.at(self.when(), self.pick(CHANGES))
        lines += self.at(None, self.pick(PASSES))
        if self.chance(0.5):
            lines += self.at(self.when(), self.pick(PASSES))
        lines += self.at(None, self.pick(LOOKS))
        return lines

    def later(self):
        """What is done with what an old call has left, once in a while."""
        back = int(self.rng.choice([1, 2, 3, 10, 25]))
        lines = [f"x, y, m, h = kept[-{back}] if len(kept) >= {back} else kept[0]"]
        for _ in range(int(self.rng.choice([0, 1, 1, 2]))):
            lines += self.at(self.when(), self.pick(CHANGES))
        for text in self.some(PASSES[2:], 2):
            lines += self.at(None, text)
        lines += self.at(None, self.pick(LOOKS))
        return [f"if call % {self.pick((2, 3, 4, 30))} == 1:", *_indented(lines)]

    @property
    def source(self):
        n_functions = self.pick((1, 1, 2))
        lines = [line for k in range(n_functions) for line in self.function(k)]
        lines += [f"for call in range({N_CALLS}):", f"    {self.pick(SIZES)}"]
        for k in range(n_functions):
            lines += _indented(self.call(k, self.pick(GIVEN), self.pick(AROUND)))
        for _ in range(int(self.rng.choice([1, 1, 2]))):
            lines += _indented(self.later())
        lines += ["yield peek([w, u, w.grad, u.grad, seen])"]
        return HEADER.replace("{seed}", str(self.seed)) + "\n" + "\n".join(_indented(lines)) + "\n" + FOOTER


def _tried_out(text, h):
    """What becomes of h; None if it is an error."""
    w, u = weft.ones(4, requires_grad=True), weft.ones(4, 4, requires_grad=True)
    names = {"weft": weft, "F": weft.nn.functional, "h": h, "w": w, "u": u, "y": weft.ones(3, 4), "Halved": _AsItIs}
    try:
        exec(text, names)
    except Exception:
        return None
    return names["h"]


class _AsItIs:
    apply = staticmethod(lambda h: h * 0.5)


def _tried(text):
    """What a backward has done before its error, beside the error of PyTorch too, counts for nothing."""
    undone = ["    x.grad = w.grad = u.grad = None", "    seen.clear()"]
    return ["try:", *_indented(text.split("\n")), "except Exception as error:", *undone, "    yield said(error)"]


def _indented(lines):
    return ["    " + line if line else line for line in lines]
