"""Functions that have a quick way for what is usual: masked_scatter, histograms of edges that rise, erfc of float32."""

import numpy as np
import pytest

import weft


@pytest.mark.oracle
@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("shape", "of_mask", "view"),
    [
        ((3, 4), (3, 4), lambda x: x),
        ((3, 4), (4,), lambda x: x),
        ((4,), (3, 4), lambda x: x),
        ((), (), lambda x: x),
        ((4, 3), (3, 4), lambda x: x.t()),
        ((3, 8), (3, 4), lambda x: x[:, ::2]),
    ],
)
def test_as_in_pytorch(shape, of_mask, view, wrap):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(len(shape))
    numbers, mask, source = rng.standard_normal(shape), rng.random(of_mask) > 0.4, rng.standard_normal((2, 12))

    def found(library, wrap=lambda f: f):
        x = library.tensor(numbers, requires_grad=True)
        s, where = library.tensor(source, requires_grad=True), library.tensor(mask)

        def call(x, s):
            y = view(x * 1)
            results = [y.masked_scatter(where, source=s)]
            if len(of_mask) <= len(shape):
                z = y * 1
                assert z.masked_scatter_(where, s) is z
                results.append(z)
                if view(x).is_contiguous():
                    results.append(y.masked_scatter_(mask=where, source=s * 2))
            return results

        called, outcomes = wrap(call), []
        for _ in range(12):
            results = called(x, s)
            gradients = library.autograd.grad(sum((r * r).sum() for r in results), (x, s))
            outcomes += [t.tolist() for t in (*results, *gradients)]
        return outcomes

    for ours, theirs in zip(found(weft, wrap), found(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_source_that_is_the_tensor_itself():
    mask = weft.tensor([False, True, True, False, True])
    for _ in range(12):
        x = weft.arange(5.0)
        assert x.masked_scatter_(mask, x).tolist() == [0, 0, 1, 3, 2]


def test_errors_change_nothing():
    x, mask = weft.zeros(2, 3), weft.ones(2, 3, dtype=weft.bool)
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask: 5, 6"):
        x.masked_scatter_(mask, weft.ones(5))
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        x.masked_scatter_(mask.long(), weft.ones(6))
    with pytest.raises(RuntimeError, match="same dtypes"):
        x.masked_scatter(mask, weft.ones(6).double())
    assert not x.any() and x._version == 0


@pytest.mark.oracle
def test_histograms_of_edges_that_rise_and_others():
    torch = pytest.importorskip("torch")
    numbers = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    numbers[:10] = 0.5
    for bins in (10, [-1.0, 0.0, 0.5, 0.5, 2.0], [-1.0, 1.0, 0.0, 2.0]):

        def counts(library, bins=bins):
            edges = bins if isinstance(bins, int) else library.tensor(bins)
            hist, found = library.histogram(library.tensor(numbers), bins=edges)
            return hist.tolist(), found.tolist()

        ours, theirs = counts(weft), counts(torch)
        assert ours[0] == theirs[0]
        np.testing.assert_allclose(ours[1], theirs[1], atol=1e-6)


def test_erfc_of_float32_is_rounded_well():
    from math import erfc

    x = np.concatenate([np.linspace(-6, 10.3, 20000), [0.0, -0.0, 1e-30, 30.0]]).astype(np.float32)
    expected = np.array([erfc(float(v)) for v in x])
    error = np.abs(weft.erfc(weft.tensor(x)).numpy().astype(np.float64) - expected)
    assert (error / np.spacing(expected.astype(np.float32))).max() < 0.55
    ends = weft.erfc(weft.tensor([np.inf, -np.inf, np.nan])).tolist()
    assert ends[:2] == [0.0, 2.0] and ends[2] != ends[2]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize(("shape", "dim"), [((70, 90), 1), ((90, 70), 0), ((3, 120, 40), -2), ((5000,), 0)])
def test_modes_and_medians_of_rows_with_ties(shape, dim, dtype):
    torch = pytest.importorskip("torch")
    numbers = np.random.default_rng(1).integers(0, 30, shape).astype(dtype)
    ours, theirs = weft.tensor(numbers), torch.tensor(numbers)
    for _ in range(12):
        values, indices = ours.mode(dim=dim)
        assert values.tolist() == theirs.mode(dim=dim).values.tolist()
        # The last one of them. PyTorch's depends on how it sorts.
        equal = np.flip(numbers == np.expand_dims(values.numpy(), dim), dim)
        assert indices.tolist() == (shape[dim] - 1 - equal.argmax(dim)).tolist()
        values, indices = weft.median(ours, dim=dim)
        assert values.tolist() == theirs.median(dim=dim).values.tolist()
        assert (ours.take_along_dim(indices.unsqueeze(dim), dim).squeeze(dim) == values).all()
        order = weft.argsort(ours, dim=dim, stable=True).select(dim, (shape[dim] - 1) // 2)
        assert indices.tolist() == order.tolist()
        assert ours.median().item() == theirs.median().item()


def test_modes_and_medians_of_rows_with_nan():
    numbers = np.random.default_rng(2).integers(0, 5, (40, 300)).astype(np.float32)
    numbers[3, 7:] = np.nan
    numbers[5, ::2] = -0.0
    x = weft.tensor(numbers)
    for _ in range(12):
        values = x.mode(1).values
        assert values[3] == numbers[3, :7].min() or values[3] in numbers[3, :7]
        assert values[5] == 0.0 and x.median(1).values[3].isnan()
