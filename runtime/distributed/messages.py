"""From one process to another: a record of what is sent, and the elements, as one message.

The record says shape, type and the sender's line, so whoever receives another tensor than it expects says so.
"""

import numpy as np

from ..programs.user_lines import user_line
from . import checks
from .exchanges import as_bytes
from .mpi import load
from .waiting import Patience, has_completed

_ANY = -1


class Messages:
    """What is under way between this process and others of its group."""

    def __init__(self, group, communicator):
        self.group, self.communicator = group, communicator
        self.awaited = []  # receipts without a message, in the order in which they were asked for

    def send(self, array, call, to, tag):
        message = np.concatenate([checks.record(call, user_line()), as_bytes(array)])
        return Sent(self, message, self.communicator.Isend(message, to, tag), to)

    def receive(self, like, call, source, tag):
        """`source`: a place in the group; None for anybody."""
        receipt = Receipt(self, like, call, _ANY if source is None else source, tag)
        self.awaited.append(receipt)
        self.advance()
        return receipt

    def advance(self):
        """Match what has come with what is awaited, which gets it in the order in which it was asked for."""
        before, still = [], []
        for receipt in self.awaited:
            is_behind = any(receipt.may_take_from(other) for other in before)
            if is_behind or not receipt.match(self.communicator):
                before.append(receipt)
                still.append(receipt)
        self.awaited = still


class Sent:
    """A message on its way. It keeps the memory that is sent."""

    name = "send"

    def __init__(self, messages, message, request, to):
        self.messages, self.message, self.request, self.to = messages, message, request, to
        self.line, self.has_ended = user_line(), False

    def advance(self):
        self.has_ended = self.has_ended or has_completed(self.request)

    def trouble(self, farewells):
        """Why nobody will take it any more; None if somebody may."""
        rank = self.messages.group.ranks[self.to]
        return f"rank {rank} has ended" if farewells.has_ended(rank) else None


class Receipt:
    """A message that is awaited, and after it has come its source and its elements."""

    name = "recv"

    def __init__(self, messages, like, call, source, tag):
        self.messages, self.like, self.call, self.wanted, self.tag = messages, like, call, source, tag
        self.line, self.has_ended = user_line(), False
        self.source = self.request = self.buffer = self.result = None

    def may_take_from(self, other):
        """Whether a message for this one could be for that one, which was asked for before."""
        return self.tag == other.tag and (_ANY in (self.wanted, other.wanted) or self.wanted == other.wanted)

    def match(self, communicator):
        """Whether a message for this one has come."""
        mpi = load()
        source, status = mpi.ANY_SOURCE if self.wanted == _ANY else self.wanted, mpi.Status()
        message = communicator.Improbe(source, self.tag, status)
        if message is None:
            return False
        self.source = status.Get_source()
        self.buffer = np.empty(status.Get_count(), np.uint8)
        self.request = message.Irecv(self.buffer)
        return True

    def advance(self):
        if self.request is None:
            self.messages.advance()
        if self.request is not None and not self.has_ended and has_completed(self.request):
            self.has_ended = True
            self._open()

    def _open(self):
        head, body = self.buffer[: checks.SIZE_BYTES], self.buffer[checks.SIZE_BYTES :]
        call, line = bytes(head).rstrip(b"\0").decode(errors="replace").partition("\n")[::2]
        ranks = self.messages.group.ranks
        if call != self.call:
            raise checks.DistributedError(
                f"recv: rank {ranks[self.source]} sends {call} at {line}, and rank "
                f"{ranks[self.messages.group.place]} receives {self.call} at {self.line}"
            )
        self.result = body.copy().view(self.like.dtype)

    def trouble(self, farewells):
        """Why nothing will come any more; None if something may."""
        ranks = self.messages.group.ranks
        sources = [k for k in range(len(ranks)) if self.wanted in (_ANY, k) and k != self.messages.group.place]
        ended = [ranks[k] for k in sources if farewells.has_ended(ranks[k])]
        self.messages.advance()
        if self.request is not None or len(ended) < len(sources):
            return None
        return f"rank {ended[0]} has ended" if len(ended) == 1 else "all other ranks have ended"


def finish(transfer, farewells, seconds=None):
    """Wait until a message has been sent, or has come. `seconds`: how long, in place of the group's timeout."""
    patience = Patience()
    group = transfer.messages.group
    limit = group.timeout_seconds if seconds is None else seconds
    while True:
        transfer.advance()
        if transfer.has_ended:
            return transfer
        patience.pause()
        group.advance()
        if patience.is_time_to_look():
            _look(transfer, farewells, patience.seconds(), limit)


def _look(transfer, farewells, seconds, limit):
    group, trouble = transfer.messages.group, transfer.trouble(farewells)
    if trouble is None and seconds > limit:
        trouble = f"the other rank has not come to it within {limit:g} s"
    if trouble is not None:
        raise checks.DistributedError(
            f"{transfer.name} waits on rank {group.ranks[group.place]} at {transfer.line}, but {trouble}"
        )
