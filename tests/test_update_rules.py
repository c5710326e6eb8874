"""Rules of updates that a user writes: more than their name decides what they compute, and which program they get."""

import subprocess
import sys

import pytest
from compiled_twin import twin

import weft
from weft.compiler.ops.arithmetic import add, mul
from weft.optim.adam import adam
from weft.optim.sgd import sgd
from weft.runtime.eager.update import update
from weft.runtime.programs.rule_text import rule_text

FACTOR = 2.0


def by_global(x):
    return (mul(x, FACTOR),)


def by_helper(x):
    return (_helper(x),)


def _helper(x):
    return mul(x, 2.0)


def by_default(x, by=2.0):
    return (mul(x, by),)


def by_keyword(x, *, by=2.0):
    return (mul(x, by),)


def around(by):
    def rule(x):
        return (mul(x, by),)

    return rule


def inside(by):
    return lambda x: [add(mul(x, by), y) for y in (0,)]


class Table:
    by = 2.0


table = Table()


def by_unknown(x):
    return (mul(x, table.by),)


def applied(rule):
    """What a compiled function that has never been called before does with ones."""
    x = weft.ones(3)
    with weft.no_grad():
        weft.compile(lambda: update(rule, [(x,)]))()
    return x.tolist()


def set_global(by, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", by)
    return by_global


def set_helper(by, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "_helper", lambda x: mul(x, by))
    return by_helper


def set_default(by, monkeypatch):
    monkeypatch.setattr(by_default, "__defaults__", (by,))
    return by_default


def set_keyword(by, monkeypatch):
    monkeypatch.setitem(by_keyword.__kwdefaults__, "by", by)
    return by_keyword


def set_unknown(by, monkeypatch):
    monkeypatch.setattr(table, "by", by)
    return by_unknown


@pytest.mark.parametrize(
    "make",
    [set_global, set_helper, set_default, set_keyword, set_unknown]
    + [lambda by, _: around(by), lambda by, _: inside(by)],
)
def test_what_a_rule_reaches_is_part_of_its_program(make, monkeypatch):
    """Every time in a function compiled anew, as in another process that finds the first one's program on disk."""
    for by in (2.0, 3.0, 0.5, 2.0):
        assert applied(make(by, monkeypatch)) == [by] * 3


def test_texts():
    assert rule_text(around(2.0)) == rule_text(around(2.0)) != rule_text(around(3.0))
    assert rule_text(around(2)) != rule_text(around(2.0)) != rule_text(around(-2.0))
    assert rule_text(around(0.0)) != rule_text(around(-0.0))
    assert rule_text(by_unknown) != rule_text(by_unknown)
    assert rule_text(adam) == rule_text(adam) != rule_text(sgd)
    # Its helpers are part of it: they lie in no source that the cache looks at.
    assert "weft.optim.adam.blend [" in rule_text(adam)


def test_a_rule_that_calls_itself():
    def rule(x, n=2):
        return rule(mul(x, 2.0), n - 1) if n else (x,)

    assert rule_text(rule) == rule_text(rule) and applied(rule) == [4.0] * 3


def test_the_text_is_the_same_in_every_process():
    imports = "from weft.optim.adam import adam; from weft.runtime.programs.rule_text import rule_text"
    code = f"{imports}; print(hash(rule_text(adam)))"
    texts = []
    for _ in range(2):
        environment = {"PYTHONHASHSEED": "0", "PATH": ""}
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert found.returncode == 0, found.stderr
        texts.append(found.stdout)
    assert texts[0] == texts[1]


@twin
def test_rules_in_turn(compile):
    """In one recording rules are told apart by identity."""
    rules = [around(2.0), around(3.0)]
    x = weft.ones(3)

    @compile
    def run(k):
        with weft.no_grad():
            update(rules[k], [(x,)])

    for k in (0, 0, 0, 0, 1, 0, 1, 1, 1, 1):
        run(k)
        yield x
