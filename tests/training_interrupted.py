"""Training that is broken off, continued, copied, and looked at from elsewhere. Not a test."""

import copy
import io
import threading

from training_programs import N_STEPS, program


def network(T, s):
    nn = T.nn
    return s.weights(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))


def step_of(T, s, model, optimizer):
    """A compiled step of least squares, as anybody writes it."""

    @s.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = T.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


@program
def checkpoint_and_resume(T, s):
    x, y = s.numbers(16, 4), s.numbers(16, 2)
    model, file = network(T, s), None
    for start in range(0, N_STEPS, 10):
        optimizer = T.optim.Adam(model.parameters(), lr=0.02)
        schedule = T.optim.lr_scheduler.StepLR(optimizer, 8, gamma=0.7)
        if file:
            state = T.load(file)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            schedule.load_state_dict(state["schedule"])
            assert state["at"] == start
        step = step_of(T, s, model, optimizer)
        for _ in range(10):
            yield step(x, y)
            schedule.step()
        states = {"model": model, "optimizer": optimizer, "schedule": schedule}
        file = io.BytesIO()
        T.save({**{name: part.state_dict() for name, part in states.items()}, "at": start + 10}, file)
        file.seek(0)
        with T.no_grad():
            for p in model.parameters():
                p.zero_()
    model.load_state_dict(T.load(file)["model"])


@program
def back_to_the_last_good_state(T, s):
    """A rate too high makes the loss jump; the states before it are loaded again, and the rate is halved."""
    x, y = s.numbers(16, 4), s.numbers(16, 2)
    model = network(T, s)
    optimizer = T.optim.SGD(model.parameters(), lr=3.0, momentum=0.9)
    step, least, good = step_of(T, s, model, optimizer), float("inf"), None
    for _ in range(N_STEPS):
        loss = step(x, y).item()
        if loss > 2 * least:
            model.load_state_dict(good[0])
            optimizer.load_state_dict(good[1])
            optimizer.param_groups[0]["lr"] *= 0.5
            good[1]["param_groups"][0]["lr"] *= 0.5
        elif loss < least:
            least = loss
            good = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        yield loss


@program
def exceptions_in_the_middle(T, s):
    """Batches that a check refuses: before the backward, between backward and update, and in a layer."""
    nn = T.nn
    x, y = s.numbers(16, 4), s.numbers(16, 2)

    class Checked(nn.Module):
        def forward(self, x):
            if refused == "layer":
                raise ValueError("not this one")
            return x * 2

    refused = None
    model = nn.Sequential(s.weights(nn.Linear(4, 8)), Checked(), s.weights(nn.Linear(8, 2)))
    optimizer = T.optim.Adam(model.parameters(), lr=0.02)

    @s.compile
    def step(x, y):
        loss = nn.functional.mse_loss(model(x).tanh(), y)
        if refused == "loss":
            raise RuntimeError(f"loss is {loss.item()}")
        optimizer.zero_grad()
        loss.backward()
        if refused == "update":
            raise ArithmeticError("gradients are there, the update is not")
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        refused = {3: "layer", 5: "loss", 7: "update"}.get(k % 12)
        try:
            loss = step(x, y)
        except (ValueError, RuntimeError, ArithmeticError) as error:
            seen = float(str(error).split()[-1]) if refused == "loss" else 1.0
            loss = seen + sum(p.grad.abs().sum() for p in model.parameters())
        yield loss


@program
def interrupted_by_the_user(T, s):
    """Ctrl-C ends an epoch, wherever it comes; what was trained is evaluated and trained on."""
    x, y = s.numbers(16, 4), s.numbers(16, 2)
    model, left = network(T, s), 0
    optimizer = T.optim.RMSprop(model.parameters(), lr=5e-3)

    def pressed(module, args, out):
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    model[1].register_forward_hook(pressed)
    step, done = step_of(T, s, model, optimizer), 0
    while done < N_STEPS:
        left = 8
        try:
            while done < N_STEPS - 1:
                yield step(x, y)
                done += 1
        except KeyboardInterrupt:
            left = 0
        with T.no_grad():
            yield T.nn.functional.mse_loss(model(x), y)
        done += 1


@program
def copies_made_half_way(T, s):
    """Snapshots: copies of the model, of which the last goes on with the copied optimizer's state."""
    x, y = s.numbers(16, 4), s.numbers(16, 2)
    model = network(T, s)
    optimizer = T.optim.Adam(model.parameters(), lr=0.02)
    step, snapshots = step_of(T, s, model, optimizer), []
    for k in range(N_STEPS):
        loss = step(x, y)
        if k in (15, 30):
            snapshots.append(copy.deepcopy(model))
            state = copy.deepcopy(optimizer.state_dict())
        if k == 35:
            model = copy.deepcopy(snapshots[-1])
            optimizer = T.optim.Adam(model.parameters(), lr=0.02)
            optimizer.load_state_dict(state)
            step = step_of(T, s, model, optimizer)
            s.trained += model.parameters()
        if k % 10 == 9:
            with T.no_grad():
                loss = loss + T.stack([snapshot(x) for snapshot in [model, *snapshots]]).var(dim=0, correction=0).sum()
        yield loss


@program
def new_head_half_way(T, s):
    """Fine-tuning: the trunk is frozen, and another head is put in its place."""
    nn = T.nn
    x, y, label = s.numbers(16, 4), s.numbers(16, 2), s.integers(5, 16)
    model = network(T, s)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion, wanted = nn.MSELoss(), y

    @s.compile
    def step(x, wanted):
        optimizer.zero_grad()
        loss = criterion(model(x), wanted)
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        if k == 20:
            model.requires_grad_(False)
            model[2] = s.weights(nn.Linear(8, 5))
            criterion, wanted = nn.CrossEntropyLoss(), label
            optimizer = T.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
        if k == 35:
            model.requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 1e-3})
        yield step(x, wanted)


@program
def two_models_in_one_step(T, s):
    """Each learns from what the other is sure of."""
    nn = T.nn
    x, y = s.numbers(16, 4), s.integers(2, 16)
    pair = [network(T, s), network(T, s)]
    optimizers = [T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in pair]

    @s.compile
    def step(x, y):
        scores = [model(x) for model in pair]
        total = 0.0
        for own, other, optimizer in zip(scores, reversed(scores), optimizers):
            hints = nn.functional.softmax(other.detach() / 2, dim=1)
            loss = nn.functional.cross_entropy(own, y)
            loss = loss + nn.functional.kl_div(nn.functional.log_softmax(own / 2, dim=1), hints, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            total = total + loss.detach()
        for optimizer in optimizers:
            optimizer.step()
        return total

    for _ in range(N_STEPS):
        yield step(x, y)


@program
def folds_in_turn(T, s):
    """Cross-validation: one step, as a function of the model, is used for all of them."""
    x, y = s.numbers(15, 4), s.numbers(15, 2)
    folds = [network(T, s) for _ in range(3)]
    optimizers = [T.optim.Adam(model.parameters(), lr=0.02) for model in folds]
    held = [[k for k in range(15) if k % 3 == fold] for fold in range(3)]
    used = [[k for k in range(15) if k % 3 != fold] for fold in range(3)]

    @s.compile
    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        fold = k % 3
        loss = step(folds[fold], optimizers[fold], x[used[fold]], y[used[fold]])
        with T.no_grad():
            yield loss + ((folds[fold](x[held[fold]]) - y[held[fold]]) ** 2).mean()


@program
def evaluated_in_another_thread(T, s):
    """A thread judges copies of the model while the training goes on, and reads the model itself between epochs."""
    x, y = s.numbers(16, 4), s.numbers(16, 2)
    model = network(T, s)
    step = step_of(T, s, model, T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    found = []

    @s.compile
    def evaluate(judged):
        with T.no_grad():
            return ((judged(x) - y) ** 2).mean().item()

    def judge(judged):
        found.append(evaluate(judged))

    for k in range(N_STEPS):
        if k % 10 == 4:
            thread = threading.Thread(target=judge, args=(copy.deepcopy(model),))
            thread.start()
        loss = step(x, y)
        if k % 10 == 8:
            thread.join()
            between = threading.Thread(target=judge, args=(model,))
            between.start()
            between.join()
            loss = loss + found[-1] - found[-2]
        yield loss
