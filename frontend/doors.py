"""Doors: the public functions ask classes of the user's, and modes, what they have to say (overriding.py).

    open_doors      from then on functions ask
    Mode            a block in which every function asks a mode first

A program without such classes has functions that ask nobody, at no cost. The first class that could have a say opens
the doors: the code of every public function becomes that of a door, in place. Who has the function already, by
`from weft import softmax` or as the key of a dict, has the door. Methods of Tensor have what they are behind their
doors, native code that takes them over too. The class of plain tensors keeps its properties and the operators of native
code; those of classes that have a say are doors, and while a mode is open so are Tensor's.

Who notices such a class, when it is made, is in watched_classes.py.
"""

import sys
import threading
from types import FunctionType, GetSetDescriptorType

from .absent import names_in
from .later_families import join_all
from .overriding import (
    ALL,
    KEPT,
    OWN,
    PLAIN,
    asked_of,
    by_default,
    converted,
    hand_over,
    has_say,
    off,
)
from .runtime.state import marks
from .runtime.state.modes import state, watched
from .runtime.state.tensor import Tensor
from .spelled import FORMS
from .watched_classes import of_class, opened, watch_classes, watch_no_more

_ROOT = __name__.partition(".")[0]

# --- modes ------------------------------------------------------------------------------------------------------------
_entered, _before, _changing = [], {}, threading.Lock()


class Mode(watched):
    """A block in which functions ask the mode first; it is not asked while it answers."""

    def __init__(self, mode):
        super().__init__(lambda node, out: None, f"in a block with {type(mode).__name__}, which functions ask")
        self.mode = mode

    def __enter__(self):
        open_doors()
        super().__enter__()
        with _changing:
            if not _entered:
                _before.update({name: vars(Tensor)[name] for name in of_class})
                _set_all(Tensor, of_class)
            _entered.append(self)
        state.function_modes = (*state.function_modes, self.mode)
        return self

    @staticmethod
    def leave():
        """The innermost block of this thread ends. Returns its mode."""
        block = [block for block in state.watchers if isinstance(block, Mode)][-1]
        block.__exit__()
        return block.mode

    def __exit__(self, *exception):
        state.function_modes = state.function_modes[:-1]
        with _changing:
            _entered.remove(self)
            if not _entered:
                _set_all(Tensor, _before)
                _before.clear()
        super().__exit__(*exception)


def _set_all(kind, values):
    for name, value in values.items():
        setattr(kind, name, value)


# --- doors ------------------------------------------------------------------------------------------------------------
def _entrance(public, behind, enough=PLAIN.issuperset):
    """What a door does with its arguments. behind: a list with what it leads to."""

    def enter(args, kwargs):
        if state.function_modes or not (enough(map(type, args)) and (not kwargs or enough(map(type, kwargs.values())))):
            asked = asked_of(args, kwargs)
            if asked is not None:
                return hand_over(public, asked, args, kwargs)
        return behind[0](*args, **kwargs)

    return enter


def _modes_only(public, behind):
    """The same of a function that makes tensors of anything: classes are not asked."""

    def enter(args, kwargs):
        if state.function_modes and state.asked_off < ALL:
            return hand_over(public, (), args, kwargs)
        with off():
            return behind[0](*args, **kwargs)

    return enter


def _operator(public, turned):
    """The same of an operator: a TypeError leads Python to the other operand. turned: of a reflected one the operator
    itself, which it is of two tensors."""

    def make(own, behind):
        ask = _entrance(public or own, behind)

        def enter(args, kwargs):
            if turned is not None and len(args) == 2 and isinstance(args[1], Tensor):
                return turned(args[1], args[0]) if asked_of(args) is not None else behind[0](*args)
            try:
                return ask(args, kwargs)
            except TypeError:
                if asked_of(args) is not None:
                    return NotImplemented
                raise

        return enter

    return make


def _ranked(publics):
    """The same of what layers call: the function of so many dimensions, whose last arguments may be left out."""

    def make(own, behind):
        def enter(args, kwargs):
            if not kwargs and asked_of(args) is not None:
                given = list(args[1:])
                while given[-1] is None:
                    given.pop()
                return publics[args[0]](*given)
            return behind[0](*args, **kwargs)

        return enter

    return make


def _door(*args, _weft_enter, **kwargs):
    return _weft_enter(args, kwargs)


def _open(function, make=_entrance):
    """Let a function be a door from now on, the same object. Returns the list of what is behind it."""
    inner = marks.copied(function)
    behind = [inner]
    function.__dict__.setdefault("__wrapped__", inner)
    function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), "_weft_enter": make(function, behind)}
    # The cells of its closure stay, and are not read.
    function.__code__ = _door.__code__.replace(co_name=function.__name__, co_freevars=function.__code__.co_freevars)
    _in_place.append((function, inner))
    return behind


class Asked:
    """A property, or a constant of the class, that asks first. `Tensor.shape` is what it was, so that
    `Tensor.shape.__get__` is what others compare with."""

    def __init__(self, name, value):
        self.original = value if hasattr(type(value), "__get__") else property(lambda x: value)
        self.get, self.set = (Accessor(self.original, name, word) for word in ("__get__", "__set__"))
        self._get = _entrance(self.get, [self.original.__get__])

    def __get__(self, x, kind=None):
        if x is None:
            return self.original
        if state.function_modes or has_say(kind) and getattr(getattr(kind, OWN), "__func__", None) is not by_default:
            return self._get((x,), {})
        value = self.original.__get__(x)
        return converted(value, kind) if isinstance(value, Tensor) and self._converts(kind) else value

    def _converts(self, kind):
        return not state.asked_off and self.get not in KEPT and has_say(kind)

    def __set__(self, x, value):
        _entrance(self.set, [self.original.__set__])((x, value), {})

    def __delete__(self, x):
        self.original.__delete__(x)


class Accessor:
    """What is asked about when a property is read or set: equal to `Tensor.shape.__get__`, and asks again when it is
    called."""

    __slots__ = ("__name__", "__self__", "_same", "name")

    def __init__(self, original, name, word):
        self.name, self.__name__, self.__self__ = name, word, original
        self._same = getattr(original, word)

    def __call__(self, x, *given):
        given = () if self.__name__ == "__get__" else given
        return _entrance(self, [self._same])((x, *given), {})

    def __eq__(self, other):
        return self is other or self._same == other

    def __hash__(self):
        return hash(self._same)

    def __repr__(self):
        return f"<{self.__name__} of {self.name} of Tensor>"


# --- which functions --------------------------------------------------------------------------------------------------
# By which function of Tensor an operator is known; and which one it is if the operands have changed places.
_BY_NAME = {
    **{f"__{x}__": x for x in str.split("add sub mul matmul neg abs lt le gt ge ne")},
    **{f"__i{x}__": f"{x}_" for x in str.split("add sub mul")},
    **{f"__r{x}__": x for x in str.split("add mul")},
    **{f"__r{x}__": f"bitwise_{x}" for x in str.split("and or xor")},
    "__truediv__": "div",
    "__itruediv__": "div_",
    "__ifloordiv__": "floor_divide_",
    "__mod__": "remainder",
    "__imod__": "remainder_",
    "__pos__": "positive",
}
_BINARY = str.split("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift")
_OPERATORS = {
    **{f"__{x}__": None for x in (*_BINARY, *str.split("lt le gt ge eq ne neg pos abs invert"))},
    **{f"__r{x}__": f"__{x}__" for x in _BINARY},
    **{f"__i{x}__": None for x in _BINARY if x != "matmul"},
}
# Those that native code computes without asking whether it may: they stay what they are for plain tensors.
_NATIVE = frozenset(
    [
        *(
            f"__{x}__"
            for x in str.split("add radd sub rsub mul rmul truediv rtruediv matmul rmatmul neg lt le gt ge eq ne")
        )
    ]
)
_OTHER_METHODS = str.split("""
    __len__ __bool__ __int__ __float__ __complex__ __index__ __contains__ __repr__ __format__ __array__ __getitem__
    __setitem__ __copy__ __deepcopy__ __reduce_ex__
""")
# They say where something is, or make a tensor of a class.
_NO_METHODS = frozenset(str.split("as_subclass dim_order is_shared is_inference"))
_NO_PROPERTIES = frozenset(str.split("array has_history volatile weak grad_dtype"))
_NO_FUNCTIONS = frozenset(
    str.split("""
        is_tensor is_storage typename from_numpy from_dlpack from_file frombuffer to_dlpack broadcast_shapes finfo iinfo
        is_grad_enabled manual_seed set_default_device get_default_device set_printoptions
        use_deterministic_algorithms are_deterministic_algorithms_enabled set_float32_matmul_precision
        get_float32_matmul_precision set_default_tensor_type is_inference autocast
    """)
)
_OF_MODES = frozenset(str.split("tensor as_tensor asarray"))
_PATHS = {
    **dict.fromkeys(("", "nn.functional", "linalg", "fft", "special")),
    "autograd": ("grad", "backward"),
    "nn.init": ("uniform_", "normal_", "constant_", "kaiming_uniform_"),
}

_BY_RANK = {
    "_convolve": "conv{}d",
    "_convolve_transposed": "conv_transpose{}d",
    **{f"_{x}": x + "{}d" for x in str.split("""
        max_pool max_unpool avg_pool lp_pool adaptive_avg_pool adaptive_max_pool fractional_max_pool
    """)},
}  # fmt: skip

_in_place = []  # (function that is a door, what it was)


def open_doors():
    """Let every public function ask, if it does not yet."""
    if opened:
        return
    join_all()
    with _changing:
        if not opened:
            watch_no_more()
            opened["Tensor"] = []
            _open_tensors()
            _open_modules()


def open_modules():
    """The same of what modules hold that have been imported since."""
    with _changing:
        _open_modules()


def _open_modules():
    for path, names in _PATHS.items():
        module = sys.modules.get(f"{_ROOT}.{path}".rstrip("."))
        if module is not None and path not in opened:
            found = [
                (name, vars(module).get(name)) for name in sorted(names or names_in(path) | {*FORMS.get(path, ())})
            ]
            functions = [(name, f) for name, f in found if type(f) is FunctionType and name not in _NO_FUNCTIONS]
            opened[path] = [f for _, f in functions]
            for name, function in functions:
                if not _is_door(function):
                    _open(function, _modes_only if name in _OF_MODES else _entrance)
            if path == "nn.functional":
                _open_ranks(module)


def _open_ranks(module):
    for name, public in _BY_RANK.items():
        found = sys.modules[f"{_ROOT}.nn.{'convolution' if 'conv' in name else 'pooling'}"]
        _open(vars(found)[name], _ranked({k: getattr(module, public.format(k), None) for k in (1, 2, 3)}))


def _is_door(function):
    return "_weft_enter" in (function.__kwdefaults__ or ())


def _open_tensors():
    """Methods and operators are functions of their own, not those of the module, and in Python."""
    first = marks.first_methods[Tensor]
    methods = [
        name for name in sorted(names_in("Tensor") | {*FORMS["Tensor"]}) if name[0] != "_" and name not in _NO_METHODS
    ]
    doors = {
        name: first[name]
        for name in (*methods, *_OTHER_METHODS, *_OPERATORS)
        if type(first.get(name)) is FunctionType and vars(Tensor).get(name) is marks.methods[Tensor].get(name)
    }
    for name, door in doors.items():
        is_operator = name in _OPERATORS
        make = _operator(doors.get(_BY_NAME.get(name)), doors.get(_OPERATORS[name])) if is_operator else _entrance
        behind = _open(door, make)
        marks.without_door[door] = behind[0]
        opened["Tensor"].append(door)
        if name in _NATIVE:
            of_class[name] = door
            continue
        if vars(Tensor)[name] is not door:
            behind[0] = vars(Tensor)[name]
        marks.doors[name] = behind
        setattr(Tensor, name, door)
        marks.methods[Tensor][name] = door
    for name, value in vars(Tensor).copy().items():
        # Some are native code's by now, and no properties of Python's.
        is_read = isinstance(value, (property, GetSetDescriptorType)) and name[0] != "_" and name not in _NO_PROPERTIES
        if is_read or name in _constants():
            of_class[name] = asked = Asked(name, value)
            opened["Tensor"].append(asked.get)
    KEPT.update(of_class[name].get for name in ("grad",))


def close_doors():
    """Let functions ask nobody again. Classes that have a say are not asked from then on; the next one that is made
    opens the doors again, for all of them."""
    with _changing:
        for function, inner in _in_place:
            function.__code__, function.__kwdefaults__ = inner.__code__, inner.__kwdefaults__
            if function.__dict__.get("__wrapped__") is inner:
                del function.__wrapped__
        first = marks.first_methods[Tensor]
        for name, behind in marks.doors.items():
            before = first[name] if type(behind[0]) is FunctionType else behind[0]
            setattr(Tensor, name, before)
            marks.methods[Tensor][name] = before
        for known in (_in_place, opened, marks.doors, marks.without_door, of_class, KEPT):
            known.clear()
        watch_classes()


def _constants():
    return {n for n in vars(Tensor) if n[:3] == "is_" and type(vars(Tensor)[n]) is bool} | {"device", "layout"}


def functions_by_path():
    """{path: functions that ask}."""
    open_doors()
    return opened
