"""The text of f.explain(): whether calls take the fast path, at which lines they leave it, and what to write instead;
then what was compiled."""

import inspect
from math import inf
from typing import NamedTuple

from .compiler.later import later
from .notebooks import Text
from .runtime.code import made_here
from .runtime.programs.advice import advice_for, is_read
from .runtime.replay import native_making
from .runtime.replay.native import native_code_is_used

kernel_costs = later("visualize.costs:kernel_costs")

# Of why calls are not replayed: what other breaks say already.
_OF_BREAKS = ("ran outside its program", "a value was needed in the middle", "no three of the last calls")


class _Break(NamedTuple):
    reason: str
    line: str
    count: int


class Break(_Break):
    """A place where calls left the fast path: why, the user's line ("file.py:12"), and how often that was seen. Calls
    that are replayed as they are known to go do not count.

    microseconds: what it costs each time, where that was measured: what runs outside the programs, and calls that are
    followed step by step. Else None: `explain` measures what a read costs."""

    microseconds = None

    @property
    def advice(self):
        """What to write instead; None if there is nothing to say."""
        return advice_for(self.reason)


_LATER = {
    inspect.CO_GENERATOR: "a generator",
    inspect.CO_COROUTINE: "a coroutine",
    inspect.CO_ASYNC_GENERATOR: "an asynchronous generator",
}


def runs_later(function):
    """(why, line) if calls of a function only make what runs its body; else None."""
    code = getattr(function, "__code__", None)
    what = next((said for flag, said in _LATER.items() if code is not None and code.co_flags & flag), None)
    if what is None:
        return None
    return f"it is {what}: its body runs after the call, and is not compiled", (
        f"{code.co_filename}:{code.co_firstlineno}"
    )


def breaks(recordings, function=None):
    """All breaks of a function, as a tuple; what all signatures have in common is counted together."""
    counts, costs = {}, {}
    later = runs_later(function)
    if later is not None and recordings:
        counts[later] = sum(recording.calls for recording in recordings)
    for recording in recordings:
        for key, cost in recording.costs.items():
            costs.setdefault(key, []).append(cost)
        for key, count in recording.fallbacks.items():
            counts[key] = counts.get(key, 0) + count
        if recording.not_replayed is not None and not recording.replays and _says_more(recording):
            reason, line = recording.not_replayed
            key = f"every call is followed step by step: {reason}", line
            counts[key] = counts.get(key, 0) + recording.calls
            costs.setdefault(key, []).append(min(recording.followed, default=inf))
    return tuple(_break(key, count, costs.get(key)) for key, count in counts.items())


def _says_more(recording):
    """Whether why calls are not replayed is something else than that parts of them run outside."""
    return not recording.fallbacks or not any(part in recording.not_replayed[0] for part in _OF_BREAKS)


def _break(key, count, costs):
    found = Break(*key, count)
    if costs:
        found.microseconds = 1e6 * min(costs)
    return found


def explain(
    name,
    recordings,
    verbose=False,
    sizes=None,
    seconds_of_a_read=lambda: None,
    why_eager=None,
    of_python=(),
    function=None,
    many=None,
):
    lines = _head(name, recordings.values(), seconds_of_a_read, function, many is not None and many.n_calls > 0)
    if why_eager is not None:
        lines.append(f"calls run eagerly, {why_eager}")
    lines += of_python
    lines += many.lines() if many is not None else []
    often = sorted(recordings.items(), key=lambda pair: -pair[1].calls)
    for signature, recording in _some(often, verbose):
        lines += _recording_lines(signature, recording, verbose)
    lines += _others("signature(s)", [recording for _, recording in often], verbose)
    if recordings.reasons:
        lines.append("recorded again because")
        reasons = list(reversed(recordings.reasons))
        lines += [f"  {r}" for r in reversed(_some(reasons, verbose))]
    if recordings.n_dropped:
        lines.append(f"{recordings.n_dropped} signature(s) that were not used lately have made room for others")
    if recordings.n_eager:
        lines.append(f"{recordings.n_eager} call(s) with signatures that seldom come ran eagerly")
    for refusal in sizes.refusals if sizes is not None else ():
        lines.append(f"compiled for every size anew: {refusal}")
    for refusal in sizes.loops.refusals if sizes is not None else ():
        lines.append(f"loops compiled for every number of steps anew: {refusal}")
    for reason in sizes.not_open if sizes is not None else ():
        lines.append(f"not known at run time, though marked or dynamic=True: {reason}")
    if verbose:
        lines += made_here.lines()
    return Text("\n".join(lines))


# Of more than _MANY of a kind the first _SHOWN are described, unless all is asked for.
_MANY, _SHOWN = 6, 3


def _some(items, verbose):
    return items if verbose or len(items) <= _MANY else items[:_SHOWN]


def _others(what, items, verbose):
    left = [] if verbose or len(items) <= _MANY else items[_SHOWN:]
    if not left:
        return []
    return [f"and {len(left)} other {what}, {sum(x.calls for x in left)} call(s) in all: verbose=True describes them"]


# Fewer are followed while the ways that calls go are learned.
_MANY_FOLLOWED = 16


def _postponed():
    """Why calls that are alike are not replayed yet; None if nothing is put off."""
    if native_making.is_being_made():
        return "what replays calls is being compiled in the background"
    if native_making.is_awaited():
        return f"compiling what replays calls pays after {native_making.PAYS_AFTER} that are alike"
    return None


def _head(name, recordings, seconds_of_a_read, function, takes_new_sizes):
    found, n_replayed = breaks(recordings, function), sum(bool(r.replays) or r.on_gpu is not None for r in recordings)
    is_replayed = n_replayed == len(recordings) and runs_later(function) is None
    if found:
        # A program ends at a break and another begins; calls like that can be replayed too.
        head = f"{'yes, in parts' if is_replayed else 'no'}: {len(found)} break(s)"
    elif not recordings:
        head = "not called yet"
    elif is_replayed and 2 * sum(sum(r.departures.values()) for r in recordings) > sum(r.calls for r in recordings):
        head = "no: most calls leave it on the way, as said below"
    elif is_replayed or takes_new_sizes:
        head = "yes"
    elif n_replayed:
        head = f"yes, for {n_replayed} of {len(recordings)} signatures; the others wait for three calls that are alike"
    else:
        head = f"not yet, {_postponed() or 'that takes three calls that are alike'}"
    lines = [f"{name}: fast path: {head}"]
    for b in found:
        lines.append(f"  {b.line}: {b.reason} [{b.count}x]")
        if b.microseconds is not None:
            lines.append(f"    costs: {b.microseconds:.3g} us each time")
        elif is_replayed and is_read(b.reason) and (seconds := seconds_of_a_read()) is not None:
            lines.append(
                f"    costs: about {1e6 * seconds:.2g} us each time, as measured in a small function; what is before "
                "and after it cannot be one kernel"
            )
        if b.advice:
            lines.append(f"    instead: {b.advice}")
    return lines


def _recording_lines(signature, recording, verbose):
    arguments = ", ".join(_argument(a) for a in signature[0])
    lines = [f"signature ({arguments}): {recording.calls} call(s), {recording.n_branches} path(s)"]
    if not recording.fallbacks:
        lines.append("  nothing ran outside the programs")
    lines += [f"  {line}" for line in _replay_lines(recording)]
    if recording.is_waiting():
        lines.append(f"  {len(recording.jobs)} program(s) are being compiled in the background")
    if recording.n_meanwhile:
        lines.append(f"  {recording.n_meanwhile} call(s) ran eagerly while programs were compiled in the background")
    for k, program in _some(list(enumerate(recording.programs)), verbose):
        lines += [f"  {line}" for line in _program_lines(k, program, verbose)]
    return lines + [f"  {line}" for line in _others("program(s)", recording.programs, verbose)]


def _replay_lines(recording):
    """Whether calls are replayed, and what that does not cover; else the first reason why they are not."""
    if recording.on_gpu is not None:
        n_kernels = sum(len(program.launches) for program in recording.on_gpu)
        return [f"the last call ran {len(recording.on_gpu)} program(s) of {n_kernels} kernel(s) on a GPU"]
    if recording.replays:
        how = "in native code" if native_code_is_used() else "in Python: native code is not used"
        replays = recording.replays
        lines = [f"calls are replayed {how}, in {len(replays)} way(s)"]
        ends = dict.fromkeys(reason for replay in replays for reason in replay.slower_for)
        lines += [f"  done in Python at the end of a call: {reason}" for reason in ends]
        return lines + _followed_lines(recording)
    if recording.has_failed:
        return ["calls run eagerly: no program could be made of one"]
    if recording.not_replayed is None:
        return [f"calls are not replayed yet: {_postponed() or 'that takes three that are alike'}"]
    reason, line = recording.not_replayed
    if recording.ways is not None and recording.ways.is_eager:
        measured = recording.ways.described()
        return [f"calls are not replayed, and run eagerly, which was quicker ({measured}): {reason} [{line}]"]
    return [f"calls are not replayed, every call is followed step by step: {reason} [{line}]"]


def _followed_lines(recording):
    """What calls are not replayed, though others are."""
    reasons = dict.fromkeys([*(why for _, why in recording.refusals.values()), recording.not_replayed])
    lines = [f"  calls that do something else are followed step by step: {why[0]} [{why[1]}]" for why in reasons if why]
    if recording.n_followed >= _MANY_FOLLOWED and 8 * recording.n_followed >= recording.calls:
        lines.append(f"  followed step by step so far: {recording.n_followed} call(s), since they went new ways")
        often = sorted(recording.departures.items(), key=lambda pair: -pair[1])
        lines += [f"    {n} of them from {line} on: {reason}" for (reason, line), n in often[:_SHOWN]]
    return lines


def _argument(part):
    if isinstance(part, tuple) and len(part) == 3 and hasattr(part[1], "category"):
        return f"{part[1].name}{list(part[0])}"
    if isinstance(part, tuple):
        return "(" + ", ".join(_argument(p) for p in part) + ")"
    return "_"


_SOURCES = {"disk": "from the disk cache", "compiled": "compiled", "background": "compiled in the background"}


def _program_lines(k, program, verbose):
    plan = program.meta["plan"]
    kernels = plan["kernels"]
    where = f"{_SOURCES[program.meta['source']]} in {1e3 * program.meta['seconds']:.3g} ms"
    if program.serves_many:
        what = "numbers of steps" if "has_loops" in program.meta else "sizes"
        where += f", serves many {what}, here {program.meta['n']}"
    lines = [
        f"program {k} ({where}): {len(kernels)} kernel(s), arena {plan['arena_bytes']} bytes, {program.calls} run(s)"
    ]
    if not verbose:
        return lines
    # Of a program for many sizes it is not known for which one.
    is_thought = not program.serves_many
    times = [f", about {microseconds(kernel['estimated_ns'])}" if is_thought else "" for kernel in kernels]
    if verbose == "times":
        said, times = kernel_costs(program, times)
        lines.append(f"  {said}")
    for kernel, time in zip(kernels, times):
        ops = " ".join(kernel["ops"])
        lines.append(
            f"  {kernel['name']}: {kernel['kind']} over {tuple(kernel['domain'])}: {ops} "
            f"({kernel['n_bytes']} bytes, {kernel['n_flops']} flops{time})"
        )
    if plan["refusals"]:
        lines.append("  not in one kernel:")
        lines += [f"    {r}" for r in plan["refusals"]]
    return lines


def microseconds(ns):
    """As text, to three places at most."""
    return f"{ns / 1e3:.0f} us" if ns >= 1e5 else f"{ns / 1e3:.3g} us"
