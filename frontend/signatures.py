"""Signatures of a compiled function, and its recordings, one per signature: as many as are in use, up to a limit."""

import threading
from collections import Counter, deque
from itertools import islice

from .overriding import off
from .runtime.state.elsewhere import is_elsewhere
from .runtime.state.marks import asked_classes
from .runtime.state.tensor import Tensor

MAX_SIGNATURES = 64
# So many recordings with programs of their own are more than a function with some shapes and modes has.
WARNED_AT = 16
# If of the last LOOKED_AT recordings so many were compiled for themselves and not called again, compiling does not pay:
# a signature is then recorded when it comes for the COMES_AGAIN-th time, since most come once.
LOOKED_AT, IN_VAIN, COMES_AGAIN = 15, 12, 3
# One with so many kernels counts for two, one with twice as many for three: that is what its compilation takes. A FEW
# are compiled in any case, since programs that serve many sizes are made of two or three.
LARGE, FEW = 24, 5
# Of those that come once one of so many is recorded all the same: it may share a program with what comes later.
TRIED = 16
_MAX_REASONS = 16


class Recordings:
    """Signature -> Recording, with room for MAX_SIGNATURES. A new one takes the place of one not called lately.

    Which one that is, is asked only when room is needed, so that calls have nothing to keep: going round, the first
    whose number of calls is what it was when it was last looked at has to go (the clock algorithm; F. J. Corbato, A
    paging experiment with the Multics system, 1968).
    """

    def __init__(self):
        self._recordings = {}
        self._seen = {}  # signature -> how many calls there were when it was last looked at
        self._lock = threading.Lock()
        self.reasons = []  # why recordings were made, the last few
        self.n_dropped = 0
        self._last = deque(maxlen=LOOKED_AT)  # those made last; of one that is gone, how much was in vain
        self._n_asked = 0
        self.n_eager = 0  # calls that were not recorded
        self._uncommon = {}  # signature -> how often it has come without being recorded

    def get(self, signature):
        return self._recordings.get(signature)

    def last_signatures(self):
        """Those of the recordings made or looked at last, the last one last."""
        with self._lock:
            return list(islice(reversed(self._recordings), LOOKED_AT))[::-1]

    def add(self, recording, reason=None):
        with self._lock:
            while len(self._recordings) >= MAX_SIGNATURES:
                self._make_room()
            self._recordings[recording.signature] = recording
            self._seen[recording.signature] = 1  # the call that it is made for
            self._last.append(recording)
            if reason is not None:
                self.reasons = [*self.reasons[1 - _MAX_REASONS :], reason]

    def takes(self, signature):
        """Whether a new signature is recorded: always, while that pays."""
        with self._lock:
            if self.n_in_vain() < min(FEW, IN_VAIN) or sum(map(_in_vain, self._last)) < IN_VAIN:
                return True
            self._n_asked += 1
            times = self._uncommon.pop(signature, 0) + 1
            is_taken = times >= COMES_AGAIN or self._n_asked % TRIED == 0
            if not is_taken:
                self._uncommon[signature] = times
                self.n_eager += 1
            while len(self._uncommon) > MAX_SIGNATURES:
                del self._uncommon[next(iter(self._uncommon))]
        return is_taken

    def n_alone(self):
        """How many recordings have programs that serve no other sizes."""
        return sum(map(_is_alone, self.values()))

    def n_in_vain(self):
        """How many of those made last were compiled for themselves and not called again."""
        return sum(_in_vain(recording) > 0 for recording in self._last)

    def changing(self):
        """What has changed most often when something was recorded anew: the name of an argument, as a rule."""
        names = [reason.partition(":")[0].partition("[")[0] for reason in self.reasons]
        return Counter(names).most_common(1)[0][0]

    def _make_room(self):
        signature, recording = next(iter(self._recordings.items()))
        del self._recordings[signature]
        if self._seen.pop(signature) == recording.calls:
            self._drop(recording)
        else:
            self._seen[signature] = recording.calls
            self._recordings[signature] = recording

    def _drop(self, recording):
        """Calls in flight, and results that wait for their backward, may go on with it."""
        self.n_dropped += 1
        self._last = deque([_in_vain(r) if r is recording else r for r in self._last], LOOKED_AT)
        recording.release()

    def items(self):
        return list(self._recordings.items())

    def values(self):
        return list(self._recordings.values())

    def __len__(self):
        return len(self._recordings)


def _in_vain(recording):
    """How much was compiled that has served one call alone: 1 and more for each LARGE kernels, 0 if nothing was."""
    if isinstance(recording, int):
        return recording
    if recording.calls > 1 or not _is_alone(recording):
        return 0
    return 1 + sum(len(program.meta["plan"]["kernels"]) for program in _programs_alone(recording)) // LARGE


def _is_alone(recording):
    return bool(_programs_alone(recording))


def _programs_alone(recording):
    return [program for program in recording.programs if not program.serves_many]


def anew_often(name, recordings):
    """What is said once of a function that is compiled again and again."""
    return (
        f"weft: {name} has been compiled for {recordings.n_alone()} signatures; what changes most often is "
        f"{recordings.changing()} (last: {recordings.reasons[-1]}). Each takes a compilation: pad what changes to a "
        f"few shapes, or leave the function uncompiled. {name}.explain() lists all"
    )


def eager_from_now(name, recordings):
    """What is said once of a function of which signatures have come that are not compiled any more."""
    return (
        f"weft: {name} has been compiled for {recordings.n_in_vain()} signatures that were not called again, so new "
        f"ones run eagerly until they come for the {COMES_AGAIN}rd time; what changes most often is "
        f"{recordings.changing()} (last: {recordings.reasons[-1]})"
    )


def out_of_paths(name, recordings):
    """What is said once of a function that goes other ways in many calls with the same signature."""
    recording = next(r for r in recordings.values() if r.parts_at is not None)
    what, line = recording.parts_at
    cause = (
        f"other calls did {what}; a number that changes from call to call can be a tensor, or take few values"
        if what
        else ("calls went on there in other ways; of an `if` on data, weft.where can be the replacement")
    )
    return (
        f"weft: {name} has been compiled for {recording.n_branches} paths, and from {line} on the others run eagerly: "
        f"{cause}. {name}.explain() lists all"
    )


# --- what tells two apart ------------------------------------------------------------------------------------------
def flattened(x, tensors):
    """A hashable description of nested arguments; the tensors in it are collected in order."""
    if isinstance(x, Tensor):
        if not x.has_array:
            # Its values are what a call meets.
            return (x.layout.name, x.shape, x.dtype, x._requires_grad)
        tensors.append(x)
        if x._data is None and is_elsewhere(x):
            return (x.shape, x.dtype, (x._requires_grad, str(x.device)))
        if type(x) in asked_classes:
            with off():
                return (x.shape, x.dtype, x._requires_grad)
        return (x.shape, x.dtype, x._requires_grad)
    if isinstance(x, (list, tuple)):
        return tuple([flattened(v, tensors) for v in x])
    if isinstance(x, dict):
        return tuple([(k, flattened(v, tensors)) for k, v in x.items()])
    return None


def difference(old, new, names):
    """Which argument differs between two signatures, in words."""
    for k, (a, b) in enumerate(zip(old[0], new[0])):
        if a != b:
            name, a, b = _where_different(names[k] if k < len(names) else f"argument {k}", a, b)
            return f"{name}: {_words(a)} -> {_words(b)}"
    if len(old[0]) != len(new[0]):
        return f"{len(old[0])} positional arguments -> {len(new[0])}"
    if old[1] != new[1]:
        return f"keyword arguments: {_words(old[1])} -> {_words(new[1])}"
    if old[2] != new[2]:
        return f"gradient mode: {old[2]} -> {new[2]}"
    if old[3] != new[3]:
        return f"default dtype: {old[3]} -> {new[3]}"
    return f"classes with a __torch_function__: {_kinds(old)} -> {_kinds(new)}"


def _kinds(signature):
    return ", ".join(kind.__name__ for kinds in signature[4:] for kind in kinds) or "none"


def _where_different(name, a, b):
    """(name of the part, what it was, what it is) of an argument, as long as the difference is in one part of many."""
    while not (_is_tensor(a) or _is_tensor(b)) and isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        different = [k for k, (x, y) in enumerate(zip(a, b)) if x != y]
        if len(different) != 1:
            break
        (k,) = different
        name, a, b = f"{name}[{k}]", a[k], b[k]
    return name, a, b


def _is_tensor(part):
    return isinstance(part, tuple) and len(part) == 3 and hasattr(part[1], "category")


_MOST_WORDS = 4  # of the parts of an argument


def _words(part):
    if _is_tensor(part):
        flag, place = part[2] if isinstance(part[2], tuple) else (part[2], None)
        where = "" if place is None else f" on {place}"
        return f"{part[1].name}{list(part[0])}" + (" requires_grad" if flag else "") + where
    if isinstance(part, tuple) and len(part) > _MOST_WORDS:
        return f"({', '.join(map(_words, part[:2]))}, ... {len(part)} in all)"
    if isinstance(part, tuple):
        return "(" + ", ".join(_words(p) for p in part) + ")"
    return "not a tensor" if part is None else str(part)
