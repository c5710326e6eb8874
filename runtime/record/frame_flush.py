"""Flushing a compiled call: which values are needed now, running their program, and handing out the results.

A value is needed if somebody outside the call holds its tensor. That is found by counting references, so nothing has
to be declared, and a tensor that is dropped is never computed into memory.
"""

from ..eager.gate import apply_eagerly
from ..programs import background
from ..programs.background import NotReady
from ..programs.description import Stretch
from ..programs.failures import is_of_compiler
from ..programs.program import Needed, program_for
from ..programs.recording import ASSIGN, BACKWARD, GRADIENTS, INPUT, UPDATE, Flush
from ..state.modes import frame_hidden, no_grad
from ..state.references import held, is_held
from ..state.tensor import tensor_of
from . import frame_autograd, frame_views
from .frame_leaves import drop_gradients, made_leaves
from .frame_views import references_at_end, references_by_nodes
from .interim import Interim

# A call may load so many programs for values that are read in its middle. A solver that looks at its error at every
# step goes another way in each call: hundreds of programs, each of which must be told from all others by the whole call
# up to there, and most of which run once.
MOST_READS_ANEW = 32
# Nor several that take so many seconds to compile.
SEVERAL, MOST_SECONDS_ANEW = 2, 5.0


def what_is_needed(frame, closing):
    """What must exist after a flush; at the end of the call also what a backward may start from."""
    live, views = [], []
    tensors, homes, bound = frame.tensors, frame.homes, frame.bound
    if closing:
        if frame.roots:
            _drop_unused_views(frame)
        changed = [v for v, leaf in frame.changed_leaves.items() if id(leaf) not in homes]
        drop_gradients(tensors, (*made_leaves(frame.step), *changed, *frame.hooked_values))
    for vid in _held_and_pending(frame):
        (views if vid in frame.roots else live).append(vid)
    frame.held = _held_by_others(frame, (*live, *views))
    differentiable = [v for v in [*live, *views] if tensors[v]._meta.history and tensors[v]._node is None]
    if closing and frame.flushed:
        differentiable += _left_over(frame)
    if closing and frame.changed_singly:
        changed = [t for t, _, _ in homes.values() if t._frame is frame and t._node is None and t._meta.history]
        differentiable = sorted({*differentiable, *[t._vid for t in changed]})
        del changed
    if closing and differentiable and frame.roots:
        inside = references_at_end(frame)
        differentiable = [v for v in differentiable if not inside[v] or is_held(tensors, v, inside[v])]
    if frame.only_update is not None and len(homes) == len(frame.only_update.homes):
        commits = frame.only_update.commits
    else:
        commits = tuple(
            [(origin, t._vid if t._frame is frame else bound[key]) for key, (t, _, origin) in homes.items()]
        )
    # What an update computes is written into its own memory anyway, and a view of it is one of that memory.
    written = {new for _, new in commits}
    # A tensor from outside that the call has changed may be all that has a history.
    if not closing and (differentiable or any(frame.metas[new].history for new in written)):
        saved = frame_autograd.saved_values(frame)
        views += [v for v in saved if v in frame.roots and v not in views]
        live += [v for v in saved if v not in frame.roots and v not in live and v not in written]
    frame_views.note_looks(frame, views)
    roots = {frame.roots[v] for v in views}
    if roots:
        live += sorted(r for r in roots if r not in frame.arrays and r not in live and r not in written)
    ends = frame_autograd.living(frame, tuple(differentiable)) if closing and differentiable else ()
    return Needed(tuple(live), tuple(views), commits, ends)


def _held_and_pending(frame):
    tensors, homes = frame.tensors, frame.homes
    found = held(tensors, _computed(frame))
    return [v for v in found if tensors[v] is not None and tensors[v]._data is None and id(tensors[v]) not in homes]


def _held_by_others(frame, vids):
    """Those of the values that not only the call's own nodes hold: a replayed call makes none."""
    if not frame.nodes:
        return vids
    known = references_by_nodes(frame)
    return tuple([v for v in vids if is_held(frame.tensors, v, known[v])])


def _drop_unused_views(frame):
    """A view that nobody holds must not keep its base alive, which would then be computed into memory."""
    for vid in frame.roots:
        if not is_held(frame.tensors, vid):
            frame.tensors[vid]._base = None


def _computed(frame):
    """Numbers of the pending values: all but inputs."""
    known = frame.step.known.computed
    key = (frame.flushed, frame.n_unusual_updates)
    if key not in known:
        usual = (INPUT,) if frame.n_unusual_updates else (INPUT, UPDATE)
        known[key] = _made_by(frame.steps[frame.flushed :], usual)
    return known[key]


def _left_over(frame):
    """Numbers of the values that were computed earlier, are alive, and have a history."""
    found = []
    for vid in held(frame.tensors, _made_by(frame.steps[: frame.flushed], (INPUT, UPDATE))):
        t = frame.tensors[vid]
        if t is not None and t._frame is frame and t._node is None and t._meta.history:
            found.append(vid)
    return found


def run_here(frame):
    """Compute what is needed in the middle of a call, so that calls like this one know it."""
    step, n_programs, needed = frame.step, len(frame.recording.programs), what_is_needed(frame, closing=False)
    program = run(frame, needed)
    frame.flushes.append(Flush(step, needed, program, frame.held))
    made = frame.recording.programs[n_programs:]
    if made and not frame.left:
        frame.n_reads_anew += 1
        frame.seconds_anew += sum(one.meta.get("seconds", 0.0) for one in made)
        _leave_if_in_vain(frame)


def _leave_if_in_vain(frame):
    """The rest of a call that has needed many programs for what was read in the middle, or long ones, is eager. So
    much for one call that is like none before: loops that end when they have converged, optimizers that search."""
    is_long = frame.n_reads_anew >= SEVERAL and frame.seconds_anew > MOST_SECONDS_ANEW
    if frame.n_reads_anew <= MOST_READS_ANEW and not is_long:
        return
    if is_long:
        frame.recording.compiled_long = True
        took = f"programs for what was read in the middle took more than {MOST_SECONDS_ANEW:g} s to compile"
    else:
        took = f"more than {MOST_READS_ANEW} reads needed a program of their own"
    frame.note(f"{took}: the rest of this call is eager")
    frame.full = frame.left = True


_HAS_RUN = [0]  # what a program has returned that has run: no check has failed


def run(frame, needed):
    """Compute `needed`, and put the results where they belong. Returns the program, None if nothing was needed."""
    program = None
    if needed.live or needed.commits or needed.differentiable or frame.closing and _may_fail(frame):
        program = _program_for(frame, needed)
        frame.returned, frame.flight = (), needed
        has_failed = program.run(frame)
        if program.is_interim:
            background.start()
        if has_failed:
            # An index was out of range: nothing was written; eager mode finds out which and raises.
            frame.flight = None
            run_steps_eagerly(frame)
            raise AssertionError("a compiled check failed that eager mode passes") from program.error
    elif needed.views:
        frame.written, frame.returned, frame.flight = [], _HAS_RUN, needed
    if frame.flight is not None:
        frame.last_program = program
        land(frame)
    else:
        frame.flushed, frame.first_pending = frame.step.depth, len(frame.tensors)
    return program


def _may_fail(frame):
    """Whether a pending op checks what it is given: it must be asked even if nobody holds what comes of it."""
    ops = filter(frame_autograd.is_op, frame.steps[frame.flushed :])
    # One without a kernel is made of others, which are known when its program is made.
    return any(step.op.kernel is None or step.op.kernel.can_fail(_Checked(step)) for step in ops)


class _Checked:
    """What kernels look at of a value to say whether its op can fail."""

    __slots__ = ("op", "attributes", "dtype")

    def __init__(self, step):
        self.op, self.attributes, self.dtype = step.op, step.attributes, step.metas[0].dtype


def _program_for(frame, needed):
    """The program, or what does its work while it is made in the background, or if it cannot be made."""
    try:
        return program_for(frame, needed)
    except NotReady as error:
        frame.recording.runs_meanwhile(error.job)
        frame.recording.n_meanwhile += not frame.is_interim
        frame.is_interim = True
        return Interim(*_uncompiled_forward(Stretch(frame), needed))
    except Exception as error:
        if not is_of_compiler(error):
            raise
        frame.recording.could_not_compile(error, frame.step.line)
        frame.is_interim = True
        return Interim(*_uncompiled_forward(Stretch(frame), needed))


def _uncompiled_forward(*arguments):
    from .build import uncompiled_forward

    return uncompiled_forward(*arguments)


def land(frame):
    """Give the tensors what a program has computed, if one has run. An exception may have come in the middle of it."""
    needed = frame.flight
    if needed is None or frame.returned != _HAS_RUN:
        return
    for vid, array in zip(needed.live, frame.written):
        frame.arrays[vid] = array
    frame.saved = frame.written[len(needed.live) :]
    if frame.only_update is None or needed.differentiable or needed.views or not frame.closing:
        settle_changes(frame)
    frame.homes, frame.only_update = {}, None
    for vid in needed.live:
        tensor = frame.tensors[vid]
        if tensor is not None and tensor._data is None:
            tensor._data = frame.arrays[vid]
    for vid in needed.views:
        tensor = frame.tensors[vid]
        tensor._data = frame.array_of(vid)
        _share(frame, vid, tensor)
    frame.flushed, frame.first_pending = frame.step.depth, len(frame.tensors)
    frame.flight, frame.landed = None, frame.closing


def _share(frame, vid, tensor):
    """The tensor of a view has come into memory: it shares the version of its base, unless it is a .data."""
    if frame.versioned.get(vid) != vid:
        tensor.share_storage(frame_views.shown_by(frame, tensor))
        return
    root = frame.tensors[frame.roots[vid]]
    if root is not None:
        tensor.share_memory(root)


def settle_changes(frame):
    """What was changed in place is in its memory now."""
    for key, (tensor, home, origin) in frame.homes.items():
        vid = tensor._vid if tensor._frame is frame else frame.bound[key]
        tensor._data = home
        frame.arrays[vid] = home
        # What the change began from may have been written back itself, by an update that is usual: whoever builds a
        # program asks once, and two inputs for one memory would be read and written without regard for each other.
        frame.same[vid] = frame.same.get(origin, origin)
    frame.homes, frame.only_update = {}, None


def _made_by(steps, excluded):
    """Numbers of the values that steps compute, but for those of some kinds."""
    return tuple(v for s in steps if s.op not in excluded for v in range(s.first, s.first + len(s.metas)))


# --- running steps without a program --------------------------------------------------------------------------------
def run_steps_eagerly(frame):
    """The pending steps once more, in eager mode and without changing anything: finds the error a program met."""
    with frame_hidden(frame.default_dtype), no_grad():
        values = {vid: tensor_of(array) for vid, array in frame.memory().items()}
        for step in frame.steps[frame.flushed :]:
            if step.op in (INPUT, ASSIGN):
                continue
            if step.op in (BACKWARD, GRADIENTS, UPDATE):
                break
            numbers = iter(frame.numbers[step.first_number :])
            operands = [next(numbers) if k < 0 else values[k] for k in step.operands]
            try:
                values[step.first] = apply_eagerly(step.op, operands, step.attributes)
            except Exception as error:
                error.add_note(f"in a compiled call, at {step.line}") if hasattr(error, "add_note") else None
                raise
