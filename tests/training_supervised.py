"""Regression, classification and what people do around it: schedules, clipping, groups, samplers. Not a test."""

import copy

from training_programs import N_STEPS, program


@program
def linear_regression(T, s):
    x, noise = s.numbers(64, 3), s.numbers(64, 1, scale=0.1)
    y = x @ T.tensor([[1.0], [-2.0], [0.5]]) + 3 + noise
    model = s.weights(T.nn.Linear(3, 1))
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)
    schedule = T.optim.lr_scheduler.StepLR(optimizer, step_size=15, gamma=0.5)

    @s.compile
    def step(x, y):
        loss = T.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        T.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(x, y)
        schedule.step()


@program
def logistic_regression_in_batches(T, s):
    x = s.numbers(60, 4)
    y = (x.sum(1, keepdim=True) > 0).to(x.dtype)
    data = T.utils.data.TensorDataset(x, y)
    model = s.weights(T.nn.Linear(4, 1))
    criterion = T.nn.BCEWithLogitsLoss()
    optimizer = T.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3, nesterov=True)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        T.nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    order = (k for _ in range(100) for k in s.order(60))
    loader = T.utils.data.DataLoader(data, batch_size=16, sampler=order)
    for (x, y), _ in zip(loader, range(N_STEPS)):
        yield step(x, y)


@program
def classifier_with_epochs(T, s):
    nn = T.nn
    x = s.numbers(45, 5)
    data = T.utils.data.TensorDataset(x, (x[:, 0] * 2 + x[:, 1]).abs().long().clamp(max=3))
    model = s.weights(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)))
    optimizer = T.optim.Adam(model.parameters(), lr=1e-2)
    schedule = T.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm_type="inf")
        optimizer.step()
        return loss.item()

    for _ in range(10):
        batches = T.utils.data.BatchSampler(s.order(45), 9, drop_last=True)
        for x, y in T.utils.data.DataLoader(data, batch_sampler=batches):
            yield step(x, y)
        schedule.step()


@program
def groups_and_a_late_one(T, s):
    nn = T.nn
    x, y = s.numbers(32, 4), s.numbers(32, 2)
    body, head = s.weights(nn.Linear(4, 8)), s.weights(nn.Linear(8, 2))
    scale = s.parameter(8, scale=0.5)
    groups = [{"params": head.parameters(), "lr": 0.02}, {"params": (p for p in [body.weight]), "weight_decay": 0.1}]
    optimizer = T.optim.AdamW(groups, lr=0.01)

    @s.compile
    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.smooth_l1_loss(head(nn.functional.gelu(body(x)) * scale), y)
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        if k == 20:
            optimizer.add_param_group({"params": iter([body.bias, scale]), "lr": 0.05})
        if k == 35:
            groups[0]["lr"] /= 10
        yield step(x, y)


@program
def batch_norm_with_validation(T, s):
    nn = T.nn
    x, y = s.numbers(48, 6), s.numbers(48, 1)
    model = s.weights(
        nn.Sequential(nn.Linear(6, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.0), nn.Linear(12, 1))
    )
    optimizer = T.optim.RMSprop(model.parameters(), lr=5e-3, alpha=0.9, momentum=0.5, centered=True)

    @s.compile
    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        if k % 10 == 9:
            model.eval()
            with T.no_grad():
                yield ((model(x) - y) ** 2).mean()
            model.train()
        else:
            yield step(x[k % 4 :: 4], y[k % 4 :: 4])


class Residual:
    """Made for either library: a block with a layer norm, and a skip around it."""

    def __new__(cls, T, width):
        class Block(T.nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = T.nn.LayerNorm(width)
                self.layers = T.nn.ModuleList(T.nn.Linear(width, width) for _ in range(2))

            def forward(self, x):
                h = self.norm(x)
                for layer in self.layers:
                    h = T.nn.functional.gelu(layer(h))
                return x + h

        return Block()


@program
def layer_norm_with_warm_up(T, s):
    x, y = s.numbers(32, 8), s.numbers(32, 8)
    model = s.weights(T.nn.Sequential(*(Residual(T, 8) for _ in range(2))))
    optimizer = T.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = T.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 10))

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        total = T.nn.utils.get_total_norm(p.grad for p in model.parameters())
        T.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, total)
        optimizer.step()
        return loss + 0 * total

    for _ in range(N_STEPS):
        yield step(x, y)
        schedule.step()


@program
def bag_of_words(T, s):
    nn = T.nn
    words, label = s.integers(20, 40, 6), s.integers(3, 40)
    embedding, head = s.weights(nn.Embedding(20, 8, padding_idx=0)), s.weights(nn.Linear(8, 3))
    model = nn.ModuleDict({"embedding": embedding, "head": head})
    optimizer = T.optim.Adagrad(model.parameters(), lr=0.1)

    @s.compile
    def step(words, label):
        found = (words != 0).unsqueeze(-1)
        mean = (model["embedding"](words) * found).sum(1) / found.sum(1).clamp(min=1)
        loss = nn.functional.cross_entropy(model["head"](mean), label)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        part = slice(k % 5 * 8, k % 5 * 8 + 8)
        yield step(words[part], label[part])


@program
def matrix_factorisation(T, s):
    nn = T.nn
    users, items, ratings = s.integers(12, 80), s.integers(9, 80), s.numbers(80)
    tables = nn.ModuleList([nn.Embedding(12, 4), nn.Embedding(9, 4), nn.Embedding(12, 1), nn.Embedding(9, 1)])
    of_user, of_item, user_bias, item_bias = s.weights(tables)
    optimizer = T.optim.SGD(tables.parameters(), lr=0.5, momentum=0.5)

    @s.compile
    def step(user, item, rating):
        predicted = (of_user(user) * of_item(item)).sum(-1) + user_bias(user).squeeze() + item_bias(item).squeeze()
        loss = ((predicted - rating) ** 2).mean() + 1e-3 * sum(p.pow(2).sum() for p in tables.parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        yield step(users[k % 4 :: 4], items[k % 4 :: 4], ratings[k % 4 :: 4])


@program
def gradient_accumulation(T, s):
    nn = T.nn
    x, y = s.numbers(4, 8, 5), s.numbers(4, 8, 2)
    model = s.weights(nn.Sequential(nn.Linear(5, 10), nn.SiLU(), nn.Linear(10, 2)))
    optimizer = T.optim.Adam(model.parameters(), lr=0.02, amsgrad=True)

    @s.compile
    def micro_step(x, y):
        loss = nn.functional.l1_loss(model(x), y) / 4
        loss.backward()
        return loss

    optimizer.zero_grad()
    for k in range(N_STEPS):
        yield micro_step(x[k % 4], y[k % 4])
        if k % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()


@program
def freezing_and_thawing(T, s):
    nn = T.nn
    x, y = s.numbers(32, 4), s.integers(3, 32)
    model = s.weights(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)))
    for p in model[0].parameters():
        p.requires_grad = False
    optimizer = T.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1, momentum=0.9)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(nn.functional.log_softmax(model(x), dim=1), y)
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        if k == 25:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})
        yield step(x, y)


@program
def early_stopping(T, s):
    nn = T.nn
    x, y, held_x, held_y = s.numbers(16, 6), s.numbers(16, 1), s.numbers(16, 6), s.numbers(16, 1)
    model = s.weights(nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 1)))
    optimizer = T.optim.Adam(model.parameters(), lr=0.05)
    plateau = T.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
    best, kept, waited = float("inf"), None, 0

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    @s.compile
    def validate(x, y):
        with T.no_grad():
            return nn.functional.huber_loss(model(x), y)

    for _ in range(N_STEPS):
        step(x, y)
        loss = validate(held_x, held_y).item()
        plateau.step(loss)
        if loss < best:
            best, kept, waited = loss, copy.deepcopy(model.state_dict()), 0
        elif (waited := waited + 1) > 4:
            model.load_state_dict(kept)
            waited = 0
        yield loss


@program
def several_tasks(T, s):
    """A trunk with a head per task, whose losses go backward one after the other."""
    nn = T.nn
    x, number, kind = s.numbers(24, 5), s.numbers(24, 1), s.integers(4, 24)
    trunk, heads = s.weights(nn.Linear(5, 12)), nn.ModuleDict()
    heads.update((name, s.weights(nn.Linear(12, size))) for name, size in (("number", 1), ("kind", 4)))
    optimizer = T.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.05, momentum=0.9, dampening=0.1)
    schedule = T.optim.lr_scheduler.MultiStepLR(optimizer, (k for k in (20, 40)), gamma=0.3)

    @s.compile
    def step(x, number, kind):
        shared = trunk(x).tanh()
        first = nn.functional.mse_loss(heads["number"](shared), number)
        second = nn.functional.cross_entropy(heads["kind"](shared), kind)
        optimizer.zero_grad()
        first.backward(retain_graph=True)
        (0.5 * second).backward()
        optimizer.step()
        return first + second

    for _ in range(N_STEPS):
        yield step(x, number, kind)
        schedule.step()


@program
def sparse_and_positive_weights(T, s):
    """Proximal and projected steps through .data."""
    x, y = s.numbers(40, 10), s.numbers(40, 3).abs()
    lasso, positive = s.weights(T.nn.Linear(10, 3)), s.parameter(10, 3, scale=0.3)
    positive.data.abs_()
    optimizer = T.optim.SGD([{"params": lasso.parameters()}, {"params": positive}], lr=0.05)
    schedule = T.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)

    @s.compile
    def step(x, y):
        loss = (lasso(x) + x @ positive - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        size = lasso.weight.data.abs() - 0.002
        lasso.weight.data.copy_(lasso.weight.data.sign() * size.clamp(min=0))
        positive.data.clamp_(min=0)
        return loss

    for _ in range(N_STEPS):
        yield step(x, y)
        schedule.step()


@program
def two_phases_of_a_rate(T, s):
    nn = T.nn
    x, y = s.numbers(20, 3), s.numbers(20, 3)
    model = s.weights(
        nn.Sequential(nn.Linear(3, 9), nn.Softplus(), nn.Unflatten(1, (3, 3)), nn.Flatten(), nn.Linear(9, 3))
    )
    optimizer = T.optim.Adam(model.named_parameters(), lr=0.02, weight_decay=1e-2)
    rise = T.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=10)
    fall = T.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.97)

    @s.compile
    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y, reduction="sum") / len(x)
            loss.backward()
            return loss

        return optimizer.step(closure)

    for _ in range(N_STEPS):
        yield step(x, y)
        rise.step()
        fall.step()
