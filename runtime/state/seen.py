"""What no step of a recorded call tells of the user's Python: that it read memory, drew random numbers or warned."""

from .modes import state
from .random import default_generator
from .said import n_warnings


class Watch:
    """A `with` block in which that is noticed. read: whether memory was that is not of a call in flight."""

    def __init__(self):
        self.read, self._around = False, None
        self._draws, self._n_warnings = _draws(), n_warnings()

    def __enter__(self):
        self._around, state.looks_on = state.looks_on, self
        return self

    def __exit__(self, *exception):
        state.looks_on = self._around

    def __call__(self, tensor):
        self.read = True
        if self._around is not None:
            self._around(tensor)

    def what_else(self):
        """Of what would not be the same without this Python, or None."""
        if self.read:
            return "its Python reads values of a tensor"
        if self._draws != _draws():
            return "it draws random numbers"
        return None if self._n_warnings == n_warnings() else "it warns of something"

    def take_back_draws(self):
        """The next draws are those that would have come without this block."""
        seed, calls = self._draws
        if default_generator.initial_seed() == seed:
            default_generator._calls = calls


def _draws():
    return default_generator.initial_seed(), default_generator._calls
