"""The text of f.explain(): whether calls take the fast path, at which lines they leave it, and what to write instead;
then what was compiled."""

from typing import NamedTuple

from .notebooks import Text
from .runtime.replay.native import native_code_is_used

_READ = "a value was read before the call ended"
# What to do about a break, by the reason that is given for it.
_ADVICE = [
    (_READ, "return the value and read it after the call; of an `if` on data, weft.where can be the replacement"),
    ("custom autograd.Function", "return a new value that forward has computed with ops, and change no input"),
    ("weft.tensor(array) is a copy", "make the tensor with weft.tensor(array), once, outside the function"),
    ("memory of a NumPy array", "make the tensor with weft.tensor(array), or let go of the array"),
    ("set_default_dtype", "set the type before the call, or give dtype= where tensors are made"),
    ("paths were recorded", "fewer outcomes of `if`s: weft.where, or a compiled function for each case"),
    (".data", "x.copy_(value) under weft.no_grad() keeps the memory that it has"),
    ("at other places than before", "take the part before the call, or index with a tensor: x[weft.tensor([i])]"),
    ("64 bits", "give the number as a tensor of a floating-point type"),
    ("no leaf, or not contiguous", "give x.detach().contiguous(), or compute the argument inside the function"),
    (
        "gradients pass through nodes",
        "return y.detach() of a value with hooks, or take the hooks out before: results with hooks need nodes",
    ),
    ("ran outside its program", "see the breaks above: a call that has none of these is replayed"),
]


class Break(NamedTuple):
    """A place where calls left the fast path: why, the user's line ("file.py:12"), and how often that was seen. Calls
    that are replayed as they are known to go do not count."""

    reason: str
    line: str
    count: int

    @property
    def advice(self):
        """What to write instead; None if there is nothing to say."""
        return next((advice for part, advice in _ADVICE if part in self.reason), None)


def breaks(recordings):
    """All breaks of a function, as a tuple; what all signatures have in common is counted together."""
    counts = {}
    for recording in recordings:
        for key, count in recording.fallbacks.items():
            counts[key] = counts.get(key, 0) + count
        if recording.not_replayed is not None and not recording.replays and not recording.fallbacks:
            reason, line = recording.not_replayed
            key = f"every call is followed step by step: {reason}", line
            counts[key] = counts.get(key, 0) + recording.calls
    return tuple(Break(reason, line, count) for (reason, line), count in counts.items())


def explain(name, recordings, verbose=False, sizes=None):
    lines = _head(name, recordings.values())
    for signature, recording in recordings.items():
        lines += _recording_lines(signature, recording, verbose)
    if recordings.reasons:
        lines.append("recorded again because")
        lines += [f"  {r}" for r in recordings.reasons]
    if recordings.n_dropped:
        lines.append(f"{recordings.n_dropped} signature(s) that were not used lately have made room for others")
    if recordings.n_eager:
        lines.append(f"{recordings.n_eager} call(s) with signatures that seldom come ran eagerly")
    for refusal in sizes.refusals if sizes is not None else ():
        lines.append(f"compiled for every size anew: {refusal}")
    return Text("\n".join(lines))


def _head(name, recordings):
    found = breaks(recordings)
    if found:
        # A program ends at a break and another begins; calls like that can be replayed too.
        head = f"{'yes, in parts' if all(r.replays for r in recordings) else 'no'}: {len(found)} break(s)"
    elif not recordings:
        head = "not called yet"
    elif all(r.replays for r in recordings):
        head = "yes"
    else:
        head = "not yet, that takes three calls that are alike"
    lines = [f"{name}: fast path: {head}"]
    for b in found:
        lines.append(f"  {b.line}: {b.reason} [{b.count}x]")
        if b.advice:
            lines.append(f"    instead: {b.advice}")
    return lines


def _recording_lines(signature, recording, verbose):
    arguments = ", ".join(_argument(a) for a in signature[0])
    lines = [f"signature ({arguments}): {recording.calls} call(s), {recording.n_branches} path(s)"]
    if not recording.fallbacks:
        lines.append("  nothing ran outside the programs")
    lines += [f"  {line}" for line in _replay_lines(recording)]
    for k, program in enumerate(recording.programs):
        lines += [f"  {line}" for line in _program_lines(k, program, verbose)]
    return lines


def _replay_lines(recording):
    """Whether calls are replayed, and what that does not cover; else the first reason why they are not."""
    if recording.replays:
        how = "in native code" if native_code_is_used() else "in Python: native code is not used"
        replays = recording.replays
        lines = [f"calls are replayed {how}, in {len(replays)} way(s)"]
        ends = dict.fromkeys(reason for replay in replays for reason in replay.slower_for)
        return lines + [f"  done in Python at the end of a call: {reason}" for reason in ends]
    if recording.not_replayed is None:
        return ["calls are not replayed yet: that takes three that are alike"]
    reason, line = recording.not_replayed
    if recording.ways is not None and recording.ways.is_eager:
        measured = recording.ways.described()
        return [f"calls are not replayed, and run eagerly, which was quicker ({measured}): {reason} [{line}]"]
    return [f"calls are not replayed, every call is followed step by step: {reason} [{line}]"]


def _argument(part):
    if isinstance(part, tuple) and len(part) == 3 and hasattr(part[1], "category"):
        return f"{part[1].name}{list(part[0])}"
    if isinstance(part, tuple):
        return "(" + ", ".join(_argument(p) for p in part) + ")"
    return "_"


def _program_lines(k, program, verbose):
    plan = program.meta["plan"]
    kernels = plan["kernels"]
    where = "from the disk cache" if program.meta["source"] == "disk" else "compiled"
    if "n" in program.meta:
        where += f", serves many sizes, here {program.meta['n']}"
    lines = [
        f"program {k} ({where} in {1e3 * program.meta['seconds']:.3g} ms): {len(kernels)} kernel(s), "
        f"arena {plan['arena_bytes']} bytes, {program.calls} run(s)"
    ]
    if not verbose:
        return lines
    for kernel in kernels:
        ops = " ".join(kernel["ops"])
        lines.append(
            f"  {kernel['name']}: {kernel['kind']} over {tuple(kernel['domain'])}: {ops} "
            f"({kernel['n_bytes']} bytes, {kernel['n_flops']} flops)"
        )
    if plan["refusals"]:
        lines.append("  not in one kernel:")
        lines += [f"    {r}" for r in plan["refusals"]]
    return lines
