"""A usual call that goes another way than expected goes on in the UsualFrame that knows that way, if there is one: both
outcomes of an `if`, the same step for several models.

    expected   mul  sum  if | add                    what was made so far changes hands,
    sibling    mul  sum  if | sub  exp               and the call goes on there
"""

from weakref import WeakKeyDictionary

from ..programs.recording import number_code
from ..record.frame_eager import AT_ANY_PLACE
from ..state.aligned import owner_of
from ..state.tensor import Tensor
from . import native, native_words
from .usual_depart import begin_taking_over


def continue_elsewhere(call, ends=False, coming=None):
    """The UsualFrame that takes over a call in flight at its position, in the state it would have had; None if there is
    none that may. Whether it can go on is for it to find out. ends: the call has come to its end, by an exception
    perhaps, so it must be one that does nothing more, either. coming: the (op, operands) that it is asked for next."""
    tried = (*call.tried, call)
    for other in call.recording.replays:
        if any(other is one for one in tried) or is_left(other) or ends and not _ends_there(call, other):
            continue
        if coming is not None and not may_take(call, other, *coming):
            continue
        if _shares_past(call, other) and other._take():
            if other.expectation.holds():
                _take_over(call, other)
                other.tried = tried
                return other
            other._release()
    return None


def _ends_there(call, other):
    k = call.position.value
    return len(other.entries) - 1 == k and len(other.segments) == call.n_flushed


def may_take(call, other, op, operands):
    """Whether another frame, if it begins as the call did, expects this op next, of these operands. Its attributes and
    what comes in with it are left to the other to compare."""
    k = call.position.value
    if k >= len(other.entries) - 1 or other is call:
        return False
    entry = other.entries[k]
    if entry.op is not op:
        at_any_place = AT_ANY_PLACE.get(op)
        return at_any_place is not None and at_any_place is entry.op or op in other.eager_ops.get(k, ())
    if entry.change is not None or len(operands) != len(entry.operands):
        return False
    n_made = call.entries[k - 1].step.metas_count() if k else call.n_tensors
    known = call.tensors[:n_made] + other.tensors[n_made:]
    for vid, _, _ in entry.fresh:
        known[vid] = None
    return all(_is_expected(call, known, x, number) for x, number in zip(operands, entry.operands))


def _is_expected(call, known, x, number):
    """Whether an operand is what a number stands for; of what comes in, whether the call has not made it."""
    if not isinstance(x, Tensor):
        return number < 0 and number_code(x) == number
    return number >= 0 and (x is known[number] or known[number] is None and x._frame is not call)


def is_left(usual):
    """Whether a call that has departed from this UsualFrame is still in flight. The native code that has begun it goes
    on with the words of this one when the function returns."""
    if not usual.departed.value:
        return False
    frame = usual.ended_by()
    if frame is None or not frame.is_usual:
        return frame is None or not frame.closed
    is_busy = not frame._take()
    if not is_busy:
        frame._release()
    return is_busy


def _shares_past(call, other):
    """Whether a call that did what this one has done would have been the same so far in the other frame."""
    k, n = call.position.value, call.n_flushed
    if call.argument_keys != other.argument_keys or call.modes != other.modes or _common(call, other) < k:
        return False
    if [s.key for s in call.segments[:n]] != [s.key for s in other.segments[:n]]:
        return False
    if any(segment.position < k for segment in other.segments[n:]) or not _have_turned_alike(call, other):
        return False
    first, end = call.n_tensors, call.entries[k - 1].step.metas_count() if k else call.n_tensors
    expected = call.expectation.known.keys() | other.expectation.known.keys()
    if any(first <= v < end and call.tensors[v] is not other.tensors[v] for v in expected):
        return False
    owners = {owner_of(tensor._data) for tensor in call.tensors[: call.n_tensors]}
    return owners.isdisjoint(other.owned)


def _have_turned_alike(call, other):
    """Whether the arguments that have become leaves (usual_leaves.py) have in the other frame, and no others."""
    if not call.turned and not other.turned:
        return True
    k, turned = call.position.value, [(at, id(tensor)) for at, tensor in call.turned_so_far()]
    its = [(at, id(call.tensors[vid])) for at, numbers in other.turned.items() for vid in numbers]
    return all(one in its for one in turned) and all(one in turned for one in its if one[0] < k)


def none_compared():
    """Where a UsualFrame remembers what it has in common with others. These must not live on for that: each knows
    others in its turn, and where calls go ever new ways there would be no end of them."""
    return WeakKeyDictionary()


def _common(call, other):
    """How many entries the two begin with are the same."""
    n = call.common.get(other)
    if n is None:
        pairs = zip(call.entries[:-1], other.entries[:-1])
        same = next((k for k, (a, b) in enumerate(pairs) if not a.is_like(b)), None)
        n = call.common[other] = min(len(call.entries), len(other.entries)) - 1 if same is None else same
    return n


def _take_over(call, other):
    begin_taking_over(call, other)
    k = call.position.value
    other.tensors[: call.n_tensors] = call.tensors[: call.n_tensors]
    for entry in call.entries[:k]:
        # Before what has been changed in place goes over, which may be one of them.
        for vid, _, _ in entry.fresh:
            other.tensors[vid] = call.tensors[vid]
    for vid in {vid for entry in call.entries[:k] for vid in entry.made()}:
        _swap(call, other, vid)
    for entry in call.entries[:k]:
        view = other.tensors[entry.vid]
        if entry.root is not None and view is not None:
            # Taken away where the call was about to end.
            view._base = other.tensors[entry.root]
    other.arrays.update(call.arrays)
    other.owners, other.n_flushed, other._applied = set(call.owners), call.n_flushed, call._applied
    other._real, other.departed.value, other.position.value = None, False, k
    _pass_on(call._native, other._native)
    call.leave_to(other)


def _swap(call, other, vid):
    """A value goes to the other call, and the one it had ready comes here."""
    mine, its = call.tensors[vid], other.tensors[vid]
    call.tensors[vid], other.tensors[vid] = its, mine
    if mine is not None and mine._frame is call:
        mine._frame = other
    if its is not None and its._frame is other:
        its._frame = call


def _pass_on(before, after):
    """Native code asks the words of the other frame from now on, in the same thread and modes."""
    if after is not None:
        for word in (native_words.MODES, native_words.THREAD):
            after.words[word] = before.words[word]
        shared = native.install()
        if shared[native_words.ACTIVE]:
            shared[native_words.ACTIVE] = after.words.ctypes.data
