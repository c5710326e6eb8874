"""weft.fft against NumPy and PyTorch: values, types, derivatives, and errors."""

import numpy as np
import pytest

import weft

REAL = np.random.default_rng(0).normal(size=(3, 4, 5))
COMPLEX = REAL + 1j * np.random.default_rng(1).normal(size=(3, 4, 5))
NAMES = [prefix + ending for ending in ("", "2", "n") for prefix in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")]


def values_for(name):
    return REAL if name.startswith(("rfft", "ihfft")) else COMPLEX


@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(np.fft, n)])
def test_values_of_numpy(name):
    values = values_for(name)
    ours = getattr(weft.fft, name)(weft.tensor(values))
    np.testing.assert_allclose(ours.numpy(), getattr(np.fft, name)(values), rtol=1e-10, atol=1e-12)


def test_inverses():
    x = weft.tensor(REAL)
    for name in ("fft", "rfft", "fft2", "rfft2", "fftn", "rfftn"):
        sizes = {"fft": {}, "rfft": {"n": 5}, "rfft2": {"s": (4, 5)}, "rfftn": {"s": (3, 4, 5)}}.get(name, {})
        back = getattr(weft.fft, "i" + name)(getattr(weft.fft, name)(x, norm="ortho"), norm="ortho", **sizes)
        assert weft.allclose(back, back.new_tensor(REAL))


def test_types_stay():
    x = weft.tensor(REAL[0, 0], dtype=weft.float32)
    assert weft.fft.fft(x).dtype is weft.complex64 and weft.fft.irfft(weft.fft.rfft(x)).dtype is weft.float32
    assert weft.fft.fft(weft.arange(4)).dtype is weft.complex64 and weft.fft.rfft(x.double()).dtype is weft.complex128


def test_frequencies_and_shifts():
    assert weft.fft.fftfreq(4, d=0.5).tolist() == [0, 0.5, -1, -0.5] and weft.fft.rfftfreq(5).tolist()[
        -1
    ] == np.float32(0.4)
    assert weft.fft.fftshift(weft.arange(5)).tolist() == [3, 4, 0, 1, 2]
    assert weft.fft.ifftshift(weft.fft.fftshift(weft.arange(6).reshape(2, 3))).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_convolution_by_transforms_has_the_gradient_of_the_sum():
    signal = weft.tensor(REAL[0, 0], requires_grad=True)
    kernel = weft.tensor(REAL[1, 1])
    out = weft.fft.irfft(weft.fft.rfft(signal, n=9) * weft.fft.rfft(kernel, n=9), n=9)
    np.testing.assert_allclose(out.detach().numpy(), np.convolve(REAL[0, 0], REAL[1, 1]), atol=1e-12)
    out[2].backward()
    np.testing.assert_allclose(signal.grad.numpy(), [*REAL[1, 1, 2::-1], 0, 0], atol=1e-12)


@pytest.mark.parametrize(("call", "message"), [
    (lambda f, x: f.fft(x, n=0), r"fft\.fft: Invalid number of data points \(0\)"),
    (lambda f, x: f.rfft(x + 1j), "expects a real input tensor, but got complex64"),
    (lambda f, x: f.fftn(x, dim=(0, 0)), "dims must be unique"),
    (lambda f, x: f.fft(x, norm="none"), 'Invalid normalization mode: "none"'),
    (lambda f, x: f.fft(x.half()), "Unsupported dtype float16"),
    (lambda f, x: f.fft2(x, s=(1,)), "dim and shape arguments must have the same length"),
    (lambda f, x: f.irfftn(x, dim=()), "must transform at least one axis"),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(weft.fft, weft.ones(2, 2))


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
def test_values_and_derivatives_of_pytorch(name):
    torch = pytest.importorskip("torch")
    sizes = [{}, {"norm": "ortho"}, {"norm": "forward"}]
    if name[-1] == "2":
        sizes += [{"s": (3, 7)}, {"dim": (0, 2), "s": (-1, 4)}]
    elif name[-1] == "n":
        sizes += [{"s": (6,)}, {"dim": (1, 0)}]
    else:
        sizes += [{"n": 7}, {"n": 4, "dim": 0}]

    def run(m, options):
        x = m.tensor(values_for(name), requires_grad=True)
        out = getattr(m.fft, name)(x, **options)
        weight = np.random.default_rng(3).normal(size=tuple(out.shape))
        total = (out * m.tensor(weight * (1 - 2j) if out.is_complex() else weight)).sum()
        (gradient,) = m.autograd.grad(total.real if total.is_complex() else total, x)
        return out.detach().resolve_conj().numpy(), gradient.resolve_conj().numpy()

    for options in sizes:
        for ours, theirs in zip(run(weft, options), run(torch, options)):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
