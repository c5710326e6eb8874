"""One call of a compiled function: the user's Python runs, every op is checked against the recording, nothing is
computed until a value is needed.

Values are numbered in the order they appear. `tensors[vid]` is the tensor object that holds value vid now: an
in-place change gives its target a new number. `flush` runs the program of the steps since the last flush: at the end
of the call, or when a value is read in the middle. What is alive then is found by counting references.
"""

from operator import itemgetter

from ..compiler.ops.kinds import number_meta
from . import frame_autograd, frame_changes, frame_flush, frame_gradients, frame_inputs, frame_nodes, frame_views
from .attributes import refusal, same_attributes
from .closed import FreedNode, close_graph
from .expectation import lasting, learn
from .frame_again import NothingAgain
from .gate import apply_eagerly
from .modes import state
from .node import edge_of
from .recording import OTHER_DEFAULT, TOO_LARGE, Flush, Step, TooManyPaths, ValueMeta, number_code, user_line
from .tensor import Tensor, pending_tensor


class Frame(NothingAgain):
    """The state of one call. See the module's docstring; frame_autograd.py holds its backward."""

    def __init__(self, recording):
        self.recording = recording
        self.default_dtype = recording.default_dtype
        self.step = recording.root
        self.tensors = []
        self.changed_metas = {}  # number -> meta, where the call knows better than the step
        self.numbers = []
        self.bound = {}  # id of a tensor from outside -> its number
        self.entered = []  # (number, tensor, version of its memory) of the tensors from outside
        self.changed_leaves = {}  # number of a leaf's new value -> the leaf
        self.outer_edges = {}  # number of a changed tensor from outside -> where its gradients went before
        self.same = {}  # number of a value written back into a tensor from outside -> number of that tensor
        self.arrays = {}  # number -> array, for everything already in memory
        self.homes = {}  # id of a tensor from outside that was changed in place -> (tensor, its memory)
        self.owners = {}  # id of the array owning the memory -> numbers of the outside tensors living in it
        self.views = {}  # number of a base -> numbers of its views
        self.roots = {}  # number of a view -> number of its base
        self.versioned = {}  # number of a .data, or of a view of one -> number of the .data, which has the version
        self.rewritten = False  # whether memory was changed while values with another version showed it too
        self.overwritten = set()
        self.freed = set()  # steps whose saved values a backward has freed
        self.nodes = {}
        self.hooked = False  # whether gradients must pass through nodes
        self.n_with_nodes = 0  # how many steps have their node, if they need one
        self.n_unusual_updates = 0
        self.only_update = None  # the update that made all pending changes in place, if one did
        self.changed_singly = False  # whether any tensor was changed in place outside such updates
        self.flushed = 0
        self.first_pending = 0
        self.lasting = ()  # (number, tensor) of what a call like this one may meet again
        self.confirmed = None  # what calls like this one are expected to meet (usual_learning.py)
        self.updates = {}  # step -> its UsualUpdate
        self.walked = None  # the nodes that the backward pass going on has run (frame_walks.py)
        self.walks = []  # the passes that were done, None for one that cannot be said
        self.uses_hooks = self.has_nodes_out = False  # whether the call has results with nodes of their own
        self.flushes = []  # where values were read before the end (recording.Flush)
        self.held = ()  # numbers of the pending values that somebody held when what is needed was last asked
        self.needed = None  # what was computed at the end
        self.noted = False  # whether anything was reported for explain
        self.n_arguments = 0
        self.expected = None  # expectation.py
        self.met_expected = None  # the same, also when all of it has been met
        self.start = recording.root
        self.full = False  # no room for more paths: ops run eagerly from here on
        self.closed = False
        self.closing = False
        self.graph_node = None  # a weak reference to the node of the finished call, if it has results to differentiate
        self.ends_freed = False  # whether the call has results whose history its own backward has freed
        self.failed = None
        self.last_program = self.end_program = None  # the last one, and the one that ran at the end
        self.saved = []
        self.changed_gradients = []  # (tensors, what their .grad was before the call assigned it)
        self.remembered = []  # (function, arguments) that take back a change, see runtime/update.py
        self.first_pending_at_close, self.flushed_at_close = 0, 0

    # --- ops ----------------------------------------------------------------------------------------------------
    def apply(self, op, operands, attributes):
        """The op as a step of the recording; its result is pending."""
        if state.default_dtype is not self.default_dtype:
            return self.run_eagerly(OTHER_DEFAULT, apply_eagerly, op, operands, attributes)
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
                    del self.numbers[mark:]
                    return self.apply(op, operands, attributes)
                if jump is not None:
                    self.tensors += jump[1]
                break
        else:
            step = None
            if expected is not None:
                step = self.follow(op, ids, attributes, enabled) if self.expected is expected else None
                if step is None:
                    # The expectation failed: what it had numbered must be identified again.
                    del self.numbers[mark:]
                    return self.apply(op, operands, attributes)
            if step is None:
                step, reason = self._new_step(op, ids, operands, attributes, enabled, mark)
                if step is None:
                    del self.numbers[mark:]
                    return self.run_eagerly(reason, apply_eagerly, op, operands, attributes)
        self.step = step
        tensor = pending_tensor(self, len(self.tensors), step.metas[0])
        self.tensors.append(tensor)
        if step.detail is not None:
            self._note_view(tensor, step.operands[0])
        return tensor

    def _new_step(self, op, ids, operands, attributes, enabled, mark):
        """(the step recorded for an op, None), or (None, why it must run eagerly)."""
        try:
            if self.full:
                raise TooManyPaths
            reason = self._eager_reason(op, ids, operands, attributes)
            if reason is not None:
                return None, reason
            return self._record(op, ids, operands, attributes, enabled, mark), None
        except TooManyPaths:
            limit = self.recording.n_branches
            return None, f"more than {limit} paths were recorded: the rest of this call runs eagerly"
        except BaseException:
            del self.numbers[mark:]
            raise

    def follow(self, op, operands, attributes, enabled):
        """The recorded step that comes next if it is this one, past inputs that were expected; else None.

        If it is not, what was expected and not met yet is forgotten, and the operands must be identified again.
        """
        step = self.step.find(op, operands, attributes, enabled)
        if self.expected is None:
            return step
        met = []
        if step is None:
            target, met = self.expected.jumps.get(self.step, (None, None))
            step = target.find(op, operands, attributes, enabled) if target is not None else None
        if step not in self.expected.path:
            self.forget_expected()
            return None
        if met:
            # An update that turns out to have to run eagerly stays here.
            self.step = target
            self.tensors += met
        return step

    def forget_expected(self):
        """Expected tensors that this call has not met come in one by one from now on, if at all."""
        if self.expected is None:
            return
        expected, self.expected, self.met_expected = self.expected, None, None
        self.entered = sorted([*self.entered, *expected.entered(self)], key=itemgetter(0))
        met = self.step.metas_count()
        for vid, tensor in zip(expected.numbers, expected.tensors):
            if vid < met:
                continue
            del self.bound[id(tensor)]
            array = self.arrays.pop(vid)
            base = array.base
            owner = id(array) if base is None else id(base)
            self.owners[owner] = [v for v in self.owners[owner] if v != vid]

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

    def _eager_reason(self, op, ids, operands, attributes):
        if TOO_LARGE in ids:
            return f"{op.name}: an integer does not fit into 64 bits"
        refused = refusal(attributes) if attributes else None
        if refused is not None:
            return f"{op.name}: {refused}"
        check = op.extra.get("eager_only")
        if check is None:
            return None
        kinds = [x.dtype if isinstance(x, Tensor) else number_meta(x).dtype for x in operands]
        reason = check(kinds, attributes)
        return f"{op.name}: {reason}" if reason else None

    def run_eagerly(self, reason, function, *args):
        """Compute what is pending, then run function(*args) outside the recording."""
        self.note(reason)
        self.flush()
        state.frame = None
        try:
            return function(*args)
        finally:
            state.frame = self

    @property
    def has_other_default(self):
        return state.default_dtype is not self.default_dtype

    def note(self, reason):
        self.noted = True
        self.recording.note(reason, user_line())

    # --- tensors from outside -------------------------------------------------------------------------------------
    def identify(self, tensor):
        """The number of the value a tensor holds now."""
        if tensor._frame is self:
            return tensor._vid
        vid = self.bound.get(id(tensor))
        return frame_inputs.enter(self, tensor) if vid is None else vid

    def forget(self, tensor):
        """A tensor from outside is about to change its flags: where it is used next, it comes in anew."""
        self.forget_expected()
        if id(tensor) in self.homes:
            self.leave(tensor)
        self.bound.pop(id(tensor), None)

    def leave(self, tensor):
        """Forget a tensor: from now on it is one from outside, with the history it has."""
        self.forget_expected()
        if tensor._data is None or id(tensor) in self.homes:
            self.materialize(tensor)
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
        return {vid: tensor for vid, tensor, _ in self._all_entered()}

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
        return self.outer_edges[vid] if vid in self.outer_edges else edge_of(self.leaf(vid))

    def meta(self, vid):
        return self.metas[vid]

    # --- changes in place (frame_changes.py) ----------------------------------------------------------------------
    def apply_inplace(self, op, target, operands, attributes):
        return frame_changes.apply_inplace(self, op, target, operands, attributes)

    def shown_by(self, view):
        return frame_views.shown_by(self, view)

    def before_new_memory(self, tensor):
        frame_changes.before_new_memory(self, tensor)

    def living_views(self, target):
        return frame_views.living_views(self, target)

    def update(self, rule, rows, numbers, flags):
        frame_changes.update(self, rule, rows, numbers, flags)

    def take(self, op, tensors, attributes, metas, make_detail=None):
        """A step that makes several values or none; recorded if new. TooManyPaths if it cannot be."""
        enabled, expected = state.grad_enabled, self.expected
        operands = self._numbers_of(tensors)
        step = self.follow(op, operands, attributes, enabled)
        if step is None and self.expected is not expected:
            # What was expected has not been met: number everything anew.
            operands = self._numbers_of(tensors)
            step = self.follow(op, operands, attributes, enabled)
        if step is None:
            detail = make_detail() if make_detail else None
            metas = metas if detail is None else detail.metas
            place = (len(self.tensors), len(self.numbers), user_line())
            step = self.recording.grow(self.step, Step(op, operands, attributes, enabled, metas, *place, detail))
        self.step = step
        return step

    def _numbers_of(self, tensors):
        return tuple([-1 if t is None else self.identify(t) for t in tensors])

    # --- computing ------------------------------------------------------------------------------------------------
    def materialize(self, tensor):
        """A value is read: run what is pending. Returns its array."""
        if self.closed:
            why = f": {self.failed}" if self.failed else ""
            raise RuntimeError(f"this tensor belongs to a compiled call that failed before computing it{why}")
        self.recording.note("a value was read before the call ended", user_line())
        needed = frame_flush.what_is_needed(self, closing=False)
        step = self.step
        program = frame_flush.run(self, needed)
        self.flushes.append(Flush(step, needed, program, self.held))
        if tensor._data is None:
            tensor._data = self.array_of(tensor._vid)
        return tensor._data

    def flush(self):
        """Compute everything pending that is alive or that a later backward may need."""
        frame_flush.run(self, frame_flush.what_is_needed(self, closing=False))

    def array_of(self, vid):
        """The array of a computed value; of a view, the view of its base's array."""
        array = self.arrays.get(vid)
        if array is None:
            step = self.step_of(vid)
            array = self.arrays[vid] = frame_views.evaluate_view(
                step.op, self.array_of(step.operands[0]), step.attributes
            )
        return array

    def step_of(self, vid):
        """The step that makes a value."""
        low, high = 0, len(self.steps) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.steps[middle].first <= vid:
                low = middle
            else:
                high = middle - 1
        while not self.steps[low].metas:
            low -= 1
        return self.steps[low]

    # --- the end ----------------------------------------------------------------------------------------------------
    def begin(self, arguments, expected=None):
        """Number the arguments of the call, and what it is expected to meet (`expected` if that is known to hold)."""
        for t in arguments:
            self.identify(t)
        self.start = self.step
        self.n_arguments = len(arguments)
        if expected is None:
            expected = self.recording.expectation
            if expected is None or expected.start is not self.step or not expected.holds():
                return
        expected.enter(self)

    def close(self):
        """Compute what is alive, and connect it to the autograd graph outside."""
        met = self.expected is not None and self.expected.end is self.step
        if not met:
            self.forget_expected()
        needed = None
        try:
            self.closing = True
            if self.hooked or self.rewritten:
                self.has_nodes_out = frame_nodes.end_nodes(self)
            needed = frame_flush.what_is_needed(self, closing=True)
            self.first_pending_at_close, self.flushed_at_close = self.first_pending, self.flushed
            self.end_program = frame_flush.run(self, needed)
            close_graph(self, needed)
            self.needed = needed
            self.lasting = lasting(self)
            if not met:
                learn(self, self.start)
        except BaseException as error:
            self.fail(error)
            raise
        self._release(needed)

    def fail(self, error):
        """Nothing was computed: what the call has already said about its results is taken back."""
        self.failed = f"{type(error).__name__}: {error}"
        for tensor, home, _ in self.homes.values():
            tensor._data, tensor._frame = home, None
        self.homes = {}
        for tensors, gradients in reversed(self.changed_gradients):
            for tensor, gradient in zip(tensors, gradients):
                tensor._grad = gradient
        for restore, arguments in reversed(self.remembered):
            restore(*arguments)
        self._release(None)

    def _release(self, needed):
        """Tensors that no backward leads through become ordinary ones."""
        self.closed = True
        if needed is None or self.flushed_at_close or self.failed:
            left = [t for t in self.tensors if t is not None]
        else:
            vids = (*needed.live, *needed.views)
            if self.changed_singly:
                vids += tuple([new for _, new in needed.commits])
            left = [self.tensors[v] for v in vids]
        for tensor in left:
            if tensor._frame is not self or (tensor._data is None and self.failed):
                continue
            if tensor._node is not None or not (tensor._requires_grad and tensor._meta.history):
                tensor._frame = None
        self.tensors, self.bound, self.views, self.owners, self.nodes = [], {}, {}, {}, {}
        if self.graph_node is None:
            # Computed now or in the middle of the call: its graph may still be asked for.
            self.ends_freed = any(t._frame is self for t in left)
            # A result keeps its call alive; it must not keep the call's arguments alive with it.
            self.arrays = {}
            self.entered = [e for e in self.entered if e[1]._requires_grad] if self.ends_freed else []
            if not self.ends_freed:
                self.met_expected = None

    # --- autograd (frame_autograd.py) -----------------------------------------------------------------------------
    def node_of(self, tensor):
        return frame_autograd.node_of(self, tensor)

    def edge_of(self, tensor):
        return frame_autograd.edge_of(self, tensor)

    def use_nodes(self, tensor):
        frame_autograd.use_nodes(self, tensor)

    def freed_node(self):
        return FreedNode(self)

    def backward_outside(self, *_):
        """Whether a backward of results of this call has been done; usual_calls.py knows calls where it can be."""
        return False

    def gradients_outside(self, *_):
        return None  # what autograd.grad gives, likewise

    def recorded(self):
        return self  # a UsualFrame becomes a Frame

    def can_differentiate(self, outputs, create_graph, inputs):
        return frame_autograd.can_differentiate(self, outputs, create_graph, inputs)

    def before_gradient(self, tensor):
        # If the call fails, .grad is to be what it was.
        self.changed_gradients.append(((tensor,), (tensor._grad,)))

    def gradients(self, outputs, cotangents, inputs, retain_graph, create_graph):
        return frame_gradients.gradients(self, outputs, cotangents, inputs, retain_graph, create_graph)

    def backward(self, outputs, gradients, retain_graph):
        frame_autograd.backward(self, outputs, gradients, retain_graph)
