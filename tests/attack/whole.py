"""Random programs around functions that do little but ops, so that their Python need not run, with all that they read
outside replaced or changed in place between calls (on_arrays.py); functions, methods, modules and callable objects, of
tensors that require gradients or not, with what is done to results, and with the options of `compile`.
"""

from . import on_arrays
from .on_arrays import RandomOnArrays

STATE = """
    p = tensor([0.25, -0.5, 1.0]).requires_grad_()
    leaf, r, rs, found = tensor([1.0, 2.0, -1.0]).requires_grad_(), None, [], None
    x, y = tensor(x), tensor(y)
    optimizer = weft.optim.SGD([p, leaf, *model.parameters()], lr=0.05, momentum=0.9)

    class Net(nn.Module):
        rate = 0.5

        def __init__(self):
            super().__init__()
            self.a, self.act, self.k, self.parts = nn.Linear(3, 3), nn.Tanh(), 2.0, [0.5, 1.5]
            self.register_buffer("mean", weft.zeros(3))
            self.drop, self.more = nn.Dropout(0.25), nn.ModuleList([nn.Linear(3, 3), nn.LayerNorm(3)])

        def forward(self, x):
            h = self.act(self.a(x)) * self.k + self.mean
            for layer in self.more:
                h = layer(h) * self.rate
            return self.drop(h) if self.training and self.k > 1.5 else h * sum(self.parts)

        def halved(self, x, by=2.0):
            return x / by + self.mean

    class Step:
        gain = 0.5

        def __init__(self, net, w):
            self.net, self.w, self.options = net, w, {"rate": 0.1, "names": ["a"]}

        def __call__(self, x, y=None):
            return self.net(x) * self.w * self.options["rate"]

        def plain(self, x):
            return (x * self.w).sum() * self.gain

        @classmethod
        def of_class(cls, x):
            return x * cls.gain

    net = Net().double()
    net.eval()
    step, bag = Step(net, p), [net.halved, weft.sin]
"""
VALUES = (
    "{t} = {x} * p", "{t} = ({x} * p).tanh() + {y}", "{t} = net({x})", "{t} = net.halved({x})",
    "{t} = net.halved({x}, by=scale)", "{t} = step({x})", "{t} = step.plain({x})", "{t} = Step.of_class({x})",
    "{t} = bag[0]({x})", "{t} = [f({x}) for f in bag][-1]", "{t} = {x} * net.mean", "{t} = {x} * step.options['rate']",
    "{t} = {x} * net.parts[1]", "{t} = {x} * len(net.more)", "{t} = F.dropout({x}, 0.25)", "{t} = {x} * weft.rand(3)",
    "{t} = {x}[0] * {y}", "{t} = {x}.view(-1)", "{t} = {x}[1:].sum() + {y}", "{t} = {x}.detach()",
    "{t} = {x}.double() * 2.0", "with weft.no_grad():\n    {t} = {x} * p", "{t} = {x} * {x}.requires_grad",
    "{t} = {x} * (2.0 if {x}.ndim == 1 else 0.5)", "{t} = {x} if {x} is {y} else {x} * 2.0", "{t} = {x} * {x}.shape[0]",
    "{t} = {x}.sort().values", "{t} = weft.cat([{x}.reshape(-1), {y}.reshape(-1)])[:3]",
    "{t} = {x} + weft.zeros({x}.shape)", "{t} = {x}.clone()\n{t}.mul_(2.0)", "{t} = {x} * 1.0\n{t}[0] = 0.5",
    "{t} = {x}.unsqueeze(0) @ weft.eye(3).to({x}.dtype)", "{t} = {x}.T", "{t} = {x}.contiguous()",
    "{t} = weft.zeros_like({x})\nfor k in range(int(space.k)):\n    {t} = {t} + {x} * k",
    "{t} = {x} * (1.0 if net.training else 2.0)", "{t} = model({x}.to(model[0].weight.dtype))",
    "{t} = {x}\nfor q in model.parameters():\n    {t} = {t} + q.sum()", "{t} = {x} * params['b'] if params else {x}",
    "{t} = {x} * min(RATES) + max(scale, 1.0)", "{t} = nn.functional.relu({x})", "{t} = {x} ** 2", "{t} = {x} ** 2.0",
    "{t} = {x} * True", "{t} = {x}.to(weft.float32)", "{t} = {x} * isinstance(scale, float)",
    "{t} = {x}.flip(0).cumsum(0)", "{t} = leaf * {x}", "{t} = ({x} * 2.0).clamp_(-1.0, 1.0)",
    "{t} = {x} * 1.0\n{t}[{t} > 0.5] = float('inf')", "{t} = {x}.clone()\n{t}[..., 1:] = {t}[..., :-1].clone()",
    "{t} = {x} * 2.0\n{t}.unsqueeze(0).add_({y})\n{t}[..., 0] = True", "{t} = {x}.detach().clone()\n{t} += {x}",
    "{t} = weft.func.grad(lambda q: (q * p).sin().sum())({x})", "{t} = weft.tensor([0.5, 1.0, scale]) * {x}",
    "{t} = weft.func.vmap(weft.func.grad(lambda q: q.exp() * 2.0))({x}.detach().reshape(-1))",
    "{t} = weft.autograd.grad(({x} * p).sin().sum(), p)[0]", "{t} = {x}[..., [0]] + {y}",
    "{t} = weft.autograd.grad(({x} * p).sin().sum(), p, create_graph=True)[0]",
    "q = {x}.detach().clone().requires_grad_()\n{t} = weft.autograd.grad((q * p).square().sum(), q)[0]",
    "{t} = weft.func.hessian(lambda q: (q.sin() * p).sum())({x}.detach())", "{t} = weft.tensor(0.5)\n{t} += {x}.sum()",
)  # fmt: skip
RARE = (
    "table.add_({x}.detach())", "net.mean.mul_(0.5)", "net.mean.copy_({x}.detach())", "box.table.mul_(0.5)",
    "weights[0].lerp_({x}.detach(), 0.1)", "kept.append(({x}, 1))", "box.shift = 0.5", "({x} * p).sum().backward()",
    "({x} * p).sum().backward()\noptimizer.step()\noptimizer.zero_grad()", "if {x}.sum() > 0:\n    {x} = {x} * 0.5",
    "{x}.add_(1.0)", "{x} *= 2.0", "weights.append({x})", "params['c'] = {x}",
    "{t} = {x} * float({x}.detach().sum())",
    "step.options['rate'] *= 0.5", "net.k += 0.5", "{t} = {x} * next(iter(RATES))",
    "with weft.no_grad():\n    p.mul_(0.9)", "{t} = {x} * weft.as_tensor(x.detach().numpy())",
    "{t} = {x} * [*map(float, RATES)][0]", "{t} = {x} * {{**WORDS}}['a']",
)  # fmt: skip
RETURNS = (
    "return {x}", "return {x}.sum()", "return {x}, {y}", "return {{'a': {x}, 'b': [{y}, None, 2.0]}}",
    "return {x}, {x}", "return {x}, {x}[0]", "return x", "return ({x} * p).sum()",
    "return ({x} * p).square().mean(), {x}.detach()", "return {x}.t() if {x}.ndim == 2 else {x}",
    "return ({x} * leaf).sum(), {x}.shape", "return table", "return p, {x} * p", "return {x}.sum().item()",
    "return Two({x}, {y})", "return None", "return [{x}.sin(), {x}.cos()]", "return weights", "return {x}.numel(), {x}",
)  # fmt: skip
SURGERY = (
    "p = tensor([1.0, 1.0, 2.0]).requires_grad_()", "p.data.mul_(0.5)", "p.requires_grad_(False)",
    "p.requires_grad_(True)", "p.grad = None", "p.data = p.data.float()", "p.data = p.data.double()", "net.train()",
    "net.eval()", "net.k = 1.0", "net.k = 2", "net.rate = 0.25", "Net.rate = 1.5", "net.parts[0] = 1.0",
    "net.parts.append(1.0)", "net.mean = net.mean + 1.0", "net.mean.add_(1.0)", "net.act = nn.ReLU()",
    "net.act = weft.sin", "net.more.append(nn.Linear(3, 3).double())", "net.more[0] = nn.Identity()", "del net.more[0]",
    "net.a.weight.data.mul_(0.5)", "net.a = nn.Linear(3, 3).double()", "net.forward = lambda x: x * p",
    "vars(net).pop('forward', None)", "Net.halved = lambda self, x, by=1.0: x * by", "Net.halved.__defaults__ = (3.0,)",
    "net.drop.p = 0.5", "net.register_forward_hook(lambda m, given, out: out * 2.0)", "net = Net().double()",
    "net.a.register_forward_pre_hook(lambda m, given: (given[0] * 0.5,))",
    "net.a.weight.register_hook(lambda g: g * 2.0)", "p.register_hook(lambda g: g * 0.5)", "step.w = table",
    "step.w = leaf", "step.net = lambda x: x * 3.0", "step.options['rate'] = 0.5", "step.options = {'rate': 2}",
    "Step.gain = 1.5", "step.gain = 2.5", "Step.__call__ = lambda self, x, y=None: x * 7.0", "step = Step(net, p)",
    "bag.reverse()", "bag[0] = weft.cos", "bag.append(F.gelu)", "F.relu = F.gelu\nkept.append('relu')",
    "leaf = leaf.detach().clone().requires_grad_()", "leaf.data[0] = 3.0", "x = tensor([0.5, 0.25, 2.0])",
    "x = x.detach().requires_grad_()", "x = x.float()", "x = x.double()", "x = table", "x = p", "x = p * 2.0",
    "x = weights[0]", "x = tensor([[1.0, 2.0, 3.0]] * 2)", "x = tensor([[1.0, 2.0, 3.0]] * 3).t()",
    "x = tensor(np.arange(6.0))[::2]", "x = shown", "y = x", "y = tensor([1.0, 2.0, 3.0])", "y = p", "y = 0.5", "y = 2",
    "y = y[None] if isinstance(y, weft.Tensor) else y", "x = tensor([1.0, 2.0, 3.0])", "y = tensor([3.0, 2.0, 3.0])",
    "x.add_(1.0)", "with weft.no_grad():\n    x.mul_(0.5)", "weft.manual_seed(3)", "optimizer.zero_grad()",
    "kept.clear()", "model.float()", "model.double()", "rs[0].mul_(2.0)", "rs[-1].data.add_(1.0)",
    "table = rs[0].detach()", "x = rs[0]", "f0 = copy.deepcopy(f0)", "f0 = compile(functools.partial(f0))", "f1 = f0",
    "leaf = p", "p = leaf",
)  # fmt: skip
AFTER = (
    "pass", "pass", "rs[0].sum().backward()", "rs[0].sum().backward(retain_graph=True)\nrs[-1].sum().backward()",
    "rs[0].backward()", "rs[0].sum().backward()\noptimizer.step()\noptimizer.zero_grad()", "kept.append(rs[0])",
    "rs[0].mul_(0.5)", "with weft.no_grad():\n    rs[0].zero_()",
    "yield weft.autograd.grad(rs[0].sum(), [p, leaf], allow_unused=True)",
    "g = weft.autograd.grad(rs[0].sum(), p, create_graph=True)[0]\ng.sum().backward()", "p.grad = None",
    "rs[0].data.mul_(0.5)\nrs[0].sum().backward()", "yield [q.requires_grad for q in rs], [q._version for q in rs]",
    "r = rs = None", "yield shared([*rs, x, table, p])", "rs[0].add_(1.0)\nrs[0].sum().backward()",
)  # fmt: skip
# What is compiled, of parameters of these names: a function of the program, or with it something that calls it.
WAYS = (
    "f{k} = compile(f{k}{options})",
    "f{k} = compile(f{k}{options})",
    "f{k} = compile(f{k}{options})",
    "f{k} = compile(lambda *args, q=f{k}, **more: q(*args, **more))",
    "f{k} = compile(functools.partial(f{k}){options})",
    "Step.run = f{k}_of\nf{k} = compile(step.run{options})",
    "Step.run = compile(f{k}_of{options})\nf{k} = step.run",
    "Step.run = compile(f{k}_of{options})\nf{k} = lambda *args, **more: step.run(*args, **more)",
)
CALLS = (
    ("0", "x, y", "x, y"),
    ("0", "x, y=0.5", "x, y=y"),
    ("0", "x, y=2.0, *, k=None", "x, y=y"),
    ("0", "x, y", "x, y=y"),
)
OPTIONS = ("", "", "", ", dynamic=True", ", background=True", ", dynamic=False")

# What draws, since which thread gets which numbers is open; and what changes tensors, which the other may be reading.
_NOT_IN_THREADS = ("rand(", "dropout(", "net(", "step(", "_(", "*=", "+=")


class RandomWhole(RandomOnArrays):
    """seed -> `source`: calls that are alike long enough to be looked into, then something changes, then more calls."""

    values, returns, surgeries = (
        [*on_arrays.VALUES, *VALUES, *VALUES],
        RETURNS,
        [*on_arrays.SURGERY, *SURGERY, *SURGERY],
    )
    calls_are = CALLS
    head = on_arrays.HEADER.replace("in_threads, on_arrays, said", "flat, in_threads, said, shared")

    def __init__(self, seed):
        super().__init__(seed)
        self.is_rare = seed % 4 == 0
        self.drawing = set()  # functions that two threads cannot call at once and find what one after the other would

    def text_of_value(self):
        return self.pick(RARE) if self.is_rare and self.chance(0.3) else self.pick(self.values)

    def function(self, k, parameters, first):
        lines = super().function(k, parameters, first)
        if any(word in line for line in lines for word in _NOT_IN_THREADS):
            self.drawing.add(k)
        return [*lines, f"def f{k}_of(self, {parameters}):", *lines[1:]]

    def compiled(self, k, places):
        return self.pick(WAYS).format(k=k, options=self.pick(OPTIONS)).split("\n")

    def called(self, k):
        given = self.given[k][2]
        lines = [f"r = f{k}({given})", "rs = flat(r)", "yield r"]
        if self.chance(0.05) and k not in self.drawing:
            lines = [f"yield in_threads(f{k}, {given.replace('y=y', 'y')})", *lines]
        return lines

    def around(self):
        text = self.pick(AFTER)
        return "if rs and rs[0].requires_grad:\n" + "\n".join(f"    {line}" for line in text.split("\n"))

    def last(self):
        return ["yield kept, x, y, table, weights, params, net.mean, array, grid, rows, [p, leaf, p.grad, leaf.grad]"]

    @property
    def source(self):
        head, rest = super().source.split("    def shifted(x):", 1)
        return head.rstrip() + "\n" + STATE + "\n    def shifted(x):" + rest
