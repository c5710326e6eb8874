"""Tensors and objects from one process to another."""

import pickle

import numpy as np

from ..runtime.distributed import group as groups
from ..runtime.distributed.messages import finish
from ..runtime.state.tensor import tensor_of
from .collectives import place_of, seconds_of, write
from .started import described, member, require_tensor, values_of


class Transfer:
    """A tensor on its way, as isend and irecv return it."""

    def __init__(self, transfer, tensor=None):
        self._transfer, self._tensor = transfer, tensor

    def wait(self, timeout=None):
        """Wait until it is sent, or has come and been written, as long as timeout says, a datetime.timedelta. True."""
        transfer = finish(self._transfer, groups.world.farewells, seconds_of(timeout, "wait"))
        if self._tensor is not None:
            tensor, self._tensor = self._tensor, None
            write(tensor, transfer.result)
        return True

    def is_completed(self):
        self._transfer.advance()
        return self._transfer.has_ended

    def source_rank(self):
        """The rank that has sent it."""
        return self._transfer.messages.group.ranks[self._transfer.source]


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Begin to send a tensor to rank dst; its values are copied now."""
    group = member(group)
    if group is None:
        return None
    to = _other(group, dst, group_dst, "dst", "send")
    return Transfer(group.messages.send(values_of(tensor, "send"), described("tensor", tensor), to, tag))


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Begin to receive a tensor of rank src, of any rank if none is given; wait() writes it."""
    group = member(group)
    if group is None:
        return None
    source = None if src is None and group_src is None else _other(group, src, group_src, "src", "recv")
    require_tensor(tensor, "recv")
    like = np.empty(0, tensor.dtype.numpy)
    return Transfer(group.messages.receive(like, described("tensor", tensor), source, tag), tensor)


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Send a tensor to rank dst, which calls recv."""
    transfer = isend(tensor, dst, group, tag, group_dst)
    if transfer is not None:
        transfer.wait()


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receive a tensor of the same shape and type from rank src, of any rank if none is given. Returns its rank."""
    transfer = irecv(tensor, src, group, tag, group_src)
    if transfer is None:
        return -1
    transfer.wait()
    return transfer.source_rank()


class P2POp:
    """A message for batch_isend_irecv: `op` is isend or irecv, `peer` the other rank."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise RuntimeError("P2POp: op must be weft.distributed.isend or weft.distributed.irecv")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


def batch_isend_irecv(p2p_op_list):
    """Begin messages, each a P2POp; what isend and irecv return of each."""
    if not p2p_op_list or not all(isinstance(one, P2POp) for one in p2p_op_list):
        raise ValueError("batch_isend_irecv: give a list of one or more P2POp")
    begun = [one.op(one.tensor, one.peer, one.group, one.tag, one.group_peer) for one in p2p_op_list]
    return [transfer for transfer in begun if transfer is not None]


def _other(group, rank, place, name, what):
    found = place_of(group, rank, place, name)
    if found == group.place:
        raise ValueError(f"{what}: {name} is this process itself, rank {group.ranks[found]}")
    return found


def pickled(value):
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def send_object_list(object_list, dst=None, group=None, group_dst=None):
    """Send objects to rank dst, pickled."""
    text = np.frombuffer(pickled(list(object_list)), np.uint8).copy()
    send(tensor_of(np.array([len(text)], np.int64)), dst, group, 0, group_dst)
    send(tensor_of(text), dst, group, 0, group_dst)


def recv_object_list(object_list, src=None, group=None, group_src=None):
    """Receive as many objects into a list. Returns the rank that sent them. They are unpickled: trust the sender."""
    size = tensor_of(np.zeros(1, np.int64))
    rank = recv(size, src, group, 0, group_src)
    text = tensor_of(np.empty(size.item(), np.uint8))
    recv(text, rank, group)
    object_list[:] = pickle.loads(text.array.tobytes())
    return rank
