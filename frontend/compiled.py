"""weft.compile: the decorator. A call replays its recording (runtime/record/frame.py) and runs native programs."""

import copy
import functools
import inspect
import warnings
import weakref
from contextlib import contextmanager
from time import perf_counter

from .array_arguments import taking_arrays
from .compile_options import is_compiled
from .compiler.later import later
from .contest import ALL_FOLLOWED, NEVER, timed
from .decorated import reduced
from .dynamic import openings
from .explain import breaks, explain, runs_later
from .made_anew import CountedCalls, n_eager_calls
from .overriding import all_off, off
from .read_cost import seconds_of_a_read
from .runtime.eager.function import set_ways
from .runtime.programs.advice import advice_for
from .runtime.programs.background import meanwhile
from .runtime.programs.loops import Loops
from .runtime.programs.program import captures
from .runtime.programs.recording import Recording
from .runtime.programs.sizes import Sizes
from .runtime.programs.user_lines import user_level
from .runtime.record.closed_again import set_compile
from .runtime.record.frame import Frame
from .runtime.record.frame_run import run
from .runtime.replay.bound_call import BoundCall
from .runtime.replay.bound_call import install as call_methods_natively
from .runtime.replay.compiled_call import install
from .runtime.replay.frame_usual import NOT_STARTED
from .runtime.replay.usual_arguments import arguments_of, leaves_of, numbers_of
from .runtime.replay.usual_learning import is_learning, usual_frame
from .runtime.state.elsewhere import any_elsewhere, is_elsewhere, used
from .runtime.state.marks import asked_classes
from .runtime.state.modes import state, watching
from .runtime.state.tracebacks import shorten
from .runtime.state.turns import following, not_following
from .signatures import WARNED_AT, Recordings, anew_often, difference, eager_from_now, flattened, out_of_paths
from .trials import Trials
from .ways import AFTER_NEW, ways_of


def compile(
    model=None,
    *,
    fullgraph=False,
    dynamic=None,
    backend=None,
    mode=None,
    options=None,
    name=None,
    disable=False,
    recompile_limit=None,
    isolate_recompiles=False,
    shapes_spec=None,
    background=False,
):
    """Compile a function of tensors, or a module: same results, bit for bit, in native code.

    The Python function runs on every call, so control flow, closures and side effects behave as ever (one that is
    proved to do nothing but ops need not, as long as all that it reads is what it was); what its ops compute,
    including backward() and optimizer steps inside, runs as one native program per path. What cannot be compiled runs
    eagerly; `f.explain()` says what, where and why. A NumPy array given for a parameter that is annotated as
    weft.Tensor comes in as the tensor that shows its memory (weft.from_numpy).

        @weft.compile
        def step(x, y):
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

    fullgraph: whatever cannot be compiled is a RuntimeError that names the line, at that line, and nothing runs
    eagerly. dynamic: the first shapes are compiled for what they are; from the second ones on, numbers that differ are
    known at run time where that is possible, so that one program serves all batch sizes. With `True` the first
    dimension of the arguments is from the first call on, as one is that `weft._dynamo.mark_dynamic` marks; `explain`
    says where it cannot be. `False` compiles every shape for itself; results are the same. background: no call waits
    for its program; those that come before it is there run eagerly, with the same bits, while a thread makes it, and
    `finish_compiling()` waits for that; one of these that raises has done what eager mode does until then. With
    fullgraph it is a ValueError. Of PyTorch's other options `disable` leaves the function as it is, a backend whose
    name begins with "eager" runs every call eagerly (without fullgraph), and those that choose among ways that weft
    does not have change nothing. Names that PyTorch has not are a RuntimeError, and so is a backend that is a function:
    there is no graph of torch.fx for it.
    """
    if background and fullgraph:
        raise ValueError("compile: background=True runs calls eagerly at first, which fullgraph=True forbids")
    is_eager = not is_compiled(fullgraph, dynamic, backend, mode, options, name, recompile_limit, shapes_spec)
    if model is None:
        if disable:
            return lambda function: function
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, background=background)
    if disable:
        return model
    if not callable(model):
        raise TypeError(f"compile: expected a function or a module, got {type(model).__name__}")
    if fullgraph and (later := runs_later(model)):
        why, line = later
        who = fullgraph if isinstance(fullgraph, str) else "compile(fullgraph=True)"
        raise RuntimeError(f"{who}: {model.__name__} cannot be one program: {why} [{line}]; "
                           f"instead: {advice_for(why)}")  # fmt: skip
    return CompiledFunction(model, fullgraph, dynamic, background, is_eager)._made_by_decorator()


class CompiledFunction(Trials):
    """A function whose calls are recorded once per signature and replayed."""

    def __init__(self, function, fullgraph=False, dynamic=None, background=False, is_eager=False):
        functools.update_wrapper(self, function, updated=())
        self._given = function
        self._function = self.function = taking_arrays(function)
        self._fullgraph, self._background = fullgraph, background
        name = getattr(function, "__name__", type(function).__name__)
        self._name = name if name.isidentifier() else "function"
        self._recordings = Recordings()
        self._warned = set()  # what has been said of them
        self._dynamic, self._sizes = dynamic, None if dynamic is False else Sizes(Loops())
        self._many = None  # what was learned of calls with sizes that are new (many_learning.py), once there are some
        self._begin_trials()
        self._counted = None  # how often it was called, if it is not known to last
        self._is_eager = is_eager  # for good, by the name of a backend
        if is_eager:
            self._n_left.value, self._eagerly.value = NEVER, True

    def _made_by_decorator(self):
        """Itself; the first calls are eager ones if functions like it do not last."""
        if not self._fullgraph and not self._is_eager:
            self._counted = CountedCalls(self._n_left)
            n_eager = n_eager_calls(self._given, self._counted)
            if n_eager:
                self._counted.begin(n_eager)
                self._eagerly.value = True
        return self

    def __call__(self, /, *args, **kwargs):
        if watching:
            if state.watchers or state.level is not None:
                return self._call_watched(args, kwargs)
            if state.profile is not None:
                return state.profile.call(f"compiled: {self._name}", functools.partial(self, *args, **kwargs))
        if state.frame is not None:
            # Inside another compiled call this one is part of its recording.
            return self._function(*args, **kwargs)
        if self._n_left.value <= 0:
            with following():
                return self._timed(args, kwargs)
        self._n_left.value -= 1
        if self._eagerly.value and not captures:
            return self._not_followed(args, kwargs)
        try:
            with following():
                usual = self._expected(args, kwargs)
                if usual is not None:
                    result = self._again(usual, args, kwargs)
                    if result is not NOT_STARTED:
                        return result
                return self._call(usual, args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    def _not_followed(self, args, kwargs):
        """A call that runs eagerly for once, beside those of other threads."""
        with not_following():
            return self._function(*args, **kwargs)

    def _call_watched(self, args, kwargs):
        """A call where Python of the user's sees every node that is made: there are nodes only in eager mode."""
        with all_off():
            recording = self._recording_of(args, kwargs, [])
        if recording is not None:
            block = "a TorchFunctionMode" if state.function_modes else "saved tensor hooks, or with anomaly detection"
            recording.leaves(f"called in a block with {block}", "any line")
        return self._function(*args, **kwargs)

    def _again(self, usual, args, kwargs):
        """The call as one like the last, or NOT_STARTED if it does not begin like that."""
        leaves = leaves_of(usual, args, kwargs)
        return NOT_STARTED if leaves is None else self._begun(usual, leaves, args, kwargs, self._function)

    def _begun(self, usual, leaves, args, kwargs, function):
        """The same with these leaves of the arguments."""
        result = usual.call_in_python(function, leaves, args, kwargs)
        if result is not NOT_STARTED:
            self._took(args, kwargs, self._learn_from(usual, leaves))
        return result

    def _begun_natively(self, usual, leaves, args, kwargs, function):
        """The same by native code, where that can begin it."""
        result = usual.call(function, leaves, args, kwargs)
        if result is NOT_STARTED:
            return self._begun(usual, leaves, args, kwargs, function)
        self._took(args, kwargs, self._learn_from(usual, leaves))
        return result

    def _call(self, tried, args, kwargs):
        """A call that does not begin like the one that was expected."""
        tensors = []
        if self._many is not None and self._many.found:
            result = self._of_many_sizes(args, kwargs)
            if result is not NOT_STARTED:
                return result
        recording = self._recording_of(args, kwargs, tensors)
        if recording is None or recording.has_failed and not captures:
            return self._not_followed(args, kwargs)
        if used and any_elsewhere(tensors):
            return self._traced(recording, tensors, args, kwargs)
        for usual in [replay for replay in recording.replays if replay is not tried]:
            result = self._again(usual, args, kwargs)
            if result is not NOT_STARTED:
                return result
        if recording.is_waiting() and not captures:
            # Kernels of eager mode keep the interpreter: half of the time is the other thread's, so that it gets on.
            recording.jobs[0].wait(recording.meanwhile)
        if recording.is_waiting() and not captures:
            recording.n_meanwhile += 1
            with meanwhile():
                result, recording.meanwhile = timed(self._not_followed, (args, kwargs), {})
            return result
        ways = ways_of(recording)
        if ways is None:
            return self._follow(recording, tensors, args, kwargs)
        if ways.call_eagerly():
            self._stay_eager(ways)
            return ways.run(ways.eager, self._not_followed, (args, kwargs))
        return ways.run(ways.followed, self._follow, (recording, tensors, args, kwargs))

    def _traced(self, recording, tensors, args, kwargs):
        """A call that was given a tensor on a GPU: its programs are those of what it asks of the GPU."""
        gpu = next(x._meta.gpu for x in tensors if is_elsewhere(x))
        if gpu is None:
            # Tensors of one sample each: what vmap calls computes all samples at once, op by op.
            return self._function(*args, **kwargs)
        recording.counter[0] += 1
        self._n_left.value += 1  # how long kernels take is not seen here, so no trial is held
        result, recording.on_gpu = _traced(gpu, self._function, args, kwargs)
        return result

    def _of_many_sizes(self, args, kwargs):
        """The call as one like others but for its sizes, or NOT_STARTED."""
        tensors = []
        signature = self._signature_of(args, kwargs, tensors)
        if captures or self._recordings.get(signature) is not None:
            return NOT_STARTED
        if asked_classes and any(type(x) in asked_classes for x in tensors):
            return NOT_STARTED
        result = self._many.call(signature, self._function, args, kwargs, self._after_many)
        if result is not NOT_STARTED and self._ways:
            self._took(args, kwargs, None)
        return result

    def _after_many(self, many, leaves):
        usual = many.usual
        has_departed = bool(usual.departed.value)
        if has_departed:
            ended = usual.ended_by()
            usual.make_ready()
            self._learn(ended, usual.structure, list(map(type, leaves)))
        self._many.went(many, has_departed)

    def _follow(self, recording, tensors, args, kwargs):
        frame, began = Frame(recording), perf_counter()
        structure, leaves = arguments_of(args, kwargs)
        types, numbers = list(map(type, leaves)), numbers_of(leaves)
        del leaves
        try:
            result = run(frame, self._function, args, kwargs, tensors)
        except Exception:
            # Calls that end so are replayed as well.
            recording.n_raised += 1
            self._took(args, kwargs, self._learn(frame, structure, types))
            raise
        recording.followed = (*recording.followed[1 - AFTER_NEW :], perf_counter() - began)
        if numbers and not frame.full:
            recording.telling.note(numbers, frame.step)
        self._took(args, kwargs, self._learn(frame, structure, types))
        if recording.calls == recording.n_followed == ALL_FOLLOWED and not is_learning(recording):
            self._ask_soon()
        return result

    @staticmethod
    def _call_natively():
        _call_natively()

    def _learn(self, ended, structure, types):
        """A call with such arguments ended in this frame. Returns the UsualFrame for calls like it, or None."""
        if isinstance(ended, Frame):
            if ended.last_program is not None and ended.last_program.of_many is not None:
                self._many = self._many or _many_learned()
                self._many.learn(ended, structure, types)
            ended = usual_frame(ended, structure, types)
        if ended is not None:
            ended.recording.use(ended)
            _call_natively()
        return ended

    def _learn_from(self, usual, leaves):
        """The UsualFrame for calls like one that has begun in this one, with these leaves of its arguments; None if
        there is none."""
        if not usual.departed.value:
            return usual
        ended = usual.ended_by()
        usual.make_ready()
        if isinstance(ended, Frame) and not ended.full and (numbers := numbers_of(leaves)):
            ended.recording.telling.note(numbers, ended.step)
        learned = self._learn(ended, usual.structure, list(map(type, leaves)))
        if learned is None:
            ended.recording.has_departed()
            self._forget_released()
        return learned

    def _number_after(self, usual, leaves):
        """Of the way of a call that has departed from this UsualFrame."""
        with following():
            return self._number_of(self._learn_from(usual, leaves))

    def _recording_of(self, args, kwargs, tensors):
        """The recording for these arguments, whose tensors are collected; None if this call is not recorded."""
        signature = self._signature_of(args, kwargs, tensors)
        if asked_classes and (asked := [type(x) for x in tensors if type(x) in asked_classes]):
            signature += (tuple(asked),)
            with off():
                return self._recording(signature, tensors)
        return self._recording(signature, tensors)

    @staticmethod
    def _signature_of(args, kwargs, tensors):
        return flattened(args, tensors), flattened(kwargs, tensors), state.grad_enabled, state.default_dtype

    def _recording(self, signature, tensors):
        recording = self._recordings.get(signature)
        if recording is None:
            if not self._fullgraph and not self._recordings.takes(signature):
                self._warn_once(eager_from_now)
                return None
            recording = self._new_recording(signature, tensors)
            is_said = len(self._recordings) <= WARNED_AT or anew_often in self._warned
            if not is_said and self._recordings.n_alone() >= WARNED_AT:
                self._warn_once(anew_often)
        elif recording.parts_at is not None:
            self._warn_once(out_of_paths)
        return recording

    def _new_recording(self, signature, tensors):
        earlier, reason = self._recordings.last_signatures(), None
        if earlier:
            reason = difference(earlier[-1], signature, self._argument_names())
        recording = Recording(self._name, signature, self._fullgraph, sizes=self._sizes)
        recording.in_background = self._background
        if self._sizes is not None:
            recording.openings = openings(self._dynamic, tensors, signature, earlier)
        if not self._fullgraph:
            recording.when_opened = weakref.WeakMethod(self._needs_nodes)
        self._recordings.add(recording, reason)
        self._forget_released()
        for found in _listening:
            if self not in found:
                found.append(self)
        return recording

    def _warn_once(self, text_of):
        """At the user's call."""
        if text_of not in self._warned:
            self._warned.add(text_of)
            warnings.warn(text_of(self._name, self._recordings), RuntimeWarning, stacklevel=user_level())

    def _argument_names(self):
        try:
            return list(inspect.signature(self._function).parameters)
        except (TypeError, ValueError):
            return []

    def explain(self, *args, verbose=False, **kwargs):
        """Whether calls take the fast path, and at which lines they leave it, why, and what to write instead; then the
        signatures, paths and programs. `verbose`: the kernels of each program too (bytes and floating-point operations
        as their shapes have them, and for how long the compiler thinks that one thread is busy), what was not fused,
        and what else this process has compiled. "times": how long each kernel takes, measured inside its program on
        numbers of its own, and what share that is of what this machine can do (weft.visualize.machine_roof).

        With arguments the function is called once with them first, side effects included. Returns a text. ValueError
        for another `verbose`.
        """
        if verbose not in (False, True, "times"):
            raise ValueError(f'{self._name}.explain: verbose must be False, True or "times", got {verbose!r}')
        if args or kwargs:
            self(*args, **kwargs)
        cost_of_a_read = functools.partial(seconds_of_a_read, _always_replayed)
        return explain(self._name, self._recordings, verbose, self._sizes, cost_of_a_read, self._why_eager(),
                       () if self._whole is None else self._whole.lines(self._ways), self._given,
                       self._many)  # fmt: skip

    def finish_compiling(self):
        """With background=True: wait until the programs that calls so far have asked for are there. (The next call may
        ask for others: that of a backward after a call is begun once a call had its own.)"""
        for recording in self._recordings.values():
            for job in recording.jobs:
                job.wait()
            for function in recording.derivatives:
                function.finish_compiling()

    @property
    def breaks(self):
        """Where calls so far left the fast path, as a tuple of (reason, line, count): empty if they never did."""
        return breaks(self._recordings.values(), self._given)

    @property
    def recordings(self):
        """The recordings, one per signature (read-only); those that were not used lately make room for new ones."""
        return tuple(self._recordings.values())

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return BoundCall(self, instance)

    @property
    def compiled_module(self):
        """What was compiled: a module has its parameters, where this is an attribute of it."""
        return self._given

    def __deepcopy__(self, memo):
        return CompiledFunction(copy.deepcopy(self._given, memo), *self._options())

    def __reduce__(self):
        # Programs are found again, or compiled again, where it is loaded.
        return reduced(self, CompiledFunction, self._given, *self._options())

    def _options(self):
        return self._fullgraph, self._dynamic, self._background, self._is_eager

    def __getattr__(self, name):
        # Reached for attributes of a compiled module.
        if name == "_given":
            raise AttributeError(name)
        if name == "_orig_mod" and hasattr(self._given, "named_modules"):
            return self._given  # PyTorch's name of it, which programs read
        return getattr(self._given, name)

    def __repr__(self):
        return f"<weft.compile of {self._name}: {len(self._recordings)} signature(s)>"


_traced = later("runtime.gpu.trace:traced")
_many_learned = later("runtime.replay.many_learning:ManyLearned")
OptimizedModule = CompiledFunction  # PyTorch's name of it, by which programs know it
set_compile(CompiledFunction)
set_ways(later("own_functions:ways_of"))  # of Functions that compiled calls meet
_listening = []  # lists that get every function of which something is recorded
_calls = [CompiledFunction.__call__]  # what calls go to: the one before the last is the Python function


def _call_natively():
    """From now on, if there is native code for it and nobody has put something else in the way."""
    if len(_calls) == 1 and CompiledFunction.__call__ is _calls[0]:
        call = install(CompiledFunction, CompiledFunction._number_after)
        if call is not None:
            _calls.append(call)
            CompiledFunction.__call__ = call
            call_methods_natively(CompiledFunction)


def _always_replayed(function):
    """The function compiled, no call of which runs eagerly because that is quicker."""
    compiled = CompiledFunction(function)
    compiled._n_left.value = NEVER
    return compiled


def _call_as_it_is(self, /, *args, **kwargs):
    return self._function(*args, **kwargs)


def run_eagerly(eager):
    """Whether compiled functions, all there are and will be in this process, run as the Python they are."""
    CompiledFunction.__call__ = _call_as_it_is if eager else _calls[-1]


@contextmanager
def compiled_in_block():
    """A list that has every compiled function of which something is recorded in the block."""
    found = []
    _listening.append(found)
    try:
        yield found
    finally:
        _listening[:] = [other for other in _listening if other is not found]
