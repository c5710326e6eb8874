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
from .tensor import Tensor, pending_tensor
from .update import update_eagerly



def _references_in_variable():
    items = [object()]
    item = items[0]
    return getrefcount(item)


# References to a tensor nobody else holds, as getrefcount counts them here: for one in a list and a variable, and for
# one in a list that is mapped over. Measured, because interpreters count their own references differently.
_UNUSED_REFERENCES = _references_in_variable()
_UNUSED_IN_LIST = next(map(getrefcount, [object()]))


class Frame:
    """The state of one call. See the module's docstring; frame_autograd.py holds its backward."""

    def __init__(self, recording):
        self.recording = recording
        self.step = recording.root
        self.tensors = []
        self.changed_metas = {}  # number -> meta, where the call knows better than the step
        self.numbers = []
        self.bound = {}  # id of a tensor from outside -> its number
        self.entered = []  # (number, tensor, version its memory had) of the tensors from outside
        self.changed_leaves = {}  # number of a leaf's new value -> the leaf
        self.same = {}  # number of a value written back into a tensor from outside -> number of that tensor
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
        self.full = False  # no room for more paths: ops run eagerly from here on
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
        ids = ()
        for x in operands:
            if isinstance(x, Tensor):
                ids += (x._vid if x._frame is self else self.identify(x),)
            else:
                ids += (self._number(x),)
        enabled = state.grad_enabled
        for step in self.step.following:
            if (
                step.op is op
                and step.operands == ids
                and step.attributes == attributes
                and step.grad_enabled is enabled
            ):
                break
        else:
            step = None
            try:
                if self.full:
                    raise TooManyPaths
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
        self.step = step
        tensor = pending_tensor(self, len(self.tensors), step.metas[0])
        self.tensors.append(tensor)
        if step.detail is not None:
            self._note_view(tensor, step.operands[0])
        return tensor

    def pending(self, meta):
        """A fresh tensor for the next value."""
        tensor = pending_tensor(self, len(self.tensors), meta)
        self.tensors.append(tensor)
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
        array = tensor._data
        if array is None:
            array = tensor.array
        base = array.base
        owner = id(array) if base is None else id(base)
        if self.homes and owner in self.owners and self._shares_home(owner, array):
            self.note("a tensor shares memory with one changed earlier in the call")
            self.flush()
        # The usual case is checked by identity: the array that came in here on the last call.
        following = self.step.following
        step = following[0] if len(following) == 1 else None
        if (
            step is None
            or step.op is not INPUT
            or step.detail is None
            or step.detail[0] is not array
            or step.detail[1] is not tensor._requires_grad
            or tensor._node is not None
            or tensor._frame is not None
            or array.shape != step.metas[0].shape
        ):
            step = self._input_step(tensor, array)
        vid = len(self.tensors)
        self.step = step
        self.tensors.append(tensor)
        self.bound[id(tensor)] = vid
        storage = tensor._storage
        self.entered.append((vid, tensor, 0 if storage is None else storage.version))
        self.arrays[vid] = array
        if owner in self.owners:
            self.owners[owner].append(vid)
        else:
            self.owners[owner] = [vid]
        return vid

    def _input_step(self, tensor, array):
        leaf = not tensor.has_history
        key = (array.shape, array.dtype, tensor._requires_grad, leaf, strides_in_elements(array))
        step = self.step.find(INPUT, (), key, True)
        if step is None:
            meta = ValueMeta(array.shape, tensor.dtype, tensor._requires_grad, False)
            new = Step(INPUT, (), key, True, (meta,), len(self.tensors), len(self.numbers), user_line())
            try:
                step = self.recording.grow(self.step, new)
            except TooManyPaths:
                # The input alone runs nothing; whatever follows does so eagerly.
                self.full = True
                step = new
                step.parent, step.depth = self.step, self.step.depth + 1
        if leaf:
            step.detail = (array, tensor._requires_grad)
        return step

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
            if tensor._node is None and tensor._meta is not None and tensor._meta.history:
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
        return {vid: tensor for vid, tensor, _ in self.entered}

    @property
    def versions(self):
        """number -> the version the memory of a tensor from outside had when it came in."""
        return {vid: version for vid, _, version in self.entered}

    def leaf(self, vid):
        """The tensor that the gradients of a leaf value go to."""
        if vid in self.changed_leaves:
            return self.changed_leaves[vid]
        tensor = self.tensors[vid] if self.tensors else None
        return self.externals[vid] if tensor is None else tensor

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
        self._take(ASSIGN, (self.identify(target), new._vid), None, ())
        self._assign(target, new._vid, new._meta)
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
        for other in self._group(vid) if self.views else ():
            t = self.tensors[other]
            if other != vid and t is not None and (other in self.externals or getrefcount(t) > _UNUSED_REFERENCES):
                return "in-place change of a tensor that has living views (or is one)"
        meta = target._meta
        if meta is not None and meta.history and not state.grad_enabled and target._frame is self:
            return "in-place change under no_grad of a tensor that has a history"
        if target._frame is self:
            return None
        array = self.arrays[vid]
        neighbours = self.owners[_owner(array)]
        if len(neighbours) > 1 and any(o != vid and np.may_share_memory(self.arrays[o], array) for o in neighbours):
            return "in-place change of memory that another tensor of the call shares"
        storage = target._storage
        if storage is not None and storage.sharers is not None and not storage.only_shared_by(target):
            return "in-place change of a tensor whose memory another living tensor shares"
        return None

    def _assign(self, target, new, meta):
        """The target holds value `new` from now on; a tensor from outside gets it into its memory at the flush."""
        if target._frame is self:
            old = target._vid
            was_leaf = target._meta is None or not target._meta.history
        else:
            old = self.bound[id(target)]
            was_leaf = True
        if target._data is not None:
            if id(target) in self.bound:
                self.homes[id(target)] = (target, target._data)
            target._frame = self
            target._data = None
        if target._requires_grad and was_leaf and not meta.history:
            # A leaf changed under no_grad stays a leaf that requires gradients, for what is computed from it later.
            if not meta.requires_grad:
                meta = self.changed_metas[new] = ValueMeta(meta.shape, meta.dtype, True, False)
            self.changed_leaves[new] = target
        target._node = None
        target._vid = new
        target._meta = meta
        target._requires_grad = meta.requires_grad
        storage = target._storage
        if storage is None:
            target.bump_version()
        else:
            storage.version += 1
        self.overwritten.add(old)
        self.tensors[old] = None
        self.tensors[new] = target

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
        return step

    def update(self, rule, rows, numbers, flags):
        """`runtime.update.update` as one step."""
        ids = tuple([x._vid if x._frame is self else self.identify(x) for row in rows for x in row])
        key = (rule, len(rows), tuple(sorted(flags.items())) if flags else ())
        step = self.step.find(UPDATE, ids, key, state.grad_enabled)
        try:
            if step is None:
                step = self._record_update(ids, key, UpdateDetail(self, rule, rows, numbers, flags))
            reason = self._update_reason(step, rows)
        except TooManyPaths:
            reason = "too many paths"
        if reason is not None:
            for row in rows:
                self.run_eagerly(reason, update_eagerly, rule, row, numbers, flags)
                for x in row:
                    if x._frame is self:
                        self.leave(x)
                    self.bound.pop(id(x), None)
            return
        for n in numbers:
            self.numbers.append(float(n))
        self.step = step
        self._apply_update(step, rows)

    def _record_update(self, ids, key, detail):
        line, first_number = user_line(), len(self.numbers)
        enabled = state.grad_enabled
        step = Step(UPDATE, ids, key, enabled, detail.metas, len(self.tensors), first_number, line, detail)
        return self.recording.grow(self.step, step)

    def _apply_update(self, step, rows):
        targets, metas, tensors = step.detail.targets, step.metas, self.tensors
        bound, homes, changed_leaves, overwritten = self.bound, self.homes, self.changed_leaves, self.overwritten
        first = new = len(tensors)
        tensors.extend([None] * len(metas))
        for row in rows:
            for position in targets:
                target = row[position]
                meta = metas[new - first]
                storage = target._storage
                if target._frame is self or storage is None:
                    self._assign(target, new, meta)
                else:
                    # What _assign does, for a tensor from outside that the call changes for the first time.
                    key = id(target)
                    old = bound[key]
                    homes[key] = (target, target._data)
                    target._frame = self
                    target._data = None
                    target._node = None
                    target._vid = new
                    target._meta = meta
                    storage.version += 1
                    if meta.requires_grad:
                        changed_leaves[new] = target
                    overwritten.add(old)
                    tensors[old] = None
                    tensors[new] = target
                new += 1

    def _update_reason(self, step, rows):
        owners = self.owners
        for row in rows:
            for position in step.detail.targets:
                x = row[position]
                if x._frame is not self and not self.views:
                    # _alias_reason, for the usual case of memory of its own.
                    storage, base = x._storage, x._data.base
                    alone = len(owners[id(x._data) if base is None else id(base)]) == 1
                    if alone and (storage is None or storage.sharers is None):
                        continue
                reason = self._alias_reason(x, x._vid if x._frame is self else self.bound[id(x)])
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
        tensors, homes, bound = self.tensors, self.homes, self.bound
        new, unused = tensors, _UNUSED_IN_LIST
        if self.first_pending:
            new, unused = tensors[self.first_pending :], _UNUSED_IN_LIST + 1
        for vid, references in enumerate(map(getrefcount, new), self.first_pending):
            if references > unused:
                t = tensors[vid]
                if t is not None and t._data is None and id(t) not in homes:
                    (views if vid in self.roots else live).append(vid)
        differentiable = [v for v in [*live, *views] if tensors[v]._meta.history]
        commits = [(bound[key], entry[0]._vid) for key, entry in homes.items()]
        roots = {self.roots[v] for v in views}
        if differentiable and not closing:
            roots |= {self.roots.get(v, v) for v in frame_autograd.saved_values(self)}
        if roots:
            live += sorted(r for r in roots if r not in self.arrays and r not in live)
        ends = frame_autograd.living(self, tuple(differentiable)) if closing and differentiable else ()
        return Needed(tuple(live), tuple(views), tuple(commits), ends)

    def _run(self, needed):
        if self.flushed < self.step.depth and (needed.live or needed.commits or needed.views):
            program = None
            if needed.live or needed.commits:
                program = program_for(self, needed)
                if program.run(self, needed):
                    # An index was out of range: nothing was written; eager mode finds out which and raises.
                    run_steps_eagerly(self)
                    raise AssertionError("a compiled check failed that eager mode passes")
            self._settle(needed)
            self.last_program = program
        self.flushed = self.step.depth
        self.first_pending = len(self.tensors)

    def _settle(self, needed):
        for key, (tensor, home) in self.homes.items():
            tensor._data = home
            vid = tensor._vid
            self.arrays[vid] = home
            self.same[vid] = self.bound[key]
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
            if not (tensor._requires_grad and tensor._meta.history):
                tensor._frame = None
        self.tensors, self.bound, self.views, self.owners, self.nodes = [], {}, {}, {}, {}
        if self.graph_node is None:
            self.arrays = {}

    # --- autograd (frame_autograd.py) -----------------------------------------------------------------------------
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
