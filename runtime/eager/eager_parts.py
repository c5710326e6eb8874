"""Cotangents of parts in native code: added where the parts are, as parts.py has it; of the subset (docs/native.md).

Python does the first few of a sum, after which no element of it is -0.0, and says where a part is.
"""

from ...compiler.translate.kinds import Dict, List, Object, Tuple
from ...compiler.translate.language import cast, keep, native
from ..code.native_kinds import TensorObject, as_long, call_with, new_long
from ..state.tensor import Tensor
from .eager_matching import is_contiguous, n_elements
from .eager_sums import MOST_COPIED, add_arrays, are_alike_arrays, copy_of
from .eager_words import ArrayObject, NodeObject, Words, delete_item
from .node import AccumulateGrad
from .parts import FEWEST_ELEMENTS, FEWEST_OF_MANY, MANY
from .saved import Shape


@native()
def joins_others(pending: Dict, sums: Dict, node: NodeObject, cotangent: Object) -> Object:
    """Whether a cotangent of a part of a large tensor, or of one of many parts, comes where another one is: it is added
    to that (parts.py)."""
    edge = cast(Tuple, node.edges)[0]
    if edge is None:
        return False
    arrived = pending.get(cast(Tuple, edge)[0])
    if arrived is None or cast(List, arrived)[0] is None or type(cast(List, arrived)[0]) is not Tensor:
        return False
    whole = cast(TensorObject, cast(List, arrived)[0])._data
    if whole is None:
        return False
    n = n_elements(cast(ArrayObject, whole))
    if n < FEWEST_OF_MANY or 2 * n_elements(cast(ArrayObject, cast(TensorObject, cotangent)._data)) > n:
        return False
    if n >= FEWEST_ELEMENTS:
        return True
    return is_of_many(sums, cast(Tuple, edge)[0])


@native()
def is_of_many(sums: Dict, target: Object) -> Object:
    """Counts the parts that come to a node."""
    known = sums.get(target)
    if known is None:
        sums[target] = new_long(1)
        return False
    if type(known) is not int or as_long(known) >= MANY:
        return True
    sums[target] = new_long(as_long(known) + 1)
    return False


@native()
def add_part(words: Words, x: Object, pending: Dict, sums: Dict, leaves: Dict) -> Object:
    """Whether the cotangent of a part was added to a sum of which Python says where the part is."""
    node = cast(NodeObject, x)
    slots = pending.get(x)
    operands = cast(Tuple, node.operands)
    if slots is None or len(operands) != 1 or type(operands[0]) is not Shape:
        return False
    target = keep(cast(Tuple, cast(Tuple, node.edges)[0])[0])
    known = sums.get(target)
    arrived = pending.get(target)
    if known is None or type(known) is not list or arrived is None:
        return False
    whole = keep(cast(List, arrived)[0])
    cotangent = keep(cast(List, slots)[0])
    if type(whole) is not Tensor or type(cotangent) is not Tensor:
        return False
    part = call_with(words.known_part, (known, whole, x, cotangent), None)
    if type(part) is not words.array_class or cast(TensorObject, cotangent)._data is None:
        return False
    array = cast(ArrayObject, part)
    added = keep(cast(ArrayObject, cast(TensorObject, cotangent)._data))
    if not is_contiguous(added) and n_elements(added) <= MOST_COPIED:
        added = keep(cast(ArrayObject, copy_of(words, cast(TensorObject, cotangent))._data))
    if not are_alike_arrays(words, array, added):
        return False
    add_arrays(words, array, added, array)
    if type(target) is AccumulateGrad:
        # Leaves come in the order in which their sums are complete.
        delete_item(leaves, target)
        leaves[target] = None
    words.nodes_taken += 1
    return True
