"""Programs that ask for gradients of what they are given: samplers, equations, attacks, rules of one's own."""

import itertools
import math

from .registry import idiom


def in_turn(s, count, *shape):
    return itertools.cycle([s.numbers(*shape) for _ in range(count)])


def small_network(T, s, n_in):
    return s.weights(T.nn.Sequential(T.nn.Linear(n_in, 10), T.nn.Tanh(), T.nn.Linear(10, 1)))


@idiom
def jitter_on_the_diagonal(T, s):
    """The likelihood of a Gaussian process, whose noise is added where the matrix lies."""
    x, y = s.numbers(10, 2), s.numbers(10)
    scale, noise = T.nn.Parameter(T.tensor(0.3)), T.nn.Parameter(T.tensor(-1.0))
    optimizer = T.optim.SGD([scale, noise], lr=0.01)

    @s.compile
    def step():
        optimizer.zero_grad()
        k = 1.5 * T.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1) / scale.exp() ** 2)
        k.diagonal().add_(noise.exp())
        root = T.linalg.cholesky(k)
        loss = 0.5 * (y @ T.cholesky_solve(y[:, None], root)[:, 0]) + root.diagonal().log().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda: [step(), scale, noise]


@idiom
def covariance_with_a_ridge(T, s):
    x = in_turn(s, 3, 6, 3)

    @s.compile
    def covariance(x):
        c = x.t() @ x / len(x)
        c.diagonal().add_(1e-3)
        return c

    return lambda: covariance(next(x))


@idiom
def likeness_to_all_but_itself(T, s):
    x = in_turn(s, 3, 6, 4)

    @s.compile
    def nearest(x):
        z = T.nn.functional.normalize(x, dim=1)
        likeness = z @ z.t()
        likeness.fill_diagonal_(-1e9)
        return likeness.softmax(1), likeness.max(1).indices

    return lambda: nearest(next(x))


@idiom
def langevin_with_a_test(T, s):
    """A proposal along the slope at a leaf, the way back along that at the proposal, and both weighed."""
    place, noise, limits = [s.numbers(3)], in_turn(s, 4, 3), in_turn(s, 5, 1)

    def log_density(x):
        return -(x**4).sum() / 4 + x.sum()

    def off(x, mean):
        return -((x - mean) ** 2).sum() / 0.2

    @s.compile
    def step(x, noise, limit):
        x = x.requires_grad_()
        here = log_density(x)
        (slope,) = T.autograd.grad(here, x)
        with T.no_grad():
            other = x + 0.05 * slope + math.sqrt(0.1) * noise
        other.requires_grad_()
        there = log_density(other)
        (back,) = T.autograd.grad(there, other)
        with T.no_grad():
            ways = off(x, other + 0.05 * back) - off(other, x + 0.05 * slope)
            chance = (there - here + ways).exp().clamp(max=1.0)
            return T.where(limit.abs() / 3 < chance, other, x).detach(), chance

    def call():
        place[0], chance = step(place[0], next(noise), next(limits))
        return [place[0], chance]

    return call


@idiom
def particles_that_keep_apart(T, s):
    x = [s.numbers(12, 2)]

    @s.compile
    def step(x, width=0.5):
        y = x.detach().clone().requires_grad_(True)
        (slope,) = T.autograd.grad(-(y**2).sum() / 2 - (y[:, 0] * y[:, 1]).sum() * 0.1, y)
        apart = x[:, None, :] - x[None, :, :]
        near = T.exp(-(apart**2).sum(-1) / width)
        return x + 0.1 * (near @ slope + (2 / width) * (near[:, :, None] * apart).sum(1)) / x.shape[0]

    def call():
        x[0] = step(x[0])
        return x[0]

    return call


@idiom
def equation_at_new_points(T, s):
    """The points are drawn anew for every step, and become leaves in it."""
    model, points = small_network(T, s, 2), in_turn(s, 4, 12, 2)
    optimizer = T.optim.SGD(model.parameters(), lr=0.01)

    @s.compile
    def step(x):
        x.requires_grad_()
        u = model(x)
        (slope,) = T.autograd.grad(u, x, T.ones_like(u), create_graph=True)
        (bend,) = T.autograd.grad(slope[:, 1].sum(), x, create_graph=True)
        loss = (slope[:, 0] + u[:, 0] * slope[:, 1] - 0.01 * bend[:, 1]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda: step(next(points).clone())


@idiom
def attack_on_a_new_batch(T, s):
    model, batches = small_network(T, s, 4), in_turn(s, 3, 8, 4)

    @s.compile
    def attacked(x):
        x.requires_grad = True
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        return (x + 0.1 * x.grad.sign()).clamp(-3, 3).detach(), loss.detach()

    return lambda: attacked(next(batches).clone())


@idiom
def gradients_that_conflict(T, s):
    """Two tasks: what of the gradient of each goes against the other is taken out."""
    trunk, heads = s.weights(T.nn.Linear(4, 6)), [s.weights(T.nn.Linear(6, 1)) for _ in range(2)]
    parameters = list(trunk.parameters())
    optimizer = T.optim.SGD(parameters, lr=0.05)
    x, targets = in_turn(s, 3, 8, 4), [s.numbers(8, 1) for _ in range(2)]

    @s.compile
    def step(x):
        z = T.tanh(trunk(x))
        losses = [(head(z) - target).pow(2).mean() for head, target in zip(heads, targets)]
        a, b = (T.cat([g.flatten() for g in T.autograd.grad(loss, parameters, retain_graph=True)]) for loss in losses)
        along = a @ b
        both = T.where(along < 0, a - along / (b @ b) * b, a) + T.where(along < 0, b - along / (a @ a) * a, b)
        for p, part in zip(parameters, both.split([p.numel() for p in parameters])):
            p.grad = part.view_as(p).clone()
        optimizer.step()
        return [loss.detach() for loss in losses]

    return lambda: [*step(next(x)), *parameters]


@idiom
def two_results_of_ones_own(T, s):
    class SineAndCosine(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            sine, cosine = T.sin(k * x), T.cos(k * x)
            ctx.save_for_backward(sine, cosine)
            ctx.k = k
            return sine, cosine

        @staticmethod
        def backward(ctx, of_sine, of_cosine):
            sine, cosine = ctx.saved_tensors
            return ctx.k * (of_sine * cosine - of_cosine * sine), None

    w, x = s.parameter(4), in_turn(s, 3, 6, 4)

    @s.compile
    def step(x):
        w.grad = None
        sine, cosine = SineAndCosine.apply(x * w, 2.0)
        loss = (sine * cosine).sum() + sine.pow(2).mean()
        loss.backward()
        return loss.detach(), sine.detach()

    return lambda: [*step(next(x)), w.grad]


@idiom
def gradient_turned_round(T, s):
    """Features that tell classes and not domains."""

    class TurnedRound(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.weight = weight
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.weight * g, None

    features, classes, domains = [s.weights(T.nn.Linear(*sizes)) for sizes in ((4, 6), (6, 3), (6, 2))]
    optimizer = T.optim.SGD([p for m in (features, classes, domains) for p in m.parameters()], lr=0.05)
    x, labels, origins, count = in_turn(s, 3, 8, 4), s.integers(3, 8), s.integers(2, 8), itertools.count()

    @s.compile
    def step(x, weight):
        h = T.relu(features(x))
        loss = T.nn.functional.cross_entropy(classes(h), labels)
        loss = loss + T.nn.functional.cross_entropy(domains(TurnedRound.apply(h, weight)), origins)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda: [step(next(x), 2 / (1 + math.exp(-next(count) / 10)) - 1), *features.parameters()]


@idiom
def slope_of_a_few_ops(T, s):
    w, given = s.parameter(3), in_turn(s, 3, 3)

    @s.compile
    def f(x):
        return T.tanh(w * x).sum()

    def call():
        x = next(given).clone().requires_grad_()
        (slope,) = T.autograd.grad(f(x), x, create_graph=True)
        w.grad = None
        (slope**2).sum().backward()
        return [slope, w.grad, x.grad]

    return call


@idiom
def one_tensor_for_two_now_and_then(T, s):
    given, count = [s.numbers(6, 4).requires_grad_() for _ in range(3)], itertools.count()

    @s.compile
    def distance(x, y):
        return ((x - y) ** 2).sum() + (x * y).mean() + x.sin().sum()

    def call():
        k = next(count)
        x, y = given[k % 3], given[0 if k % 4 == 3 else (k + 1) % 3]
        x.grad = y.grad = None
        distance(x, y).backward()
        return [x.grad, y.grad]

    return call
