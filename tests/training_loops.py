"""What loops do around their steps: evaluate, log, batch, schedule, replay what was seen. Not a test."""

from training_programs import N_STEPS, program


@program
def evaluation_with_accuracy(T, s):
    nn = T.nn
    x = s.numbers(50, 4)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    model = s.weights(nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Dropout(0.0), nn.Linear(12, 3)))
    optimizer = T.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    @s.compile
    def correct(x, y):
        with T.no_grad():
            return (model(x).argmax(dim=1) == y).sum().item()

    for _ in range(N_STEPS // 10):
        model.train()
        for k in range(9):
            yield step(x[k * 4 : k * 4 + 4], y[k * 4 : k * 4 + 4])
        model.eval()
        hits = sum(correct(x[k : k + 7], y[k : k + 7]) for k in range(36, 50, 7))
        yield 1 - hits / 14


@program
def ragged_last_batch(T, s):
    x, y = s.numbers(23, 4), s.numbers(23, 1)
    loader = T.utils.data.DataLoader(T.utils.data.TensorDataset(x, y), batch_size=5)
    model = s.weights(T.nn.Sequential(T.nn.Linear(4, 9), T.nn.Sigmoid(), T.nn.Linear(9, 1)))
    optimizer = T.optim.Adam(model.parameters(), lr=0.01)

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(N_STEPS // 5):
        running = 0.0
        for k, (xb, yb) in enumerate(loader):
            running += step(xb, yb).item() * len(xb)
            yield running / (5 * k + len(xb))


@program
def dictionary_batches(T, s):
    nn = T.nn
    numbers, kinds, label = s.numbers(24, 3), s.integers(5, 24), s.integers(2, 24)
    items = [{"numbers": numbers[k], "kind": kinds[k], "label": label[k]} for k in range(24)]
    loader = T.utils.data.DataLoader(items, batch_size=5)
    table, layer, head = s.weights(nn.Embedding(5, 4)), s.weights(nn.Linear(3, 4)), s.weights(nn.Linear(8, 2))
    model = nn.ModuleDict({"kind": table, "numbers": layer, "head": head})
    optimizer = T.optim.AdamW(model.parameters(), lr=0.02)

    @s.compile
    def step(batch):
        parts = [model[name](batch[name]) for name in ("kind", "numbers")]
        out = {"logits": head(T.cat(parts, dim=1).relu())}
        out["loss"] = nn.functional.cross_entropy(out["logits"], batch["label"])
        optimizer.zero_grad()
        out["loss"].backward()
        optimizer.step()
        return out

    for _ in range(N_STEPS // 5):
        for batch in loader:
            out = step({name: value.to("cpu") for name, value in batch.items()})
            yield out["loss"].item() + 0 * out["logits"].sum()


@program
def logging_every_few_steps(T, s):
    nn = T.nn
    x, y = s.numbers(20, 4), s.numbers(20, 2)
    model = s.weights(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)
    lines = []

    @s.compile
    def step(x, y, verbose):
        out = model(x)
        loss = nn.functional.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        if verbose:
            norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
            lines.append(f"loss {loss.item():.4f} gradient {norm:.4f} output {out.abs().max().item():.4f}")
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        loss = step(x[k % 2 :: 2], y[k % 2 :: 2], k % 10 == 9)
        yield loss if k % 10 != 9 else loss + sum(float(word) for word in lines[-1].split()[1::2])


@program
def schedulers_of_every_kind(T, s):
    schedulers = T.optim.lr_scheduler
    x, y = s.numbers(20, 3), s.numbers(20, 1)
    model = s.weights(T.nn.Linear(3, 1))
    kinds = [
        lambda o: schedulers.StepLR(o, step_size=2, gamma=0.5),
        lambda o: schedulers.MultiStepLR(o, milestones=[2, 5], gamma=0.3),
        lambda o: schedulers.ExponentialLR(o, gamma=0.8),
        lambda o: schedulers.LinearLR(o, start_factor=0.2, total_iters=4),
        lambda o: schedulers.CosineAnnealingLR(o, T_max=6, eta_min=1e-3),
        lambda o: schedulers.LambdaLR(o, lr_lambda=[lambda k: 0.9**k, lambda k: 1 / (k + 1)]),
        lambda o: schedulers.ReduceLROnPlateau(o, factor=0.5, patience=1, threshold=0.05),
    ]

    def step_of(optimizer):
        @s.compile
        def step(x, y):
            optimizer.zero_grad()
            loss = T.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    for k in range(N_STEPS):
        if k % 7 == 0:
            groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.02}]
            optimizer = T.optim.SGD(groups, lr=0.05, momentum=0.5)
            schedule, step = kinds[k // 7 % len(kinds)](optimizer), step_of(optimizer)
        loss = step(x, y)
        schedule.step(*([loss.item()] if k // 7 == 6 else []))
        yield loss + 0 * optimizer.param_groups[1]["lr"]


@program
def replay_from_a_ring_buffer(T, s):
    """Learning of action values: what happened is written over the oldest, in place, and drawn again."""
    nn, size = T.nn, 16
    states, actions, rewards = T.zeros(size, 3), T.zeros(size, dtype=T.long), T.zeros(size)
    value, target = s.weights(nn.Linear(3, 2)), nn.Linear(3, 2)
    target.load_state_dict(value.state_dict())
    optimizer = T.optim.Adam(value.parameters(), lr=0.02)

    @s.compile
    def remember(at, state, action, reward):
        states[at] = state
        actions[at] = action
        rewards[at] = reward

    @s.compile
    def learn(chosen):
        with T.no_grad():
            wanted = rewards[chosen] + 0.9 * target(states[(chosen + 1) % size]).max(dim=1).values
        found = value(states[chosen]).gather(1, actions[chosen][:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with T.no_grad():
            for slow, fast in zip(target.parameters(), value.parameters()):
                slow.lerp_(fast, 0.1)
        return loss

    for k in range(N_STEPS):
        state = s.numbers(3)
        remember(k % size, state, k % 2, state.sum().item())
        yield learn(s.integers(min(k + 1, size), 6))


@program
def one_model_in_two_functions(T, s):
    """A network that denoises and classifies: each task has a compiled step of its own."""
    nn = T.nn
    x, y = s.numbers(24, 6), s.integers(3, 24)
    trunk, back, head = s.weights(nn.Linear(6, 10)), s.weights(nn.Linear(10, 6)), s.weights(nn.Linear(10, 3))
    optimizer = T.optim.Adam([*trunk.parameters(), *back.parameters(), *head.parameters()], lr=0.01)

    @s.compile
    def denoise(x, noise):
        loss = nn.functional.mse_loss(back(trunk(x + noise).tanh()), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    @s.compile
    def classify(x, y):
        loss = nn.functional.cross_entropy(head(trunk(x).tanh()), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        yield classify(x, y) if k % 3 else denoise(x, s.numbers(24, 6, scale=0.1))


@program
def straight_through_by_detaching(T, s):
    """Weights of two values: rounded forward, passed through backward."""
    x, y = s.numbers(20, 5), s.numbers(20, 2)
    first, second = s.parameter(5, 8, scale=0.5), s.parameter(8, 2, scale=0.5)
    optimizer = T.optim.SGD([first, second], lr=0.05, momentum=0.9)

    def signs(w):
        binary = w.sign() * w.abs().mean()
        return w + (binary - w).detach()

    @s.compile
    def step(x, y):
        hidden = (x @ signs(first)).relu()
        loss = T.nn.functional.mse_loss(hidden @ signs(second), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with T.no_grad():
            for w in (first, second):
                w.clamp_(-1, 1)
        return loss

    for _ in range(N_STEPS):
        yield step(x, y)
