"""The same things said in other words: what Python has for making functions, passing them on and calling them."""

import functools
import itertools
import operator
from collections import deque
from contextlib import contextmanager

from .registry import idiom
from .strangers import counted, in_turn, labels_in_turn, layers


@idiom
def closure_over_what_was_made(T, s):
    def normalizer(data):
        mean, spread = data.mean(0), data.std(0)

        @s.compile
        def normalize(x):
            return (x - mean) / spread

        return normalize

    x = in_turn(s, 3, 4, 3)
    normalize = normalizer(s.numbers(20, 3))
    return lambda: normalize(next(x))


@idiom
def partial_of_a_compiled_function(T, s):
    w, x = s.numbers(4, 3), in_turn(s, 3, 5, 4)

    @s.compile
    def dense(w, bias, x, *, activation):
        return activation(x @ w + bias)

    layer = functools.partial(dense, w, s.numbers(3), activation=T.tanh)
    return lambda: layer(next(x))


@idiom
def compiled_partial(T, s):
    x = in_turn(s, 3, 5)

    def weighted(a, b, x):
        return x * a + x * x * b

    f = s.compile(functools.partial(weighted, 0.3, b=0.2))
    return lambda: f(x=next(x))


@idiom
def generator_inside(T, s):
    x = in_turn(s, 3, 6)

    def powers(x, most):
        term = T.ones_like(x)
        for k in range(1, most):
            term = term * x / k
            yield term

    f = s.compile(lambda x: 1 + sum(powers(x, 6)))
    return lambda: f(next(x))


@idiom
def parameters_zipped_with_gradients(T, s):
    net, x, y = layers(T, s, 3, 5, 2), in_turn(s, 3, 4, 3), in_turn(s, 4, 4, 2)

    @s.compile
    def step(x, y):
        loss = T.nn.functional.mse_loss(net(x), y)
        gradients = T.autograd.grad(loss, tuple(net.parameters()))
        with T.no_grad():
            for p, g in zip(net.parameters(), gradients, strict=True):
                p -= 0.05 * g
        return loss.detach()

    return lambda: [step(next(x), next(y)), *net.parameters()]


@idiom
def object_that_is_called(T, s):
    class Smooth:
        def __init__(self, rate):
            self.rate, self.value = rate, T.zeros(4)

        def __call__(self, x):
            self.value = self.value + self.rate * (x - self.value)
            return self.value

    smooth, x = Smooth(0.1), in_turn(s, 3, 4)
    f = s.compile(smooth)
    return lambda: f(next(x))


@idiom
def keywords_only(T, s):
    x, y = in_turn(s, 3, 5), in_turn(s, 4, 5)

    @s.compile
    def f(*, prediction, target, weight=1.0, reduction="mean"):
        loss = weight * (prediction - target).abs()
        return getattr(loss, reduction)()

    return lambda: f(prediction=next(x), target=next(y), reduction="sum")


@idiom
def class_method_that_is_compiled(T, s):
    class Loss:
        scale = 2.0

        @classmethod
        def of(cls, x, y):
            return cls.scale * (x - y).square().mean()

    x, y = in_turn(s, 3, 5), in_turn(s, 4, 5)
    f = s.compile(Loss.of)
    return lambda: f(next(x), next(y))


@idiom
def static_method_of_a_class(T, s):
    class Ops:
        @staticmethod
        @s.compile
        def gate(a, b):
            return T.sigmoid(a) * b

    a, b = in_turn(s, 3, 5), in_turn(s, 4, 5)
    return lambda: Ops.gate(next(a), next(b))


@idiom
def methods_that_call_methods(T, s):
    class Filter:
        def __init__(self):
            self.mean, self.seen = T.zeros(3), T.zeros(())

        @s.compile
        def surprise(self, x):
            return (x - self.mean).square().sum()

        @s.compile
        def update(self, x):
            surprise = self.surprise(x)
            self.seen = self.seen + 1
            self.mean = self.mean + (x - self.mean) / self.seen
            return surprise

    one, x = Filter(), in_turn(s, 3, 3)
    return lambda: [one.update(next(x)), one.mean]


@idiom
def property_that_computes(T, s):
    class Gaussian:
        def __init__(self):
            self.mean, self.log_scale = s.numbers(4), s.numbers(4) * 0.1

        @property
        def scale(self):
            return self.log_scale.exp()

        @s.compile
        def log_density(self, x):
            return (-0.5 * ((x - self.mean) / self.scale) ** 2 - self.log_scale).sum(-1)

    one, x = Gaussian(), in_turn(s, 3, 5, 4)
    return lambda: one.log_density(next(x))


@idiom
def numbers_of_numpy(T, s):
    x, rates = in_turn(s, 3, 5), itertools.cycle(s.rng.uniform(0.1, 0.9, 4))
    f = s.compile(lambda x, rate: x * float(rate) + x.abs() * (1 - float(rate)))
    return lambda: f(next(x), next(rates))


@idiom
def layers_in_a_loop(T, s):
    ws, bs = [s.numbers(4, 4, scale=0.5) for _ in range(4)], [s.numbers(4) for _ in range(4)]
    x = in_turn(s, 3, 5, 4)

    @s.compile
    def f(x):
        for i, (w, b) in enumerate(zip(ws, bs, strict=True)):
            x = x @ w + b
            if i < len(ws) - 1:
                x = T.relu(x)
        return x

    return lambda: f(next(x))


@idiom
def reduced_over_functions(T, s):
    functions, x = [T.tanh, T.sigmoid, lambda x: x * 2, T.abs], in_turn(s, 3, 6)
    f = s.compile(lambda x: functools.reduce(lambda value, function: function(value), functions, x))
    return lambda: f(next(x))


@idiom
def mapped_over_tensors(T, s):
    parts = [s.numbers(n) for n in (3, 4, 5)]
    f = s.compile(lambda *xs: list(map(T.sum, map(T.square, xs))))
    return lambda: f(*parts)


@idiom
def operators_of_the_module(T, s):
    a, b = in_turn(s, 3, 5), in_turn(s, 4, 5)
    f = s.compile(lambda a, b: operator.truediv(operator.mul(a, b), operator.add(operator.abs(a), 1.0)))
    return lambda: f(next(a), next(b))


@idiom
def two_functions_composed(T, s):
    def then(*functions):
        return lambda x: functools.reduce(lambda x, f: f(x), functions, x)

    x = in_turn(s, 3, 4, 5)
    half, whole = s.compile(then(T.exp, lambda x: x / x.sum(-1, keepdim=True))), s.compile(then(T.log, T.neg))
    return lambda: whole(half(next(x)))


@idiom
def decorated_twice(T, s):
    def logged(function):
        log = deque(maxlen=4)

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            result = function(*args, **kwargs)
            log.append(result)
            return result

        return wrapper

    x = in_turn(s, 3, 5)

    @logged
    @s.compile
    def f(x, power=2):
        return (x**power).sum()

    return lambda: f(next(x), power=3)


@idiom
def own_context_inside(T, s):
    @contextmanager
    def scaled(by):
        yield lambda x: x * by

    x = in_turn(s, 3, 5)

    @s.compile
    def f(x):
        with scaled(0.5) as scale:
            y = scale(x)
        with T.no_grad():
            return y + 1

    return lambda: f(next(x))


@idiom
def gradient_as_a_function(T, s):
    def gradient_of(function):
        def gradient(x):
            x = x.detach().requires_grad_()
            return T.autograd.grad(function(x), x)[0]

        return gradient

    x = in_turn(s, 3, 6)
    f = s.compile(gradient_of(lambda x: (x.sin() * x).sum()))
    return lambda: f(next(x))


@idiom
def per_sample_by_vmap(T, s):
    w, x = s.numbers(3), in_turn(s, 3, 5, 3)
    f = s.compile(T.func.vmap(lambda x: (w * x).sum().tanh()))
    return lambda: f(next(x))


@idiom
def functional_gradient(T, s):
    w, x, y = s.numbers(3), in_turn(s, 3, 5, 3), in_turn(s, 4, 5)
    f = s.compile(T.func.grad(lambda w, x, y: ((x @ w - y) ** 2).mean()))
    return lambda: f(w, next(x), next(y))


@idiom
def called_with_other_weights(T, s):
    net, x = layers(T, s, 3, 4, 2), in_turn(s, 3, 5, 3)
    shadow = {name: p.detach() * 0.5 for name, p in net.named_parameters()}
    f = s.compile(lambda weights, x: T.func.functional_call(net, weights, (x,)))
    return lambda: f(shadow, next(x))


@idiom
def first_of_a_walrus(T, s):
    x = in_turn(s, 3, 5)

    @s.compile
    def f(x):
        if (n := x.numel()) > 3 and (y := x * n).ndim == 1:
            return y - y.mean()
        return x

    return lambda: f(next(x))


@idiom
def cache_by_lru(T, s):
    @functools.cache
    def positions(n):
        return T.arange(n, dtype=T.float32) / n

    x = in_turn(s, 3, 6)
    f = s.compile(lambda x: x + positions(x.shape[-1]).sin())
    return lambda: f(next(x))


@idiom
def counted_by_a_nonlocal(T, s):
    x, count = in_turn(s, 3, 4), 0

    @s.compile
    def f(x):
        nonlocal count
        count += 1
        return x * 2 + 1

    return lambda: f(next(x))


@idiom
def module_from_lambdas(T, s):
    class Lambda(T.nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, *args):
            return self.function(*args)

    net = T.nn.Sequential(Lambda(lambda x: x - x.mean()), Lambda(T.relu), Lambda(lambda x: x.sum(-1)))
    x, f = in_turn(s, 3, 4, 5), s.compile(net)
    return lambda: f(next(x))


@idiom
def one_of_a_registry(T, s):
    registry, x = {}, in_turn(s, 3, 6)

    def register(function):
        registry[function.__name__] = function
        return function

    @register
    def swish(x):
        return x * T.sigmoid(x)

    @register
    def cube(x):
        return x**3

    f = s.compile(lambda x, name: registry[name](x))
    names = itertools.cycle(["swish", "cube"])
    return lambda: f(next(x), next(names))


@idiom
def loss_compiled_beside_the_model(T, s):
    net, x, y = layers(T, s, 3, 4, 2), in_turn(s, 3, 5, 3), labels_in_turn(s, 3, 2, 5)
    model, loss_of = s.compile(net), s.compile(lambda p, y: T.nn.functional.cross_entropy(p, y))

    def call():
        loss = loss_of(model(next(x)), next(y))
        for p in net.parameters():
            p.grad = None
        loss.backward()
        return [loss, *[p.grad for p in net.parameters()]]

    return call


@idiom
def every_second_call_evaluates(T, s):
    net, x = layers(T, s, 3, 4, 2), in_turn(s, 3, 5, 3)
    optimizer = T.optim.SGD(net.parameters(), lr=0.02)

    @s.compile
    def run(x, train):
        loss = net(x).square().mean()
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach()

    return counted(lambda k: [run(next(x), k % 2 == 0), *net.parameters()])


@idiom
def straight_through_of_ones_own(T, s):
    class Sign(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sign()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() < 1)

    w, x = s.parameter(4, 3), in_turn(s, 3, 6, 4)

    @s.compile
    def step(x):
        w.grad = None
        loss = (Sign.apply(x @ w) - 0.5).square().mean()
        loss.backward()
        return loss.detach()

    return lambda: [step(next(x)), w.grad]
