"""The usual call: one that does what the last call did, with all that does not change from call to call made ready.

    UsualFrame   entries   what the call does at weft's door, in order: ops, backward, updates
                 tensors   the tensor of every value: results are made before they are asked for
                 program   what computes them, with the addresses of all memory that stays the same filled in

Replaying compares each op with the next entry and hands out the tensor made for it. At the end the program runs if the
same results are alive as usual. At the first thing that is different the call *departs*: a Frame takes over, in the
state it would have had. A UsualFrame knows nothing else: there is nothing it can get wrong but the comparison.
"""

import threading
from functools import partial
from itertools import count
from math import prod

from ...compiler.ops.view import data
from ..eager.saved import meta_of
from ..programs.evaluate import strides_in_elements
from ..programs.recording import BACKWARD, GRADIENTS, UPDATE, number_code
from ..programs.user_lines import user_line
from ..record import frame_inputs, frame_through
from ..record.frame_run import run
from ..state.aligned import owner_of
from ..state.attributes import same_attributes
from ..state.exposure import MOST_KEPT, has_exposed, is_exposed
from ..state.modes import frame_in_making, state
from ..state.tensor import Tensor, pending_tensor
from ..state.turns import follows, take_for_call
from . import native, native_words, usual_inplace
from .frame_spans import Spans
from .usual_arguments import is_result
from .usual_arguments import picker as argument_picker
from .usual_books import UsualBooks, at_work
from .usual_depart import recorded_so_far, why_it_departs
from .usual_eager import NOT_APPLIED, AppliesEagerly, as_expected
from .usual_end import Ending, picker
from .usual_ended import EndedCall, own_leaves
from .usual_entries import End, Homes, turned_arguments
from .usual_functions import ConnectsAgain
from .usual_hooks import TakesHooks
from .usual_leaves import MakesLeaves
from .usual_outside import OutsideBackward
from .usual_segments import begins_of_backward, segments_of
from .usual_siblings import continue_elsewhere, is_left, may_take, none_compared
from .usual_through import ShowsWhole
from .usual_updates import TakesUpdates
from .usual_views import GivenViews
from .usual_walks import GoesBack, WalkAgain
from .usual_whole import TakesSteps

NOT_STARTED = object()
_PRIVATE = ("begin", "run", "take")  # methods with an underscore here
_LETS_GO = "a leaf is made in the call, or a value of it has hooks or is made by a Function"
_ENDS_DIFFER = "a result was differentiated in the call, and a leaf is an argument"


class UsualFrame(
    Ending,
    GoesBack,
    TakesHooks,
    ConnectsAgain,
    MakesLeaves,
    ShowsWhole,
    AppliesEagerly,
    TakesSteps,
    TakesUpdates,
    UsualBooks,
):
    """Stands in for a Frame as long as a call is like the one before; see the module's docstring.

    It serves one call at a time and is used again: tensors that nobody has kept are handed out again too.
    """

    is_usual = True
    many = None  # the ManySizes whose calls it serves, if these are of many sizes (many_sizes.py)

    def __init__(self, frame, needed, entries, structure, types):
        super().__init__()
        self.recording, self.expectation = frame.recording, frame.confirmed
        self.modes = frame.recording.signature[2:]
        keys = iter([step.attributes for step in frame.start.path()])
        self.structure = structure  # of the arguments (usual_arguments.py); their leaves are of these types
        self.pick = None if structure is None else argument_picker(structure)
        self.argument_types = types
        self.argument_keys = [next(keys) if issubclass(kind, Tensor) else None for kind in types]
        self.n_tensors = sum(key is not None for key in self.argument_keys)
        self.entries = [*entries, End()]
        read, numbers = {vid for entry in entries for vid in entry.operands}, count()
        # Of each argument, whether anything but a copy of it is read.
        self.reads_argument = [key is not None and next(numbers) in read for key in self.argument_keys]
        self.walks = [WalkAgain(frame, entries, walk) for walk in frame.walks]
        self.needed, self.program, self.n_numbers = needed, frame.end_program, len(frame.numbers)
        self.metas = frame.step.metas_so_far()
        self.tensors = [None] * len(self.metas)
        for vid, tensor in zip(self.expectation.numbers, self.expectation.tensors):
            self.tensors[vid] = tensor
        computed = [vid for entry in entries if entry.op is not UPDATE for vid in entry.numbers]
        for vid in computed:
            self.tensors[vid] = pending_tensor(self, vid, self.metas[vid])
        self.changes = [entry.change for entry in entries if entry.change is not None]
        roots = self.roots = {entry.vid: entry.root for entry in entries}
        self.with_version = frozenset(entry.vid for entry in entries if entry.step.op is data)  # each its own
        self.changes_arguments = any(not change.is_made and change.target is None for change in self.changes)
        writes = self.changes or any(entry.op in (UPDATE, BACKWARD, GRADIENTS) for entry in entries)
        # Who owns the memory that no other tensor of the call may lie in: of one that changes none, nobody.
        self.owned = self.expectation.owners.keys() if writes else frozenset()
        self.segments, computed = segments_of(frame, entries, roots)
        self.wholes = {entry.vid: entry.operands[0] for entry in entries if frame_through.is_whole(entry.step)}
        self.arrays = {}  # of the values that segments have computed in this call
        for entry in entries:
            if entry.update is not None:
                self.tensors[entry.vid : entry.vid + len(entry.numbers)] = entry.update.targets
        computed += begins_of_backward(self, needed, computed)
        self._pick = picker(computed)
        self.note_eager_ops(frame, entries)
        alive = {*needed.live, *needed.views, *needed.differentiable}
        self.results = [(vid, vid in alive) for vid in computed]
        self.fresh = [vid for entry in entries for vid, _, _ in entry.fresh]
        # Of memory that NumPy arrays show too, by number; whether they are kept for the next call.
        self.last_copies = [None] * (max(self.fresh, default=-1) + 1)
        self.keeps_copies = sum([_bytes_of(self.metas[vid]) for vid in self.fresh]) <= MOST_KEPT
        self.turned = turned_arguments(frame, entries, needed)
        self.hookable, self.hooked = frame.hooked_values - frame.places.keys(), {}  # numbers; number -> HookedValue
        self.functions, self.has_nodes = {}, bool(frame.hooked_values)
        self.leaves = [*(change.new for change in self.changes if change.ends_as_leaf()), *self.hookable]
        self.walking = self.waiting = None  # (a WalkAgain, its meeting), in a backward pass; the cotangents elsewhere
        given = alive.union(*(s.made for s in self.segments), (c.old for c in self.changes if c.op is None))
        self.views = [entry.vid for entry in entries if entry.root is not None and entry.vid not in given]
        self.given_views = GivenViews(frame.step, needed.views, roots)
        self.given_layouts = self.given_views.layouts(frame.step, {change.new for change in self.changes})
        self._counts = self._counts_with_nodes = None
        self._homes = Homes(self.entries)
        self.common = none_compared()  # another UsualFrame -> how many entries both begin with
        self.native_start = None  # what native code reads to begin calls with this frame (compiled_call.py)
        self.next_look = 0  # how many calls come before one that may be looked into (frontend/whole_calls.py)
        self.tried = ()  # those that have departed from the call that this one goes on with
        self.outputs = []  # the arrays that the program has just written
        has_history = any(self.metas[v].history for v in [*alive, *(v for s in self.segments for v in s.made)])
        self.outside = OutsideBackward(frame, self) if needed.differentiable else None
        self.own_leaves = own_leaves(frame, entries, self.argument_keys)
        self.ended = EndedCall(self, EndedCall.changed_by(frame)) if has_history and self.outside is None else None
        self._ends_differ = self.ended is not None and bool(self.own_leaves)
        self.n_ended = 0  # how many calls have been ended in Python, for want of native code that does
        self.slower_for = [reason for reason, is_so in self._what_ends_in_python() if is_so]
        # Whether Python has at most something to do before the program runs at the end, and nothing after that.
        self.only_begins = self.outside is None and {_LETS_GO, _ENDS_DIFFER}.issuperset(self.slower_for)
        lock = threading.Lock()
        self._take, self._release = partial(lock.acquire, blocking=False), lock.release
        self._real, self.owners, self.numbers, self.changed_gradients, self.remembered = None, (), [], [], []
        self.position, self.departed, self._native = native.Number(), native.Number(), None
        if native.layout() is not None:
            self._use_native_methods()

    def _what_ends_in_python(self):
        """(what native code does not know how to end by itself, whether this call has it)."""
        return (
            (_ENDS_DIFFER, self._ends_differ),
            ("a result is a view of memory that may lie otherwise", self.given_layouts is None),
            (
                "what is read before the call ends is a view of memory that may lie otherwise",
                [s for s in self.segments if not s.is_native],
            ),
            (_LETS_GO, self.leaves or self.has_nodes),
        )

    def _use_native_methods(self):
        names = [f"_{name}" if name in _PRIVATE else name for name in native_words.METHODS]
        ends = [self.close, self._close_other, self._close_unusual, self._close_failed, self._close_after_error]
        ends += [self._begin_end, self._finish_end, self._accumulate_rest]
        methods = [self._run_for_native if name == "_run" else getattr(self, name) for name in names]
        self._native = replay = native.NativeReplay(self, methods, ends, self._learn)
        self._spans = Spans(self, replay)
        self.position, self.departed, self._release = replay.position, replay.departed, replay.release
        self._working, self._n_flushed = replay.working, replay.n_flushed
        vars(self).update(zip(names, replay.functions))

    def _learn(self, module, args):
        if self.working or self.many is not None:
            return native.call_in_python("call_module", module, *args)
        return self._spans.call_module(module, args)

    @property
    def homes(self):
        """What has been changed so far that no program has written yet."""
        if self.landed:
            return {}
        place = self.segments[self.n_flushed - 1].position if self.n_flushed else 0, self.position.value
        homes = self._homes[place]
        return {**homes, **self._changed_arguments()} if self.changes_arguments else homes

    def _changed_arguments(self):
        """Like homes, of tensors that differ from call to call."""
        first = self.segments[self.n_flushed - 1].position if self.n_flushed else 0
        changes = [entry.change for entry in self.entries[first : self.position.value] if entry.change is not None]
        changed = [(self.tensors[c.new], c.origin) for c in changes if not c.is_made and c.target is None]
        return {id(tensor): (tensor, tensor._data, origin) for tensor, origin in changed if tensor is not None}

    @staticmethod
    def call(function, arguments, args, kwargs):
        """As `call_in_python`. Where native code is in place of this, it comes here if it does not begin a call."""
        return NOT_STARTED

    def call_in_python(self, function, arguments, args, kwargs):
        """function(*args, **kwargs), whose leaves are `arguments`, as a call like the one before, or NOT_STARTED if it
        does not begin like that."""
        if state.frame is not None:
            return NOT_STARTED
        if self._native is not None and self._is_hidden_again(arguments):
            return self.call(function, arguments, args, kwargs)
        if not self.start(arguments):
            return NOT_STARTED
        return run(self, function, args, kwargs)

    def _is_hidden_again(self, arguments):
        """Whether NumPy arrays have shown memory that the call reads, and now none does any more."""
        read = [x for x, is_read in zip(arguments, self.reads_argument) if is_read]
        met = [x for x in (*read, *self.expectation.tensors) if has_exposed((x,))]
        return bool(met) and not any(map(is_exposed, met))

    def start(self, arguments):
        """Whether this frame can begin a call with these arguments: all that holds before the first op is as usual."""
        if len(arguments) != len(self.argument_keys) or is_left(self) or not self._take():
            return False
        self.owners = set()
        if not self._begin(arguments):
            self._release()
            return False
        self._real, self.departed.value = None, False
        return True

    def materialize(self, tensor):
        """A value is read: compute what is pending, as it was done here before. Returns the tensor's array."""
        if self.working:
            return self.onlooker.materialize(tensor)
        if self.n_flushed < len(self.segments) and self._take_segment() and tensor._data is not None:
            return tensor._data
        return self.depart(asked="materialize").materialize(tensor)

    @at_work
    def _take_segment(self):
        """Whether what is pending here was computed here before too, and has been."""
        segment = self.segments[self.n_flushed]
        return self._real is None and segment.position == self.position.value and segment.run(self)

    def _begin(self, arguments):
        if self.modes != (state.grad_enabled, state.default_dtype):
            return False
        if not all(map(self._takes, arguments, self.argument_keys)) or not self.expectation.holds():
            return False
        tensors = [a for a, key in zip(arguments, self.argument_keys) if key is not None]
        if len(set(map(id, tensors))) < len(tensors):
            return False  # one would have two numbers
        if any(is_read and is_exposed(x) for x, is_read in zip(arguments, self.reads_argument)):
            return False
        self.tensors[: len(tensors)] = tensors
        self.position.value = 0
        return True

    def _takes(self, argument, key):
        if key is None:
            return not isinstance(argument, (Tensor, list, tuple, dict))
        return isinstance(argument, Tensor) and self._is_usual(argument, key)

    def _is_usual(self, tensor, key):
        """Whether a tensor from outside is like the one that came in here last time."""
        array = tensor._data
        shape, dtype, flag, leaf, strides = key
        if array is None or (tensor._node is not None or tensor._frame is not None if leaf else not is_result(tensor)):
            return False
        if array.shape != shape or array.dtype != dtype or tensor._requires_grad is not flag or native.is_asked(tensor):
            return False
        owner = owner_of(array)
        if self.changes_arguments and owner in self.owners or owner in self.owned:
            return False
        if not self.owned and any(tensor is one for one in self.expectation.tensors):
            return False  # it would have two numbers, and gradients that are summed in another order
        if not array.flags.c_contiguous if strides is None else strides_in_elements(array) != strides:
            return False
        self.owners.add(owner)
        return True

    def _enter_fresh(self, entry, operands):
        """Number the tensors from outside that come in with this entry, if they are as usual."""
        own = [vid for vid, _, _ in entry.fresh]
        met = [self.tensors[vid] for vid in (*range(self.n_tensors), *self.fresh) if vid not in own]
        self.owners = {owner_of(tensor._data) for tensor in met if tensor is not None}
        for vid, position, key in entry.fresh:
            tensor = operands[position]
            if not isinstance(tensor, Tensor) or not self._is_usual(tensor, key):
                return False
            argument = entry.turned.get(vid, -1)
            if any((one is tensor) is not (k == argument) for k, one in enumerate(self.tensors[: self.n_tensors])):
                return False
            self.tensors[vid] = tensor
        return True

    # --- what a call does -----------------------------------------------------------------------------------------
    def apply(self, op, operands, attributes):
        if self.working:
            return self.onlooker.apply(op, operands, attributes)
        if has_exposed(operands):
            return frame_inputs.apply_exposed(self, op, operands, attributes)
        return self.apply_shown(op, operands, attributes)

    def apply_outside(self, reason, op, operands, attributes):
        """The op outside the recording: nothing that such a call does."""
        return self.depart(asked="apply").apply(op, operands, attributes)

    def apply_shown(self, op, operands, attributes):
        """`apply` of operands that no NumPy array shows, or copies in their place."""
        is_next = self.entries[self.position.value].op is op
        tensor = self._take_op(op, operands, attributes) if is_next else self._picked(op, operands, attributes)
        if tensor is None:
            found = self.apply_between(op, operands, attributes) if self.eager_ops else NOT_APPLIED
            if found is not NOT_APPLIED:
                return found
            # What raises is nothing that a call does: it goes on here, if somebody catches that.
            if not any(may_take(self, other, op, operands) for other in self.recording.replays):
                op.infer([meta_of(x) for x in operands], attributes, state.default_dtype)
            return self.depart(coming=(op, operands)).apply(op, operands, attributes)
        return tensor

    def before_lending(self, tensor):
        later = self.entries[self.position.value : -1]
        if self.working or self.outside is None and not later:
            return
        writes = any(e.op is BACKWARD or e.op is GRADIENTS or e.change or e.walk for e in later)
        if self.outside is not None or writes or later and self._is_read_by(later, tensor):
            self.depart(asked="before_lending").before_lending(tensor)

    def _is_read_by(self, entries, tensor):
        """Whether an entry reads the memory of a tensor that the call knows."""
        seen = self._numbers().get(id(tensor))
        if seen is None:
            return False
        roots = {vid: root for vid, root in self.roots.items() if root is not None}
        root = roots.get(seen, seen)
        return any(roots.get(vid, vid) == root for entry in entries for vid in entry.operands)

    @at_work
    def _take_op(self, op, operands, attributes):
        """The tensor made for the result of an op, if it is the one expected here; else None."""
        entry = self.entries[self.position.value]
        if (
            entry.op is op
            and (not (attributes or entry.attributes) or same_attributes(entry.attributes, attributes))
            and entry.grad_enabled is state.grad_enabled
            and len(operands) == len(entry.operands)
            and (not entry.fresh or self._enter_fresh(entry, operands))
            and self._take_operands(entry, operands)
        ):
            self.position.value += 1
            tensor = self.tensors[entry.vid]
            if entry.root is not None:
                tensor._base = self.tensors[entry.root]
            return tensor
        return None

    @at_work
    def inplace_again(self, op, target, operands, attributes):
        """Whether target becomes op(*operands) here too, and has been changed."""
        entry = self.entries[self.position.value]
        op, operands, attributes = as_expected(entry, op, operands, attributes)
        change = entry.change
        if has_exposed(operands):
            operands = frame_inputs.read_again(self, operands)
        if (
            operands is not None
            and change is not None
            and change.op is op
            and same_attributes(entry.attributes, attributes)
            and entry.grad_enabled is state.grad_enabled
            and len(operands) == len(entry.operands)
            and (not entry.fresh or self._enter_fresh(entry, operands))
            and target is self.tensors[change.given]
            and change.may_happen(self, target)
            and self._take_operands(entry, operands)
        ):
            self.changing = True
            usual_inplace.make(self, change, target)
            self.position.value += 1
            self.show_again(len(change.shown))
            self.changing = False
            return True
        return False

    def apply_inplace(self, op, target, operands, attributes):
        """A change that is not the one expected here: it may be in another UsualFrame."""
        other = self.elsewhere("apply_inplace") or (self.onlooker if self.working else self.depart())
        done = other.inplace_again(op, target, operands, attributes)
        return target if done else other.apply_inplace(op, target, operands, attributes)

    def _take_operands(self, entry, operands):
        """Whether these are the operands of the entry; the numbers among them are those of this call then."""
        tensors, numbers = self.tensors, self.numbers
        n = len(numbers)
        for x, number in zip(operands, entry.operands):
            if number >= 0:
                if tensors[number] is not x:
                    break
            elif number_code(x) == number:
                numbers.append(x)
            else:
                break
        else:
            return True
        del numbers[n:]
        return False

    def gradients(self, outputs, cotangents, inputs, retain_graph, create_graph):
        if self.working:
            return None
        return self.depart(asked="gradients").gradients(outputs, cotangents, inputs, retain_graph, create_graph)

    def update(self, rule, rows, numbers, flags):
        if self.working:
            self.onlooker.update(rule, rows, numbers, flags)
        elif not self._take_update(rule, rows, numbers, flags):
            self.depart(asked="update").update(rule, rows, numbers, flags)

    def call_again(self, function, args):
        """A call of a spanned function. Native code asks where it knows of no span: it is learned."""
        learns = self._native is not None and not self.working and self.many is None
        return self._spans.call_function(function, args) if learns else function(*args)

    def step_again(self, optimizer):
        """Whether a step of the optimizer has been made. Native code asks where it knows of none: it is learned."""
        return self._native is not None and not self.working and self._spans.step(optimizer)

    # --- departing ------------------------------------------------------------------------------------------------
    def depart(self, ends=False, coming=None, asked="nothing"):
        """The frame that goes on with the call from here. ends: it has come to its end; coming: (op, operands); asked:
        else, what it is asked to do next, by the name of the method."""
        if self._real is None:
            take_for_call(self)
            self.working = self.changing = self.torn = True
            self.seen = self._numbers()
            with frame_in_making():
                self.take_own_steps()
                if self.hooked or self.functions or self.walking or continue_elsewhere(self, ends, coming) is None:
                    self.recording.note_departure(why_it_departs(self, coming, asked, ends), user_line())
                    frame = recorded_so_far(self)
                    native.deactivate()
                    self.leave_to(frame)
        return follows(self._real)

    def elsewhere(self, asked):
        """The UsualFrame that goes on with a call that does not go on here; None if none does."""
        other = None if self.working else self.depart(asked=asked)
        return other if isinstance(other, UsualFrame) else None

    def leave_to(self, other):
        """Another frame goes on with the call."""
        if state.frame is self:
            state.frame = other
        self._real, self.departed.value = other, True
        self.position.value = len(self.entries) - 1
        self.seen = self.successor = other.built_from = None
        other.working = other.changing = other.torn = self.working = self.changing = self.torn = False
        self._finish()

    def ended_by(self):
        """The frame that a call that began with this one goes on in, or has ended in."""
        frame = self
        while isinstance(frame, UsualFrame) and frame.departed.value:
            frame = frame._real
        return frame

    def make_ready(self):
        """A call that departed from this frame is over: the next one may begin with it, and with those after it."""
        frame = self
        while isinstance(frame, UsualFrame) and frame.departed.value:
            left, frame = frame, frame._real
            if left._take():
                left._real, left.departed.value = None, False
                left._release()

    def __getattr__(self, name):
        # Whatever else is asked of a frame, a Frame answers.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.onlooker if self.working else self.depart(asked=name), name)


def _bytes_of(meta):
    return prod(meta.shape) * meta.dtype.numpy.itemsize
