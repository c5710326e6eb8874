"""Random programs with what strangers' programs do besides (strangers.py): every third with another number of rows now
and then."""

from . import fragments, programs, strangers
from .programs import RandomAttack, RandomLoop

IMPORTS = """\
import functools
import io
import pickle
import sys
import types
"""
CLASSES = """
GAIN = 1.5


class Dirty(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2.0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2.0


class Places(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.sort(-1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return values, places

    @staticmethod
    def backward(ctx, g, _):
        return weft.zeros_like(g).scatter(-1, ctx.saved_tensors[0], g)


class Silent(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2.0, y * 3.0

    @staticmethod
    def backward(ctx, g, h):
        return None if g is None else g * 2.0, None if h is None else h * 3.0


class Once(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @weft.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 2.0 * ctx.saved_tensors[0]


class Styled(weft.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x.sin() * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos() * ctx.k, None


class Same(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 0.5


class Viewing(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(x.shape)

    @staticmethod
    def backward(ctx, g):
        return g * 0.25


class Within(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp().sin()

    @staticmethod
    def backward(ctx, g):
        with weft.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            return weft.autograd.grad(x.exp().sin(), x, g)[0]


class Nothing(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return None, None


class Keeps(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, parts, options):
        ctx.parts, ctx.options = parts, options
        return x * options["k"]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.options["k"] * ctx.parts[0].detach(), None, None


class Of(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.out = out = x.tanh()
        return out

    @staticmethod
    def backward(ctx, g):
        return g * (1.0 - ctx.out.detach().square())


class Failing(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, calls):
        ctx.n = calls[0]
        return x * 2.0

    @staticmethod
    def backward(ctx, g):
        if ctx.n % 5 == 4:
            raise ValueError("in a backward")
        return g * 2.0, None


class Compiled(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return tripled(x) * y.detach()

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return tripled(g) * y, None


class Numpy(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        found = np.sin(x.detach().numpy())
        ctx.save_for_backward(x)
        return weft.from_numpy(found)

    @staticmethod
    def backward(ctx, g):
        return weft.as_tensor(g.numpy() * np.cos(ctx.saved_tensors[0].detach().numpy()))


def tripled(x):
    return x * 3.0


@contextlib.contextmanager
def patched(place, name, value):
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


@contextlib.contextmanager
def profiled():
    met = []
    sys.setprofile(lambda *_: met.append(1))
    try:
        yield
    finally:
        sys.setprofile(None)


def lazily(x):
    for row in x.unbind(0):
        yield row * 2.0
"""
STATE = """
    globals()["GAIN"] = 1.5

    class Net(nn.Module):
        factor = 0.75

        def __init__(self):
            super().__init__()
            self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.{norm}
            self.gain = nn.Parameter(weft.full((4,), 0.5))
            self.register_buffer("mean", weft.zeros(4))
            self.n, self.squash, self.cache = 0, weft.tanh, {}

        def forward(self, x):
            h = self.squash(self.a(x))
            if self.training:
                with weft.no_grad():
                    self.mean.lerp_(h.detach().reshape(-1, 4).mean(0), 0.1)
            return self.b(self.norm(h)) * self.gain + self.mean

        def other(self, x):
            return self.b(x) * self.gain

        def halved(self, x):
            return x * 0.5 + self.mean

        @property
        def doubled(self):
            return self.gain * 2.0

        def plus(self, x):
            return x + self.doubled * self.factor

        @staticmethod
        def squashed(x):
            return x.sigmoid()

        def cached(self, x):
            if x.ndim not in self.cache:
                self.cache[x.ndim] = x.detach().clone()
            return x * self.cache[x.ndim]

    old_forward = Net.forward

    class Trainer:
        rate = 0.1

        def __init__(self, net):
            self.net, self.losses = net, []
            self.optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

        def step(self, x):
            loss = (self.net(x) - x).square().mean() * self.rate
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.detach())
            return loss.detach()

        def predict(self, x):
            return self.net(x) * self.rate

        step, predict = compile(step), compile(predict)

    class Reader:
        factor = 0.5

        def __del__(self):
            elsewhere.append((w.sum().item(), s.tolist()))

    def seen_at(phase, _):
        elsewhere.append(v.sum().item())

    def shifted(x, by=1.0):
        return x + by

    @compile
    def shared_step(x):
        return net(x) * v

    once = functools.lru_cache(maxsize=None)(lambda x: x * 2.0)
    net = Net()
    fast, trainer, part, size, hook = compile(net), Trainer(net), functools.partial(shifted, by=0.5), 3, None
    rng, ema, pools = weft.Generator().manual_seed(3), optim.swa_utils.AveragedModel(net), [randn(3, 4), randn(4)]
"""
NORMS = ("LayerNorm(4)", "BatchNorm1d(4)", "Dropout(0.2)", "Identity()")


class _Strange:
    """What makes a generator of programs a stranger's."""

    rare = [*strangers.FAMILIES, *programs.RARE[:4]]
    optimizers = [*strangers.OPTIMIZERS, *programs.OPTIMIZERS]

    def __init__(self, seed):
        super().__init__(seed)
        self.with_rows = seed % 3 == 0

    def surgery(self):
        return self.pick(strangers.SURGERY) if self.chance(0.7) else super().surgery()

    def after(self):
        words = {"r": self.pick(["rs[0]", "rs[0]", "rs[-1]"]), "q": "rs[-1]"}
        texts = strangers.AFTER if self.chance(0.4) else fragments.AFTER
        return [self.pick(texts).format(**words) for _ in range(int(self.rng.choice([0, 1, 1, 2])))]

    @property
    def source(self):
        source = super().source
        # The optimizer is of `net` too, which the models before it do not know.
        head, line, rest = _cut(source, "    optimizer = ")
        state = STATE.replace("{norm}", self.pick(NORMS))
        source = head + "    optimizer = optim.SGD([w], lr=0.1)\n" + rest
        head, rest = source.split("\n    def named_weights", 1)
        source = (
            head
            + state
            + line
            + "    scheduler = optim.lr_scheduler.StepLR(optimizer, 2)\n"
            + "\n    def named_weights"
            + rest
        )
        source = IMPORTS + source.replace("\ndef program(compile):", CLASSES + "\n\ndef program(compile):", 1)
        return self._of_rows(source) if self.with_rows else source

    def _of_rows(self, source):
        """The same, of another number of rows now and then."""
        head, rest = source.split("def program(compile):", 1)
        rest = rest.replace("w, v = randn(3, 4,", "w, v = randn(1, 4,").replace(
            "s, u, a, b, base, box = weft.zeros(3, 4)", "s, u, a, b, base, box = weft.zeros(1, 4)"
        )
        rest = rest.replace("f0(randn(1), randn(1))", "f0(randn(2, 4), randn(4))")
        first, calls = rest.split("call = 0\n", 1) if "call = 0\n" in rest else rest.split("counted = []", 1)
        mark = "call = 0\n" if "call = 0\n" in rest else "counted = []"
        return head + "def program(compile):" + first + mark + calls.replace("randn(3, 4)", "randn(size, 4)")


def _cut(source, words):
    """The source before the line that begins with these words, the line, the source after it."""
    at = source.index(words)
    end = source.index("\n", at) + 1
    return source[:at], source[at:end], source[end:]


class RandomStranger(_Strange, RandomAttack):
    """seed -> `source`."""


class RandomStrangerLoop(_Strange, RandomLoop):
    """The same call many times."""
