"""Complex numbers in native code of eager mode: what does the same with both parts, or only moves elements, has the
bits of the first calls, which NumPy computes, and PyTorch's values; all else stays as it was."""

import numpy as np
import pytest

import weft

N_CALLS = 40  # by which native code knows the calls
CALLS = {
    "add": lambda w, x, y, r: x + y,
    "sub": lambda w, x, y, r: x - y,
    "neg": lambda w, x, y, r: -x,
    "add a row": lambda w, x, y, r: x + y[0],
    "sub a column": lambda w, x, y, r: x - y[:, :1],
    "add a number": lambda w, x, y, r: x + 2.0,
    "add a complex number": lambda w, x, y, r: x + (1 - 2j),
    "add reals": lambda w, x, y, r: x + r,
    "mul": lambda w, x, y, r: x * y,
    "mul by a number": lambda w, x, y, r: 3 * x,
    "mul by an imaginary number": lambda w, x, y, r: 3j * x,
    "mul of transposed by i": lambda w, x, y, r: x.t() * 1j,
    "mul of reals by i": lambda w, x, y, r: r * 1j,
    "mul in place": lambda w, x, y, r: x.clone().mul_(2 - 1j),
    "mul of transposed": lambda w, x, y, r: x.t() * y.t(),
    "mul by a transposed": lambda w, x, y, r: x[:5, :5] * y[:5, :5].t(),
    "mul of every other": lambda w, x, y, r: x[:, ::2] * y[:, ::2],
    "mul by reals": lambda w, x, y, r: x * r,
    "mul by a row of reals": lambda w, x, y, r: x * r[0],
    "div": lambda w, x, y, r: x / y,
    "div by a number": lambda w, x, y, r: x / 3,
    "equal": lambda w, x, y, r: x == x.conj(),
    "not equal": lambda w, x, y, r: x != 1,
    "conj": lambda w, x, y, r: w.conj_physical(x),
    "conj of a transposed": lambda w, x, y, r: w.conj_physical(x.t()),
    "complex": lambda w, x, y, r: w.complex(r, -r),
    "complex of rows": lambda w, x, y, r: w.complex(r, r[0]),
    "where": lambda w, x, y, r: w.where(r > 0, x, y),
    "clone": lambda w, x, y, r: x.clone(),
    "transposed": lambda w, x, y, r: x.t().contiguous(),
    "sum with a transposed": lambda w, x, y, r: x[:5, :5] + y[:5, :5].t(),
    "parts": lambda w, x, y, r: x[::2, 1:] - y[::2, 1:],
    "cat": lambda w, x, y, r: w.cat([x, y], 1),
    "rows": lambda w, x, y, r: x[w.tensor([2, 0, 2])],
    "gather": lambda w, x, y, r: x.gather(1, w.tensor([[1, 0, 2]])),
    "scatter": lambda w, x, y, r: x.scatter(1, w.tensor([[1, 0, 2]]), y),
    "index_add": lambda w, x, y, r: x.index_add(0, w.tensor([1, 1]), y[:2]),
    "flip": lambda w, x, y, r: x.flip(1),
    "roll": lambda w, x, y, r: x.roll(1, 0),
    "in place": lambda w, x, y, r: x.clone().add_(y),
    "a transposed in place": lambda w, x, y, r: x.clone().t().sub_(y.t()),
    "assignment": lambda w, x, y, r: x.clone().index_put_((w.tensor([1, 2]),), y[:2]),
    "filled": lambda w, x, y, r: x.clone().fill_(1 + 2j),
    "zeros": lambda w, x, y, r: x.clone().zero_(),
    "real": lambda w, x, y, r: x.real + y.imag,
    "to": lambda w, x, y, r: (x + y).to(w.complex128),
    "from reals": lambda w, x, y, r: r.to(w.complex64),
    "from truths": lambda w, x, y, r: (r > 0).to(w.complex64),
    "from truths of 128 bits": lambda w, x, y, r: (r > 0).to(w.complex128) + y,
    "from integers": lambda w, x, y, r: r.to(w.int64).to(w.complex64),
    "truths beside": lambda w, x, y, r: x + (r > 0),
    "sum": lambda w, x, y, r: (x - y)[1:].sum(0),
    "product": lambda w, x, y, r: x @ y.t(),
    "abs": lambda w, x, y, r: (x + y).abs(),
}

NO_GRADIENTS = {
    *("abs", "filled", "zeros", "to", "conj of a transposed", "scatter"),
    *("from truths", "from truths of 128 bits", "from integers"),
    *("equal", "not equal"),
}


def given(library, shape, dtype):
    rng = np.random.default_rng(1)
    parts = [rng.standard_normal(shape).astype("float32" if dtype == "complex64" else "float64") for _ in range(5)]
    parts[0][0, :4], parts[1][0, :4] = [0.0, -0.0, np.inf, -np.inf], [-0.0, 0.0, -np.inf, 1.0]
    x, y = parts[0] + 1j * parts[1], parts[2] + 1j * parts[3]
    x.real[:], x.imag[:] = parts[0], parts[1]
    return [library.tensor(a) for a in (x, y, parts[4])]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", [(6, 7), (130, 140)])
@pytest.mark.parametrize("name", CALLS)
def test_calls(name, shape, dtype):
    torch, call = pytest.importorskip("torch"), CALLS[name]
    operands = given(weft, shape, dtype)
    found = [call(weft, *operands) for _ in range(N_CALLS)]
    first = found[0].numpy()
    assert all(x.numpy().tobytes() == first.tobytes() and x.stride() == found[0].stride() for x in found)
    wanted = call(torch, *given(torch, shape, dtype)).resolve_conj().numpy()
    assert first.dtype == wanted.dtype and first.shape == wanted.shape
    if name in ("product", "sum") or name.startswith("mul"):  # PyTorch rounds the last few products in another way
        np.testing.assert_allclose(first, wanted, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(first, wanted)
        if name != "neg":  # PyTorch makes 0.0 of 0.0
            assert (np.signbit(first.real) == np.signbit(wanted.real))[~np.isnan(wanted)].all()


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in CALLS if n not in NO_GRADIENTS])
def test_gradients(name):
    torch, found = pytest.importorskip("torch"), []
    for library in (weft, torch):
        gradients = []
        for _ in range(N_CALLS if library is weft else 1):
            x, y, r = [
                t.abs().clamp(0.1, 3.0).to(t.dtype) * (1 + 0 * t.real) for t in given(library, (6, 7), "complex64")
            ]
            leaves = [t.detach().requires_grad_() for t in (x, y, r)]
            made = CALLS[name](library, *leaves)
            (made * made.detach().abs()).abs().sum().backward()
            gradients.append([None if t.grad is None else t.grad.resolve_conj().numpy() for t in leaves])
        found.append(gradients)
    for ours in found[0]:
        for a, b in zip(ours, found[1][0]):
            assert (a is None) is (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_native_code_knows_them():
    from test_eager_native import IS_NATIVE, native_calls

    x, y = weft.complex(weft.randn(8, 8), weft.randn(8, 8)), weft.ones(8, 8, dtype=weft.complex64)
    for call in (lambda: x + y, lambda: -x, lambda: x.clone(), lambda: weft.conj(x), lambda: x[weft.tensor([1, 2])]):
        for _ in range(N_CALLS):
            call()
        assert (native_calls(call) >= 1) is IS_NATIVE


def test_compiled_calls_have_the_bits():
    def function(x, y):
        return (x + y) - weft.conj(x).roll(1, 0)

    compiled, (x, y, _) = weft.compile(function), given(weft, (6, 7), "complex64")
    wanted = [function(x, y) for _ in range(N_CALLS)][-1]
    for _ in range(4):
        assert compiled(x, y).numpy().tobytes() == wanted.numpy().tobytes()


PARTS = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e30, 1e-30, 3e38, 1e-42]
NUMBERS = [complex(re, im) for re in PARTS for im in PARTS]


def bits(numbers):
    """The parts, every NaN as the same one."""
    parts = numbers.view(numbers.real.dtype)
    return np.where(np.isnan(parts), np.nan, parts).tobytes()


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["mul", "div", "abs"])
def test_products_quotients_and_moduli_have_pytorchs_bits(name, dtype):
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(2)
    special = np.array([(x, y) for x in NUMBERS for y in NUMBERS], dtype).T.copy()
    for n in (0, 1, 7, 33, 4096, None):
        a, b, c, d = rng.standard_normal((4, n or 0))
        x, y = special if n is None else np.array([a + 1j * b, c + 1j * d], dtype)
        found = []
        for library in (torch, weft):
            a, b = library.tensor(x), library.tensor(y)
            call = (lambda a, b: a.abs()) if name == "abs" else getattr(library, name)
            found += [bits(call(a, b).numpy()) for _ in range(N_CALLS if library is weft else 1)]
        # PyTorch rounds in another way what is no whole vector.
        assert len({*found[name != "abs" and n in (1, 7, 33, None) :]}) == 1, n


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (300,), (33, 40), (64, 64), (5, 33, 7), (0, 3)])
def test_sums_have_the_bits_of_the_sums_of_parts(shape, dtype):
    rng = np.random.default_rng(4)
    x = weft.tensor((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype))
    axes = [tuple(range(x.ndim)), *[(k,) for k in range(x.ndim)], *([(0, 2)] if x.ndim == 3 else [])]
    for dim in axes:
        for given in (x, x.permute(*range(x.ndim)[::-1])):
            wanted = [part.clone().sum(dim) for part in (given.real, given.imag)]
            for _ in range(N_CALLS):
                found = given.sum(dim)
                assert found.is_contiguous() and found.real.tolist() == wanted[0].tolist()
                assert found.imag.tolist() == wanted[1].tolist()
            np.testing.assert_allclose(found.numpy(), given.numpy().sum(dim), rtol=1e-4, atol=1e-4)
