"""Tensors of lists in groups of one type: what optimizers that work on lists of them begin with."""


def group_by_device_and_dtype(lists, with_indices=False):
    """{(device, type of the first list's tensors): (the parts of the lists, their places)}. An empty list stays empty,
    and the others may hold None."""
    groups = {}
    for k, first in enumerate(lists[0]):
        parts, places = groups.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for part, tensors in zip(parts, lists):
            if tensors:
                part.append(tensors[k])
        if with_indices:
            places.append(k)
    return groups
