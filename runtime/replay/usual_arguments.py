"""The arguments of a usual call: tensors and other objects, whatever containers they are in.

f({"x": a, "y": (b, a)}, scale=c)     leaves a, b, c     structure {"x": leaf, "y": (leaf, the first again)}, ...
"""

from collections import OrderedDict
from itertools import count

from ..state.tensor import Tensor

_LEAF = "leaf"  # a leaf that has come before is the number of that one
# Roles of parts: the last ones are tuples, lists, dicts, and dicts that keep an order of their own.
LEAF, AGAIN, ITEMS, LISTED, NAMED, ORDERED = range(6)


def structure_of(x, leaves):
    """What nested arguments look like without their leaves, which are collected in order. A tensor that comes again is
    no new leaf."""
    return _structure(x, leaves, {})


def _structure(x, leaves, seen):
    if isinstance(x, Tensor):
        place = seen.get(id(x))
        if place is not None:
            return place
        seen[id(x)] = len(leaves)
    elif isinstance(x, (list, tuple)):
        return type(x), [_structure(v, leaves, seen) for v in x]
    elif isinstance(x, dict):
        return type(x), list(x), [_structure(v, leaves, seen) for v in x.values()]
    leaves.append(x)
    return _LEAF


def parts_of(structure, most):
    """A structure as rows (role, place, size, kind, keys) for native code, containers before what is in them; None if
    there are more than so many, or a dict of another class, which may have its items in another order. An OrderedDict
    is asked for the order it has now, and for its items by name: comparing other keys may run code.

    place: of a leaf that among the leaves; of one that comes again, that of the part as which it has come; of a
    container, that of the first part in it.
    """
    parts, rows, where = list(_numbered(structure, count())[-1]), [], {}
    for role, place, kind, keys, inside in parts:
        if role == LEAF:
            where[place] = len(rows)
        elif role != AGAIN:
            place = len(parts)
        parts += inside
        rows.append((role, place, len(inside), kind, keys))
    if len(parts) > most or any(row[0] == NAMED and row[3] is not dict for row in rows):
        return None
    if any(row[0] == ORDERED and any(type(key) is not str for key in row[4]) for row in rows):
        return None
    return [(AGAIN, where[row[1]], *row[2:]) if row[0] == AGAIN else row for row in rows]


def _numbered(structure, numbers):
    """(role, number of a leaf, kind, keys, what is inside), leaves numbered as `structure_of` collects them."""
    if structure == _LEAF:
        return LEAF, next(numbers), None, None, ()
    if isinstance(structure, int):
        return AGAIN, structure, None, None, ()
    kind, *keys, children = structure
    role = LISTED if issubclass(kind, list) else ITEMS
    if keys:
        role = ORDERED if kind is OrderedDict else NAMED
    return role, None, kind, tuple(keys[0]) if keys else None, [_numbered(child, numbers) for child in children]


def picker(structure):
    """A function of (args, kwargs): the leaves as a tuple if they look like this structure, else None.

    Unpacking written out for the structure takes a fifth of the time of walking the arguments.
    """
    writer = _Picker()
    top = writer.name(structure)
    leaves = "".join(f"leaf{k}, " for k in range(writer.n_leaves))
    lines = [f"{top} = (args, kwargs)", *writer.lines, f"return ({leaves})"]
    exec("def pick(args, kwargs):\n" + "".join(f"    {line}\n" for line in lines), writer.constants)
    return writer.constants["pick"]


class _Picker:
    """The text of a picker. Leaves are numbered in the order in which `structure_of` collects them."""

    def __init__(self):
        self.lines, self.constants, self.n_leaves, self.n_others = [], {"Tensor": Tensor}, 0, 0

    def name(self, structure):
        """The name of what has this structure, once it has been unpacked; lines that check it follow."""
        if structure == _LEAF:
            self.n_leaves += 1
            return f"leaf{self.n_leaves - 1}"
        self.n_others += 1
        name = f"x{self.n_others}"
        if isinstance(structure, int):
            self.lines.append(f"if {name} is not leaf{structure}: return None")
        else:
            self._unpack(name, *structure)
        return name

    def _unpack(self, name, kind, *rest):
        self.constants[f"type_of_{name}"] = kind
        self.lines.append(f"if type({name}) is not type_of_{name} or len({name}) != {len(rest[-1])}: return None")
        values = name
        if len(rest) > 1:
            self.constants[f"keys_of_{name}"] = rest[0]
            self.lines.append(f"if [*{name}] != keys_of_{name}: return None")
            values = f"{name}.values()"
        place = len(self.lines)
        names = "".join(f"{self.name(child)}, " for child in rest[-1])
        if names:
            self.lines.insert(place, f"{names}= {values}")


def arguments_of(args, kwargs):
    """(structure, leaves) of a call, before it begins: it may change containers. The structure of one without keywords,
    containers and repetitions is None."""
    leaves = []
    structure = structure_of((args, kwargs), leaves)
    simple = not kwargs and len(leaves) == len(args) and all(x is y for x, y in zip(args, leaves))
    return (None if simple else structure), leaves


def numbers_of(leaves):
    """The whole numbers among leaves, by place."""
    return {place: x for place, x in enumerate(leaves) if type(x) is int}


def leaves_of(frame, args, kwargs):
    """Of arguments that look like those of a UsualFrame's calls; else None."""
    if frame.structure is not None:
        return frame.pick(args, kwargs)
    return None if kwargs else args


def is_result(tensor):
    """Whether a tensor has a history, and none that an open call knows."""
    return tensor.has_history and (tensor._frame is None or tensor._frame.closed)
