"""The end of a process: no thread that is still at work brings it down."""

import sys

import pytest
from thread_scripts import run


def test_at_once_and_while_asleep_and_without_handlers():
    run("check()")
    run("check(); time.sleep(0.02)")
    run("check(); os._exit(0)")
    run("check(); threading.Thread(target=check, args=(10**6,), daemon=True).start(); time.sleep(0.02)")


@pytest.mark.skipif(sys.platform != "linux", reason="the GNU C library")
def test_a_thread_whose_call_goes_on_when_modules_are_gone():
    """It must leave then, and the C library looks at the code of all frames on its stack. (Calls of modules go through
    native code.)"""
    run(
        """
        import ctypes
        from weft.runtime.replay import eager_native
        process = ctypes.CDLL(None)
        # The process waits after the interpreter has ended.
        process.__cxa_atexit(ctypes.cast(process.usleep, ctypes.c_void_p), ctypes.c_void_p(1_000_000), None)
        began = threading.Event()

        class Slow(weft.nn.Module):
            def forward(self, x):
                began.set()
                time.sleep(0.7)
                return x + 1

        eager_native.install()
        threading.Thread(target=Slow(), args=(x,), daemon=True).start()
        began.wait()
        """
    )
