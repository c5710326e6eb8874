"""What docs/adding_an_op.md does, taken apart: an op registered at run time is an op like all others."""

import numpy as np
import pytest
import test_backend_ops
import test_ops_table

import weft
from weft.compiler.ops import TABLE, samples
from weft.compiler.ops.arithmetic import abs_, add, div, mul
from weft.compiler.ops.kinds import alias, elementwise, floating
from weft.compiler.ops.table import unregister
from weft.compiler.ops.transcendental import exp, log1p, tanh
from weft.runtime.code.cache import default_cache


def softsign_vjp(g, out, x):
    denominator = add(abs_(x), 1.0)
    return div(g, mul(denominator, denominator))


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Code of ops from outside weft's sources is not kept: the next version of this file would meet it."""
    monkeypatch.setenv("WEFT_CACHE", "0")
    default_cache.cache_clear()
    yield
    default_cache.cache_clear()


@pytest.fixture
def softsign():
    yield elementwise(
        "softsign",
        1,
        floating,
        vjp=(softsign_vjp,),
        lower=lambda b, x: b.div(x, b.add(b.abs(x), b.const(1, x.type))),
        samples=samples.unary(0.25, 2.0),
        oracle="nn.functional.softsign",
    )
    unregister("softsign")


@pytest.fixture
def softplus_of_twice():
    """A composite: log(1 + exp(2 x)), whose derivative 1 + tanh(x) does not overflow."""
    yield alias(
        "softplus_of_twice",
        lambda x: log1p(exp(mul(x, 2.0))),
        vjp=(lambda g, out, x: mul(g, add(tanh(x), 1.0)),),
        samples=samples.unary(),
    )
    unregister("softplus_of_twice")


def test_eager(softsign):
    x = np.linspace(-3, 3, 50)
    for dtype in (np.float32, np.float64):
        found = softsign(weft.tensor(x.astype(dtype)))
        assert np.array_equal(found.numpy(), x.astype(dtype) / (1 + np.abs(x.astype(dtype))))
    assert softsign(weft.tensor([1, -3])).tolist() == [0.5, -0.75]


def test_errors_name_it(softsign):
    with pytest.raises(TypeError, match="softsign: no tensor among its operands"):
        softsign(2.0)
    with pytest.raises(TypeError, match="softsign: takes 1 operands, got 2"):
        softsign(weft.ones(2), weft.ones(2))


def test_gradients_of_two_orders(softsign):
    x = weft.tensor([-1.0, 0.0, 0.5, 3.0], dtype=weft.float64, requires_grad=True)
    y = softsign(x)
    assert y.grad_fn.name() == "SoftsignBackward0"
    y.sum().backward()
    assert x.grad.allclose(1 / (1 + x.abs()) ** 2)
    (slope,) = weft.autograd.grad(softsign(x).sum(), [x], create_graph=True)
    (curvature,) = weft.autograd.grad(slope.sum(), [x])
    assert curvature.allclose(-2 * x.sign() / (1 + x.abs()) ** 3)


@pytest.mark.parametrize("name", ["softsign", "softplus_of_twice"])
def test_the_generated_tests_take_it(softsign, softplus_of_twice, name):
    """Shape rule, layouts, both derivatives by finite differences, compiled bits."""
    for dtype in ("float32", "float64"):
        test_ops_table.test_results_are_what_the_shape_rule_says(name, dtype)
    test_ops_table.test_layout_changes_no_bit(name)
    test_ops_table.test_operands_stay_as_they_are(name)
    test_ops_table.test_derivatives_by_finite_differences(name)
    test_backend_ops.test_float32(name)
    test_backend_ops.test_float64(name)
    test_backend_ops.test_strided_inputs(name)


@pytest.mark.oracle
def test_the_oracle_takes_it(softsign):
    pytest.importorskip("torch")
    import test_ops_oracle

    test_ops_oracle.test_forward("softsign", "float32")
    test_ops_oracle.test_gradients("softsign")


def test_compiled_it_is_fused_and_gives_the_same_bits(softsign):
    def function(x, w):
        return (softsign(x * w) + 1).sum()

    compiled = weft.compile(function)
    for k in range(3):
        x, w = weft.randn(k + 5, 33), weft.randn(k + 5, 33)
        assert np.array_equal(compiled(x, w).numpy(), function(x, w).numpy())
    programs = [program for recording in compiled.recordings for program in recording.programs]
    assert [[k["ops"] for k in p.meta["plan"]["kernels"]] for p in programs] == [
        [["mul", "softsign", "add", "sum"]]
    ] * 3
    assert "nothing ran outside the programs" in compiled.explain() and "softsign" in compiled.explain(verbose=True)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", ["softsign", "softplus_of_twice"])
def test_compiled_gradients_are_those_of_eager_mode(softsign, softplus_of_twice, name, inside):
    op = TABLE[name]

    def loss(x):
        y = (op(x * 2) * x).sum()
        if inside:
            y.backward()
        return y

    def gradient(function):
        x = weft.linspace(-2, 2, 101).requires_grad_()
        y = function(x)
        if not inside:
            y.backward()
        return y.detach().numpy().tobytes(), x.grad.numpy().tobytes()

    assert gradient(weft.compile(loss)) == gradient(loss)


def test_second_derivatives_of_a_compiled_call(softsign):
    def slope(function):
        x = weft.linspace(-2, 2, 31, dtype=weft.float64).requires_grad_()
        (g,) = weft.autograd.grad(function(x), [x], create_graph=True)
        (h,) = weft.autograd.grad(g.sum(), [x])
        return g.detach().numpy().tobytes(), h.numpy().tobytes()

    def function(x):
        return (softsign(x) * x).sum()

    assert slope(weft.compile(function)) == slope(function)


def test_a_name_is_taken_until_it_is_given_back(softsign):
    with pytest.raises(ValueError, match="op softsign is already in the table"):
        elementwise("softsign", 1, floating)


def test_taken_out_again():
    assert not {"softsign", "softplus_of_twice"} & set(TABLE)
