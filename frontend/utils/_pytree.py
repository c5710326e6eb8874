"""weft.utils._pytree: nested lists, tuples and dicts as a list of leaves and a description, as in PyTorch.

>>> leaves, spec = tree_flatten({"a": [1, 2], "b": (3,)})
>>> leaves
[1, 2, 3]
>>> tree_unflatten([x * 10 for x in leaves], spec)
{'a': [10, 20], 'b': (30,)}
"""

from collections import OrderedDict, defaultdict, namedtuple

from ..results import Result

_registered = {}  # class -> (flatten, unflatten), where flatten gives (children, context)


class TreeSpec(namedtuple("TreeSpec", ["type", "context", "children_specs"])):
    """The description of a tree; `type` is None for a leaf."""

    __slots__ = ()

    @property
    def num_leaves(self):
        return 1 if self.is_leaf() else sum(child.num_leaves for child in self.children_specs)

    @property
    def num_children(self):
        return len(self.children_specs)

    def is_leaf(self):
        return self.type is None

    def unflatten(self, leaves):
        return tree_unflatten(leaves, self)


_LEAF = TreeSpec(None, None, ())


def LeafSpec():
    """The description of a leaf."""
    return _LEAF


def register_pytree_node(cls, flatten_fn, unflatten_fn, **options):
    """Let trees be made of a class: flatten_fn(x) gives (children, context), unflatten_fn(children, context) x."""
    if cls in _registered:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _registered[cls] = (flatten_fn, unflatten_fn)


def _of_dict(x):
    return list(x.values()), list(x.keys())


register_pytree_node(list, lambda x: (list(x), None), lambda children, _: list(children))
register_pytree_node(tuple, lambda x: (list(x), None), lambda children, _: tuple(children))
register_pytree_node(dict, _of_dict, lambda children, keys: dict(zip(keys, children)))
register_pytree_node(OrderedDict, _of_dict, lambda children, keys: OrderedDict(zip(keys, children)))
register_pytree_node(
    defaultdict,
    lambda x: (list(x.values()), (x.default_factory, list(x.keys()))),
    lambda children, context: defaultdict(context[0], zip(context[1], children)),
)


def _parts(x):
    """(class, children, context), or None for a leaf."""
    kind = type(x)
    if kind in _registered:
        return kind, *_registered[kind][0](x)
    is_named = isinstance(x, Result) or isinstance(x, tuple) and hasattr(kind, "_fields")
    return (namedtuple, list(x), kind) if is_named else None


def tree_flatten(tree, is_leaf=None):
    """(leaves, spec)."""
    parts = None if is_leaf is not None and is_leaf(tree) else _parts(tree)
    if parts is None:
        return [tree], _LEAF
    kind, children, context = parts
    flat = [tree_flatten(child, is_leaf) for child in children]
    return [leaf for leaves, _ in flat for leaf in leaves], TreeSpec(kind, context, tuple(spec for _, spec in flat))


def tree_unflatten(leaves, treespec):
    """The tree with these leaves. ValueError if they are too many or too few."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten: `leaves` has length {len(leaves)} but the spec refers to a pytree that holds "
            f"{treespec.num_leaves} items ({treespec})."
        )
    return _built(iter(leaves), treespec)


def _built(leaves, spec):
    if spec.is_leaf():
        return next(leaves)
    children = [_built(leaves, child) for child in spec.children_specs]
    return spec.context(*children) if spec.type is namedtuple else _registered[spec.type][1](children, spec.context)


def tree_leaves(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree, is_leaf=None):
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """The tree with func(leaf, ...) for every leaf; `rests` are trees of the same form."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [_matching(rest, spec) for rest in rests]
    return tree_unflatten([func(*row) for row in zip(leaves, *others)], spec)


def _matching(tree, spec):
    """The subtrees of a tree where `spec` has leaves."""
    if spec.is_leaf():
        return [tree]
    parts = _parts(tree)
    if parts is None or len(parts[1]) != spec.num_children:
        raise ValueError(f"tree_map: a tree of another form, expected {spec}, got {tree!r}")
    return [leaf for child, inner in zip(parts[1], spec.children_specs) for leaf in _matching(child, inner)]


def tree_map_(func, tree, *rests, is_leaf=None):
    """Call func for every leaf, for what it does; returns the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types, func, tree, is_leaf=None):
    """tree_map for leaves of some types (or for which a function of them is true)."""
    wanted = type_or_types if callable(type_or_types) and not isinstance(type_or_types, type) else None

    def chosen(x):
        return wanted(x) if wanted else isinstance(x, type_or_types)

    return tree_map(lambda x: func(x) if chosen(x) else x, tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    return any(map(pred, tree_leaves(tree, is_leaf)))
