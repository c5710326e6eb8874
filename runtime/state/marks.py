"""What authors of layers and functions say of them, which calls that are replayed read (replay/frame_spans.py).

pure      of a `forward` or an `update_group`: it is a function of its arguments and its object
spanned   of a function: much Python and few ops, so that a call of it is taken as a whole
"""

from functools import lru_cache, wraps
from types import FunctionType

from ...compiler.ops.table import Op
from .modes import state
from .tensor import Tensor
from .tracebacks import shorten

pure_when = {}  # function -> None, or a function of (module, *args) that says whether this call is pure
spanning = set()  # what `spanned` has made
calls = {"call_op": (Op, Op.__call__)}  # what can be called natively -> its class, and what calling it does in Python
told_of_calls = []  # functions of the name of what can be called natively and came later
# What stands between operands, as in __add__ -> its op, and what becomes of a Python number before a tensor: it and the
# tensor are the op's operands as they stand, or turned round; or Python computes something else.
operators = {}
IN_PYTHON, AS_IT_STANDS, TURNED = range(3)
methods = {}  # class of tensors -> its attributes as weft made them
first_methods = {}  # the same, before native code has taken over any
asked_classes = {}  # classes of tensors that functions ask, as keys
doors = {}  # name of a method of Tensor -> a list with what its door leads to (doors.py of the frontend)
without_door = {}  # function that is a door -> what it was


def stand_for_calls_of_ops(function):
    """Calling an op is calling this function, until native code stands in its place."""
    Op.__call__ = function
    calls["call_op"] = Op, function


def is_module_class(kind):
    """Decorates the class of modules: calling one is asked of native code from the first usual call on."""
    calls["call_module"] = kind, kind.__call__
    for told in told_of_calls:
        told("call_module")
    return kind


def remember_methods(kind):
    """This class of tensors is as weft made it: with all its methods, and none of a user's."""
    methods[kind], first_methods[kind] = dict(vars(kind)), dict(vars(kind))


def add_method(kind, name, method):
    """A class of weft's gets another method of weft's."""
    setattr(kind, name, method)
    for known in (methods, first_methods):
        if kind in known:
            known[kind][name] = method


def own_method(name, function):
    """The function as a method, which is a function of its own: `Tensor.add` and `weft.add` are two keys for who tells
    them apart."""
    if "<" in function.__qualname__:  # made by another function
        function.__name__ = function.__qualname__ = name
    own = copied(function)
    own.__name__ = name
    return own


def copied(function):
    """A function of its own that does the same."""
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__, made.__doc__, made.__module__ = function.__kwdefaults__, function.__doc__, function.__module__
    made.__qualname__ = function.__qualname__
    made.__dict__.update(function.__dict__)
    return made


def in_python(name):
    """What a method does in Python, whatever becomes of the method."""
    function = first_methods[Tensor][name]
    return copied(without_door.get(function, function))


def take_over(name, new):
    """From now on native code is a method of Tensor, behind its door if there is one."""
    if name in doors:
        doors[name][0] = new
    else:
        setattr(Tensor, name, new)
        methods[Tensor][name] = new


def pure(condition=None):
    """Decorates a `forward` that does nothing but ops, depends on nothing but its arguments, the attributes of its
    object and of the modules in it, and the gradient mode, and changes nothing.

    condition: whether that holds for a call, as a function of (module, *args).

    Also an `update_group` that does nothing if its `update_again` is true, and to which the same holds.
    """

    def mark(function):
        pure_when[function] = condition
        return function

    return mark


def spanned(function):
    """Decorates a function of tensors and options (integers, booleans, strings, None, tuples of integers) that does
    nothing but ops, and depends on nothing else."""

    @wraps(function)
    def function_with_span(*args, **kwargs):
        frame = state.frame
        if frame is None:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                shorten(error)
                raise
        tensors = tuple([x for x in args if isinstance(x, Tensor)])
        if len(tensors) == len(args) and not kwargs:
            return frame.call_again(function, args)
        given = tuple(map(_kind_of, args)), tuple([(name, _kind_of(x)) for name, x in kwargs.items()])
        if None in given[0] or any(kind is None or kind is _TENSOR for _, kind in given[1]):
            return function(*args, **kwargs)
        return frame.call_again(_with_options(function, *given), tensors)

    spanning.add(function_with_span)
    return function_with_span


_TENSOR = (Tensor,)


def _kind_of(x):
    """(type, value) of an option, which are equal for equal options only; (Tensor,) of a tensor, None of all else."""
    if isinstance(x, Tensor):
        return _TENSOR
    kind = type(x)
    is_option = x is None or kind in (int, bool, str) or (kind is tuple and all(type(n) is int for n in x))
    return (kind, x) if is_option else None


@lru_cache(4096)
def _with_options(function, kinds, named):
    """A function of the tensors among the arguments alone, one and the same for the same options."""
    options = {name: kind[1] for name, kind in named}

    def of_tensors(*tensors):
        tensors = iter(tensors)
        return function(*[next(tensors) if kind is _TENSOR else kind[1] for kind in kinds], **options)

    return of_tensors


# --- what native code may do in place of a tensor's methods: said by the frontend ------------------------------------
ALONE, PLAIN, WITH_FACTOR, COPY = range(4)  # what a method takes: nothing; an operand; also `alpha`; what it copies
# Methods whose ops, with which attributes, or whose value depends on nothing but shape, type and arguments of the
# tensor, and which do nothing else: name -> whether one refuses a result that is no view (replay/native_methods.py).
by_shape = {}
# Methods that make x op(x) or op(x, other), the other times `alpha` if that is given, or that copy; and do nothing
# else: name -> (op, what it takes, the op that takes a factor or None) (replay/native_in_place.py).
changing = {}
by_key = []  # functions in Python that do what x[key] and x[key] = value do (replay/native_keys.py)
keys_held = []  # what native code reads of keys, once it does


# --- functions whose calls native code may answer (runtime/replay/native_functions.py) --------------------------------
answering = []  # by place
hopeless = set()  # places of those whose calls will never be known


def not_answered(*_):
    """All else is the function's business."""
    return None


answer = not_answered  # (place, args, kwargs) -> the result of a call that is known, or None
zeros = not_answered  # (shape, NumPy's type) -> a tensor, or None (runtime/eager/eager_zeros.py)
cut = not_answered  # (x, axis, length) -> its parts in a tuple, or None (runtime/eager/eager_cut.py)
are_equal = not_answered  # (x, y) -> whether shapes and elements are equal, or None (runtime/eager/eager_equal.py)


def of_numbers(*functions):
    """Of plain arguments these functions make a new tensor that depends on nothing else; and what wraps them."""
    for function in functions:
        function.is_of_numbers = True


def place_of(function):
    """The function's place: what `answer` is asked with."""
    answering.append(function)
    return len(answering) - 1
