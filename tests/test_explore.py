"""The explorer finds what is wrong, and finds nothing wrong with the thread pool.

Scenarios and faults that take minutes run with WEFT_EXPLORE=1, or by `python -m tests.explore`.
"""

import os

import explore as pool_scenarios
import pytest
from explorer import Ref, Scenario, Wrong, explore
from explorer_code import Code

from weft.compiler.translate.kinds import I64, Atomic, Pointer, Struct
from weft.compiler.translate.language import ACQUIRE, RELAXED, RELEASE, SEQ_CST

THOROUGH = os.environ.get("WEFT_EXPLORE") == "1"
NAMES = list(pool_scenarios.SCENARIOS if THOROUGH else pool_scenarios.QUICK)
FAULTS = [name for name in pool_scenarios.FAULTS if THOROUGH or name not in pool_scenarios.LONG_FAULTS]


class Two(Struct):
    x: Atomic(I64)
    y: Atomic(I64)
    seen: Atomic(I64)
    plain: I64


def tell(two):
    two.plain = 7
    two.x.store(1, RELEASE)


def listen(two):
    while two.x.load(ACQUIRE) != 1:
        idle()
    require_true(two.plain == 7)


def first(two):
    two.x.store(1, SEQ_CST)
    two.seen.add(int(two.y.load(SEQ_CST) == 0), SEQ_CST)
    require_true(two.seen.load(SEQ_CST) < 2)


def second(two):
    two.y.store(1, SEQ_CST)
    two.seen.add(int(two.x.load(SEQ_CST) == 0), SEQ_CST)


def adds(two):
    two.x.store(two.x.load(RELAXED) + 1, RELEASE)


def adds_and_checks(two):
    two.x.add(1, SEQ_CST)
    two.y.add(1, RELEASE)
    while two.y.load(ACQUIRE) != 2:
        idle()
    require_true(two.x.load(ACQUIRE) == 2)


def idle():
    raise AssertionError("a model stands in its place")


def require_true(condition):
    raise AssertionError("a model stands in its place")


def _require_true(step, condition):
    if not condition:
        raise Wrong("not true")


def run(*functions, changes=(), **options):
    two = Ref(Pointer(Two), ("two",))
    code = {f.__name__: Code(f, [c[1:] for c in changes if c[0] == f.__name__]) for f in functions}
    models = {"idle": lambda step: None, "require_true": _require_true}
    start = [(number, f.__name__, two) for number, f in enumerate(functions)]
    return explore(Scenario(start, code, models, set(models), {}, **options))


def test_messages():
    assert run(tell, listen) == 3
    for change in (("tell", "RELEASE", "RELAXED"), ("listen", "ACQUIRE", "RELAXED")):
        with pytest.raises(Wrong, match="thread 1 reads .*plain.* while another may write it"):
            run(tell, listen, changes=[change])


def test_what_is_never_told_is_awaited_for_ever():
    with pytest.raises(Wrong, match="the threads never end"):
        run(tell, listen, changes=[("tell", "    two.x.store(1, RELEASE)\n", "")])


def test_store_buffers():
    """Each of two threads says that it comes and looks whether the other does: one of them must see it."""
    assert run(first, second, buffers=True) > 5
    weak = [("first", "two.x.store(1, SEQ_CST)", "two.x.store(1, RELEASE)")]
    assert run(first, second, changes=weak) > 5
    both = [*weak, ("second", "two.y.store(1, SEQ_CST)", "two.y.store(1, RELEASE)")]
    with pytest.raises(Wrong, match="not true"):
        run(first, second, changes=both, buffers=True)


def test_two_steps_are_not_one():
    with pytest.raises(Wrong, match="not true\n1: adds: two.x.load(.|\n)*0: .*two.x.add(.|\n)*1: adds: two.x.store"):
        run(
            adds_and_checks,
            adds,
            changes=[("adds", "RELEASE)", "RELEASE)\n    two.y.add(1, RELEASE)")],
        )


# --- the pool ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_the_pool(name):
    assert explore(pool_scenarios.scenario(**pool_scenarios.SCENARIOS[name])) > 100


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name):
    assert pool_scenarios.fault(name) is not None


def test_a_fault_is_shown_with_the_steps_that_lead_to_it():
    said = pool_scenarios.fault("stop not tested after ASLEEP").splitlines()
    assert said[0] == "the threads never end" and len(said) > 10
    assert any("work: slot.state.swap_if(READY, ASLEEP, SEQ_CST)" in line for line in said)
