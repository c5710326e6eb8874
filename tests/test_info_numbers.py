"""`linalg.cholesky_ex` and its relatives against PyTorch: one matrix that cannot be factored spoils no other."""

import numpy as np
import pytest
from compiled_twin import assert_same

import weft

RNG = np.random.default_rng(5)


def matrices(is_complex=False):
    """Positive definite ones, but for the second and the fourth."""
    a = RNG.normal(size=(5, 4, 4)) + (1j * RNG.normal(size=(5, 4, 4)) if is_complex else 0)
    found = a @ a.conj().mT + np.eye(4)
    found[1] = -found[1]
    found[3, 2, 2] = -1
    return found


def singular():
    found = RNG.normal(size=(5, 4, 4))
    found[2, :, 1] = 0
    found[4, 3] = 0
    return found


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.oracle
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_factors_of_some(torch, is_complex, upper):
    array = matrices(is_complex)
    for given in (array, array.reshape(5, 1, 4, 4), array[0], array[3], array[:1]):
        ours = weft.linalg.cholesky_ex(weft.tensor(given), upper=upper)
        theirs = torch.linalg.cholesky_ex(torch.tensor(given), upper=upper)
        np.testing.assert_array_equal(ours.info.numpy(), theirs.info.numpy())
        assert ours.info.numpy().dtype == np.int32
        np.testing.assert_allclose(ours.L.numpy(), theirs.L.numpy(), atol=1e-12)
    for T, error in ((weft, weft.linalg.LinAlgError), (torch, torch.linalg.LinAlgError)):
        with pytest.raises(error, match="positive-definite"):
            T.linalg.cholesky_ex(T.tensor(array), check_errors=True)


@pytest.mark.oracle
def test_inverses_and_solutions_of_some(torch):
    array, good = singular(), [0, 1, 3]
    ours, theirs = weft.linalg.inv_ex(weft.tensor(array)), torch.linalg.inv_ex(torch.tensor(array))
    np.testing.assert_array_equal(ours.info.numpy(), theirs.info.numpy())
    np.testing.assert_allclose(ours.inverse.numpy()[good], theirs.inverse.numpy()[good])
    for shape in ((4,), (5, 4), (5, 4, 2), (4, 2), (1, 4, 3)):
        B = RNG.normal(size=shape)
        ours = weft.linalg.solve_ex(weft.tensor(array), weft.tensor(B))
        theirs = torch.linalg.solve_ex(torch.tensor(array), torch.tensor(B))
        np.testing.assert_array_equal(ours.info.numpy(), theirs.info.numpy())
        assert ours.result.shape == theirs.result.shape
        np.testing.assert_allclose(ours.result.numpy()[good], theirs.result.numpy()[good])
    B = RNG.normal(size=(5, 2, 4))
    ours = weft.linalg.solve_ex(weft.tensor(array), weft.tensor(B), left=False)
    theirs = torch.linalg.solve_ex(torch.tensor(array), torch.tensor(B), left=False)
    assert (ours.info.numpy() != 0).tolist() == (theirs.info.numpy() != 0).tolist()
    np.testing.assert_allclose(ours.result.numpy()[good], theirs.result.numpy()[good])


@pytest.mark.oracle
def test_zeros_in_factors(torch):
    for array in (singular(), singular()[2], np.zeros((2, 3, 3)), np.zeros((2, 0, 0))):
        ours, theirs = [T.linalg.lu_factor_ex(T.tensor(array)) for T in (weft, torch)]
        for one, other in zip(ours, theirs):
            np.testing.assert_allclose(one.numpy(), other.numpy(), atol=1e-12)
    with pytest.raises(weft.linalg.LinAlgError, match="is zero"):
        weft.linalg.lu_factor_ex(weft.zeros(2, 2), check_errors=True)


@pytest.mark.oracle
def test_gradients_of_those_that_could_be_computed(torch):
    found = []
    for T in (weft, torch):
        x = T.tensor(matrices()).requires_grad_()
        L, info = T.linalg.cholesky_ex(x)
        L[info == 0].square().sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[0][[0, 2, 4]], found[1][[0, 2, 4]], atol=1e-12)
    assert not found[0][[1, 3]].any()


def test_in_compiled_calls():
    """A search for the least shift that makes a matrix positive definite, as trust region methods do it."""
    pool = [matrices() for _ in range(3)]

    def scenario(compile):
        def shifted(a):
            for shift in (0.0, 2.0, 20.0):
                L, info = weft.linalg.cholesky_ex(a + shift * weft.eye(4, dtype=a.dtype))
                if (info == 0).all():
                    return L, shift
            return L, -1.0

        def plain(a):
            L, info = weft.linalg.cholesky_ex(a)
            return weft.where((info == 0)[:, None, None], L, 0.0), info, weft.linalg.lu_factor_ex(a).info

        search, factor = compile(shifted), compile(plain)
        for k in range(15):
            a = weft.tensor(pool[k % 3])
            yield search(a), factor(a), factor(weft.tensor(pool[k % 3][[0, 2]] * k))

    assert_same(scenario)
