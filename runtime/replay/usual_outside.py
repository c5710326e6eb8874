"""What all calls of a usual call's kind have in common about a backward that comes after the call."""

from ..eager.node import edge_of, leaf_edge
from ..programs.recording import UPDATE
from ..record import frame_autograd
from ..record.closed_again import of_first
from .usual_entries import NotReplayed

COTANGENT, OUTPUT, ARRAY, KNOWN = range(4)
_IN_CALLS = "freed", "overwritten", "versioned", "changed_leaves", "changed_metas", "same"
_WHERE_IT_WAS_READ = "flushed_at_close", "first_pending_at_close"
_MOST_ASKED_SINGLY = 16  # results of which it is found out what a backward from each alone frees
_CHANGED_AROUND_A_READ = (
    "a value was read in the middle of it, and what a backward after the call reads was changed in place before"
)
_native_backward = _native_end = None


def set_native_backward(function):
    """What gives the native twin of the backward passes of a function's calls (finished_backward.py)."""
    global _native_backward
    _native_backward = function


def set_native_end(function):
    """What ends finished calls natively: function(what it is filled in from, slow_open) gives a NativeEnd, or None
    (finished_calls.py)."""
    global _native_end
    _native_end = function


class OutsideBackward:
    """What is the same in all calls of a UsualFrame about a backward that comes after the call.

    inside: numbers of the tensors that differ from call to call (arguments, and what is made anew each time).
    computed: numbers of what is computed before values are read in the middle of the call.
    watched: tensors from outside that are the same in every call, whose versions a backward compares.
    reached: numbers of the leaves that get gradients. kept: numbers of results that a backward reads where they are.
    """

    DONE_BEFORE_NATIVE = 2

    def __init__(self, frame, usual):
        self.needed, self.recording, self.step = usual.needed, frame.recording, frame.step
        self.program, self.expectation = usual.program, usual.expectation
        self.inside = [*range(usual.n_tensors), *usual.fresh]
        self.computed = [vid for segment in usual.segments for vid in segment.made]
        meta = usual.program.meta
        self.reached, self.n_live = meta["reached"], meta["n_live"]
        # What a change in place has computed has no tensor, and nobody can change it.
        self.kept = [vid for vid in meta["kept"] if usual.tensors[vid] is not None]
        expected = dict(zip(usual.expectation.numbers, usual.expectation.tensors))
        self.watched = list(expected.values())
        self.leaves = [expected.get(vid, frame.changed_leaves.get(vid)) for vid in self.reached]
        self.places = {vid: k for k, vid in enumerate(self.inside)}
        self.expected = expected
        # Positions among the reached, and among those inside, of tensors that may have a history.
        self.inner = [(k, self.places[vid]) for k, vid in enumerate(self.reached) if self.leaves[k] is None]
        self.summed = tuple(k for k, v in enumerate(self.reached) if v in meta["summed"])
        self.constant = {name: getattr(frame, name) for name in (*_IN_CALLS, *_WHERE_IT_WAS_READ, "roots")}
        read = frame_autograd.read_by_backward(frame, self.needed.differentiable)
        self._check_changes(usual, {v for k in read for v in (k, frame.roots.get(k, k))})
        self._check_leaves(frame, expected)
        if len({id(leaf) for leaf in self.leaves if leaf is not None}) < len(self.leaves) - self.leaves.count(None):
            raise NotReplayed("gradients reach a leaf by its values from before and after a change", self.step.line)
        if not read.keys().isdisjoint(frame.versioned):
            raise NotReplayed("a backward after the call would read what .data has shown", self.step.line)
        self.is_unchanged = frame.overwritten.isdisjoint(read)
        self.is_changing = bool(frame.same or frame.changed_leaves or frame.versioned)
        # Of the gradients of another call: the steps they have in common that a backward of all results frees.
        self.frees, self._of_first = frame_autograd.freed_by(frame, self.needed.differentiable), None
        if 1 < len(self.needed.differentiable) <= _MOST_ASKED_SINGLY:
            for vid in self.needed.differentiable:
                frame_autograd.freed_by(frame, (vid,))
        self._after = {}
        self.gradients = {}  # positions of the wanted leaves -> the GradientProgram that finds these gradients
        self._plans = {}
        # What does it natively from all results; by the numbers of results; how often it was done in Python.
        self.native, self.natives, self.n_done, self._n_done_from = None, {}, 0, {}

    @property
    def is_plain(self):
        """Whether a backward finds all that it reads as it was, and nothing but leaves from outside gets a gradient."""
        return self.is_unchanged and not self.is_changing and not any(self.constant[name] for name in _IN_CALLS)

    def _check_changes(self, usual, read):
        """What is computed before a read in the middle is kept as it was then."""
        changed = set()
        for entry in usual.entries[: usual.segments[-1].position] if usual.segments else ():
            if entry.op is UPDATE:
                changed.update(entry.operands, entry.numbers)
            if entry.change is not None:
                changed.update((entry.change.old, entry.change.new, entry.change.given, *entry.change.shown))
        changed.update(change.old for change in usual.changes if change.old in self.computed)
        if not changed.isdisjoint(read.union(self.kept)):
            raise NotReplayed(_CHANGED_AROUND_A_READ, self.step.line)

    def _check_leaves(self, frame, expected):
        known = {id(tensor) for tensor in expected.values()}
        if any(id(leaf) not in known for leaf in frame.changed_leaves.values()):
            raise NotReplayed("a leaf that is new in every call is changed in place and differentiated", self.step.line)

    @property
    def of_first(self):
        if self._of_first is None:
            self._of_first = self.in_first(self.frees)
        return self._of_first

    def in_first(self, steps):
        """Indices in the call that these are gradients of of the steps of this one that it has too."""
        return of_first(self.recording, self.step.path(), steps)

    def edge(self, call, index):
        """Where a gradient goes; to a leaf also if requires_grad has been taken from it since."""
        leaf = self.leaf(call, index)
        return call.edges.get(index) or edge_of(leaf) or leaf_edge(leaf)

    def leaf(self, call, index):
        leaf = self.leaves[index]
        return call.inputs[self.places[self.reached[index]]] if leaf is None else leaf

    def plan(self, present):
        """(program of a backward from these results, where each of its inputs is found, and which of the reached its
        outputs are for, each); None if it was never run, or cannot be run on what a call keeps."""
        if not self.is_unchanged:
            return None
        found = self._plans.get(present)
        if found is None:
            program = self.step.known.backward.get((self.needed, present, ()))
            if program is None or not set(program.meta["reached"]) <= set(self.reached):
                return None
            sources = [self._source(present, *source) for source in program.meta["sources"]]
            positions = [self.reached.index(vid) for vid in program.meta["reached"]]
            found = self._plans[present] = program, sources, positions
        return found

    def afters(self, present):
        """What a call says of itself that was freed -> what it says after a backward from these results, as far as that
        is known: native code reads it too."""
        known = self._after.get(present)
        if known is None:
            is_whole = present == self.needed.differentiable
            known = self._after[present] = {False: True} if is_whole else {}
        return known

    def after(self, present, freed):
        """What a call that says this of itself (usual_calls.py) says after a backward from these results; None if that
        needs what was freed, or if it is not known what it frees."""
        known = self.afters(present)
        if freed not in known:
            found = self._found_after(present, freed)
            if found is None:
                return None
            known[freed] = found
        return known[freed]

    def _found_after(self, present, freed):
        of_each = {vid: self.step.known.frees.get((vid,)) for vid in self.needed.differentiable}
        if freed is True or type(freed) is tuple or None in of_each.values():
            return None
        gone, before = frozenset().union(*[of_each[vid] for vid in present]), freed or frozenset()
        if not gone.isdisjoint(before):
            return None
        gone |= before
        if any(gone.isdisjoint(steps) for steps in of_each.values()):
            return gone
        return tuple([vid for vid, steps in of_each.items() if steps <= gone])

    def native_of(self, outputs):
        if len(outputs) == len(self.needed.differentiable):
            return self.native
        return self.natives.get(tuple([t._vid for t in outputs]))

    def _source(self, present, kind, k):
        """Where an input of a backward's program is: (COTANGENT, OUTPUT or ARRAY of the call, its place there), or
        (KNOWN, the array)."""
        if kind == "cotangent":
            return COTANGENT, present.index(self.needed.differentiable[k])
        if kind == "saved":
            return OUTPUT, self.n_live + k
        k = self.constant["same"].get(k, k)
        if k in self.needed.live:
            return OUTPUT, self.needed.live.index(k)
        if k in self.computed:
            return ARRAY, len(self.inside) + self.computed.index(k)
        return (ARRAY, self.places[k]) if k in self.places else (KNOWN, self.expectation.known[k])

    @staticmethod
    def native_end(whose, slow_open):
        """What ends a call natively whose tensors, outputs and numbers are those of `whose`; None where there is no
        native code."""
        return None if _native_end is None else _native_end(whose, slow_open)

    def count_done(self, present, in_python):
        """A program has been run from these results. After some times native code does that, and in_python what it
        cannot."""
        self.n_done += 1
        n_done = self._n_done_from[present] = self._n_done_from.get(present, 0) + 1
        if n_done != self.DONE_BEFORE_NATIVE:
            return
        native = self.natives[present] = self.taken_over(present, self.plan(present), in_python)
        if present == self.needed.differentiable:
            self.native = native

    def taken_over(self, present, plan, in_python):
        """The native twin of a plan; None where there is no native code."""
        return None if _native_backward is None else _native_backward(self, present, *plan, in_python)

    def run(self, program, read, numbers):
        """What a plan's program gives for these arrays and all numbers of the call; None if it cannot be run now."""
        return program.call(read, numbers, self.expectation)
