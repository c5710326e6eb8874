"""F.pad by reflection, replication and around: one op, against PyTorch, the same bits in every mode and layout."""

import numpy as np
import pytest

import weft

PADS = [
    ((2, 5, 7), (2, 3)),
    ((5, 7), (6, 1)),
    ((2, 3, 5, 7), (1, 2, 3, 4)),
    ((3, 5, 7), (0, 5, 4, 0)),
    ((1, 2, 4, 5, 6), (2, 1, 0, 3, 1, 2)),
    ((2, 3, 5, 7), (-1, 2, 3, -2)),
    ((2, 3, 5, 7), (0, 0, -2, -1)),
    ((4, 8, 90, 91), (5, 1, 2, 7)),
]
MODES = ["reflect", "replicate", "circular"]


def padded(library, x, pad, mode):
    return library.nn.functional.pad(x, pad, mode=mode)


@pytest.mark.oracle
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape, pad", PADS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_gradients(shape, pad, mode, dtype):
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(0)
    array = rng.standard_normal(shape).astype(dtype)
    x, y = weft.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    made, wanted = padded(weft, x, pad, mode), padded(torch, y, pad, mode)
    cotangent = rng.standard_normal(tuple(wanted.shape)).astype(dtype)

    def both(x):
        made = padded(weft, x, pad, mode)
        return made, weft.autograd.grad(made, x, weft.tensor(cotangent))[0]

    np.testing.assert_array_equal(made.detach().numpy(), wanted.detach().numpy())
    (expected,) = torch.autograd.grad(wanted, y, torch.tensor(cotangent))
    np.testing.assert_allclose(
        both(x)[1].numpy(), expected.numpy(), *(1e-5,) * 2 if dtype == "float32" else (1e-12,) * 2
    )
    compiled = weft.compile(both)
    for _ in range(4):
        for a, b in zip(both(x), compiled(x), strict=True):
            assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    if mode != "circular":
        assert made.grad_fn.name() == type(wanted.grad_fn).__name__


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float16", "int64", "bool", "complex64"])
def test_other_types_and_layouts(mode, dtype):
    array = (np.random.default_rng(1).standard_normal((6, 4, 3, 5)) * 4).astype(dtype)
    wanted = padded(weft, weft.tensor(array), (2, 1, 1, 2), mode).numpy()
    spread = weft.tensor(array.transpose(3, 1, 2, 0).copy()).permute(3, 1, 2, 0)
    compiled = weft.compile(lambda x: padded(weft, x, (2, 1, 1, 2), mode))
    index = np.pad(
        np.arange(15).reshape(3, 5), ((1, 2), (2, 1)), {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    )
    assert (wanted == array.reshape(6, 4, 15)[:, :, index]).all()
    for _ in range(4):
        assert (padded(weft, spread, (2, 1, 1, 2), mode).numpy() == wanted).all()
        assert (compiled(spread).numpy() == wanted).all()


@pytest.mark.parametrize("mode", MODES)
def test_threads_change_no_bit(mode):
    x = weft.randn(64, 3, 80, 90, requires_grad=True)
    before, found = weft.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            weft.set_num_threads(threads)
            made = padded(weft, x, (3, 2, 1, 4), mode)
            found.append((made.detach().numpy(), weft.autograd.grad((made * made).sum(), x)[0].numpy()))
    finally:
        weft.set_num_threads(before)
    assert all((a == b).all() for other in found[1:] for a, b in zip(found[0], other))


@pytest.mark.oracle
def test_one_side_cut_further_than_the_other_reaches():
    """What is put on one side is gone where the other was cut: positions are looked up one by one then."""
    torch, x = pytest.importorskip("torch"), np.arange(10.0).reshape(2, 5)
    for pad, mode in (((-4, 3), "replicate"), ((-3, 4), "circular")):
        made = padded(weft, weft.tensor(x), pad, mode).numpy()
        np.testing.assert_array_equal(made, padded(torch, torch.tensor(x), pad, mode).numpy())
