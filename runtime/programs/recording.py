"""What a compiled function did, as a tree of steps: one path per outcome of its `if`s.

    root -- input -- input -- mul -- sum -- backward -- update        the usual path
                                       \\-- exp -- ...                 another outcome of an `if`

Replaying a call walks the tree: every op only checks that it is the step it was before. A step holds what its result
looks like, never a value; values belong to the call (frame.py).
"""

import warnings
from array import array
from bisect import bisect_right
from math import inf
from operator import attrgetter
from typing import NamedTuple

from ...compiler import dtypes
from ...compiler.plain import Plain
from ..state.attributes import same
from .advice import advice_for
from .telling import Telling
from .user_lines import user_level, user_line

INPUT, ASSIGN, BACKWARD, GRADIENTS, UPDATE = "input", "assign", "backward", "gradients", "update"

# Python numbers among operands are run-time values; the step remembers only their kind.
NUMBER_CODES = {bool: -1, int: -2, float: -3, complex: -4}
NUMBER_DTYPES = {-1: dtypes.bool_, -2: dtypes.int64, -3: dtypes.float64}
TOO_LARGE = -4  # of an integer or complex number, which no program can take: never in a step


def number_code(x):
    """The code of a number; None if it is of no such kind."""
    code = NUMBER_CODES.get(type(x))
    return TOO_LARGE if code == -2 and not -(2**63) <= x < 2**63 else code


MAX_BRANCHES = 16
# No path is added where so many programs of so many kernels, or more, have run once alone and are half of all such: the
# next one would be compiled in vain too. Of those that come one of so many is added all the same.
IN_VAIN, LARGE, TRIED = 3, 24, 8
# So many calls in a row that began as replayed ones and did not end as such (has_departed).
_MOST_DEPARTURES = 32  # kinds of them that are counted
_DEPARTED_IN_VAIN = 16
# Where half of the calls are run again after they have ended, and so many, the next ones had better be eager ones.
MOST_OPENED = 24
OTHER_DEFAULT = "set_default_dtype was called within the call"  # why ops run eagerly until the default is back
_first = attrgetter("first")


class ValueMeta(Plain):
    """What is known of a value before it is computed. `history`: a recorded op made it and gradients flow through."""

    __slots__ = ("shape", "dtype", "requires_grad", "history")

    def __init__(self, shape, dtype, requires_grad=False, history=False):
        self.shape = shape
        self.dtype = dtype
        self.requires_grad = requires_grad
        self.history = history

    # As the rules of ops want operands.
    weak = False

    @property
    def ndim(self):
        return len(self.shape)


class UpdateKey(NamedTuple):
    """What an update is compared by beside its operands. shown: numbers of what shows again what it has changed."""

    rule: object
    n_rows: int
    n_numbers: int
    flags: dict
    shown: tuple = ()


class Operand:
    """A ValueMeta as op rules want it."""

    __slots__ = ("shape", "dtype")
    weak = False

    def __init__(self, meta):
        self.shape, self.dtype = meta.shape, meta.dtype

    @property
    def ndim(self):
        return len(self.shape)


class Known:
    """What is found out once about the calls that have come as far as a step: all of them are alike up to there.

    forward     (how many steps were flushed before, what is needed) -> the program that computes it
    last        the entry of `forward` that was used last, as (flushed, needed, program)
    backward    (needed, results that got a cotangent, sums that go on) -> the program, None if there is none
    again       (needed, results) -> how often their gradients were differentiated; then the Again that does it
    read        results -> {number of a value that their backward reads: a step that needs it}
    frees       results -> indices of the steps whose saved values their backward frees
    computed    (flushed, unusual updates) -> numbers of the pending values
    living      results -> those of them from which a backward can still start
    reached     results -> numbers of the values that their gradients reach
    reached_leaves  results -> numbers of the leaves that their gradients reach
    ends        number of a value -> numbers of the leaves that its gradients reach
    elsewhere   ops that take parts of tensors at too many places for a path each
    """

    __slots__ = str.split(
        "forward last backward again read frees computed living reached reached_leaves ends elsewhere"
    )

    def __init__(self):
        self.forward = {}
        self.last = None
        self.backward = {}
        self.again = {}
        self.read = {}
        self.frees = {}
        self.computed = {}
        self.living = {}
        self.reached = {}
        self.reached_leaves = {}
        self.ends = {}
        self.elsewhere = ()


class Step:
    """One entry of a recording, and the steps that have followed it.

    operands: value numbers, or a negative code for a Python number. `attributes` are the op's, or the key of an input,
    a backward or an update. `first` is the number of the first value it makes; `metas` describes all of them. `needs`:
    numbers of the values that its derivative reads; `leaves`: of the leaves made up to here; `described`: its line
    in the text of a stretch, as it was recorded; None until they are asked.
    """

    __slots__ = (
        "op",
        "operands",
        "attributes",
        "grad_enabled",
        "metas",
        "first",
        "first_number",
        "following",
        "detail",
        "needs",
        "leaves",
        "_known",
        "line",
        "parent",
        "depth",
        "described",
        "_lists",
    )

    def __init__(self, op, operands, attributes, grad_enabled, metas, first, first_number, line, detail=None):
        self.op = op
        self.operands = operands
        self.attributes = attributes
        self.grad_enabled = grad_enabled
        self.metas = metas
        self.first = first
        self.first_number = first_number
        self.following = []
        self.detail = detail
        self.needs = self.leaves = self.described = self._known = None
        self.line = line
        self.parent = None
        self.depth = 0
        self._lists = {}  # path and metas, or what later steps have not taken over of them

    @property
    def known(self):
        """Its Known: few steps are where something is asked."""
        if self._known is None:
            self._known = Known()
        return self._known

    def path(self):
        """The steps from the first to this one (a list that must not be changed, and grows if a step is recorded
        after this one)."""
        return self._lists.get("path") or self._grown("path", lambda steps: steps)

    def _grown(self, name, items_of):
        """The list of the nearest step before this one that has one, with the items of the steps after that.

        Recording asks at every step, so the list is taken over, not copied. By a pop, of which two threads cannot get
        the same: a list is nobody else's while it grows, and if an exception comes in between it is made anew.
        """
        missing, step, known = [], self, None
        while step.parent is not None and known is None:
            missing.append(step)
            step = step.parent
            known = step._lists.pop(name, None)
        grown = [] if known is None else known
        grown += items_of(missing[::-1])
        self._lists[name] = grown
        return grown

    def metas_count(self):
        """How many values are made up to here."""
        return self.first + len(self.metas)

    def numbers_count(self):
        """How many Python numbers have come in up to here."""
        if self.op == UPDATE:
            return self.first_number + self.detail.n_numbers
        return self.first_number + (0 if isinstance(self.op, str) else sum(k < 0 for k in self.operands))

    def maker_of(self, vid):
        """The step up to here that makes a value."""
        return maker_in(self.path(), vid)

    def metas_so_far(self):
        """What is known of every value made up to here, by number (a list like that of `path`)."""
        return self._lists.get("metas") or self._grown("metas", lambda steps: [m for step in steps for m in step.metas])

    def find(self, op, operands, attributes, grad_enabled):
        """The step that followed this one before, if it was the same; else None."""
        for step in self.following:
            if (
                step.op is op
                and step.operands == operands
                and step.grad_enabled is grad_enabled
                and same(step.attributes, attributes)
            ):
                return step
        return None

    def __repr__(self):
        return f"{self.op}{self.operands}"


def maker_in(path, vid):
    """The step of a path that makes a value."""
    k = bisect_right(path, vid, key=_first) - 1
    while not path[k].metas:
        k -= 1
    return path[k]


class Flush(NamedTuple):
    """A value was read in the middle of a call: after which step, what was computed then, by which program (None if
    nothing had to be), and the numbers of the pending values that somebody held."""

    step: Step
    needed: tuple
    program: object
    held: tuple


class EagerOp(NamedTuple):
    """An op ran eagerly in the middle of a call: after which step, why, and at which line. `link`: the op of the step
    that gives its result a history (linked.py)."""

    step: Step
    op: object
    reason: str
    line: str
    link: object = None


class TooManyPaths(Exception):
    """The call diverged from everything recorded, and there is no room for another branch."""


def new_counter():
    """A number that native code can count up."""
    return array("q", [0])


class Recording:
    """All paths of one signature, and what could not be compiled on them."""

    __slots__ = str.split(
        "name signature fullgraph root n_branches n_not_added counter fallbacks programs last_entered expectation "
        "replays memories n_unlike refusals sizes in_background jobs derivatives n_meanwhile meanwhile openings "
        "costs n_followed followed not_replayed caught ways n_departed departed_at n_opened opened_since copies "
        "when_opened has_failed parts_at compiled_long postponed varied on_gpu n_raised telling departures"
    )

    def __init__(self, name, signature, fullgraph=False, sizes=None):
        self.name, self.signature, self.fullgraph = name, signature, fullgraph
        self.root = Step("root", (), None, True, (), 0, 0, None)
        self.n_branches = 1
        self.n_not_added = 0  # how often there was no new path because others were compiled in vain
        self.counter = new_counter()
        self.fallbacks = {}
        self.programs = []
        self.last_entered = {}
        self.expectation = None
        self.replays = []  # frame_usual.py: what calls that do the same again use
        self.memories = []  # usual_learning.py: what the last calls were like
        self.n_unlike = 0  # how many calls in a row were like none before
        self.refusals = {}  # last step -> (what a call was like, why none like it is replayed)
        self.sizes = sizes  # sizes.py: what was learned of the function's calls with other shapes, if that is wanted
        self.in_background = False  # whether programs are made there, while calls run eagerly
        self.jobs = []  # those that are being made (background.py)
        self.derivatives = []  # compiled functions of derivatives of its calls (closed_again.py)
        self.n_meanwhile = 0  # how many calls have run eagerly because of that
        self.meanwhile = 0.0  # seconds that the last of them took
        self.openings = ()  # opening.py: which dimensions of its arguments may be supposed to change
        self.costs = {}  # (reason, line) -> seconds that what ran outside took, the least so far
        self.telling = Telling()  # numbers among the arguments that tell which way a call goes
        self.n_followed = self.n_raised = 0  # calls that were not replayed (to their end), and that have raised
        self.followed = ()  # seconds of the last few calls that were followed step by step
        self.not_replayed = None  # (reason, line): why calls like the last one cannot be replayed, if they cannot
        self.caught = {}  # caught.py of the frontend: places on the stack of a call -> in a `try`
        self.ways = None  # ways.py of the frontend: what is quicker, if they cannot
        self.n_departed = 0  # how many calls in a row began as replayed ones and did not end as such
        self.departed_at = 0  # the number of the last of them
        self.departures = {}  # (what was different, line) -> how many calls went on as a Frame from there
        self.n_opened = self.opened_since = 0  # how many of the last calls went over to nodes, since so many were made
        self.on_gpu = None  # the programs that its last call has run on a GPU, if it was given tensors there
        self.copies = ()  # closed_again.py: steps of another recording that its first ops repeat
        self.when_opened = None  # a weak reference to what is called once most of them do
        self.has_failed = False  # whether a program for it could not be made
        self.compiled_long = False  # whether a call was not followed to its end because its programs took too long
        self.varied = {}  # (op, line) -> specs of the parts of tensors that were taken there, where that were many
        self.postponed = False  # whether calls like the last one are replayed once that pays (usual_learning.py)
        self.parts_at = None  # (what differs, the line) where the first path beyond the limit began

    @property
    def usual(self):
        """The UsualFrame that was used or made last, if there is one."""
        return self.replays[0] if self.replays else None

    @property
    def default_dtype(self):
        """The default type of floats that all steps were recorded under."""
        return self.signature[3]

    @property
    def calls(self):
        return self.counter[0]

    @calls.setter
    def calls(self, value):
        self.counter[0] = value

    def is_waiting(self):
        """Whether programs for calls like the last ones are still being made in the background."""
        if self.jobs:
            self.jobs = [job for job in self.jobs if not job.is_done]
        return bool(self.jobs)

    def runs_meanwhile(self, job):
        """A call, or the backward of one, goes on without the program that this job makes."""
        self.jobs = [*self.jobs, job]

    def use(self, replay):
        """It comes first among those that are tried."""
        self.replays = [replay, *(other for other in self.replays if other is not replay)]

    def has_departed(self):
        """A call that began as a replayed one did not end as such, and there is no other for calls like it. Where all
        do, none begins like that any more."""
        self.n_departed = self.n_departed + 1 if self.calls == self.departed_at + 1 else 1
        self.departed_at = self.calls
        if self.n_departed >= _DEPARTED_IN_VAIN:
            self.replays, self.n_departed = [], 0

    def note_departure(self, reason, line):
        """A call that began as a replayed one goes on as a Frame."""
        key = reason, line
        if key in self.departures or len(self.departures) < _MOST_DEPARTURES:
            self.departures[key] = self.departures.get(key, 0) + 1

    def grow(self, step, new):
        """Add a step. TooManyPaths if that opens a branch beyond the limit."""
        if step.following:
            if self.n_branches >= self.most_branches() and not self._forgets_other_size(step, new):
                raise TooManyPaths
            if self.compiles_in_vain():
                self.n_not_added += 1
                if self.n_not_added % TRIED:
                    raise TooManyPaths
            self.n_branches += 1
        new.parent = step
        new.depth = step.depth + 1
        step.following.append(new)
        return new

    def most_branches(self):
        """For how many paths there is room."""
        return self.telling.most_ways(MAX_BRANCHES, self.programs)

    def compiles_in_vain(self):
        """Whether the paths so far have large programs, most of which ran once."""
        if self.fullgraph:
            return False
        runs = [p.calls for p in self.programs if not p.serves_many and len(p.meta["plan"]["kernels"]) >= LARGE]
        n_in_vain = sum(n <= 1 for n in runs)
        return n_in_vain >= IN_VAIN and 2 * n_in_vain >= len(runs)

    def note_parting(self, step, op, attributes):
        """There is no room for a path on which this op follows the step."""
        if self.parts_at is None and self.n_branches >= self.most_branches():
            others = [s.attributes for s in step.following if s.op is op]
            changes = [name for name, x in attributes.items() if not all(same(o.get(name), x) for o in others)]
            self.parts_at = f"{op.name} with another {changes[0]}" if others and changes else None, user_line()

    def _forgets_other_size(self, step, new):
        """Whether there is room for a tensor from outside that comes in here with another size each time, such as a
        cache that grows: of the sizes that have come before, the one recorded first has to go."""
        sizes = [other for other in step.following if _differ_in_size(other, new)]
        if len(sizes) < 2:
            return False
        step.following.remove(sizes[0])
        self._forget(sizes[0])
        return True

    def _forget(self, branch):
        """Nothing leads to these steps any more. Calls that are on them go on: steps know their parents."""
        gone, left = set(), [branch]
        while left:
            step = left.pop()
            gone.add(step)
            left += step.following
            self.n_branches -= not step.following
        programs = {
            p for s in gone if s._known for known in (s._known.forward, s._known.backward) for p in known.values()
        }
        for program in programs - {None}:
            program.release()
        self.programs = [program for program in self.programs if program not in programs]
        self.refusals = {step: refusal for step, refusal in self.refusals.items() if step not in gone}
        if self.expectation is not None and branch in self.expectation.path:
            self.expectation = None

    def leaves(self, reason, line):
        """A call is about to leave the programs: it may not if it is compiled with fullgraph=True, or for somebody who
        has put a name in place of True."""
        if self.fullgraph:
            who = self.fullgraph if isinstance(self.fullgraph, str) else "compile(fullgraph=True)"
            advice = advice_for(reason)
            instead = f"; instead: {advice}" if advice else ""
            raise RuntimeError(f"{who}: {self.name} cannot be one program: {reason} [{line}]{instead}")
        self.note(reason, line)

    def could_not_compile(self, error, line):
        """The compiler has failed at a program that a call or its backward wanted: later calls run eagerly."""
        what = f"the compiler failed ({type(error).__name__}: {error})"
        try:
            self.leaves(what, line)
        except RuntimeError as refusal:
            raise refusal from error
        if not self.has_failed:
            self.has_failed = True
            warnings.warn(
                f"weft could not compile {self.name}, which runs eagerly: {what} [{line}]",
                RuntimeWarning,
                stacklevel=user_level(),
            )

    def opened(self, reason, line):
        """A finished call has gone over to nodes, for which it was run again."""
        self.note(f"{reason}: the call was run again in eager mode", line)
        if self.calls - self.opened_since > 2 * MOST_OPENED:
            self.n_opened, self.opened_since = 0, self.calls
        self.n_opened += 1
        tell = self.when_opened and self.when_opened()
        if self.n_opened == MOST_OPENED and tell is not None:
            tell()

    def took(self, reason, line, seconds):
        """So long ran what was noted for this reason."""
        key = (reason, line)
        self.costs[key] = min(self.costs.get(key, inf), seconds)

    def release(self):
        """Nobody will ask for it again: give back what calls like its own would have used. The garbage collector finds
        the rest, since steps know their parents."""
        for program in self.programs:
            program.release()
        self.replays, self.memories, self.refusals, self.expectation = [], [], {}, None
        self.derivatives = []

    def note(self, reason, line):
        """Remember why a part ran eagerly, or a pending value was needed early."""
        key = (reason, line)
        self.fallbacks[key] = self.fallbacks.get(key, 0) + 1


def _differ_in_size(step, new):
    """Whether two steps are tensors from outside that differ in nothing but the lengths of their dimensions."""
    if step.op is not INPUT or new.op is not INPUT:
        return False
    (shape, *facts, _), (other, *others, _) = step.attributes, new.attributes
    return facts == others and len(shape) == len(other) and shape != other
