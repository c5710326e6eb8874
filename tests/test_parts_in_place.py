"""Changes of a part in place (index_put_, put_, index_copy_, index_fill_, fill_, scatter_ of a number) write that part
alone, as PyTorch does, whatever the tensor's size and however it lies."""

import numpy as np
import pytest

import weft

N_CALLS = 40  # by which native code knows the calls


def given(library, shape, dtype="float32"):
    rng = np.random.default_rng(2)
    x = library.tensor((rng.standard_normal(shape) * 5).astype(dtype))
    rows, columns = (library.tensor(rng.integers(-n, n, 9)) for n in shape)
    part = library.tensor((rng.standard_normal((9, shape[1])) * 5).astype(dtype))
    return x, rows, columns, part


CHANGES = {
    "rows put": lambda x, r, c, p: x.index_put_((r,), p),
    "one row put": lambda x, r, c, p: x.index_put_((r,), p[0]),
    "pairs put": lambda x, r, c, p: x.index_put_((r, c), p[:, 0]),
    "columns put": lambda x, r, c, p: x.index_put_((slice(None), c), p[:1, :1].expand(x.shape[0], 9)),
    "pairs added": lambda x, r, c, p: x.index_put_((r, c), p[:, 0], accumulate=True),
    "rows added": lambda x, r, c, p: x.index_put_((r,), p, accumulate=True),
    "one number added": lambda x, r, c, p: x.index_put_((r, c), p[0, 0], accumulate=True),
    "flat put": lambda x, r, c, p: x.put_(r, p[:, 0]),
    "flat added": lambda x, r, c, p: x.put_(r, p[:, 0], accumulate=True),
    "rows copied": lambda x, r, c, p: x.index_copy_(0, r % x.shape[0], p),
    "columns copied": lambda x, r, c, p: x.index_copy_(1, c % x.shape[1], p[:1, :1].expand(x.shape[0], 9)),
    "rows filled": lambda x, r, c, p: x.index_fill_(0, r, 1.5),
    "columns filled": lambda x, r, c, p: x.index_fill_(1, c % x.shape[1], p[0, 0]),
    "a number scattered": lambda x, r, c, p: x.scatter_(1, (c % x.shape[1])[None].expand(x.shape[0], 9), 2),
    "all filled": lambda x, r, c, p: x.fill_(1.5),
    "zeros": lambda x, r, c, p: x.zero_(),
}
LAYOUTS = {
    "rows": lambda x: x,
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[::2, 1:],
}


def called(library, name, layout, shape, dtype="float32"):
    x, rows, columns, part = given(library, shape, dtype)
    if library is weft or name != "columns put":
        change = CHANGES[name]
    else:
        change = CHANGES["columns copied"]  # PyTorch's index_put_ takes no slices
    whole = None
    for _ in range(N_CALLS if library is weft else 1):
        whole = x.clone()
        change(LAYOUTS[layout](whole), rows % 3, columns % 3, part[:, : LAYOUTS[layout](whole).shape[1]])
    return whole.numpy()


@pytest.mark.oracle
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(8, 10), (300, 310)])
@pytest.mark.parametrize("name", CHANGES)
def test_a_part_becomes_what_it_is_in_pytorch(name, shape, layout):
    torch = pytest.importorskip("torch")
    assert called(weft, name, layout, shape).tobytes() == called(torch, name, layout, shape).tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float64", "int64", "int32", "bool", "complex64"])
@pytest.mark.parametrize("name", ["rows put", "pairs put", "pairs added", "rows filled", "all filled"])
def test_types(name, dtype):
    torch = pytest.importorskip("torch")
    found, wanted = (called(library, name, "transposed", (40, 40), dtype) for library in (weft, torch))
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize("name", [n for n in CHANGES if n != "columns put"])
def test_gradients(name):
    torch, found = pytest.importorskip("torch"), []
    for library in (weft, torch):
        x, rows, columns, part = given(library, (8, 10))
        x.requires_grad_(), part.requires_grad_()
        y = x * 2
        CHANGES[name](y, rows, columns, part)
        (y * y.detach().cos()).sum().backward()
        found.append((x.grad.numpy(), np.zeros(1) if part.grad is None else part.grad.numpy()))
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CHANGES)
def test_compiled_calls_have_the_same_bits(name):
    def function(x, rows, columns, part):
        y = x * 1
        CHANGES[name](y, rows, columns, part)
        return y

    compiled, operands = weft.compile(function), given(weft, (8, 10))
    wanted = function(*operands)
    for _ in range(4):
        assert compiled(*operands).numpy().tobytes() == wanted.numpy().tobytes()


def test_nothing_is_written_where_an_index_is_out_of_range():
    x, part = weft.randn(64, 64), weft.randn(3, 64)
    wanted = x.clone()
    for _ in range(N_CALLS):
        x.index_put_((weft.tensor([1, 2, 3]),), part)
    x.copy_(wanted)
    for change in (
        lambda index: x.index_put_((index,), part),
        lambda index: x.index_add_(0, index, part),
        lambda index: x.index_fill_(0, index, 1.0),
        lambda index: x.scatter_(0, index[:, None].expand(3, 64), part),
    ):
        for index in ([1, 2, 64], [1, -65, 3]):
            with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
                change(weft.tensor(index))
            assert x.equal(wanted)


def test_what_is_left_of_large_tensors_in_functions_of_several_ops():
    """Native code answers calls on large tensors, too, unless large values would live between its ops."""
    x, rows, columns = weft.randn(400, 400), weft.tensor([3, 399, 5]), weft.tensor([0, 7, 399])
    for _ in range(3 * N_CALLS):
        y = x.clone().index_put_((rows, columns), weft.tensor([1.0, 2.0, 3.0]))
    wanted = x.numpy().copy()
    wanted[[3, 399, 5], [0, 7, 399]] = 1, 2, 3
    assert (y.numpy() == wanted).all()
    padded = [weft.nn.functional.pad(x, (1, 2)).numpy() for _ in range(3 * N_CALLS)][-1]
    assert (padded == np.pad(x.numpy(), ((0, 0), (1, 2)))).all()


@pytest.mark.parametrize("change", ["t_", "unsqueeze_", "squeeze_", "transpose_"])
def test_a_shape_changes_in_place_with_the_memory_it_has(change):
    arguments = {"t_": (), "unsqueeze_": (1,), "squeeze_": (0,), "transpose_": (0, 1)}[change]
    base = weft.arange(6.0).reshape(1, 6) if change == "squeeze_" else weft.arange(6.0).reshape(2, 3)
    shown, version = base.view(-1), base._version
    expected = getattr(base, change[:-1])(*arguments).tolist()
    assert getattr(base, change)(*arguments) is base and base.tolist() == expected
    assert base._version == version + 1 and shown._version == version + 1
    shown[0] = 7.0
    assert base.flatten()[0].item() == 7.0
