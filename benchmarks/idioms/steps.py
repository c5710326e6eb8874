"""Training steps: the same few lines in the ways people arrange them."""

from .registry import idiom, random_idiom


def network(T, s, *between):
    nn = T.nn
    return s.weights(
        nn.Sequential(nn.Linear(16, 32), nn.ReLU(), *between, nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    )


def parts(T, s, **options):
    model = network(T, s)
    options = {"lr": 1e-4, **options}
    return model, T.optim.SGD(model.parameters(), **options), s.numbers(8, 16), s.numbers(8, 4)


def stepped(T, s, model, optimizer, criterion=None):
    """The usual order: zero, forward, backward, step."""
    criterion = criterion or T.nn.functional.mse_loss

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def step_with(T, s, make):
    model, (x, y) = network(T, s), (s.numbers(8, 16), s.numbers(8, 4))
    step = stepped(T, s, model, make(model.parameters()))
    return lambda: step(x, y)


@idiom
def step_sgd(T, s):
    return step_with(T, s, lambda p: T.optim.SGD(p, lr=1e-4))


@idiom
def step_momentum(T, s):
    return step_with(T, s, lambda p: T.optim.SGD(p, lr=1e-4, momentum=0.9, nesterov=True, weight_decay=1e-4))


@idiom
def step_adam(T, s):
    return step_with(T, s, lambda p: T.optim.Adam(p, lr=1e-5))


@idiom
def step_adamw(T, s):
    return step_with(T, s, lambda p: T.optim.AdamW(p, lr=1e-5, weight_decay=0.1))


@idiom
def step_rmsprop(T, s):
    return step_with(T, s, lambda p: T.optim.RMSprop(p, lr=1e-5))


@idiom
def step_adagrad(T, s):
    return step_with(T, s, lambda p: T.optim.Adagrad(p, lr=1e-4))


@idiom
def only_the_model_compiled(T, s):
    model, optimizer, x, y = parts(T, s)
    f = s.compile(model)

    def call():
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(f(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return call


@idiom
def model_and_loss_compiled(T, s):
    model, optimizer, x, y = parts(T, s)
    f = s.compile(lambda x, y: T.nn.functional.mse_loss(model(x), y))

    def call():
        optimizer.zero_grad()
        loss = f(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return call


@idiom
def update_left_outside(T, s):
    model, optimizer, x, y = parts(T, s)

    @s.compile
    def gradients(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    def call():
        loss = gradients(x, y)
        optimizer.step()
        return loss

    return call


@idiom
def loss_by_hand(T, s):
    model, optimizer, x, y = parts(T, s)
    step = stepped(T, s, model, optimizer, lambda out, y: ((out - y) ** 2).mean())
    return lambda: step(x, y).detach()


@idiom
def loss_as_a_module(T, s):
    model, optimizer, x, _ = parts(T, s)
    step, label = stepped(T, s, model, optimizer, T.nn.CrossEntropyLoss(label_smoothing=0.1)), s.integers(4, 8)
    return lambda: step(x, label).item() and None


@idiom
def loss_and_accuracy(T, s):
    model, optimizer, x, _ = parts(T, s)
    label = s.integers(4, 8)

    @s.compile
    def step(x, y):
        out = model(x)
        loss = T.nn.functional.cross_entropy(out, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item(), (out.argmax(dim=1) == y).sum().item()

    return lambda: T.tensor(step(x, label))


@idiom
def gradients_zeroed_in_place(T, s):
    model, optimizer, x, y = parts(T, s)

    @s.compile
    def step(x, y):
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss

    return lambda: step(x, y)


@idiom
def clipped_with_a_schedule(T, s):
    model, (x, y) = network(T, s), (s.numbers(8, 16), s.numbers(8, 4))
    optimizer = T.optim.Adam(model.parameters(), lr=1e-5)
    schedule = T.optim.lr_scheduler.StepLR(optimizer, 1000, gamma=0.99)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        T.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def call():
        loss = step(x, y)
        schedule.step()
        return loss

    return call


@idiom
def batches_and_a_running_loss(T, s):
    model, optimizer, _, _ = parts(T, s, momentum=0.9)
    xs, ys, total = s.numbers(64, 16), s.numbers(64, 4), [0.0, 0]
    batches = [(xs[k : k + 8], ys[k : k + 8]) for k in range(0, 64, 8)]
    step = stepped(T, s, model, optimizer)

    def call():
        loss = step(*batches[total[1] % 8])
        total[0] += loss.item()
        total[1] += 1
        return loss

    return call


@idiom
def sliced_in_the_loop(T, s):
    model, optimizer, _, _ = parts(T, s)
    xs, ys, at = s.numbers(64, 16), s.numbers(64, 4), [0]
    step = stepped(T, s, model, optimizer)

    def call():
        at[0] = (at[0] + 8) % 64
        return step(xs[at[0] : at[0] + 8], ys[at[0] : at[0] + 8])

    return call


@idiom
def two_micro_batches(T, s):
    model, optimizer, x, y = parts(T, s)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        for k in range(2):
            part = slice(4 * k, 4 * k + 4)
            (T.nn.functional.mse_loss(model(x[part]), y[part]) / 2).backward()
        optimizer.step()

    def call():
        step(x, y)
        return list(model.parameters())

    return call


@idiom
def closure(T, s):
    model, optimizer, x, y = parts(T, s)

    @s.compile
    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = T.nn.functional.l1_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return lambda: step(x, y)


@idiom
def update_by_hand(T, s):
    weights = [s.parameter(*shape, scale=0.3) for shape in ((16, 32), (32,), (32, 4), (4,))]
    x, y = s.numbers(8, 16), s.numbers(8, 4)

    @s.compile
    def step(x, y):
        w1, b1, w2, b2 = weights
        loss = ((T.tanh(x @ w1 + b1) @ w2 + b2 - y) ** 2).mean()
        loss.backward()
        with T.no_grad():
            for p in weights:
                p -= 1e-5 * p.grad
                p.grad = None
        return loss

    return lambda: step(x, y)


@idiom
def weights_in_a_dictionary(T, s):
    weights = {"w": s.parameter(16, 4, scale=0.3), "b": s.parameter(4)}
    x, y = s.numbers(8, 16), s.integers(4, 8)

    @s.compile
    def step(x, y):
        logits = x @ weights["w"] + weights["b"]
        loss = logits.logsumexp(1).mean() - logits[T.arange(8), y].mean()
        grads = T.autograd.grad(loss, list(weights.values()))
        with T.no_grad():
            for p, g in zip(weights.values(), grads):
                p.sub_(1e-4 * g)
        return loss

    return lambda: step(x, y)


@idiom
def class_that_trains(T, s):
    class Trainer:
        def __init__(self):
            self.model, self.optimizer, self.x, self.y = parts(T, s)
            self.steps, self.history = 0, []

        @s.compile
        def train(self, x, y):
            self.model.train()
            self.optimizer.zero_grad()
            loss = self.loss(x, y)
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            return loss.detach()

        def loss(self, x, y):
            return T.nn.functional.smooth_l1_loss(self.model(x), y)

    trainer = Trainer()

    def call():
        trainer.history.append(trainer.train(trainer.x, trainer.y))
        del trainer.history[:-3]
        return trainer.history[-1]

    return call


@idiom
def penalty_on_weights(T, s):
    model, optimizer, x, y = parts(T, s)

    @s.compile
    def step(x, y):
        loss = T.nn.functional.mse_loss(model(x), y)
        penalty = sum(p.square().sum() for p in model.parameters())
        total = loss + 1e-4 * penalty
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return loss, penalty

    return lambda: step(x, y)


@idiom
def norm_of_the_gradient_logged(T, s):
    model, optimizer, x, y = parts(T, s)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        norm = T.stack([p.grad.norm() for p in model.parameters()]).norm()
        optimizer.step()
        return {"loss": loss.detach(), "norm": norm}

    return lambda: step(x, y)


@idiom
def adversaries_in_one_step(T, s):
    nn, softplus = T.nn, T.nn.functional.softplus
    maker = s.weights(nn.Linear(4, 4))
    judge = s.weights(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    of_maker, of_judge = (T.optim.Adam(m.parameters(), lr=1e-6) for m in (maker, judge))
    noise, real = s.numbers(8, 4), s.numbers(8, 4)

    @s.compile
    def step(noise, real):
        of_judge.zero_grad()
        fake = maker(noise)
        (softplus(-judge(real)).mean() + softplus(judge(fake.detach())).mean()).backward()
        of_judge.step()
        of_maker.zero_grad()
        loss = softplus(-judge(fake)).mean()
        loss.backward()
        of_maker.step()
        return loss.detach()

    return lambda: step(noise, real)


@idiom
def average_after_the_step(T, s):
    model, optimizer, x, y = parts(T, s)
    shadow = [p.detach().clone() for p in model.parameters()]

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        with T.no_grad():
            for slow, fast in zip(shadow, model.parameters()):
                slow.mul_(0.99).add_(fast, alpha=0.01)
        return loss

    return lambda: step(x, y)


@idiom
def one_step_for_several_models(T, s):
    models = [s.weights(T.nn.Linear(16, 4)) for _ in range(3)]
    optimizers = [T.optim.SGD(model.parameters(), lr=1e-4) for model in models]
    x, y = s.numbers(8, 16), s.numbers(8, 4)

    @s.compile
    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: [step(model, optimizer, x, y) for model, optimizer in zip(models, optimizers)]


@idiom
def inference(T, s):
    model, x = network(T, s).eval(), s.numbers(8, 16)
    f = s.compile(model)

    def call():
        with T.no_grad():
            return f(x)

    return call


@idiom
def inference_with_decorators(T, s):
    model, x = network(T, s).eval(), s.numbers(8, 16)

    @T.no_grad()
    @s.compile
    def predict(x):
        return model(x).softmax(-1).max(-1)

    return lambda: tuple(predict(x))


@random_idiom
def step_with_dropout(T, s):
    model, (x, y) = network(T, s, T.nn.Dropout(0.5)), (s.numbers(8, 16), s.numbers(8, 4))
    step = stepped(T, s, model, T.optim.SGD(model.parameters(), lr=1e-5))
    return lambda: step(x, y)


@random_idiom
def step_with_noise_on_inputs(T, s):
    model, optimizer, x, y = parts(T, s)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x + 0.1 * T.randn_like(x)), y)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, y)
