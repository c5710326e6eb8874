"""Functions that go to their ops in native code do what they do in Python (native_functions.py)."""

import inspect
import warnings

import numpy as np
import pytest
from native_functions_parts import TIMES, have_native_code, numbers, running_in_python

import weft
import weft.nn.functional as F
from weft import kinds
from weft.runtime.replay import eager_native, native, native_functions, noting
from weft.runtime.state import marks

functions_are_native = pytest.fixture(autouse=True)(have_native_code)
in_python = pytest.fixture(running_in_python)

INDEX = weft.tensor([2, 0, 1])
SQUARE = weft.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 0]])
CALLS = {
    "pad": lambda x: F.pad(x, (1, 2)),
    "pad a list": lambda x: F.pad(x, [1, 0, 0, 1], value=2.5),
    "pad, reflected": lambda x: F.pad(x[None, None], (1, 1, 1, 1), mode="reflect"),
    "index_fill": lambda x: x.index_fill(0, INDEX[:2], 1.5),
    "index_copy": lambda x: x.index_copy(1, INDEX, x * 2),
    "index_put": lambda x: x.index_put((INDEX, INDEX), x[0]),
    "index_put in order": lambda x: x.index_put((weft.tensor([0, 0, 1]),), x, accumulate=False),
    "index_put, added": lambda x: x.index_put((INDEX, weft.tensor([1, 1, 1])), x[1], accumulate=True),
    "put": lambda x: x.put(INDEX, x[0]),
    "take": lambda x: weft.take(x, SQUARE),
    "take_along_dim": lambda x: weft.take_along_dim(x, SQUARE, dim=1),
    "scatter": lambda x: x.scatter(1, SQUARE, x * 3),
    "scatter a number": lambda x: x.scatter(0, SQUARE[:1], 4.0),
    "scatter, reduced": lambda x: x.scatter(0, SQUARE, x, reduce="multiply"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 9, 1, 1), 3),
    "unfold": lambda x: F.unfold(x[None, None], 2, padding=1),
    "fold": lambda x: F.fold(x.reshape(1, 9, 1).expand(1, 9, 4), (4, 4), 3),
    "avg_pool2d": lambda x: F.avg_pool2d(x[None, None], 2, 1),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2.0),
    "cross": lambda x: weft.cross(x, x.flip(0), dim=1),
    "kron": lambda x: weft.kron(x, x),
    "tensordot": lambda x: weft.tensordot(x, x, dims=([1], [0])),
    "block_diag": lambda x: weft.block_diag(x, x[:1]),
    "diag_embed": lambda x: weft.diag_embed(x, 1),
    "rot90": lambda x: weft.rot90(x, 1, (0, 1)),
    "tile": lambda x: x.tile((2, 1)),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x + 1, dim=1),
    "normalize": lambda x: F.normalize(x, dim=0),
    "cov": lambda x: weft.cov(x),
    "broadcast_tensors": lambda x: weft.broadcast_tensors(x, x[0])[1],
    "meshgrid": lambda x: weft.meshgrid(x[0], x[1], indexing="ij")[0],
    "aminmax": lambda x: weft.aminmax(x).max,
    "quantile": lambda x: x.quantile(0.25, dim=1),
    "grid_sample": lambda x: F.grid_sample(x[None, None], x[None, None, :, :2].tanh()),
    "grid_sample, bicubic": lambda x: F.grid_sample(
        x[None, None], x[None, None, :, :2].tanh(), mode="bicubic", align_corners=True
    ),
    "an index and a number": lambda x: x[INDEX, 1],
    "a list": lambda x: x[[0, -1]],
    "a slice behind": lambda x: x[weft.tensor([-1, 0]), 1:],
    "something new between": lambda x: x[INDEX, None, ..., SQUARE[0]],
    "a number of no dimensions": lambda x: x[weft.tensor(1), INDEX],
    "two indices": lambda x: x[:, INDEX][SQUARE, INDEX],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "split": lambda x: weft.split(x, [1, 2])[1],
    "unbind": lambda x: x.unbind(1)[2],
    "iterated": lambda x: list(x)[1],
    "topk": lambda x: x.topk(2).values,
    "sort": lambda x: weft.sort(x, 0, descending=True).values,
    "diff": lambda x: x.diff(2, 0, prepend=x[:1]),
    "diag": lambda x: weft.diag(x, 1),
    "diag of a vector": lambda x: weft.diag(x[0], -1),
    "hstack": lambda x: weft.hstack([x[0], x[1]]),
    "vstack": lambda x: weft.vstack((x[0], x)),
    "count_nonzero": lambda x: (x > 0).count_nonzero(dim=1) * x,
    "a mask of its shape": lambda x: x.masked_select(x > 0),
}


def placed(x, key, value):
    x[key] = value
    return x


IN_PLACE = {
    "index_fill_": lambda x: x.index_fill_(0, INDEX[1:], 0.5),
    "index_copy_": lambda x: x.index_copy_(0, INDEX, x * 2),
    "index_put_": lambda x: x.index_put_((INDEX, INDEX), x[0] * 2),
    "put_": lambda x: x.put_(INDEX, x[0] + 1),
    "scatter_": lambda x: x.scatter_(1, SQUARE, x + 1),
    "scatter_ a number": lambda x: x.scatter_(1, SQUARE[:, :2], 3.0),
    "rows": lambda x: placed(x, INDEX[:2], x[0] * 5),
    "rows, a number": lambda x: placed(x, [2, 0], 7),
    "elements": lambda x: placed(x, (INDEX, SQUARE[1]), x[1] + 1),
    "columns": lambda x: placed(x, (slice(None), INDEX), x * 2),
    "of a row": lambda x: placed(x, (INDEX, 1), 2.5),
    "a slice": lambda x: placed(x, (slice(0, 2), INDEX), 1.0),
    "where a mask says": lambda x: placed(x, x > 0, 0.25),
    "a whole number where a mask says": lambda x: placed(x, x > 0, 2),
    "rows that a mask says": lambda x: placed(x, x[:, 0] > 0, 0.5),
    "rows that a mask says, a tensor": lambda x: placed(x, x[:, 0] > 0, x[0] * 2),
    "between slices": lambda x: placed(x, (slice(1, None), None, INDEX), 3.0),
    "at a number": lambda x: placed(x, weft.tensor(-2), 3.0),
    "at a number, a row": lambda x: placed(x, weft.tensor(1), x[0] * 2),
    "an element at numbers": lambda x: placed(x, (weft.tensor(1), weft.tensor(2)), 3.0),
    "a tensor of another type": lambda x: placed(x, INDEX, weft.tensor([1, 2, 3])),
    "masked_scatter_": lambda x: x.masked_scatter_(x > 0, x * 2),
}


def outcome(function, x):
    found = function(x)
    node = None if found.grad_fn is None else found.grad_fn.name()
    base = None if found._base is None else "x" if found._base is x else "of x"
    return found.dtype, found.shape, repr(found.tolist()), found.requires_grad, node, base, found is x


@pytest.mark.parametrize("name", CALLS)
def test_answers_are_what_functions_return(name, in_python):
    for x in (numbers(3, 3), numbers(3, 3).double(), numbers(3, 3).t(), numbers(3, 3).requires_grad_()):
        wanted = in_python(outcome, CALLS[name], x)
        for _ in range(TIMES):
            assert outcome(CALLS[name], x) == wanted


@pytest.mark.parametrize("name", CALLS)
def test_gradients(name, in_python):
    def gradient(x):
        x.grad = None
        (CALLS[name](x * 1) ** 2).sum().backward()
        return x.grad.tolist()

    x = numbers(3, 3).requires_grad_()
    wanted = in_python(gradient, x)
    for _ in range(TIMES):
        assert gradient(x) == wanted
    with weft.no_grad():
        assert not CALLS[name](x).requires_grad


@pytest.mark.parametrize("name", IN_PLACE)
def test_changes_in_place(name, in_python):
    def changed(x, leaf):
        returned = IN_PLACE[name](x)
        assert returned is x
        return x.tolist(), x._version, None if leaf is None else weft.autograd.grad(x.sum(), leaf)[0].tolist()

    for leaf in (None, numbers(3, 3).requires_grad_()):
        made = (lambda: numbers(3, 3)) if leaf is None else (lambda leaf=leaf: leaf * 1)  # noqa: E731
        wanted = in_python(changed, made(), leaf)
        for _ in range(TIMES):
            assert changed(made(), leaf) == wanted


def test_arguments_that_are_equal_and_of_another_kind_are_told_apart():
    x, seen = weft.arange(9).reshape(3, 3), []
    for _ in range(TIMES):
        seen.append([F.pad(x, (1, 0), value=v).dtype for v in (1, True)])
        assert F.pad(x, (1, 0)).shape == (3, 4) and F.pad(x, (0, 1), "constant", 3)[0, 3].item() == 3
        assert F.pad(x, (1, 0))[0, 0].item() == 0
        assert F.pad(x, pad=(0, 2)).shape == (3, 5) and F.pad(input=x, pad=(0, 3)).shape == (3, 6)
    assert seen == seen[:1] * TIMES


def test_the_default_type_is_part_of_a_call():
    x, v = weft.arange(3), weft.tensor([1, 2, 3])
    wanted = {}
    for default in (weft.float32, weft.float64) * TIMES:
        weft.set_default_dtype(default)
        try:
            found = F.cosine_similarity(x.float(), v.float(), dim=0), weft.quantile(x.to(default), 0.5), v.take(x)
        finally:
            weft.set_default_dtype(weft.float32)
        assert wanted.setdefault(default, [y.dtype for y in found]) == [y.dtype for y in found]


def _ops_called(function):
    before = eager_native.taken("calls_taken")
    function()
    return eager_native.taken("calls_taken") - before


OF_TENSORS = {
    "cross": (weft.linalg.cross, (3, 3), 2),
    "cosine_similarity": (F.cosine_similarity, (3, 4), 2),
    "normalize": (F.normalize, (3, 4), 1),
    "cov": (weft.cov, (3, 4), 1),
}


@pytest.mark.skipif(native.layout() is None, reason="nothing is native here")
@pytest.mark.parametrize("name", OF_TENSORS)
def test_what_records_nothing_is_one_op(name, in_python):
    function, shape, n = OF_TENSORS[name]
    given = [numbers(*shape), numbers(*shape) + 1][:n]
    wanted = in_python(function, *given)
    for _ in range(2 * TIMES):
        assert function(*given).tolist() == wanted.tolist()
    assert _ops_called(lambda: function(*given)) == 1
    leaf = given[0].clone().requires_grad_()
    given[0] = leaf
    with weft.no_grad():
        assert _ops_called(lambda: function(*given)) == 1
    found, in_steps = function(*given), in_python(function, *given)
    assert (found.tolist(), found.grad_fn.name()) == (wanted.tolist(), in_steps.grad_fn.name())
    gradients = [weft.autograd.grad(y.sum(), leaf)[0].tolist() for y in (found, in_steps)]
    assert gradients[0] == gradients[1]


def test_parts_of_other_memory_than_was_seen_are_computed_too(in_python):
    x = numbers(6, 6)
    for _ in range(2 * TIMES):
        weft.linalg.cross(x[:3, :3], x[3:, 3:])
    for a, b in ((x[::2, ::2], x[1::2, 1::2]), (x[:3, :3].t(), x[3:, :3]), (x[0, :3].expand(3, 3), x[3:, :3])):
        wanted = in_python(weft.linalg.cross, a, b).tolist()
        for _ in range(TIMES):
            assert weft.linalg.cross(a, b).tolist() == wanted


def test_a_view_of_what_is_made_stays_a_view():
    x = numbers(4, 3)
    for _ in range(2 * TIMES):
        turned = weft.rot90(x, 1, (0, 1))
        shown = weft.movedim(x, 0, 1)
    assert turned._base is not None or turned.is_contiguous()
    shown[0, 0] = 5.0
    assert x[0, 0].item() == 5.0


OF_NUMBERS = {
    "linspace": lambda: weft.linspace(0, 1, 5),
    "logspace": lambda: weft.logspace(0, 2, 3),
    "eye": lambda: weft.eye(3),
    "hann_window": lambda: weft.hann_window(6),
    "tril_indices": lambda: weft.tril_indices(3, 3),
    "linspace that requires gradients": lambda: weft.linspace(0, 1, 5, requires_grad=True),
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_tensors_of_numbers_are_new_in_every_call(name, in_python):
    wanted, made = in_python(OF_NUMBERS[name]), []
    for _ in range(TIMES):
        made.append(OF_NUMBERS[name]())
        assert (made[-1].dtype, made[-1].tolist()) == (wanted.dtype, wanted.tolist())
        assert made[-1].requires_grad is wanted.requires_grad and made[-1].is_leaf
        made[-1].detach().fill_(7)
    assert len({x.data_ptr() for x in made}) == TIMES
    weft.set_default_dtype(weft.float64)
    try:
        assert OF_NUMBERS[name]().dtype in (weft.float64, weft.int64)
    finally:
        weft.set_default_dtype(weft.float32)


def test_errors_are_those_of_the_function():
    x = weft.ones(3, 3)
    for _ in range(TIMES):
        assert x.take(INDEX).tolist() == [1.0, 1.0, 1.0]
        with pytest.raises(IndexError, match="out of"):
            x.take(weft.tensor([0, 9, 1]))
        with pytest.raises(IndexError):
            x.scatter(1, SQUARE + 1, x)
        with pytest.raises(TypeError, match="argument 'index'"):
            x.take([0, 1])
        with pytest.raises(NotImplementedError):
            F.pad(x, (1, 1, 1, 1), mode="reflect")


def test_values_that_a_function_reads_are_read_in_every_call():
    for k in range(TIMES):
        x = weft.tensor([k, k + 1, k + 1, 0])
        assert weft.bincount(x).shape == (max(k + 2, 2),)
        assert weft.unique(x).tolist() == sorted({k, k + 1, 0})
        assert weft.masked_select(x, x > k).tolist() == [k + 1, k + 1]
        assert weft.allclose(x, weft.tensor([k, k + 1, k + 1, k])) == (k == 0)


def test_what_comes_before_a_read_is_computed_once(monkeypatch):
    """A function that cannot be noted to its end is not answered from its beginning."""
    decomposed, svd = [], np.linalg.svd

    def counting(*args, **kwargs):
        decomposed.append(args)
        return svd(*args, **kwargs)

    monkeypatch.setattr(np.linalg, "svd", counting)
    x = weft.tensor(np.random.default_rng(0).standard_normal((4, 3)))
    for _ in range(3 * TIMES):
        weft.linalg.lstsq(x, x, driver="gelsd")
    assert len(decomposed) == 3 * TIMES


def test_classes_of_users_and_modes_go_to_python():
    class Mine(weft.Tensor):
        pass

    x = numbers(3, 3)
    for _ in range(TIMES):
        F.normalize(x)
    assert F.normalize(Mine(x.tolist())).tolist() == F.normalize(x).tolist()
    with weft.inference_mode():
        assert F.normalize(x).is_inference()
    with weft.autocast("cpu", dtype=weft.bfloat16):
        assert F.normalize(x).dtype is weft.float32 and weft.kron(x, x).dtype is not None
    tangent = weft.ones(3, 3)
    _, found = weft.func.jvp(lambda x: F.normalize(x), (x,), (tangent,))
    with weft.no_grad():
        difference = (F.normalize(x.double() + 1e-6) - F.normalize(x.double() - 1e-6)) / 2e-6
    assert np.allclose(found.numpy(), difference.numpy(), atol=1e-4)
    batched = weft.func.vmap(lambda x: F.normalize(x, dim=0))(x)
    assert batched.tolist() == weft.stack([F.normalize(row, dim=0) for row in x]).tolist()


def test_in_a_compiled_call():
    @weft.compile
    def f(x):
        return F.unfold(F.pad(x, (1, 1))[None, None], 2) * F.avg_pool2d(x[None, None], 2).sum()

    for k in range(TIMES):
        x = numbers(4, 4) + k
        assert f(x).tolist() == f.__wrapped__(x).tolist()


def test_warnings_come_in_every_call():
    def warned():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            F.mse_loss(weft.ones(3, 1), weft.ones(3))
        return len(seen)

    assert [warned() for _ in range(TIMES)] == [1] * TIMES


def test_what_is_noted_says_nothing_but_shape_and_type():
    x = noting.Noter().tensor((2, 3), weft.float32, ("given", 0))
    assert x.shape == (2, 3) and x.dtype is weft.float32 and len(x) == 2
    told = ["requires_grad", "is_leaf", "grad", "grad_fn", "_version", "_base", "data", "array"]
    asked = [
        "item",
        "tolist",
        "stride",
        "is_contiguous",
        "numpy",
        "data_ptr",
        "__bool__",
        "is_inference",
        "detach",
        "zero_",
    ]
    for name in told:
        with pytest.raises(AttributeError):
            getattr(x, name)
    for name in asked:
        with pytest.raises(AttributeError):
            getattr(x, name)()


def test_doors_say_what_they_lead_to():
    assert [*inspect.signature(F.pad).parameters][:2] == ["input", "pad"]


def test_what_detach_gives_stays_cut_off_where_native_code_has_seen_the_call():
    x = numbers(3, 3)
    zeros = weft.zeros(3, 3)
    for _ in range(TIMES):
        weft.heaviside(x, zeros)
        F.grid_sample(x[None, None], x[None, None, :, :2].tanh())
    grown = (x * 2.0).requires_grad_()
    cut = weft.heaviside(grown, zeros)
    assert not cut.requires_grad and cut.grad_fn is None
    cut.add_(1.0)
    image, grid = x[None, None].clone().requires_grad_(), x[None, None, :, :2].tanh().requires_grad_()
    F.grid_sample(image, grid).sum().backward()
    again = [t.detach().clone().requires_grad_() for t in (image, grid)]
    with weft.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        F.grid_sample(*again).sum().backward()
    assert [t.grad.numpy().tobytes() for t in again] == [t.grad.numpy().tobytes() for t in (image, grid)]


@pytest.mark.skipif(native.layout() is None, reason="nothing is native here")
def test_many_calls_of_one_function_have_to_come_often_before_they_are_looked_at(monkeypatch):
    F.pad(numbers(5, 4), (0, 99))
    noted, note, words = [], native_functions._note, native_functions._held[0].words
    first = native_functions.offset_of(native_functions.Words, "uses") // 8
    words[first : first + native_functions.N_CALLS] = 0  # of what tests before have called
    monkeypatch.setattr(native_functions, "_n_known", {})
    monkeypatch.setattr(native_functions, "_note", lambda known: noted.append(known) or note(known))
    x = numbers(5, 4)
    for n in range(100, 140):
        for _ in range(20):
            assert F.pad(x, (0, n)).shape == (5, 4 + n)
    # Counters are shared: some of these calls have come more often, as far as anybody knows.
    assert native_functions.FEW_KNOWN <= len(noted) < 2 * native_functions.FEW_KNOWN
    for _ in range(600):
        F.pad(x, (0, 139))
    assert len(noted) < 2 * native_functions.FEW_KNOWN
    assert F.pad(x, (0, 139)).equal(weft.cat([x, weft.zeros(5, 139)], 1))


def test_doors_ask_now_and_then_where_nothing_is_known(monkeypatch):
    asked, pad = [], kinds.door("nn.functional.pad", lambda x, pad: x)
    monkeypatch.setattr(marks, "answer", lambda *call: asked.append(call))
    x = numbers(2, 3)
    for n in range(kinds._MANY_UNKNOWN):
        assert pad(x, (0, n)) is x
    assert len(asked) == kinds._MANY_UNKNOWN
    for n in range(10 * kinds._ASKED_OF):
        pad(x, (n, 1))
    assert len(asked) == kinds._MANY_UNKNOWN + 10
    monkeypatch.setattr(marks, "answer", lambda *call: asked.append(call) or "known")
    for _ in range(kinds._ASKED_OF + 20):
        pad(x, (1, 1))
    assert pad(x, (1, 1)) == "known" and len(asked) > kinds._MANY_UNKNOWN + 30
