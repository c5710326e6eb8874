"""Long calls that nothing can stop, made by another thread while this one waits: Ctrl-C ends the wait.

One call of LAPACK on a large matrix takes seconds, and CPython runs no handler of a signal before it has returned. A
thread that waits for a lock is woken up by signals. What was computed for a caller who has left is dropped when it is
there; it was computed in memory of its own, from operands that the other thread holds.
"""

from _thread import allocate_lock, start_new_thread
from contextvars import copy_context
from threading import current_thread, main_thread

# To begin a thread and to be woken up by it takes 0.05 to 0.1 ms.
LONG_NS = 50_000_000


def aside(function, *args, **kwargs):
    """function(*args, **kwargs), with whatever it raises.

    It must write nothing that others see, and let go of the interpreter's lock while it computes. Its operands may
    change under it once the caller has left: then its result is anything, and nobody sees it.
    """
    if current_thread() is not main_thread():
        return function(*args, **kwargs)  # no other thread gets signals
    found, done, context = [], allocate_lock(), copy_context()

    def compute():
        try:
            found.append((context.run(function, *args, **kwargs), None))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller gets it
            found.append((None, error))
        finally:
            done.release()

    done.acquire()
    try:
        start_new_thread(compute, ())
    except RuntimeError:  # there are too many, or the interpreter ends
        return function(*args, **kwargs)
    done.acquire()
    result, error = found.pop()
    try:
        if error is not None:
            raise error
        return result
    finally:
        del error  # whose traceback has this frame
