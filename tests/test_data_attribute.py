"""x.data: the memory of x with a version of its own. With weft, in a compiled call, and with PyTorch."""

import numpy as np
import pytest
from autograd_programs import leaf, plain, program_into

import weft

PROGRAMS = []
program = program_into(PROGRAMS)


def versions(*tensors):
    return [x._version for x in tensors]


def raised(function):
    try:
        return function()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)


# --- versions and memory ----------------------------------------------------------------------------------------------
@program([[0, 1], [1, 1], [1, 1], [1, 0], [9.0, 3.0], [9.0, 3.0]])
def each_counts_its_own_changes(ns):
    x = ns.ones(2)
    first = x.data
    first.add_(1)
    seen = [versions(x, first)]
    x.add_(1)
    seen.append(versions(x, first))
    second = x.data
    second[0] = 9.0
    return [*seen, versions(x, second), versions(x, x.data), x, first]


@program([[1.0, 5.0, 5.0, 2.0], [0, 2, 2], [0, 0, 1], [0, 1, 1]])
def views_of_data_and_data_of_views(ns):
    x = ns.ones(4)
    data = x.data
    part = data[1:]
    part[:2].mul_(5)
    part[2] = 2
    first = versions(x, data, part)
    y = ns.ones(4)
    view = y[1:]
    view.data.mul_(5)
    view.data.data.mul_(5)
    of_view = view.data
    of_view.add_(1)
    detached = data.detach()
    other = ns.ones(4).data
    same = other.detach()
    same.mul_(5)
    return [x, first, versions(y, view, of_view), [0, *versions(other, same)] if detached is not None else []]


@program([[False, True, True, True], [3.0, 3.0], 0, [5.0, 1.0], [5.0, 1.0]])
def leaves_and_flags(ns):
    x = leaf(ns, [1.0, 2.0])
    data = x.data
    flags = [data.requires_grad, data.is_leaf, data.grad_fn is None, x.requires_grad and x.is_leaf]
    data.copy_(ns.zeros(2))
    x.data[:] = ns.ones(2, dtype=ns.float64)
    x.data[...] = 3
    first = x.tolist()
    x.data.clamp_(0, 1)
    x.data[0] += 4
    return [flags, first, x._version, x, data]


@program([[-1.0, -4.0], 0, [2.0, 4.0], 0])
def assignments_of_what_it_is(ns):
    x = leaf(ns, [1.0, -2.0])
    x.data += 1
    x.data -= 3
    first, version = x.tolist(), x._version
    x.data = x.data
    x.data = x.data * -1 + ns.tensor([1.0, 0.0], dtype=ns.float64)
    return [first, version, x, x._version]


@program([[[1, 3], [2, 3]], [3.0, 3.0], [3.0, 3.0], [5.0, 3.0], [5.0, 3.0]])
def assigned_memory_is_shared(ns):
    x, other = ns.ones(2), ns.ones(2)
    x.add_(1)
    other.add_(1)
    other.mul_(2)
    other.sub_(2)
    x.data = other
    seen = [versions(x, other)]
    x.add_(1)
    seen.append(versions(x, other))
    first = [x.tolist(), other.tolist()]
    other.data[0] = 5.0
    return [seen, *first, x, other]


@program([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [[1.0, 3.0], [2.0, 4.0]], [[9.0, 3.0], [2.0, 4.0]], [1.0, 2.0]])
def assigned_shapes_and_types(ns):
    x = leaf(ns, [1.0, 2.0])
    x.data = ns.tensor([1.0, 2.0, 3.0], dtype=ns.float32)
    (x * 2).sum().backward()
    y = ns.tensor([[1.0, 2.0], [3.0, 4.0]])
    y.data = y.data.t()
    turned = y.tolist()
    y[0, 0] = 9
    z = ns.ones(2)
    z.data = leaf(ns, [1.0, 2.0]) * 1
    return [x, x.grad, turned, y, z]


# --- what a backward reads --------------------------------------------------------------------------------------------
@program([[30.0, 36.0], [9.0, 36.0], [5.0, 6.0]])
def saved_inner_value(ns):
    x = leaf(ns, [1.0, 2.0])
    h = x * 3
    y = h * h
    h.data[0] = 5
    y.sum().backward()
    return [x.grad, y, h]


@program([[4.0, 6.0], [0.0, 0.0], [22.0, 42.0]])
def saved_leaf_and_saved_output(ns):
    x, z = leaf(ns, [1.0, 2.0]), leaf(ns, [1.0, 2.0])
    y = x * x
    x.data.add_(1)
    y.sum().backward()
    of_output = x.grad.tolist()
    y = x.exp()
    y.data.zero_()
    x.grad = None
    y.sum().backward()
    y = z * z
    z.data = ns.tensor([10.0, 20.0], dtype=ns.float64)
    z.data.add_(1)
    y.sum().backward()
    return [of_output, x.grad, z.grad]


@program([[2.0, 3.0], True, True, [2.0, 3.0], [1.0, 2.0]])
def saved_data(ns):
    """What is saved is a .data, and changes by itself, through its base or through another one."""
    seen = []
    for change in (
        lambda x, d: x.data.add_(1),
        lambda x, d: d.add_(1),
        lambda x, d: d.detach()[:1].add_(1),
        lambda x, d: x.detach().add_(1),
        lambda x, d: None,
    ):
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        d = x.data
        y = (w * d).sum()
        change(x, d)
        seen.append(raised(lambda: ns.autograd.grad(y, w)[0].tolist()))  # noqa: B023
    return seen


@program([True, True])
def versions_that_still_count(ns):
    def change_after_all():
        x = leaf(ns, [1.0, 2.0])
        y = x * x
        x.data = ns.tensor([10.0, 20.0], dtype=ns.float64)
        with ns.no_grad():
            x.add_(1)
        y.sum().backward()

    def change_of_a_view():
        h = leaf(ns, [1.0, 2.0]) * 1
        y = h * h
        h.detach()[0] = 5
        y.sum().backward()

    return [raised(change_after_all), raised(change_of_a_view)]


@program([[10.0, 20.0], [20.0, 40.0], [2.718281828459045, 7.38905609893065]])
def other_memory_for_saved_values(ns):
    """An operand is read where it is now, an output where it was."""
    x = leaf(ns, [1.0, 2.0])
    h = x * 1
    y = h * h
    h.data = ns.tensor([10.0, 20.0], dtype=ns.float64)
    y.sum().backward()
    z = leaf(ns, [1.0, 2.0])
    e = z.exp()
    e.data = ns.tensor([10.0, 20.0], dtype=ns.float64)
    (e * 1).sum().backward()
    return [e, x.grad, z.grad]


@program([[3.0, 8.0], [1.0, 2.0], None, [2.0, 4.0]])
def in_place_with_gradients(ns):
    x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
    d = x.data
    d.mul_(w)
    d.sum().backward()
    h = leaf(ns, [1.0, 2.0]) * 1
    kept = h.data
    h.mul_(2)
    return [x, w.grad, x.grad, kept]


@program([[4.0, 4.0], [5.368, 10.736], [[2.0, 4.0], [4.4, 8.8], [7.28, 14.56]], 0])
def stages_of_a_solver(ns):
    """As ODE solvers do: the rows of a tensor with history are filled one after the other."""
    start = leaf(ns, [1.0, 2.0])
    stages, y = ns.stack([start * 0] * 3), start
    for k in range(3):
        stages.data[k] = (y * 2).detach()
        y = y + stages[k] * 0.1 + start
    y.sum().backward()
    return [start.grad, rounded(y), rounded(stages), stages._version]


def rounded(x):
    return [[round(v, 9) for v in row] if isinstance(row, list) else round(row, 9) for row in x.tolist()]


@program([[0.0, 0.0], [1.0, 1.0]])
def gradients_have_data_too(ns):
    x = leaf(ns, [1.0, 2.0])
    (x * x).sum().backward()
    x.grad.data.zero_()
    first = x.grad.tolist()
    x.grad.data = ns.ones(2, dtype=ns.float64)
    return [first, x.grad]


@pytest.mark.parametrize("function, expected", PROGRAMS)
def test_program(function, expected):
    assert plain(function(weft)) == expected


@pytest.mark.parametrize("function, expected", PROGRAMS)
def test_compiled_program(function, expected):
    compiled = weft.compile(lambda: function(weft))
    assert [plain(compiled()) for _ in range(3)] == [expected] * 3


@pytest.mark.oracle
@pytest.mark.parametrize("function, expected", PROGRAMS)
def test_program_in_torch(function, expected):
    assert plain(function(pytest.importorskip("torch"))) == expected


ERRORS = [
    (TypeError, "Variable data has to be a tensor, but got int", lambda ns, x: 5),
    (TypeError, "Variable data has to be a tensor, but got list", lambda ns, x: [1.0, 2.0]),
    (RuntimeError, "data set to a tensor that requires gradients must be floating point", lambda ns, x: ns.arange(2)),
]


@pytest.mark.parametrize("kind, words, value", ERRORS)
def test_errors(kind, words, value):
    with pytest.raises(kind, match=words):
        leaf(weft, [1.0, 2.0]).data = value(weft, None)


@pytest.mark.oracle
@pytest.mark.parametrize("kind, words, value", ERRORS)
def test_errors_are_pytorchs(kind, words, value):
    torch = pytest.importorskip("torch")
    with pytest.raises(kind, match=words):
        leaf(torch, [1.0, 2.0]).data = value(torch, None)


def test_data_in_native_code_is_what_python_makes():
    """Memory shared, a version and no history of its own; changes through it are counted among the silent ones."""
    x = weft.nn.Parameter(weft.tensor([1.0, 2.0]))
    for _ in range(200):
        x + 1, x.data, x.detach().numpy()
    y = x.data
    assert type(y) is weft.Tensor and not y.requires_grad and y.grad_fn is None and y._base is None
    loss = (x * x).sum()
    y.mul_(3)
    assert (x._version, y._version, x.tolist()) == (0, 1, [3.0, 6.0])
    loss.backward()  # as in PyTorch, no version tells of the change
    assert x.grad.tolist() == [6.0, 12.0]
    with weft.no_grad():
        x.mul_(2)
    assert (x._version, y._version, y.tolist()) == (1, 1, [6.0, 12.0])
    z = weft.tensor([1.0, 2.0, 3.0])[1:].data
    z.zero_()
    assert z.data.data.tolist() == [0.0, 0.0]
    part = weft.ones(2, 3).t().data
    assert part.stride() == (1, 3) and part.tolist() == [[1.0, 1.0]] * 3


def test_data_in_inference_mode_and_of_arrays():
    array = np.zeros(3, np.float32)
    x = weft.from_numpy(array)
    for _ in range(100):
        x + 1, x.data
    x.data.add_(1)
    assert array.tolist() == [1.0] * 3
    read_only = np.zeros(3, np.float32)
    read_only.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        weft.from_numpy(read_only).data.add_(1)
    with weft.inference_mode():
        assert weft.ones(2).data.is_inference()


MADE_BY = {
    "an op": lambda x: x * 2.0,
    "a change of a part": lambda x: change(x * 2.0),
    "a view of what has changed": lambda x: view_of_changed(x * 2.0),
}


def change(y):
    y[:, :2].mul_(1.0)
    return y


def view_of_changed(y):
    shown = y.view(3, 4)
    y.mul_(1.0)
    return shown


def of_other_shape(library, made_by, shape, times):
    """The gradient that comes through a result whose memory has another shape since, or the kind of error."""
    for _ in range(times):
        x = library.ones(3, 4, requires_grad=True)
        y = MADE_BY[made_by](x)
        y.data = library.ones(*shape)
        try:
            y.sum().backward()
            found = x.grad.tolist()
        except RuntimeError as error:
            assert "expected shape compatible with [3, 4]" in str(error)
            found = "RuntimeError"
    return found


SHAPES_SINCE = [(1, 4), (5,), (4,), (3, 1), (3, 4), (2, 3, 4), (1, 3, 4)]


@pytest.mark.parametrize("made_by", MADE_BY)
@pytest.mark.parametrize("shape", SHAPES_SINCE)
def test_gradients_of_results_that_have_another_shape_since(made_by, shape):
    """They are summed if the result may have been broadcast; what would itself be broadcast is no gradient."""
    expected = {(3, 4): [[2.0] * 4] * 3, (2, 3, 4): [[4.0] * 4] * 3, (1, 3, 4): [[2.0] * 4] * 3}
    assert of_other_shape(weft, made_by, shape, 20) == expected.get(shape, "RuntimeError")


# A view of what has changed is another view of the base there, whatever memory it has.
@pytest.mark.oracle
@pytest.mark.parametrize("made_by", ["an op", "a change of a part"])
@pytest.mark.parametrize("shape", SHAPES_SINCE)
def test_gradients_of_such_results_are_pytorchs(made_by, shape):
    torch = pytest.importorskip("torch")
    assert of_other_shape(weft, made_by, shape, 1) == of_other_shape(torch, made_by, shape, 1)


def of_packed(library, how, change):
    """The gradient where the results that nodes have put away by hooks are changed afterwards."""
    x = library.ones(3, requires_grad=True)
    packed = (lambda t: t.clone()), (lambda t: t * 2.0)
    if how == "in a block":
        with library.autograd.graph.saved_tensors_hooks(*packed):
            y = x.exp()
    else:
        y = x.exp()
        y.grad_fn._raw_saved_result.register_hooks(*packed)
    if change == "data":
        y.data = y.data * 3.0
    elif change == "data of another type":
        y.data = y.data.double()
    else:
        y.mul_(5.0)
    y.sum().backward()
    return [round(g, 4) for g in x.grad.tolist()]


CHANGED_SINCE = [(how, what) for how in ("in a block", "one") for what in ("data", "data of another type", "in place")]


@pytest.mark.parametrize(("how", "change"), CHANGED_SINCE)
def test_what_hooks_have_put_away_goes_on_as_it_was(how, change):
    assert of_packed(weft, how, change) == [27.1828 if change == "in place" else 5.4366] * 3


@pytest.mark.oracle
@pytest.mark.parametrize(("how", "change"), CHANGED_SINCE)
def test_what_hooks_have_put_away_is_pytorchs(how, change):
    assert of_packed(weft, how, change) == of_packed(pytest.importorskip("torch"), how, change)
