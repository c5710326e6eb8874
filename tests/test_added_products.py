"""Products added to a tensor: numbers that are 0, whole, fractions and complex; PyTorch's older order of arguments."""

import pytest

import weft

SHAPES = {
    "addmm": ((2, 3), (2, 4), (4, 3)),
    "addmv": ((2,), (2, 4), (4,)),
    "addbmm": ((2, 3), (5, 2, 4), (5, 4, 3)),
    "baddbmm": ((5, 2, 3), (5, 2, 4), (5, 4, 3)),
    "addr": ((2, 3), (2,), (3,)),
}
NUMBERS = [
    *(
        {},
        {"beta": 0},
        {"beta": 0, "alpha": 2},
        {"beta": 0.0},
        {"beta": 2},
        {"beta": 0.5},
        {"alpha": 0.5},
        {"alpha": 0},
    ),
    *({"beta": 2.0, "alpha": 2.0}, {"beta": True}, {"alpha": 1j}, {"beta": 2j}),
]
names = pytest.mark.parametrize("name", SHAPES)


def operands(library, name, dtype="float32"):
    sizes = [library.Size(shape).numel() for shape in SHAPES[name]]
    return [
        (library.arange(n) % 7 - 3).reshape(shape).to(getattr(library, dtype)) for n, shape in zip(sizes, SHAPES[name])
    ]


@names
def test_beta_0_drops_what_the_tensor_holds(name):
    x, left, right = operands(weft, name)
    product = getattr(weft, name)(x * 0, left, right)
    x[0] = float("nan")
    f = getattr(weft, name)
    assert f(x, left, right, beta=0).tolist() == product.tolist()
    assert f(weft.tensor(float("inf")), left, right, beta=0, alpha=2).tolist() == (2 * product).tolist()
    compiled = weft.compile(lambda *given: f(*given, beta=0))
    assert [compiled(x, left, right).tolist() for _ in range(3)] == [product.tolist()] * 3
    assert getattr(x, f"{name}_")(left, right, beta=0) is x
    assert x.tolist() == product.tolist()


@names
def test_beta_0_leaves_a_gradient_of_zeros(name):
    given = [x.requires_grad_() for x in operands(weft, name)]
    with weft.no_grad():
        given[0][0] = float("nan")

    @weft.compile
    def gradients(*given):
        return weft.autograd.grad(getattr(weft, name)(*given, beta=0).square().sum(), given)

    eager = weft.autograd.grad(getattr(weft, name)(*given, beta=0).square().sum(), given)
    assert not eager[0].any()
    assert eager[1].any()
    for _ in range(3):
        assert [g.tolist() for g in gradients(*given)] == [g.tolist() for g in eager]


@names
def test_the_older_order_has_the_numbers_first(name):
    x, left, right = operands(weft, name)
    f = getattr(weft, name)
    assert f(2, x, left, right).tolist() == f(x, left, right, beta=2).tolist()
    assert f(2, x, 3, left, right).tolist() == f(x, left, right, beta=2, alpha=3).tolist()
    assert getattr(x, name)(2, 3, left, right).tolist() == f(x, left, right, beta=2, alpha=3).tolist()
    assert getattr(x.clone(), f"{name}_")(2, left, right).tolist() == f(x, left, right, beta=2).tolist()
    with pytest.raises(TypeError, match=name):
        f(x, left, right, 2)


@names
def test_numbers_that_the_type_does_not_hold_are_refused(name):
    with pytest.raises(RuntimeError, match="without overflow"):
        getattr(weft, name)(*operands(weft, name), alpha=1j)
    with pytest.raises(RuntimeError, match="expanded"):
        x, left, right = operands(weft, name)
        getattr(weft, name)(weft.zeros(7), left, right, beta=0)
    if name == "addr":
        with pytest.raises(RuntimeError, match="argument beta must not be a floating point number"):
            weft.addr(*operands(weft, name, "int64"), beta=2.0)
        with pytest.raises(RuntimeError, match="Boolean alpha only supported for Boolean results"):
            weft.addr(*operands(weft, name), alpha=True)
    else:
        x, left, right = operands(weft, name)
        with pytest.raises(RuntimeError, match="must have the same dtype"):
            getattr(weft, name)(x.double(), left, right)


@pytest.mark.oracle
@names
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "uint8", "complex64", "float16"])
def test_numbers_of_every_kind_do_what_they_do_in_pytorch(name, dtype):
    torch = pytest.importorskip("torch")

    def given(library, numbers):
        try:
            x = getattr(library, name)(*operands(library, name, dtype), **numbers)
        except RuntimeError:
            return RuntimeError
        return str(x.dtype).split(".")[1], x.tolist()

    for numbers in NUMBERS:
        assert given(weft, numbers) == given(torch, numbers), numbers
