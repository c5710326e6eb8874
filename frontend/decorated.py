"""How objects are pickled that stand in the place of a function, as a decorator or an assignment put them there.

What a module has under the function's own name is named, and found there again. In the main program that is so too,
but workers of joblib know no main program: for them the function goes along by value. All others are made anew from
their function.
"""

import pickle
import sys


def reduced(decorated, make, function, *options):
    """What `__reduce__` gives for what make(function, *options) is."""
    module, name = getattr(decorated, "__module__", None), getattr(decorated, "__qualname__", "")
    if _at(module, name) is not decorated:
        return make, (function, *options)
    if module != "__main__":
        return name
    return _of_main, (name, type(decorated), make, _by_value(function), options)


def _by_value(function):
    """A function as bytes by cloudpickle, if it is in use, as it is in joblib."""
    cloudpickle = sys.modules.get("cloudpickle") or sys.modules.get("joblib.externals.cloudpickle")
    return None if cloudpickle is None else cloudpickle.dumps(function)


def _of_main(name, kind, make, function, options):
    """What has this name in the main program; in a process that has another one, one made anew."""
    found = _at("__main__", name)
    if isinstance(found, kind) or function is None:
        return found
    return make(pickle.loads(function), *options)


def _at(module, name):
    """What has this dotted name in a module; None if nothing has."""
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
