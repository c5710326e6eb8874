"""Every construct of the subset: a native function does what its text does as Python, on the same data."""

import copy
import ctypes
import itertools

import native_sources as sources
import numpy as np
import pytest

from weft.compiler.emit import pool
from weft.compiler.translate.kinds import F64, Address, Cell, Struct, offset_of
from weft.compiler.translate.translate import translate
from weft.runtime.code import translated
from weft.runtime.code.packing import Packed

EXPORTED = [f for f in vars(sources).values() if hasattr(f, "declaration") and f.declaration.name]
TWICE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 2 * x)


@pytest.fixture(scope="module")
def code():
    return translated.load("test sources", EXPORTED)


def native_function(code, function):
    notes = dict(function.declaration.function.__annotations__)
    result = notes.pop("return", None)
    kinds = {F64: ctypes.c_double, Address: ctypes.c_void_p}
    parameters = [ctypes.c_void_p if isinstance(k, type) else kinds.get(k, ctypes.c_int64) for k in notes.values()]
    result = result and kinds.get(result, ctypes.c_int64)
    return ctypes.PYFUNCTYPE(result, *parameters)(code.address(function.declaration.name))


def run_both(code, function, *arguments):
    """(result, structures after it) natively and in Python; structures are copied."""
    ours = [copy.deepcopy(a, {id(TWICE): TWICE}) for a in arguments]
    packed = [Packed(a) if isinstance(a, Struct) else a for a in arguments]
    found = native_function(code, function)(*[p.address if isinstance(p, Packed) else p for p in packed])
    expected = function(*ours)
    for p, mine in zip(packed, ours):
        if isinstance(mine, Struct):
            # Memory that Python's structures have after the call is what native code has written.
            assert_same_memory(p, mine)
    assert found == expected
    return expected


def assert_same_memory(packed, struct):
    for found, expected in zip(packed.held, Packed(struct).held):
        if isinstance(found, np.ndarray):
            numbers, wanted = (np.where(abs(x) < 2**20, x, -1) for x in (found, expected))  # and not addresses
            assert (numbers == wanted).all()


def everything():
    points = [sources.Point(x=1, seen=True), sources.Point(x=2)]
    return sources.Everything(
        rows=[4, 5, 6], points=points, first=sources.Point(x=3, y=2.5, small=-8), four=[1, 2, 3, 4], at=11, twice=TWICE
    )


NUMBERS = [-9, -1, 0, 1, 2, 3, 5, 8, 40, 150]
PAIRS = list(itertools.product(NUMBERS, NUMBERS))


@pytest.mark.parametrize("function", [sources.arithmetic, sources.branches, sources.conditions, sources.loops])
def test_numbers(code, function):
    results = {run_both(code, function, a, b) for a, b in PAIRS if function is not sources.loops or a < 20}
    assert len(results) > 3


def test_floats(code):
    for y in (0.0, 2.5, -1e10, 1 / 3):
        assert isinstance(run_both(code, sources.floats, sources.Point(y=y), 3), float)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_structures(code, n):
    run_both(code, sources.fields, everything(), n)
    run_both(code, sources.atomics, everything(), n)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_calls_and_arrays(code, n):
    run_both(code, sources.calls, everything(), n)
    run_both(code, sources.arrays, n)
    assert run_both(code, sources.late, n + 2) == 3


@pytest.mark.parametrize("x", [1, 5])
def test_structures_are_compared_by_identity(code, x):
    assert run_both(code, sources.pointers, everything(), sources.Point(x=x)) == (x > 2)


def test_a_structure_of_the_file_itself_is_memory_of_the_code(code):
    count, before = native_function(code, sources.count_in_global), sources.counters.x
    assert [count(2), count(3), count(-5)] == [2, 5, 0]
    assert sources.counters.x == before
    address = code.struct_address("native_sources:counters")
    assert ctypes.c_int64.from_address(address).value == 0
    assert sources.count_in_global(1) == before + 1


def test_addresses_of_fields(code):
    packed = Packed(everything())
    found = native_function(code, sources.address)(packed.address)
    assert found - packed.address == offset_of(sources.Everything, "word")


def test_addresses_of_functions(code):
    find = native_function(code, sources.function_address)
    factorial = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(find(1))
    assert factorial(5) == 120 == sources.function_address(1)(5)
    assert find(0) != find(1)


def test_a_function_without_a_slow_way_says_that_it_departed():
    text = translate([sources.positive]).text()
    assert "define internal i1 @weft_native_sources.positive" in text
    assert "ret i1 false" in text


def test_the_sources_of_weft_have_no_warnings():
    assert not translate(pool.POOL).warnings and not translate(pool.SERIAL_POOL).warnings


def test_every_statement_is_a_comment_in_the_text():
    text = translate([sources.loops]).text()
    assert "; native_sources.py:" in text and "for k in range(i, 2 * i):" in text


def test_structures_say_what_they_have():
    with pytest.raises(TypeError, match="Point: has no field z"):
        sources.Point(z=1)
    assert offset_of(sources.Everything, "at") == 512
    assert isinstance(sources.Everything().word, Cell)


# --- where the two differ (docs/native.md) ----------------------------------------------------------------------------
def test_integers_wrap(code):
    count = native_function(code, sources.arithmetic)
    assert count(2**62, 2**62) != sources.arithmetic(2**62, 2**62)


def test_text_about_addresses_has_a_twin_in_python(code):
    numbers = np.array([5, 6, 7, 8])
    assert native_function(code, sources.total_at)(numbers.ctypes.data, 3) == sources.total_at([5, 6, 7, 8], 3) == 18
    with pytest.raises(TypeError, match="load_at: an address means nothing in Python"):
        sources.total_at.declaration.function(numbers, 3)
