"""Groups of processes: who is in one, the communicators it has, and the works under way in it.

Ranks in arguments are those of the world, as in PyTorch; `group.place` is the place in the group.
"""

from datetime import timedelta

from ..programs.user_lines import user_line
from . import checks, exchanges
from .endings import Farewells
from .long_waits import Call, Calls
from .messages import Messages
from .mpi import load
from .waiting import Patience, wait_for
from .work import ENDED, Work

DEFAULT_TIMEOUT = timedelta(minutes=30)
_UNINITIALIZED = "Default process group has not been initialized, please make sure to call init_process_group."


class World:
    """What a process knows of all others."""

    def __init__(self):
        self.group = self.farewells = None
        self.groups = []
        self.is_checked = True
        self.network = None


world = World()


class ProcessGroup:
    """Some of the processes. Make one with init_process_group or new_group."""

    def __init__(self, communicator, ranks, number, timeout):
        self.ranks, self.number, self.timeout_seconds = tuple(ranks), number, timeout.total_seconds()
        self.place, self.works, self.n_works, self.calls = communicator.rank, [], 0, Calls()
        self.error, self.has_ended = None, False
        *self.communicators, between = _copies(communicator, 4)
        self.messages = Messages(self, between)

    @property
    def n_ranks(self):
        return len(self.ranks)

    def size(self):
        """How many processes are in the group."""
        return self.n_ranks

    def rank(self):
        """The place of this process in the group."""
        return self.place

    def rank_of(self, rank, name="src"):
        """The place in the group of a rank of the world."""
        if rank not in self.ranks:
            raise ValueError(f"{name}={rank} is not in the group, whose ranks are {list(self.ranks)}")
        return self.ranks.index(rank)

    # --- collectives --------------------------------------------------------------------------------------------------
    def begin(self, name, call, phases):
        """Begin a collective: `name` of the op, `call` with all that must be the same on every rank, its phases."""
        if self.error is not None:
            raise checks.DistributedError(f"{name}: the group cannot be used after an error: {self.error}")
        if self.has_ended:
            raise ValueError(f"{name}: the group has been destroyed by destroy_process_group; make another")
        self.n_works += 1
        line = user_line()
        if world.is_checked and self.n_ranks > 1:
            phases = exchanges.checked(self, call, line, self.n_works, phases)
        self.calls.add(Call(self.number, self.n_works, call, line))
        work = Work(name, self.n_works, line, phases)
        self.works.append(work)
        self.advance()
        return work

    def advance(self):
        """Let all works go on as far as that needs no waiting."""
        limit = ENDED
        for work in self.works:
            work.advance(limit, self.communicators, world.network)
            limit = min(limit, work.slot)
        self.works = [work for work in self.works if not work.has_ended]

    def wait(self, work, seconds=None):
        """The result of a work. `seconds`: how long to wait for it, in place of the group's timeout."""
        patience, limit = Patience(), self.timeout_seconds if seconds is None else seconds
        while not work.has_ended:
            if self.error is not None:
                raise self.error  # after which nothing of the group goes on
            self.advance()
            if not work.has_ended:
                patience.pause()
                if patience.is_time_to_look():
                    self.look_for_trouble(work, patience.seconds(), limit)
        if work.error is not None:
            self.error = self.error or work.error
            raise work.error
        return work.result

    def look_for_trouble(self, work, seconds, limit):
        """Raise a DistributedError if a work cannot end any more, or has taken too long."""
        trouble = world.farewells.missing(self, work.number) if world.farewells else None
        if trouble is None and not world.is_checked:
            trouble = self._difference(work, seconds)
        if trouble is None and seconds > limit:
            trouble = f"not all other ranks have come to it within {limit:g} s"
        if trouble is not None:
            self.works.clear()
            rank = world.group.place if world.group else self.place
            self.error = checks.DistributedError(
                f"{work.name}, number {work.number} of its group, waits on rank {rank} at {work.line}, but {trouble}"
            )
            raise self.error

    def _difference(self, work, seconds):
        """Without checks before each collective: see long_waits.py."""
        call = next((call for call in self.calls.last if call.number == work.number), None)
        return call and world.farewells and world.farewells.difference(self, call, seconds)


def _copies(communicator, n_copies):
    """Communicators of the same processes. What is sent in one is not seen in another."""
    pairs = [communicator.Idup() for _ in range(n_copies)]
    for _, request in pairs:
        wait_for(request)
    return [copy for copy, _ in pairs]


# --- the world --------------------------------------------------------------------------------------------------------
def begin(timeout):
    """The group of all processes."""
    communicator = load().COMM_WORLD
    if world.farewells is None:
        world.farewells = Farewells(*_copies(communicator, 1), world)
    world.group = _add(communicator, range(communicator.size), timeout)
    return world.group


def _add(communicator, ranks, timeout):
    group = ProcessGroup(communicator, ranks, len(world.groups), timeout)
    world.groups.append(group)
    return group


def part(ranks, timeout):
    """A group of some ranks, on those; None on others. All processes call it, in the same order."""
    mpi, everybody = load(), default()
    everybody.wait(everybody.begin("new_group", f"new_group of ranks {list(ranks)}", exchanges.barrier(everybody)))
    is_in = everybody.place in ranks
    place = ranks.index(everybody.place) if is_in else 0
    communicator = mpi.COMM_WORLD.Split(0 if is_in else mpi.UNDEFINED, place)
    if is_in:
        return _add(communicator, ranks, timeout)
    world.groups.append(None)
    return None


def default():
    if world.group is None:
        raise ValueError(_UNINITIALIZED)
    return world.group


def end(group=None):
    """No more collectives of a group; of that of all, if none is given. What was begun in it may still be going on."""
    group = group or world.group
    group.has_ended = True
    if group is world.group:
        world.group = None
