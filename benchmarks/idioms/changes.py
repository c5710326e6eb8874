"""Tensors that are written to: state, buffers, arguments, parts."""

from .registry import idiom


@idiom
def state_in_place(T, s):
    state, x = T.zeros(4, 4), s.numbers(4, 4)

    @s.compile
    def f(x):
        state.mul_(0.9).add_(x, alpha=0.1)
        return state * 2

    return lambda: f(x)


@idiom
def argument_in_place(T, s):
    state, x = T.zeros(4, 4), s.numbers(4, 4)

    @s.compile
    def f(state, x):
        state.mul_(0.5)
        state += x

    def call():
        f(state, x)
        return state

    return call


@idiom
def slice_of_a_new_tensor(T, s):
    x = s.numbers(6, 6)

    @s.compile
    def f(x):
        y = T.zeros(6, 6)
        y[1:-1] = (x[:-2] + x[2:]) / 2
        return y

    return lambda: f(x)


@idiom
def slice_of_state(T, s):
    field = s.numbers(8, 8)

    @s.compile
    def relax():
        field[1:-1, 1:-1] = (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]) / 4

    def call():
        relax()
        return field

    return call


@idiom
def one_element_at_a_time(T, s):
    x = s.numbers(5)

    @s.compile
    def running_sums(x):
        out = T.zeros(5)
        total = 0
        for k in range(5):
            total = total + x[k]
            out[k] = total
        return out

    return lambda: running_sums(x)


@idiom
def ring_buffer(T, s):
    buffer, x, at = T.zeros(8, 3), s.numbers(3), [0]

    @s.compile
    def push(k, x):
        buffer[k] = x
        return buffer.mean(0)

    def call():
        at[0] = (at[0] + 1) % 8
        return push(at[0], x)

    return call


@idiom
def masked_in_place(T, s):
    x = s.numbers(5, 5)

    @s.compile
    def f(x):
        y = x * 2
        y.masked_fill_(y < 0, 0.0)
        return y.clamp_(max=1.5)

    return lambda: f(x)


@idiom
def assignment_by_mask(T, s):
    x = s.numbers(12)

    @s.compile
    def f(x):
        y = x.clone()
        y[y > 1] = 1.0
        return y

    return lambda: f(x)


@idiom
def running_statistics(T, s):
    mean, variance, x = T.zeros(4), T.ones(4), s.numbers(16, 4)

    @s.compile
    def whiten(x):
        with T.no_grad():
            mean.lerp_(x.mean(0), 0.01)
            variance.lerp_(x.var(0), 0.01)
        return (x - mean) / (variance + 1e-5).sqrt()

    return lambda: whiten(x)


@idiom
def copied_into_a_buffer(T, s):
    buffer, x = T.zeros(4, 4), s.numbers(4, 4)

    @s.compile
    def f(x):
        buffer.copy_(x.exp())
        buffer.div_(buffer.sum())

    def call():
        f(x)
        return buffer

    return call


@idiom
def two_buffers_in_turn(T, s):
    buffers, w = [s.numbers(6), T.zeros(6)], s.numbers(6, 6, scale=0.3)
    f = s.compile(lambda source, target: target.copy_(T.tanh(w @ source)))

    def call():
        f(*buffers)
        buffers.reverse()
        return buffers[0]

    return call


@idiom
def written_into_out(T, s):
    a, b, out = s.numbers(4, 4), s.numbers(4, 4), T.zeros(4, 4)

    @s.compile
    def f(a, b):
        T.mul(a, b, out=out)
        return out.sum()

    return lambda: f(a, b)


@idiom
def through_data(T, s):
    w, x = s.parameter(4, 2), s.numbers(8, 4)

    @s.compile
    def step(x):
        loss = (x @ w).square().mean()
        loss.backward()
        w.data.add_(w.grad, alpha=-1e-3)
        w.grad = None
        return loss

    return lambda: step(x)


@idiom
def average_of_weights(T, s):
    model = s.weights(T.nn.Linear(4, 4))
    shadow = [p.detach().clone() for p in model.parameters()]

    @s.compile
    @T.no_grad()
    def average():
        for slow, fast in zip(shadow, model.parameters()):
            slow.mul_(0.99).add_(fast, alpha=0.01)

    def call():
        average()
        return shadow

    return call


@idiom
def weights_kept_in_bounds(T, s):
    layers = s.weights(T.nn.Sequential(T.nn.Linear(4, 4), T.nn.Linear(4, 4)))

    @s.compile
    def project():
        with T.no_grad():
            for p in layers.parameters():
                p.clamp_(-0.5, 0.5)
                p.div_(p.norm().clamp(min=1.0))

    def call():
        project()
        return list(layers.parameters())

    return call


@idiom
def counts_in_a_table(T, s):
    table, at = T.zeros(6), s.integers(6, 10)

    @s.compile
    def count(at):
        table.mul_(0.5)
        table.index_add_(0, at, T.ones(10))
        return table / table.sum()

    return lambda: count(at)
