"""autograd.Function in replayed calls: its Python runs in every call, its ops are replayed. As if undecorated."""

import numpy as np
import pytest
from compiled_twin import assert_same, error_of, leaf
from test_replayed_hooks import departures

import weft
from weft import nn
from weft.autograd import Function, grad
from weft.autograd.function import once_differentiable

N_CALLS, ODD_CALLS = 11, (6, 9)


def clipped_in(library):
    class Clipped(library.autograd.Function):
        @staticmethod
        def forward(ctx, x, limit):
            ctx.save_for_backward(x)
            ctx.limit = limit
            return x.clamp(-limit, limit)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= ctx.limit), None

    return Clipped


Clipped = clipped_in(weft)


class Reversed(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Itself(Reversed):
    @staticmethod
    def forward(ctx, x):
        return x


class Exponential(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Parts(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        largest = (x > y).float()
        ctx.mark_non_differentiable(largest)
        return x * y, x + y, largest

    @staticmethod
    def backward(ctx, of_product, of_sum, _):
        x, y = ctx.saved_tensors
        return of_product * y + of_sum, of_product * x + of_sum if ctx.needs_input_grad[1] else None


class Sparse(Parts):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return Parts.forward(ctx, x, y)

    @staticmethod
    def backward(ctx, of_product, of_sum, _):
        x, y = ctx.saved_tensors
        return (of_product * y, of_product * x) if of_sum is None else (of_sum, of_sum)


class Scaled(Function):
    @staticmethod
    def forward(x, scale=2.0):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad * ctx.scale, None


class Nested(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Exponential.apply(x) + 1

    @staticmethod
    def backward(ctx, g):
        with weft.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            return g * grad(Exponential.apply(x).sum(), x)[0]


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class ByNumPy(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return weft.tensor(np.sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx, grad):
        return grad * weft.tensor(np.cos(ctx.saved_tensors[0].detach().numpy()))


class Reads(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * (2 if grad.sum().item() > 0 else 3)


def of_hooks(x, w, seen):
    y = Exponential.apply(x @ w)
    y.register_hook(lambda g: seen.append(g) or g * 0.5)
    return y * y


USES = {
    "saved input": lambda x, w, seen: Clipped.apply(x @ w, 0.5),
    "of a parameter": lambda x, w, seen: x @ Clipped.apply(w, 0.5),
    "twice": lambda x, w, seen: Clipped.apply(Clipped.apply(x @ w, 0.9) * 2, 0.5),
    "reversed": lambda x, w, seen: Reversed.apply(x @ w).tanh(),
    "itself": lambda x, w, seen: Itself.apply(x @ w).tanh(),
    "itself of a parameter": lambda x, w, seen: x @ Itself.apply(w),
    "saved output": lambda x, w, seen: Exponential.apply(x @ w),
    "several outputs": lambda x, w, seen: sum(Parts.apply(x @ w, (x @ w).sin())),
    "one of several outputs": lambda x, w, seen: Parts.apply(x @ w, (x @ w).sin())[0],
    "of a constant": lambda x, w, seen: Parts.apply(x @ w, x)[1],
    "not materialized": lambda x, w, seen: Sparse.apply(x @ w, (x @ w).sin())[0],
    "the other one": lambda x, w, seen: Sparse.apply(x @ w, (x @ w).sin())[1],
    "context set up": lambda x, w, seen: Scaled.apply(x @ w, 3.0),
    "by keyword": lambda x, w, seen: Scaled.apply(x @ w, scale=3.0),
    "nested": lambda x, w, seen: Nested.apply(x @ w),
    "changed in place": lambda x, w, seen: Doubled.apply((x @ w) * 1),
    "by NumPy": lambda x, w, seen: ByNumPy.apply(x @ w),
    "read in backward": lambda x, w, seen: Reads.apply(x @ w),
    "hooks": of_hooks,
    "without gradients": lambda x, w, seen: Exponential.apply(x) @ w,
    "nodes seen": lambda x, w, seen: seen.append(Clipped.apply(x @ w, 0.5).grad_fn.name()) or x @ w,
}
ENDS = {
    "backward": lambda w, y: y.square().sum().backward(),
    "grad": lambda w, y: grad(y.square().sum(), w),
    "twice": lambda w, y: (y.sum().backward(retain_graph=True), y.square().sum().backward())[0],
    "again and again": lambda w, y: error_of(lambda: [y.sum().backward() for _ in range(2)])[1],
    "differentiated twice": lambda w, y: error_of(
        lambda: grad(grad(y.square().sum(), w, create_graph=True)[0].sum(), w)[0] * 1
    )[0],
    "outside": lambda w, y: y.square().sum(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_uses(use, end):
    def scenario(compile):
        w, x, seen = leaf(4, 4), weft.randn(6, 4), []

        def step(x):
            w.grad = None
            return end(w, use(x, w, seen))

        f = compile(step)
        for _ in range(8):
            result = f(x)
            if isinstance(result, weft.Tensor) and result.requires_grad:
                seen.append(result.grad_fn.name())
                result.backward()
                result = result.detach()
            seen += [result, w.grad]
        return seen

    assert_same(scenario)


@pytest.mark.parametrize("name", [n for n in USES if n not in ("changed in place", "by NumPy", "nodes seen")])
def test_functions_are_replayed(name, monkeypatch):
    w, x, seen = leaf(4, 4), weft.randn(6, 4), []

    @weft.compile
    def step(x):
        w.grad = None
        loss = USES[name](x, w, seen).square().sum()
        loss.backward()
        return loss

    assert departures(lambda: step(x), monkeypatch) == 0


class Odd(Function):
    """Does what it is told, where it is told."""

    do = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Odd.do["forward"](x) if "forward" in Odd.do else x * 2

    @staticmethod
    def backward(ctx, g):
        found = Odd.do["backward"](g, ctx) if "backward" in Odd.do else g * 2
        return found


def _raise(*_):
    raise ZeroDivisionError


def _change(g, ctx):
    ctx.saved_tensors[0].mul_(2)
    return g * 2


ODD = {
    "another op": {"forward": lambda x: x * 2 + 1},
    "another op back": {"backward": lambda g, ctx: (g * 2).sin()},
    "raises": {"forward": _raise},
    "raises back": {"backward": _raise},
    "None": {"backward": lambda g, ctx: None},
    "too many": {"backward": lambda g, ctx: (g, g)},
    "no tensor": {"backward": lambda g, ctx: 3},
    "another shape": {"backward": lambda g, ctx: weft.ones(7)},
    "one row": {"backward": lambda g, ctx: g.sum(0)[None] * 0 + 1},
    "reads": {"backward": lambda g, ctx: g * g.sum().item()},
    "from outside": {"backward": lambda g, ctx: weft.ones(6, 4)},
    "itself": {"forward": lambda x: x},
    "saved is changed": {"backward": _change},
    "two outputs": {"forward": lambda x: (x * 2, x * 3)},
    "no tensor as a result": {"forward": lambda x: 3},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_the_odd_call(odd):
    def scenario(compile):
        w, v, x, seen = leaf(4, 4), leaf(4), weft.randn(6, 4), []

        def step(x):
            w.grad = v.grad = None
            y = Odd.apply((x @ w) * v)
            y = y[0] * y[1] if isinstance(y, tuple) else y
            loss = (y * v).square().sum()
            try:
                loss.backward()
            except ZeroDivisionError:
                return "caught"
            return loss

        f = compile(step)
        for k in range(N_CALLS):
            Odd.do = odd if k in ODD_CALLS else {}
            seen += [error_of(f, x), w.grad, v.grad]
        return seen

    assert_same(scenario)


@pytest.mark.oracle
def test_as_in_torch():
    torch = pytest.importorskip("torch")

    def run(library, compile):
        Own = clipped_in(library)
        w = library.arange(16.0).reshape(4, 4).sub(7).div(16).requires_grad_()
        x = library.arange(24.0).reshape(6, 4).sub(11).div(8)
        seen = []

        def step(x):
            w.grad = None
            hidden = x @ w
            hidden.retain_grad()
            hidden.register_hook(lambda g: seen.append(g.tolist()) or g * 0.5)
            loss = Own.apply(hidden, 0.5).square().sum()
            loss.backward()
            return loss.detach(), hidden.grad

        f = compile(step)
        for _ in range(7):
            seen += [*(x.tolist() for x in f(x)), w.grad.tolist()]
        return seen

    assert run(weft, weft.compile) == run(torch, lambda f: f)


class Remembering(Function):
    """Gives its cotangent as it is, and keeps it from time to time."""

    met, keeps = [], False

    @staticmethod
    def forward(ctx, x, y):
        return x * 2 + y

    @staticmethod
    def backward(ctx, g):
        if Remembering.keeps:
            Remembering.met.append(g)
        return g * 2, g


def keep_the_cotangent(model, w):
    Remembering.keeps = True


def one_gradient_is_there(model, w):
    w.grad = weft.ones(3)


def hook_of_a_leaf(model, w):
    model[0].bias.register_hook(lambda g: g * 0.5)


def hook_after_a_leaf(model, w):
    w.register_post_accumulate_grad_hook(lambda p: Remembering.met.append(p.grad.clone()))


def none_is_wanted(model, w):
    model[0].weight.requires_grad_(False)


def keep_a_result(model, w):
    Remembering.keeps = None


def nothing(model, w):
    pass


@pytest.mark.parametrize(
    "surgery",
    [
        nothing,
        keep_the_cotangent,
        keep_a_result,
        one_gradient_is_there,
        hook_of_a_leaf,
        hook_after_a_leaf,
        none_is_wanted,
    ],
)
def test_leaves_behind_a_function(surgery):
    """They get their gradients one by one, and whoever watches one is told."""

    def scenario(compile):
        Remembering.met, Remembering.keeps = [], False
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        w = weft.randn(3, requires_grad=True)
        optimizer = weft.optim.SGD([*model.parameters(), w], lr=0.1)

        def step(x):
            found = Remembering.apply(model(x), w)
            loss = (found * w).square().sum()
            loss.backward()
            if Remembering.keeps is None:
                Remembering.met.append(found)
            optimizer.step()
            return loss.detach()

        f, seen = compile(step), []
        for k in range(16):
            optimizer.zero_grad()
            if k == 9:
                surgery(model, w)
            seen += [f(weft.randn(4, 3)), *(p.grad for p in (*model.parameters(), w)), w.detach().clone()]
            Remembering.keeps = False if k % 3 == 0 else Remembering.keeps
        return [*seen, *Remembering.met]

    assert_same(scenario)


def test_an_argument_handed_back_is_a_view_of_it():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 0.5

    def step(x):
        return Same.apply(x), x * 2.0

    f, w = weft.compile(step), weft.ones(3, requires_grad=True)
    for _ in range(N_CALLS):
        for x in (w, w * 2.0, (w * 2.0)[:2]):
            back, _ = f(x)
            assert back._is_view() and back._base is (x if x._base is None else x._base)
            with pytest.raises(RuntimeError, match="detach"):
                back.detach_()


class ReadsItsInput(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sin()
        ctx.total = float(x.sum())
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def test_the_order_of_what_a_leaf_gets_where_a_function_leaves_the_call():
    """Its node is made at once, and those of the steps before it had none yet: sums had other last bits."""

    def scenario(compile):
        w, v = leaf(50, 40), leaf(50, 40)

        def step():
            w.grad = None
            first = (w * 0.3).exp()
            second = ReadsItsInput.apply(w)
            loss = (first * second).sum() + (w * v).sum()
            loss.backward()
            return loss.detach()

        f = compile(step)
        return [(f(), w.grad) for _ in range(8)]

    assert_same(scenario)


def test_what_leaves_a_call_with_a_node_and_is_changed_in_it():
    def scenario(compile):
        w, v, x = leaf(3), leaf(3), weft.randn(3)

        def step(x):
            w.grad = None
            first = Parts.apply(x * 0.5, w)[1] + ReadsItsInput.apply(w * 0.5)
            other = ReadsItsInput.apply(w * 2)
            other.mul_(0.5)
            last = Exponential.apply(w)
            last.register_hook(lambda g: g * 2)
            loss = (x * w).sum() + (w * v).sum() + (last * first).sum()
            loss.backward()
            return loss.detach()

        f = compile(step)
        return [(error_of(f, x), w.grad) for _ in range(8)]

    assert_same(scenario)
