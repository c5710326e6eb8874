"""The array API standard: functions that know nothing of weft work on its tensors.

The standard's own test-suite is https://github.com/data-apis/array-api-tests; here is what it cannot ask: gradients,
compiled functions, and libraries that take any array.
"""

import numpy as np
import pytest

import weft
from weft import array_api


def standardised(x):
    """As a library writes it."""
    xp = x.__array_namespace__(api_version="2023.12")
    centred = x - xp.mean(x, axis=0, keepdims=True)
    scale = xp.std(x, axis=0, correction=1.0, keepdims=True)
    return xp.where(scale == 0, xp.zeros_like(x), centred / scale)


def test_a_function_for_any_array():
    x = np.random.default_rng(0).normal(size=(6, 3))
    assert np.allclose(standardised(weft.tensor(x)).numpy(), standardised(x), rtol=1e-13)


def test_gradients_and_compiled_functions():
    x = weft.randn(6, 3, dtype=weft.float64, requires_grad=True)
    weight = weft.randn(6, 3, dtype=weft.float64)
    assert weft.autograd.gradcheck(standardised, (x,))
    (standardised(x) * weight).sum().backward()
    expected, x.grad = x.grad, None
    compiled = weft.compile(standardised)
    (compiled(x) * weight).sum().backward()
    assert x.grad.equal(expected) and compiled.breaks == ()


def both(name, *args, **kwargs):
    """What weft and NumPy give."""
    function = getattr(array_api, name)
    ours = function(*[weft.tensor(a) if isinstance(a, np.ndarray) else a for a in args], **kwargs)
    theirs = getattr(np, name)(*args, **kwargs)
    one = not isinstance(ours, tuple)
    return [(np.asarray(a), np.asarray(b)) for a, b in zip((ours,) if one else ours, (theirs,) if one else theirs)]


INTEGERS, FLOATS = np.array([[3, 1, 2], [1, 3, 3]]), np.array([[0.5, -1.0, 2.0], [1.5, 0.0, -3.0]])
REDUCTIONS = str.split("sum prod mean max min var std")
OVER = ((None, False), (None, True), (-1, False), ((0, 1), True), ((), False))
CALLS = [
    *[(name, (FLOATS,), {"axis": axis, "keepdims": keep}) for name in REDUCTIONS for axis, keep in OVER],
    *[(name, (INTEGERS,), {}) for name in ("sum", "prod", "unique_all", "unique_counts", "unique_inverse")],
    *[(name, (INTEGERS > 1,), {"axis": 0}) for name in ("all", "any")],
    ("argmax", (INTEGERS,), {"axis": 0}),
    ("cumulative_sum", (INTEGERS,), {"axis": 1, "include_initial": True}),
    ("expand_dims", (FLOATS,), {"axis": -1}),
    ("permute_dims", (FLOATS, (1, 0)), {}),
    ("moveaxis", (FLOATS, 0, 1), {}),
    ("take", (FLOATS, np.array([2, 0])), {"axis": 1}),
    ("roll", (FLOATS, 1), {"axis": 1}),
    ("repeat", (FLOATS, 2), {"axis": 1}),
    ("flip", (FLOATS,), {"axis": 0}),
    ("linspace", (0.0, 1.0, 5), {"endpoint": False}),
    ("arange", (5, 0), {}),
    ("eye", (3, 4), {"k": 1}),
    ("sort", (FLOATS,), {"axis": 0}),
    ("nonzero", (INTEGERS - 1,), {}),
]  # fmt: skip


@pytest.mark.parametrize("name, args, kwargs", CALLS, ids=[f"{k} {c[0]}" for k, c in enumerate(CALLS)])
def test_functions_are_numpys(name, args, kwargs):
    for ours, theirs in both(name, *args, **kwargs):
        assert ours.shape == theirs.shape and np.allclose(ours, theirs)
        assert ours.dtype.kind == theirs.dtype.kind


def test_joining_and_parting():
    rows = array_api.unstack(weft.tensor(FLOATS))
    assert array_api.concat(rows, axis=None).equal(weft.tensor(FLOATS).flatten())
    assert array_api.stack(rows, axis=1).equal(weft.tensor(FLOATS).T)


def test_what_the_namespace_says_of_itself():
    info = array_api.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] is weft.get_default_dtype()
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert array_api.isdtype(weft.int32, ("bool", "integral")) and not array_api.isdtype(weft.int32, "real floating")
    with pytest.raises(ValueError, match="must be one of bool, signed integer"):
        array_api.isdtype(weft.int32, "whole")
    with pytest.raises(ValueError, match="weft follows 2024.12, not 2030.12"):
        weft.ones(1).__array_namespace__(api_version="2030.12")


def test_asarray_copies_when_asked():
    x = weft.ones(3)
    assert array_api.asarray(x) is x and array_api.asarray(x, copy=True) is not x
    array = np.ones(3)
    array_api.asarray(array, copy=False)[0] = 5
    assert array[0] == 5
    with pytest.raises(ValueError, match="without a copy"):
        array_api.asarray(x, dtype=weft.float64, copy=False)


def test_array_api_compat_knows_tensors():
    compat = pytest.importorskip("array_api_compat")
    x = weft.ones(2, 3)
    assert compat.is_array_api_obj(x) and compat.array_namespace(x, weft.ones(1)) is array_api
    assert compat.size(x) == 6 and compat.to_device(x, compat.device(x)) is x
