"""Functions of one sample, called for all samples by `vmap`: gradients per sample, fields and their derivatives,
matrices of kernels, solvers for many problems."""

from .registry import idiom
from .strangers import in_turn


@idiom
def gradients_per_sample(T, s):
    """Of a small network, as in PyTorch's tutorial."""
    w, b, v = s.numbers(16, 8), s.numbers(16), s.numbers(16)
    x, y = in_turn(s, 3, 32, 8), s.numbers(32)

    def loss(w, b, v, x, y):
        return ((w @ x + b).tanh() @ v - y) ** 2

    f = s.compile(T.func.vmap(T.func.grad(loss, argnums=(0, 1, 2)), in_dims=(None, None, None, 0, 0)))
    return lambda: f(w, b, v, next(x), y)


@idiom
def hessians_of_samples(T, s):
    x = in_turn(s, 3, 32, 4)
    f = s.compile(T.func.vmap(T.func.hessian(lambda r: (r.sin() * r.exp()).sum() * r.prod())))
    return lambda: f(next(x))


@idiom
def jacobian_of_a_field(T, s):
    w, x = s.numbers(12, 12), in_turn(s, 3, 12)
    f = s.compile(T.func.jacrev(lambda x: (w @ x).tanh() * x))
    return lambda: f(next(x))


@idiom
def divergence_at_many_points(T, s):
    w, x = s.numbers(3, 3), in_turn(s, 3, 40, 3)
    f = s.compile(T.func.vmap(lambda r: T.func.jacrev(lambda r: (w @ r).sin())(r).diagonal().sum()))
    return lambda: f(next(x))


@idiom
def laplacian_of_a_network(T, s):
    """As losses of differential equations have it."""
    w, v, x = s.numbers(10, 2), s.numbers(10), in_turn(s, 3, 30, 2)
    f = s.compile(T.func.vmap(lambda r: T.func.hessian(lambda r: (w @ r).tanh() @ v)(r).trace()))
    return lambda: f(next(x))


@idiom
def matrix_of_a_kernel(T, s):
    x, y = in_turn(s, 3, 20, 3), s.numbers(15, 3)

    def kernel(a, b):
        return (-((a - b) ** 2).sum() / 2).exp()

    f = s.compile(T.vmap(T.vmap(kernel, (None, 0)), (0, None)))
    return lambda: f(next(x), y)


@idiom
def newton_steps_of_many_problems(T, s):
    a, x = s.numbers(24, 3), in_turn(s, 3, 24, 3)

    def step(a, x):
        def f(x):
            return ((x - a) ** 2).sum() + (x**4).sum() / 4

        return x - T.linalg.solve(T.func.hessian(f)(x), T.func.grad(f)(x))

    f = s.compile(T.vmap(step))
    return lambda: f(a, next(x))


@idiom
def ensemble_of_networks(T, s):
    """One batch through many networks, whose parameters lie in one tensor each."""
    w, b, v, x = s.numbers(10, 8, 4), s.numbers(10, 8), s.numbers(10, 8), in_turn(s, 3, 16, 4)

    def model(w, b, v, x):
        return T.nn.functional.linear(x, w, b).relu() @ v

    f = s.compile(T.vmap(model, in_dims=(0, 0, 0, None)))
    return lambda: f(w, b, v, next(x))


@idiom
def training_on_clipped_gradients(T, s):
    """Differentially private descent: gradients per sample are clipped before their mean is taken."""
    w, x, y = T.zeros(6), in_turn(s, 3, 24, 6), s.numbers(24)

    def loss(w, x, y):
        return ((x * w).sum() - y) ** 2

    @s.compile
    def step(x, y):
        g = T.func.vmap(T.func.grad(loss), (None, 0, 0))(w, x, y)
        g = g / g.norm(dim=1, keepdim=True).clamp(min=1.0)
        w.sub_(0.1 * g.mean(0))
        return g

    return lambda: step(next(x), y)


@idiom
def energies_and_forces_of_systems(T, s):
    x = in_turn(s, 3, 16, 5, 3)

    def energy(x):
        distances = ((x[:, None] - x[None]) ** 2).sum(-1) + T.eye(5)
        return (1 / distances**3 - 1 / distances).sum()

    f = s.compile(T.vmap(T.func.grad_and_value(energy)))
    return lambda: f(next(x))


@idiom
def gradients_per_sample_in_eager_mode(T, s):
    """Around a compiled function of one sample."""
    w, x = s.numbers(8, 4), in_turn(s, 3, 32, 4)
    f = s.compile(lambda w, r: (w @ r).sin().sum())
    slopes = T.func.vmap(T.func.grad(f), (None, 0))
    return lambda: slopes(w, next(x))
