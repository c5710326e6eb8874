"""Files of PyTorch's, read without it; safetensors; what is refused."""

import io
import os
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest

import weft
from weft import nn, optim, safetensors


def archive_of(pickled, members=(), root="archive"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{root}/data.pkl", pickled)
        for name, content in dict(members).items():
            archive.writestr(f"{root}/{name}", content)
    file.seek(0)
    return file


@pytest.mark.oracle
def test_training_of_pytorch_goes_on_here(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "checkpoint.pt"
    models = [
        library.nn.Sequential(library.nn.Linear(3, 4), library.nn.BatchNorm1d(4), library.nn.Linear(4, 1))
        for library in (torch, weft)
    ]
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)

    def steps(library, model, optimizer, n):
        losses = []
        for _ in range(n):
            optimizer.zero_grad()
            loss = model(library.tensor(x)).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    theirs = torch.optim.NAdam(models[0].parameters(), lr=0.01)
    steps(torch, models[0], theirs, 3)
    torch.save({"model": models[0].state_dict(), "optimizer": theirs.state_dict(), "epoch": 3}, path)
    saved = weft.load(path)
    assert saved["epoch"] == 3 and type(saved["model"]) is OrderedDict
    models[1].load_state_dict(saved["model"])
    ours = optim.NAdam(models[1].parameters(), lr=0.5)
    ours.load_state_dict(saved["optimizer"])
    np.testing.assert_allclose(steps(weft, models[1], ours, 3), steps(torch, models[0], theirs, 3), 1e-4)


@pytest.mark.oracle
@pytest.mark.parametrize("protocol", [2, 4])
def test_plain_data_of_pytorch(protocol):
    torch = pytest.importorskip("torch")
    base = torch.arange(12.0).reshape(3, 4)
    given = {
        "view": base[1:, ::2].t(),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3, dtype=torch.int32),
        "flags": torch.tensor([True, False]),
        "parameter": torch.nn.Parameter(base * 2),
        "leaf": torch.ones(2, dtype=torch.float64, requires_grad=True),
        "narrow": [torch.tensor([1.5, -2.0, float("inf")], dtype=d) for d in (torch.float16, torch.bfloat16)],
        "small": [torch.tensor([1, 100], dtype=d) for d in (torch.uint8, torch.int8, torch.int16)],
        "others": (1, 2.5, None, "text", True, 2**70, {3}, torch.Size([2, 3]), Counter("aab")),
        "dtype": torch.float32,
        "device": torch.device("cpu"),
    }
    file = io.BytesIO()
    torch.save(given, file, pickle_protocol=protocol)
    file.seek(0)
    back = weft.load(file)
    for name in ("view", "empty", "scalar", "flags", "parameter", "leaf"):
        assert back[name].tolist() == given[name].tolist() and tuple(back[name].shape) == tuple(given[name].shape)
        assert back[name].requires_grad == given[name].requires_grad and str(back[name].dtype)[5:] in str(
            given[name].dtype
        )
    assert isinstance(back["parameter"], nn.Parameter)
    for name in ("narrow", "small"):
        assert [x.tolist() for x in back[name]] == [x.tolist() for x in given[name]]
    assert back["others"] == given["others"] and back["dtype"] is weft.float32 and back["device"] == weft.device("cpu")


@pytest.mark.oracle
def test_whole_modules_and_other_types_are_refused():
    torch = pytest.importorskip("torch")
    for given, message in (
        (torch.nn.Linear(2, 2), r"holds an object of torch\.nn\.modules\.linear\.Linear, and is refused.*state_dict"),
        (
            {"a": torch.zeros(1, dtype=torch.uint16)},
            r"holds an object of torch\._utils\._rebuild_tensor_v3, and is refused",
        ),
        ({"a": np.ones(2)}, "holds an object of numpy.*, and is refused"),
    ):
        file = io.BytesIO()
        torch.save(given, file)
        file.seek(0)
        with pytest.raises(RuntimeError, match=message):
            weft.load(file)
    old = io.BytesIO()
    torch.save({"a": torch.ones(1)}, old, _use_new_zipfile_serialization=False)
    old.seek(0)
    with pytest.raises(RuntimeError, match="is a pickle by itself, as torch.save wrote it before PyTorch 1.6"):
        weft.load(old)


class Calls:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


class Attributed:
    def __reduce__(self):
        return OrderedDict, (), {"__class__": 3}


def tensor_pickle(count, offset, size, stride):
    """A tensor with 4 elements of memory, of which it says it shows these."""
    text = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    text += b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + b"J" + struct.pack("<i", count) + b"tQ"
    return (
        text
        + b"".join(b"J" + struct.pack("<i", n) for n in (offset,))
        + b"("
        + (b"J" + struct.pack("<i", size) + b"t(J" + struct.pack("<i", stride) + b"t\x89NtR.")
    )


def test_tensors_outside_their_memory_are_refused():
    memory = {"data/0": np.arange(4, dtype=np.float32).tobytes()}
    assert weft.load(archive_of(tensor_pickle(4, 1, 2, 2), memory)).tolist() == [1, 3]
    for arguments in (
        (4, 0, 5, 1),
        (4, -1, 2, 1),
        (4, 1, 4, 1),
        (4, 0, 2, -1),
        (4, 0, -1, 1),
        (2, 0, 3, 1),
        (9, 0, 1, 1),
    ):
        with pytest.raises(RuntimeError, match="not inside its memory|damaged or incomplete"):
            weft.load(archive_of(tensor_pickle(*arguments), memory))
    with pytest.raises(RuntimeError, match="damaged or incomplete"):
        weft.load(archive_of(tensor_pickle(4, 1, 2, 2)))
    with pytest.raises(RuntimeError, match="another order of bytes"):
        weft.load(archive_of(tensor_pickle(4, 1, 2, 2), {**memory, "byteorder": b"big"}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Calls(os.putenv, "WEFT_BOMB", "1"), "putenv, and is refused"),
        (Calls(eval, "1 + 1"), "builtins.eval, and is refused|__builtin__.eval, and is refused"),
        (Calls(getattr, OrderedDict, "fromkeys"), "getattr, and is refused"),
        (Attributed(), "sets attributes of an object"),
        (Calls, "test_torch_files.Calls, and is refused"),
    ],
)
def test_nothing_is_executed(given, message):
    with pytest.raises(RuntimeError, match=message):
        weft.load(archive_of(pickle.dumps(given, 2)))
    assert "WEFT_BOMB" not in os.environ


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02",
        b"",
        b"\x80\x02}q\x00.garbage",
        b"\x80\x02h\x05.",
        b"\x80\x02R.",
        b"\x80\x02K\x01K\x02s.",
        b"\x80\x02ios\nsystem\n.",
    ],
)
def test_damaged_pickles(program):
    if program.endswith(b"garbage"):
        assert weft.load(archive_of(program)) == {}
        return
    with pytest.raises(RuntimeError, match="load: file"):
        weft.load(archive_of(program))


def test_other_archives_are_refused():
    for members, message in (
        ({"archive/data.pkl": b"", "archive/constants.pkl": b""}, "holds a TorchScript program"),
        ({"a/data.pkl": b"", "b/data.pkl": b""}, "was not written by weft.save"),
    ):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        file.seek(0)
        with pytest.raises(RuntimeError, match=message):
            weft.load(file)


# --- safetensors ------------------------------------------------------------------------------------------------------
def state():
    return {
        "weight": weft.arange(6.0).reshape(2, 3),
        "wide": weft.ones(2, dtype=weft.float64, requires_grad=True),
        "count": weft.tensor(7),
        "flags": weft.tensor([True, False, True]),
        "columns": weft.arange(6, dtype=weft.int32).reshape(2, 3).t(),
        "nothing": weft.zeros(0, 2),
        "array": np.arange(3, dtype=np.int16),
    }


def test_safetensors_both_ways(tmp_path):
    path = tmp_path / "state.safetensors"
    weft.save(state(), path)
    for back in (weft.load(path), safetensors.load_file(path), safetensors.load(path.read_bytes())):
        assert set(back) == set(state())
        for name, value in state().items():
            assert back[name].tolist() == value.tolist() and tuple(back[name].shape) == tuple(value.shape)
    layer = nn.Linear(2, 3)
    safetensors.save_file(layer.state_dict(), path, metadata={"format": "pt"})
    other = nn.Linear(2, 3)
    other.load_state_dict(weft.load(path))
    assert other.weight.equal(layer.weight)


@pytest.mark.oracle
def test_safetensors_of_others(tmp_path):
    others = pytest.importorskip("safetensors.numpy")
    arrays = {
        name: np.asarray(value.detach()) if isinstance(value, weft.Tensor) else value for name, value in state().items()
    }
    arrays = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in arrays.items()}
    arrays |= {"half": np.array([1.5, -2.0], dtype=np.float16), "bytes": np.array([1, 255], dtype=np.uint8)}
    back = safetensors.load(others.save(arrays, metadata={"epoch": "3"}))
    theirs = others.load(safetensors.save(state(), {"epoch": "3"}))
    for name, value in arrays.items():
        assert back[name].tolist() == value.tolist()
        if name in theirs:
            assert theirs[name].dtype == value.dtype and np.array_equal(theirs[name], value)
    torch = pytest.importorskip("torch")
    from safetensors.torch import save

    assert safetensors.load(save({"b": torch.tensor([1.5, -3.0], dtype=torch.bfloat16)}))["b"].tolist() == [1.5, -3.0]


def test_safetensors_errors(tmp_path):
    for given, message in (
        ([weft.ones(1)], "expected a dict of .*got list"),
        ({"a": 3}, "'a' is a int; only tensors can be saved"),
        ({3: weft.ones(1)}, "the key 3 is a int"),
        ({"a": np.array(["x"])}, "'a' has element type <U1, which the format does not have"),
    ):
        with pytest.raises(ValueError, match=message):
            safetensors.save(given)
        with pytest.raises(ValueError, match=message):
            weft.save(given, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="metadata must be a dict of strings"):
        safetensors.save({}, {"epoch": 3})
    good = safetensors.save({"a": weft.ones(2)})
    for content, message in (
        (good[:-1], "does not fit its bytes"),
        (good[:5], "longer than the file"),
        (good.replace(b"F32", b"F99"), "element type F99"),
        (good.replace(b"[2]", b"[9]"), "does not fit its bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            safetensors.load(content)
        with pytest.raises(RuntimeError, match="load: file"):
            weft.load(io.BytesIO(content))
