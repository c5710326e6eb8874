"""Derivatives, inside the compiled function and outside."""

from .registry import idiom


def chain(a, w1, w2, w3, w4):
    b = w1 * a
    c = w2 * a
    return (10 - (w3 * b + w4 * c)).sum()


def leaves(T, s, count, *shape):
    return [s.numbers(*shape).requires_grad_() for _ in range(count)]


@idiom
def backward_outside(T, s):
    params = leaves(T, s, 5, 3, 3)
    f = s.compile(chain)

    def call():
        for p in params:
            p.grad = None
        loss = f(*params)
        loss.backward()
        return loss, [p.grad for p in params]

    return call


@idiom
def backward_inside(T, s):
    params = leaves(T, s, 5, 3, 3)

    @s.compile
    def f():
        for p in params:
            p.grad = None
        loss = chain(*params)
        loss.backward()
        return loss.detach()

    return lambda: (f(), [p.grad for p in params])


@idiom
def gradients_as_results(T, s):
    params = leaves(T, s, 5, 3, 3)
    f = s.compile(lambda *a: T.autograd.grad(chain(*a), a))
    return lambda: f(*params)


@idiom
def gradients_asked_outside(T, s):
    w, x = leaves(T, s, 1, 4, 3), s.numbers(6, 4)
    f = s.compile(lambda x: T.tanh(x @ w[0]).square().sum())
    return lambda: T.autograd.grad(f(x), w)


@idiom
def accumulated_in_place(T, s):
    params = leaves(T, s, 3, 3, 3)
    for p in params:
        p.grad = T.zeros(3, 3)

    @s.compile
    def f():
        for p in params:
            p.grad.zero_()
        for k in range(2):
            (params[0] * params[1] + k * params[2]).square().sum().backward()

    def call():
        f()
        return [p.grad for p in params]

    return call


@idiom
def cotangent_given(T, s):
    w, x, seed = leaves(T, s, 1, 4, 3), s.numbers(6, 4), s.numbers(6, 3)

    @s.compile
    def pulled_back(x, seed):
        out = T.tanh(x @ w[0])
        return out, T.autograd.grad(out, w[0], seed)[0]

    return lambda: pulled_back(x, seed)


@idiom
def gradient_of_the_input(T, s):
    model = s.weights(T.nn.Sequential(T.nn.Linear(6, 12), T.nn.Tanh(), T.nn.Linear(12, 4)))
    x = s.numbers(3, 6)

    @s.compile
    def saliency(x):
        x = x.clone().requires_grad_()
        (gradient,) = T.autograd.grad(model(x).max(dim=1).values.sum(), x)
        return gradient.abs()

    return lambda: saliency(x)


@idiom
def adversarial_example(T, s):
    model = s.weights(T.nn.Sequential(T.nn.Linear(6, 12), T.nn.ReLU(), T.nn.Linear(12, 4)))
    x, y = s.numbers(5, 6), s.integers(4, 5)

    @s.compile
    def attack(x, y):
        moved = x.detach().requires_grad_()
        for _ in range(2):
            loss = T.nn.functional.cross_entropy(model(moved), y)
            (gradient,) = T.autograd.grad(loss, moved)
            moved = (moved + 0.01 * gradient.sign()).clamp(-3, 3).detach().requires_grad_()
        return moved.detach()

    return lambda: attack(x, y)


@idiom
def hessian_times_vector(T, s):
    x, v = s.numbers(8).requires_grad_(), s.numbers(8)

    @s.compile
    def f(x, v):
        (g,) = T.autograd.grad((T.sin(x) * x * x).sum(), x, create_graph=True)
        return T.autograd.grad((g * v).sum(), x)[0]

    return lambda: f(x, v)


@idiom
def second_derivative_outside(T, s):
    x = s.numbers(8).requires_grad_()
    f = s.compile(lambda x: (T.sin(x) * x * x).sum())

    def call():
        (g,) = T.autograd.grad(f(x), x, create_graph=True)
        return T.autograd.grad(g.sum(), x)

    return call


@idiom
def jacobian_by_rows(T, s):
    x, w = s.numbers(4), s.numbers(4, 4)

    @s.compile
    def jacobian(x):
        x = x.detach().requires_grad_()
        y = T.tanh(w @ x)
        return T.stack([T.autograd.grad(part, x, retain_graph=True)[0] for part in y])

    return lambda: jacobian(x)


@idiom
def two_losses_of_one_trunk(T, s):
    trunk, first, second = leaves(T, s, 3, 4, 4)
    x = s.numbers(6, 4)

    @s.compile
    def step(x):
        for p in (trunk, first, second):
            p.grad = None
        shared = T.tanh(x @ trunk)
        one, two = (shared @ first).square().mean(), (shared @ second).abs().mean()
        one.backward(retain_graph=True)
        two.backward()
        return one + two

    return lambda: (step(x), trunk.grad)


@idiom
def function_of_ones_own(T, s):
    class Clipped(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, limit):
            ctx.save_for_backward(x)
            ctx.limit = limit
            return x.clamp(-limit, limit)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= ctx.limit), None

    (w,), x = leaves(T, s, 1, 4, 4), s.numbers(6, 4)

    @s.compile
    def step(x):
        w.grad = None
        loss = Clipped.apply(x @ w, 0.5).square().sum()
        loss.backward()
        return loss.detach()

    return lambda: (step(x), w.grad)


@idiom
def hook_on_a_parameter(T, s):
    (w,), x = leaves(T, s, 1, 4, 4), s.numbers(6, 4)
    w.register_hook(lambda grad: grad.clamp(-0.1, 0.1))

    @s.compile
    def step(x):
        w.grad = None
        loss = (x @ w).tanh().square().sum()
        loss.backward()
        return loss.detach()

    return lambda: (step(x), w.grad)


@idiom
def hook_on_a_value(T, s):
    (w,), x = leaves(T, s, 1, 4, 4), s.numbers(6, 4)
    seen = []

    @s.compile
    def step(x):
        w.grad = None
        hidden = x @ w
        hidden.register_hook(lambda grad: seen.append(grad) or grad * 0.5)
        loss = hidden.square().sum()
        loss.backward()
        return loss.detach()

    def call():
        seen.clear()
        return step(x), w.grad, seen[0]

    return call


@idiom
def gradient_kept_of_a_value(T, s):
    (w,), x = leaves(T, s, 1, 4, 4), s.numbers(6, 4)

    @s.compile
    def f(x):
        hidden = T.tanh(x @ w)
        hidden.retain_grad()
        T.autograd.backward(hidden.square().sum(), inputs=[hidden])
        return hidden.grad

    return lambda: f(x)


@idiom
def part_without_gradients(T, s):
    (w, v), x = leaves(T, s, 2, 4, 4), s.numbers(6, 4)

    @s.compile
    def f(x):
        with T.no_grad():
            wanted = T.softmax(x @ v, -1)
        loss = -(wanted * T.log_softmax(x @ w, -1)).sum(-1).mean()
        return loss, T.autograd.grad(loss, w)[0]

    return lambda: f(x)


@idiom
def value_and_gradient_for_an_optimizer(T, s):
    import numpy as np

    t = T.linspace(0, 1, 50, dtype=T.float64)
    y = 2 * t + 1
    start = np.array([1.0, 0.5])

    @s.compile
    def f(theta):
        residual = theta[0] * t + theta[1] - y
        return (residual * residual).sum() / 2

    def call():
        theta = T.tensor(start, requires_grad=True)
        value = f(theta)
        value.backward()
        return T.tensor(value.item()), T.from_numpy(theta.grad.numpy())

    return call


@idiom
def newtons_method(T, s):
    x = s.numbers(3)

    @s.compile
    def step(x):
        x = x.detach().requires_grad_()
        value = (x**4).sum() + (x - 1).square().sum()
        (slope,) = T.autograd.grad(value, x, create_graph=True)
        (curvature,) = T.autograd.grad(slope.sum(), x)
        return (x - slope / curvature).detach()

    return lambda: step(step(x))


@idiom
def penalty_on_the_gradient(T, s):
    critic = s.weights(T.nn.Sequential(T.nn.Linear(3, 8), T.nn.Tanh(), T.nn.Linear(8, 1)))
    real, fake, mix = s.numbers(5, 3), s.numbers(5, 3), s.numbers(5, 1).sigmoid()

    @s.compile
    def step(real, fake, mix):
        critic.zero_grad()
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = T.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        loss.backward()
        return loss.detach()

    return lambda: (step(real, fake, mix), [p.grad for p in critic.parameters()])


@idiom
def implicit_gradient(T, s):
    (theta,) = leaves(T, s, 1, 4)

    @s.compile
    def solved(theta):
        with T.no_grad():
            z = T.zeros(4)
            for _ in range(8):
                z = T.tanh(0.5 * z + theta)
        z = T.tanh(0.5 * z + theta)
        return T.autograd.grad(z.sum(), theta)[0]

    return lambda: solved(theta)
