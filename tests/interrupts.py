"""Code that interrupts weft between two chosen bytecodes of its own, as a signal handler would. Not a test.

A trace function runs wherever a signal handler, a finalizer or a callback of the garbage collector may run, and
unlike those at a place that can be chosen and found again.
"""

import dis
import random
import sys
from pathlib import Path

import weft
from weft import nn

_FOLDERS = (str(Path(weft.__file__).parent), str(Path(weft.runtime.__file__).parent))


# After these CPython looks whether a signal has come. Not at the beginning and the end of a `with` block, so that locks
# are released whatever a handler raises.
_CHECKED = ("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")


class Interrupt:
    """A `with` block in which `handler` is called once, before the n-th bytecode of weft's frontend and runtime.

    raises: the handler raises, as one of a signal may: it is called before the first bytecode from the n-th on before
    which signals are handled. (What finalizers and callbacks raise is printed and forgotten.)
    """

    def __init__(self, handler=None, at=0, raises=False):
        self.handler, self.at, self.raises = handler, at, raises
        self.count, self.place, self.before = 0, None, {}

    def __enter__(self):
        sys.settrace(self._enter_function)
        return self

    def __exit__(self, *exception):
        sys.settrace(None)

    def _enter_function(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(_FOLDERS):
            return None
        frame.f_trace_opcodes = True
        self.before.pop(id(frame), None)
        return self._step

    def _step(self, frame, event, argument):
        if event == "opcode":
            self.count += 1
            if self.count >= self.at > 0 and self.place is None and self._may_come(frame):
                code = frame.f_code
                self.place = f"{Path(code.co_filename).name}: {code.co_name}, line {frame.f_lineno}"
                self.handler()
            self.before[id(frame)] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return self._step

    def _may_come(self, frame):
        if not self.raises:
            return True
        # What ends a generator that nobody asks any more has no line. No signal is handled there: it is not resumed.
        return frame.f_lineno is not None and self.before.get(id(frame), "RESUME").startswith(_CHECKED)


class Training:
    """A model that is trained step by step, and all that can be seen of it."""

    def __init__(self, compile, kind):
        weft.manual_seed(0)
        middle = nn.BatchNorm1d(5) if kind == "statistics" else nn.Tanh()
        self.model = nn.Sequential(nn.Linear(4, 5), middle, nn.Linear(5, 1))
        self.x, self.y = weft.randn(6, 4), weft.randn(6, 1)
        self.losses, self.loss = [], None
        update = {"adam": _adam, "statistics": _momentum, "by hand": _by_hand}[kind](self.model.parameters())

        def step(x, y):
            for p in self.model.parameters():
                p.grad = None
            self.loss = nn.functional.mse_loss(self.model(x), y)
            self.loss.backward()
            if kind == "statistics" and self.loss.item() > 1000:
                raise ValueError("a value that was read in the middle")
            update()
            return self.loss

        self._step = compile(step)

    def step(self, interrupt=None):
        if interrupt is None:
            loss = self._step(self.x, self.y)
        else:
            with interrupt:
                loss = self._step(self.x, self.y)
        self.losses.append(loss.item())

    def values(self):
        """Bits of the weights, of what the model counts, of gradients and of the loss, by name."""
        found = {name: bits(x) for name, x in self.model.state_dict().items()}
        gradients = {f"{name}.grad": p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        found |= {name: bits(g) for name, g in gradients.items()}
        return found if self.loss is None else {**found, "loss": bits(self.loss)}


def bits(x):
    return x.detach().numpy().copy().tobytes()


def _adam(params):
    return weft.optim.Adam(params, lr=0.01).step


def _momentum(params):
    return weft.optim.SGD(params, lr=0.01, momentum=0.9).step


def _by_hand(params):
    params = list(params)

    def update():
        with weft.no_grad():
            for p in params:
                p -= 0.1 * p.grad

    return update


def history(training, n_steps):
    """What is seen of a training before its first step and after each."""
    seen = [training.values()]
    for _ in range(n_steps):
        training.step()
        seen.append(training.values())
    return seen


def places(kind, step, count, seed):
    """Numbers of bytecodes of a compiled training's step at which to interrupt it, the same ones every time."""
    training = Training(weft.compile, kind)
    for _ in range(step):
        training.step()
    counted = Interrupt()
    training.step(counted)
    # A call that is replayed natively may have next to none.
    numbers = range(1, max(counted.count, 1))
    return sorted(random.Random(f"{kind} {step} {seed}").sample(numbers, min(count, len(numbers))))
