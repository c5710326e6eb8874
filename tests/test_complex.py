"""complex64 and complex128: parts as views, arithmetic, PyTorch's convention of gradients, and what is refused."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest

import weft

COMPLEX = [weft.complex64, weft.complex128]
kinds = pytest.mark.parametrize("dtype", COMPLEX, ids=repr)


@kinds
def test_creation(dtype):
    real = dtype.to_real()
    x = weft.tensor([1 + 2j, -0.5j, 3], dtype=dtype)
    assert x.dtype is dtype and x.tolist() == [1 + 2j, -0.5j, 3 + 0j] and x.is_complex() and not x.is_floating_point()
    assert weft.complex(weft.ones(2, dtype=real), weft.zeros(2, dtype=real)).tolist() == [1, 1]
    turned = weft.polar(weft.ones(1, dtype=real), weft.full((1,), weft.pi / 2, dtype=real))
    assert turned.dtype is dtype and abs(turned.item() - 1j) < 1e-6
    for y in (weft.zeros(2, dtype=dtype), weft.full((2,), 1j, dtype=dtype), weft.ones(2).to(dtype),
              weft.eye(2, dtype=dtype)[0], weft.zeros_like(x)[1:], x.new_tensor([1j, 2]),
              weft.from_numpy(np.ones(2, dtype.numpy))):  # fmt: skip
        assert y.dtype is dtype and y.shape == (2,)


def test_default_types_and_promotion():
    assert weft.tensor(1j).dtype is weft.complex64 and weft.tensor([1.5, 2j]).dtype is weft.complex64
    assert (weft.ones(2) * 1j).dtype is weft.complex64 and (weft.arange(2) + 1j).dtype is weft.complex64
    assert (weft.ones(2, dtype=weft.float64) + 1j).dtype is weft.complex128
    assert weft.promote_types(weft.complex64, weft.float64) is weft.complex128
    assert weft.promote_types(weft.float16, weft.complex64) is weft.complex64
    assert (weft.ones(2, dtype=weft.complex64) + weft.tensor(1.0, dtype=weft.float64)).dtype is weft.complex64
    assert weft.cfloat is weft.complex64 and weft.complex64.to_real() is weft.float32 and weft.complex64.itemsize == 8


def test_parts_share_memory():
    x = weft.tensor([[1 + 2j, 3 - 4j]])
    assert x.real.tolist() == [[1, 3]] and x.imag.tolist() == [[2, -4]]
    x.real[0, 0] = 10
    x.imag = weft.tensor([[5.0, 6.0]])
    weft.view_as_real(x)[0, 1, 0] = -1
    assert x.tolist() == [[10 + 5j, -1 + 6j]] and x.t().real.shape == (2, 1)
    pairs = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    weft.view_as_complex(pairs)[1] = 9j
    assert pairs.tolist() == [[1, 2], [0, 9]] and weft.view_as_real(x.t()).shape == (2, 1, 2)
    assert weft.real(pairs) is pairs and pairs.conj() is pairs
    with pytest.raises(RuntimeError, match="imag: not implemented for tensors with non-complex dtypes, got float32"):
        weft.imag(pairs)
    with pytest.raises(RuntimeError, match="last dimension of size 2"):
        weft.view_as_complex(weft.ones(3))
    with pytest.raises(RuntimeError, match="stride of 1"):
        weft.view_as_complex(weft.ones(2, 2).t())


@kinds
def test_values(dtype):
    values = np.array([1 + 2j, -0.5 + 0.1j, 3 - 1j, 0.2j], dtype.numpy)
    x, rtol = weft.tensor(values), 1e-5 if dtype is weft.complex64 else 1e-12
    for name in str.split("exp log sin cos tan tanh sinh cosh sqrt abs angle conj asin acos atan square reciprocal"):
        expected = (
            np.arctan(values)
            if name == "atan"
            else getattr(np, {"asin": "arcsin", "acos": "arccos"}.get(name, name))(values)
        )
        np.testing.assert_allclose(getattr(x, name)().numpy(), expected, rtol=rtol)
    assert (x * x.conj()).imag.abs().max().item() == 0 and (x == x).all() and bool(x[0])
    np.testing.assert_allclose((x / (x + 1) - 2 * x).numpy(), values / (values + 1) - 2 * values, rtol=rtol)
    np.testing.assert_allclose((x**2.5).numpy(), values**2.5, rtol=rtol)
    assert (
        x.sum().dtype is dtype
        and abs(x.mean().item() - values.mean()) < 1e-6
        and abs(x.prod().item() - values.prod()) < 1e-6
    )
    matrix = x.reshape(2, 2)
    np.testing.assert_allclose(
        (matrix @ matrix.mH).numpy(), values.reshape(2, 2) @ values.reshape(2, 2).conj().T, rtol=rtol
    )
    assert abs(weft.vdot(x, x).item() - np.vdot(values, values)) < 1e-5 and weft.linalg.norm(x).dtype is dtype.to_real()
    assert weft.isclose(x, x).all() and weft.stack([x, x]).flip(0)[1, 0].item() == values[0]


def test_printing():
    assert repr(weft.tensor([1 + 2j, 3 - 4j])) == "tensor([1.+2.j, 3.-4.j])"
    assert repr(weft.tensor([0.5j])) == "tensor([0.+0.5000j])"
    assert repr(weft.tensor(1j, dtype=weft.complex128)) == "tensor(0.+1.j, dtype=weft.complex128)"
    assert weft.finfo(weft.complex64).eps == weft.finfo(weft.float32).eps
    assert weft.tensor(2 - 1j).item() == 2 - 1j and complex(weft.tensor(2 - 1j)) == 2 - 1j


@kinds
def test_files_and_copies(dtype, tmp_path):
    x = weft.tensor([[1 + 2j, -1j]], dtype=dtype)
    weft.save({"x": x}, tmp_path / "x.weft")
    for y in (weft.load(tmp_path / "x.weft")["x"], pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone()):
        assert y.dtype is dtype and y.tolist() == x.tolist()


def test_draws_are_complex():
    weft.manual_seed(0)
    for draw, variance in (
        (weft.randn(4000, dtype=weft.complex64), 1),
        (weft.rand(4000, dtype=weft.complex128), 1 / 6),
    ):
        assert abs(draw.real.var().item() - variance / 2) < 0.04 and abs(draw.imag.var().item() - variance / 2) < 0.04
        assert abs((draw.real * draw.imag).mean().item() - draw.real.mean().item() * draw.imag.mean().item()) < 0.03


def test_modules_take_complex_parameters():
    layer = weft.nn.Linear(2, 1).to(weft.complex64)
    out = layer(weft.tensor([[1j, 2]]))
    out.abs().sum().backward()
    assert layer.weight.grad.dtype is weft.complex64
    assert weft.autograd.gradcheck(lambda z: z * 2, weft.ones(2, dtype=weft.complex128, requires_grad=True))
    x = weft.ones(2, dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(lambda x: (x * 1j).exp(), x)


def test_safetensors_have_the_narrow_type_only(tmp_path):
    x = weft.tensor([1 + 2j])
    weft.save({"x": x}, tmp_path / "x.safetensors")
    assert weft.load(tmp_path / "x.safetensors")["x"].tolist() == [1 + 2j]
    with pytest.raises(ValueError, match="complex128, which the format does not have"):
        weft.save({"x": x.to(weft.complex128)}, tmp_path / "y.safetensors")


# --- gradients --------------------------------------------------------------------------------------------------------
def test_gradients_follow_the_convention_of_pytorch():
    """Of a real loss: d/dx + i d/dy. |z|^2 has 2 z, Re(z^2) has 2 conj(z)."""
    z = weft.tensor([1 + 2j, -3j], requires_grad=True)
    assert weft.autograd.grad((z * z.conj()).real.sum(), z)[0].tolist() == [2 + 4j, -6j]
    assert weft.autograd.grad((z * z).real.sum(), z)[0].tolist() == [2 - 4j, 6j]
    assert weft.autograd.grad(z.imag.sum(), z)[0].tolist() == [1j, 1j]
    assert weft.autograd.grad(weft.view_as_real(z)[:, 1].sum(), z)[0].tolist() == [1j, 1j]
    (first,) = weft.autograd.grad(z.abs().square().sum(), z, create_graph=True)
    assert abs(weft.autograd.grad(first.real.sum(), z)[0].numpy() - 2).max() < 1e-6


def test_real_leaves_get_real_gradients():
    x = weft.tensor([0.5, 2.0], requires_grad=True)
    y = (x * (1 + 1j)).exp()
    assert y.requires_grad and y.grad_fn.name() == "ExpBackward0"
    y.abs().sum().backward()
    assert x.grad.dtype is weft.float32
    np.testing.assert_allclose(x.grad.numpy(), np.exp([0.5, 2.0]), rtol=1e-5)


def test_only_real_losses_have_implicit_gradients():
    z = weft.ones(1, dtype=weft.complex64, requires_grad=True)
    with pytest.raises(RuntimeError, match="only for real scalar outputs but got weft.complex64"):
        (z * z).backward()
    (z * z).backward(weft.tensor([1 + 0j]))
    assert z.grad.tolist() == [2 + 0j]


# --- refusals ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("function", [
    weft.relu, weft.erf, lambda z: z < z, lambda z: weft.maximum(z, z), lambda z: z.median(), lambda z: z.sort(),
    lambda z: z.softmax(0), lambda z: z.clamp(0, 1), lambda z: z.floor(), lambda z: z.cummax(0),
    lambda z: weft.nn.functional.gelu(z), lambda z: z.logaddexp(z), lambda z: z.logcumsumexp(0),
], ids=range(13))  # fmt: skip
def test_what_has_no_meaning_or_none_yet_is_refused(function):
    with pytest.raises(NotImplementedError, match=r"not implemented for complex64; compute with x\.real"):
        function(weft.tensor([1j, 2]))


@pytest.mark.parametrize("function", [
    lambda x: x.fill_(1j), lambda x: weft.full((2,), 1j, dtype=weft.float32), lambda x: x.masked_fill(x == 1, 1j),
    lambda x: float(x[0] * 1j),
], ids=range(4))  # fmt: skip
def test_imaginary_numbers_do_not_fit_into_real_ones(function):
    with pytest.raises(RuntimeError, match="without overflow"):
        function(weft.ones(2))
    with pytest.raises(TypeError, match="must be real numbers for float32"):
        weft.tensor([1j], dtype=weft.float32)
    assert int(weft.tensor(3 + 0j)) == 3 and (1j ** weft.ones(1)).tolist() == [1j]


def test_imaginary_parts_are_dropped_with_a_warning():
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        assert weft.tensor([1 + 2j]).float().tolist() == [1]


# --- compiled calls ---------------------------------------------------------------------------------------------------
def test_compiled_calls_run_complex_ops_eagerly():
    x = weft.tensor([0.5, -1.0, 2.0], requires_grad=True)

    def run(scale):
        signal = weft.fft.rfft((x * scale).tanh())
        power = (signal * signal.conj() * 1j).imag
        return [power.sum(), *weft.autograd.grad(power.sum(), x)]

    compiled = weft.compile(run)
    for scale in (1.0, 0.5, 2.0, 1.0):
        for ours, eager in zip(compiled(scale), run(scale)):
            assert ours.detach().numpy().tobytes() == eager.detach().numpy().tobytes()
    assert "complex64 has no generated kernels" in compiled.explain()
    assert "instead: float32 or float64, where the values allow it" in compiled.explain()


def test_pairs_that_become_complex_in_a_compiled_call_keep_their_history():
    pairs = weft.tensor([[0.5, -1.0], [2.0, 0.25], [1.0, 3.0]], requires_grad=True)
    weight = weft.tensor([2.0, -3.0], requires_grad=True)
    ways = [
        lambda: weft.view_as_real(weft.view_as_complex(pairs)).square().sum(),
        lambda: weft.view_as_complex(pairs * weight).real.square().sum() + pairs.sum(),
        lambda: (weft.fft.irfft(weft.view_as_complex((pairs * weight).relu()), n=4) + weight.sum()).square().sum(),
    ]
    for way in ways:

        def run(way=way):
            loss = way()
            return [loss, *weft.autograd.grad(loss, [pairs, weight], allow_unused=True)]

        compiled = weft.compile(run)
        for _ in range(3):
            for ours, eager in zip(compiled(), run(), strict=True):
                assert (ours is None) == (eager is None)
                assert ours is None or ours.detach().numpy().tobytes() == eager.detach().numpy().tobytes()


# --- against PyTorch --------------------------------------------------------------------------------------------------
DIFFERENTIABLE = {
    **{name: (lambda z, m, name=name: getattr(m, name)(z)) for name in str.split("""
        abs angle exp log sin cos tan tanh sinh cosh sqrt rsqrt reciprocal asin acos atan conj sgn neg square sigmoid
        real imag view_as_real log2 log10 log1p expm1 exp2
    """)},
    "product": lambda z, m: z * z.flip(0) / (z + 1),
    "power": lambda z, m: z**3 + z**2.5 + z ** (0.5 + 1j),
    "number": lambda z, m: (2 - 1j) * z - 1j / z,
    "base": lambda z, m: z ** z.flip(0),
    "matmul": lambda z, m: z.reshape(2, 2) @ z.reshape(2, 2).mH,
    "reductions": lambda z, m: z.reshape(2, 2).prod(1) + z.reshape(2, 2).mean(0) + z.sum(),
    "where": lambda z, m: m.where(z.real > 0, z, 2j),
    "indices": lambda z, m: m.cat([z[1:], z[m.tensor([0, 0])]]).roll(1),
    "norm": lambda z, m: m.linalg.norm(z),
    "polar": lambda z, m: m.polar(z.abs(), z.angle()),
    "parts": lambda z, m: m.complex(z.imag, z.real) + m.view_as_complex(m.view_as_real(z) * 2),
    "einsum": lambda z, m: m.einsum("i,j->ij", z, z.conj()),
    "scans": lambda z, m: z.cumsum(0) * z.cumprod(0),
    "deviations": lambda z, m: z.var() + z.std(),
    "inverse": lambda z, m: m.linalg.inv(z.reshape(2, 2)) + m.linalg.det(z.reshape(2, 2)),
    "solve": lambda z, m: m.linalg.solve(z.reshape(2, 2), z.reshape(2, 2).mH),
}  # fmt: skip
LINEAR = str.split("conj neg real imag view_as_real parts where indices")


@pytest.mark.oracle
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_values_and_derivatives_of_pytorch(name):
    torch = pytest.importorskip("torch")
    values, weights = (np.random.default_rng(k).normal(size=(2, 16)) for k in (0, 1))

    def weighted(x, m):
        """A real number that depends on all of x, in both of its parts."""
        numbers = weights.reshape(-1)[: x.numel()].reshape(tuple(x.shape))
        total = (x * m.tensor(numbers * (1 + 0.5j) if x.is_complex() else numbers)).sum()
        return total.real if total.is_complex() else total

    def run(m):
        z = m.tensor((values[0] + 1j * values[1])[:4], requires_grad=True)
        out = DIFFERENTIABLE[name](z, m)
        (first,) = m.autograd.grad(weighted(out, m), z, create_graph=True)
        results = [out, first]
        if name not in LINEAR:
            results += m.autograd.grad(weighted(first, m), z)
        return [np.array(r.detach().resolve_conj().resolve_neg()) for r in results]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for ours, theirs in zip(run(weft), run(torch)):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.oracle
def test_text_of_pytorch():
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    for scale in (1.0, 1e6, 1e-6):
        values = scale * (generator.normal(size=(3, 5)) + 1j * generator.normal(size=(3, 5)))
        for array in (values, values.round(), values.astype(np.complex64), values[0, 0]):
            assert repr(weft.tensor(array)).replace("weft.", "torch.") == repr(torch.tensor(array))


@pytest.mark.oracle
def test_files_of_pytorch():
    torch = pytest.importorskip("torch")
    for name in ("complex64", "complex128"):
        buffer = io.BytesIO()
        torch.save({"x": torch.tensor([1.5 - 2j], dtype=getattr(torch, name))}, buffer)
        buffer.seek(0)
        loaded = weft.load(buffer)["x"]
        assert loaded.dtype.name == name and loaded.tolist() == [1.5 - 2j]


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_eigenvalues_have_pytorchs_derivatives(kind):
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(0)
    values = rng.normal(size=(2, 3, 3)) + (1j * rng.normal(size=(2, 3, 3)) if kind == "complex" else 0)

    def run(m):
        x = m.tensor(values, requires_grad=True)
        found, vectors = m.linalg.eig(x)
        loss = (found.abs() * m.tensor([1.0, 2.0, 3.0], dtype=m.float64)).sum() + (vectors.abs() ** 3).sum()
        (first,) = m.autograd.grad(loss, [x], create_graph=True)
        (second,) = m.autograd.grad((first.abs() ** 2).sum(), [x])
        (alone,) = m.autograd.grad((m.linalg.eigvals(x).abs() ** 2).sum(), [x])
        return [found, vectors, first, second, alone]

    for mine, theirs in zip(run(weft), run(torch)):
        assert str(mine.dtype)[5:] == str(theirs.dtype)[6:]
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), 1e-8, 1e-8)


def test_eigenvalues_of_real_matrices_are_complex():
    turn = weft.tensor([[0.0, -1.0], [1.0, 0.0]])
    values, vectors = weft.linalg.eig(turn)
    assert sorted(values.imag.tolist()) == [-1, 1] and values.dtype is vectors.dtype is weft.complex64
    assert weft.linalg.eigvals(weft.eye(2)).dtype is weft.complex64
    assert weft.compile(weft.linalg.eigvals)(turn).tolist() == weft.linalg.eigvals(turn).tolist()
    assert weft.linalg.eig(weft.ones(0, 0)).eigenvectors.shape == (0, 0)
    with pytest.raises(RuntimeError, match="linalg.eig: A must be batches of square matrices, but they are 2 by 3"):
        weft.linalg.eig(weft.ones(2, 3))
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        weft.linalg.eig(weft.ones(()))
