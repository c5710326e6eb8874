"""Compiled methods as instances have them: they tell what compiled functions tell, and begin with the instance.

`weft_get_compiled` stands in place of CompiledFunction.__get__ and `weft_call_bound` in place of BoundCall.__call__:
making such an object and calling it in Python takes as long as three small ops. Of the subset (docs/native.md).
"""

import inspect
from collections import namedtuple
from types import FunctionType

from ...compiler.translate.kinds import Dict, Maybe, Object, ObjectKind, Tuple
from ...compiler.translate.language import SLOT, cast, keep, native
from ..code import translated
from ..code.native_kinds import call_with
from ..eager.eager_words import new_object, new_tuple, set_tuple_item
from . import native as objects
from . import native_layout
from .object_layout import layout_of_objects, places_of


class BoundCall:
    """A compiled function whose first argument is the instance it was asked of, as methods are."""

    __slots__ = ("function", "instance", "__weakref__")

    def __init__(self, function, instance):
        self.function, self.instance = function, instance

    def __call__(self, /, *args, **kwargs):
        return self.function(self.instance, *args, **kwargs)

    @property
    def __self__(self):
        return self.instance

    @property
    def __func__(self):
        return self.function

    @property
    def __signature__(self):
        whole = inspect.signature(self.function)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    @property
    def __name__(self):
        return self.function.__name__

    @property
    def __doc__(self):
        return self.function.__doc__

    def explain(self, *args, verbose=False, **kwargs):
        """As CompiledFunction.explain, for all instances; arguments are those that follow the instance."""
        given = (self.instance,) if args or kwargs else ()
        return self.function.explain(*given, *args, verbose=verbose, **kwargs)

    def finish_compiling(self):
        """As CompiledFunction.finish_compiling, for all instances."""
        self.function.finish_compiling()

    @property
    def breaks(self):
        """Those of the method, of calls with any instance."""
        return self.function.breaks

    @property
    def recordings(self):
        """Those of the method, of calls with any instance."""
        return self.function.recordings

    def __getattr__(self, name):
        # A class body cannot have a property of this name.
        if name == "__qualname__":
            return self.function.__qualname__
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __eq__(self, other):
        if not isinstance(other, BoundCall):
            return NotImplemented
        return self.function is other.function and self.instance is other.instance

    def __hash__(self):
        return hash((id(self.function), id(self.instance)))

    def __repr__(self):
        return f"<bound {self.function!r}>"

    def __reduce__(self):
        return BoundCall, (self.function, self.instance)


call_in_python = BoundCall.__call__
BoundObject = ObjectKind("Bound", BoundCall, {name: (f"bound_{name}", Object) for name in ("function", "instance")})


@native(form=SLOT, slow="call_in_python", name="weft_call_bound")
def call(this: Object, args: Tuple, kwargs: Maybe(Dict)) -> Object:
    bound = cast(BoundObject, this)
    given = new_tuple(len(args) + 1)
    set_tuple_item(given, 0, bound.instance)
    for k in range(len(args)):
        set_tuple_item(given, k + 1, args[k])
    return call_with(keep(bound.function), given, kwargs)


@native(name="weft_get_compiled")
def get(this: Object, instance: Maybe(Object), owner: Maybe(Object)) -> Object:
    if instance is None:
        return this
    made = cast(BoundObject, new_object(BoundCall, 0))
    made.function = this
    made.instance = instance
    return made


_held = []


def part(layout):
    """What is translated: its name, functions and layout."""
    places = layout._asdict() | places_of(BoundCall, ("function", "instance"), "bound")
    return "bound", [call, get], namedtuple("BoundLayout", places)(**places)


def install(kind):
    """Methods that are functions of this class are asked for and called in native code from now on, where there is
    any."""
    layout = layout_of_objects()
    if _held or layout is None:
        return
    code = translated.load(*part(layout))
    _held.append(code)
    BoundCall.__call__ = objects.new_wrapper(BoundCall, native_layout.wrapper_base(), code.address("weft_call_bound"))
    get_base = native_layout.base_of(FunctionType, "__get__")
    kind.__get__ = objects.new_wrapper(kind, get_base, code.address("weft_get_compiled"))
