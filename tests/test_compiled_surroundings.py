"""What a training step has around it and in between: decisions on values, prints, NumPy, files, failures, counters,
batches of other sizes. The same with and without compile, bit for bit.
"""

import contextlib
import copy
import io
import random

import numpy as np
from compiled_twin import error_of, twin

import weft
from weft import nn, optim, randn
from weft.nn import functional as F

counter = 0


def net(n_in=3, n_out=2):
    return nn.Sequential(nn.Linear(n_in, 5), nn.Tanh(), nn.Linear(5, n_out))


def params(module):
    return list(module.parameters())


class Trainer:
    """A model, an optimizer and a compiled step; `within` runs between the loss and its backward."""

    def __init__(self, compile, within=None, make=None):
        self.model = net()
        self.optimizer = make(self.model.parameters()) if make else optim.SGD(self.model.parameters(), lr=0.1)
        self.within = within
        self.step = compile(self._step)

    def _step(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        if self.within is not None:
            self.within(loss)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    @property
    def shown(self):
        return params(self.model)


def batch(n_rows=4):
    return randn(n_rows, 3), randn(n_rows, 2)


# --- decisions --------------------------------------------------------------------------------------------------------
@twin
def test_stopping_early(compile):
    trainer = Trainer(compile)
    x, y = batch()
    best, waited, state = float("inf"), 0, None
    for k in range(30):
        loss = trainer.step(x, y).item()
        if k == 12:
            trainer.optimizer.param_groups[0]["lr"] = 3.0
        if loss < best - 1e-3:
            best, waited, state = loss, 0, copy.deepcopy(trainer.model.state_dict())
        else:
            waited += 1
        if waited > 2:
            break
    trainer.model.load_state_dict(state)
    yield k, best, trainer.step(x, y), trainer.shown


@twin
def test_steps_that_are_not_finite_are_left_out(compile):
    model, skipped = net(), [0]
    optimizer = optim.Adam(model.parameters(), lr=0.05)

    @compile
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        if not weft.isfinite(loss):
            skipped[0] += 1
            return loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(9):
        x, y = batch()
        yield step(x / 0.0 * 0.0 if k in (0, 5) else x, y), params(model), skipped[0]


@twin
def test_scaled_loss(compile):
    """The gradients are looked at, and the scale is changed, as where half precision is used."""
    model, scale = net(), [2.0**20]
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        (loss * scale[0]).backward()
        if all(weft.isfinite(p.grad).all() for p in model.parameters()):
            for p in model.parameters():
                p.grad.mul_(1 / scale[0])
            optimizer.step()
        else:
            scale[0] /= 4
        return loss

    for k in range(9):
        x, y = batch()
        yield step(x * 3e18 if k == 4 else x, y), params(model), scale[0]


@twin
def test_chance_of_the_user_decides(compile):
    random.seed(3)
    trainer = Trainer(compile, lambda loss: random.random() < 0.3 and loss.item())
    rng = np.random.default_rng(0)
    model = trainer.model

    @compile
    def noisy(x):
        keep = rng.random() < 0.5
        return model(x) * 2 if keep else model(x) + float(rng.normal())

    for _ in range(10):
        yield trainer.step(*batch()), trainer.shown, noisy(randn(2, 3))


@twin
def test_teacher_forcing(compile):
    cell = nn.Linear(4, 2)
    optimizer = optim.SGD(cell.parameters(), lr=0.1)
    rng = random.Random(1)

    @compile
    def step(x, y):
        state, loss = y[:, 0] * 0, 0
        for k in range(3):
            state = cell(weft.cat([x[:, k], state], 1)).tanh()
            loss = loss + F.mse_loss(state, y[:, k])
            if rng.random() < 0.5:
                state = y[:, k]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(12):
        yield step(randn(4, 3, 2), randn(4, 3, 2)), params(cell)


# --- looking at values ------------------------------------------------------------------------------------------------
@twin
def test_printing_inside(compile):
    trainer = Trainer(compile, lambda loss: print("loss", loss, f"{loss.item():.6f}", loss.shape))
    for _ in range(7):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            loss = trainer.step(*batch())
            print(loss, trainer.model[0].bias.grad)
        yield loss, trainer.shown, text.getvalue()


@twin
def test_numpy_inside(compile):
    seen = []
    trainer = Trainer(compile, lambda loss: seen.append(float(np.log1p(loss.detach().numpy()))))

    @compile
    def statistics(x):
        y = trainer.model(x)
        spread = np.percentile(y.detach().numpy(), [25, 75])
        return (y - weft.from_numpy(spread.astype(np.float32)).mean()).abs().mean()

    for _ in range(7):
        yield trainer.step(*batch()), trainer.shown, list(seen)
        found = statistics(randn(4, 3))
        found.backward()
        yield found, trainer.shown


@twin
def test_losses_are_kept(compile):
    """Appending losses without item(), or with their graph, as many first programs do."""
    trainer = Trainer(compile)
    plain, tracked = [], []
    for _ in range(7):
        loss = trainer.step(*batch())
        plain.append(loss.detach())
        tracked.append(loss)
        yield plain, tracked, sum(tracked), weft.stack(plain).mean()


@twin
def test_running_statistics_of_the_user(compile):
    trainer = Trainer(compile)
    mean, square, count = weft.zeros(3), weft.zeros(3), weft.zeros((), dtype=weft.int64)

    @compile
    def standardized(x):
        with weft.no_grad():
            count.add_(1)
            mean.add_((x.mean(0) - mean) / count)
            square.lerp_(x.square().mean(0), 0.1)
        return (x - mean) / (square + 1e-3).sqrt()

    for _ in range(7):
        x, y = batch()
        yield trainer.step(standardized(x), y), trainer.shown, mean, square, count


@twin
def test_confusion_matrix(compile):
    model, table = net(), weft.zeros(2, 2, dtype=weft.int64)

    @compile
    def count(x, labels):
        with weft.no_grad():
            guesses = model(x).argmax(1)
            for a, b in zip(labels.tolist(), guesses.tolist()):
                table[a, b] += 1
        return (guesses == labels).float().mean()

    for k in range(6):
        yield count(randn(5, 3), weft.tensor(np.random.default_rng(k).integers(0, 2, 5))), table


# --- failures ---------------------------------------------------------------------------------------------------------
@twin
def test_a_function_that_fails_sometimes(compile):
    def within(loss):
        if calls[0] in (3, 5, 9):
            raise ValueError("no more data")

    trainer, calls = Trainer(compile, within, lambda p: optim.Adam(p, lr=0.05)), [0]
    for _ in range(12):
        calls[0] += 1
        yield error_of(trainer.step, *batch()), trainer.shown


@twin
def test_failing_after_the_backward(compile):
    model, calls = net(), [0]
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @compile
    def step(x, y):
        calls[0] += 1
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if calls[0] in (2, 6):
            raise KeyError("after backward")
        optimizer.step()
        if calls[0] in (4, 8):
            raise KeyError("after step")
        return loss

    for _ in range(10):
        yield error_of(step, *batch()), params(model), [s.get("momentum_buffer") for s in optimizer.state.values()]


@twin
def test_wrong_shapes_in_between(compile):
    trainer = Trainer(compile)
    for k in range(9):
        x, y = batch()
        yield error_of(trainer.step, x[:, :2] if k in (0, 4) else x, y), trainer.shown


@twin
def test_a_failing_assertion_is_caught_inside(compile):
    trainer = Trainer(compile)

    @compile
    def step(x, y):
        try:
            assert x.abs().max() < 2.0, "an outlier"
        except AssertionError:
            x = x.clamp(-2.0, 2.0)
        return trainer.step(x, y)

    for _ in range(9):
        yield step(*batch()), trainer.shown


# --- files and copies -------------------------------------------------------------------------------------------------
@twin
def test_saving_and_loading_in_between(compile):
    trainer = Trainer(compile, make=lambda p: optim.Adam(p, lr=0.05))
    for k in range(12):
        if k == 4:
            file = io.BytesIO()
            weft.save({"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}, file)
        if k == 8:
            file.seek(0)
            saved = weft.load(file)
            trainer.model.load_state_dict(saved["model"])
            trainer.optimizer.load_state_dict(saved["optimizer"])
        yield trainer.step(*batch()), trainer.shown, trainer.optimizer.state_dict()["state"]


@twin
def test_a_state_dict_is_looked_at_while_training_goes_on(compile):
    trainer = Trainer(compile)
    state, copied = trainer.model.state_dict(), copy.deepcopy(trainer.model.state_dict())
    for k in range(7):
        yield trainer.step(*batch()), state, copied
        if k == 3:
            trainer.model.load_state_dict(copied)


@twin
def test_a_trained_model_is_copied(compile):
    trainer = Trainer(compile)
    for _ in range(4):
        trainer.step(*batch())
    twin_model = copy.deepcopy(trainer.model)
    run = compile(twin_model)
    for _ in range(6):
        yield trainer.step(*batch()), trainer.shown, run(randn(2, 3)), params(twin_model)


@twin
def test_parameters_as_one_vector(compile):
    trainer = Trainer(compile)
    for k in range(9):
        yield trainer.step(*batch()), trainer.shown
        if k % 3 == 2:
            vector = nn.utils.parameters_to_vector(trainer.model.parameters())
            nn.utils.vector_to_parameters(vector.detach() * 0.5, trainer.model.parameters())
            yield vector


# --- batches and counters ---------------------------------------------------------------------------------------------
@twin
def test_batches_of_other_sizes(compile):
    trainer = Trainer(compile, make=lambda p: optim.SGD(p, lr=0.1, momentum=0.9))
    for n_rows in (4, 4, 4, 4, 2, 4, 4, 1, 4, 2, 2, 2, 2, 4, 4):
        yield trainer.step(*batch(n_rows)), trainer.shown


@twin
def test_epochs_of_a_loader(compile):
    weft.manual_seed(5)
    trainer = Trainer(compile)
    data = weft.utils.data.TensorDataset(randn(11, 3), randn(11, 2))
    loader = weft.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    for _ in range(4):
        yield [trainer.step(x, y) for x, y in loader], trainer.shown


@twin
def test_global_counter(compile):
    global counter
    counter, model = 0, net()

    @compile
    def step(x, y):
        global counter
        counter += 1
        loss = F.mse_loss(model(x), y) * (1.0 + 0.1 * counter)
        model.zero_grad()
        loss.backward()
        with weft.no_grad():
            for p in model.parameters():
                p -= p.grad / counter
        return loss

    for _ in range(8):
        yield step(*batch()), counter, params(model)


@twin
def test_warming_up_then_training(compile):
    """The step counts itself, and does more from a certain call on."""

    class Step:
        def __init__(self):
            self.model, self.number, self.history = net(), 0, []
            self.optimizer = optim.AdamW(self.model.parameters(), lr=0.05)

        def __call__(self, x, y):
            self.number += 1
            loss = F.mse_loss(self.model(x), y)
            if self.number > 4:
                loss = loss + 0.01 * sum(p.abs().sum() for p in self.model.parameters())
            self.optimizer.zero_grad()
            loss.backward()
            if self.number % 3 == 0:
                self.history.append(self.model[0].weight.grad.norm())
            self.optimizer.step()
            self.last = loss.detach()
            return loss

    run = Step()
    step = compile(run)
    for _ in range(12):
        yield step(*batch()), params(run.model), list(run.history), run.last


@twin
def test_arguments_are_changed_in_place(compile):
    trainer = Trainer(compile)

    @compile
    def prepare(x, noise):
        x -= x.mean(0)
        x /= x.std(0) + 1e-5
        x.add_(noise, alpha=0.1)

    for _ in range(7):
        x, y = batch()
        prepare(x, randn(4, 3))
        yield x, trainer.step(x, y), trainer.shown


@twin
def test_one_buffer_is_filled_for_every_call(compile):
    trainer = Trainer(compile)
    x, y = weft.zeros(4, 3), weft.zeros(4, 2)
    for _ in range(8):
        x.copy_(randn(4, 3))
        y[:] = randn(4, 2)
        yield trainer.step(x, y), trainer.shown


@twin
def test_memory_of_earlier_samples(compile):
    """A ring of samples that is written at a moving place and read at random ones."""
    ring, place, model = weft.zeros(6, 3), [0], net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, picked):
        with weft.no_grad():
            ring[place[0] % 6] = x
        place[0] += 1
        loss = model(ring[picked]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(10):
        yield step(randn(3), weft.tensor(np.random.default_rng(k).integers(0, 6, 4))), ring, params(model)


@twin
def test_compiled_parts_between_eager_ones(compile):
    body, head = net(3, 4), nn.Linear(4, 2)
    first, loss_of = compile(body), compile(F.mse_loss)
    update = compile(lambda rate: [p.sub_(rate * p.grad) for p in (*params(body), *params(head))])
    for k in range(8):
        x, y = batch()
        loss = loss_of(head(first(x).relu()), y)
        loss.backward()
        with weft.no_grad():
            update(0.1 if k < 5 else 0.01)
        yield loss, params(body), params(head)
        for p in (*params(body), *params(head)):
            p.grad = None if k % 2 else p.grad.zero_()


@twin
def test_interrupted_by_another_compiled_step(compile):
    one, other = Trainer(compile), Trainer(compile)
    other.model[0].weight = one.model[0].weight
    for _ in range(8):
        x, y = batch()
        yield one.step(x, y), other.step(x, y), one.shown, other.shown
