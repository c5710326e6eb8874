"""Programs of courses and notebooks: first steps by hand, a trainer of one's own, early stopping."""

import itertools
import math
from dataclasses import dataclass, field

from .registry import idiom


@idiom
def descent_by_hand(T, s):
    X, y = s.numbers(20, 3), s.numbers(20)
    w, b = s.numbers(3).requires_grad_(), T.zeros(1, requires_grad=True)

    @s.compile
    def one_epoch(lr):
        y_hat = X.matmul(w) + b
        loss = ((y_hat - y) ** 2).mean()
        loss.backward()
        with T.no_grad():
            w.sub_(lr * w.grad)
            b.sub_(lr * b.grad)
            w.grad.zero_()
            b.grad.zero_()
        return loss

    return lambda: (one_epoch(0.05), w, b)


@idiom
def polynomial_of_a_sine(T, s):
    x = T.linspace(-math.pi, math.pi, 200)
    y = T.sin(x)
    a, b, c, d = (s.numbers().requires_grad_() for _ in range(4))
    lr = 1e-6

    @s.compile
    def update():
        nonlocal a, b, c, d
        y_pred = a + b * x + c * x**2 + d * x**3
        loss = (y_pred - y).pow(2).sum()
        loss.backward()
        with T.no_grad():
            a -= lr * a.grad
            b -= lr * b.grad
            c -= lr * c.grad
            d -= lr * d.grad
            a.grad = None
            b.grad = None
            c.grad = None
            d.grad = None
        return loss

    return lambda: (update(), a, b, c, d)


@idiom
def backward_by_hand(T, s):
    X, Y = s.numbers(16, 4), s.numbers(16, 2)
    w1, w2 = s.numbers(4, 8), s.numbers(8, 2)

    @s.compile
    def step(w1, w2, lr=1e-3):
        h = X.mm(w1)
        h_relu = h.clamp(min=0)
        y_pred = h_relu.mm(w2)
        loss = (y_pred - Y).pow(2).sum()
        grad_y = 2.0 * (y_pred - Y)
        grad_w2 = h_relu.t().mm(grad_y)
        grad_h = grad_y.mm(w2.t())
        grad_h[h < 0] = 0
        grad_w1 = X.t().mm(grad_h)
        w1 -= lr * grad_w1
        w2 -= lr * grad_w2
        return loss

    return lambda: (step(w1, w2), w1, w2)


@idiom
def rosenbrock_with_momentum(T, s):
    xy = T.tensor([-1.5, 2.0], requires_grad=True)
    velocity = T.zeros(2)

    @s.compile
    def descend():
        x, y = xy
        f = (1 - x) ** 2 + 100 * (y - x**2) ** 2
        (g,) = T.autograd.grad(f, xy)
        velocity.mul_(0.9).add_(g, alpha=-1e-4)
        with T.no_grad():
            xy.add_(velocity)
        return f

    return lambda: (descend(), xy, velocity)


@idiom
def perceptron(T, s):
    X = s.numbers(12, 3)
    y = T.where(X[:, 0] + X[:, 1] > 0, 1.0, -1.0)
    samples = itertools.cycle(list(zip(X, y)))

    class Perceptron:
        def __init__(self):
            self.w, self.b, self.mistakes = T.zeros(3), T.zeros(()), 0

        @s.compile
        def see(self, x, y):
            if y * (self.w @ x + self.b) <= 0:
                self.w += y * x
                self.b += y
                self.mistakes += 1

    p = Perceptron()

    def call():
        p.see(*next(samples))
        return p.w, p.b, T.tensor(p.mistakes)

    return call


@idiom
def k_means(T, s):
    x = s.numbers(40, 2)
    centres = x[:4].clone()

    @s.compile
    def lloyd(centres):
        labels = T.cdist(x, centres).argmin(dim=1)
        new = []
        for k in range(4):
            mask = (labels == k).float()
            new.append((mask[:, None] * x).sum(0) / mask.sum().clamp(min=1))
        new = T.stack(new)
        return new, (new - centres).abs().max(), labels

    def call():
        nonlocal centres
        centres, moved, labels = lloyd(centres)
        if moved < 1e-4:
            centres = x[:4].clone()
        return centres, labels

    return call


@idiom
def class_with_fit_and_history(T, s):
    class LinearRegression:
        def __init__(self, n, lr=0.1):
            self.w = T.zeros(n, requires_grad=True)
            self.lr = lr
            self.history = []

        def predict(self, X):
            return X @ self.w

        def loss(self, X, y):
            return T.mean((self.predict(X) - y) ** 2)

        @s.compile
        def partial_fit(self, X, y):
            loss = self.loss(X, y)
            grad = T.autograd.grad(loss, self.w)[0]
            self.w = (self.w - self.lr * grad).detach().requires_grad_(True)
            self.history.append(loss.item())
            return self

    X, y = s.numbers(20, 3), s.numbers(20)
    model = LinearRegression(3)
    return lambda: (model.partial_fit(X, y).w, T.tensor(model.history[-1]))


@idiom
def square_root_by_newton(T, s):
    a = T.tensor([2.0, 3.0, 10.0])

    @s.compile
    def newton_sqrt(a, tol=1e-5):
        x = a.clone()
        n = 0
        while True:
            new = 0.5 * (x + a / x)
            n += 1
            if T.max(T.abs(new - x)) < tol:
                break
            x = new
        return new, n

    def call():
        x, n = newton_sqrt(a)
        return x, T.tensor(n)

    return call


@idiom
def character_rnn_by_hand(T, s):
    V, H = 6, 8
    Wxh, Whh, Why = (s.numbers(*shape, scale=0.3).requires_grad_() for shape in ((V, H), (H, H), (H, V)))
    bh, by = T.zeros(H, requires_grad=True), T.zeros(V, requires_grad=True)
    params = [Wxh, Whh, Why, bh, by]
    text = s.rng.integers(0, V, 40).tolist()
    pos = itertools.cycle(range(0, 30, 5))
    h = T.zeros(1, H)

    @s.compile
    def lossFun(inputs, targets, h):
        loss = 0
        for i, t in zip(inputs, targets):
            x = T.nn.functional.one_hot(i, V).float()[None]
            h = T.tanh(x @ Wxh + h @ Whh + bh)
            loss = loss + T.nn.functional.cross_entropy(h @ Why + by, t[None])
        loss.backward()
        for p in params:
            p.grad.clamp_(-1, 1)
            p.data -= 0.1 * p.grad
            p.grad = None
        return loss, h.detach()

    def call():
        nonlocal h
        k = next(pos)
        loss, h = lossFun(T.tensor(text[k : k + 5]), T.tensor(text[k + 1 : k + 6]), h)
        return loss, h

    return call


@idiom
def leading_eigenvector(T, s):
    A = s.numbers(6, 6)
    A = A + A.T

    @s.compile
    def leading(A, v, n=10):
        for _ in range(n):
            v = A @ v
            v = v / T.linalg.norm(v)
        return T.dot(v, A @ v), v

    v = T.ones(6)
    return lambda: leading(A, v)


@dataclass
class Config:
    lr: float = 1e-2
    clip: float = 1.0
    log_every: int = 5
    betas: tuple = (0.9, 0.99)
    extra: dict = field(default_factory=dict)


class Callback:
    def on_step_start(self, trainer): ...

    def on_step_end(self, trainer, loss): ...


class History(Callback):
    def __init__(self):
        self.losses = []

    def on_step_end(self, trainer, loss):
        if trainer.step_count % trainer.cfg.log_every == 0:
            self.losses.append(float(loss))


class WarmUp(Callback):
    def on_step_start(self, trainer):
        for g in trainer.opt.param_groups:
            g["lr"] = trainer.cfg.lr * min(1.0, (trainer.step_count + 1) / 10)


@idiom
def trainer_with_callbacks(T, s):
    class Trainer:
        def __init__(self, model, cfg, callbacks=()):
            self.model, self.cfg, self.callbacks, self.step_count = model, cfg, list(callbacks), 0
            self.opt = T.optim.AdamW(model.parameters(), lr=cfg.lr, betas=cfg.betas)
            self._step = s.compile(self.compute)

        def compute(self, batch):
            x, y = batch["input"], batch["target"]
            self.opt.zero_grad()
            loss = T.nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            T.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
            self.opt.step()
            return loss

        def __call__(self, batch):
            for c in self.callbacks:
                c.on_step_start(self)
            loss = self._step(batch)
            self.step_count += 1
            for c in self.callbacks:
                c.on_step_end(self, loss)
            return loss

    model = s.weights(T.nn.Sequential(T.nn.Linear(4, 8), T.nn.GELU(), T.nn.Linear(8, 2)))
    trainer = Trainer(model, Config(), [History(), WarmUp()])
    batches = itertools.cycle([{"input": s.numbers(8, 4), "target": s.numbers(8, 2)} for _ in range(4)])
    return lambda: (trainer(next(batches)), list(model.parameters()))


@idiom
def ema_with_a_shadow(T, s):
    class EMA:
        def __init__(self, model, decay=0.99):
            self.decay = decay
            self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}

        @T.no_grad()
        def update(self, model):
            for name, p in model.named_parameters():
                if p.requires_grad:
                    self.shadow[name].mul_(self.decay).add_(p.data, alpha=1 - self.decay)

    net = s.weights(T.nn.Sequential(T.nn.Linear(5, 10), T.nn.SiLU(), T.nn.Linear(10, 1)))
    opt, ema = T.optim.SGD(net.parameters(), lr=0.05, nesterov=True, momentum=0.9), EMA(net)
    x, y = s.numbers(16, 5), s.numbers(16, 1)

    @s.compile
    def step(x, y):
        opt.zero_grad()
        loss = T.nn.functional.huber_loss(net(x), y)
        loss.backward()
        opt.step()
        ema.update(net)
        return loss

    return lambda: (step(x, y), ema.shadow)


@idiom
def scheduler_and_clipping(T, s):
    net = s.weights(T.nn.Sequential(T.nn.Linear(6, 12), T.nn.ReLU(), T.nn.Linear(12, 3)))
    opt = T.optim.AdamW(net.parameters(), lr=1e-2)
    sched = T.optim.lr_scheduler.LambdaLR(opt, lambda k: 0.5 * (1 + math.cos(math.pi * (k % 50) / 50)))
    crit = T.nn.CrossEntropyLoss(label_smoothing=0.1)
    x, y = s.numbers(16, 6), s.integers(3, 16)

    @s.compile
    def training_step(x, y):
        out = net(x)
        loss = crit(out, y)
        opt.zero_grad()
        loss.backward()
        norm = T.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
        opt.step()
        sched.step()
        acc = (out.argmax(-1) == y).float().mean()
        return {"loss": loss.detach(), "norm": norm, "acc": acc}

    return lambda: (training_step(x, y), list(net.parameters()))


@idiom
def best_state_kept(T, s):
    net = s.weights(T.nn.Linear(4, 1))
    opt = T.optim.SGD(net.parameters(), lr=0.3)
    data = itertools.cycle([(s.numbers(6, 4), s.numbers(6, 1)) for _ in range(5)])
    best = {"loss": math.inf, "state": None, "patience": 0}

    @s.compile
    def epoch(x, y):
        opt.zero_grad()
        loss = T.nn.functional.l1_loss(net(x), y)
        loss.backward()
        opt.step()
        if loss < best["loss"]:
            best["loss"] = loss.item()
            best["state"] = {k: v.clone() for k, v in net.state_dict().items()}
            best["patience"] = 0
        else:
            best["patience"] += 1
        return best["patience"]

    def call():
        patience = epoch(*next(data))
        if patience >= 4:
            net.load_state_dict(best["state"])
            best["loss"], best["patience"] = math.inf, 0
        return best["state"], T.tensor(patience)

    return call


@idiom
def cnn_with_batchnorm_in_eval(T, s):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = T.nn.Conv2d(1, 4, 3, padding=1, bias=False)
            self.bn = T.nn.BatchNorm2d(4)
            self.conv2 = T.nn.Conv2d(4, 8, 3, bias=False)
            self.drop = T.nn.Dropout2d(0.25)
            self.fc = T.nn.Linear(8 * 3 * 3, 10)

        def forward(self, x):
            x = T.nn.functional.max_pool2d(T.nn.functional.relu(self.bn(self.conv1(x))), 2)
            x = self.drop(T.relu(self.conv2(x)))
            x = x.view(x.size(0), -1)
            return T.nn.functional.log_softmax(self.fc(x), dim=1)

    net = s.weights(Net())
    net.eval()
    imgs, labels = s.numbers(2, 1, 10, 10), s.integers(10, 2)

    @s.compile
    @T.no_grad()
    def test(data, target):
        output = net(data)
        test_loss = T.nn.functional.nll_loss(output, target, reduction="sum").item()
        pred = output.argmax(dim=1, keepdim=True)
        correct = pred.eq(target.view_as(pred)).sum().item()
        return test_loss, correct

    return lambda: [T.tensor(v) for v in test(imgs, labels)]


@idiom
def truncated_backpropagation(T, s):
    lstm = s.weights(T.nn.LSTM(3, 6, bias=False, batch_first=True))
    head = s.weights(T.nn.Linear(6, 2))
    opt = T.optim.Adam([*lstm.parameters(), *head.parameters()], lr=0.01)
    chunks = itertools.cycle([(s.numbers(2, 4, 3), s.numbers(2, 4, 2)) for _ in range(3)])
    hidden = None

    def repackage(h):
        return tuple(v.detach() for v in h)

    @s.compile
    def bptt(x, y, hidden):
        if hidden is not None:
            hidden = repackage(hidden)
        out, hidden = lstm(x, hidden)
        loss = T.nn.functional.mse_loss(head(out), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss, hidden

    def call():
        nonlocal hidden
        loss, hidden = bptt(*next(chunks), hidden)
        return loss, hidden

    return call
