"""Arguments that are no tensors: types given as Python's, sizes (by their names too), flags. Taken where PyTorch takes
them, and where it refuses them the error is one of its kind.

Every line is run on both libraries.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import kinds

DOCS = Path(__file__).parent.parent / "docs"

PYTHON_TYPES = """
ns.zeros(2, dtype=float)
ns.tensor([1.5, 2], dtype=int)
ns.tensor(np.ones(2), dtype=int)
ns.as_tensor(np.ones(2), dtype=float)
ns.asarray([1], dtype=complex)
ns.full((2,), 1, dtype=bool)
ns.arange(3, dtype=float)
ns.linspace(0, 1, 3, dtype=float)
ns.logspace(0, 1, 2, dtype=float)
ns.eye(2, dtype=bool)
ns.zeros_like(ns.ones(2), dtype=int)
ns.ones(2).new_zeros(2, dtype=int)
ns.ones(2).new_tensor([2], dtype=int)
ns.ones(2).to(float)
ns.ones(2).to("cpu", float)
ns.ones(2).to(dtype=int)
ns.ones(2).sum(dtype=float)
ns.ones(2).mean(dtype=float)
ns.ones(2).prod(dtype=int)
ns.ones(2).cumsum(0, dtype=float)
ns.ones(2).nansum(dtype=float)
ns.softmax(ns.ones(2), 0, dtype=float)
ns.nn.functional.log_softmax(ns.ones(2), 0, dtype=float)
ns.linalg.vector_norm(ns.ones(2), dtype=float)
ns.nn.Linear(2, 2).to(float).bias * 0
ns.nn.Linear(2, 2, dtype=float).weight * 0
ns.rand(2, dtype=float) * 0
ns.randint(0, 2, (2,), dtype=float) * 0
ns.randperm(1, dtype=float)
ns.hann_window(3, dtype=float)
ns.fft.fftfreq(3, dtype=float)
ns.tril_indices(2, 2, dtype=int)
ns.empty(0, dtype=ns.promote_types(float, ns.int32))
ns.tensor(ns.can_cast(float, int))
ns.tensor(ns.finfo(float).eps + ns.iinfo(int).bits)
ns.zeros(ns.tensor(2))
ns.zeros([ns.tensor(2), np.int64(3)])
ns.ones(6).reshape(np.int64(2), ns.tensor(3))
ns.ones(2, 1).expand(size=(2, 3))
ns.ones(2, 1).broadcast_to(size=(2, 3))
ns.broadcast_to(ns.ones(2, 1), size=(2, 3))
ns.arange(2).repeat(repeats=(2, 1))
ns.arange(2).tile(dims=(2,))
ns.ones(2, 3).swapaxes(axis0=0, axis1=1)
ns.swapdims(ns.ones(2, 3), dim0=0, dim1=1)
ns.split(tensor=ns.arange(4), split_size_or_sections=3)[1]
ns.ones(2).resize_(size=(1,))
ns.add(ns.ones(2), 2, alpha=3)
ns.ones(2).sub(1.5, alpha=2)
ns.tensor([1, 2]).add(ns.tensor([3]), alpha=2)
ns.func.functional_call(ns.nn.ReLU(), {"more": ns.ones(1)}, ns.ones(2))
"""

REFUSED = """
ns.zeros(2, dtype="float32")
ns.zeros(2, dtype=np.float32)
ns.tensor([1], dtype=3)
ns.ones(2).sum(dtype="float32")
ns.ones(2).to(dtype=3)
ns.promote_types(ns.int64, 1)
ns.set_default_dtype(float)
ns.zeros("3")
ns.zeros(2.7)
ns.zeros((2.0,))
ns.randn(2.0, 3)
ns.ones(6).view(2.0, 3)
ns.ones(6).reshape("a")
ns.ones(2).repeat(2.0)
ns.ones(2).tile("a")
ns.nn.Linear("2", 3)
ns.nn.Linear(2.0, 3)
ns.nn.Embedding(3.0, 2)
ns.ones(2).requires_grad_("yes")
setattr(ns.ones(2), "requires_grad", 1)
ns.where(ns.ones(2), 1.0, 2.0)
ns.ones(2).where(ns.tensor([1, 0]), ns.zeros(2))
ns.meshgrid(ns.ones(2, 2), ns.ones(2), indexing="ij")
ns.meshgrid(ns.ones(2), ns.ones(3), indexing="rows")
ns.allclose(ns.ones(2), 1.0)
ns.allclose(ns.ones(2), ns.ones(2).double())
ns.equal(ns.ones(2), 1)
int(ns.ones(2))
ns.ones(2).item()
ns.tensor(None)
ns.tensor([1, None])
ns.tensor("a")
ns.tensor({1, 2})
ns.tensor([[1], [2, 3]])
ns.ones(2)[1.5]

ns.ones(2)[{}]
ns.ones(2).index_select(0, ns.tensor([[0]]))
ns.ones(2).take(ns.tensor([0.0]))
ns.ones(2).put_(ns.tensor([0]), ns.ones(2))
ns.complex(ns.ones(2), ns.ones(3))
ns.topk(ns.ones(3), 2.0)
ns.topk(ns.ones(3), True)
ns.topk([3.0, 1.0], 1)
ns.ones(3).topk(1, largest=0)
ns.sort(ns.ones(3), "dim")
ns.sort(ns.ones(3), descending="yes")
ns.ones(3).argsort(dim=None)
ns.kthvalue(ns.ones(3), 1.0)
ns.cumsum(ns.ones(3), dim=1.5)
ns.ones(3).flip(dims=[0.0])
ns.roll(ns.ones(3), "a")
ns.ones(3).index_add_(0, [0], ns.ones(1))
ns.addmm(ns.ones(2, 2), ns.ones(2, 2), 3)
ns.linalg.qr("a")
ns.linalg.solve(ns.eye(2), [1.0, 2.0])
ns.linalg.svd(ns.eye(2), full_matrices="no")
ns.fft.fft(ns.ones(4), n=2.5)
ns.fft.rfft([1.0, 2.0])
ns.multinomial(ns.ones(3), 1.5)
ns.nn.functional.max_pool2d(ns.ones(1, 1, 4, 4), 2.0)
ns.nn.functional.avg_pool2d(ns.ones(1, 1, 4, 4), 2, ceil_mode="yes")
ns.nn.functional.conv2d(ns.ones(1, 1, 4, 4), ns.ones(1, 1, 2, 2), stride=1.5)
ns.nn.functional.one_hot(ns.tensor([1]), "a")
ns.searchsorted(ns.ones(3), "a")
ns.ones(3).cumsum_([0])
ns.sum(ns.ones(2), True)
ns.ones(2).sum(0, keepdim=1)
ns.ones(2).mean(dim={})
ns.softmax([1.0], 0)
ns.mm([[1.0]], ns.ones(1, 1))
ns.gather(ns.ones(2), 0, [0])
ns.ones(2, 2).reshape(True)
ns.zeros(True)
ns.tril(ns.ones(2, 2), 1.5)
ns.nn.functional.linear([1.0], ns.ones(1, 1))
ns.nn.functional.cross_entropy(ns.ones(1, 2), [0])
ns.ones(2).clone(memory_format="contiguous")
ns.ones(2).double(memory_format="contiguous")
ns.ones(2).split(True)
"""

VALUES_REFUSED = """
ns.nn.functional.binary_cross_entropy(ns.tensor([1.5, 0.5]), ns.ones(2))
ns.nn.functional.binary_cross_entropy(ns.tensor([0.5, -0.5]), ns.ones(2))
ns.nn.functional.binary_cross_entropy(ns.tensor([0.5, 0.5]), ns.tensor([0.0, 1.5]))
ns.nn.BCELoss()(ns.tensor([np.nan]), ns.ones(1))
ns.bernoulli(ns.tensor([1.5]))
ns.bernoulli(ns.tensor([0.5]), p=2.0)
ns.zeros(2).bernoulli_(ns.tensor([0.5, -1.0]))
ns.normal(ns.zeros(2), ns.tensor([1.0, -1.0]))
ns.normal(0.0, -1.0, (2,))
ns.multinomial(ns.tensor([-1.0, 2.0]), 1)
ns.nn.functional.nll_loss(ns.ones(1, 2), ns.tensor([2]))
ns.nn.functional.nll_loss(ns.ones(1, 2), ns.tensor([1]), weight=ns.ones(3))
ns.nn.functional.cross_entropy(ns.ones(1, 2), ns.tensor([1]), weight=ns.ones(1))
ns.nn.functional.embedding(ns.tensor([-1]), ns.ones(2, 1))
ns.nn.functional.celu(ns.ones(2), 0.0)
ns.argmax(ns.tensor([True, False]))
ns.tensor([True]).argmin(0)
ns.lerp(ns.ones(2), ns.ones(2).double(), 0.5)
ns.lerp(ns.ones(2), ns.ones(2), ns.ones(2).double())
ns.lerp(ns.tensor([1]), ns.tensor([2]), 0.5)
ns.addmm(ns.ones(1, 1), ns.tensor([[1]]), ns.tensor([[1]]))
ns.baddbmm(ns.ones(1, 1, 1), ns.tensor([[[1]]]), ns.tensor([[[1]]]))
ns.addcdiv(ns.tensor([1]), ns.tensor([1]), ns.tensor([1]))
ns.add(ns.tensor([1]), ns.tensor([1]), alpha=1.5)
ns.sub(ns.ones(1), ns.ones(1), alpha=1j)
ns.trapezoid(ns.ones(3), ns.ones(2))
ns.index_add(ns.ones(2), 0, ns.tensor([0]), ns.tensor([1]))
ns.polar(ns.tensor([1]), ns.tensor([1]))
ns.ones(1).expand(-1, -1, -1)
"""


def lines(table):
    return [line for line in table.split("\n") if line]


def result(library, line):
    """A function of the library that gives what the line is; a new one has never been compiled."""

    def function():
        made = eval(line, {"ns": library, "np": np})
        return str(made.dtype).split(".")[1], made.tolist()

    return function


@pytest.mark.oracle
@pytest.mark.parametrize("line", lines(PYTHON_TYPES))
def test_what_pytorch_takes(line):
    function = result(weft, line)
    expected = result(pytest.importorskip("torch"), line)()
    compiled = weft.compile(function)
    assert [function(), *(compiled() for _ in range(3))] == [expected] * 4


@pytest.mark.oracle
@pytest.mark.parametrize("line", lines(REFUSED) + lines(VALUES_REFUSED))
def test_what_pytorch_refuses(line):
    def kind(function):
        with pytest.raises(Exception) as caught:
            function()
        return caught.type

    expected = kind(result(pytest.importorskip("torch"), line))
    function = result(weft, line)
    compiled = weft.compile(function)
    assert issubclass(kind(function), expected)
    assert issubclass(kind(compiled), expected) and issubclass(kind(compiled), expected)


def test_a_type_by_another_librarys_name_is_told_the_one_here():
    with pytest.raises(TypeError, match="argument 'dtype' must be weft.dtype, not str: write weft.float32"):
        weft.zeros(2, dtype="float32")
    with pytest.raises(TypeError, match="argument 'dtype' must be weft.dtype, not type: write weft.int32"):
        weft.ones(2).to(dtype=np.int32)


def test_values_are_checked_in_a_program_that_goes_on_afterwards():
    loss = weft.compile(lambda x, y: weft.nn.functional.binary_cross_entropy(x * 1.0, y) * 2)
    x, y = weft.tensor([0.25, 0.75]), weft.tensor([0.0, 1.0])
    expected = weft.nn.functional.binary_cross_entropy(x, y) * 2
    for _ in range(3):
        assert loss(x, y).equal(expected)
        with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
            loss(x + 1, y).item()
    assert loss.breaks == ()


def test_an_argument_of_another_kind_is_named():
    with pytest.raises(TypeError, match=r"topk\(\): argument 'k' must be int, not float"):
        weft.topk(weft.ones(3), 2.0)
    with pytest.raises(TypeError, match=r"kthvalue\(\): argument 'k' \(position 2\) must be int, not float"):
        weft.kthvalue(weft.ones(3), 2.0)
    with pytest.raises(TypeError, match=r"sort\(\): argument 'descending' must be bool, not str"):
        weft.sort(weft.ones(3), descending="yes")
    with pytest.raises(TypeError, match=r"flip\(\): argument 'dims' .* must be tuple of ints, not list with a float"):
        weft.flip(weft.ones(2, 2), [0, 1.0])


def test_a_call_is_refused_also_after_others_that_were_right():
    for _ in range(2):
        assert weft.topk(weft.ones(3), 2, -1).values.tolist() == [1.0, 1.0]
        assert weft.flip(weft.arange(3), [0]).tolist() == [2, 1, 0]
        with pytest.raises(TypeError):
            weft.topk(weft.ones(3), 2.0, -1)
        with pytest.raises(TypeError):
            weft.flip(weft.arange(3), [0.0])


def test_what_weft_takes_beyond_pytorch_passes():
    assert weft.topk(weft.ones(3), np.int64(2), axis=0).values.tolist() == [1.0, 1.0]
    assert weft.sort(weft.tensor([2, 1]), axis=0).values.tolist() == [1, 2]
    assert weft.median(weft.ones(3), None).item() == 1.0


@pytest.mark.oracle
def test_the_table_of_kinds_is_what_its_script_writes():
    pytest.importorskip("torch")
    sys.path.insert(0, str(DOCS))
    try:
        import pytorch_kinds
    finally:
        sys.path.remove(str(DOCS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "\n".join(pytorch_kinds.lines()) + "\n" == pytorch_kinds.TARGET.read_text()


def test_an_extra_name_of_functional_call_is_there_for_the_call_only():
    layer = weft.nn.Linear(2, 2)
    layer.note = before = weft.zeros(1)
    during = []
    layer.register_forward_pre_hook(lambda module, _: during.append((module.scale, module.note)))
    given = {"scale": weft.ones(1), "note": weft.ones(1)}
    weft.func.functional_call(layer, given, weft.ones(2))
    assert during[0][0] is given["scale"] and during[0][1] is given["note"]
    assert not hasattr(layer, "scale") and layer.note is before


def test_arguments_of_known_classes_are_looked_at_once(monkeypatch):
    """Parameters among them: each layer passes some in every call."""
    looked = []
    mismatch = kinds.mismatch
    monkeypatch.setattr(kinds, "mismatch", lambda *given, **how: looked.append(given[0]) or mismatch(*given, **how))
    norm, x = weft.nn.BatchNorm1d(4), weft.rand(8, 4)
    norm(x)
    del looked[:]
    norm(x), norm(x * 2)
    assert looked == []
