"""autograd.Functions of several outputs that do nothing but ops, which compiled calls take as ops: as undecorated."""

import numpy as np
import pytest
from compiled_twin import assert_same, error_of, leaf, runs_any

import weft
from weft.autograd import Function, grad
from weft.runtime.replay.native import native_code_is_used

N_CALLS, ODD_CALLS = 13, (6, 9)


class SineAndCosine(Function):
    """Saves its outputs."""

    @staticmethod
    def forward(ctx, x, k):
        sine, cosine = weft.sin(k * x), weft.cos(k * x)
        ctx.save_for_backward(sine, cosine)
        ctx.k = k
        return sine, cosine

    @staticmethod
    def backward(ctx, of_sine, of_cosine):
        sine, cosine = ctx.saved_tensors
        return ctx.k * (of_sine * cosine - of_cosine * sine), None


class Scaled(Function):
    """Outputs of two shapes, of two inputs."""

    @staticmethod
    def forward(ctx, a, b):
        out = a * b
        ctx.save_for_backward(a, b)
        return out, out.sum()

    @staticmethod
    def backward(ctx, of_out, of_sum):
        a, b = ctx.saved_tensors
        return (of_out + of_sum) * b, (of_out + of_sum) * a


class Largest(Function):
    """Values and places."""

    @staticmethod
    def forward(ctx, x):
        values, places = x.max(1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(x, values)
        return values, places

    @staticmethod
    def backward(ctx, of_values, of_places):
        x, values = ctx.saved_tensors
        return (x == values.unsqueeze(1)) * of_values.unsqueeze(1) + of_places.unsqueeze(1)


class Marked(Function):
    """An output of floats that has no gradient, between two that have."""

    @staticmethod
    def forward(ctx, x):
        a, b, c = x * 2, x.sign(), x * 3
        ctx.mark_non_differentiable(b)
        return a, b, c

    @staticmethod
    def backward(ctx, of_a, of_b, of_c):
        return of_a * 2 + of_b + of_c * 3


class Zeros(Function):
    """Whether a gradient is 0 or -0 is seen after a division."""

    @staticmethod
    def forward(ctx, x):
        return x * 1, x * 2, x * 3

    @staticmethod
    def backward(ctx, of_a, of_b, of_c):
        return (1 / of_a).clamp(-9, 9) + 10 * (1 / of_b).clamp(-9, 9) + 100 * (1 / of_c).clamp(-9, 9)


class Halves(Function):
    """Any number of outputs, some of which may have no elements."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        return tuple([x[k::n] * (k + 1) for k in range(n)])

    @staticmethod
    def backward(ctx, *gradients):
        total = sum([g.sum(0) * (k + 1) for k, g in enumerate(gradients)])
        return total.expand(3, total.shape[0]), None


class TwoTypes(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x.double() * 3

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h.float() * 3


class Missing(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        if h is None:
            return g * 2
        return h * 3 if g is None else g * 2 + h * 3


class SetUp(Function):
    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, g, h):
        x, y, total = ctx.saved_tensors
        return g * y + h * total, g * x + h


class OneOfATuple(Function):
    @staticmethod
    def forward(ctx, x):
        return (x.exp(),)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class AndNothing(Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp(), None

    @staticmethod
    def backward(ctx, g, nothing):
        return g * 2


class Given(Function):
    """One of its outputs is its input."""

    @staticmethod
    def forward(ctx, x):
        return x, x * 2

    @staticmethod
    def backward(ctx, g, h):
        return g + h * 2


class Shown(Function):
    """One of its outputs is a view."""

    @staticmethod
    def forward(ctx, x):
        return x.t(), x * 2

    @staticmethod
    def backward(ctx, g, h):
        return g.t() + h * 2


def _both(s, c):
    return s * c + s.square()


def _changed(outputs, which, k):
    if k in ODD_CALLS:
        outputs[which].mul_(2)
    return outputs


USES = {
    "both": lambda x, w, b, k: _both(*SineAndCosine.apply(x @ w, 2.0)),
    "by another number each time": lambda x, w, b, k: _both(*SineAndCosine.apply(x @ w, 0.1 * (k + 1))),
    "the first": lambda x, w, b, k: SineAndCosine.apply(x @ w, 2.0)[0],
    "the last": lambda x, w, b, k: SineAndCosine.apply(x @ w, 2.0)[1] * 2,
    "twice": lambda x, w, b, k: _both(*SineAndCosine.apply(SineAndCosine.apply(x @ w, 1)[1], 2.0)),
    "many uses of each": lambda x, w, b, k: sum(
        [s * n + c.square() * s for n in range(1, 4) for s, c in [SineAndCosine.apply(x @ w, 0.5)]]
    ),
    "many uses of one": lambda x, w, b, k: (lambda s, c: s * c + s.exp() * s + c.square() * 3 + c * s)(
        *SineAndCosine.apply(x @ w, 0.5)
    ),
    "shapes": lambda x, w, b, k: (lambda out, total: out * total)(*Scaled.apply(x @ w, b)),
    "of a parameter": lambda x, w, b, k: (lambda out, total: x @ out + total)(*Scaled.apply(w, b)),
    "a sum alone": lambda x, w, b, k: Scaled.apply(x @ w, b)[1],
    "places": lambda x, w, b, k: (lambda v, at: v * at + b.sum())(*Largest.apply(x @ w)),
    "marked": lambda x, w, b, k: (lambda p, q, r: p * q + r.sin())(*Marked.apply(x @ w)),
    "a marked one alone": lambda x, w, b, k: Marked.apply(x @ w)[1] * b,
    "signs of zeros": lambda x, w, b, k: (lambda p, q, r: p * -0.0 + q * 0.0 * b)(*Zeros.apply(x @ w)),
    "signs of zeros in sums": lambda x, w, b, k: (lambda p, q, r: p * -0.0 + p.detach() + r * -0.0 + r * -0.0)(
        *Zeros.apply(x @ w)
    ),
    "no elements": lambda x, w, b, k: sum([part.sum() for part in Halves.apply((x @ w)[:3], 4)]) + b,
    "others each time": lambda x, w, b, k: sum([p.sum() for p in Halves.apply((x @ w)[:3], 1 + k % 3)]) * b,
    "two types": lambda x, w, b, k: (lambda p, q: p * q.float())(*TwoTypes.apply(x @ w)),
    "not materialized": lambda x, w, b, k: Missing.apply(x @ w)[k in ODD_CALLS],
    "set up": lambda x, w, b, k: (lambda p, q: p.sin() * q)(*SetUp.apply(x @ w, b)),
    "one twice": lambda x, w, b, k: (lambda p, q: x @ p + q.sum())(*SetUp.apply(w, w)),
    "one of a tuple": lambda x, w, b, k: OneOfATuple.apply(x @ w)[0],
    "and nothing": lambda x, w, b, k: AndNothing.apply(x @ w)[0],
    "an input": lambda x, w, b, k: (lambda p, q: p * q)(*Given.apply(x @ w)),
    "a view": lambda x, w, b, k: (lambda p, q: p.t() * q)(*Shown.apply(x @ w)),
    "the first changed": lambda x, w, b, k: _both(*_changed(SineAndCosine.apply(x @ w, 2.0), 0, k)),
    "the other changed": lambda x, w, b, k: _changed(SineAndCosine.apply(x @ w, 2.0), 1, k)[0],
    "one changed that was not saved": lambda x, w, b, k: _both(*_changed(Scaled.apply(x @ w, b), 0, k)),
    "hooked": lambda x, w, b, k: _both(*_hooked(SineAndCosine.apply(x @ w, 2.0))),
    "hooked in the odd calls": lambda x, w, b, k: _both(
        *(_hooked if k in ODD_CALLS else tuple)(SineAndCosine.apply(x @ w, 2.0))
    ),
    "read before": lambda x, w, b, k: _both(*SineAndCosine.apply(x @ w, 2.0 if (x @ w).sum().item() < 99 else 1.0)),
    "read after": lambda x, w, b, k: (lambda s, c: s * c.sum().item() + c)(*SineAndCosine.apply(x @ w, 2.0)),
    "without gradients now and then": lambda x, w, b, k: _without(k, lambda: SineAndCosine.apply(x @ w, 2.0)[0]) * b,
    "other steps then": lambda x, w, b, k: SineAndCosine.apply(x @ w, 2.0)[k in ODD_CALLS].sin(),
    "by index": lambda x, w, b, k: SineAndCosine.apply(x @ w, 2.0)[0][k % 3] * b,
}  # fmt: skip


def _without(k, function):
    with weft.set_grad_enabled(k % 3 > 0):
        return function()


def _hooked(outputs):
    outputs[0].register_hook(lambda g: g * 0.5)
    return outputs


ENDS = {
    "backward": lambda y, w, b: y.square().sum().backward(),
    "grad": lambda y, w, b: grad(y.square().sum(), w, allow_unused=True),
    "twice": lambda y, w, b: [y.sum().backward(retain_graph=True), y.square().sum().backward()][0],
    "again": lambda y, w, b: [y.sum().backward(), y.sum().backward()][0],
    "second": lambda y, w, b: grad(grad(y.square().sum(), w, create_graph=True)[0].square().sum() + y.sum(), [w, b],
                                   allow_unused=True),
    "outside": lambda y, w, b: y.square().sum(),
    "a result": lambda y, w, b: (y, y.detach().sum()),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_uses(use, end):
    def scenario(compile):
        w, b, x, seen = leaf(4, 4), leaf(4), weft.randn(6, 4), []

        def step(x, k):
            w.grad = b.grad = None
            return end(use(x, w, b, k), w, b)

        f = compile(step)
        for k in range(N_CALLS):
            try:
                result = f(x, k)
            except (RuntimeError, ValueError) as error:
                seen += [type(error).__name__, w.grad, b.grad]
                continue
            first = result[0] if isinstance(result, tuple) else result
            if isinstance(first, weft.Tensor) and first.requires_grad and first.grad_fn is not None:
                seen.append(first.grad_fn.name())
                seen.append(error_of(first.sum().backward, retain_graph=True))
                seen.append(error_of(_second, first, w))
                seen.append(error_of(first.sum().backward))
                seen.append(error_of(first.sum().backward))
            seen += [result, w.grad, b.grad]
        return seen

    assert_same(scenario)


def _second(y, w):
    (slope,) = grad(y.square().sum(), w, create_graph=True)
    return grad(slope.square().sum() + y.exp().sum(), w, retain_graph=True)


def _names(node):
    """Of a node and all that are behind it."""
    return node and (node.name(), [_names(behind) for behind, _ in node.next_functions])


@pytest.mark.parametrize("result", ["both", "the first", "the last", "a marked one"])
def test_outputs_are_results(result):
    def scenario(compile):
        w, x, seen = leaf(4, 4), weft.randn(6, 4), []

        def step(x):
            if result == "a marked one":
                return Marked.apply(x @ w)
            s, c = SineAndCosine.apply(x @ w, 2.0)
            return {"both": (s, c), "the first": s, "the last": c}[result]

        f = compile(step)
        for k in range(N_CALLS):
            w.grad = None
            found = f(x)
            outputs = [y for y in (found if isinstance(found, tuple) else [found]) if y.requires_grad]
            seen += [found, [y.requires_grad for y in outputs], [_names(y.grad_fn) for y in outputs]]
            if k % 4 == 2:
                outputs[0].register_hook(lambda g: g * 2)
            if k % 4 == 3:
                outputs[-1].retain_grad()
            loss = sum([(y * (n + 1)).sin().sum() for n, y in enumerate(outputs)])
            seen.append(grad(loss, outputs, retain_graph=True))
            loss.backward()
            seen += [w.grad, outputs[-1].grad if k % 4 == 3 else None]
        return seen

    assert_same(scenario)


def test_gradients_of_outputs_inside():
    def scenario(compile):
        w, x, seen = leaf(4, 4), weft.randn(6, 4), []

        def step(x):
            s, c = SineAndCosine.apply(x @ w, 2.0)
            loss = (s * c).exp().sum() + s.sum()
            return (*grad(loss, [s, c, w], retain_graph=True), *grad(loss, [c]))

        f = compile(step)
        for _ in range(N_CALLS):
            seen += [f(x)]
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 7, 33])
def test_sizes_and_types(n, dtype):
    def scenario(compile):
        w, seen = weft.randn(4, n, dtype=getattr(weft, dtype)).requires_grad_(), []

        def step(x):
            w.grad = None
            loss = _both(*SineAndCosine.apply(x @ w, 2)).sum()
            loss.backward()
            return loss

        f = compile(step)
        for k in range(N_CALLS):
            seen += [f(weft.randn(2 + k % 5, 4, dtype=w.dtype)), w.grad]
        return seen

    assert_same(scenario)


@pytest.mark.oracle
def test_as_in_pytorch():
    torch = pytest.importorskip("torch")

    def numbers(lib, compile):
        class Polar(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                r, angle = lib.sqrt(x * x + y * y), lib.atan2(y, x)
                ctx.save_for_backward(x, y, r)
                return r, angle

            @staticmethod
            def backward(ctx, of_r, of_angle):
                x, y, r = ctx.saved_tensors
                return of_r * x / r - of_angle * y / r**2, of_r * y / r + of_angle * x / r**2

        w = lib.tensor([[0.3, -0.7, 1.1], [2.0, 0.4, -0.9]], dtype=lib.float64, requires_grad=True)

        def step(k):
            w.grad = None
            r, angle = Polar.apply(w[0] * k, w[1] + 0.1)
            loss = (r * angle).sum() + r.prod()
            (slope,) = lib.autograd.grad(loss, w, create_graph=True)
            (slope.square().sum() + angle.sum()).backward()
            return loss

        f = compile(step)
        return [part.detach().numpy().copy() for k in range(1, N_CALLS) for part in (f(float(k)), w.grad)]

    ours, theirs = numbers(weft, weft.compile), numbers(torch, lambda f: f)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-10)


class Counted(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin(), x.sum()

    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.saved_tensors[0].cos() + h


@pytest.mark.skipif(not native_code_is_used(), reason="native code is not used")
def test_python_need_not_run():
    w, x = leaf(4, 4), weft.randn(6, 4)

    @weft.compile
    def step(x):
        w.grad = None
        sine, total = Counted.apply(x @ w)
        loss = sine.sum() * total
        loss.backward()
        return loss

    for _ in range(8):
        step(x)
    assert not runs_any(lambda: step(x), Counted.forward, Counted.backward)
    assert "fast path: yes" in step.explain() and step.breaks == ()
