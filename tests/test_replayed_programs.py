"""How scientists call: inputs that a gradient does not reach, numbers read where a call computes them, leaves made of
arrays, failures that are caught. The same bits as in eager mode, in calls that are replayed."""

import numpy as np
import pytest
from compiled_twin import assert_same, error_of, look, twin

import weft

ROUNDS = 14


def followed(function):
    """How many calls were followed step by step."""
    return sum(recording.n_followed for recording in function.recordings)


# --- inputs that outputs do not depend on -----------------------------------------------------------------------------
def gradients_of(body, which, n_leaves=3):
    def scenario(compile):
        leaves = [weft.randn(3, requires_grad=True) for _ in range(n_leaves)]
        f, x = compile(body), weft.randn(3)
        for k in range(ROUNDS):
            yield look(f(x + k, leaves, which[k % len(which)]))

    return scenario


def may_be_unused(x, leaves, uses_last):
    a, b, c = leaves
    loss = (a * x).sum() ** 2 + (b * x).sum()
    if uses_last:
        loss = loss + c.pow(2).sum()
    return weft.autograd.grad(loss, (c, a, b), allow_unused=True)


def zeros_for_unused(x, leaves, uses_last):
    a, b, c = leaves
    loss = (a * x * (b if uses_last else 1)).sum()
    return weft.autograd.grad(loss, (a, b, a, c), materialize_grads=True)


@pytest.mark.parametrize("body", [may_be_unused, zeros_for_unused])
@pytest.mark.parametrize("which", [[False], [True], [True, False], [False, False, True]])
def test_gradients_of_inputs_that_may_be_unused(body, which):
    twin(gradients_of(body, which))()


def test_such_calls_are_replayed():
    functions = []

    def compile(function):
        functions.append(weft.compile(function))
        return functions[-1]

    list(gradients_of(may_be_unused, [False])(compile))
    assert followed(functions[0]) < ROUNDS // 2


def test_what_was_unused_is_an_argument_now():
    """Who is unused is told by which tensors a call has met, not by its place among the inputs."""

    def scenario(compile):
        a, c = weft.randn(3, requires_grad=True), weft.randn(3, requires_grad=True)
        others = [weft.randn(3, requires_grad=True) for _ in range(3)]
        f = compile(lambda x: weft.autograd.grad((a * x).sum() ** 2, (x, a, c), allow_unused=True))
        for k in range(ROUNDS):
            yield look(f(others[k % 3]))
        yield error_of(f, c)  # both as an argument and as what was unused
        yield look(f(c)[2])
        yield look(f(others[0]))

    twin(scenario)()


def test_an_unused_input_that_requires_no_gradients_is_an_error():
    def scenario(compile):
        a, c = weft.randn(3, requires_grad=True), weft.randn(3, requires_grad=True)
        f = compile(lambda x: weft.autograd.grad((a * x).sum(), (a, c), allow_unused=True))
        for k in range(ROUNDS):
            c.requires_grad_(k % 5 != 4)
            yield error_of(f, weft.ones(3))

    twin(scenario)()


def test_an_unused_input_without_leave_is_an_error():
    def scenario(compile):
        a, c = weft.randn(3, requires_grad=True), weft.randn(3, requires_grad=True)
        f = compile(lambda x, allow: weft.autograd.grad((a * x).sum(), (a, c), allow_unused=allow))
        for k in range(ROUNDS):
            yield error_of(f, weft.ones(3), k % 4 != 3)

    twin(scenario)()


# --- values that are read in the call ---------------------------------------------------------------------------------
def numbers_of_a_value(x):
    y = x.exp()
    return y.sum().item(), float(y[0]), int(y[1] * 10), bool((y > 2).any()), y.tolist(), y.numpy().sum()


def numbers_of_an_argument(x):
    return x.tolist(), float(x[0] * 1), x.sum(), bool(x.max() > 1), x.numpy().max()


def of_an_argument_changed_before(x):
    x.mul_(2)
    return x.tolist(), x.numpy().copy(), x.sum()


def of_a_value_changed_before(x):
    y = x.exp()
    first = y.sum().item()
    y[0] = first
    return y.tolist(), float(y[0]), y.numpy(), y


def changed_after_it_was_shown(x):
    y = x.exp()
    shown = y.numpy()
    y.add_(1)
    return shown, y.tolist(), y


def of_several_elements(x):
    return x.exp().item()


def with_gradients(x):
    x = x.detach().requires_grad_()
    return float(x.exp().sum()), x.exp().numpy()


def of_other_kinds(x):
    y = x.exp()
    return (y > 1).tolist(), y.to(weft.bfloat16).tolist(), y.to(weft.int64).sum().item(), (y * 1j).sum().item()


def bfloat16_as_an_array(x):
    return x.exp().to(weft.bfloat16).numpy()


READS = [
    numbers_of_a_value, numbers_of_an_argument, of_an_argument_changed_before, of_a_value_changed_before,
    changed_after_it_was_shown, of_several_elements, with_gradients, of_other_kinds, bfloat16_as_an_array,
]  # fmt: skip


@pytest.mark.parametrize("body", READS, ids=lambda f: f.__name__)
def test_what_is_read_is_what_eager_mode_reads(body):
    weft.fill_cache()

    def scenario(compile):
        f, x = compile(body), weft.randn(4)
        for k in range(3 * ROUNDS):
            yield error_of(f, x + k % 3), look(x)

    twin(scenario)()


def test_a_value_that_cannot_be_computed_says_so_where_it_is_read():
    weft.fill_cache()

    def scenario(compile):
        f, table = compile(lambda t, i: (t[i].sum().item(), bool(t[i].sum() > 0))), weft.randn(4)
        for k in range(ROUNDS):
            yield error_of(f, table, weft.tensor([0, 2, 9 if k == 9 else 1]))

    assert_same(scenario)


# --- leaves made of arrays, and results that lead there ---------------------------------------------------------------
def test_results_that_lead_to_a_leaf_of_the_call():
    def body(a):
        theta = weft.tensor(a, requires_grad=True)
        loss = (theta * 2).exp().sum()
        number = loss.item()
        loss.backward(retain_graph=number > 100)
        return loss, theta

    def scenario(compile):
        f, kept = compile(body), []
        for k in range(ROUNDS):
            kept.append(f(np.array([0.5, 0.25 * k])))
        for loss, theta in kept:
            yield look(theta), look(loss.detach()), loss.requires_grad
            yield error_of(loss.backward), theta.grad

    twin(scenario)()


# --- failures that are caught -----------------------------------------------------------------------------------------
def factor_or_nothing(a):
    try:
        return weft.linalg.cholesky(a * 2).diagonal().log().sum()
    except RuntimeError:
        return weft.tensor(-1.0)


def test_factors_in_a_try():
    def scenario(compile):
        f, x = compile(factor_or_nothing), weft.randn(3, 3)
        good = x @ x.T + weft.eye(3)
        for k in range(2 * ROUNDS):
            yield f(-good if k % 4 == 3 else good + k)

    twin(scenario)()


# --- arrays as tensors ------------------------------------------------------------------------------------------------
@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [None, "float32", "float64", "float16", "int64", "int32", "bool", "complex64"])
@pytest.mark.parametrize("of", ["f8", "f4", "f2", "i8", "i4", "u1", "?", "c8", "i2"])
def test_tensors_of_arrays_are_pytorchs(of, dtype):
    torch = pytest.importorskip("torch")
    numbers = np.array([[0, 1, -2], [3, 100, 7]]) * 0.75
    ways = [np.copy, np.transpose, lambda a: a[:, ::-1], lambda a: a[:, :0], lambda a: a[1, :1][0:1]]
    here, there = (None if dtype is None else getattr(T, dtype) for T in (weft, torch))
    for way in ways:
        one = way(numbers.astype(of))
        expected = torch.tensor(np.ascontiguousarray(one) if one.ndim else one, dtype=there).numpy()
        found = weft.tensor(one, dtype=here)
        assert found.numpy().dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy(), expected)
        assert found.is_contiguous()
        if one.ndim:
            one[...] = 1
            np.testing.assert_array_equal(found.numpy(), expected)


def test_large_arrays_and_floats_that_do_not_fit():
    large = np.linspace(0, 1, 1 << 16)
    assert weft.tensor(large).numpy().tobytes() == large.tobytes()
    assert not np.shares_memory(weft.tensor(large).numpy(), large)
    with np.errstate(all="raise"):
        assert weft.tensor(np.array([1e300, -1e300, 1e-300]), dtype=weft.float32).tolist() == [np.inf, -np.inf, 0]
