"""Programs that differentiate by hand: penalties on gradients, equations, inner loops, own functions. Not a test."""

from training_programs import N_STEPS, program


@program
def gradient_penalty(T, s):
    """A Wasserstein critic."""
    nn = T.nn
    real, fake = s.numbers(20, 2) + 1, s.numbers(20, 2)
    critic = s.weights(nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1)))
    optimizer = T.optim.Adam(critic.parameters(), lr=5e-3, betas=(0.0, 0.9))

    @s.compile
    def step(real, fake, share):
        between = (share * real + (1 - share) * fake).requires_grad_(True)
        out = critic(between)
        (slope,) = T.autograd.grad(outputs=out, inputs=between, grad_outputs=T.ones_like(out), create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(real, fake, s.numbers(20, 1).sigmoid())


@program
def equation_of_a_spring(T, s):
    """Physics-informed: u'' = -u with u(0) = 0 and u'(0) = 1."""
    nn = T.nn
    model = s.weights(nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)))
    optimizer = T.optim.Adam(model.parameters(), lr=5e-3)
    times = T.linspace(0, 2, 16).reshape(-1, 1)

    def derivative(u, t):
        return T.autograd.grad(u.sum(), t, create_graph=True)[0]

    @s.compile
    def step(times):
        t = times.clone().requires_grad_()
        u = model(t)
        first = derivative(u, t)
        second = derivative(first, t)
        loss = (second + u).pow(2).mean() + u[0].pow(2).sum() + (first[0] - 1).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(times)


@program
def hamiltonian_by_leapfrog(T, s):
    """A network is the energy; its gradient moves the particle."""
    nn = T.nn
    energy = s.weights(nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 1)))
    optimizer = T.optim.SGD(energy.parameters(), lr=0.05)
    start = s.numbers(6, 2)

    def forces(q, p):
        q, p = q.requires_grad_(), p.requires_grad_()
        return T.autograd.grad(energy(T.cat([q, p], dim=1)).sum(), (x for x in (q, p)), create_graph=True)

    @s.compile
    def step(start, target):
        q, p = (start * 1).split(1, dim=1)
        for _ in range(2):
            p = p - 0.05 * forces(q, p)[0]
            q = q + 0.1 * forces(q, p)[1]
            p = p - 0.05 * forces(q, p)[0]
        loss = (T.cat([q, p], dim=1) - target).pow(2).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    angle = T.tensor(0.2)
    turn = T.stack([T.stack([angle.cos(), -angle.sin()]), T.stack([angle.sin(), angle.cos()])])
    for _ in range(N_STEPS):
        yield step(start, start @ turn)


@program
def neural_equation_with_stages(T, s):
    """Runge and Kutta's method; the stages are filled through .data for the check of the step's error."""
    nn = T.nn
    field = s.weights(nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 2)))
    optimizer = T.optim.Adam(field.parameters(), lr=0.01)
    start = s.numbers(8, 2)

    @s.compile
    def step(x, target):
        stages = T.zeros(4, *x.shape)
        for _ in range(2):
            slopes = [field(x)]
            for k, share in enumerate((0.5, 0.5, 1.0)):
                stages.data[k] = slopes[-1].detach()
                slopes.append(field(x + 0.2 * share * slopes[-1]))
            stages.data[3] = slopes[-1].detach()
            x = x + 0.2 / 6 * (slopes[0] + 2 * slopes[1] + 2 * slopes[2] + slopes[3])
        loss = nn.functional.mse_loss(x, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss + 0 * (stages[0] - stages[3]).abs().max()

    for _ in range(N_STEPS):
        yield step(start, start.flip(1))


@program
def own_functions(T, s):
    """A rounding with a straight-through gradient, and a layer of one's own."""
    nn = T.nn

    class Rounded(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, levels):
            ctx.save_for_backward(x)
            ctx.levels = levels
            return T.round(x * levels) / levels

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= 1).to(grad.dtype), None

    class Affine(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return x @ weight.t() + bias

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight, grad.t() @ x, grad.sum(0)

    x, y = s.numbers(20, 4), s.numbers(20, 2)
    first, second = s.weights(nn.Linear(4, 8)), s.weights(nn.Linear(8, 2))
    optimizer = T.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1, momentum=0.5)

    @s.compile
    def step(x, y):
        hidden = Rounded.apply(Affine.apply(x, first.weight, first.bias), 8)
        loss = nn.functional.mse_loss(second(hidden), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(x, y)


@program
def kalman_filter(T, s):
    """Noise levels of a random walk by maximum likelihood."""
    log_noise = [s.parameter(1, scale=0.5) for _ in range(2)]
    optimizer = T.optim.RMSprop(log_noise, lr=0.05)
    seen = [float(v) for v in s.rng.standard_normal(12).cumsum() + s.rng.standard_normal(12) * 0.5]

    @s.compile
    def step(seen):
        q, r = (p.exp() for p in log_noise)
        mean, variance, loss = T.zeros(1), T.ones(1), 0
        for z in seen:
            variance = variance + q
            innovation, total = z - mean, variance + r
            loss = loss + 0.5 * (total.log() + innovation**2 / total)
            gain = variance / total
            mean, variance = mean + gain * innovation, (1 - gain) * variance
        loss = loss.sum()
        optimizer.zero_grad()
        loss.backward()
        T.nn.utils.clip_grad_value_(log_noise, 1.0)
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(seen)


@program
def learning_to_learn(T, s):
    """Two inner steps of gradient descent, differentiated through."""
    F = T.nn.functional
    w1, b1, w2 = s.parameter(8, 1), s.parameter(8, scale=0.1), s.parameter(1, 8, scale=0.3)
    slow = [w1, b1, w2]
    optimizer = T.optim.Adam(slow, lr=5e-3)

    def loss_of(weights, x, y):
        hidden = T.tanh(F.linear(x, weights[0], weights[1]))
        return F.mse_loss(F.linear(hidden, weights[2]), y)

    @s.compile
    def step(x, y):
        fast = slow
        for _ in range(2):
            grads = T.autograd.grad(loss_of(fast, x[:6], y[:6]), iter(fast), create_graph=True)
            fast = [w - 0.1 * g for w, g in zip(fast, grads)]
        loss = loss_of(fast, x[6:], y[6:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(N_STEPS):
        x = s.numbers(12, 1)
        yield step(x, (x + k % 5).sin())


@program
def sharpness_aware_steps(T, s):
    """Up the gradient, and down with the gradient found there."""
    nn = T.nn
    x, y = s.numbers(24, 4), s.integers(3, 24)
    model = s.weights(nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 3)))
    optimizer = T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @s.compile
    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = T.stack([p.grad.norm() for p in model.parameters()]).norm()
        moved = []
        for p in model.parameters():
            moved.append(p.grad * (0.05 / (norm + 1e-12)))
            p.data.add_(moved[-1])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for p, move in zip(model.parameters(), moved):
            p.data.sub_(move)
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(x, y)


@program
def one_vector_of_weights(T, s):
    """Heavy-ball descent on all parameters as one vector."""
    nn = T.nn
    x, y = s.numbers(24, 3), s.numbers(24, 2)
    model = s.weights(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)))
    speed = T.zeros(sum(p.numel() for p in model.parameters()))

    @s.compile
    def gradient(x, y):
        loss = nn.functional.mse_loss(model(x), y)
        return loss, nn.utils.parameters_to_vector(T.autograd.grad(loss, model.parameters()))

    for _ in range(N_STEPS):
        loss, direction = gradient(x, y)
        speed = 0.9 * speed - 0.05 * direction
        weights = nn.utils.parameters_to_vector(model.parameters()).detach()
        nn.utils.vector_to_parameters(weights + speed, model.parameters())
        yield loss


@program
def own_optimizer(T, s):
    """Signs of a momentum, written as a subclass; and a penalty on the curvature along the gradient."""

    class Signs(T.optim.Optimizer):
        def __init__(self, params, lr=1e-2, beta=0.9):
            super().__init__(params, {"lr": lr, "beta": beta})

        @T.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if "momentum" not in state:
                        state["momentum"] = T.zeros_like(p)
                    state["momentum"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                    p.add_(T.tanh(state["momentum"] * 50), alpha=-group["lr"])

    nn = T.nn
    x, y = s.numbers(16, 3), s.numbers(16, 1)
    model = s.weights(nn.Sequential(nn.Linear(3, 6), nn.Mish(), nn.Linear(6, 1)))
    optimizer = Signs(model.parameters(), lr=5e-3)

    @s.compile
    def step(x, y):
        loss = nn.functional.mse_loss(model(x), y)
        grads = T.autograd.grad(loss, list(model.parameters()), create_graph=True)
        total = loss + 0.01 * sum(g.square().sum() for g in grads)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total

    for _ in range(N_STEPS):
        yield step(x, y)


@program
def hooks_and_reversed_gradients(T, s):
    """Domain adaptation: the trunk learns against one of its heads, by a hook."""
    nn = T.nn
    x, y, domain = s.numbers(20, 4), s.numbers(20, 1), s.integers(2, 20)
    trunk, head, against = (s.weights(nn.Linear(*sizes)) for sizes in ((4, 8), (8, 1), (8, 2)))
    parts = nn.ModuleList([trunk, head, against])
    optimizer = T.optim.Adam(parts.parameters(), lr=0.01)
    kept = {}
    trunk.register_forward_hook(lambda module, args, out: kept.update(size=out.abs().mean()))

    @s.compile
    def step(x, y, domain):
        features = trunk(x).relu()
        reversed_features = features * 1.0
        reversed_features.register_hook(lambda grad: -0.5 * grad)
        loss = nn.functional.mse_loss(head(features), y) + 0.01 * kept["size"]
        loss = loss + nn.functional.cross_entropy(against(reversed_features), domain)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(x, y, domain)


@program
def normalised_weights(T, s):
    """Weights as a length times a direction, and a learned temperature."""
    F = T.nn.functional
    x, label = s.numbers(30, 6), s.integers(4, 30)
    direction, length, heat = s.parameter(4, 6), s.parameter(4, 1, scale=0.3), s.parameter(1, scale=0.1)
    optimizer = T.optim.SGD([{"params": [direction, length]}, {"params": heat, "lr": 0.01, "momentum": 0}], 0.2, 0.9)

    @s.compile
    def step(x, label):
        weight = direction / direction.norm(dim=1, keepdim=True) * length.exp()
        loss = F.cross_entropy(F.linear(x, weight) / F.softplus(heat + 1), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(N_STEPS):
        yield step(x, label)
