"""A process that fails, or ends before the others.

One that fails ends all: its exception is shown, with its rank and the line, others that fail at the same time show
theirs, and MPI ends every process. One that ends as it should, but before the others are done, tells them how many
collectives it has taken part in; who waits for one more raises an error that says so. One that is killed is seen by
mpiexec, which ends the others.
"""

import array
import atexit
import os
import signal
import stat
import sys
import time
import traceback

from .long_waits import SECONDS as _LONG_SECONDS
from .long_waits import Call, LongWaits
from .mpi import load
from .waiting import Patience, wait_for

try:
    from fcntl import ioctl
    from termios import FIONREAD
except ImportError:  # not POSIX
    ioctl = FIONREAD = None

_PACKAGE = __name__.partition(".")[0]
_FAILED = 1
_POLITE_SECONDS = 600
_SECONDS_FOR_OTHERS_TO_FAIL = 0.5
_SECONDS_TO_BE_READ = 30  # in vain only if mpiexec has ended, or is not read itself
_SECONDS_TO_BE_PASSED_ON = 0.05
_SECONDS_FOR_OTHERS_TO_BEGIN = 10
_HAS_FAILED = None  # in place of counts


class Farewells:
    """What processes that have ended have told this one."""

    def __init__(self, communicator, world):
        self.communicator, self.world = communicator, world
        self.received = {}  # rank -> [collectives it has begun, by number of group]
        self.failed = set()  # ranks that have shown their exception
        self.waits, self.sent = LongWaits(world.groups, self._send), []
        if communicator.size > 1:
            self.hook, sys.excepthook = sys.excepthook, self._fail
            atexit.register(self._say)

    def missing(self, group, number):
        """Why a collective of a group will never end; None if it may."""
        self._listen()
        for rank in group.ranks:
            counts = self.received.get(rank)
            if counts is not None and counts[group.number] < number:
                return f"rank {rank} has ended after number {counts[group.number]}"
        return None

    def difference(self, group, call, seconds):
        """What other ranks have called in place of something here, if ranks find it out after so many seconds in which
        this one waits in vain; None as long as they have not."""
        if seconds > _LONG_SECONDS:
            own = self.communicator.rank
            self.waits.tell(call, [rank for rank in group.ranks if rank != own])
        return self.waits.different

    def has_ended(self, rank):
        self._listen()
        return rank in self.received

    def _listen(self):
        while (message := self.communicator.improbe()) is not None:
            rank, counts = message.recv()
            if counts is _HAS_FAILED:
                self.failed.add(rank)
            elif isinstance(counts, Call):
                self.waits.hear(rank, counts)
            else:
                self.received[rank] = counts
        self.waits.compare()

    def _say(self):
        """At exit: tell all others, and wait until they have ended too, since MPI would wait without letting go of the
        core."""
        requests = self._tell_others([0 if group is None else group.n_works for group in self.world.groups])
        patience = Patience()
        while len(self.received) < len(requests) and patience.seconds() < _POLITE_SECONDS:
            self._listen()
            self._advance()
            patience.pause()
        for request in requests:
            wait_for(request, _POLITE_SECONDS)

    def _tell_others(self, what):
        own = self.communicator.rank
        return [self.communicator.isend((own, what), rank) for rank in range(self.communicator.size) if rank != own]

    def _send(self, rank, what):
        self.sent = [request for request in self.sent if not request.Test()]
        self.sent.append(self.communicator.isend((self.communicator.rank, what), rank))

    def _advance(self):
        """Collectives that nobody has waited for here may be waited for elsewhere."""
        for group in self.world.groups:
            if group is not None and group.works and group.error is None:
                group.advance()

    def _fail(self, kind, error, trace):
        self.hook(kind, error, trace)
        _name(self.communicator.rank, self.communicator.size, kind, error, trace)
        try:
            self._let_others_fail()
            let_read(sys.stderr, sys.stdout)
        finally:
            load().COMM_WORLD.Abort(_FAILED)

    def _let_others_fail(self):
        """What one rank finds wrong, others often find at the same moment: MPI would end them in the middle of their
        words, which may be those that say why."""
        requests = self._tell_others(_HAS_FAILED)
        patience = Patience()
        while patience.seconds() < _SECONDS_FOR_OTHERS_TO_FAIL:
            self._listen()
            if len(self.failed | self.received.keys()) == len(requests):
                break
            patience.pause()


def watch_the_beginning(world):
    """An exception before there is a group ends all processes too. mpiexec of MPICH only sees processes that have
    initialised MPI: the others would wait for this one in theirs, for ever. Open MPI's sees all."""
    if int(os.environ.get("PMI_SIZE", 1)) > 1 and os.environ.get("PMI_RANK") and hasattr(signal, "alarm"):
        sys.excepthook = _Beginning(sys.excepthook, world)


class _Beginning:
    """The hook of exceptions from the import of weft.distributed on. It does nothing once there is a group."""

    def __init__(self, hook, world):
        self.hook, self.world = hook, world

    def __call__(self, kind, error, trace):
        self.hook(kind, error, trace)
        if self.world.farewells is not None:
            return
        _name(os.environ["PMI_RANK"], os.environ["PMI_SIZE"], kind, error, trace)
        let_read(sys.stderr, sys.stdout)
        # Initialising waits for the others. When some never do, this signal ends the process, and mpiexec the others.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS_FOR_OTHERS_TO_BEGIN)
        try:
            load().COMM_WORLD.Abort(_FAILED)
        except RuntimeError:  # no mpi4py: nobody can wait
            signal.alarm(0)


def _name(rank, size, kind, error, trace):
    what = traceback.format_exception_only(kind, error)[-1].strip()
    print(
        f"weft.distributed: rank {rank} of {size} has failed at {_line(trace)}: {what}\n"
        "weft.distributed: all processes are ended",
        file=sys.stderr,
        flush=True,
    )
    sys.stdout.flush()


def let_read(*files):
    """Wait until what was written to them has been read, where they are pipes: MPI's Abort overtakes it on the way to
    mpiexec, which then reads no more."""
    patience = Patience()
    while any(_n_unread(file) for file in files) and patience.seconds() < _SECONDS_TO_BE_READ:
        patience.pause()
    time.sleep(_SECONDS_TO_BE_PASSED_ON)


def _n_unread(file):
    """Bytes written to a pipe that nobody has read yet; 0 for what is not a pipe or cannot be asked."""
    n_bytes = array.array("i", [0])
    try:
        if ioctl is not None and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            ioctl(file.fileno(), FIONREAD, n_bytes)
    except (OSError, ValueError, AttributeError):
        pass
    return n_bytes[0]


def _line(trace):
    """ "file.py:12" of the innermost line outside weft."""
    found = "unknown line"
    for frame, line in traceback.walk_tb(trace):
        if frame.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE:
            found = f"{frame.f_code.co_filename}:{line}"
    return found
