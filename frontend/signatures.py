"""The recordings of a compiled function, one per signature: as many as are in use, up to a limit."""

import threading

MAX_SIGNATURES = 64
_MAX_REASONS = 16


class Recordings:
    """Signature -> Recording, with room for MAX_SIGNATURES. A new one takes the place of one not called lately.

    Which one that is, is asked only when room is needed, so that calls have nothing to keep: going round, the first
    whose number of calls is what it was when it was last looked at has to go (the clock algorithm; F. J. Corbato, A
    paging experiment with the Multics system, 1968).
    """

    def __init__(self):
        self._recordings = {}
        self._seen = {}  # signature -> how many calls there were when it was last looked at
        self._lock = threading.Lock()
        self.reasons = []  # why recordings were made, the last few
        self.n_dropped = 0

    def get(self, signature):
        return self._recordings.get(signature)

    def last_signature(self):
        """That of the recording made or looked at last; None if there is none."""
        return next(reversed(self._recordings), None)

    def add(self, recording, reason=None):
        with self._lock:
            while len(self._recordings) >= MAX_SIGNATURES:
                self._make_room()
            self._recordings[recording.signature] = recording
            self._seen[recording.signature] = 1  # the call that it is made for
            if reason is not None:
                self.reasons = [*self.reasons[1 - _MAX_REASONS :], reason]

    def _make_room(self):
        signature, recording = next(iter(self._recordings.items()))
        del self._recordings[signature]
        if self._seen.pop(signature) == recording.calls:
            self._drop(recording)
        else:
            self._seen[signature] = recording.calls
            self._recordings[signature] = recording

    def _drop(self, recording):
        """Calls in flight, and results that wait for their backward, may go on with it."""
        self.n_dropped += 1
        recording.release()
        for replay in [r for other in self._recordings.values() for r in other.replays]:
            following = replay.following
            if following is not None and following.recording is recording:
                replay.following = None

    def items(self):
        return list(self._recordings.items())

    def values(self):
        return list(self._recordings.values())

    def __len__(self):
        return len(self._recordings)
