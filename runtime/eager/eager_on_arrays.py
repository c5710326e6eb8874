"""Running steps on arrays that Python has made; of the subset (docs/native.md).

Where native code does not know how tensors lie in memory, Python finds the plan and makes arrays, tensors and nodes.
What is left, all kernels of an op, a composite or a derivative, is one call of a builtin function (eager_python.py).
"""

from ...compiler.translate.kinds import I64, Borrowed, Object, Rows, Struct, Tuple
from ...compiler.translate.language import METHOD, External, cast, native, require
from .eager_computing import is_narrow, put_number, put_whole, run_step
from .eager_words import ArrayObject, Step, Words

WORDS = Words()
UNREAD, ARRAY, NUMBER, WHOLE, NARROW = range(5)
ROW_MAJOR = 1  # NumPy's flag of arrays
item_of = External("PyTuple_GetItem", (Tuple, I64), Borrowed(Object), fails="null", python=lambda x, k: x[k])


class Calls(Struct):
    """kinds: what each operand is. Behind the operands are the results, then room for more; fixed: the addresses
    in the slots from `first_fixed` on."""

    slow: Object
    kinds: Rows(I64)
    n_results: I64
    first_fixed: I64
    steps: Rows(Step)
    fixed: Rows(I64)


def not_run(*_):
    """Who has called takes the steps one by one, which say what is wrong where something is."""
    return None


@native(form=METHOD, slow="slow", name="weft_eager_on_arrays")
def run_on_arrays(calls: Calls, given: Object) -> Object:
    """Run the steps on a tuple of operands and results, which it returns."""
    values = cast(Tuple, given)
    n = len(calls.kinds)
    for i in range(n):
        if calls.kinds[i] == ARRAY:
            operand = cast(ArrayObject, item_of(values, i))
            require(operand.flags & ROW_MAJOR != 0)
            WORDS.slots[i] = operand.data
        elif calls.kinds[i] == NUMBER or calls.kinds[i] == NARROW:
            put_number(WORDS, i, item_of(values, i))
            require(calls.kinds[i] == NUMBER or is_narrow(WORDS.numbers[i]))
            WORDS.slots[i] = WORDS.numbers_at + 8 * i
        elif calls.kinds[i] == WHOLE:
            put_whole(WORDS, i, item_of(values, i))
            WORDS.slots[i] = WORDS.wholes_at + 8 * i
    for i in range(calls.n_results):
        WORDS.slots[n + i] = cast(ArrayObject, item_of(values, n + i)).data
    for i in range(len(calls.fixed)):
        WORDS.slots[calls.first_fixed + i] = calls.fixed[i]
    for step in calls.steps:
        run_step(WORDS, step)
    return given
