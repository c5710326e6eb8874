"""Ops that NumPy computes, called by native code of eager mode: the bits, errors and nodes of the first calls."""

import threading

import numpy as np
import pytest

import weft

N_CALLS = 45  # by which native code knows the calls


def matrices(*shape, dtype="float64"):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape) + 3 * np.eye(shape[-1])
    return weft.tensor((x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype))


CALLS = {
    "fft": lambda x: weft.fft.fft(x),
    "rfft2": lambda x: weft.fft.rfft2(x.real),
    "irfft": lambda x: weft.fft.irfft(x),
    "ifft of a transposed": lambda x: weft.fft.ifft(x.mT, norm="ortho"),
    "qr": lambda x: weft.linalg.qr(x)[1],
    "svd": lambda x: weft.linalg.svd(x)[1],
    "eigh": lambda x: weft.linalg.eigh(x + x.mH)[0],
    "eigenvalues": lambda x: weft.linalg.eigvals(x),
    "exp": lambda x: x.exp(),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "product": lambda x: x @ x.mT,
    "times i": lambda x: x * 2j,
    "in place": lambda x: x.to(weft.complex64).mul_(1j),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", CALLS)
def test_calls(name, dtype):
    for shape in [(3, 3), (1, 1), (2, 7, 7), (33, 33)]:
        x = matrices(*shape, dtype=dtype)
        if name == "irfft" and shape[-1] == 1:
            continue
        found = [CALLS[name](x) for _ in range(N_CALLS)]
        assert len({one.numpy().tobytes() for one in found}) == 1
        assert all(one.dtype is found[0].dtype and one.stride() == found[0].stride() for one in found)


@pytest.mark.parametrize("name", ["fft", "rfft2", "qr", "svd", "exp", "product", "times i"])
def test_gradients(name):
    gradients = set()
    for _ in range(N_CALLS):
        x = matrices(5, 5, dtype="complex128").requires_grad_()
        CALLS[name](x).abs().sum().backward()
        gradients.add(x.grad.numpy().tobytes())
    assert len(gradients) == 1


def test_errors_are_those_of_the_first_calls():
    good, bad = matrices(3, 3), weft.full((3, 3), float("nan"), dtype=weft.float64)
    for k in range(N_CALLS):
        weft.linalg.svd(good)
        with pytest.raises(weft.linalg.LinAlgError, match="did not converge"):
            weft.linalg.svd(bad)
        assert weft.linalg.svd(good)[1].isfinite().all(), k


def test_native_code_calls_them():
    from test_eager_native import IS_NATIVE, native_calls

    x = matrices(4, 4, dtype="complex64")
    for name in ("fft", "exp", "sum", "times i", "product"):
        assert (native_calls(lambda: CALLS[name](x)) >= 1) is IS_NATIVE, name  # noqa: B023 - called here


def test_threads_call_them_while_plans_come_and_go():
    x = matrices(40, 40, dtype="complex64")
    wanted = weft.fft.fft2(x).numpy().tobytes()
    wrong = []

    def transform():
        for _ in range(200):
            if weft.fft.fft2(x).numpy().tobytes() != wanted:
                wrong.append(1)

    def others():
        for n in range(1, 40):
            y = weft.ones(n, dtype=weft.complex64)
            for _ in range(12):
                (y * n).exp()

    threads = [threading.Thread(target=f) for f in (transform, others, transform)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.oracle
@pytest.mark.parametrize("n", [1, 2, 7, 33, 64, 1009])
def test_transforms_of_float32_are_as_exact_as_pytorchs(n):
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(n)
    x = (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(np.complex64)
    exact = np.fft.fft(x.astype(np.complex128))
    ours = weft.fft.fft(weft.tensor(x))
    assert ours.dtype is weft.complex64
    size = np.abs(exact).max()
    theirs = np.abs(torch.fft.fft(torch.tensor(x)).numpy() - exact).max()
    assert np.abs(ours.numpy() - exact).max() <= 2 * theirs + 1e-7 * size
