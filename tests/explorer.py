"""Runs native functions through all orders in which their threads can take steps, and says which one goes wrong.

    explore(Scenario(...)) -> number of states; raises Wrong with the schedule that leads there

What is modelled: sequences of atomic operations, one at a time. Plain fields are not followed step by step: instead it
is checked that whoever reads or writes one knows the last write, by the memory orders that the text declares. Stores
that are not SEQ_CST wait in a buffer of their thread, in order, until they are seen by others at any later moment, as
on x86; operations declared to release wait for the buffer, other atomic changes pass it. Time is a choice: a model may
ask `pick(n)` for one of n outcomes. A state that was met before is not continued, and at the end each state must be
able to reach one where all threads have ended: no deadlock, no wake that is slept through, no endless loop.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field

from weft.compiler.translate.kinds import Atomic, Inline, Pointer, default_of, kind_of, places_of

RELEASING, ACQUIRING = ("release", "acq_rel", "seq_cst"), ("acquire", "acq_rel", "seq_cst")
_ATOMIC = ("load", "store", "add", "swap_if")
_current = []  # the Step that is being taken: what a reference reads from


@contextmanager
def reading(step):
    _current.append(step)
    try:
        yield
    finally:
        _current.pop()


class Wrong(Exception):
    """What is wrong, and the steps that lead there."""


@dataclass(frozen=True)
class Ref:
    """A structure, an array in one, or an atomic word, in the memory of the state."""

    kind: object
    path: tuple

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        place = places_of(self.kind.cls)[name]
        return self._inner(place.kind, name)

    def __getitem__(self, index):
        if not 0 <= index < self.kind.count:
            raise Wrong(f"{self} has no item {index}")
        return self._inner(kind_of(self.kind.item), index)

    def _inner(self, kind, name):
        path = (*self.path, name)
        if isinstance(kind, Inline) and kind.count is None:
            return Ref(kind_of(kind.item), path)
        if isinstance(kind, (Inline, Atomic)) or (isinstance(kind, Pointer) and isinstance(name, int)):
            return Ref(kind, path)
        return _current[-1].read(path, kind)

    def __repr__(self):
        return ".".join(map(str, self.path))


@dataclass
class Thread:
    """frames: [Code, position, locals], the last one running. sleeps: the path of the futex it waits on. buffer: stores
    that others do not see yet: (path, value, facts that come with it)."""

    frames: list
    sleeps: tuple | None = None
    buffer: tuple = ()

    def copy(self):
        return Thread([[code, at, dict(names)] for code, at, names in self.frames], self.sleeps, self.buffer)

    def key(self):
        frames = tuple((code.name, at, tuple(sorted(names.items(), key=_first))) for code, at, names in self.frames)
        return frames, self.sleeps, self.buffer


def _first(item):
    return item[0]


@dataclass
class Scenario:
    """start: number, function and arguments of the threads there are at first; code: name -> Code; models: name ->
    function(step, *arguments) of what the system does; silent: models that other threads see nothing of; memory:
    path -> value of what is not 0."""

    start: list
    code: dict
    models: dict
    silent: set
    memory: dict = field(default_factory=dict)
    buffers: bool = False
    most_states: int = 10**7


class State:
    """facts: who knows of a plain write or read: (path, None or reader) -> who, threads' numbers and atomic paths."""

    def __init__(self, threads, memory, facts):
        self.threads, self.memory, self.facts = threads, memory, facts

    def copy(self):
        return State([t and t.copy() for t in self.threads], dict(self.memory), dict(self.facts))

    def key(self):
        threads = tuple(t and t.key() for t in self.threads)
        return threads, frozenset(self.memory.items()), frozenset(self.facts.items())

    def ended(self):
        return all(t is None or not (t.frames or t.buffer) for t in self.threads)


class Step:
    """One step of one thread, in a state of its own. choices: what models pick; more is asked for in `asked`."""

    def __init__(self, scenario, state, number, choices):
        self.scenario, self.state, self.number = scenario, state, number
        self.choices, self.asked = list(choices), []

    @property
    def thread(self):
        return self.state.threads[self.number]

    def pick(self, n):
        place = len(self.asked)
        self.asked.append(n)
        return self.choices[place] if place < len(self.choices) else 0

    # --- plain memory ---------------------------------------------------------------------------------------------
    def read(self, path, kind):
        facts = self.state.facts
        if self.number not in facts.get((path, None), (self.number,)):
            raise Wrong(f"thread {self.number} reads {path} while another may write it")
        if (path, None) in facts:
            facts[path, self.number] = frozenset([self.number])
        return self.state.memory.get(path, default_of(kind))

    def write(self, owner, name, value):
        path, facts = (*owner.path, name), self.state.facts
        for (place, reader), who in list(facts.items()):
            if place == path:
                if self.number not in who:
                    raise Wrong(f"thread {self.number} writes {path} while another may use it")
                if reader is not None:
                    del facts[place, reader]
        facts[path, None] = frozenset([self.number])
        self._forget(path)
        self.state.memory[path] = value

    def _forget(self, path):
        """What waits in buffers no longer brings the last write of a path with it."""
        for thread in self.state.threads:
            if thread is not None and thread.buffer:
                entries = [(p, v, frozenset(f for f in facts if f[0] != path)) for p, v, facts in thread.buffer]
                thread.buffer = tuple(entries)

    # --- atomic memory --------------------------------------------------------------------------------------------
    def atomic(self, cell, operation, *arguments):
        *values, order = arguments
        kind = kind_of(cell.kind.item)
        zero = default_of(kind)
        if operation == "store":
            return self._store(cell.path, values[0], order)
        if operation == "load":
            waiting = [v for p, v, _ in self.thread.buffer if p == cell.path]
            self._acquire(cell.path, order)
            return waiting[-1] if waiting else self.state.memory.get(cell.path, zero)
        self._before_change(cell.path, order)
        before = self.state.memory.get(cell.path, zero)
        self._acquire(cell.path, order)
        if operation == "swap_if" and before != values[0]:
            return False
        self._change(cell.path, before + values[0] if operation == "add" else values[1], order)
        return True if operation == "swap_if" else before

    def _store(self, path, value, order):
        known = self._known() if order in RELEASING else frozenset()
        self.thread.buffer += ((path, value, known),)
        if order == "seq_cst" or not self.scenario.buffers:
            self.drain()

    def _before_change(self, path, order):
        mine = any(p == path for p, _, _ in self.thread.buffer)
        if order in RELEASING or mine or not self.scenario.buffers:
            self.drain()

    def _change(self, path, value, order):
        """What an operation changes at once; what came with the value before comes with this one too."""
        self.state.memory[path] = value
        if order in RELEASING:
            for fact in self._known():
                self.state.facts[fact] |= {path}

    def drain(self):
        while self.thread.buffer:
            self.show_one()

    def show_one(self):
        """The oldest store of the buffer is seen by others."""
        (path, value, known), *rest = self.thread.buffer
        self.thread.buffer = tuple(rest)
        self.state.memory[path] = value
        for fact, who in self.state.facts.items():
            changed = who | {path} if fact in known else who - {path}
            if changed != who:
                self.state.facts[fact] = changed

    def _known(self):
        return frozenset(fact for fact, who in self.state.facts.items() if self.number in who)

    def _acquire(self, path, order):
        if order in ACQUIRING:
            for fact, who in self.state.facts.items():
                if path in who and self.number not in who:
                    self.state.facts[fact] = who | {self.number}

    # --- threads --------------------------------------------------------------------------------------------------
    def start_thread(self, number, function, *arguments):
        """It knows what its maker knows."""
        threads = self.state.threads
        threads += [None] * (number + 1 - len(threads))
        assert threads[number] is None or not threads[number].frames, f"thread {number} has not ended"
        for fact, who in self.state.facts.items():
            self.state.facts[fact] = who | {number} if self.number in who else who - {number}
        threads[number] = Thread([self.frame(function, arguments)])
        Step(self.scenario, self.state, number, ()).run_on()

    def frame(self, name, arguments):
        code = self.scenario.code[name]
        return [code, 0, dict(zip(code.parameters, arguments))]

    # --- instructions ---------------------------------------------------------------------------------------------
    def take(self):
        """The call that the thread rests at, and then all up to the next."""
        with reading(self):
            code, at, names = self.thread.frames[-1]
            self._call(code.instructions[at], self._value(code.instructions[at], names))
            self.run_on()

    def run_on(self):
        with reading(self):
            while self.thread.frames and self._run_one():
                pass

    def _value(self, one, names):
        return None if one.code is None else eval(one.code, self.thread.frames[-1][0].globals, names)

    def _run_one(self):
        """Whether it was no call that others can see."""
        frame = self.thread.frames[-1]
        code, at, names = frame
        one = code.instructions[at]
        if one.kind == "call":
            frame[2] = {k: v for k, v in names.items() if k in one.live}
            if one.name in _ATOMIC or one.name in self.scenario.models.keys() - self.scenario.silent:
                return False
            self._call(one, self._value(one, frame[2]))
            return True
        value = self._value(one, names)
        if one.kind == "compute":
            names[one.target] = value
        elif one.kind == "put":
            self.write(*value)
        elif one.kind == "give":
            self._give(value)
            return True
        frame[1] = one.yes if one.kind == "jump" or (one.kind == "branch" and value) else at + 1
        if one.kind == "branch" and not value:
            frame[1] = one.no
        return True

    def _give(self, value):
        self.thread.frames.pop()
        if self.thread.frames:
            code, at, names = self.thread.frames[-1]
            names[code.instructions[at].target] = value
            self.thread.frames[-1][1] += 1

    def _call(self, one, operands):
        name, (owner, *arguments) = one.name, operands
        frame = self.thread.frames[-1]
        if isinstance(owner, Ref) and isinstance(owner.kind, Atomic):
            result = self.atomic(owner, name, *arguments)
        elif name in self.scenario.models:
            result = self.scenario.models[name](self, *arguments)
        else:
            function = name if owner is None else self._field(owner, name)
            self.thread.frames.append(self.frame(function, arguments))
            return
        frame[2][one.target] = result
        frame[1] += 1

    def _field(self, owner, name):
        return self.read((*owner.path, name), places_of(owner.kind.cls)[name].kind)


def successors(scenario, state):
    """(what was done, the state after it) of each step that is possible."""
    for number, thread in enumerate(state.threads):
        if thread is None:
            continue
        if thread.buffer:
            step = Step(scenario, state.copy(), number, ())
            step.show_one()
            yield f"{number}: {thread.buffer[0][0]} = {thread.buffer[0][1]} is seen", step.state
        if thread.frames and thread.sleeps is None:
            code, at, _ = thread.frames[-1]
            yield from _outcomes(scenario, state, number, f"{number}: {code.name}: {code.instructions[at].text}")


def _outcomes(scenario, state, number, text):
    """One step with each outcome of what it picks."""
    waiting = [()]
    while waiting:
        choices = waiting.pop()
        step = Step(scenario, state.copy(), number, choices)
        try:
            step.take()
        except Wrong as wrong:
            yield f"{text} {choices or ''}", wrong
            continue
        taken = [*choices, *[0] * (len(step.asked) - len(choices))]
        for place in range(len(choices), len(step.asked)):
            waiting += [(*taken[:place], k) for k in range(1, step.asked[place])]
        yield f"{text} {tuple(taken) or ''}", step.state


def explore(scenario):
    """How many states there are. Raises Wrong if one of them is."""
    first = State([], {}, {})
    first.memory.update(scenario.memory)
    maker = Step(scenario, first, -1, ())
    for number, function, *arguments in scenario.start:
        maker.start_thread(number, function, *arguments)
    found, origins, following, ends = {first.key(): 0}, [(None, "")], [[]], []
    stack = [(0, first)]
    while stack:
        number, state = stack.pop()
        if state.ended():
            ends.append(number)
        for text, after in successors(scenario, state):
            if isinstance(after, Wrong):
                raise Wrong(f"{after}\n{_schedule(origins, number)}\n{text}")
            key = after.key()
            if key not in found:
                if len(found) == scenario.most_states:
                    return len(found)
                found[key] = len(found)
                origins.append((number, text))
                following.append([])
                stack.append((found[key], after))
            following[number].append(found[key])
    _require_ends(following, ends, origins)
    return len(found)


def _require_ends(following, ends, origins):
    """Each state can reach one where all threads have ended."""
    before = [[] for _ in following]
    for number, after in enumerate(following):
        for other in after:
            before[other].append(number)
    reached, waiting = set(ends), list(ends)
    while waiting:
        for number in before[waiting.pop()]:
            if number not in reached:
                reached.add(number)
                waiting.append(number)
    lost = [number for number in range(len(following)) if number not in reached]
    if lost:
        raise Wrong(f"the threads never end\n{_schedule(origins, lost[0])}")


def _schedule(origins, number):
    steps = []
    while number is not None:
        number, text = origins[number]
        steps.append(text)
    return "\n".join(reversed(steps[:-1]))
