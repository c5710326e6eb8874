"""Programs of statistics, physics and training as those write them who do neither for the sake of a library."""

import copy
import itertools

from .registry import idiom


def in_turn(s, count, *shape):
    return itertools.cycle([s.numbers(*shape) for _ in range(count)])


@idiom
def metropolis_chain(T, s):
    """A random walk for the mean and the spread of data."""
    data, noise = s.numbers(50), in_turn(s, 5, 2)
    limits = itertools.cycle([s.numbers(1).abs() for _ in range(3)])
    chain = [T.zeros(()), T.zeros(())]

    def log_density(mean, spread):
        return -0.5 * (((data - mean) / spread.exp()) ** 2).sum() - 50 * spread

    @s.compile
    def step(mean, spread, noise, limit):
        other_mean, other_spread = mean + 0.1 * noise[0], spread + 0.1 * noise[1]
        gain = log_density(other_mean, other_spread) - log_density(mean, spread)
        is_taken = limit[0].log() < gain
        return T.where(is_taken, other_mean, mean), T.where(is_taken, other_spread, spread), is_taken

    def call():
        chain[0], chain[1], is_taken = step(*chain, next(noise), next(limits))
        return [*chain, is_taken]

    return call


@idiom
def hamiltonian_chain(T, s):
    """Leapfrog steps, whose force is asked of autograd at a new leaf each time."""
    precision, momenta, place = T.tensor([[2.0, 0.3], [0.3, 1.0]]), in_turn(s, 3, 2), [s.numbers(2)]

    @s.compile
    def trajectory(q, p):
        for _ in range(3):
            q = q.detach().requires_grad_(True)
            p = p - 0.05 * T.autograd.grad(0.5 * q @ precision @ q, q)[0]
            q = (q + 0.1 * p).detach()
        return q, p

    def call():
        place[0], p = trajectory(place[0], next(momenta))
        return [place[0], p]

    return call


@idiom
def mixture_by_expectation(T, s):
    x, state = s.numbers(40, 2), [s.numbers(3, 2), T.zeros(3)]

    @s.compile
    def step(centres, weights):
        scores = weights - 0.5 * ((x[:, None, :] - centres[None]) ** 2).sum(-1)
        shares = T.softmax(scores, dim=1)
        counts = shares.sum(0)
        return (shares.t() @ x) / counts[:, None], (counts / counts.sum()).log(), T.logsumexp(scores, 1).mean()

    def call():
        state[0], state[1], likelihood = step(*state)
        return [*state, likelihood]

    return call


@idiom
def logistic_newton(T, s):
    x, y, state = s.numbers(30, 3), (s.numbers(30) > 0).float(), [T.zeros(3)]

    @s.compile
    def step(b):
        p = T.sigmoid(x @ b)
        curvature = x.t() @ ((p * (1 - p))[:, None] * x) + 1e-1 * T.eye(3)
        return b + T.linalg.solve(curvature, x.t() @ (y - p))

    def call():
        state[0] = step(state[0])
        return state[0]

    return call


@idiom
def planets(T, s):
    masses, state = s.numbers(5).abs() + 0.5, [s.numbers(5, 3), T.zeros(5, 3)]

    @s.compile
    def step(x, v, dt=0.01):
        apart = x[None, :, :] - x[:, None, :]
        squares = (apart**2).sum(-1) + 0.1
        v = v + dt * (masses[None, :, None] * apart * (squares**-1.5)[:, :, None]).sum(1)
        return x + dt * v, v, 0.5 * (masses * (v**2).sum(-1)).sum()

    def call():
        state[0], state[1], energy = step(*state)
        return [*state, energy]

    return call


@idiom
def magnet_in_two_colours(T, s):
    spins, draws = [T.where(s.numbers(8, 8) < 0, -1.0, 1.0)], in_turn(s, 3, 2, 8, 8)
    black = (T.arange(8)[:, None] + T.arange(8)[None]) % 2 == 0

    @s.compile
    def sweep(spins, draws):
        for colour, draw in ((black, draws[0]), (~black, draws[1])):
            around = spins.roll(1, 0) + spins.roll(-1, 0) + spins.roll(1, 1) + spins.roll(-1, 1)
            spins = T.where(colour & (draw.abs() < T.exp(-0.8 * spins * around)), -spins, spins)
        return spins, spins.mean()

    def call():
        spins[0], mean = sweep(spins[0], next(draws))
        return [spins[0], mean]

    return call


@idiom
def string_in_place(T, s):
    u, v = T.zeros(30), s.numbers(30)

    @s.compile
    def step():
        bend = T.zeros_like(u)
        bend[1:-1] = u[2:] - 2 * u[1:-1] + u[:-2]
        v.add_(bend, alpha=0.1)
        u.add_(v, alpha=0.1)
        u[0] = 0
        u[-1] = 0
        return (v * v).sum()

    return lambda: [step(), u, v]


@idiom
def batches_by_their_first_row(T, s):
    x, y = s.numbers(64, 4), s.numbers(64, 1)
    model = s.weights(T.nn.Linear(4, 1))
    optimizer, count = T.optim.SGD(model.parameters(), lr=0.01), itertools.count()

    @s.compile
    def step(k):
        loss = T.nn.functional.mse_loss(model(x[k : k + 16]), y[k : k + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(next(count) % 4 * 16)


@idiom
def gradients_over_four_batches(T, s):
    batches, targets, count = in_turn(s, 4, 8, 5), s.numbers(8, 2), itertools.count(1)
    model = s.weights(T.nn.Sequential(T.nn.Linear(5, 6), T.nn.SiLU(), T.nn.Linear(6, 2)))
    optimizer = T.optim.SGD(model.parameters(), lr=0.02)

    @s.compile
    def micro_step(x):
        loss = T.nn.functional.l1_loss(model(x), targets) / 4
        loss.backward()
        return loss.detach()

    def call():
        loss = micro_step(next(batches))
        if next(count) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return call


@idiom
def policy_with_an_entropy(T, s):
    observed, actions, returns = s.numbers(20, 4), s.integers(3, 20), in_turn(s, 3, 20)
    policy = s.weights(T.nn.Sequential(T.nn.Linear(4, 8), T.nn.Tanh(), T.nn.Linear(8, 3)))
    optimizer = T.optim.SGD(policy.parameters(), lr=0.01)

    @s.compile
    def update(returns):
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        chosen = T.log_softmax(policy(observed), -1).gather(1, actions[:, None]).squeeze(1)
        entropy = -(chosen.exp() * chosen).mean()
        loss = -(chosen * returns).mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        T.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        return T.tensor([loss.item(), entropy.item()])

    return lambda: update(next(returns))


@idiom
def values_with_a_slow_copy(T, s):
    quick = s.weights(T.nn.Sequential(T.nn.Linear(4, 8), T.nn.ReLU(), T.nn.Linear(8, 2)))
    slow, optimizer = copy.deepcopy(quick), T.optim.SGD(quick.parameters(), lr=0.01)
    before, after, actions, rewards = s.numbers(16, 4), in_turn(s, 3, 16, 4), s.integers(2, 16), s.numbers(16)

    @s.compile
    def step(after):
        with T.no_grad():
            wanted = rewards + 0.9 * slow(after).max(1).values
        loss = T.nn.functional.smooth_l1_loss(quick(before)[T.arange(16), actions], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with T.no_grad():
            for p, q in zip(slow.parameters(), quick.parameters()):
                p.mul_(0.99).add_(q, alpha=0.01)
        return loss

    return lambda: step(next(after))


@idiom
def latent_means_and_spreads(T, s):
    encoder, decoder = s.weights(T.nn.Linear(6, 4)), s.weights(T.nn.Linear(2, 6))
    optimizer = T.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    x, noise = in_turn(s, 3, 8, 6), s.numbers(8, 2)

    @s.compile
    def step(x):
        mean, spread = encoder(x).chunk(2, dim=1)
        found = decoder(mean + noise * (0.5 * spread).exp())
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum()
        loss = (T.nn.functional.mse_loss(found, x, reduction="sum") + divergence) / 8
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": T.tensor(loss.item()), "divergence": T.tensor(divergence.item())}

    return lambda: step(next(x))


@idiom
def weights_rounded_on_the_way(T, s):
    class Rounded(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return T.round(x * 4) / 4

        @staticmethod
        def backward(ctx, g):
            return g

    model, x = s.weights(T.nn.Linear(6, 6)), in_turn(s, 3, 8, 6)
    optimizer = T.optim.SGD(model.parameters(), lr=0.01)

    @s.compile
    def step(x):
        loss = (T.nn.functional.linear(x, Rounded.apply(model.weight), model.bias) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(next(x))


@idiom
def penalty_outside(T, s):
    """Only the model is compiled; the gradient of what it gives is part of the loss."""
    model, given = s.weights(T.nn.Sequential(T.nn.Linear(3, 8), T.nn.Tanh(), T.nn.Linear(8, 1))), in_turn(s, 3, 6, 3)
    optimizer, compiled = T.optim.SGD(model.parameters(), lr=0.01), s.compile(model)

    def call():
        x = next(given).clone().requires_grad_()
        found = compiled(x)
        (slope,) = T.autograd.grad(found.sum(), x, create_graph=True)
        loss = found.mean() + (slope.norm(dim=1) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return call


@idiom
def rows_of_another_shape(T, s):
    x = in_turn(s, 3, 3, 4)

    @s.compile
    def f(x):
        y = T.zeros(12)
        for k in range(3):
            y.view(3, 4)[k].add_(x[k] * 2)
        y.view(3, 4).t()[1].mul_(3)
        return y

    return lambda: f(next(x))


@idiom
def autoregression_over_windows(T, s):
    weights, series = s.parameter(3), s.numbers(40)
    optimizer = T.optim.SGD([weights], lr=0.01)

    @s.compile
    def step():
        past = series.unfold(0, 3, 1)[:-1]
        loss = ((past @ weights - series[3:]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return T.tensor(loss.item())

    return step
