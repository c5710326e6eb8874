"""stft and istft against PyTorch: windows, steps, paddings, gradients, what is refused; the signal that comes back."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

SPECTRA = (
    {"n_fft": 10},
    {"n_fft": 16, "hop_length": 5, "win_length": 12},
    {"n_fft": 11, "hop_length": 3, "normalized": True},
    {"n_fft": 10, "center": False},
    {"n_fft": 10, "onesided": False},
    {"n_fft": 10, "pad_mode": "constant"},
    {"n_fft": 10, "pad_mode": "replicate", "return_complex": False},
    {"n_fft": 10, "pad_mode": "circular"},
)
SIGNAL = np.random.default_rng(0).normal(size=(2, 50))


def agree(run):
    for ours, theirs in zip(run(weft), run(torch), strict=True):
        assert str(ours.dtype).partition(".")[2] == str(theirs.dtype).partition(".")[2]
        expected = theirs.detach().resolve_conj().numpy()
        np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-9, atol=1e-10)


def window_of(module, options):
    return module.hann_window(options.get("win_length", options["n_fft"]), dtype=module.float64, requires_grad=True)


@pytest.mark.parametrize("options", SPECTRA)
@pytest.mark.parametrize("shape", [(50,), (2, 50)])
@pytest.mark.filterwarnings("ignore")
def test_spectra_and_their_gradients(options, shape):
    def run(module):
        x = module.tensor(SIGNAL[: shape[0]] if len(shape) == 2 else SIGNAL[0], requires_grad=True)
        window = window_of(module, options)
        spectra = module.stft(x, window=window, **{"return_complex": True, **options})
        grads = module.autograd.grad(spectra.abs().pow(2).mul(0.5).sum(), (x, window))
        single = module.tensor(SIGNAL, dtype=module.float32)
        plain = single.stft(**{"return_complex": True, **options, "normalized": True})
        return [spectra, *grads, plain.double() if not plain.is_complex() else plain.to(module.complex128)]

    for ours, theirs in zip(run(weft)[:-1], run(torch)[:-1], strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().resolve_conj().numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(run(weft)[-1].numpy(), run(torch)[-1].numpy(), rtol=1e-4, atol=1e-5)


def test_complex_signals_have_two_sides():
    agree(lambda m: [m.stft(m.tensor(SIGNAL + 1j * SIGNAL[::-1]), 10, window=m.ones(10, dtype=m.float64))])


@pytest.mark.parametrize("options", [o for o in SPECTRA if "center" not in o and "return_complex" not in o])
def test_signals_come_back(options):
    """The inverse reads the spectra as the transform made them, whatever was padded."""
    kept = {k: v for k, v in options.items() if k != "pad_mode"}

    def run(module):
        x, window = module.tensor(SIGNAL), window_of(module, options).detach()
        spectra = module.stft(x, window=window, return_complex=True, **options).requires_grad_()
        back = module.istft(spectra, window=window, length=48, **kept)
        return [back, module.istft(spectra[0], window=window, **kept), module.autograd.grad(back.sum(), spectra)[0]]

    agree(run)
    assert np.allclose(run(weft)[0].detach().numpy(), SIGNAL[:, :48])


@pytest.mark.filterwarnings("ignore")
def test_lengths_beyond_the_last_frame_are_zeros():
    def run(module):
        window = module.hann_window(10, dtype=module.float64)
        spectra = module.stft(module.tensor(SIGNAL), 10, window=window, return_complex=True)
        return [module.istft(spectra, 10, window=window, length=n) for n in (30, 50, 53, 100)]

    agree(run)


REFUSED = (
    lambda m, x, s: m.stft(x, 10),
    lambda m, x, s: m.stft(x, 10, win_length=12, return_complex=True),
    lambda m, x, s: m.stft(x, 100, return_complex=True),
    lambda m, x, s: m.stft(x, 60, center=False, return_complex=True),
    lambda m, x, s: m.stft(x.reshape(1, 1, -1), 10, return_complex=True),
    lambda m, x, s: m.stft(x, 10, window=m.ones(8), return_complex=True),
    lambda m, x, s: m.stft(x, 10, hop_length=0, return_complex=True),
    lambda m, x, s: m.stft(m.arange(50), 10, return_complex=True),
    lambda m, x, s: m.stft(x.to(m.complex64), 10, onesided=True),
    lambda m, x, s: m.stft(x, 10, return_complex=True, align_to_window=True),
    lambda m, x, s: m.istft(s, 10, window=m.hann_window(10, dtype=m.float64), center=False),
    lambda m, x, s: m.istft(s, 10, hop_length=20),
    lambda m, x, s: m.istft(m.view_as_real(s), 10),
    lambda m, x, s: m.istft(s, 12),
    lambda m, x, s: m.istft(s, 10, onesided=False),
)


@pytest.mark.parametrize("module", [weft, torch])
@pytest.mark.filterwarnings("ignore")
def test_what_is_refused(module):
    x = module.tensor(SIGNAL[0])
    spectra = module.stft(x, 10, return_complex=True)
    for run in REFUSED:
        with pytest.raises(RuntimeError):
            run(module, x, spectra)


def test_compiled_calls_have_the_same_bits():
    x, window = weft.tensor(SIGNAL), weft.hann_window(10, dtype=weft.float64)

    def run(x):
        spectra = weft.stft(x, 10, window=window, return_complex=True)
        return spectra.abs(), weft.istft(spectra * 2, 10, window=window, length=50)

    compiled = weft.compile(run)
    for _ in range(3):
        for ours, eager in zip(compiled(x), run(x)):
            assert ours.equal(eager)


# --- windows ----------------------------------------------------------------------------------------------------------
NAMED = str.split("""
    bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall
""")
OPTIONS = {
    "exponential": [{"tau": 2.5}, {"center": 1.5, "sym": False}],
    "gaussian": [{"std": 0.5}],
    "general_cosine": [{"a": [0.3, 0.5, 0.2]}],
    "general_hamming": [{"alpha": 0.7}],
    "kaiser": [{"beta": 3.0}],
}


@pytest.mark.parametrize("name", NAMED)
def test_windows_of_signals(name):
    given = [{"a": (0.3, 0.7)} if name == "general_cosine" else {}, *OPTIONS.get(name, [])]
    for options in [o | {"sym": sym} for o in given for sym in (True, False) if o.get("sym", sym) == sym]:
        for count in (0, 1, 2, 5, 8):
            ours, theirs = (
                getattr(m.signal.windows, name)(count, dtype=m.float64, requires_grad=True, **options)
                for m in (weft, torch)
            )
            assert ours.requires_grad
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-12)
            assert getattr(weft.signal.windows, name)(count, **options).dtype is weft.float32


def test_windows_that_there_are_not():
    for module in (weft, torch):
        windows = module.signal.windows
        with pytest.raises(ValueError, match="requires non-negative window length, got M=-1"):
            windows.hann(-1)
        with pytest.raises(ValueError, match="expects float32 or float64"):
            windows.hann(3, dtype=module.int64)
        with pytest.raises(ValueError, match="Center must be None for symmetric windows"):
            windows.exponential(3, center=1)
        with pytest.raises(ValueError, match="Tau must be positive"):
            windows.exponential(3, tau=0)
        with pytest.raises(ValueError, match="Standard deviation must be positive"):
            windows.gaussian(3, std=0)
        with pytest.raises(ValueError, match="beta must be non-negative"):
            windows.kaiser(3, beta=-1)
        with pytest.raises(ValueError, match="Coefficients cannot be empty"):
            windows.general_cosine(3, a=[])
        with pytest.raises(TypeError, match="Coefficients must be a list/tuple"):
            windows.general_cosine(3, a=3)
