"""`weft.futures`: values that will be there, by PyTorch's names: what a collective under way has when it ends."""

import threading
from types import GenericAlias

from .public import of_module

__all__ = ["Future", "collect_all", "wait_all"]
__getattr__, __dir__ = of_module(__name__)


class Future:
    """A value that somebody sets, or that comes when it is waited for; or the exception that came instead.

    Callbacks run in the thread that sets the value, or that waits for it, in the order in which they were added.
    """

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, *, devices=None):
        self._bring = self._is_there = None  # what waits for the value and sets it; and whether that needs no waiting
        self._lock, self._done = threading.Lock(), threading.Event()
        self._callbacks, self._value, self._error = [], None, None

    def done(self):
        """Whether there is a value or an exception."""
        if not self._done.is_set() and self._is_there is not None and self._is_there():
            self._bring()
        return self._done.is_set()

    def wait(self):
        """The value, when it is there. Raises the exception that was set in its place."""
        if not self._done.is_set() and self._bring is not None:
            self._bring()
        self._done.wait()
        return self.value()

    def value(self):
        """The value of a future that is done; RuntimeError of one that is not."""
        if not self._done.is_set():
            raise RuntimeError("Future.value: there is no value yet; call wait(), or ask in a callback of then()")
        if self._error is not None:
            raise self._error
        return self._value

    def then(self, callback):
        """A Future of callback(this future), which is called when this one is done, whether or not by an exception."""
        following = Future()

        def follow(done):
            following._set_from(lambda: callback(done))

        following._bring, following._is_there = self._wait_for_end, self.done
        self.add_done_callback(follow)
        return following

    def add_done_callback(self, callback):
        """Call callback(this future) when it is done; at once, if it is."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def set_result(self, result):
        """Set the value. RuntimeError if there is one."""
        self._end(result, None)

    def set_exception(self, result):
        """Set an exception in its place."""
        if not isinstance(result, BaseException):
            raise TypeError(f"Future.set_exception: {result!r} is of type {type(result).__name__}, not an Exception")
        self._end(None, result)

    def _end(self, value, error):
        with self._lock:
            if self._done.is_set():
                raise RuntimeError("Future can only be marked as completed once: set_result was called before")
            self._value, self._error = value, error
            callbacks, self._callbacks, self._bring, self._is_there = self._callbacks, [], None, None
            self._done.set()
        for callback in callbacks:
            callback(self)

    def _set_from(self, compute):
        try:
            value = compute()
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(value)

    def _wait_for_end(self):
        if not self._done.is_set() and self._bring is not None:
            self._bring()
        self._done.wait()


def brought(bring, is_there):
    """A Future whose value is bring(), called when somebody waits for it, or asks whether it is done and is_there()."""
    future = Future()
    future._bring, future._is_there = lambda: future._set_from(bring), is_there
    return future


def collect_all(futures):
    """A Future of the list of all these futures, done when all of them are."""
    futures = list(futures)
    return brought(lambda: _ended(futures), lambda: all(one.done() for one in futures))


def _ended(futures):
    for one in futures:
        one._wait_for_end()
    return futures


def wait_all(futures):
    """The values of all futures, as a list; the first exception among them, if there is one."""
    return [one.wait() for one in collect_all(futures).wait()]
