"""What `weft.tensor` is given: numbers and nested lists, of every kind and of several, in every type."""

import itertools
import warnings

import numpy as np
import pytest

import weft

NAN, INF = float("nan"), float("inf")
LARGEST = float(np.finfo(np.float32).max)
NUMBERS = [0.1, -0.0, 1e-40, 1e-320, LARGEST, LARGEST * (1 + 2**-25), LARGEST * (1 + 2**-23), 1e300, -1e300, NAN, INF]
TYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "int64", "int32", "uint8", "bool", None)
GIVEN = [
    *(3, True, 0.5, 2, 1 + 2j, [], [[], []], (1, 2), [1, 2, 3], [True, False], [1, 2.5], [True, 2], [0.5, 1j]),
    *([(1, 2), [3, 4]], [[0.5, 1.0], (2.0, 3.0)], [[1], [2.5]], [[[0.25]], [[0.5]]], [[True], [3]], [0, 255]),
]


def made(library, data, dtype):
    x = library.tensor(data, dtype=None if dtype is None else getattr(library, dtype))
    return str(x.dtype).split(".")[1], tuple(x.shape), repr(x.tolist())


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_and_lists_have_the_type_and_the_elements_of_pytorch(dtype):
    torch = pytest.importorskip("torch")
    given = [data for data in GIVEN if not has_complex(data) or dtype in (None, "complex64")]
    for data in given:
        assert made(weft, data, dtype) == made(torch, data, dtype), data


def has_complex(data):
    return any(map(has_complex, data)) if isinstance(data, (list, tuple)) else isinstance(data, complex)


@pytest.mark.oracle
@pytest.mark.parametrize("state", ["warn", "raise", "ignore"])
def test_floats_that_a_type_does_not_hold_are_rounded_without_a_word(state):
    torch = pytest.importorskip("torch")
    rows = [list(row) for row in itertools.permutations(NUMBERS, 2)]
    given = [*NUMBERS, *rows, rows, [[row] for row in rows], [NUMBERS[:4] * 20, NUMBERS[4:8] * 20]]
    for data in given:
        with warnings.catch_warnings(), np.errstate(all=state):
            warnings.simplefilter("error")
            x = weft.tensor(data).numpy()
        assert x.tobytes() == torch.tensor(data).numpy().tobytes(), data


UNEVEN = {
    ValueError: [[[1.0, 2.0], [3.0]], [[1, 2], [3]], [[[1, 2]], [[3]]]],
    TypeError: [[[1.0], 2.0], [1, [2]], [[[1]], [2]], [1.5, [3]], [1, (3,)], [1, "a"], "a"],
    RuntimeError: [[1, None], None, [{}]],
}


@pytest.mark.parametrize("kind", UNEVEN, ids=lambda kind: kind.__name__)
def test_lists_of_different_lengths_are_refused(kind):
    for data in UNEVEN[kind]:
        with pytest.raises(kind, match="expected numbers in equally long nested lists"):
            weft.tensor(data)


@pytest.mark.oracle
@pytest.mark.parametrize("kind", UNEVEN, ids=lambda kind: kind.__name__)
def test_pytorch_refuses_them_with_the_same_types(kind):
    torch = pytest.importorskip("torch")
    for data in UNEVEN[kind]:
        with pytest.raises(kind):
            torch.tensor(data)


def test_the_default_type_is_that_of_floats_alone():
    weft.set_default_dtype(weft.float64)
    try:
        found = [weft.tensor(data).dtype for data in (1e300, [1e300], [[1, 2]], True, [1, 2.5])]
    finally:
        weft.set_default_dtype(weft.float32)
    assert found == [weft.float64, weft.float64, weft.int64, weft.bool, weft.float64]


def test_subclasses_of_numbers_and_numbers_of_numpy_in_lists_are_numbers():
    class Kilograms(float):
        pass

    x = weft.tensor([Kilograms(0.1), Kilograms(2.0)])
    assert x.dtype is weft.tensor(Kilograms(0.1)).dtype is weft.float32 and x[0] == weft.tensor(Kilograms(0.1))
    assert weft.tensor([np.float64(0.1), np.float64(0.2)]).dtype is weft.float64
    assert weft.tensor([np.float32(0.1), np.float32(0.2)]).tolist() == [np.float32(0.1), np.float32(0.2)]
    assert weft.tensor([weft.tensor(1.5), 2.0]).tolist() == [1.5, 2.0]


def test_what_is_made_does_not_change_with_the_list():
    rows = [[0.5, 1.0]]
    x = weft.tensor(rows, requires_grad=True)
    rows[0][0] = 9.0
    assert x.tolist() == [[0.5, 1.0]] and x.requires_grad and x.is_leaf


# --- tensors in lists ------------------------------------------------------------------------------------------------
def lists_with_tensors(library):
    one, row = library.ones(1), library.ones(2)
    half, whole = library.tensor(2.5, dtype=library.float16), library.tensor([[3]], dtype=library.int32)
    return {
        "numbers": [
            [one],
            [one, half],
            (whole, whole),
            [1, whole],
            [[one, library.ones(1, 1, 1)]],
            [0.5, half],
            [True, one],
        ],
        "rows": [[[1, 2], row], [[1.5, 2.5], library.tensor([3, 4])], [[1], one]],
        "refused": [[row], [row, row], [row, [1, 2]], [library.ones(0)], [library.ones(2, 2)], [one, row]],
    }


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["numbers", "rows"])
def test_lists_with_tensors_have_the_type_and_the_elements_of_pytorch(kind):
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(lists_with_tensors(weft)[kind], lists_with_tensors(torch)[kind]):
        assert made(weft, ours, None) == made(torch, theirs, None), theirs
        assert made(weft, ours, "float64") == made(torch, theirs, "float64"), theirs


@pytest.mark.parametrize("name", ["tensor", "as_tensor", "asarray", "Tensor", "FloatTensor"])
def test_tensors_of_several_elements_are_no_numbers(name):
    make = getattr(weft, name)
    for given in lists_with_tensors(weft)["refused"]:
        with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars.*weft.stack"):
            make(given)
    assert make([weft.ones(1), weft.ones(1, 1)]).tolist() == [1.0, 1.0]


def test_numbers_with_fractions_are_no_integers_in_tensors_either():
    with pytest.raises(TypeError, match="only integer tensors of a single element can be converted to an index"):
        weft.tensor([weft.tensor(1.5)], dtype=weft.int64)
    with pytest.raises(TypeError, match="not a sequence"):
        weft.tensor([[1], weft.tensor(1)])
    with pytest.raises(RuntimeError, match="Could not infer dtype of dict"):
        weft.tensor({"a": 1})


# --- bounds by name --------------------------------------------------------------------------------------------------
BOUNDS = [
    *(((), {"end": 5}), ((), {"start": 1, "end": 5}), ((), {"start": 1, "end": 5, "step": 2}), ((1,), {"end": 4})),
    *(((0, 5), {"step": 2}), ((5.0,), {}), ((5, 1, -2), {}), ((), {"start": 0.5, "end": 2.0})),
]
REFUSED = [
    *(((), {}), ((), {"start": 1}), ((), {"step": 2}), ((), {"start": 1, "step": 2}), ((5,), {"step": 2})),
    *(((), {"end": 5, "step": 2}), ((1,), {"start": 2}), ((), {"limit": 5}), ((None,), {}), ((), {"end": None})),
]


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["arange", "range"])
@pytest.mark.filterwarnings("ignore")
def test_bounds_by_name_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")

    def given(library, args, kwargs):
        try:
            x = getattr(library, name)(*args, **kwargs)
        except TypeError:
            return TypeError
        return str(x.dtype).split(".")[1], x.tolist()

    for args, kwargs in BOUNDS + REFUSED:
        assert given(weft, args, kwargs) == given(torch, args, kwargs), (args, kwargs)


@pytest.mark.parametrize("args, kwargs", REFUSED)
def test_ranges_without_an_end_are_refused(args, kwargs):
    with pytest.raises(TypeError, match="arange"):
        weft.arange(*args, **kwargs)


def test_bounds_are_real_numbers():
    with pytest.raises(TypeError, match="must be Number, not Tensor"):
        weft.arange(weft.tensor([3]))
    with pytest.raises(RuntimeError, match="without overflow"):
        weft.arange(3j)
    assert weft.arange(weft.tensor(3)).tolist() == [0, 1, 2]
    assert weft.linspace(0j, 1, 3).tolist() == [0, 0.5, 1]
