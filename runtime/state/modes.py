"""What the current thread is doing: gradient mode, the open recording, the default floating type."""

import threading
import warnings
from functools import partial, wraps
from inspect import isclass, isgeneratorfunction

from ...compiler import dtypes


class _State(threading.local):
    grad_enabled = True
    inference = False  # inside inference_mode: new tensors are inference tensors (tensor.py)
    frame = None  # the compiled call being recorded or replayed in this thread
    turn = None  # the turn that it has had since it departed from native code (turns.py)
    hidden = None  # the same, while something is computed outside of it
    default_dtype = dtypes.float32
    autocast = None  # the type of the open block of mixed precision (amp.py)
    multithreading = True  # what autograd.set_multithreading_enabled says, which nothing asks
    sweep = None  # the backward pass in flight (engine.py)
    anomaly = anomaly_block = None  # anomaly detection (anomaly.py), and what makes it see every node
    mutations = None  # the block that lets saved tensors be changed (mutation.py)
    reading = None  # why values are read in the middle of a compiled call, if not because the user reads them
    hooks_disabled = None  # why hooks on saved tensors may not be set now
    looks_on = None  # a function that is given every tensor whose memory is read in a call without asking its program
    forward_enabled = True  # whether ops in a dual level pass tangents on
    level = forward = None  # the dual level in flight (forward.py), and the same while ops pass tangents on
    profile = None  # the open profile (profiling.py)
    function_modes = ()  # open blocks that functions ask before they begin (frontend/overriding.py)
    asked_off = 0  # how many of those who have a say are not asked now: 1 classes, 2 modes neither
    drawn_apart = None  # a function (how, shape) that draws for every sample of a vmap (runtime/batched/batch.py)
    samples_follow = False  # whether vmap will call its function again, which may go back through the same graph
    watchers = ()  # open blocks whose function is given every node made in this thread, and the tensor it made


state = _State()
autocasting = {}  # an entry for every open block of mixed precision in any thread
inferring = []  # an entry for every open block of inference_mode in any thread
watching = []  # an entry for every block in any thread that has watchers: asking it costs less than asking a thread
# Those who want to know which optimizers make steps in a recorded call, and which updates (programs/capture.py).
captures = []


class watched:
    """A `with` block in which a function sees every node that is made, as watcher(node, out). A compiled call in flight
    stands by: what is in the block runs eagerly. Blocks may end in any order."""

    is_of_pass = False  # whether it ends with the backward pass in which it was opened

    def __init__(self, watcher, reason):
        self.watcher, self.reason = watcher, reason
        self.back = None

    def __enter__(self):
        self.back = step_out(self.reason)
        state.watchers = (*state.watchers, self)
        watching.append(self)
        return self

    def watch(self, node, out):
        """A node has just been made, and has made `out`."""
        self.watcher(node, out)

    def __exit__(self, *exception):
        watching.remove(self)
        state.watchers = tuple([block for block in state.watchers if block is not self])
        back, self.back = self.back, None
        back.__exit__(*exception)


def watch_again(blocks):
    """The watchers there were before a backward pass: of the blocks that belong to one, those that its code has left
    open end, and those that it has ended go on."""
    for block in reversed(state.watchers):
        if block.is_of_pass and block not in blocks:
            block.__exit__()
    for block in blocks:
        if block.is_of_pass and block not in state.watchers:
            block.__enter__()


class _stay:
    """In the place of `stepped_out` where there is no call to step out of."""

    def __exit__(self, *exception):
        pass


def step_out(reason):
    """Leave the compiled call in flight until the result's __exit__: from then on its ops are recorded again."""
    if state.frame is None:
        return _stay()
    # What looks like the call before until now may have to become a call of its own first.
    state.frame.note(reason)
    block = stepped_out(state.frame)
    block.__enter__()
    return block


class stepped_out:
    """A `with` block that runs eagerly in the middle of a compiled call: all that is pending is computed first."""

    def __init__(self, frame):
        self.frame = frame

    def __enter__(self):
        self.frame.flush()
        self.hidden = frame_hidden()
        self.hidden.__enter__()

    def __exit__(self, *exception):
        self.hidden.__exit__(*exception)


def set_default_dtype(dtype):
    """Floats that come without a type have this one from now on, in this thread."""
    if state.frame is not None:
        # A recording knows one default: until it is back, what the call does is not what was expected.
        (state.frame.onlooker if state.frame.working else state.frame).forget_expected()
    state.default_dtype = dtype


class reading:
    """A `with` block that reads values of a compiled call for a reason of its own, which explain shows."""

    def __init__(self, reason):
        self.reason = reason

    def __enter__(self):
        self.before, state.reading = state.reading, self.reason

    def __exit__(self, *exception):
        state.reading = self.before


class frame_hidden:
    """A `with` block outside of the compiled call in flight in this thread, with another default type if one is
    given."""

    def __init__(self, default_dtype=None):
        self.default_dtype = default_dtype

    def __enter__(self):
        self.before = state.frame, state.hidden, state.default_dtype
        state.hidden = state.hidden if state.frame is None else state.frame
        state.frame = None
        if self.default_dtype is not None:
            state.default_dtype = self.default_dtype

    def __exit__(self, *exception):
        state.frame, state.hidden, before = self.before
        if self.default_dtype is not None:
            state.default_dtype = before


class frame_in_making:
    """A `with` block in which a frame is made that is to take the place of the one in flight."""

    def __enter__(self):
        self.before = state.hidden

    def __exit__(self, *exception):
        state.hidden = self.before


def is_grad_enabled():
    """Whether operations are recorded for backward now."""
    return state.grad_enabled


def _may_record(enabled):
    """Whether operations are recorded where gradient mode is set to this: in inference mode nothing is."""
    return enabled and not (inferring and state.inference)


class grad_mode:
    """Sets gradient mode for a `with` block, or for every call of a decorated function."""

    def __init__(self, enabled):
        self.enabled = bool(enabled)
        self.before = []

    def __enter__(self):
        self.before.append(state.grad_enabled)
        state.grad_enabled = _may_record(self.enabled)
        return self

    def __exit__(self, *exception):
        # Set before the pop: an exception of a signal handler may come after any call.
        state.grad_enabled = self.before[-1]
        self.before.pop()

    def __call__(self, function):
        if isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                "functions or methods. To preserve the current behavior of class decoration, you can directly decorate "
                "the `__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
            function.__init__ = self(function.__init__)
            return function
        if isgeneratorfunction(function):
            return _generating(partial(grad_mode, self.enabled), function)
        enabled = self.enabled

        @wraps(function)
        def wrapper(*args, **kwargs):
            before = state.grad_enabled
            try:
                state.grad_enabled = _may_record(enabled)
                result = function(*args, **kwargs)  # and not returned here: between a call and `finally` is a gap
            finally:
                state.grad_enabled = before
            return result

        return wrapper


def _generating(block, function):
    """A generator's body runs in such a block; whoever takes its values does not."""

    @wraps(function)
    def wrapper(*args, **kwargs):
        generator, resume, given = function(*args, **kwargs), "send", (None,)
        try:
            while True:
                with block():
                    value = getattr(generator, resume)(*given)
                try:
                    resume, given = "send", ((yield value),)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    resume, given = "throw", (error,)
        except StopIteration as end:
            return end.value
        finally:
            with block():
                generator.close()

    return wrapper


class set_grad_enabled(grad_mode):
    """Takes effect at once, and until the end of the block if used in a `with`."""

    def __init__(self, mode):
        super().__init__(mode)
        self.first = state.grad_enabled
        state.grad_enabled = _may_record(self.enabled)

    def __enter__(self):
        self.before.append(self.first)
        state.grad_enabled = _may_record(self.enabled)
        return self

    def __call__(self, function):
        state.grad_enabled = self.first
        return super().__call__(function)


class _plain_mode(grad_mode):
    """Use as `with mode():`, `@mode()` or `@mode`."""

    sets = False

    def __new__(cls, function=None):
        return object.__new__(cls) if function is None else cls()(function)

    def __init__(self):
        self.enabled = self.sets
        self.before = []


class no_grad(_plain_mode):
    """Nothing is recorded for backward. Use as `with no_grad():`, `@no_grad()` or `@no_grad`."""


class enable_grad(_plain_mode):
    """Operations are recorded for backward, also inside no_grad. Used like it."""

    sets = True


class inference_mode(grad_mode):
    """Nothing is recorded for backward, now or later: what is computed in it are inference tensors, which cannot be
    saved for backward, and are changed in place only in such a block. `inference_mode(False)` is a block without it.

    >>> with inference_mode():
    ...     y = weft.ones(2) * 2
    >>> y.is_inference(), y.clone().is_inference()
    (True, False)
    """

    def __new__(cls, mode=True):
        return object.__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode=True):
        super().__init__(not mode)
        self.mode = mode
        self.outside = []

    def __enter__(self):
        self.outside.append(state.inference)
        state.inference = self.mode
        if self.mode:
            inferring.append(self)
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        if self.mode:
            inferring.remove(self)
        state.inference = self.outside.pop()

    def __call__(self, function):
        if isgeneratorfunction(function):
            return _generating(partial(inference_mode, self.mode), function)

        @wraps(function)
        def wrapper(*args, **kwargs):
            with inference_mode(self.mode):
                return function(*args, **kwargs)

        return wrapper


def is_inference_mode_enabled():
    return state.inference


# Of values whose number decides a shape: they cannot be read later.
SIZES = "a result is as large as its values say, so they were read before the call ended"


def array_that_sizes(tensor):
    """The array of a tensor whose values say how large a result is."""
    if state.frame is None:
        return tensor.array
    with reading(SIZES):
        return tensor.array
