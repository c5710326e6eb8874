"""Tensors cut into parts (`unbind`, `split`, `chunk`, iteration): views, made in one native call or in Python."""

import numpy as np
import pytest
from native_functions_parts import have_native_code

import weft
from weft.runtime.replay import native
from weft.runtime.state import marks

cut_is_native = pytest.fixture(autouse=True)(have_native_code)

CUTS = {
    "unbind": lambda x: x.unbind(),
    "unbind the last": lambda x: x.unbind(-1),
    "unbind by keyword": lambda x: x.unbind(dim=1),
    "rows": lambda x: tuple(x),
    "elements": lambda x: tuple(x[0]),
    "split": lambda x: x.split(4),
    "split with a rest": lambda x: x.split(5, 1),
    "split at once": lambda x: x.split(100, dim=-1),
    "split by sizes": lambda x: x.split([3, x.shape[0] - 3], 0),
    "chunk": lambda x: x.chunk(3),
    "chunk along the last": lambda x: x.chunk(4, -1),
    "more chunks than elements": lambda x: x.chunk(40, 1),
}
LAYOUTS = {
    "rows": lambda x: x,
    "turned": lambda x: x.T,
    "every other": lambda x: x[:, ::2],
    "one row": lambda x: x[:1].expand(8, 12),
    "three dimensions": lambda x: x.reshape(8, 3, 4),
}


def numbers(lib):
    return lib.tensor(np.arange(96, dtype=np.float32).reshape(8, 12))


@pytest.mark.oracle
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CUTS)
def test_parts_are_pytorchs_and_views(name, layout, monkeypatch):
    import torch

    def facts(lib, x):
        return [
            (p.tolist(), tuple(p.shape), p.stride(), p.storage_offset(), p._base is not None) for p in CUTS[name](x)
        ]

    x, theirs = LAYOUTS[layout](numbers(weft)), facts(torch, LAYOUTS[layout](numbers(torch)))
    ours = facts(weft, x)
    monkeypatch.setattr(marks, "cut", marks.not_answered)
    assert ours == facts(weft, x) == theirs


@pytest.mark.parametrize("cut", [CUTS["unbind"], CUTS["split"], CUTS["chunk"]])
def test_native_code_cuts(cut, monkeypatch):
    if native.layout() is None:
        assert marks.cut is marks.not_answered and len(cut(numbers(weft))) > 1
        return
    found, given = marks.cut, []
    monkeypatch.setattr(marks, "cut", lambda *args: given.append(found(*args)) or given[-1])
    assert cut(numbers(weft)) is given[-1]
    cut(numbers(weft).requires_grad_())
    assert given[-1] is None


def test_parts_share_memory_and_version():
    x = numbers(weft)
    first, second = x.split(4)
    second[0, 0] = -1.0
    assert x[4, 0] == -1.0
    assert first._version == second._version == x._version == 1
    first.requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        first.mul_(2)
    row = x.unbind()[7]
    del x
    assert row.tolist() == list(range(84, 96))


@pytest.mark.oracle
def test_changes_of_parts_have_histories_as_in_pytorch():
    import torch

    def gradient(lib):
        w = lib.ones(12, requires_grad=True)
        y = numbers(lib)
        # PyTorch changes no part of several in place.
        rows = y.unbind() if lib is weft else None
        for k in range(3):
            (y[k] if rows is None else rows[k]).mul_(w)
        (y * y).sum().backward()
        return w.grad.tolist()

    assert gradient(weft) == gradient(torch)


def test_parts_in_blocks_without_gradients():
    x = numbers(weft).requires_grad_()
    with weft.no_grad():
        assert not any(p.requires_grad for p in x.unbind())
    with weft.inference_mode():
        assert all(p.is_inference() for p in numbers(weft).unbind())
    assert all(p.grad_fn is not None for p in x.split(3))
    assert [type(p) for p in weft.nn.Parameter(numbers(weft), requires_grad=False).unbind()] == [weft.Tensor] * 8


def test_in_compiled_calls_parts_are_parts_of_the_program():
    @weft.compile(fullgraph=True)
    def f(x):
        return sum(row * k for k, row in enumerate(x.unbind())) + x.chunk(4, 1)[3].sum()

    x = numbers(weft)
    expected = sum(row * k for k, row in enumerate(x.unbind())) + x.chunk(4, 1)[3].sum()
    assert all(weft.equal(f(x), expected) for _ in range(4))


def test_wrong_arguments_are_told():
    x = numbers(weft)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.unbind(2)
    with pytest.raises(RuntimeError, match="split_size be positive"):
        x.split(0)
    with pytest.raises(RuntimeError, match="greater than 0"):
        x.chunk(0)
    assert weft.zeros(0, 3).unbind() == ()
    assert [p.shape for p in weft.zeros(0, 3).split(2)] == [(0, 3)]
