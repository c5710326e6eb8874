"""The usual call: one that does what the last call did, with all that does not change from call to call made ready.

    UsualFrame   entries   what the call does at weft's door, in order: ops, backward, updates
                 tensors   the tensor of every value: results are made before they are asked for
                 program   what computes them, with the addresses of all memory that stays the same filled in

Replaying compares each op with the next entry and hands out the tensor made for it. At the end the program runs if the
same results are alive as usual. At the first thing that is different the call *departs*: a Frame takes over, in the
state it would have had, and finds out what that means. A UsualFrame knows nothing else, so there is nothing it can get
wrong but the comparison.
"""

import threading
from functools import partial
from operator import is_, itemgetter
from weakref import getweakrefcount

from . import frame_inputs, native, native_text
from .frame import Frame
from .frame_again import NothingAgain
from .frame_run import close_after_error, run
from .frame_spans import Spans
from .modes import state
from .recording import BACKWARD, GRADIENTS, UPDATE, number_code
from .references import PICKED, counts_of_picked
from .tensor import Tensor, pending_tensor
from .usual_entries import End, entries_of, is_usual_key

NOT_STARTED = object()
_PRIVATE = ("begin", "run", "take")  # methods with an underscore here


def _picker(numbers):
    """A function that picks these items of a list."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return itemgetter(slice(numbers[0], numbers[0] + 1) if numbers else slice(0))


def usual_frame(frame, arguments):
    """After a call with these arguments: what the next one can use if this one was like the one before. None if it was
    not, or if anything happened that only a Frame can follow."""
    recording, needed = frame.recording, frame.needed
    end, recording.last_end = recording.last_end, (frame.step, needed)
    if end != recording.last_end or not _is_plain(frame, needed):
        return None
    if any(isinstance(a, (list, tuple, dict)) for a in arguments):
        return None
    known = frame.step.programs.get("usual")
    if known is None or known[:2] != (needed, frame.confirmed):
        entries = entries_of(frame)
        found = None if entries is None else UsualFrame(frame, needed, entries, arguments)
        known = frame.step.programs["usual"] = (needed, frame.confirmed, found)
    return known[2]


def _is_plain(frame, needed):
    return (
        frame.confirmed is not None
        and frame.last_program is not None
        and len(frame.start.path()) == frame.n_arguments
        and all(is_usual_key(step.attributes) for step in frame.start.path())
        and not (frame.failed or frame.noted or frame.hooked or frame.full or frame.flushed_at_close)
        and not (frame.changed_metas or frame.changed_singly or frame.outer_edges or frame.n_unusual_updates)
        and not (needed.differentiable or needed.views)
    )


class UsualFrame(NothingAgain):
    """Stands in for a Frame as long as a call is like the one before; see the module's docstring.

    It serves one call at a time and is used again: tensors that nobody has kept are handed out again too.
    """

    def __init__(self, frame, needed, entries, arguments):
        self.recording, self.expectation = frame.recording, frame.confirmed
        self.modes = frame.recording.signature[2:]
        keys = iter([step.attributes for step in frame.start.path()])
        self.argument_keys = [next(keys) if isinstance(a, Tensor) else None for a in arguments]
        self.n_tensors = sum(key is not None for key in self.argument_keys)
        self.entries = [*entries, End(entries)]
        self.needed, self.program = needed, frame.last_program
        self.metas = frame.step.metas_so_far()
        self.tensors = [None] * len(self.metas)
        for vid, tensor in zip(self.expectation.numbers, self.expectation.tensors):
            self.tensors[vid] = tensor
        computed = [vid for entry in entries if entry.op is not UPDATE for vid in entry.numbers]
        for vid in computed:
            self.tensors[vid] = pending_tensor(self, vid, self.metas[vid])
        for entry in entries:
            if entry.op is UPDATE:
                self.tensors[entry.vid : entry.vid + len(entry.numbers)] = entry.update.targets
        self._pick = _picker(computed)
        self.results = [(vid, vid in needed.live) for vid in computed]
        self._fresh = [vid for entry in entries for vid, _, _ in entry.fresh]
        self.views = [entry.vid for entry in entries if entry.root is not None]
        self._counts = None
        self.ended = EndedCall(self) if any(self.metas[vid].history for vid in needed.live) else None
        # Of an ended call whose leaves are arguments there is one per call.
        leaves = any(key is not None and key[2] for key in self.argument_keys)
        self._ends_differ = self.ended is not None and leaves
        self.ends_in_python = bool(self._ends_differ or self._fresh)
        lock = threading.Lock()
        self._take, self._release = partial(lock.acquire, blocking=False), lock.release
        self._real, self.owners = None, ()
        self.numbers, self.changed_gradients, self.remembered = [], [], []
        self.position, self.departed, self._native = native.Number(), native.Number(), None
        if native.layout() is not None:
            self._use_native_methods()

    def _use_native_methods(self):
        names = [f"_{name}" if name in _PRIVATE else name for name in native_text.METHODS]
        ends = [self.close, self._close_other, self._close_unusual, self._close_failed, self._close_after_error]
        methods = [getattr(self, name) for name in names]
        self._native = replay = native.NativeReplay(self, methods, ends, self._learn)
        self._spans = Spans(self, replay)
        self.position, self.departed, self._release = replay.position, replay.departed, replay.release
        vars(self).update(zip(names, replay.functions))

    def _learn(self, module, args):
        return self._spans.call_module(module, args)

    @property
    def homes(self):
        """What updates have changed so far that the program has not written yet."""
        return self.entries[self.position.value].homes

    def call(self, function, arguments):
        """function(*arguments) as a call like the one before, or NOT_STARTED if it does not begin like that."""
        if state.frame is not None or not self.start(arguments):
            return NOT_STARTED
        return run(self, function, arguments)

    def start(self, arguments):
        """Whether this frame can begin a call with these arguments: all that holds before the first op is as usual."""
        if len(arguments) != len(self.argument_keys) or not self._take():
            return False
        self.owners = set()
        if not self._begin(arguments):
            self._release()
            return False
        self._real, self.departed.value = None, False
        return True

    def _begin(self, arguments):
        if self.modes != (state.grad_enabled, state.default_dtype):
            return False
        if not all(map(self._takes, arguments, self.argument_keys)) or not self.expectation.holds():
            return False
        tensors = [a for a, key in zip(arguments, self.argument_keys) if key is not None]
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
        if array is None or tensor._node is not None or tensor._frame is not None:
            return False
        shape, dtype, flag, _, _ = key
        if array.shape != shape or array.dtype != dtype or tensor._requires_grad is not flag:
            return False
        owner = _owner(array)
        if owner in self.owners or owner in self.expectation.owners or not array.flags.c_contiguous:
            return False
        self.owners.add(owner)
        return True

    def _enter_fresh(self, entry, operands):
        """Number the tensors from outside that come in with this entry, if they are as usual."""
        if not self.owners:
            self.owners = {_owner(tensor._data) for tensor in self.tensors[: self.n_tensors]}
        for vid, position, key in entry.fresh:
            tensor = operands[position]
            if not isinstance(tensor, Tensor) or not self._is_usual(tensor, key):
                return False
            self.tensors[vid] = tensor
        return True

    # --- what a call does -----------------------------------------------------------------------------------------
    def apply(self, op, operands, attributes):
        entry = self.entries[self.position.value]
        if (
            entry.op is op
            and entry.attributes == attributes
            and entry.grad_enabled is state.grad_enabled
            and len(operands) == len(entry.operands)
            and (not entry.fresh or self._enter_fresh(entry, operands))
        ):
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
                self.position.value += 1
                tensor = tensors[entry.vid]
                if entry.root is not None:
                    tensor._base = tensors[entry.root]
                return tensor
            del numbers[n:]
        return self.depart().apply(op, operands, attributes)

    def backward_again(self, outputs, gradients, retain_graph, create_graph, inputs):
        """backward() of these outputs, if it is the one expected here. Else False, and nothing is done."""
        entry = self.entries[self.position.value]
        if entry.op is not BACKWARD or create_graph or inputs is not None or entry.attributes[1] is not retain_graph:
            return False
        if entry.grad_enabled is not state.grad_enabled:
            return False
        operands = outputs + (gradients or (None,) * len(outputs))
        if len(operands) != len(entry.operands) or (entry.fresh and not self._enter_fresh(entry, operands)):
            return False
        tensors = self.tensors
        for x, number in zip(operands, entry.operands):
            if x is not (tensors[number] if number >= 0 else None):
                return False
        leaves = [tensors[vid] for vid in entry.step.detail.wanted]
        for leaf in leaves:
            if leaf._grad is not None or leaf._accumulator is not None and leaf._accumulator() is not None:
                return False
        for leaf, vid in zip(leaves, entry.numbers):
            leaf._grad = tensors[vid]
        self.changed_gradients.append((leaves, [None] * len(leaves)))
        self.position.value += 1
        return True

    def gradients_again(self, outputs, cotangents, inputs, retain_graph, create_graph):
        """What autograd.grad returns, if it is the one expected here; else None."""
        entry = self.entries[self.position.value]
        operands = outputs + (cotangents or (None,) * len(outputs)) + inputs
        if (
            entry.op is GRADIENTS
            and entry.attributes == (len(outputs), retain_graph)
            and not create_graph
            and entry.grad_enabled is state.grad_enabled
            and len(operands) == len(entry.operands)
            and (not entry.fresh or self._enter_fresh(entry, operands))
            and all(x is (self.tensors[k] if k >= 0 else None) for x, k in zip(operands, entry.operands))
            and not any(x._accumulator is not None and x._accumulator() is not None for x in inputs)
        ):
            self.position.value += 1
            return [self.tensors[vid] for vid in entry.numbers]
        return None

    def gradients(self, outputs, cotangents, inputs, retain_graph, create_graph):
        return self.depart().gradients(outputs, cotangents, inputs, retain_graph, create_graph)

    def before_gradient(self, tensor):
        if tensor._frame is self:
            # A tensor made here could not be used again as it is.
            self.depart().before_gradient(tensor)
        else:
            self.changed_gradients.append(((tensor,), (tensor._grad,)))

    def update(self, rule, rows, numbers, flags):
        entry = self.entries[self.position.value]
        if entry.op is UPDATE:
            expected_rule, n_rows, expected_flags = entry.attributes
            flat = [x for row in rows for x in row]
            if (
                expected_rule is rule
                and n_rows == len(rows)
                and expected_flags == tuple(flags.items())
                and entry.grad_enabled is state.grad_enabled
                and len(flat) == len(entry.operands)
                and all(map(is_, flat, itemgetter(*entry.operands)(self.tensors)))
                and entry.update.is_alone()
            ):
                self.numbers += map(float, numbers)
                entry.update.bump_versions()
                self.position.value += 1
                return
        self.depart().update(rule, rows, numbers, flags)

    def call_again(self, function, args):
        """A call of a spanned function. Native code asks where it knows of no span: it is learned."""
        return function(*args) if self._native is None else self._spans.call_function(function, args)

    def step_again(self, optimizer):
        """Whether a step of the optimizer has been made. Native code asks where it knows of none: it is learned."""
        return self._native is not None and self._spans.step(optimizer)

    # --- the end --------------------------------------------------------------------------------------------------
    def close(self):
        for vid in self.views:
            self.tensors[vid]._base = None
        try:
            ended = EndedCall(self) if self._ends_differ else self.ended
            done = self._real is None and self._run(ended)
        except BaseException as error:
            self.depart().fail(error)
            raise
        if done:
            self.program.calls += 1
            self._finish()
        else:
            self.depart().close()

    # How native code ends a call that is not like the one before.
    @staticmethod
    def _close_other(frame):
        frame.close()

    def _close_unusual(self):
        self.depart().close()

    def _close_failed(self, error):
        self.depart().fail(error)

    @staticmethod
    def _close_after_error(error):
        close_after_error(state.frame)

    def _run(self, ended):
        """Whether the call is at its end with the same results alive as usual, and the program has computed them."""
        if not self._same_are_alive():
            return False
        outputs = self.program.compute([self.tensors[vid]._data for vid in self.program.inputs], self.numbers)
        if outputs is None:
            # An index was out of range; nothing was written. A Frame finds out which.
            return False
        for vid, array in zip(self.needed.live, outputs):
            tensor, meta = self.tensors[vid], self.metas[vid]
            tensor._data = array
            tensor._frame = ended if meta.history else None
            # For the next call.
            self.tensors[vid] = pending_tensor(self, vid, meta)
        return True

    def _same_are_alive(self):
        if self.entries[self.position.value].op is not None:
            return False
        results = self._pick(self.tensors)
        if any(map(getweakrefcount, results)):
            # Whoever watches a tensor would take the next call's for it.
            return False
        counts = counts_of_picked(results)
        del results
        if counts != self._counts:
            if [c > PICKED for c in counts] != [alive for _, alive in self.results]:
                return False
            self._counts = counts
        return True

    def _finish(self):
        """Hold nothing of the call that is over."""
        self.tensors[: self.n_tensors] = [None] * self.n_tensors
        for entered in self._fresh:
            self.tensors[entered] = None
        self.numbers.clear()
        self.changed_gradients.clear()
        self.remembered.clear()
        self.owners = ()
        self._release()

    # --- departing ------------------------------------------------------------------------------------------------
    def depart(self):
        """The Frame that goes on with the call from here."""
        if self._real is None:
            frame = Frame(self.recording)
            frame.begin(self.tensors[: self.n_tensors], self.expectation)
            for entry in self.entries[: self.position.value]:
                self._redo(frame, entry)
            frame.numbers, frame.remembered = list(self.numbers), list(self.remembered)
            frame.changed_gradients = list(self.changed_gradients)
            self._real, self.departed.value = frame, True
            native.deactivate()
            self.position.value = len(self.entries) - 1
            # Only calls that are alike twice in a row are worth another try.
            self.recording.usual = self.recording.last_end = None
            self._finish()
            if state.frame is self:
                state.frame = frame
        return self._real

    def _redo(self, frame, entry):
        """What a Frame notes down when it meets this step."""
        for vid, _, _ in entry.fresh:
            frame_inputs.enter(frame, self.tensors[vid])
        jump = frame.expected.jumps.get(frame.step)
        if jump is not None:
            frame.tensors += jump[1]
        frame.step = entry.step
        if entry.op is UPDATE:
            entry.update.apply(frame)
            return
        for vid in entry.numbers:
            tensor = self.tensors[vid]
            tensor._frame = frame
            frame.tensors.append(tensor)
            self.tensors[vid] = pending_tensor(self, vid, self.metas[vid])
        if entry.op in (BACKWARD, GRADIENTS):
            frame.freed.update(entry.step.detail.frees)
        elif entry.root is not None:
            frame._note_view(tensor, entry.operands[0])

    def __getattr__(self, name):
        # Whatever else is asked of a frame, a Frame answers.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.depart(), name)


def _owner(array):
    base = array.base
    return id(array) if base is None else id(base)


class EndedCall:
    """The frame of results whose history their call's own backward has freed. It answers what is asked of such results
    (grad_fn, the error of a second backward) through a closed Frame, made when the first question comes.
    """

    closed = True

    def __init__(self, usual):
        self.recording, self.expectation, self.step = usual.recording, usual.expectation, usual.entries[-2].step
        arguments = enumerate(usual.tensors[: usual.n_tensors])
        self.leaves = [(vid, t, 0) for vid, t in arguments if t is not None and t._requires_grad]

    def _frame_of(self, tensor):
        frame = Frame(self.recording)
        frame.step, frame.entered, frame.met_expected = self.step, self.leaves, self.expectation
        frame.freed = {k for step in frame.steps if step.op in (BACKWARD, GRADIENTS) for k in step.detail.frees}
        frame.closed = frame.ends_freed = True
        tensor._frame = frame
        return frame

    def node_of(self, tensor):
        return self._frame_of(tensor).node_of(tensor)

    def edge_of(self, tensor):
        return self._frame_of(tensor).edge_of(tensor)

    def use_nodes(self, tensor):
        self._frame_of(tensor).use_nodes(tensor)

    def leave(self, tensor):
        self._frame_of(tensor).leave(tensor)
