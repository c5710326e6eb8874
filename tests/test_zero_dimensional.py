"""Tensors without dimensions where PyTorch takes them for numbers: factors that stand first, dims, sizes of parts."""

import numpy as np
import pytest

import weft

# Each takes (library, x, whole, factor): x of shape (3, 4), two tensors without dimensions.
IN_PLACE_OF_NUMBERS = {
    "add": lambda t, x, whole, factor: x.add(factor, x * 2),
    "torch.add": lambda t, x, whole, factor: t.add(x, factor, x * 2),
    "sub": lambda t, x, whole, factor: x.sub(factor, x * 2),
    "add_": lambda t, x, whole, factor: x.clone().add_(factor, x),
    "sub_": lambda t, x, whole, factor: x.clone().sub_(factor, x),
    "addcmul_": lambda t, x, whole, factor: x.clone().addcmul_(factor, x, x),
    "addcdiv_": lambda t, x, whole, factor: x.clone().addcdiv_(factor, x, x + 10),
    "addcmul": lambda t, x, whole, factor: x.addcmul(factor, x, x),
    "addmm": lambda t, x, whole, factor: t.addmm(factor, x, factor, x, t.ones(4, 4, dtype=x.dtype)),
    "addmm, no alpha": lambda t, x, whole, factor: t.addmm(factor, x, x, t.ones(4, 4, dtype=x.dtype)),
    "addmv": lambda t, x, whole, factor: t.addmv(factor, x[:, 0], 3, x, x[0]),
    "sum": lambda t, x, whole, factor: x.sum(whole),
    "mean": lambda t, x, whole, factor: x.mean(whole, keepdim=True),
    "std": lambda t, x, whole, factor: x.std(whole),
    "any": lambda t, x, whole, factor: x.any(whole),
    "amax": lambda t, x, whole, factor: x.amax(whole),
    "norm": lambda t, x, whole, factor: x.norm(2, whole),
    "squeeze": lambda t, x, whole, factor: x[:, :1].squeeze(whole),
    "split": lambda t, x, whole, factor: t.cat([y * (k + 1) for k, y in enumerate(x.split(whole + 1))]),
}
every = pytest.mark.parametrize("name", IN_PLACE_OF_NUMBERS)


def result(library, name):
    x = library.tensor(np.arange(12.0).reshape(3, 4) - 5)
    return IN_PLACE_OF_NUMBERS[name](library, x, library.tensor(1), library.tensor(0.25))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:This overload of:UserWarning")
@every
def test_they_are_taken_as_pytorch_takes_them(name):
    ours, theirs = result(weft, name), result(pytest.importorskip("torch"), name)
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)


@every
def test_they_are_taken_in_compiled_calls(name):
    compiled = weft.compile(lambda: result(weft, name))
    assert [compiled().tolist() for _ in range(3)] == [result(weft, name).tolist()] * 3


def test_the_factor_is_another_one_in_every_call():
    """A two-loop recursion over the steps of L-BFGS: numbers that are tensors stand before directions."""

    @weft.compile
    def direction(g, factors):
        for factor in factors:
            g = g.add(factor, g)
        return g

    for k in range(5):
        factors = weft.tensor([0.5, k / 4])
        expected = weft.ones(3) * 1.5 * (1 + k / 4)
        assert direction(weft.ones(3), factors).tolist() == expected.tolist()


@pytest.mark.parametrize("factor", [weft.ones(1), weft.tensor(2.0, requires_grad=True)])
def test_a_factor_has_no_dimension_and_no_gradient(factor):
    x = weft.ones(3)
    for call in (x.add, x.sub, x.clone().add_, lambda *given: x.addcmul(*given, x)):
        with pytest.raises(TypeError, match="the factor is a keyword"):
            call(factor, x)
    with pytest.raises(TypeError, match="beta"):
        weft.addmv(factor, x, weft.ones(3, 3), x)


def test_a_part_has_a_whole_size():
    with pytest.raises(TypeError, match="integer"):
        weft.ones(4).split(weft.tensor(1.5))
