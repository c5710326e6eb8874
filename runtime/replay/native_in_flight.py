"""IR text of C functions that ask the usual call in flight something, for native code that is translated."""

from ...compiler.emit.builder import PTR
from .native_text import NULL, Function
from .native_words import ACTIVE, FRAME, FRAME_NAME, METHODS, SLOW, THREAD


def write(module, layout):
    """call_in_flight: the words of the call."""
    f = InFlight(module, "call", layout)
    f.finish(f.words)


class InFlight(Function):
    """A C function for native code that is translated: of the usual call in flight in this thread. It returns null,
    and no error is set, if there is none."""

    def __init__(self, module, name, layout, n_arguments=0):
        super().__init__(module, f"{name}_in_flight", layout, [("args", PTR)])
        self.method, self.n_arguments, self.nothing = name, n_arguments, self.slow
        self.words = self.shared(ACTIVE)
        self.require(self.b.cmp("ne", self.words, NULL))
        self.same(self.python("PyThreadState_Get", []), self.word(THREAD))
        # Something may be computed outside the call while it is in flight.
        self.same(self.mode(FRAME_NAME), self.word(FRAME))
        self.slow = self.b.label("slow_in_flight")

    def argument(self, k):
        return self.load(self.b.arguments[0], 8 * k)

    def finish(self, result):
        """Return `result`; and the slow way, which is the method's."""
        b = self.b
        self.give(result)
        if self.n_arguments:
            b.start(self.slow)
            self.python("PyErr_Clear", [], "void")
            self.give(self.call(SLOW + METHODS.index(self.method), b.arguments[0], self.n_arguments))
        b.start(self.nothing)
        b.finish(NULL)
