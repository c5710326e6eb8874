"""Native functions on Python objects: results, the slow way, errors and reference counts are those of the text."""

import ctypes
import gc
import sys

import native_object_sources as sources
import numpy as np
import pytest

import weft
from weft.compiler.translate.translate import translate
from weft.runtime.code import translated
from weft.runtime.code.packing import Packed
from weft.runtime.replay import native

EXPORTED = [f for f in vars(sources).values() if hasattr(f, "declaration") and f.declaration.name]


@pytest.fixture(scope="module")
def code():
    return translated.load("test objects", EXPORTED, native.layout())


METHODS = str.split("take pairs look_up attributes next_number choose data_of same refused lists even")


class Native:
    """The methods of one Words, natively; what they write is read with `read`."""

    kept = []

    def __init__(self, code, words):
        self.packed = Packed(words)
        for name in METHODS:
            definition = native._MethodDef(name.encode(), code.address(name), 0x80, None)
            self.kept.append((definition, code))
            setattr(self, name, native._new_builtin(ctypes.byref(definition), self.packed.words, None))

    @property
    def k(self):
        return self.packed.read("k")


class Python:
    """The same methods as Python."""

    def __init__(self, code, words):
        self.words = words

    def __getattr__(self, name):
        return lambda *arguments: getattr(sources, name)(self.words, *arguments)

    @property
    def k(self):
        return self.words.k


SLOW = "slow way"


def words(**fields):
    def slow(*arguments):
        return (SLOW, len(arguments))

    given = {
        "op": "op", "wanted": {"a": 1}, "tensors": [weft.ones(1), weft.ones(2), weft.ones(3)], "codes": [1, 2],
        "seen": [None], "empty": "empty", "slow": slow, **fields,
    }  # fmt: skip
    return sources.Words(**given)


@pytest.fixture(params=[Native, Python])
def methods(request, code):
    return lambda w: request.param(code, w)


def test_tuples_of_tensors(methods):
    w = words(flag=True)
    zero, one, two = w.tensors
    one.grad = weft.ones(2)
    m = methods(w)
    assert m.take("op", (one, two), {"a": 1}) is zero
    assert zero._base is one and w.seen == [None, two] and m.k == 1
    for wrong in [
        ("other", (one, two), {"a": 1}), ("op", [one, two], {"a": 1}), ("op", (one, two), {"a": 2}),
        ("op", (one, two), None), ("op", (one,), {"a": 1}), ("op", (two, one), {"a": 1}), ("op", (one, two), {}),
    ]:  # fmt: skip
        assert m.take(*wrong) == (SLOW, 3)
    assert m.k == 1


def test_the_number_of_arguments_is_checked(code):
    m = Native(code, words())
    for arguments in [(), (1,), (1, 2, 3, 4)]:
        assert m.take(*arguments) == (SLOW, len(arguments))


def test_lists_and_tuples_are_made(methods):
    m = methods(words())
    assert m.pairs([7, None, "x"]) == [(7, 0), ("x", 2), ("x", 2)]
    assert m.pairs([]) == ["empty"]
    assert len(m.pairs([1] * 9)) == 6
    assert m.pairs([1, sources.MARK]) == (SLOW, 1) == m.pairs(())


def test_dicts(methods):
    m, mapping = methods(words()), {1: "one"}
    assert m.look_up(mapping, 1) == "one" and mapping == {1: "one", "last": "one"}
    assert m.look_up(mapping, 2) == "empty"
    assert m.look_up({"size": 3}, 2) == 3
    assert m.look_up([], 2) == (SLOW, 2)


def test_errors_and_references_of_some_ways(methods):
    w = words()
    m = methods(w)
    assert m.attributes(3 + 4j, "real") == 3.0 and m.k == 0
    assert m.attributes("x", "op") == "x" and w.seen[1:] == [3.0, "x", "x"] and m.k == 1
    with pytest.raises(AttributeError):
        m.attributes(1, "no such name")
    assert m.attributes(sources.MARK, "__doc__") is not None
    m = methods(words(flag=True))
    assert m.attributes("x", "op") == "x" and m.k == 0


def test_functions_that_depart_take_their_callers_with_them(methods):
    w = words()
    m = methods(w)
    assert m.next_number(5) == 7 and w.seen[0] == 5
    assert m.next_number(-1) == 1
    for too_large in (30, 2**70, "x", 5.0):
        assert m.next_number(too_large) == (SLOW, 1)


def test_functions_that_call_each_other_and_depart(methods):
    m = methods(words())
    assert [m.even(n) for n in range(4)] == [0, (SLOW, 1), 2, (SLOW, 1)]


def test_conditional_objects(methods):
    w = words(flag=True)
    m = methods(w)
    assert m.choose(1, 2) == (1, 2) and m.choose(True, 2) is w.tensors[0]
    assert m.choose("x", None) == (SLOW, 2) and m.choose("x", 1) == ("x", 1)
    w = words(flag=False)
    assert methods(w).choose(1, 2) == 2 and methods(w).choose(True, 2) is w.tensors[0]


def test_fields_of_arrays(methods):
    m = methods(words())
    assert m.data_of(weft.ones(2, 3)) == np.float32
    assert m.data_of(weft.ones(2)) == (SLOW, 1) == m.data_of(1)


def test_references_stay_what_they_are(code):
    w = words(flag=True)
    m, one, two = Native(code, w), *w.tensors[1:]
    marks = [object() for _ in range(4)]
    fixed = [*marks, *w.tensors, *vars(w).values(), None, sources.MARK, sources.called_in_python]
    calls = [
        lambda: m.take("op", (one, two), {"a": 1}), lambda: m.take("op", (two, one), {"a": 1}),
        lambda: m.take("op", (one, marks[0]), {"a": 1}), lambda: m.pairs(marks),
        lambda: m.pairs([*marks, sources.MARK]),
        lambda: m.look_up({marks[0]: marks[1]}, marks[0]), lambda: m.attributes(marks[2], "op"),
        lambda: m.attributes(marks[2], "__class__"), lambda: m.choose(marks[0], marks[1]), lambda: m.next_number(17),
        lambda: m.lists([marks[0], 2, marks[0]], marks[0]), lambda: m.lists([1, 2], marks[1]),
        lambda: m.same(marks[0], None), lambda: m.next_number("x"), lambda: m.choose("x", None),
        lambda: m.choose(True, marks[3]),
        lambda: pytest.raises(AttributeError, m.attributes, marks[3], "missing"),
        lambda: slot(code, "first_slot")(marks[0], (marks[1], 2), None), lambda: m.data_of(one),
        lambda: slot(code, "first_slot")(marks[0], (marks[1],), None),
        lambda: slot(code, "first_slot")(tuple, (marks[1], ()), {}),
        lambda: slot(code, "first_slot")(marks[0], (marks[1],), {"a": marks[2]}),
    ]  # fmt: skip
    for call in calls:
        call()
        del w.seen[1:]
        w.seen[0] = None
        gc.collect()
        before = [sys.getrefcount(x) for x in fixed]
        for _ in range(2000):
            call()
            del w.seen[1:]
        w.seen[0] = None
        after = [sys.getrefcount(x) for x in fixed]
        assert max(abs(a - b) for a, b in zip(after, before)) < 1000


SLOT = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)


def slot(code, name):
    def call(this, operands, attributes):
        return SLOT(code.address(name))(this, operands, None if attributes is None else id(attributes))

    return call


@pytest.mark.parametrize("native_form", [True, False])
def test_slots_go_on_from_one_to_the_next(code, native_form):
    first = slot(code, "first_slot") if native_form else sources.first_slot
    assert first("this", (1, 2), None) == 1
    assert first(tuple, (1, (2, 3)), {}) == (2, 3)
    assert first("this", (1,), None) == (1, "this")
    assert first("this", (1,), {"a": 5}) == ("python", "this", (1,), {"a": 5})
    assert first("this", (), None) == ("python", "this", (), {})
    with pytest.raises(TypeError):
        first(5, (1, 2), {})


def test_shared_structures_can_be_written_from_outside(code):
    other = Packed(words())
    place = code.struct_address("native_object_sources:shared")
    ctypes.c_size_t.from_address(place + 8).value = other.address
    assert code.call_address("address_of_active") == other.address


def test_identity_and_unhashable_keys(methods):
    m, x = methods(words()), object()
    assert m.same(x, x) is True and m.same(x, None) == "size" and m.same(x, 5) is None


def test_lists_and_what_takes_references_over(methods):
    m, x, items = methods(words()), object(), [1, 2, 3]
    pair, given, last = m.lists(items, x)
    assert list(pair) == [x, 0] and given is items == [x, (x, "empty"), 3] and last is x
    ((pair, *_, last),) = m.lists([x, 5], x)
    assert list(pair) == [x, 1] and last is x
    (((_, given, last),),) = m.lists([x, 5, x], x)
    assert last is None and given == [x, (x, "empty"), x]


def test_an_error_in_get_counts_as_absent(code):
    m = Native(code, words())
    assert m.refused("a") == 1
    assert m.refused("b") == (SLOW, 1) == m.refused([])
    with pytest.raises(TypeError):
        sources.refused(words(), [])


def test_the_sources_have_no_warnings(code):
    assert list(translate(EXPORTED, native.layout()._asdict()).warnings) == []
