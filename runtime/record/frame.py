"""One call of a compiled function: the user's Python runs, every op is checked against the recording, nothing is
computed until a value is needed.

Values are numbered in the order they appear. `tensors[vid]` is the tensor object that holds value vid now: an
in-place change gives its target a new number. `flush` runs the program of the steps since the last flush: at the end
of the call, or when a value is read in the middle. What is alive then is found by counting references.
"""

from ...compiler.ops.kinds import number_meta
from ..eager.gate import apply_eagerly
from ..programs.description import Stretch
from ..programs.recording import OTHER_DEFAULT, Step, TooManyPaths, ValueMeta, number_code
from ..programs.user_lines import user_line
from ..state.aligned import owner_of
from ..state.attributes import same_attributes
from ..state.exposure import has_exposed
from ..state.modes import state
from ..state.tensor import Tensor, pending_tensor
from . import (
    expectation,
    frame_autograd,
    frame_changes,
    frame_eager,
    frame_end,
    frame_flush,
    frame_gradients,
    frame_inputs,
    frame_leaves,
    frame_memory,
    frame_through,
    frame_updates,
    frame_views,
)
from .closed import FreedCall
from .frame_functions import Connects
from .onlooker import Watched, door
from .step_nodes import node_of


class Frame(Connects, Watched):
    """The state of one call. See the module's docstring; frame_autograd.py holds its backward."""

    is_usual = False

    def __init__(self, recording):
        self.recording = recording
        super().__init__()
        self.working = True  # until the call has begun
        self.default_dtype = recording.default_dtype
        self.step = recording.root
        self.tensors, self.numbers = [], []
        self.changed_metas = {}  # number -> meta, where the call knows better than the step
        self.bound = {}  # id of a tensor from outside -> its number
        self.entered = []  # (number, tensor, version of its memory) of the tensors from outside
        self.turned = {}  # id of a tensor from outside -> Turned, if it became a leaf (frame_leaves.py)
        self.changed_leaves = {}  # number of a leaf's new value -> the leaf
        self.outer_edges = {}  # number of a tensor from outside, changed or let go of -> where its gradients went
        self.same = {}  # number of a value written back into a tensor from outside -> number of that tensor
        self.arrays = {}  # number -> array, for everything already in memory
        self.homes = {}  # id of a tensor from outside that was changed in place -> (tensor, its memory)
        self.owners = {}  # id of the array owning the memory -> numbers of the outside tensors living in it
        self.views = {}  # number of a base -> numbers of its views
        self.roots = {}  # number of a view -> number of its base
        self.versioned = {}  # number of a .data, or of a view of one -> number of the .data, which has the version
        self.rewritten = False  # whether memory was changed while values with another version showed it too
        self.overwritten, self.freed = set(), set()  # freed: steps whose saved values a backward has freed
        self.nodes, self.places = {}, {}  # number of a value -> its node; which output it is, where there are several
        self.hooked = False  # whether gradients must pass through nodes
        self.n_with_nodes = 0  # how many steps have their node, if they need one
        self.n_unusual_updates = 0
        self.only_update = None  # the update that made all pending changes in place, if one did
        self.changed_singly = False  # whether any tensor was changed in place outside such updates
        self.changed_eagerly = False  # whether any was in the middle of the call, which no step says
        self.flushed = self.first_pending = 0
        self.lasting = ()  # (number, tensor) of what a call like this one may meet again
        self.confirmed = None  # what calls like this one are expected to meet (usual_learning.py)
        self.updates = {}  # step -> its UsualUpdate
        self.walked = None  # what is noted of the backward pass going on (frame_walks.py)
        self.walks = []  # the passes that were done, None for one that cannot be said
        self.uses_hooks = self.has_nodes_out = False  # the line where a hook was set; whether results have own nodes
        self.hooked_values = set()  # numbers of the values that users have set hooks on
        self.flushes = []  # where values were read before the end (recording.Flush)
        self.eager_ops = []  # what ran between two programs (recording.EagerOp)
        self.held = ()  # numbers of the pending values that somebody held when what is needed was last asked
        self.needed = None  # what was computed at the end
        self.noted = False  # whether anything was reported for explain
        self.n_arguments = 0
        self.expected = None  # expectation.py
        self.met_expected = None  # the same, also when all of it has been met
        self.start = recording.root
        self.full = False  # no room for more paths: ops run eagerly from here on
        self.left = False  # so do they after too many reads, and what they make is not numbered any more
        self.n_reads_anew = self.seconds_anew = 0  # values read in the middle that needed a program of their own
        self.closing = self.landed = False  # whether the call has ended; whether its last program has run
        self.graph_node = None  # a weak reference to the node of the finished call, if it has results to differentiate
        self.ends_freed = False  # whether the call has results whose history its own backward has freed
        self.failed, self.saved = None, []
        self.is_interim = False  # whether any of its programs was not there yet (interim.py)
        self.last_program = self.end_program = None  # the last one, and the one that ran at the end
        self.changed_gradients = []  # (tensors, what their .grad was before the call assigned it)
        self.remembered = []  # (function, arguments) that take back a change, see runtime/eager/update.py
        self.first_pending_at_close, self.flushed_at_close = 0, 0

    # --- ops ----------------------------------------------------------------------------------------------------
    def apply(self, op, operands, attributes, inside=False, shown=False):
        """The op as a step of the recording; its result is pending. inside: the frame itself, at work, applies it.
        shown: of exposed memory (exposure.py), there are copies."""
        # A door (onlooker.py) written out, because this runs for every op.
        if self.working and not inside:
            return self.onlooker.apply(op, operands, attributes)
        self.working = True
        try:
            if state.default_dtype is not self.default_dtype:
                return self.run_eagerly(OTHER_DEFAULT, apply_eagerly, op, operands, attributes)
            if self.left:
                return frame_eager.apply_left(self, op, operands, attributes)
            if not shown and has_exposed(operands):
                return frame_inputs.apply_exposed(self, op, operands, attributes)
            reason = frame_eager.reason_at_once(self, op, operands, attributes)
            if reason is not None:
                return frame_eager.apply_between(self, reason, op, operands, attributes)
            mark, expected = len(self.numbers), self.expected
            ids = ()
            for x in operands:
                if isinstance(x, Tensor):
                    ids += (x._vid if x._frame is self else self.identify(x),)
                else:
                    ids += (self._number(x),)
            enabled = state.grad_enabled
            jump = None if expected is None else expected.jumps.get(self.step)
            following = self.step.following if jump is None else jump[0].following
            for step in following:
                if (
                    step.op is op
                    and step.operands == ids
                    and step.grad_enabled is enabled
                    and self.expected is expected
                    and (not (attributes or step.attributes) or same_attributes(step.attributes, attributes))
                ):
                    if expected is not None and len(following) > 1 and step not in expected.path:
                        # Another path: what was expected is numbered differently there.
                        self.forget_expected()
                        return self._apply_again(op, operands, attributes, mark)
                    break
            else:
                step = self._step_or_result(op, ids, operands, attributes, enabled, mark, expected)
                if step.__class__ is not Step:
                    return step
                jump = None
            self.changing = True
            if jump is not None:
                self.tensors += jump[1]
            self.step = step
            tensor = pending_tensor(self, len(self.tensors), step.metas[0])
            self.tensors.append(tensor)
            if step.detail is not None:
                self._note_view(tensor, step.operands[0])
            self.changing = False
            return tensor
        except BaseException:
            if not inside:
                self.recover()
            raise
        finally:
            self.working = inside or self.torn

    def apply_shown(self, op, operands, attributes):
        """`apply` of operands that no NumPy array shows, or copies in their place."""
        return self.apply(op, operands, attributes, True, True)

    def _apply_again(self, op, operands, attributes, mark):
        """What had been expected is not what comes: operands must be identified anew."""
        del self.numbers[mark:]
        return self.apply(op, operands, attributes, True, True)

    def _step_or_result(self, op, ids, operands, attributes, enabled, mark, expected):
        """The step of an op that is not the one that comes next; or what it gives, if there is none."""
        if expected is not None:
            step = self.follow(op, ids, attributes, enabled) if self.expected is expected else None
            return self._apply_again(op, operands, attributes, mark) if step is None else step
        step, reason = self._new_step(op, ids, operands, attributes, enabled, mark)
        if step is None:
            del self.numbers[mark:]
            return frame_eager.apply_between(self, reason, op, operands, attributes)
        return step

    def recover(self):
        """After an exception in the middle of the frame's work: was it between two things, or are the books torn?"""
        frame_flush.land(self)
        self.torn = self.changing
        if not self.torn:
            del self.numbers[self.step.numbers_count() :]

    def _new_step(self, op, ids, operands, attributes, enabled, mark):
        """(the step recorded for an op, None), or (None, why it must run eagerly)."""
        try:
            if self.full:
                raise TooManyPaths
            reason = frame_eager.reason_of(self, op, ids, operands, attributes)
            if reason is not None:
                return None, reason
            return self._record(op, ids, operands, attributes, enabled, mark), None
        except TooManyPaths:
            limit, in_vain = self.recording.n_branches, self.recording.compiles_in_vain()
            self.full, self.left = self.full or in_vain, self.left or in_vain
            self.recording.note_parting(self.step, op, attributes)
            return None, f"more than {limit} paths were recorded: the rest of this call runs eagerly"
        except BaseException:
            del self.numbers[mark:]
            raise

    follow, forget_expected = expectation.follow, expectation.forget

    def pending(self, meta):
        """A fresh tensor for the next value."""
        tensor = pending_tensor(self, len(self.tensors), meta)
        self.tensors.append(tensor)
        return tensor

    def _note_view(self, tensor, operand):
        frame_views.note(self, tensor, operand)

    def _number(self, x):
        code = number_code(x)
        if code is None:
            number_meta(x)
        self.numbers.append(x)
        return code

    def _record(self, op, ids, operands, attributes, enabled, first_number):
        metas = [self.metas[k] if k >= 0 else number_meta(x) for k, x in zip(ids, operands)]
        meta = op.infer(metas, attributes, state.default_dtype)
        requires = enabled and meta.dtype.is_floating_point and frame_autograd.differentiable(self, op, ids)
        value = ValueMeta(meta.shape, meta.dtype, requires, requires)
        detail = "view" if frame_views.is_view(self, op, ids, attributes) else None
        step = Step(op, ids, dict(attributes), enabled, (value,), len(self.tensors), first_number, user_line(), detail)
        return self.recording.grow(self.step, step)

    run_eagerly = frame_eager.run_eagerly

    def apply_outside(self, reason, op, operands, attributes):
        """The op outside the recording, asked for by the frame itself, which is at work."""
        return self.run_eagerly(reason, apply_eagerly, op, operands, attributes)

    def note(self, reason):
        """Returns the line."""
        self.noted, line = True, user_line()
        self.recording.leaves(reason, line)
        return line

    # --- tensors from outside -------------------------------------------------------------------------------------
    def identify(self, tensor):
        """The number of the value a tensor holds now."""
        if tensor._frame is self:
            return tensor._vid
        vid = self.bound.get(id(tensor))
        return frame_inputs.enter(self, tensor) if vid is None else vid

    forget, turn = door(frame_leaves.forget), door(frame_leaves.turn)

    def lose(self, tensor):
        """`forget` for what the frame itself does."""
        self.forget_expected()
        if id(tensor) in self.homes:
            self.let_go(tensor)
        frame_inputs.go_out(self, tensor)

    @door
    def leave(self, tensor):
        """Forget a tensor: from now on it is one from outside, with the history it has."""
        self.let_go(tensor)

    def let_go(self, tensor):
        """`leave` for what the frame itself does."""
        self.forget_expected()
        if tensor._data is None or id(tensor) in self.homes:
            self.compute(tensor)
        lasting = tensor._node is None and tensor.has_history
        if self.closed and lasting:
            frame_autograd.keep_history(self, tensor)
        elif not self.closed:
            if lasting:
                tensor._node = frame_autograd.node_for(self, tensor._vid)
            self.bound.pop(id(tensor), None)
        tensor._frame = None

    # --- the path so far (needed when something is recorded or compiled, not when replaying) ----------------------
    @property
    def steps(self):
        return self.step.path()

    @property
    def metas(self):
        """number -> ValueMeta."""
        metas = self.step.metas_so_far()
        if self.changed_metas:
            metas = list(metas)
            for vid, meta in self.changed_metas.items():
                metas[vid] = meta
        return metas

    @property
    def externals(self):
        """number -> tensor from outside."""
        met = self.met_expected
        return {v: t for v, t, _ in self.entered} | ({} if met is None else met.tensors_met(self))

    @property
    def versions(self):
        """number -> the version the memory of a tensor from outside had when it came in."""
        return {vid: version for vid, _, version in self._all_entered()}

    def _all_entered(self):
        return self.entered if self.met_expected is None else [*self.entered, *self.met_expected.entered(self)]

    def leaf(self, vid):
        """The tensor that the gradients of a leaf value go to."""
        if vid in self.changed_leaves:
            return self.changed_leaves[vid]
        tensor = self.tensors[vid] if self.tensors else None
        return self.externals[vid] if tensor is None else tensor

    def edge_out(self, vid):
        """Where the gradients of a value that no step of this call made go."""
        return self.outer_edges[vid] if vid in self.outer_edges else frame_leaves.edge_of_leaf(self, vid)

    def meta(self, vid):
        return self.metas[vid]

    # --- changes in place (frame_changes.py) ----------------------------------------------------------------------
    @door
    def apply_inplace(self, op, target, operands, attributes):
        return frame_changes.apply_inplace(self, op, target, operands, attributes)

    make_leaf, takes_memory = door(frame_leaves.make_leaf), door(frame_memory.takes_memory)
    version_of_view, is_of_detached = frame_views.version_of_view, frame_views.is_of_detached
    shows_whole = frame_through.shows_whole

    before_lending = door(frame_inputs.before_lending)

    @door
    def before_new_memory(self, tensor):
        frame_changes.before_new_memory(self, tensor)

    drop_unseen_views = door(frame_views.drop_unseen_views)

    @door
    def update(self, rule, rows, numbers, flags):
        frame_updates.update(self, rule, rows, numbers, flags)

    def take(self, op, tensors, attributes, metas, make_detail=None):
        """A step that makes several values or none; recorded if new. TooManyPaths if it cannot be.

        Until the caller has made the values, the frame's books are half written (`changing`).
        """
        enabled, expected, mark = state.grad_enabled, self.expected, len(self.numbers)
        operands = self._numbers_of(tensors)
        step = self.follow(op, operands, attributes, enabled)
        if step is None and self.expected is not expected:
            # What was expected has not been met: number everything anew.
            del self.numbers[mark:]
            operands = self._numbers_of(tensors)
            step = self.follow(op, operands, attributes, enabled)
        if step is None:
            detail = make_detail() if make_detail else None
            metas = metas if detail is None else detail.metas
            place = (len(self.tensors), mark, user_line())
            step = self.recording.grow(self.step, Step(op, operands, attributes, enabled, metas, *place, detail))
        self.changing = True
        self.step = step
        return step

    def _numbers_of(self, tensors):
        return tuple([-1 if t is None else self._number_of(t) for t in tensors])

    def _number_of(self, x):
        return self.identify(x) if isinstance(x, Tensor) else self._number(x)

    # --- computing ------------------------------------------------------------------------------------------------
    @door
    def materialize(self, tensor):
        """A value is read: run what is pending. Returns its array."""
        return self.compute(tensor)

    def compute(self, tensor):
        """`materialize` for what the frame itself does."""
        if self.closed:
            why = f": {self.failed}" if self.failed else ""
            if tensor._data is not None:
                return tensor._data  # its call has ended just now, in another thread
            raise RuntimeError(f"this tensor belongs to a compiled call that failed before computing it{why}")
        self.recording.leaves(state.reading or "a value was read before the call ended", user_line())
        self.flush_here()
        if tensor._data is None:
            tensor._data = self.array_of(tensor._vid)
        return tensor._data

    def flush_here(self):
        """`flush`, so that calls like this one know it."""
        frame_flush.run_here(self)

    def flush(self):
        """Compute everything pending that is alive or that a later backward may need."""
        frame_flush.run(self, frame_flush.what_is_needed(self, closing=False))

    def array_of(self, vid):
        """The array of a computed value; of a view, the view of its base's array."""
        array = self.arrays.get(vid)
        if array is None:
            step = self.step_of(vid)
            op, attributes = frame_views.as_view(step, self.numbers)
            array = self.arrays[vid] = frame_views.evaluate_view(op, self.array_of(step.operands[0]), attributes)
        return array

    def step_of(self, vid):
        return self.step.maker_of(vid)

    # --- for onlookers (onlooker.py) ------------------------------------------------------------------------------
    def books(self):
        """(all that has been recorded so far, arrays by number, numbers): what values can be computed from."""
        return Stretch(self), self.memory(), self.numbers

    def place(self):
        return self.step, self.flushed

    def number_of(self, tensor):
        """The number of the value that a tensor of the call has now."""
        return tensor._vid if tensor._frame is self else self.bound[id(tensor)]

    def holds(self, tensor):
        """Whether the call reads or writes a tensor's memory, or is to compute it."""
        return tensor._data is None or owner_of(tensor._data) in self.owners

    # --- the end ----------------------------------------------------------------------------------------------------
    def begin(self, arguments):
        """Number the arguments of the call, and what it is expected to meet."""
        self.enter(arguments)
        self.working = False

    def enter(self, arguments, expected=None):
        """The same (`expected` if that is known to hold) for a frame that is not to begin yet."""
        for t in arguments:
            self.identify(t)
        self.start = self.step
        self.n_arguments = len(arguments)
        if expected is None:
            expected = self.recording.expectation
            if expected is None or expected.start is not self.step or not expected.holds():
                return
        expected.enter(self)

    close, fail = frame_end.close, frame_end.fail

    def give_up(self):
        """End the call if that has not been done: an exception came between two lines."""
        if not self.closed:
            frame_end.give_up(self)

    # --- autograd (frame_autograd.py) -----------------------------------------------------------------------------
    @door
    def node_of(self, tensor):
        return node_of(self, tensor)

    @door
    def edge_of(self, tensor):
        return frame_autograd.edge_of(self, tensor)

    @door
    def use_nodes(self, tensor):
        frame_autograd.use_nodes(self, tensor)

    def freed_call(self):
        return FreedCall(self)

    def backward_outside(self, *_):
        return False  # whether a backward of results of this call has been done: see usual_calls.py

    def gradients_outside(self, *_):
        return None

    def recorded(self):
        return self

    def can_differentiate(self, outputs, create_graph, inputs):
        return not self.working and frame_autograd.can_differentiate(self, outputs, create_graph, inputs)

    def before_gradient(self, tensor):
        # If the call fails, .grad is to be what it was.
        self.changed_gradients.append(((tensor,), (tensor._grad,)))

    @door
    def gradients(self, outputs, cotangents, inputs, retain_graph, create_graph):
        return frame_gradients.gradients(self, outputs, cotangents, inputs, retain_graph, create_graph)

    backward = frame_autograd.backward  # not a door: hooks may run in it

    @door
    def take_backward(self, outputs, gradients, retain_graph):
        return frame_autograd.take_backward(self, outputs, gradients, retain_graph)
