"""Numerical programs without networks: iterations, filters, simulations."""

from .registry import idiom, random_idiom


@idiom
def kalman_filter(T, s):
    move = T.tensor([[1.0, 0.1], [0.0, 1.0]])
    see, noise, error = T.tensor([[1.0, 0.0]]), T.eye(2) * 0.01, T.eye(1) * 0.1
    state, covariance, seen = T.zeros(2, 1), T.eye(2), s.numbers(1, 1)

    @s.compile
    def update(state, covariance, seen):
        state, covariance = move @ state, move @ covariance @ move.T + noise
        gain = covariance @ see.T / (see @ covariance @ see.T + error)
        return state + gain @ (seen - see @ state), (T.eye(2) - gain @ see) @ covariance

    return lambda: update(state, covariance, seen)


@idiom
def leapfrog(T, s):
    q, p = s.numbers(5, 2), s.numbers(5, 2)

    def force(q):
        return -q / (q.square().sum(-1, keepdim=True) + 0.1) ** 1.5

    @s.compile
    def orbit(q, p, dt):
        for _ in range(5):
            p = p + 0.5 * dt * force(q)
            q = q + dt * p
            p = p + 0.5 * dt * force(q)
        return q, p

    return lambda: orbit(q, p, 0.01)


@idiom
def forces_by_autograd(T, s):
    places = s.numbers(6, 3)

    @s.compile
    def forces(places):
        places = places.detach().requires_grad_()
        difference = places[:, None] - places[None]
        distance = (difference.square().sum(-1) + 0.1).sqrt()
        energy = (1 / distance).sum() / 2
        return -T.autograd.grad(energy, places)[0]

    return lambda: forces(places)


@idiom
def runge_kutta(T, s):
    x = s.numbers(3)

    def lorenz(x):
        a, b, c = x
        return T.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])

    @s.compile
    def step(x, h):
        k1 = lorenz(x)
        k2 = lorenz(x + h / 2 * k1)
        k3 = lorenz(x + h / 2 * k2)
        k4 = lorenz(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return lambda: step(x, 0.01)


@idiom
def heat_equation(T, s):
    u = s.numbers(32)

    @s.compile
    def steps(u):
        for _ in range(4):
            u = u + 0.2 * (T.roll(u, 1) - 2 * u + T.roll(u, -1))
        return u

    return lambda: steps(u)


@idiom
def game_of_life(T, s):
    board = (s.numbers(8, 8) > 0).float()

    @s.compile
    def generation(board):
        around = sum(T.roll(board, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        return ((around == 3) | ((around == 2) & (board == 1))).float()

    return lambda: generation(board)


@idiom
def power_iteration(T, s):
    a = s.numbers(8, 8)
    a, v = a @ a.t(), s.numbers(8)

    @s.compile
    def largest(a, v):
        for _ in range(10):
            v = a @ v
            v = v / v.norm()
        return v @ a @ v

    return lambda: largest(a, v)


@idiom
def descent_of_rosenbrock(T, s):
    x = T.tensor([-1.0, 1.0], dtype=T.float64)

    @s.compile
    def step(x):
        x = x.detach().requires_grad_()
        value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        value.backward()
        return x.detach() - 1e-4 * x.grad, value.detach()

    return lambda: step(x)


@idiom
def polynomial_by_horner(T, s):
    x, coefficients = s.numbers(16), [0.5, -1.0, 0.25, 2.0, -0.125]

    @s.compile
    def horner(x):
        value = T.zeros_like(x)
        for c in coefficients:
            value = value * x + c
        return value

    return lambda: horner(x)


@idiom
def gradients_of_a_line_fit(T, s):
    x, y = s.numbers(40), s.numbers(40)
    slope, offset = T.zeros(1), T.zeros(1)

    @s.compile
    def step(slope, offset):
        error = slope * x + offset - y
        return slope - 0.1 * (2 * error * x).mean(), offset - 0.1 * (2 * error).mean()

    return lambda: step(slope, offset)


@idiom
def balancing_by_sinkhorn(T, s):
    costs = s.numbers(6, 6).abs()

    @s.compile
    def balanced(costs):
        logs = -costs / 0.1
        for _ in range(5):
            logs = logs - logs.logsumexp(dim=1, keepdim=True)
            logs = logs - logs.logsumexp(dim=0, keepdim=True)
        return logs.exp()

    return lambda: balanced(costs)


@idiom
def nearest_centres(T, s):
    points, centres = s.numbers(20, 2), s.numbers(3, 2)

    @s.compile
    def improved(points, centres):
        nearest = ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(dim=1)
        member = T.nn.functional.one_hot(nearest, 3).float()
        return (member.t() @ points) / member.sum(0).clamp(min=1)[:, None]

    return lambda: improved(points, centres)


@idiom
def hidden_states(T, s):
    start, moves, scores = s.numbers(4), s.numbers(4, 4).log_softmax(1), s.numbers(6, 4)

    @s.compile
    def likelihood(scores):
        alpha = start.log_softmax(0) + scores[0]
        for t in range(1, len(scores)):
            alpha = T.logsumexp(alpha[:, None] + moves, dim=0) + scores[t]
        return alpha.logsumexp(0)

    return lambda: likelihood(scores)


@idiom
def ranks_of_pages(T, s):
    links = (s.numbers(8, 8) > 0.3).float()

    @s.compile
    def ranks(links):
        moves = links / links.sum(0, keepdim=True).clamp(min=1)
        rank = T.full((8,), 1 / 8)
        for _ in range(10):
            rank = 0.15 / 8 + 0.85 * moves @ rank
        return rank

    return lambda: ranks(links)


@idiom
def moving_average(T, s):
    x, weights = s.numbers(30), [0.25, 0.5, 0.25]

    @s.compile
    def smooth(x):
        return sum(w * x[k : len(x) - 2 + k] for k, w in enumerate(weights))

    return lambda: smooth(x)


@idiom
def fourier_sums(T, s):
    x = s.numbers(16)
    n = T.arange(16).float()

    @s.compile
    def spectrum(x):
        angle = 2 * 3.14159265 / 16 * n[:, None] * n[None]
        return ((angle.cos() @ x) ** 2 + (angle.sin() @ x) ** 2).sqrt()

    return lambda: spectrum(x)


@idiom
def values_of_states(T, s):
    rewards, moves = s.numbers(5, 2), s.numbers(2, 5, 5).softmax(-1)

    @s.compile
    def solved():
        value = T.zeros(5)
        for _ in range(8):
            value = (rewards + 0.9 * (moves @ value).t()).max(dim=1).values
        return value

    return solved


@idiom
def returns_from_the_end(T, s):
    rewards = s.numbers(8)

    @s.compile
    def returns(rewards):
        out, total = [], T.zeros(())
        for reward in reversed(rewards.unbind()):
            total = reward + 0.9 * total
            out.insert(0, total)
        out = T.stack(out)
        return (out - out.mean()) / (out.std() + 1e-8)

    return lambda: returns(rewards)


@idiom
def kernel_regression(T, s):
    x, y, at = s.numbers(12, 1), s.numbers(12), s.numbers(5, 1)

    @s.compile
    def predict(x, y, at):
        weights = T.exp(-((at - x.t()) ** 2) / 0.5)
        return (weights @ y) / weights.sum(1)

    return lambda: predict(x, y, at)


@idiom
def rotation_of_points(T, s):
    points, angle = s.numbers(10, 2), s.numbers(1).requires_grad_()

    @s.compile
    def misfit(points):
        c, d = angle.cos(), angle.sin()
        turn = T.stack([T.cat([c, -d]), T.cat([d, c])])
        error = (points @ turn.t() - points.flip(1)).square().sum()
        return error, T.autograd.grad(error, angle)[0]

    return lambda: misfit(points)


@random_idiom
def area_by_chance(T, s):
    @s.compile
    def estimate():
        points = T.rand(200, 2)
        return 4 * (points.square().sum(1) < 1).float().mean()

    return estimate


@random_idiom
def langevin_steps(T, s):
    x = s.numbers(10)

    @s.compile
    def step(x):
        x = x.detach().requires_grad_()
        (slope,) = T.autograd.grad((x**4 / 4 - x**2 / 2).sum(), x)
        return (x - 0.01 * slope + 0.1 * T.randn_like(x)).detach()

    return lambda: step(x)


@idiom
def likelihood_of_a_gaussian_process(T, s):
    logs = T.tensor([0.0, -1.0, -2.0], dtype=T.float64)
    x, y = T.linspace(0, 1, 20, dtype=T.float64), s.numbers(20).double()
    unit = T.eye(20, dtype=T.float64)

    @s.compile
    def value_and_gradient(logs, x, y):
        logs = logs.detach().requires_grad_()
        distance = (x[:, None] - x[None, :]) / logs[1].exp()
        kernel = logs[0].exp() * T.exp(-0.5 * distance**2) + logs[2].exp() * unit
        lower = T.linalg.cholesky(kernel)
        white = T.linalg.solve_triangular(lower, y[:, None], upper=False)
        value = 0.5 * (white * white).sum() + lower.diagonal().log().sum()
        return value.detach(), T.autograd.grad(value, logs)[0]

    return lambda: value_and_gradient(logs, x, y)


@idiom
def filter_of_several_sensors(T, s):
    move, see = T.eye(3) + 0.1 * T.ones(3, 3).triu(1), s.numbers(2, 3)
    noise, seen = T.tensor(0.05), s.numbers(6, 2)

    @s.compile
    def likelihood(noise, seen):
        noise = noise.detach().requires_grad_()
        state, spread, total = T.zeros(3), T.eye(3), 0.0
        for value in seen:
            state, spread = move @ state, move @ spread @ move.T + noise * T.eye(3)
            innovation = see @ spread @ see.T + 0.1 * T.eye(2)
            rest, gain = value - see @ state, T.linalg.solve(innovation, see @ spread).T
            total = total + T.logdet(innovation) + rest @ T.linalg.solve(innovation, rest)
            state, spread = state + gain @ rest, spread - gain @ see @ spread
        return T.autograd.grad(total, noise)[0]

    return lambda: likelihood(noise, seen)


@idiom
def ridge_regression(T, s):
    x, y, strength = s.numbers(30, 5), s.numbers(30), T.tensor(0.1)

    @s.compile
    def fit(x, y, strength):
        return T.linalg.solve(x.T @ x + strength * T.eye(5), x.T @ y)

    return lambda: fit(x, y, strength)


@idiom
def density_through_a_linear_map(T, s):
    a, x = T.eye(4) + 0.1 * s.numbers(4, 4), s.numbers(16, 4)

    @s.compile
    def step(a, x):
        a = a.detach().requires_grad_()
        loss = 0.5 * (x @ a).square().sum(-1).mean() - T.linalg.slogdet(a)[1]
        loss.backward()
        return loss.detach(), a.grad

    return lambda: step(a, x)


@idiom
def matrix_assembled_from_elements(T, s):
    stiffness = s.numbers(11).abs() + 0.5
    element = T.tensor([[1.0, -1.0], [-1.0, 1.0]])

    @s.compile
    def compliance(stiffness):
        stiffness = stiffness.detach().requires_grad_()
        matrix = T.zeros(12, 12)
        for k in range(11):
            matrix[k : k + 2, k : k + 2] += stiffness[k] * element
        end = T.linalg.solve(matrix[1:, 1:], T.ones(11))[-1]
        return end.detach(), T.autograd.grad(end, stiffness)[0]

    return lambda: compliance(stiffness)
