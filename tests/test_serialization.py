"""Saving and loading: everything comes back, nothing is executed, damage is told."""

import io
import os
import pickle
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import weft
from weft import nn, optim


def round_trip(obj):
    file = io.BytesIO()
    weft.save(obj, file)
    file.seek(0)
    return weft.load(file)


PLAIN = [
    None,
    True,
    0,
    -(2**70),
    1.5,
    float("inf"),
    "text \u00e9 \U0001f40d",
    [],
    (),
    {},
    [1, (2, [3.0, None])],
    {"a": 1, 2: "b", (3, "c"): [False], None: 0, True: 5.0},
    OrderedDict([("z", 1), ("a", {"nested": OrderedDict()})]),
    ["list", "tuple", ["dict"]],
    weft.float64,
]


@pytest.mark.parametrize("obj", PLAIN, ids=lambda obj: type(obj).__name__)
def test_plain_objects(obj):
    back = round_trip(obj)
    assert back == obj and type(back) is type(obj)
    if isinstance(obj, dict):
        assert list(map(type, back)) == list(map(type, obj))


def test_nan():
    assert np.isnan(round_trip([float("nan")])[0])


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.int32, weft.int64, weft.bool], ids=repr)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_tensors(dtype, shape):
    x = weft.tensor(np.random.default_rng(0).normal(size=shape) > 0, dtype=dtype)
    back = round_trip(x)
    assert type(back) is weft.Tensor and back.dtype is dtype and back.shape == shape and not back.requires_grad
    assert back.tolist() == x.tolist()


def test_requires_grad_and_kind_come_back():
    back = round_trip({"leaf": weft.ones(2, requires_grad=True), "fixed": nn.Parameter(weft.ones(1), False)})
    assert back["leaf"].requires_grad and back["leaf"].is_leaf and type(back["leaf"]) is weft.Tensor
    assert type(back["fixed"]) is nn.Parameter and not back["fixed"].requires_grad
    product = round_trip(weft.ones(2, requires_grad=True) * 2.0)
    assert product.tolist() == [2.0, 2.0] and product.is_leaf


def test_special_numbers_in_tensors():
    x = weft.tensor([0.0, -0.0, np.nan, np.inf, 1e-45])
    assert round_trip(x).numpy().tobytes() == x.numpy().tobytes()


def test_views_are_stored_alone():
    big = weft.zeros(1000, 1000)
    file = io.BytesIO()
    weft.save(big[:2, ::500], file)
    assert len(file.getvalue()) < 2000
    file.seek(0)
    back = weft.load(file)
    assert back.shape == (2, 2)
    back.fill_(1.0)
    assert (
        weft.tensor(np.arange(6).reshape(2, 3)).T.tolist()
        == round_trip(weft.tensor(np.arange(6).reshape(2, 3)).T).tolist()
    )


def test_one_object_stays_one():
    x = weft.zeros(2)
    a, b = round_trip([x, x])
    assert a is b
    x, y = round_trip([weft.zeros(2), weft.zeros(2)])
    assert x is not y


def test_arrays_and_scalars():
    back = round_trip({"a": np.arange(3, dtype=np.uint8), "b": np.float32(0.5), "c": np.int64(3)})
    assert back["a"].dtype == np.uint8 and back["a"].tolist() == [0, 1, 2]
    assert back["b"] == 0.5 and type(back["b"]) is float and type(back["c"]) is int


def test_checkpoint_continues_bit_for_bit(tmp_path):
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 1))
        optimizer = optim.AdamW(model.parameters(), lr=0.05, amsgrad=True)
        return model, optimizer, optim.lr_scheduler.StepLR(optimizer, 2)

    def train(model, optimizer, schedule, steps):
        for k in steps:
            optimizer.zero_grad()
            (model(weft.full((2, 3), 0.1 * k)) ** 2).sum().backward()
            optimizer.step()
            schedule.step()

    weft.manual_seed(0)
    first = make()
    train(*first, range(3))
    weft.save([part.state_dict() for part in first], tmp_path / "checkpoint.weft")
    second = make()
    for part, state in zip(second, weft.load(tmp_path / "checkpoint.weft")):
        part.load_state_dict(state)
    for run in (first, second):
        train(*run, range(3, 6))
    for p, q in zip(first[0].parameters(), second[0].parameters()):
        assert p.tolist() == q.tolist()
    assert first[2].get_last_lr() == second[2].get_last_lr()


# --- refusals -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("obj", "where"),
    [
        ({"model": [1, {2: lambda: 0}]}, "obj['model'][1][2] is a function"),
        (nn.Linear(1, 1), "obj is a Linear, which cannot be saved without executing code when it is loaded; save its"),
        ([{1, 2}], "obj[0] is a set"),
        ({"a": np.array([None])}, "obj['a'] is an array of Python objects"),
        ({"a": {nn.Identity: 1}}, "obj['a'] has the key <class"),
        (1j, "obj is a complex"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_unsupported_objects_are_named_with_their_place(obj, where, tmp_path):
    with pytest.raises(TypeError) as error:
        weft.save(obj, tmp_path / "x.weft")
    assert where in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_cycles_are_refused():
    cycle = []
    cycle.append({"again": cycle})
    with pytest.raises(ValueError, match=r"obj\[0\]\['again'\] contains itself"):
        weft.save(cycle, io.BytesIO())


class Bomb:
    def __reduce__(self):
        return (os.putenv, ("WEFT_BOMB", "1"))


def test_pickles_are_refused(tmp_path):
    plain, zipped = tmp_path / "old.pt", tmp_path / "new.pt"
    plain.write_bytes(pickle.dumps(Bomb()))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("new/data.pkl", pickle.dumps(Bomb()))
    with pytest.raises(RuntimeError, match="is a pickle by itself, .* loading it would execute code from the file and"):
        weft.load(plain)
    with pytest.raises(RuntimeError, match=r"holds an object of (posix|nt)\.putenv, and is refused"):
        weft.load(zipped)
    assert "WEFT_BOMB" not in os.environ


def test_object_arrays_inside_an_archive_are_refused(tmp_path):
    path = tmp_path / "x.weft"
    member = io.BytesIO()
    np.save(member, np.array([Bomb()], object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weft.json", '{"format": "weft", "version": 1, "tree": ["tensor", 0, false]}')
        archive.writestr("tensors/0.npy", member.getvalue())
    with pytest.raises(RuntimeError, match="Object arrays cannot be loaded when allow_pickle=False"):
        weft.load(path)


# --- damage ---------------------------------------------------------------------------------------------------------
def saved_bytes():
    file = io.BytesIO()
    weft.save({"w": weft.arange(1000.0), "lr": 0.5}, file)
    return file.getvalue()


def test_truncated_files(tmp_path):
    whole, path = saved_bytes(), tmp_path / "x.weft"
    for size in (1, 10, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RuntimeError, match="damaged"):
            weft.load(path)
    path.write_bytes(b"")
    with pytest.raises(RuntimeError, match="x.weft is empty"):
        weft.load(path)


def test_flipped_bits_never_pass(tmp_path):
    whole, path = saved_bytes(), tmp_path / "x.weft"
    body = whole.index(b"NUMPY") + 200
    for position in (body, body + 1000, whole.index(b'"tree"')):
        damaged = bytearray(whole)
        damaged[position] ^= 64
        path.write_bytes(damaged)
        with pytest.raises(RuntimeError, match="is damaged or incomplete .*CRC"):
            weft.load(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{", "is damaged"),
        ("[" * 100_000, "is damaged"),
        ('{"format": "weft", "version": 1, "tree": ["code", "x"]}', "is damaged or incomplete .KeyError: 'code'"),
        ('{"format": "weft", "version": 1, "tree": ["tensor", 7, false]}', "is damaged"),
        ('{"format": "weft", "version": 1, "tree": ["tensor", "../../x", false]}', "is damaged"),
        ('{"format": "weft", "version": 1, "tree": ["dict", [["list"], 1]]}', "is damaged"),
        ('{"format": "weft", "version": 2, "tree": 1}', "has format weft 2; this weft reads up to weft 1"),
    ],
)
def test_strange_trees(header, message, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.weft", "w") as archive:
        archive.writestr("weft.json", header)
    with pytest.raises(RuntimeError, match=message):
        weft.load(tmp_path / "x.weft")


def test_other_files(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(RuntimeError, match="notes.txt was not written by weft.save, or its beginning is damaged"):
        weft.load(path)
    np.savez(tmp_path / "a.npz", a=np.ones(1))
    with pytest.raises(RuntimeError, match="it has no member weft.json"):
        weft.load(tmp_path / "a.npz")
    with pytest.raises(FileNotFoundError):
        weft.load(tmp_path / "absent")


# --- writing --------------------------------------------------------------------------------------------------------
def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.weft"
    weft.save({"a": 1}, path)

    def full_disk(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full_disk)
    with pytest.raises(OSError, match="No space left"):
        weft.save({"a": weft.zeros(2)}, path)
    assert weft.load(path) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == ["x.weft"]


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    (tmp_path / "plain").write_text("")
    weft.save(1, tmp_path / "a.weft")
    assert (tmp_path / "a.weft").stat().st_mode == (tmp_path / "plain").stat().st_mode
    os.chmod(tmp_path / "a.weft", 0o640)
    weft.save(2, str(tmp_path / "a.weft"))
    assert (tmp_path / "a.weft").stat().st_mode & 0o777 == 0o640 and weft.load(str(tmp_path / "a.weft")) == 2


def test_numpy_reads_the_members(tmp_path):
    weft.save({"w": weft.tensor([1.5])}, tmp_path / "a.weft")
    with np.load(tmp_path / "a.weft") as archive:
        assert archive["tensors/0"].tolist() == [1.5]
