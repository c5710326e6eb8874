"""weft.random: seeds and states of the default generator."""

from contextlib import contextmanager

from .public import of_module
from .runtime.state.random import Generator, default_generator, manual_seed

__getattr__, __dir__ = of_module(__name__)
__all__ = ["Generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def seed():
    """Start the default generator anew with a random seed, which is returned."""
    return default_generator.seed()


def initial_seed():
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state():
    """The state of the default generator, as an int64 tensor of two elements."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Let the default generator go on from a state that `get_rng_state` returned."""
    default_generator.set_state(new_state)


def thread_safe_generator():
    """None, which stands for the default generator: the workers of a DataLoader are in this thread, and have one each
    that takes its place meanwhile."""


@contextmanager
def fork_rng(devices=None, enabled=True, device_type="cpu", **options):
    """What is drawn in the block leaves the default generator as it was."""
    before = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(before)
