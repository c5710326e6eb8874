"""`weft.fill_cache`: what all programs on a machine share, compiled where nobody waits for it."""

from .compiler.later import later

_make_now = later("runtime.replay.native_making:make_now")


def fill_cache():
    """Compile what all programs on this machine share, and keep it on disk.

    Replays of compiled calls, and eager mode, run in native code that is the same for all programs. It takes some two
    seconds to compile, once per machine. Without this call that happens in the background, once a program has asked for
    it often enough, and calls go more slowly until then, with the same bits. So call this, or `python -m weft cache
    fill`, where an image for containers is built, or before times are taken.

    Returns the seconds that it took; 0.0 where everything was there, or the interpreter is one without such code.
    Raises ModuleNotFoundError, saying what to install, if it has to be compiled and llvmlite is missing.

        >>> weft.fill_cache() >= 0.0
        True
    """
    return _make_now()
