"""What calls are given and give: arrays in and out, values read on the way, exceptions, results that are kept."""

import collections
import functools
import itertools
import math

import numpy

from .registry import idiom


def in_turn(s, count, *shape):
    return itertools.cycle([s.numbers(*shape) for _ in range(count)])


def counted(call):
    """A call of the function with how often it was called."""
    count = itertools.count(1)
    return lambda: call(next(count))


def arrays_in_turn(count, *shape):
    return itertools.cycle([numpy.random.default_rng(k).normal(size=shape) for k in range(count)])


@idiom
def value_and_gradient_as_arrays(T, s):
    x, y, thetas = s.numbers(40, 3).double(), (s.numbers(40) > 0).double(), arrays_in_turn(5, 4)

    @s.compile
    def of(theta):
        theta = T.tensor(theta, requires_grad=True)
        logits = x @ theta[:3] + theta[3]
        loss = T.nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="sum") + 0.5 * (theta**2).sum()
        loss.backward()
        return loss.item(), theta.grad.numpy()

    def call():
        value, gradient = of(next(thetas))
        return [T.tensor(value), T.tensor(gradient)]

    return call


@idiom
def standardized_numpy_batch(T, s):
    given = arrays_in_turn(4, 6, 3)

    @s.compile
    def standardized(array):
        x = T.from_numpy(array)
        return (x - x.mean(0)) / (x.std(0) + 1)

    return lambda: standardized(next(given))


@idiom
def value_and_gradient_by_methods(T, s):
    x, y, thetas = s.numbers(30, 2).double(), s.numbers(30).double(), arrays_in_turn(4, 3)

    @s.compile
    def loss(theta):
        mean, scale = x @ theta[:2], theta[2].exp()
        return (0.5 * ((y - mean) / scale) ** 2 + theta[2]).sum()

    def call():
        theta = next(thetas)
        with T.no_grad():
            value = float(loss(T.as_tensor(theta)))
        at = T.tensor(theta, requires_grad=True)
        loss(at).backward()
        return [T.tensor(value), at.grad]

    return call


@idiom
def prediction_as_an_array(T, s):
    net = s.weights(T.nn.Sequential(T.nn.Linear(3, 5), T.nn.Tanh(), T.nn.Linear(5, 2)))
    given = itertools.cycle([numpy.random.default_rng(k).normal(size=(4, 3)).astype("float32") for k in range(3)])

    @s.compile
    def predict(array):
        with T.no_grad():
            return net(T.from_numpy(array)).softmax(-1).numpy()

    return lambda: T.tensor(predict(next(given)))


@idiom
def loss_read_and_returned(T, s):
    w, x, log = s.parameter(3), in_turn(s, 5, 3), collections.deque(maxlen=8)

    @s.compile
    def loss_of(x):
        loss = ((x - w).tanh() ** 2).sum()
        log.append(loss.item())
        if not math.isfinite(log[-1]):
            raise FloatingPointError
        return loss

    def call():
        w.grad = None
        loss = loss_of(next(x))
        loss.backward()
        return [loss, w.grad]

    return call


@idiom
def given_up_by_an_exception(T, s):
    class Stop(Exception):
        pass

    w, x = s.parameter(3), in_turn(s, 5, 3)

    @s.compile
    def check(x, limit):
        loss = ((x - w) ** 2).sum()
        if loss.item() > limit:
            raise Stop(loss.item())
        return loss.detach()

    def call():
        try:
            return [check(next(x), 3.0)]
        except Stop as stop:
            return [T.tensor(stop.args[0])]

    return call


@idiom
def losses_kept_and_averaged(T, s):
    w, x, kept = s.parameter(3), in_turn(s, 3, 3), []

    @s.compile
    def loss(x):
        return ((x * w).sum() - 1) ** 2

    def call():
        kept.append(loss(next(x)))
        if len(kept) == 4:
            w.grad = None
            (sum(kept) / len(kept)).backward()
            kept.clear()
        return [w.grad if w.grad is not None else w]

    return call


@idiom
def result_kept_every_tenth_time(T, s):
    kept, x = [], in_turn(s, 3, 8)

    @s.compile
    def f(x):
        hidden = x.sin()
        return hidden, (hidden * x).cumsum(0)

    def call(k):
        hidden, sums = f(next(x))
        if k % 10 == 0:
            kept[:] = [hidden]
        return [sums]

    return counted(call)


@idiom
def partial_loss_outside(T, s):
    def loss(w, x, y, *, decay, power=2):
        return ((x @ w - y).abs() ** power).mean() + decay * w.pow(2).sum()

    w, x, y = s.parameter(4), in_turn(s, 3, 6, 4), in_turn(s, 3, 6)
    f = s.compile(functools.partial(loss, decay=0.01))

    def call():
        w.grad = None
        out = f(w, next(x), next(y))
        out.backward()
        return [out, w.grad]

    return call


@idiom
def new_weights_of_a_dictionary(T, s):
    box = [{"w": s.numbers(4, 3).requires_grad_(), "b": s.numbers(3).requires_grad_()}]
    x, y = in_turn(s, 3, 6, 4), itertools.cycle([s.integers(3, 6) for _ in range(4)])

    @s.compile
    def update(params, x, y):
        loss = T.nn.functional.cross_entropy(x @ params["w"] + params["b"], y)
        gradients = T.autograd.grad(loss, list(params.values()))
        pairs = zip(params.items(), gradients)
        return {k: (p - 0.1 * g).detach().requires_grad_() for (k, p), g in pairs}, loss.detach()

    def call():
        box[0], loss = update(box[0], next(x), next(y))
        return [loss, *box[0].values()]

    return call


@idiom
def own_function_of_two_results_outside(T, s):
    class Scaled(T.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            out = a * b
            ctx.save_for_backward(a, b)
            return out, out.sum()

        @staticmethod
        def backward(ctx, of_out, of_sum):
            a, b = ctx.saved_tensors
            return (of_out + of_sum) * b, (of_out + of_sum) * a

    a, b = s.parameter(5), s.parameter(5)

    @s.compile
    def f(a, b):
        out, total = Scaled.apply(a.tanh(), b)
        return (out * total).mean()

    def call():
        a.grad = b.grad = None
        loss = f(a, b)
        loss.backward()
        return [loss, a.grad, b.grad]

    return call


@idiom
def second_derivative_of_two_calls(T, s):
    w, v = s.parameter(3), s.parameter(3)
    before = s.compile(lambda w: w.tanh() * 2)

    @s.compile
    def two(y):
        doubled = y * 2.0
        return (doubled * w).exp().sum(), doubled * v

    def call():
        _, doubled = two(before(w))
        first = T.autograd.grad(doubled.sum(), [w, v], create_graph=True)
        return list(T.autograd.grad(sum(g.square().sum() for g in first), [w, v]))

    return call
