"""One call of a compiled function: the user's Python runs, every op is checked against the recording, nothing is
computed until a value is needed.

Values are numbered in the order they appear. `tensors[vid]` is the tensor object that holds value vid now: an
in-place change gives its target a new number. `flush` runs the program of the steps since the last flush: at the end
of the call, or when a value is read in the middle. What is alive then is found by counting references.
"""

from sys import getrefcount

import numpy as np

from ..compiler.graph import Graph
from ..compiler.ops.comparison import cast
from ..compiler.ops.kinds import number_meta
from . import frame_autograd
from .closed import close_graph
from .description import known_values
from .evaluate import strides_in_elements
from .gate import apply_eagerly, check_fits, inplace_eagerly
from .modes import state
from .program import Needed, program_for, run_steps_eagerly
from .recording import ASSIGN, INPUT, NUMBER_CODES, NUMBER_DTYPES, UPDATE, Step, TooManyPaths, ValueMeta, user_line
from .tensor import Tensor
from .update import update_eagerly

# References to a tensor nobody else holds: the list, the loop variable, the argument of getrefcount.
_UNUSED_REFERENCES = 3


class Frame:
    """The state of one call. See the module's docstring; frame_autograd.py holds its backward."""

    def __init__(self, recording):
        self.recording = recording
        self.step = recording.root
        self.steps = []
        self.tensors = []
        self.metas = []
        self.numbers = []
        self.bound = {}  # id of a tensor from outside -> its number
        self.externals = {}  # number -> that tensor
        self.leaves = {}  # number -> the tensor gradients of this value go to
        self.same = {}  # number of a value written back into a tensor from outside -> number of that tensor
        self.versions = {}  # number -> the version of its memory when it came in
        self.arrays = {}  # number -> array, for everything already in memory
        self.homes = {}  # id of a tensor from outside that was changed in place -> (tensor, its memory)
        self.owners = {}  # id of the array owning the memory -> numbers of the outside tensors living in it
        self.views = {}  # number of a base -> numbers of its views
        self.roots = {}  # number of a view -> number of its base
        self.overwritten = set()
        self.freed = set()  # steps whose saved values a backward has freed
        self.nodes = {}
        self.hooked = False
        self.flushed = 0
        self.first_pending = 0
        self.closed = False
        self.graph_node = None
        self.failed = None
        self.last_program = None
        self.saved = []
        self.known_at_close, self.flushed_at_close = [], 0

    # --- ops ----------------------------------------------------------------------------------------------------
    def apply(self, op, operands, attributes):
        """The op as a step of the recording; its result is pending."""
        mark = len(self.numbers)
        ids = tuple([self.identify(x) if isinstance(x, Tensor) else self._number(x) for x in operands])
        enabled = state.grad_enabled
        step = self.step.find(op, ids, attributes, enabled)
        if step is None:
            try:
                reason = self._eager_reason(op, operands, attributes)
                if reason is None:
                    step = self._record(op, ids, operands, attributes, enabled, mark)
            except TooManyPaths:
                reason = (
                    f"more than {self.recording.n_branches} paths were recorded: the rest of this call runs eagerly"
                )
            except BaseException:
                del self.numbers[mark:]
                raise
            if step is None:
                del self.numbers[mark:]
                return self.run_eagerly(reason, apply_eagerly, op, operands, attributes)
        return self._advance(step)

    def _advance(self, step):
        """Take the step: a fresh pending tensor for its one value."""
        self.step = step
        self.steps.append(step)
        meta = step.metas[0]
        tensor = Tensor(None)
        tensor._frame = self
        tensor._vid = len(self.tensors)
        tensor._requires_grad = meta.requires_grad
        self.tensors.append(tensor)
        self.metas.append(meta)
        if step.detail is not None:
            self._note_view(tensor, step.operands[0])
        return tensor

    def _note_view(self, tensor, base):
        root = self.roots.get(base, base)
        self.roots[tensor._vid] = root
        self.views.setdefault(root, []).append(tensor._vid)
        tensor._base = self.tensors[root]

    def _number(self, x):
        code = NUMBER_CODES.get(type(x))
        if code is None:
            number_meta(x)
        self.numbers.append(x)
        return code

    def _record(self, op, ids, operands, attributes, enabled, first_number):
        metas = [self.metas[k] if k >= 0 else number_meta(x) for k, x in zip(ids, operands)]
        metas = [m if hasattr(m, "weak") else _Operand(m) for m in metas]
        meta = op.infer(metas, attributes, state.default_dtype)
        requires = enabled and meta.dtype.is_floating_point and frame_autograd.differentiable(self, op, ids)
        value = ValueMeta(meta.shape, meta.dtype, requires, requires)
        detail = "view" if (op.kind == "view" or "view" in op.extra) and ids and ids[0] >= 0 else None
        step = Step(op, ids, dict(attributes), enabled, (value,), len(self.tensors), first_number, user_line(), detail)
        return self.recording.grow(self.step, step)

    def _eager_reason(self, op, operands, attributes):
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

    def note(self, reason):
        self.recording.note(reason, user_line())

    # --- tensors from outside -------------------------------------------------------------------------------------
    def identify(self, tensor):
        """The number of the value a tensor holds now."""
        if tensor._frame is self:
            return tensor._vid
        vid = self.bound.get(id(tensor))
        return self._enter(tensor) if vid is None else vid

    def _enter(self, tensor):
        array = tensor.array
        owner = _owner(array)
        if self.homes and owner in self.owners and self._shares_home(owner, array):
            self.note("a tensor shares memory with one changed earlier in the call")
            self.flush()
        leaf = not tensor.has_history
        key = (array.shape, array.dtype, tensor._requires_grad, leaf, strides_in_elements(array))
        step = self.step.find(INPUT, (), key, True)
        if step is None:
            meta = ValueMeta(array.shape, tensor.dtype, tensor._requires_grad, False)
            new = Step(INPUT, (), key, True, (meta,), len(self.tensors), len(self.numbers), user_line())
            try:
                step = self.recording.grow(self.step, new)
            except TooManyPaths:
                # An input alone runs nothing: let it pass, the op that follows falls back.
                step = new
        vid = len(self.tensors)
        self.step = step
        self.steps.append(step)
        self.tensors.append(tensor)
        self.metas.append(step.metas[0])
        self.bound[id(tensor)] = vid
        self.externals[vid] = self.leaves[vid] = tensor
        self.versions[vid] = tensor._version
        self.arrays[vid] = array
        self.owners.setdefault(owner, []).append(vid)
        return vid

    def _shares_home(self, owner, array):
        return any(
            id(self.externals[v]) in self.homes and np.may_share_memory(self.arrays[v], array)
            for v in self.owners[owner]
        )

    def leave(self, tensor):
        """Forget a tensor: from now on it is one from outside, with the history it has."""
        if tensor._data is None:
            self.materialize(tensor)
        if not self.closed:
            if tensor._node is None and self.has_history(tensor._vid):
                tensor._node = frame_autograd.node_for(self, tensor._vid)
            self.bound.pop(id(tensor), None)
        tensor._frame = None

    def meta(self, vid):
        return self.metas[vid]

    # --- changes in place -----------------------------------------------------------------------------------------
    def apply_inplace(self, op, target, operands, attributes):
        vid = self.identify(target)
        reason = self._alias_reason(target, vid)
        if reason is not None:
            return self._inplace_eagerly(reason, target, inplace_eagerly, op, target, operands, attributes)
        new = self.apply(op, operands, attributes)
        check_fits(op.name, target, new)
        if new.dtype is not target.dtype:
            new = self.apply(cast, (new,), {"dtype": target.dtype})
        if new._frame is not self:
            return self._inplace_eagerly(f"{op.name}: no kernel", target, _copy_into, target, new)
        self._assign(target, new._vid, record=True)
        return target

    def _inplace_eagerly(self, reason, target, function, *args):
        vids = self._group(target._vid if target._frame is self else self.bound[id(target)])
        result = self.run_eagerly(reason, function, *args)
        self.overwritten |= vids
        self.leave(target)
        self.bound.pop(id(target), None)
        return result

    def _group(self, vid):
        root = self.roots.get(vid, vid)
        return {root, *self.views.get(root, ())}

    def _alias_reason(self, target, vid):
        """Why changing the target in place must run eagerly: other living tensors see its memory. Else None."""
        group = self._group(vid)
        for other in group:
            t = self.tensors[other]
            if other != vid and t is not None and (other in self.externals or getrefcount(t) > _UNUSED_REFERENCES):
                return "in-place change of a tensor that has living views (or is one)"
        if self.metas[vid].history and not state.grad_enabled:
            return "in-place change under no_grad of a tensor that has a history"
        if vid not in self.externals:
            return None
        array = self.arrays[vid]
        for other in self.owners[_owner(array)]:
            if other != vid and np.may_share_memory(self.arrays[other], array):
                return "in-place change of memory that another tensor of the call shares"
        storage = target._storage
        if storage is not None and storage.sharers is not None and any(t is not target for t in storage.sharers):
            return "in-place change of a tensor whose memory another living tensor shares"
        return None

    def _assign(self, target, new, *, record):
        """The target holds value `new` from now on; a tensor from outside gets it into its memory at the flush."""
        old = self.identify(target)
        if record:
            self._take(ASSIGN, (old, new), None, ())
        if target._data is not None:
            if id(target) in self.bound:
                self.homes[id(target)] = (target, target._data)
            target._frame = self
            target._data = None
        if target._requires_grad and not self.metas[new].requires_grad:
            self._keep_flag(target, old, new)
        target._node = None
        target._vid = new
        target._requires_grad = self.metas[new].requires_grad
        target.bump_version()
        self.overwritten.add(old)
        self.tensors[old] = None
        self.tensors[new] = target

    def _keep_flag(self, target, old, new):
        """A leaf changed under no_grad stays a leaf that requires gradients, for what is computed from it later."""
        meta = self.metas[new]
        if not self.metas[old].history:
            self.metas[new] = ValueMeta(meta.shape, meta.dtype, True, False)
            self.leaves[new] = target

    def _take(self, op, operands, attributes, metas, make_detail=None):
        """A step that makes several values or none; recorded if new. TooManyPaths if it cannot be."""
        step = self.step.find(op, operands, attributes, state.grad_enabled)
        if step is None:
            detail = make_detail() if make_detail else None
            metas = metas if detail is None else detail.metas
            new = Step(
                op,
                operands,
                attributes,
                state.grad_enabled,
                metas,
                len(self.tensors),
                len(self.numbers),
                user_line(),
                detail,
            )
            step = self.recording.grow(self.step, new)
        self.step = step
        self.steps.append(step)
        return step

    def update(self, rule, rows, numbers, flags):
        """`runtime.update.update` as one step."""
        ids = tuple([self.identify(x) for row in rows for x in row])
        reason = self._update_reason(rows)
        if reason is None:
            mark = len(self.numbers)
            for n in numbers:
                self._number(float(n))
            key = (rule, len(rows), tuple(sorted(flags.items())))
            try:
                step = self._take(UPDATE, ids, key, (), lambda: UpdateDetail(self, rule, rows, numbers, flags))
            except TooManyPaths:
                reason = "too many paths"
                del self.numbers[mark:]
        if reason is not None:
            for row in rows:
                self.run_eagerly(reason, update_eagerly, rule, row, numbers, flags)
                for x in row:
                    self.leave(x) if x._frame is self else None
                    self.bound.pop(id(x), None)
            return
        step.first_number = len(self.numbers) - len(numbers)
        self._apply_update(step, rows)

    def _apply_update(self, step, rows):
        for meta in step.metas:
            self.tensors.append(None)
            self.metas.append(meta)
        vid = step.first
        for row in rows:
            for position in step.detail.targets:
                self._assign(row[position], vid, record=False)
                vid += 1

    def _update_reason(self, rows):
        for row in rows:
            for x in row:
                reason = self._alias_reason(x, self.identify(x))
                if reason is not None:
                    return reason
        return None

    # --- computing ------------------------------------------------------------------------------------------------
    def materialize(self, tensor):
        """A value is read: run what is pending. Returns its array."""
        if self.closed:
            why = f": {self.failed}" if self.failed else ""
            raise RuntimeError(f"this tensor belongs to a compiled call that failed before computing it{why}")
        self.note("a value was read before the call ended")
        self.flush()
        if tensor._data is None:
            tensor._data = self.array_of(tensor._vid)
        return tensor._data

    def flush(self):
        """Compute everything pending that is alive or that a later backward may need."""
        self._run(self._needed(closing=False))

    def _needed(self, closing):
        live, views = [], []
        for vid in range(self.first_pending, len(self.tensors)):
            t = self.tensors[vid]
            if t is None or t._data is not None or id(t) in self.homes:
                continue
            if getrefcount(t) > _UNUSED_REFERENCES:
                (views if vid in self.roots else live).append(vid)
        differentiable = [v for v in [*live, *views] if self.metas[v].history]
        roots = {self.roots[v] for v in views}
        commits = [(self.bound[id(tensor)], tensor._vid) for tensor, _ in self.homes.values()]
        if differentiable and not closing:
            roots |= {self.roots.get(v, v) for v in frame_autograd.saved_values(self)}
        live += sorted(r for r in roots if r not in self.arrays and r not in live)
        ends = frame_autograd.living(self, differentiable) if closing else ()
        return Needed(tuple(live), tuple(views), tuple(commits), ends)

    def _run(self, needed):
        if self.flushed < len(self.steps) and (needed.live or needed.commits or needed.views):
            program = None
            if needed.live or needed.commits:
                program = program_for(self, needed)
                if program.run(self, needed):
                    # An index was out of range: nothing was written; eager mode finds out which and raises.
                    run_steps_eagerly(self)
                    raise AssertionError("a compiled check failed that eager mode passes")
            self._settle(needed)
            self.last_program = program
        self.flushed = len(self.steps)
        self.first_pending = len(self.tensors)

    def _settle(self, needed):
        for tensor, home in self.homes.values():
            tensor._data = home
            self.arrays[tensor._vid] = home
            self.same[tensor._vid] = self.bound[id(tensor)]
        self.homes = {}
        for vid in needed.live:
            tensor = self.tensors[vid]
            if tensor is not None and tensor._data is None:
                tensor._data = self.arrays[vid]
        for vid in needed.views:
            tensor = self.tensors[vid]
            tensor._data = self.array_of(vid)
            if np.may_share_memory(tensor._data, self.array_of(self.roots[vid])):
                tensor.share_storage(tensor._base)
            else:
                tensor._base = None

    def array_of(self, vid):
        """The array of a computed value; of a view, the view of its base's array."""
        array = self.arrays.get(vid)
        if array is None:
            step = self.step_of(vid)
            array = self.arrays[vid] = step.op.evaluate(self.array_of(step.operands[0]), **step.attributes)
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
    def close(self):
        """Compute what is alive, and connect it to the autograd graph outside."""
        try:
            needed = self._needed(closing=True)
            self.known_at_close, self.flushed_at_close = known_values(self), self.flushed
            self._run(needed)
            close_graph(self, needed)
        except BaseException as error:
            self.failed = f"{type(error).__name__}: {error}"
            for tensor, home in self.homes.values():
                tensor._data, tensor._frame = home, None
            raise
        finally:
            self._release()

    def _release(self):
        self.closed = True
        for tensor in self.tensors:
            if tensor is None or tensor._frame is not self or (tensor._data is None and self.failed):
                continue
            if not (tensor._requires_grad and self.metas[tensor._vid].history):
                tensor._frame = None
        self.tensors, self.bound, self.views, self.owners, self.nodes = [], {}, {}, {}, {}
        if self.graph_node is None:
            self.arrays = {}

    # --- autograd (frame_autograd.py) -----------------------------------------------------------------------------
    def has_history(self, vid):
        return self.metas[vid].history

    def node_of(self, tensor):
        return frame_autograd.node_of(self, tensor)

    def edge_of(self, tensor):
        return frame_autograd.edge_of(self, tensor)

    def use_nodes(self, tensor):
        frame_autograd.use_nodes(self, tensor)

    def can_differentiate(self, outputs, create_graph, inputs):
        return frame_autograd.can_differentiate(self, outputs, create_graph, inputs)

    def backward(self, outputs, gradients, retain_graph):
        frame_autograd.backward(self, outputs, gradients, retain_graph)


class _Operand:
    """A ValueMeta as op rules want it."""

    __slots__ = ("shape", "dtype")
    weak = False

    def __init__(self, meta):
        self.shape, self.dtype = meta.shape, meta.dtype

    @property
    def ndim(self):
        return len(self.shape)


class UpdateDetail:
    """Which elements of a row an update rule replaces, found by running it on shapes alone."""

    __slots__ = ("targets", "metas", "row_length", "n_numbers")

    def __init__(self, frame, rule, rows, numbers, flags):
        graph = Graph("update", state.default_dtype)
        row = [graph.input(x.shape, x.dtype) for x in rows[0]]
        new = rule(*row, *(graph.scalar(NUMBER_DTYPES[-3]) for _ in numbers), **flags)
        self.targets = tuple(k for k, v in enumerate(new) if v is not None)
        self.row_length = len(row)
        self.n_numbers = len(numbers)
        self.metas = tuple(
            ValueMeta(r[k].shape, r[k].dtype, r[k]._requires_grad, False) for r in rows for k in self.targets
        )


def _owner(array):
    base = array.base
    return id(array) if base is None else id(base)


def _copy_into(target, new):
    np.copyto(target.array, new.array, casting="unsafe")
    target.bump_version()
    return target
