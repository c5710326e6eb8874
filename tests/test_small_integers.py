"""uint8, int8 and int16: arithmetic that wraps around, what they are made of and written to, and compiled calls."""

import copy
import io
import pickle

import numpy as np
import pytest

import weft

SMALL = [weft.uint8, weft.int8, weft.int16]


def test_sums_and_products_wrap_around():
    assert (weft.tensor([100, -100], dtype=weft.int8) + weft.tensor([100], dtype=weft.int8)).tolist() == [-56, 0]
    assert (weft.tensor([200], dtype=weft.uint8) * 2).tolist() == [144]
    assert (weft.tensor([1], dtype=weft.uint8) - 2).tolist() == [255]
    assert (weft.tensor([30000], dtype=weft.int16) + 30000).tolist() == [-5536]
    assert (-weft.tensor([1], dtype=weft.uint8)).tolist() == [255]
    assert weft.tensor([-128], dtype=weft.int8).abs().tolist() == [-128]
    assert (weft.tensor([5], dtype=weft.int8) @ weft.tensor([100], dtype=weft.int8)).item() == -12


def test_numbers_wrap_around_too():
    assert (weft.tensor([1], dtype=weft.int8) + 300).tolist() == [45]
    assert (weft.tensor([1], dtype=weft.uint8) + (-1)).tolist() == [0]
    x = weft.tensor([1], dtype=weft.int8)
    x += 300
    assert x.tolist() == [45] and x.dtype is weft.int8


def test_reductions_give_wide_types():
    x = weft.tensor([200, 100], dtype=weft.uint8)
    assert x.sum().item() == 300 and x.sum().dtype is weft.int64
    assert x.prod().item() == 20000 and x.cumsum(0).tolist() == [200, 300]
    assert x.max().item() == 200 and x.max().dtype is weft.uint8 and x.argmax().item() == 0
    assert (x / 2).dtype is weft.float32 and (x // 3).tolist() == [66, 33]
    with pytest.raises(RuntimeError, match="mean"):
        x.mean()


@pytest.mark.parametrize(("left", "right", "result"), [
    (weft.uint8, weft.int8, weft.int16), (weft.uint8, weft.int16, weft.int16), (weft.int8, weft.int16, weft.int16),
    (weft.uint8, weft.int32, weft.int32), (weft.bool, weft.uint8, weft.uint8), (weft.int16, weft.float32, weft.float32),
])  # fmt: skip
def test_promotion(left, right, result):
    assert weft.promote_types(left, right) is weft.promote_types(right, left) is result
    assert (weft.ones(2, dtype=left) + weft.ones(2, dtype=right)).dtype is result


def test_zero_dimensions_do_not_decide_the_width():
    assert (weft.ones(2, dtype=weft.uint8) + weft.tensor(1, dtype=weft.int16)).dtype is weft.uint8


@pytest.mark.parametrize("dtype", SMALL, ids=repr)
def test_creation(dtype):
    for x in (weft.tensor([1, 2], dtype=dtype), weft.zeros(2, dtype=dtype), weft.full((2,), 7, dtype=dtype),
              weft.arange(2, dtype=dtype), weft.randint(0, 9, (2,), dtype=dtype),
              weft.ones_like(weft.ones(2, dtype=dtype)),
              weft.ones(2).to(dtype), weft.eye(2, dtype=dtype)[0], weft.linspace(0, 4, 2, dtype=dtype)):  # fmt: skip
        assert x.dtype is dtype and x.shape == (2,) and x.element_size() == dtype.itemsize


def test_numbers_that_do_not_fit_are_refused_where_a_tensor_is_made():
    with pytest.raises(RuntimeError, match="300 given, it holds 0 to 255"):
        weft.tensor([0, 300], dtype=weft.uint8)
    with pytest.raises(RuntimeError, match="without overflow"):
        weft.full((2,), 200, dtype=weft.int8)
    assert weft.tensor([-1], dtype=weft.uint8).tolist() == weft.full((1,), -1, dtype=weft.uint8).tolist() == [255]


@pytest.mark.parametrize("function", [
    lambda x: x.fill_(300), lambda x: x.masked_fill(x == 0, 300), lambda x: x.clamp(0, 300),
    lambda x: x.clamp(min=-300),
    lambda x: weft.where(x == 0, x, 300), lambda x: weft.full_like(x, -256),
], ids=range(6))  # fmt: skip
def test_numbers_that_are_written_must_fit(function):
    x = weft.zeros(2, dtype=weft.uint8)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="cannot be converted to type uint8 without overflow"):
            function(x)


def test_floats_are_cut_and_wrap_around():
    x = weft.tensor([300.5, -1.5, 1e10, float("nan"), -129.0])
    assert x.to(weft.uint8).tolist() == [44, 255, 0, 0, 127]
    assert x.char().tolist() == [44, -1, 0, 0, 127]
    assert x.short().tolist() == [300, -1, -7168, 0, -129]


def test_numpy_both_ways():
    pixels = np.arange(4, dtype=np.uint8)
    x = weft.from_numpy(pixels)
    x += 1
    assert pixels.tolist() == [1, 2, 3, 4] and x.dtype is weft.uint8
    assert x.numpy().dtype == np.uint8 and np.asarray(x)[0] == 1
    assert weft.tensor(pixels).dtype is weft.uint8 and weft.tensor([np.int16(3)]).dtype is weft.int16
    assert weft.as_tensor(pixels, dtype=weft.int16).tolist() == [1, 2, 3, 4]


def test_masks_of_bytes_and_indices():
    x = weft.tensor([1.0, 2.0, 3.0])
    assert x[weft.tensor([1, 0, 1], dtype=weft.uint8)].tolist() == [1, 3]
    with pytest.raises(IndexError, match="int16"):
        x[weft.tensor([1], dtype=weft.int16)]
    with pytest.raises(RuntimeError, match="int8"):
        x.gather(0, weft.tensor([1], dtype=weft.int8))
    y = weft.zeros(3, dtype=weft.int8)
    y[1:] = 5
    y[weft.tensor([0])] = -3
    assert y.tolist() == [-3, 5, 5] and y.any().item() is True
    assert weft.tensor([0, 3], dtype=weft.uint8).any().item() == 1


def test_printing_and_limits():
    assert repr(weft.tensor([1, 20], dtype=weft.uint8)) == "tensor([ 1, 20], dtype=weft.uint8)"
    assert weft.iinfo(weft.int8).min == -128 and weft.iinfo(weft.uint8).max == 255 and weft.iinfo(weft.short).bits == 16
    assert not weft.uint8.is_signed and weft.int8.is_signed
    assert weft.ByteTensor([1, 2]).dtype is weft.uint8 and isinstance(weft.CharTensor(3), weft.CharTensor)
    assert weft.ones(2).type("torch.ShortTensor").dtype is weft.int16


@pytest.mark.parametrize("dtype", SMALL, ids=repr)
def test_files_and_copies(dtype, tmp_path):
    x = weft.tensor([[1, 2], [3, 100]], dtype=dtype)
    weft.save({"x": x}, tmp_path / "x.weft")
    weft.save({"x": x}, tmp_path / "x.safetensors")
    made = [weft.load(tmp_path / name)["x"] for name in ("x.weft", "x.safetensors")]
    for y in (*made, pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone()):
        assert y.dtype is dtype and y.tolist() == x.tolist()


def test_requires_grad_is_refused():
    with pytest.raises(RuntimeError, match="only Tensors of floating point and complex dtype"):
        weft.zeros(2, dtype=weft.uint8, requires_grad=True)


def test_interpolation_of_bytes_rounds_and_of_other_integers_is_refused():
    x = weft.tensor([[[0, 3, 255]]], dtype=weft.uint8)
    out = weft.nn.functional.interpolate(x, size=5, mode="linear", align_corners=True)
    assert out.tolist() == [[[0, 2, 3, 129, 255]]] and out.dtype is weft.uint8
    with pytest.raises(NotImplementedError, match="'linear' is not implemented for int16"):
        weft.nn.functional.interpolate(x.short(), size=5, mode="linear")


# --- compiled calls ---------------------------------------------------------------------------------------------------
def test_a_compiled_call_of_images_is_eager_where_they_are_bytes():
    images = weft.randint(0, 256, (4, 3, 2, 2), dtype=weft.uint8)
    weight = weft.ones(3, 2, 2, requires_grad=True)

    def step(images):
        x = images.flip(3).float() / 255
        loss = (x * weight).tanh().sum()
        loss.backward()
        gradient, weight.grad = weight.grad, None
        return loss.detach(), gradient, images[0].max(), images + 200

    compiled = weft.compile(step)
    expected = step(images)
    for _ in range(4):
        for ours, eager in zip(compiled(images), expected):
            assert ours.dtype is eager.dtype and ours.numpy().tobytes() == eager.numpy().tobytes()
    assert "nothing ran outside the programs" in compiled.explain()


def test_types_asked_for_in_a_compiled_call():
    @weft.compile
    def quantized(x):
        small = (x * 40).to(weft.int8)
        small.add_(3)
        return small, small.float() * 0.5, weft.zeros(3, dtype=weft.int16) + 1

    x = weft.tensor([1.0, -2.0, 4.0])
    for _ in range(4):
        small, back, ones = quantized(x)
        assert small.tolist() == [43, -77, -93] and back.tolist() == [21.5, -38.5, -46.5]
        assert ones.dtype is weft.int16 and ones.tolist() == [1, 1, 1]


def test_large_composites_of_bytes_stay_eager():
    """Eager mode compiles rules of large operands: not for types without kernels."""
    x = weft.full((1 << 15,), 3, dtype=weft.uint8)
    for _ in range(3):
        assert weft.square(x).sum().item() == 9 << 15


def test_plans_of_repeated_calls_give_the_same():
    x, y = weft.tensor([200, 100], dtype=weft.uint8), weft.tensor([100, 100], dtype=weft.int8)
    for _ in range(3):
        assert (x + y).tolist() == [300, 200] and (x + 100).tolist() == [44, 200]
        assert x.max().item() == 200 and x.sum().item() == 300 and x[1:].tolist() == [100]


# --- against PyTorch --------------------------------------------------------------------------------------------------
@pytest.mark.oracle
def test_files_of_pytorch():
    torch = pytest.importorskip("torch")
    for name in ("uint8", "int8", "int16"):
        buffer = io.BytesIO()
        torch.save({"x": torch.tensor([1, 100], dtype=getattr(torch, name))}, buffer)
        buffer.seek(0)
        loaded = weft.load(buffer)["x"]
        assert loaded.dtype.name == name and loaded.tolist() == [1, 100]


@pytest.mark.oracle
def test_numbers_at_the_edges():
    torch = pytest.importorskip("torch")
    numbers = [300, -300, 127, 128, -129, 255, 256, 70000]
    for name in ("uint8", "int8", "int16"):
        theirs, ours = (m.arange(-4, 5).to(getattr(m, name)) for m in (torch, weft))
        for n in numbers:
            for name_of_op in ("add", "mul", "__rsub__", "__and__"):
                found, expected = (getattr(x, name_of_op)(n).tolist() for x in (ours, theirs))
                assert found == expected, (name, n, name_of_op)
            assert (ours // (n | 1)).tolist() == (theirs // (n | 1)).tolist()


@pytest.mark.parametrize("shift", ["__lshift__", "__rshift__", "bitwise_left_shift", "bitwise_right_shift_"])
def test_bools_are_not_shifted(shift):
    """As in PyTorch. They have no places; a number makes integers of them."""
    x = weft.tensor([True, False, True])
    for call in (lambda x: getattr(x, shift)(x), weft.compile(lambda x: getattr(x, shift)(x))):
        with pytest.raises(NotImplementedError, match="not implemented for bool operands"):
            call(x.clone())
    assert (x << 1).tolist() == [2, 0, 2] and (weft.tensor([1, 2, 3]) << x).tolist() == [2, 2, 6]
