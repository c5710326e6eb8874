"""Random training programs from a seed, as Python source: a model, an optimizer, a compiled step made of fragments that
users put there, and what happens between its calls. Not a test.

The source is also the reproducer, as in random_programs.py. Programs may fail, if they do so in both modes.
"""

import numpy as np

HEADER = """\
import copy

import weft
from weft import nn, optim, randn
from weft.nn import functional as F


def program(compile):
    weft.manual_seed({seed})
    seen, kept, calls = [], [], [0]
    model = nn.Sequential({layers})
    shadow = copy.deepcopy(model)
    scale = randn(5, requires_grad=True)
    table = weft.zeros(4, 5)
    optimizer = {optimizer}
"""

FOOTER = """

if __name__ == "__main__":
    from compiled_twin import assert_same

    assert_same(program)
"""

# The parts of a step, in the order they stand in it. `table` and `shadow` are state without gradients, `scale` is a
# parameter that some optimizers train, `factor` another number in every call.
LAYERS = (
    "nn.ReLU()",
    "nn.Tanh()",
    "nn.GELU()",
    "nn.Linear(5, 5)",
    "nn.Linear(5, 5, bias=False)",
    "nn.LayerNorm(5)",
    "nn.BatchNorm1d(5)",
    "nn.Dropout(0.3)",
    "nn.Softmax(-1)",
    "nn.RMSNorm(5)",
    "nn.PReLU()",
    "nn.Identity()",
)
OPTIMIZERS = (
    "SGD({p}, lr=0.1)",
    "SGD({p}, lr=0.1, momentum=0.9)",
    "SGD({p}, lr=0.1, momentum=0.9, nesterov=True)",
    "SGD({p}, lr=0.1, weight_decay=0.1)",
    "Adam({p}, lr=0.02)",
    "AdamW({p}, lr=0.02)",
    "Adam({p}, amsgrad=True)",
    "RMSprop({p}, lr=0.01)",
    "RMSprop({p}, lr=0.01, momentum=0.5, centered=True)",
    "Adagrad({p}, lr=0.1)",
)
FORWARDS = (
    "out = model(x)",
    "out = model(x) * scale",
    "hidden = model[0](x)\nout = model[1:](hidden) + hidden",
    "out = model(x) + model(x * 0.5)",
    "out = model(x) @ model[0].weight",
    "out = model(x)\nout = out - out.mean(0)",
    "out = sum(model(part).mean(0) for part in x.chunk(2)) + x",
    "out = x\nfor layer in model:\n    out = layer(out)",
    "with weft.no_grad():\n    aim = shadow(x)\nout = model(x) - aim",
    "out = model(x)[1:]\nx, y = x[1:], y[1:]",
    "out = weft.cat([model(x[:1]), model(x[1:]).detach()])",
    "out = model(x + table[0])",
)
LOSSES = (
    "loss = F.mse_loss(out, y)",
    "loss = F.smooth_l1_loss(out, y)",
    "loss = F.cross_entropy(out, y.argmax(1))",
    "loss = (out - y).abs().mean()",
    "loss = F.binary_cross_entropy_with_logits(out, (y > 0).float())",
    "loss = (out * y).sum() / x.shape[0]",
    "loss = F.kl_div(out.log_softmax(1), y.softmax(1), reduction='batchmean')",
    "loss = F.nll_loss(out.log_softmax(1), y.argmax(1))",
    "loss = out.square().sum(1).max()",
)
BETWEEN = (
    "loss = loss + 0.01 * sum(p.square().sum() for p in model.parameters())",
    "loss = loss + 0.1 * out.abs().mean()",
    "loss = loss * factor",
    "loss = loss / 2",
    "seen.append(loss.item())",
    "kept.append(loss)",
    "kept.append(out.detach())",
    "kept.append(out)",
    "loss = loss + scale.exp().mean()",
    "if not weft.isfinite(loss):\n    return loss",
    "if loss > 1.0:\n    loss = loss * 0.5",
    "if calls[0] == 6:\n    seen.append(out.detach().numpy().copy())",
    "if calls[0] == 5:\n    raise ValueError('early')",
    "out.retain_grad()",
    "out.register_hook(lambda g: g * 0.5)",
    "out.register_hook(lambda g: seen.append(g.sum().item()))",
    "with weft.no_grad():\n    table[calls[0] % 4] = out.mean(0)",
    "with weft.no_grad():\n    table.lerp_(out.mean(0), 0.1)",
    "with weft.no_grad():\n    table.mul_(0.5).add_(x.mean(0))",
    "seen.append(str(loss))",
    "model.eval()\nseen.append(model(x).sum())\nmodel.train()",
    "loss = loss + F.mse_loss(out, table.mean(0).expand_as(out))",
    "scale.data.clamp_(-1.0, 1.0)",
    "loss = loss + shadow(x).mean()",
    "(g,) = weft.autograd.grad(loss, [model[0].weight], create_graph=True)\nloss = loss + g.square().sum()",
    "gs = weft.autograd.grad(loss, list(model[0].parameters()), retain_graph=True)\nkept.append(gs[0].norm())",
)
ZEROS = (
    "optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=False)",
    "model.zero_grad()",
    "pass",
    "for p in model.parameters():\n    p.grad = None",
    "if calls[0] % 3 == 0:\n    optimizer.zero_grad()",
)
BACKWARDS = (
    "loss.backward()",
    "loss.backward()",
    "loss.backward()",
    "loss.backward(retain_graph=True)\n(out * 0.1).sum().backward()",
    "loss.backward(inputs=list(model.parameters()))",
    "loss.backward(weft.tensor(0.5))",
    "for p, g in zip(model.parameters(), weft.autograd.grad(loss, list(model.parameters()))):\n    p.grad = g",
)
AFTER = (
    "nn.utils.clip_grad_norm_(model.parameters(), 0.5)",
    "nn.utils.clip_grad_value_(model.parameters(), 0.05)",
    "seen.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())",
    "model[0].weight.grad.mul_(0.5)",
    "model[0].weight.grad = model[0].weight.grad.sign()",
    "kept.append(model[0].weight.grad)",
    "kept.append(model[0].weight.grad.clone())",
    "for p in model.parameters():\n    p.grad += 0.01 * p.detach()",
    "with weft.no_grad():\n    model[0].weight.grad.add_(0.01 * randn(5, 5))",
    "seen.append(model[0].weight.grad.norm().item())",
    "if model[0].weight.grad.norm() > 0.5:\n    return loss",
    "if calls[0] == 7:\n    raise KeyError('late')",
    "scale.grad = None",
    "model[0].weight.grad[0] = 0.0",
    "factor = factor + 1",
)
STEPS = (
    "optimizer.step()",
    "optimizer.step()",
    "optimizer.step()\noptimizer.zero_grad()",
    "if calls[0] % 2:\n    optimizer.step()\n    optimizer.zero_grad()",
    "with weft.no_grad():\n    for p in model.parameters():\n        p -= 0.1 * p.grad",
    "with weft.no_grad():\n    for p in model.parameters():\n        p.sub_(p.grad, alpha=0.1)\n        p.grad = None",
    "for p in model.parameters():\n    p.data -= 0.1 * p.grad",
    "for p in model.parameters():\n    p.data = p.data - 0.1 * p.grad",
)
LAST = (
    "with weft.no_grad():\n    for a, p in zip(shadow.parameters(), model.parameters()):\n        a.lerp_(p, 0.1)",
    "shadow.load_state_dict(model.state_dict())",
    "with weft.no_grad():\n    seen.append(model(x).mean().item())",
    "with weft.no_grad():\n    model[0].weight.clamp_(-0.5, 0.5)",
    "with weft.no_grad():\n    scale.mul_(0.9)",
    "with weft.no_grad():\n    model[0].weight.div_(model[0].weight.norm(dim=1, keepdim=True))",
    "table.zero_()",
    "x.add_(1.0)",
    "kept.append(model[0].weight.detach().clone())",
    "kept.append(model[0].weight.sum())",
    "optimizer.param_groups[0]['lr'] *= 0.9",
    "kept.append(model[0].weight)",
    "optimizer.step()",
    "seen.append(optimizer.state[model[0].weight].get('step'))",
    "kept.append(model[0].weight.view(-1)[:3])",
)
RETURNS = (
    "return loss",
    "return loss.detach()",
    "return loss, out",
    "return {'loss': loss, 'out': [out.detach(), None]}",
    "return loss.item()",
    "return None",
    "return loss.detach(), model[0].weight",
    "return out[0], out.t()",
)
# What happens before some of the calls.
EVENTS = (
    "pass",
    "pass",
    "model[0].requires_grad_(False)",
    "model[0].requires_grad_(True)",
    "model.eval()",
    "model.train()",
    "optimizer.param_groups[0]['lr'] *= 0.5",
    "size = 2",
    "size = 6",
    "size = 4",
    "del kept[:]",
    "optimizer.zero_grad()",
    "saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))",
    "if saved is not None:\n    model.load_state_dict(saved[0])\n    optimizer.load_state_dict(saved[1])",
    "handle = model[0].weight.register_hook(lambda g: g * 2.0)",
    "if handle is not None:\n    handle.remove()",
    "model[0].weight.data.mul_(0.5)",
    "model[0].weight.data = model[0].weight.data.clone()",
    "held = model[0].weight.detach()",
    "held = model[0].weight.detach().numpy()",
    "held = None",
    "with weft.no_grad():\n    scale.zero_()",
    "kept.append(held)",
    "model[1] = nn.Tanh()",
    "table[0] = 1.0",
    "model[0].weight.grad = None",
    "scale.requires_grad_(False)",
    "model.zero_grad()",
    "handle = model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(calls[0]))",
)


class RandomTraining:
    """seed -> `source`."""

    def __init__(self, seed):
        self.seed = seed
        self.rng = np.random.default_rng(seed)

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def some(self, items, most):
        """A few of the items, in a random order; often none."""
        return [self.pick(items) for _ in range(int(self.rng.integers(0, most + 1)))]

    def body(self):
        """The lines of the step."""
        zero_first = self.rng.random() < 0.5
        zero = self.pick(ZEROS)
        parts = [self.pick(FORWARDS), self.pick(LOSSES), *self.some(BETWEEN, 3)]
        parts = [zero, *parts] if zero_first else [*parts, zero]
        parts += [self.pick(BACKWARDS), *self.some(AFTER, 2), self.pick(STEPS), *self.some(LAST, 2), self.pick(RETURNS)]
        return [line for part in parts for line in part.split("\n")]

    def made_optimizer(self):
        parameters = self.pick(["model.parameters()", "[*model.parameters(), scale]", self.groups()])
        return "optim." + self.pick(OPTIMIZERS).format(p=parameters)

    def groups(self):
        return "[{'params': model[0].parameters(), 'lr': 0.03}, {'params': [*model[1:].parameters(), scale]}]"

    @property
    def source(self):
        layers = ", ".join(["nn.Linear(5, 5)", *(self.pick(LAYERS) for _ in range(int(self.rng.integers(1, 4))))])
        lines = [HEADER.format(seed=self.seed, layers=layers, optimizer=self.made_optimizer())]
        lines += ["    def step(x, y, factor):", "        calls[0] += 1", *[f"        {line}" for line in self.body()]]
        lines += ["", "    step = compile(step)", "    saved = handle = held = None", "    size = 4"]
        lines += ["    for call in range(9):", "        try:"]
        for call in range(1, 9):
            if self.rng.random() < 0.35:
                lines += [f"            if call == {call}:"]
                lines += [f"                {line}" for line in self.pick(EVENTS).split("\n")]
        lines += [
            "            x, y = randn(size, 5), randn(size, 5)",
            "            yield step(x, y, 0.5 + call)",
            "        except Exception as error:",
            "            yield type(error).__name__",
        ]
        if self.rng.random() < 0.3:
            lines += ["        yield seen, kept"]
        lines += [
            "        yield x, list(model.parameters()), list(model.buffers()), scale, table",
            "    yield seen, kept, list(shadow.parameters())",
            "    yield [{k: v for k, v in s.items()} for s in optimizer.state.values()]",
        ]
        return "\n".join(lines) + "\n" + FOOTER
