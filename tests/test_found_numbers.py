"""Numbers and gradients that were once not PyTorch's, each against PyTorch: ends of ranges, ties, zeros, infinities."""

import math

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

WHOLE = str.split("int64 int32 int16 uint8")
ENDS = [0.0, 1.0, 2.5, 0.5, -2.5, 200.0, 3.0, math.inf, -math.inf, math.nan]
PAIRS = [np.repeat(ENDS, len(ENDS)), np.tile(ENDS, len(ENDS))]


def agree(run, rtol=1e-9):
    """run(module) is a list of tensors, of one type and of equal numbers in both libraries."""
    ours, theirs = run(weft), run(torch)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert str(a.dtype).partition(".")[2] == str(b.dtype).partition(".")[2]
        assert tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().resolve_conj().numpy(), rtol=rtol, atol=1e-12, equal_nan=True
        )


@pytest.mark.parametrize("dtype", WHOLE)
def test_ranges_of_integers_lose_the_fractions_of_their_ends_first(dtype):
    def run(module):
        kind = getattr(module, dtype)
        yield module.arange(0.5, 7.9, 1.5, dtype=kind)
        yield module.arange(5.5, 0.5, -1.5, dtype=kind)
        for start, end in ((0.5, 7.9), (1.9, 10.7), (-7, 7.9)):
            yield from (module.linspace(start, end, steps, dtype=kind) for steps in (0, 1, 2, 5, 10))
        for start, end, base in ((0.5, 2.1, 10.0), (0, 7, 2.0), (-1.5, 2.9, 3.0)):
            if start >= 0 or dtype != "uint8":
                yield from (module.logspace(start, end, steps, base, dtype=kind) for steps in (1, 4, 5))

    agree(lambda module: list(run(module)))


def test_ranges_that_no_integers_fill_are_refused():
    for module in (weft, torch):
        with pytest.raises((ValueError, RuntimeError), match="step must be nonzero"):
            module.arange(0, 5, 0.5, dtype=module.int64)
        with pytest.raises(RuntimeError, match="without overflow"):
            module.linspace(0, 300, 4, dtype=module.int8)
        with pytest.raises(RuntimeError, match="without overflow"):
            module.linspace(-7.0, 7, 4, dtype=module.uint8)


def test_no_differences_leave_what_there_is():
    agree(lambda m: [m.diff(m.arange(4.0), n=0, prepend=m.ones(2), append=m.ones(1)), m.diff(m.ones(2, 3), n=0, dim=0)])


def complex_matrices(module, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3))
    return module.tensor(z, requires_grad=True)


def test_the_determinant_of_complex_matrices_has_its_gradients():
    def run(module):
        z = complex_matrices(module)
        sign, size = module.linalg.slogdet(z)
        turned = (sign * (0.3 + 0.7j)).real.sum()
        of_size = module.autograd.grad(size.sum(), z, create_graph=True)[0]
        second = module.autograd.grad(of_size.abs().sum(), z)[0]
        whole = module.linalg.slogdet(z)
        both = module.autograd.grad((whole.sign.imag * whole.logabsdet).sum(), z)[0]
        return [sign, size, module.logdet(z), of_size, second, both, module.autograd.grad(turned, z)[0]]

    agree(run, 1e-8)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("args", [(), (0,), (-1, True)])
def test_medians_share_their_gradient_among_equal_elements_as_pytorch_does(name, args):
    rng = np.random.default_rng(1)
    for shape in ((1,), (2,), (7,), (3, 8), (9, 2)):
        for missing in (0.0, 0.3):
            values = rng.integers(0, 3, shape).astype(np.float64)
            values[rng.random(shape) < missing] = math.nan

            def run(module, values=values):
                x = module.tensor(values, requires_grad=True)
                found = getattr(module, name)(x, *args)
                found = found[0] if args else found
                return [found, module.autograd.grad(found.sum(), x)[0]]

            agree(run)


@pytest.mark.parametrize("include_self", [True, False])
def test_products_at_places_have_second_derivatives_with_any_number_of_zeros(include_self):
    """PyTorch refuses several zeros: the products are written out for it."""
    places, weights = [0, 0, 0, 1], (0.3, 0.7, 1.1, 0.4, 0.6, 1.7)

    def written_out(base, source):
        made = []
        for place in range(2):
            factors = [source[k] for k in range(4) if places[k] == place]
            factors = [base[place], *factors] if include_self else factors
            made.append(math.prod(factors[1:], start=factors[0]))
        return torch.stack(made)

    for zeros in ((), (0,), (0, 1), (0, 1, 2), (0, 3)):
        given = np.array([1.5, 2.0, 2.5, 3.0])
        given[list(zeros)] = 0.0
        for start in ([1.0, 2.0], [0.0, 2.0]):

            def run(module, given=given, start=start):
                base = module.tensor(start, dtype=module.float64, requires_grad=True)
                source = module.tensor(given, requires_grad=True)
                if module is torch:
                    out = written_out(base, source)
                else:
                    out = base.scatter_reduce(0, weft.tensor(places), source, "prod", include_self=include_self)
                loss = (out * module.tensor([1.0, 2.0], dtype=module.float64)).sum()
                found = module.autograd.grad(loss, (base, source), create_graph=True, allow_unused=True)
                found = [x * 0 if g is None else g for g, x in zip(found, (base, source))]
                joined = (module.cat(found) * module.tensor(weights, dtype=module.float64)).sum()
                again = module.autograd.grad(joined, (base, source), allow_unused=True)
                return [*found, *(x * 0 if g is None else g for g, x in zip(again, (base, source)))]

            agree(run)


@pytest.mark.parametrize("name", ["igamma", "igammac", "special.gammainc", "special.zeta"])
def test_a_derivative_that_nobody_knows_is_an_error_where_it_is_asked_for(name):
    def gradient(module, wanted):
        function = module
        for part in name.split("."):
            function = getattr(function, part)
        first = module.tensor([1.5, 2.5], requires_grad=True)
        second = module.tensor([0.5, 1.5], requires_grad=True)
        result = function(first, second)
        assert result.requires_grad
        if wanted == "all":
            return result.sum().backward()
        return [module.autograd.grad(result.sum(), second)[0]]

    for module in (weft, torch):
        with pytest.raises(NotImplementedError, match="the derivative for '.*' is not implemented"):
            gradient(module, "all")
    agree(lambda module: gradient(module, "second"), 1e-5)


@pytest.mark.parametrize("name", ["hypot", "igamma", "igammac", "special.zeta"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinities_and_what_is_no_number(name, dtype):
    def run(module):
        function = module
        for part in name.split("."):
            function = getattr(function, part)
        return [function(*(module.tensor(x, dtype=getattr(module, dtype)) for x in PAIRS))]

    agree(run, 1e-5)


def test_lengths_whose_squares_are_too_large_or_too_small():
    def run(module):
        sides = [[3e200, 3e-200, 0.0, math.inf, 1e-310], [4e200, -4e-200, 0.0, 1.0, 1e-310]]
        x, y = (module.tensor(s, dtype=module.float64, requires_grad=True) for s in sides)
        length = module.hypot(x, y)
        return [length, *module.autograd.grad(length.sum(), (x, y))]

    agree(run)


def test_histograms_count_between_edges_that_do_not_rise():
    rng = np.random.default_rng(2)
    for k in range(40):
        points, weight = rng.normal(size=(30, 2)), rng.random(30) if k % 2 else None
        edges = [rng.normal(size=rng.integers(2, 6)) for _ in range(2)]
        edges = [np.sort(e) for e in edges] if k % 3 == 0 else edges

        def run(module, points=points, weight=weight, edges=edges, k=k):
            options = {"weight": None if weight is None else module.tensor(weight), "density": k % 5 == 0}
            x, ends = module.tensor(points), [module.tensor(e) for e in edges]
            of_edges, of_numbers = (module.histogramdd(x, bins, **options) for bins in (ends, [3, 4]))
            flat = module.histogram(x[:, 0].contiguous(), ends[0], **options)
            return [of_edges.hist, *of_edges.bin_edges, of_numbers.hist, flat.hist, flat.bin_edges]

        agree(run)


def test_float_power_in_place_is_of_float64():
    for module in (weft, torch):
        with pytest.raises(RuntimeError, match="the base given to float_power_ has dtype"):
            module.ones(2).float_power_(2)
    agree(lambda module: [module.full((2,), 3.0, dtype=module.float64).float_power_(2.5)])


def test_addbmm_gives_its_target_the_shape_of_the_product():
    def run(module):
        left, right = module.ones(2, 2, 4), module.ones(2, 4, 3)
        targets = [module.ones(3), module.ones(1, 3), module.ones(2, 3), module.tensor(1.0)]
        made = [x.addbmm_(left, right, beta=2) for x in targets]
        assert all(x is y for x, y in zip(made, targets))
        return made

    agree(run)


def test_results_written_by_out_have_their_names():
    def run(module):
        values, indices = module.empty(2), module.empty(2, dtype=module.int64)
        found = module.sort(module.tensor([2.0, 1.0]), out=(values, indices))
        assert found.values is values and found.indices is indices
        rank = module.empty(0, dtype=module.int64)
        into = (module.empty(0), module.empty(0), rank, module.empty(0))
        least = module.linalg.lstsq(module.eye(2), module.ones(2, 1), out=into)
        assert least.rank is rank
        pivots = module.empty(0, dtype=module.int32)
        factors = module.lu(module.eye(2) * 2, out=(module.empty(0), pivots))
        line = module.empty(2)
        assert module.nn.functional.logsigmoid(module.ones(2), out=line) is line
        return [*found, least.solution, least.rank, *factors, line]

    agree(run, 1e-6)


def test_results_are_not_written_where_elements_share_a_place():
    into = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3,), (0,))
    for module in (weft, torch):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            module.take(module.arange(6.0), module.tensor([0, 1, 2]), out=module.from_numpy(into))


def test_shapes_without_elements_or_dimensions():
    def run(module):
        nn, zeros, one = module.nn.functional, module.zeros, module.tensor
        yield from (f(zeros(5, 0, 0), -1) for f in (nn.softmin, nn.softmax, nn.log_softmax))
        yield from (f(zeros(0, 3), 0) for f in (nn.softmin, nn.softmax, nn.log_softmax))
        yield nn.batch_norm(zeros(0), zeros(0), zeros(0), training=True)
        yield nn.batch_norm(zeros(0, 3), zeros(3), zeros(3), training=False)
        yield from (nn.prelu(one(-1.0), w) for w in (one(0.5), one([0.5])))
        yield nn.prelu(-module.ones(3), one([0.5]))
        yield from (x.index_add(0, one(0), one(2.0) if x.ndim == 0 else one([2.0])) for x in (one(1.0), module.ones(3)))
        yield from (x.index_add_(0, one([0]), one(2.0)) for x in (one(1.0),))
        yield module.ones(3).index_add_(0, one(1), one([2.0]), alpha=3)
        for reduction in ("none", "mean"):
            yield from (nn.multi_margin_loss(one([1.0, 2.0, 3.0]), y, reduction=reduction) for y in (one(1), one([1])))

    agree(lambda module: list(run(module)), 1e-6)


MISFITS = (
    lambda m: m.nn.functional.prelu(m.ones(3), m.tensor([0.5, 0.6, 0.7])),
    lambda m: m.nn.functional.batch_norm(m.ones(3), m.zeros(3), m.zeros(3), training=True),
    lambda m: m.ones(3).index_add(0, m.tensor(1), m.tensor(2.0)),
    lambda m: m.ones(3).index_add_(0, m.tensor(1), m.tensor(2.0)),
    lambda m: m.tensor(1.0).index_add(0, m.tensor([0]), m.tensor([2.0])),
    lambda m: m.tensor(1.0).index_reduce(0, m.tensor([0]), m.tensor([2.0]), "prod"),
)


@pytest.mark.parametrize("module", [weft, torch])
def test_shapes_that_do_not_fit_are_refused(module):
    for run in MISFITS:
        with pytest.raises(RuntimeError):
            run(module)


def test_two_numbers_are_a_tensor_for_five_functions():
    agree(lambda m: [f(7, 2) for f in (m.add, m.sub, m.mul, m.div, m.floor_divide, m.true_divide)])
    agree(lambda m: [m.mul(2, 3.5), m.div(7, 2, rounding_mode="trunc"), m.add(1, 2, alpha=3)])
    for module in (weft, torch):
        with pytest.raises(TypeError):
            module.remainder(7, 2)


def agree_compiled(function, *arrays, rtol=1e-9):
    """function(module, *tensors) is a tensor: PyTorch's, and compiled the bits that it has eagerly."""
    agree(lambda module: [function(module, *map(module.tensor, arrays))], rtol)
    given = [weft.tensor(a) for a in arrays]
    eager = function(weft, *given)
    compiled = weft.compile(lambda *given: function(weft, *given))
    for _ in range(3):
        found = compiled(*given)
        assert (found.dtype, found.shape) == (eager.dtype, eager.shape)
        assert found.detach().numpy().tobytes() == eager.detach().numpy().tobytes()


def numbers(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    "left, right",
    [((2, 3), (4, 2, 3)), ((2, 2, 3), (4, 1, 2, 3)), ((3,), (4, 2, 3)), ((4, 2, 3), (5, 3)), ((2, 0), (3, 2, 0))],
)
def test_inner_has_every_vector_of_one_with_every_vector_of_the_other(left, right):
    agree_compiled(lambda m, x, y: m.inner(x, y), numbers(*left), numbers(*right, seed=1))


def test_inner_products_of_other_lengths_are_refused():
    with pytest.raises(RuntimeError, match=r"inner: the last dimensions must match, .*\(2, 3\) and \(2, 2, 4\)"):
        weft.inner(weft.ones(2, 3), weft.ones(2, 2, 4))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("wide", ["float32", "float64", "int64"])
def test_multiples_of_small_integers_have_the_type_of_the_sum(dtype, wide):
    total, factor = numbers(2).astype(wide), np.array([100, 3], dtype)
    agree_compiled(lambda m, x, y: m.add(x, y, alpha=3), total, factor)
    agree_compiled(lambda m, x, y: m.sub(x, y, alpha=3), total, factor)
    agree_compiled(lambda m, x, y: m.rsub(y, x, alpha=3), total, factor)
    agree_compiled(lambda m, x, y: x.clone().add_(y, alpha=3), total, factor)
    agree_compiled(lambda m, x, y: x.clone().sub_(y, alpha=3), total, factor)
    agree_compiled(lambda m, x, y: m.addcmul(x, y, y), total, factor)
    agree_compiled(lambda m, x, y: m.addcmul(x, y, y, value=-2), total, factor)
    agree_compiled(lambda m, x, y: x.clone().addcmul_(y, y, value=2), total, factor)


def test_a_factor_of_less_width_is_multiplied_in_that_of_the_sum():
    x, y = numbers(5), numbers(5, dtype="float32", seed=1)
    agree_compiled(lambda m, x, y: m.add(x, y, alpha=0.1), x, y, rtol=1e-15)
    agree_compiled(lambda m, x, y: m.addcmul(x, y, y, value=0.1), x, y, rtol=1e-15)

    def gradient(module):
        y = module.tensor(numbers(5, dtype="float32", seed=1), requires_grad=True)
        module.add(module.tensor(x), y, alpha=0.1).square().sum().backward()
        return [y.grad]

    agree(gradient, rtol=1e-6)


@pytest.mark.parametrize("sequence", [[1, 2, 3], [0.1, 2.0, 2.5], [-3, 2, 90]])
@pytest.mark.parametrize("dtype", ["int64", "int8", "float32", "float64"])
def test_searches_compare_what_both_types_can_hold(sequence, dtype):
    given, wanted = np.array(sequence, dtype), [0, 2, 2.5, 0.1, 3, 2.0]
    for kind in ("int32", "int64", "float32", "float64"):
        agree_compiled(lambda m, s, x: m.searchsorted(s, x, right=True), given, np.array(wanted, kind))
        agree_compiled(lambda m, s, x: m.bucketize(x, s), given, np.array(wanted, kind))
    for number in wanted:
        agree_compiled(lambda m, s, number=number: m.searchsorted(s, number), given)
        agree_compiled(lambda m, s, number=number: m.bucketize(number, s, right=True), given)


@pytest.mark.parametrize(
    "first, second, dim",
    [((1, 3), (5, 3), 0), ((3,), (5, 3), 0), ((3,), (5, 3), 1), ((5, 1), (5, 3), 1), ((5, 3), (3,), -1)],
)
def test_lengths_of_cosines_are_those_of_the_broadcast_operands(first, second, dim):
    cosine = lambda m, x, y: m.nn.functional.cosine_similarity(x, y, dim=dim)  # noqa: E731
    agree_compiled(cosine, numbers(*first), numbers(*second, seed=1))
    agree_compiled(cosine, np.round(numbers(*first) * 3).astype("int64"), numbers(*second, seed=1))


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, math.inf, -1, -math.inf])
def test_lengths_of_every_power(p):
    x, y = numbers(2, 3), numbers(2, 3, seed=1)
    x[1] = y[1]
    agree_compiled(lambda m, x, y: m.nn.functional.pairwise_distance(x, y, p=p), x, y, rtol=1e-7)
    agree_compiled(lambda m, x, y: m.nn.PairwiseDistance(p, keepdim=True)(x, y[:1]), x, y, rtol=1e-7)
    agree_compiled(lambda m, x: m.nn.functional.normalize(x * 2, p=p), x)
    if p:
        agree_compiled(lambda m, x: m.nn.functional.lp_pool1d(x.abs()[None], p, 2), x)
        agree_compiled(lambda m, x: m.nn.functional.lp_pool2d(x.abs()[None], p, (2, 1), stride=1), x)
    if p > 0:
        agree_compiled(lambda m, x, y: m.nn.functional.triplet_margin_loss(x, y, x * 2, p=p), x, y, rtol=1e-6)


def test_losses_of_integers_have_the_type_of_their_targets():
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss"):
        for kind in ("int64", "int32", "uint8"):
            agree_compiled(
                lambda m, x, y, name=name: getattr(m.nn.functional, name)(x, y),
                np.array([1, 0], kind),
                np.array([0.5, 4.0], "float32"),
            )
    scores = numbers(2, 3)
    for name in ("nll_loss", "cross_entropy"):
        agree_compiled(lambda m, x, y, name=name: getattr(m.nn.functional, name)(x, y), scores, np.uint8([2, 0]))


def test_powers_of_matrices_of_integers_count_paths():
    for dtype in ("int64", "int32", "uint8"):
        for n in (0, 1, 5, 6):
            agree_compiled(lambda m, x, n=n: m.matrix_power(x, n), np.array([[1, 1], [1, 0]], dtype))
    with pytest.raises(RuntimeError, match="needs a floating point tensor, got int64"):
        weft.linalg.matrix_power(weft.ones(2, 2, dtype=weft.int64), -1)


def test_powers_of_two_need_not_have_the_range_of_the_product():
    x = np.array([2.0**-1000, 2.0, 0.0, -1.0, 3.0])
    agree_compiled(lambda m, x, n: m.ldexp(x, n), x, np.array([1200, -1075, 1000, 1, 0]))
    agree_compiled(lambda m, x, n: m.ldexp(x, n), np.float32([1e-38, 2.0]), np.array([200, -149]))
    agree_compiled(lambda m, x, n: m.ldexp(x, n), np.float64(1.5), np.array([1, 2]))
    agree_compiled(lambda m, x, n: m.ldexp(x, n), np.array([3, 5]), np.array([1, -2]))
    agree_compiled(lambda m, x, n: m.ldexp(x, n), np.array([3.0, 5.0], "float16"), np.array([1, -2]))
    agree_compiled(lambda m, x, n: m.ldexp(x, n), np.array([3.0, 5.0], "float32"), np.array([1.5, -0.5]), rtol=1e-6)


def test_diagonals_of_cubes_and_on_after_squares():
    for shape in ((3, 3), (7, 3), (3, 7), (4, 3), (3, 3, 3), (2, 2, 2, 2), (1, 1), (0, 3)):
        for wrap in (False, True):
            agree_compiled(lambda m, x, wrap=wrap: x.clone().fill_diagonal_(5, wrap=wrap), numbers(*shape))
    with pytest.raises(RuntimeError, match="all dimensions of input must be of equal length"):
        weft.zeros(2, 2, 3).fill_diagonal_(1)
    with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
        weft.zeros(3).fill_diagonal_(1)


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool", "uint8", "float16", "float64"])
def test_packed_sequences_keep_their_type(dtype):
    def run(module):
        rnn = module.nn.utils.rnn
        rows = module.tensor(np.array([[1, 2, 0], [3, 0, 0], [4, 5, 6]], dtype))
        packed = rnn.pack_padded_sequence(rows, [2, 1, 3], batch_first=True, enforce_sorted=False)
        return [
            packed.data,
            *rnn.pad_packed_sequence(packed),
            *rnn.pad_packed_sequence(packed, padding_value=2.7, total_length=4),
            *rnn.unpack_sequence(packed),
        ]

    agree(run)


def test_kinds_of_results():
    agree_compiled(lambda m, x: m.repeat_interleave(x), np.array([1, 0, 2], "int32"))
    agree_compiled(lambda m, x: m.vander(x), np.array([1, 2], "int32"))
    agree_compiled(lambda m, x: m.as_strided_scatter(x, m.tensor([7, 8]), (2,), (2,)), numbers(2, 2))
    agree_compiled(lambda m, x, y: m.logaddexp(x, y), np.array([True, False]), numbers(2))
    agree_compiled(lambda m, x, y: m.nn.functional.linear(x, y), numbers(4, 3), numbers(3))
    agree_compiled(lambda m, x, y: m.nn.functional.linear(x, y), numbers(3), numbers(3))
    agree_compiled(lambda m, x: x.squeeze(0, -1), numbers(1, 3, 1))
    agree_compiled(lambda m, x: m.floor_divide(x, 0), np.zeros((0, 3), "int64"))
    agree_compiled(lambda m, x: x % 0, np.zeros((0, 3), "int64"))
    agree(lambda m: list(m.histogram(m.tensor(numbers(40)))))


def test_arrays_as_tensors_are_of_the_graph_or_not():
    for module in (weft, torch):
        assert not module.asarray(module.ones(2, requires_grad=True) * 1, requires_grad=False).requires_grad
        x = module.ones(2, requires_grad=True)
        assert module.asarray(x).requires_grad and module.asarray(x * 2, copy=True).requires_grad
        assert module.asarray(module.ones(2), requires_grad=True).requires_grad


def test_samples_go_back_through_one_graph():
    def run(module):
        x = module.tensor(numbers(5), requires_grad=True)
        y = (x**2).flip(0)
        jacobian = module.vmap(lambda v: module.autograd.grad(y, x, v)[0])(module.eye(5, dtype=module.float64))
        with pytest.raises(RuntimeError, match="a second time"):
            module.autograd.grad(y.sum(), x)
        z = x.exp()
        rows = module.vmap(module.vmap(lambda v: module.autograd.grad(z, x, v)[0]))(
            module.tensor(numbers(2, 3, 5, seed=1))
        )
        return [jacobian, rows]

    agree(run)
