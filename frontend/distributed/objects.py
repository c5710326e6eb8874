"""Any Python objects, among all ranks of a group: pickled, so all processes must trust each other."""

import pickle

from ..runtime.distributed import exchanges
from .collectives import place_of
from .messages import pickled
from .started import member


def all_gather_object(object_list, obj, group=None):
    """The objects of all ranks go to all, into object_list."""
    group = member(group)
    if group is not None:
        _check_length("all_gather_object", "object_list", object_list, group)
        object_list[:] = map(pickle.loads, _everybodys("all_gather_object", pickled(obj), group))


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """The objects of all ranks go to rank dst (0 if none is given), into its list."""
    group = member(group)
    if group is None:
        return
    root = place_of(group, dst, group_dst, "dst", default=group.ranks[0])
    if group.place == root:
        _check_length("gather_object", "object_gather_list", object_gather_list or (), group)
    texts = _everybodys("gather_object", pickled(obj), group)
    if group.place == root:
        object_gather_list[:] = map(pickle.loads, texts)


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """The objects in the list of rank src go into the lists of all, which are as long."""
    group = member(group)
    if group is None:
        return
    root = place_of(group, src, group_src, "src", default=group.ranks[0])
    object_list[:] = _from_root("broadcast_object_list", list(object_list), root, group)


def scatter_object_list(
    scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
):
    """Each rank gets, as the first of its output list, its object of the list of rank src (0 if none is given)."""
    group = member(group)
    if group is None:
        return
    root = place_of(group, src, group_src, "src", default=group.ranks[0])
    if group.place == root:
        _check_length("scatter_object_list", "scatter_object_input_list", scatter_object_input_list or (), group)
    objects = _from_root("scatter_object_list", scatter_object_input_list, root, group)
    scatter_object_output_list[0] = objects[group.place]


def _everybodys(name, text, group):
    return group.wait(group.begin(name, name, exchanges.all_gather_texts(group, text)))


def _from_root(name, value, root, group):
    text = pickled(value) if group.place == root else None
    call = f"{name} from {group.ranks[root]}"
    return pickle.loads(group.wait(group.begin(name, call, exchanges.broadcast_text(group, text, root))))


def _check_length(name, where, objects, group):
    if len(objects) != group.n_ranks:
        raise ValueError(
            f"{name}: {where} has {len(objects)} elements, the group {group.n_ranks} ranks; one is for each"
        )
