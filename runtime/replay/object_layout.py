"""Where tensors, nodes and what they hold keep what native code reads."""

import functools
from collections import namedtuple

from ...compiler.ops.table import Meta
from ..eager import node
from ..eager.eager_words import FUNCTION_FIELDS, LEAF_FIELDS, NODE_FIELDS, PLACE_FIELDS, PLACE_NODE_FIELDS
from ..eager.function_node import FunctionNode
from ..eager.open_nodes import Hole, OpenDerivative
from ..eager.rebase import AsStridedBackward0, CopySlices, Place
from ..eager.saved import Shape
from ..state.storage import Storage
from ..state.tensor import LentMemory
from . import native, native_layout


def layout_of_objects():
    """That of native.py, with the fields of nodes; None where it is not known."""
    found = native.layout()
    return None if found is None else _with_objects(found)


@functools.cache
def _with_objects(found):
    places = found._asdict() | places_of(node.named(node.Node, "AddBackward0"), NODE_FIELDS, "node")
    places |= places_of(node.AccumulateGrad, LEAF_FIELDS, "leaf") | places_of(node.Recording, ("native",), "recording")
    places |= places_of(node.named(FunctionNode, "FBackward"), FUNCTION_FIELDS, "function")
    places |= places_of(Place, PLACE_FIELDS, "place") | _of_both(PLACE_NODE_FIELDS)
    places |= {"refcount": 0, "array_strides": found.array_shape + 8}
    places |= places_of(node.Saved, ("tensor", "version"), "saved") | places_of(LentMemory, ("array",), "lent")
    places |= places_of(Meta, ("shape", "dtype", "weak"), "op_meta") | places_of(Shape, ("shape", "dtype"), "shape")
    places |= places_of(Hole, ("place", "shift", "is_first"), "hole")
    places |= places_of(OpenDerivative, ("native",), "open_derivative")
    places |= places_of(Storage, ("version", "sharers", "changes", "exposed"), "storage")
    return namedtuple("EagerLayout", places)(**places)


def _of_both(fields):
    """Those of the nodes of parts, which are of two classes with the same slots."""
    found = places_of(CopySlices, fields, "place_node")
    if found != places_of(AsStridedBackward0, fields, "place_node"):
        raise AssertionError("nodes of parts have their fields in different places")
    return found


def places_of(kind, names, stem):
    """Where the slots of a class are, each found by looking for a known value."""
    made = object.__new__(kind)
    values = {name: object() for name in names}
    for name, value in values.items():
        setattr(made, name, value)
    return {f"{stem}_{name}": native_layout.place(made, id(value)) for name, value in values.items()}
