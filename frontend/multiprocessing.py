"""weft.multiprocessing: Python's multiprocessing, by PyTorch's path. Processes share no tensors: they get copies."""

import multiprocessing


def get_all_sharing_strategies():
    """The one there is: copies through files that the system keeps."""
    return {"file_system"}


def get_sharing_strategy():
    """ "file_system": how tensors travel between processes."""
    return "file_system"


def set_sharing_strategy(new_strategy):
    """Nothing: tensors are copied."""


def __getattr__(name):
    return getattr(multiprocessing, name)
