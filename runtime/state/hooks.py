"""What users attach to nodes: hooks, and the handles that take them out again; and a dict of their own."""

import itertools
from weakref import WeakKeyDictionary


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away again, and so does the end of a `with` block."""

    _ids = itertools.count()

    def __init__(self, hooks, hook, prepend=False):
        self.hooks, self.id = hooks, next(RemovableHandle._ids)
        others = dict(hooks) if prepend else {}
        if prepend:
            hooks.clear()
        hooks[self.id] = hook
        hooks.update(others)

    def remove(self):
        self.hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


class TensorHook:
    """A hook of one output of a node."""

    __slots__ = ("index", "hook")

    def __init__(self, index, hook):
        self.index, self.hook = index, hook

    def __call__(self, cotangents):
        replaced = self.hook(cotangents[self.index])
        return replaced if replaced is None else [replaced if k == self.index else c for k, c in enumerate(cotangents)]


_metadata = WeakKeyDictionary()


def metadata_of(node):
    """The node's dict, made when it is asked for."""
    return _metadata.setdefault(node, {})
