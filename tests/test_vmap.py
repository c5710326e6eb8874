"""vmap as people write it, beside PyTorch and beside a loop over the samples: what a function does with its samples,
what it may ask, and what differentiates around it."""

import gc
import threading

import numpy as np
import pytest

import weft
from weft import func, nn
from weft.nn import functional as F
from weft.runtime.batched.batch import FEW, SampleBySample

N = FEW + 4


def numbers(*shape, seed=0, dtype=np.float64):
    return weft.tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def looped(function, *args):
    """What a loop over the first dimensions gives."""
    rows = [function(*row) for row in zip(*args)]
    if isinstance(rows[0], tuple):
        return tuple(weft.stack(column) for column in zip(*rows))
    return weft.stack(rows)


def same(a, b):
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    a, b = a.detach(), b.detach()
    return a.dtype is b.dtype and a.shape == b.shape and np.array_equal(a.numpy(), b.numpy(), equal_nan=True)


def calls_of(function):
    """(the function, how often it has been called: a list)."""
    calls = []

    def counted(*args):
        calls.append(len(args))
        return function(*args)

    return counted, calls


AT_ONCE = {
    "arithmetic": lambda x: (x * 2 - 1) / (x * x + 1) + x.sin().exp(),
    "reductions": lambda x: (x.sum(), x.mean(0), x.var(1), x.amax(0), x.logsumexp(1), x.norm(), x.softmax(1)),
    "parts": lambda x: (x[0], x[:, 1], x[1:, ::2], x[..., None], x.T, x[[1, 0]], x.flip(0), x.diagonal()),
    "shapes": lambda x: (x.reshape(-1), x.unsqueeze(1), x.permute(1, 0), x.repeat(2, 1), x.expand(2, 3, 4)),
    "products": lambda x: (x @ x.T, x @ x[0], x[0] @ x[1], weft.einsum("ij,kj->ik", x, x), weft.outer(x[0], x[1])),
    "joined": lambda x: (weft.cat([x, x[:1]]), weft.stack([x[0], x[1]]), weft.cat([x, weft.ones(1, 4).double()])),
    "order": lambda x: (x.sort(1)[0], x.argsort(0), x.topk(2, 1)[0], x.max(1)[0], x.argmax(1), x.cumsum(0)),
    "where": lambda x: (weft.where(x > 0, x, -x), x.clamp(-1, 1), x.masked_fill(x < 0, 0.0), (x > 0).any(1)),
    "in place": lambda x: x.clone().mul_(2).add_(x).clamp_(min=0),
    "written": lambda x: written(x, weft.zeros_like(x)),
    "written to new": lambda x: written(x, x.new_zeros(3, 4)),
    "activations": lambda x: (F.gelu(x), F.silu(x), F.softplus(x), F.layer_norm(x, (4,)), F.normalize(x)),
    "square matrices": lambda x: inverse_of(x @ x.T + 3 * weft.eye(3, dtype=x.dtype), x[:, 0]),
    "losses": lambda x: (F.mse_loss(x, x * 2), F.cross_entropy(x, weft.tensor([0, 1, 3])), F.huber_loss(x, x * 3)),
}


def written(x, made):
    made[0] = x[1]
    made[0][3].mul_(x[0, 0])
    made[1:, 2] = 7.0
    made[2] += x[0]
    return made


def inverse_of(a, b):
    factor = weft.linalg.cholesky(a)
    return weft.linalg.inv(a), weft.linalg.solve(a, b), factor, weft.logdet(a), weft.linalg.eigvalsh(a)


@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("compiled", [False, True])
def test_functions_of_one_sample_are_called_once(name, compiled):
    x = numbers(N, 3, 4)
    function, calls = calls_of(AT_ONCE[name])
    batched = weft.compile(weft.vmap(function)) if compiled else weft.vmap(function)
    expected = looped(AT_ONCE[name], x)
    for _ in range(3):
        calls.clear()
        assert same(batched(x), expected)
        assert len(calls) == 1 or compiled and not calls


@pytest.mark.parametrize("name", [name for name in AT_ONCE if name != "order"])
def test_gradients_inside_and_outside(name):
    def total(x):
        found = AT_ONCE[name](x)
        found = found if isinstance(found, tuple) else (found,)
        return sum((y.sum() * (k + 1)).cos() for k, y in enumerate(found) if y.is_floating_point())

    x = numbers(N, 3, 4)
    expected = looped(func.grad(total), x)
    function, calls = calls_of(func.grad(total))
    assert same(weft.vmap(function)(x), expected)
    assert len(calls) == 1
    # The sum is that of all samples, whose gradients are each one's own.
    total, calls = calls_of(total)
    outside = func.grad(lambda x: weft.vmap(total)(x).sum())(x)
    leaf = x.clone().requires_grad_()
    weft.vmap(total)(leaf).sum().backward()
    assert len(calls) == 2 and same(leaf.grad, outside)
    assert np.allclose(outside.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


def test_second_derivatives_in_every_order_of_nesting():
    x, w = numbers(N, 3), numbers(4, 3, seed=1)

    def loss(w, x):
        return (w @ x).tanh().pow(2).sum()

    expected = looped(lambda x: func.hessian(loss, 1)(w, x), x)
    for hessian in (
        weft.vmap(func.hessian(loss, 1), (None, 0)),
        weft.vmap(func.jacfwd(func.jacrev(loss, 1), 1), (None, 0)),
        lambda w, x: func.jacrev(lambda x: weft.vmap(func.grad(loss, 1), (None, 0))(w, x).sum(0))(x).movedim(1, 0),
    ):
        found = hessian(w, x)
        assert np.allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


def test_gradients_for_what_all_samples_share_are_each_ones_own():
    x, y, w = numbers(N, 3), numbers(N, seed=1), numbers(3, seed=2)

    def loss(p, x, y):
        return ((p["w"] * x).sum() + p["b"] - y) ** 2

    params = {"w": w, "b": weft.tensor(0.5, dtype=weft.float64)}
    found = weft.vmap(func.grad(loss), (None, 0, 0))(params, x, y)
    assert found["w"].shape == (N, 3) and found["b"].shape == (N,)
    assert same(found, {k: looped(lambda x, y, k=k: func.grad(loss)(params, x, y)[k], x, y) for k in params})


def test_parameters_outside_are_reached_from_inside_of_gradients():
    torch = pytest.importorskip("torch")
    found = []
    for library in (torch, weft):
        make = lambda a, library=library: library.tensor(a.tolist(), dtype=library.float64)  # noqa: E731
        w = make(np.random.default_rng(0).normal(size=(2, 3))).requires_grad_()
        x = make(np.random.default_rng(1).normal(size=(N, 3)))
        slopes = library.func.vmap(library.func.grad(lambda x, w=w: (w @ x).sin().sum()))(x)
        (slopes**2).sum().backward()
        found.append(w.grad.numpy())
    assert np.allclose(*found, rtol=1e-12)


def test_what_asks_for_a_value_is_called_per_sample():
    x = numbers(N, 3)

    def branching(x):
        return x.exp() if x.sum() > 0 else x.cos()

    def by_number(x):
        return x * x.max().item()

    def with_numpy(x):
        return x + weft.tensor(np.sort(x.numpy()))

    for function in (branching, by_number, with_numpy):
        counted, calls = calls_of(function)
        assert same(weft.vmap(counted)(x), looped(function, x))
        assert len(calls) == N + 1


def test_draws_are_not_drawn_again_when_a_value_is_asked_for():
    x = numbers(N, 3)

    def noisy(x):
        noise = weft.rand(3, dtype=weft.float64)
        return x + noise if x[0] > 0 else x - noise

    weft.manual_seed(3)
    found = weft.vmap(noisy, randomness="same")(x)
    weft.manual_seed(3)
    noise = weft.rand(3, dtype=weft.float64)
    assert same(found, weft.stack([row + noise if row[0] > 0 else row - noise for row in x]))


def drawing(x):
    noise = weft.rand(2, dtype=weft.float64) + weft.randn(2, dtype=weft.float64) * weft.bernoulli(x[:2])
    return noise, F.dropout(x, 0.5), weft.randint(10, (3,)), weft.zeros_like(x).normal_(), weft.normal(x, 2.0)


@pytest.mark.parametrize("chunk_size", [None, 7])
def test_samples_draw_numbers_of_their_own(chunk_size):
    x = weft.ones(200, 3, dtype=weft.float64) / 2
    vmapped = weft.vmap(drawing, randomness="different", chunk_size=chunk_size)
    counted, calls = calls_of(drawing)
    weft.manual_seed(1)
    found = weft.vmap(counted, randomness="different", chunk_size=chunk_size)(x)
    assert len(calls) == (1 if chunk_size is None else 29)
    for y in found:
        assert len({tuple(row) for row in y.tolist()}) > 5
    assert abs(found[3].mean()) < 0.15 and abs(found[3].std() - 1) < 0.15 and abs(found[4].mean() - 0.5) < 0.3
    compiled = weft.compile(vmapped)
    for _ in range(4):
        weft.manual_seed(1)
        assert same(compiled(x), found)
    # Levels inside each other: those of both differ, or only the inner ones do.
    inner = weft.vmap(lambda x: x + weft.rand((), dtype=weft.float64), randomness="different")
    both = weft.vmap(inner, randomness="different")(weft.zeros(N, N, dtype=weft.float64))
    assert len(set(both.reshape(-1).tolist())) == N * N
    rows = weft.vmap(inner, randomness="same")(weft.zeros(N, N, dtype=weft.float64))
    assert len(set(rows.reshape(-1).tolist())) == N and same(rows[0], rows[-1])
    assert weft.rand(2).shape == (2,)


def test_arguments_that_are_changed_are_changed_once():
    x = numbers(N, 3)
    before = x.clone()

    def changing(x):
        x.add_(1)
        return x.sum() if x[0] > 0 else x.prod()

    found = weft.vmap(changing)(x)
    assert same(x, before + 1)
    assert same(found, weft.stack([row.sum() if row[0] > 0 else row.prod() for row in before + 1]))


def test_own_functions_are_differentiated_from_outside():
    class Cube(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    x = numbers(N, 3).requires_grad_()
    weft.vmap(lambda x: Cube.apply(x).sum())(x).sum().backward()
    assert same(x.grad, (3 * x.detach() ** 2))


def test_types_of_samples_without_dimensions_decide_nothing():
    one, three = numbers(N), numbers(3, dtype=np.float32)
    ints = weft.arange(N)
    for function, batch in (
        (lambda a: a * three, one),
        (lambda a: a + 1, ints),
        (lambda a: a / 2 + three, ints),
        (lambda a: weft.where(a > 0, a, three), one),
        (lambda a: F.mse_loss(three, three * a), one),
    ):
        assert same(weft.vmap(function)(batch), looped(function, batch))


def test_trees_dimensions_and_shared_results():
    x = numbers(3, N, 2)

    def function(d, k):
        return {"a": d["x"] * k, "b": (d["s"] * 2, d["x"].sum())}

    dims = ({"x": 1, "s": None}, 0)
    found = weft.vmap(function, dims, out_dims={"a": 1, "b": (0, 0)})({"x": x, "s": weft.ones(2)}, weft.arange(N))
    rows = [function({"x": x[:, k], "s": weft.ones(2)}, weft.tensor(k)) for k in range(N)]
    assert same(found["a"], weft.stack([row["a"] for row in rows], 1))
    assert same(found["b"][0], weft.stack([row["b"][0] for row in rows]))
    assert same(found["b"][1], weft.stack([row["b"][1] for row in rows]))
    shared, varied = weft.vmap(lambda x: (weft.ones(2), x), in_dims=1, out_dims=(None, 0))(x)
    assert same(shared, weft.ones(2)) and same(varied, x.movedim(1, 0))
    with pytest.raises(ValueError, match="can not return a BatchedTensor when out_dim is None"):
        weft.vmap(lambda x: x * 2, in_dims=1, out_dims=None)(x)


@pytest.mark.parametrize("chunk_size", [1, 5, N, 100])
def test_chunks_are_parts_of_the_same(chunk_size):
    x = numbers(2, N, 3)

    def function(x):
        return x.sin().sum(), x * 2

    counted, calls = calls_of(function)
    found = weft.vmap(counted, in_dims=1, out_dims=(0, 1), chunk_size=chunk_size)(x)
    assert same(found, weft.vmap(function, in_dims=1, out_dims=(0, 1))(x))
    assert len(calls) == -(-N // chunk_size)
    assert same(
        func.jacrev(lambda x: x.sin() @ x.T, chunk_size=3)(x[:, 0]), func.jacrev(lambda x: x.sin() @ x.T)(x[:, 0])
    )


def test_models_of_an_ensemble():
    models = [nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)) for _ in range(N)]
    params, buffers = func.stack_module_state(models)
    x = numbers(7, 3, dtype=np.float32)
    found = weft.vmap(lambda p, b: func.functional_call(models[0], (p, b), (x,)))(params, buffers)
    assert same(found, weft.stack([m(x) for m in models]))
    loss = found.pow(2).sum()
    loss.backward()
    gradient = params["0.weight"].grad
    (models[3](x).pow(2).sum()).backward()
    assert same(gradient[3], models[3][0].weight.grad)


def test_images_with_a_filter_each():
    images, filters = numbers(N, 2, 3, 6, 5), numbers(N, 4, 3, 3, 2, seed=1)

    def function(image, filter):
        return F.max_pool2d(F.conv2d(image, filter, padding=1).relu(), 2)

    def slopes(image, filter):
        return func.grad(lambda i, f: function(i, f).sin().sum(), (0, 1))(image, filter)

    for f in (function, slopes):
        counted, calls = calls_of(f)
        assert same(weft.vmap(counted)(images, filters), looped(f, images, filters)) and len(calls) == 1


def test_a_tensor_of_one_sample_that_was_kept_says_so():
    kept = []
    weft.vmap(lambda x: kept.append(x) or x)(numbers(N, 2))
    with pytest.raises(RuntimeError, match="after vmap was done"):
        kept[0].sum().item()
    with pytest.raises(RuntimeError, match="after vmap was done"):
        kept[0].numpy()


def test_what_is_changed_after_it_was_saved_is_refused():
    x = numbers(N, 3)

    def function(x):
        y = x * 1.0

        def squares(z):
            saved = z * y
            y.add_(1)
            return saved.sum()

        return func.grad(squares)(x)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        weft.vmap(function)(x)


def test_errors_say_shapes_of_one_sample():
    with pytest.raises(weft.OpError, match=r"\(3,\) and \(4,\)"):
        weft.vmap(lambda x: x + weft.ones(4))(numbers(N, 3))


def test_levels_end_with_errors_and_other_threads_have_none():
    x, seen = numbers(N, 3), []

    def failing(x):
        thread = threading.Thread(target=lambda: seen.append((weft.ones(2) * 2).sum().item()))
        thread.start()
        thread.join()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        weft.vmap(failing)(x)
    assert seen == [4.0] and same(func.grad(lambda x: (x * x).sum())(x), 2 * x)
    # A user's `except Exception` is not for what ends a call at once.
    assert not issubclass(SampleBySample, Exception)


def test_rows_of_cotangents_are_one_pass():
    x, rows = numbers(N, 3).requires_grad_(), numbers(N + 3, N, seed=1)
    y = (x.sin() @ numbers(3, seed=2)).exp()
    (found,) = weft.autograd.grad(y, x, rows, is_grads_batched=True, retain_graph=True)
    expected = [weft.autograd.grad(y, x, row, retain_graph=True)[0] for row in rows]
    assert same(found, weft.stack(expected))
    weft.autograd.grad(y, x, rows, is_grads_batched=True)
    with pytest.raises(RuntimeError, match="second time"):
        weft.autograd.grad(y, x, rows, is_grads_batched=True)


def test_nothing_stays_behind():
    x, w = numbers(N, 3), numbers(3, seed=1)
    function = weft.vmap(func.grad(lambda x, w: (x * w).sin().sum()), (0, None))
    function(x, w)
    gc.collect()
    before = len([o for o in gc.get_objects() if type(o) is weft.Tensor])
    for _ in range(5):
        function(x, w)
    gc.collect()
    assert len([o for o in gc.get_objects() if type(o) is weft.Tensor]) <= before


@pytest.mark.oracle
@pytest.mark.parametrize("name", AT_ONCE)
def test_beside_torch(name):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(N, 3, 4))
    text = AT_ONCE[name]
    mine = weft.vmap(text)(weft.tensor(x))

    class Names:
        """The same function with PyTorch's names."""

    scope = {**text.__globals__, "weft": torch, "F": torch.nn.functional}
    for helper in ("written", "inverse_of"):
        function = globals()[helper]
        scope[helper] = type(function)(function.__code__, scope)
    theirs = torch.vmap(type(text)(text.__code__, scope))(torch.tensor(x))
    mine, theirs = (found if isinstance(found, tuple) else (found,) for found in (mine, theirs))
    for a, b in zip(mine, theirs, strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)
