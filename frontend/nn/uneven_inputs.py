"""Blocks in which ranks have different numbers of batches: those that have none left answer for the others' steps.

    rank 0    tell, step    tell, step    tell, step    tell          the parameters of a rank
    rank 1    tell, step    tell          tell          tell          that came last go to all
              all active    rank 1 gives zeros          nobody is active

Before every forward all ranks tell each other whether they still have a batch, and whether its gradients will be
exchanged. A rank without one takes part in what the others then exchange: buffers, and zeros as gradients.
"""

import numpy as np

from ..runtime.distributed import exchanges

_CALL = "DistributedDataParallel.join"
_EARLY = (
    "Detected at least one rank that exhausted inputs. Throwing across all ranks: throw_on_early_termination=True was "
    "given to join"
)


class UnevenInputs:
    """Of one block. `divides_by_all`: whether averages are over all ranks, or over those that still have a batch."""

    def __init__(self, group, divides_by_all, throws):
        self.group, self.divides_by_all, self.throws = group, divides_by_all, throws
        self.source, self.n_active = 0, group.n_ranks

    def tell(self, is_active, gives_buffers, gives_gradients):
        """What all ranks say: whether any gives buffers, and gradients; None if nobody is active."""
        mine = np.array([is_active, gives_buffers, gives_gradients], np.int64)
        active, buffers, gradients = self._everybodys(mine).T
        if not active.any():
            return None
        if self.throws and not active.all():
            raise RuntimeError(_EARLY)
        self.source, self.n_active = int(active.argmax()), int(active.sum())
        return bool(buffers.any()), bool(gradients.any())

    def last_rank(self, came_last):
        """The place of a rank that has been active until the end."""
        return int(self._everybodys(np.array([came_last], np.int64)).argmax())

    def _everybodys(self, mine):
        rows = self.group.wait(self.group.begin(_CALL, _CALL, exchanges.all_gather(self.group, mine)))
        return np.stack(list(rows))
