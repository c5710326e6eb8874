"""Functions that came family by family, called as people call them: by method, in place, by keyword, by position."""

import numpy as np
import pytest

import weft
from weft import nn


def error_of(function):
    try:
        function()
    except Exception as error:
        return error
    return None


# --- results with names -----------------------------------------------------------------------------------------------
def test_results_have_names_and_are_tuples():
    x = weft.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    values, indices = x.sort()
    found = x.sort(dim=1, descending=True)
    assert values.tolist() == [[1, 2, 3], [0, 4, 5]] and indices.tolist() == [[1, 2, 0], [0, 2, 1]]
    assert found.values.tolist() == [[3, 2, 1], [5, 4, 0]] and found[1] is found.indices
    assert x.topk(2).indices.tolist() == [[0, 2], [1, 2]]
    assert repr(weft.tensor([1, 2]).cummax(0)).startswith("weft.return_types.cummax(\nvalues=tensor([1, 2])")
    q, r = weft.linalg.qr(weft.eye(2))
    assert (q @ r).allclose(weft.eye(2))
    assert weft.linalg.svd(weft.eye(2)).S.tolist() == [1, 1]


# --- in place ---------------------------------------------------------------------------------------------------------
INPLACE = str.split("acosh asinh cumsum cumprod tan exp2 erfinv lgamma digamma sinc frac tril logit sgn deg2rad i0")


@pytest.mark.parametrize("name", INPLACE)
def test_inplace_forms_change_memory_and_keep_history(name):
    """x.f_() on a value whose history goes on: the gradient is that of the function."""
    start = weft.tensor([[1.25, 0.75], [0.875, 1.5]] if name == "acosh" else [[0.25, 0.5], [0.375, 0.125]]).double()
    arguments = (0,) if name in ("cumsum", "cumprod") else ()

    def run(inplace):
        x = start.clone().requires_grad_()
        y = x * 1.5
        z = getattr(y, f"{name}_")(*arguments) if inplace else getattr(y, name)(*arguments)
        assert not inplace or z is y
        return z, weft.autograd.grad((z * z).sum(), [x])[0]

    (plain, slope), (changed, changed_slope) = run(False), run(True)
    assert plain.equal(changed) and slope.equal(changed_slope)
    compiled = weft.compile(run)
    for _ in range(3):
        again, again_slope = compiled(True)
        assert again.equal(changed) and again_slope.equal(changed_slope)


def test_an_inplace_form_refuses_a_type_that_does_not_hold_its_result():
    assert "can't be cast" in str(error_of(lambda: weft.tensor([1, 2]).sinc_()))
    assert weft.tensor([1.5]).eq_(1.5).tolist() == [1.0]


def test_bits_shift_by_operators():
    x = weft.tensor([1, -8, 3])
    assert (x << 2).tolist() == [4, -32, 12] and (x >> 1).tolist() == [0, -4, 1] and (1 << x[::2]).tolist() == [2, 8]
    x <<= 1
    assert x.tolist() == [2, -16, 6]
    assert weft.bitwise_left_shift(x, 64).tolist() == [0, 0, 0]
    assert (weft.tensor([-1, 5]) >> 70).tolist() == [-1, 0]


# --- masks and positions ----------------------------------------------------------------------------------------------
def test_masked_assignment_scatter_and_select():
    x = weft.arange(6.0).reshape(2, 3)
    mask = x > 2
    x[mask] = 0.0
    assert x.tolist() == [[0, 1, 2], [0, 0, 0]]
    filled = x.masked_scatter(mask, weft.tensor([7.0, 8.0, 9.0, 10.0]))
    assert filled.tolist() == [[0, 1, 2], [7, 8, 9]] and filled.masked_select(mask).tolist() == [7, 8, 9]
    assert x.index_put((weft.tensor([0, 0]), weft.tensor([1, 1])), weft.ones(2), accumulate=True)[0].tolist() == [
        0,
        3,
        2,
    ]
    assert weft.zeros(3).scatter_reduce(
        0, weft.tensor([0, 0, 2]), weft.tensor([2.0, 3, 4]), "prod", include_self=False
    )[[0, 2]].tolist() == [6, 4]


def test_einsum_as_people_write_it():
    a, b = weft.randn(2, 3, 4), weft.randn(2, 4, 5)
    assert weft.einsum("bij,bjk->bik", a, b).allclose(a @ b)
    assert weft.einsum("bij, bjk -> bik", [a, b]).allclose(a @ b)
    assert weft.einsum(a, [0, 1, 2], b, [0, 2, 3], [0, 1, 3]).allclose(a @ b)
    assert weft.einsum("...ij->...ji", a).equal(a.mT)
    assert weft.einsum("ii->i", weft.arange(9.0).reshape(3, 3)).tolist() == [0, 4, 8]
    assert weft.einsum("i,j", weft.ones(2), weft.ones(3)).shape == (2, 3)
    with pytest.raises(RuntimeError, match="number of subscripts"):
        weft.einsum("ij", weft.ones(2))
    with pytest.raises(RuntimeError, match="does not appear in any input"):
        weft.einsum("i->j", weft.ones(2))


def test_what_needs_a_value_now_works_in_a_compiled_call():
    """unique, bincount and their like have shapes that the data decide."""

    def run(x, n):
        values, counts = weft.unique(n, return_counts=True)
        weight = x[values] * counts
        return weight.logcumsumexp(0).sort(descending=True).values.sum() + weft.bincount(n).sum()

    x, n = weft.randn(8, dtype=weft.float64), weft.tensor([1, 3, 3, 7, 1, 0])
    compiled = weft.compile(run)
    for _ in range(3):
        assert compiled(x, n).item() == run(x, n).item()
        n = weft.tensor(n.tolist() + [2])
    assert "a result is as large as its values say" in compiled.explain()


def test_a_training_step_through_linear_algebra_is_the_same_compiled():
    """Likelihood of a Gaussian process: Cholesky, triangular solve and log determinant, with backward inside."""
    points, values = weft.linspace(0, 1, 12, dtype=weft.float64).reshape(-1, 1), weft.randn(12, 1, dtype=weft.float64)

    def train(compile):
        scale = weft.tensor(0.3, dtype=weft.float64, requires_grad=True)
        optimizer = weft.optim.Adam([scale], lr=0.01)

        def step():
            optimizer.zero_grad()
            kernel = (-0.5 * (weft.cdist(points, points) / scale) ** 2).exp() + 0.1 * weft.eye(12, dtype=weft.float64)
            low = weft.linalg.cholesky(kernel)
            fit = weft.linalg.solve_triangular(low, values, upper=False)
            loss = (fit**2).sum() + 2 * low.diagonal().log().sum()
            loss.backward()
            optimizer.step()
            return loss

        step = compile(step)
        return [step().item() for _ in range(5)]

    assert train(lambda f: f) == train(weft.compile)


# --- recurrences of single numbers ------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_steps", [60, 1200])
def test_a_long_recurrence_of_numbers_compiles_in_linear_time(n_steps):
    """Fibonacci's numbers: every value is read twice, so there are exponentially many ways through them, and the
    longest is longer than Python's stack."""

    def run(x, y):
        for _ in range(n_steps):
            x, y = (x + y) * 0.5, x * 0.75
        return x

    x, y = weft.tensor(1.5), weft.tensor(2.0)
    compiled = weft.compile(run)
    assert compiled(x, y).item() == run(x, y).item()


def test_a_filter_of_numbers_differentiated_after_the_call():
    """Its variances depend on no data: 100 of them stood in one expression, for every kernel that reads the last."""
    data = weft.linspace(-1, 1, 100, dtype=weft.float64)

    def log_likelihood(p):
        noise, error = weft.exp(p[0]), weft.exp(p[1])
        mean, variance, total = p[2], noise * 10, 0.0
        for y in data:
            variance = variance + noise
            gain, e = variance / (variance + error), y - mean
            total = total - 0.5 * (weft.log(variance + error) + e * e / (variance + error))
            mean, variance = mean + gain * e, (1 - gain) * variance
        return total

    def train(compiler):
        p, function, found = weft.zeros(3, dtype=weft.float64, requires_grad=True), compiler(log_likelihood), []
        for _ in range(3):
            p.grad = None
            value = function(p)
            value.backward()
            found += [value.item(), p.grad.tolist()]
        return found

    assert train(weft.compile) == train(lambda f: f)


# --- errors -----------------------------------------------------------------------------------------------------------
ERRORS = {
    "topk": (RuntimeError, lambda: weft.ones(3).topk(4), "out of range"),
    "kthvalue": (RuntimeError, lambda: weft.ones(3).kthvalue(0), "out of range"),
    "quantile": (RuntimeError, lambda: weft.ones(3).quantile(1.5), r"range \[0, 1\]"),
    "median of nothing": (IndexError, lambda: weft.ones(0).median(0), "non-zero size"),
    "gather": (RuntimeError, lambda: weft.ones(2).gather(0, weft.tensor([3])), "out of bounds"),
    "cholesky": (weft.linalg.LinAlgError, lambda: weft.linalg.cholesky(-weft.eye(2)), "not positive-definite"),
    "inverse": (RuntimeError, lambda: weft.zeros(2, 2).inverse(), "singular"),
    "not square": (RuntimeError, lambda: weft.linalg.det(weft.ones(2, 3)), "square matrices"),
    "solve": (RuntimeError, lambda: weft.linalg.solve(weft.eye(2), weft.ones(3, 1)), "Incompatible shapes"),
    "integers": (RuntimeError, lambda: weft.linalg.inv(weft.ones(2, 2).long()), "floating point"),
    "cross": (RuntimeError, lambda: weft.cross(weft.ones(2), weft.ones(2), dim=0), "length 3"),
    "cdist": (RuntimeError, lambda: weft.cdist(weft.ones(2, 3), weft.ones(2, 2)), "same number of columns"),
    "tensor_split": (RuntimeError, lambda: weft.ones(3).tensor_split(0), "larger than 0"),
    "multinomial": (RuntimeError, lambda: weft.multinomial(weft.tensor([-1.0, 2.0]), 1), "element < 0"),
    "searchsorted": (RuntimeError, lambda: weft.searchsorted(weft.ones(2, 3), weft.ones(2)), "first N-1 dimensions"),
    "polygamma": (RuntimeError, lambda: weft.polygamma(-1, weft.ones(2)), "negative n"),
    "gcd of a number": (TypeError, lambda: weft.gcd(weft.tensor([4]), 2), "must be Tensor"),
    "pad": (RuntimeError, lambda: nn.functional.pad(weft.ones(1, 3), (4, 0), "reflect"), "less than the corresponding"),
    "interpolate": (ValueError, lambda: nn.functional.interpolate(weft.ones(1, 1, 2)), "either size or scale_factor"),
    "fold": (RuntimeError, lambda: nn.functional.fold(weft.ones(1, 5, 4), (4, 4), 2), "multiple of"),
    "group_norm": (RuntimeError, lambda: nn.functional.group_norm(weft.ones(2, 3), 2), "divisible by num_groups"),
    "ctc_loss": (RuntimeError, lambda: nn.CTCLoss()(weft.ones(2, 1, 3), weft.ones(1, 1).long(), [3], [1]), "at most 2"),
    "as_strided": (NotImplementedError, lambda: weft.ones(2, 3)[:, :2].as_strided((3,), (1,)), "does not show"),
    "poisson": (RuntimeError, lambda: weft.poisson(weft.tensor([-1.0])), "non-negative"),
    "grid_sample": (ValueError, lambda: nn.functional.grid_sample(*[weft.ones(1, 2, 2, 2)] * 2, "cubic"), "mode"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_was_wrong(name):
    kind, call, words = ERRORS[name]
    with pytest.raises(kind, match=words):
        call()


# --- layers -----------------------------------------------------------------------------------------------------------
LAYERS = [
    (nn.ReflectionPad2d((1, 0, 1, 1)), (2, 3, 4, 5)),
    (nn.ConstantPad1d(2, 0.5), (2, 3, 4)),
    (nn.ZeroPad2d(1), (2, 3, 4, 5)),
    (nn.CircularPad1d(1), (2, 3, 4)),
    (nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 5)),
    (nn.PixelShuffle(2), (2, 4, 3, 3)),
    (nn.Unfold(2, padding=1), (2, 3, 4, 5)),
    (nn.Fold((4, 5), 2), (2, 12, 12)),
    (nn.GroupNorm(2, 4), (3, 4, 5)),
    (nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 5)),
    (nn.LocalResponseNorm(3), (2, 5, 4)),
    (nn.Hardshrink(), (3, 4)),
    (nn.Softshrink(0.1), (3, 4)),
    (nn.Tanhshrink(), (3, 4)),
    (nn.Threshold(0.1, 20.0), (3, 4)),
    (nn.RReLU().eval(), (3, 4)),
    (nn.Softmin(dim=1), (3, 4)),
    (nn.Dropout2d().eval(), (2, 3, 4, 5)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda x: type(x).__name__ if isinstance(x, nn.Module) else "")
def test_layers_compile_to_the_same_bits(layer, shape):
    x = weft.randn(shape, requires_grad=True)

    def run(x):
        out = layer(x)
        return out, weft.autograd.grad((out * out).sum(), [x])[0]

    expected = run(x)
    compiled = weft.compile(run)
    for _ in range(2):
        assert all(a.equal(b) for a, b in zip(compiled(x), expected))


def test_losses_as_layers_take_their_options_by_position_and_name():
    x, y, z = weft.randn(4, 3), weft.randn(4, 3), weft.randn(4, 3)
    triplet = nn.TripletMarginLoss(0.5, p=1, reduction="sum")
    expected = nn.functional.triplet_margin_loss(x, y, z, margin=0.5, p=1, reduction="sum")
    assert triplet(x, y, z).equal(expected)
    assert nn.GaussianNLLLoss()(x, y, weft.ones(4, 1)).ndim == 0
    assert nn.CTCLoss(0, "none")(
        weft.randn(5, 2, 4).log_softmax(2), weft.tensor([[1, 2], [3, 3]]), (5, 5), (2, 2)
    ).shape == (2,)
    with pytest.raises(TypeError, match="unexpected keyword argument 'margins'"):
        nn.MarginRankingLoss(margins=1)


def test_random_layers_and_draws_repeat_with_the_seed():
    def draw():
        weft.manual_seed(7)
        x = weft.ones(2, 3, 4)
        drawn = [nn.Dropout1d()(x), nn.AlphaDropout()(x), nn.functional.gumbel_softmax(x), nn.RReLU()(-x)]
        drawn += [weft.zeros(5).exponential_(2.0), weft.zeros(5).geometric_(0.3), weft.poisson(weft.full((5,), 3.0))]
        return drawn + [weft.multinomial(weft.tensor([0.1, 0.0, 0.9]), 4, replacement=True)]

    first, second = draw(), draw()
    assert all(a.equal(b) for a, b in zip(first, second))
    assert 1 not in first[-1].tolist()


def test_multinomial_and_draws_have_their_distributions():
    weft.manual_seed(1)
    counts = weft.bincount(weft.multinomial(weft.tensor([0.2, 0.3, 0.5]), 20000, replacement=True)).numpy() / 20000
    assert np.allclose(counts, [0.2, 0.3, 0.5], atol=0.02)
    assert sorted(weft.multinomial(weft.ones(4), 4).tolist()) == [0, 1, 2, 3]
    assert abs(weft.zeros(20000).exponential_(4.0).mean().item() - 0.25) < 0.02
    assert abs(weft.zeros(20000).geometric_(0.25).mean().item() - 4) < 0.2
    assert abs(weft.poisson(weft.full((20000,), 2.5)).var().item() - 2.5) < 0.2


def test_erfinv_of_float32_is_rounded_once():
    """Everywhere, also where float32 has few numbers left below 1: float64's own way is another one."""
    x = np.concatenate(
        [np.linspace(-1, 1, 20001), 1 - 2.0 ** -np.arange(1, 24.1, 0.25), 10.0 ** -np.arange(0, 44, 0.5)]
    )
    x = np.concatenate([x, -x, [0.0, -0.0, 1.5, np.inf, np.nan]]).astype(np.float32)
    found = weft.erfinv(weft.from_numpy(x)).numpy()
    expected = weft.erfinv(weft.from_numpy(x).double()).numpy().astype(np.float32)
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(expected) | np.isnan(expected) & np.signbit(found))
