"""The text of f.explain(): what a compiled function became."""

from .runtime.native import native_code_is_used


def explain(name, recordings):
    lines = [f"{name}: {len(recordings)} signature(s)"]
    for signature, recording in recordings.items():
        lines += _recording_lines(signature, recording)
    if recordings.reasons:
        lines.append("recorded again because")
        lines += [f"  {r}" for r in recordings.reasons]
    if recordings.n_dropped:
        lines.append(f"{recordings.n_dropped} signature(s) that were not used lately have made room for others")
    return "\n".join(lines)


def _recording_lines(signature, recording):
    arguments = ", ".join(_argument(a) for a in signature[0])
    lines = [f"signature ({arguments}): {recording.calls} call(s), {recording.n_branches} path(s)"]
    if recording.fallbacks:
        lines.append("  ran outside the program:")
        lines += [f"    {reason} [{count}x, {line}]" for (reason, line), count in recording.fallbacks.items()]
    else:
        lines.append("  nothing ran outside the programs")
    lines += [f"  {line}" for line in _replay_lines(recording)]
    for k, program in enumerate(recording.programs):
        lines += [f"  {line}" for line in _program_lines(k, program)]
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
    return [f"calls are not replayed, every call is followed step by step: {reason} [{line}]"]


def _argument(part):
    if isinstance(part, tuple) and len(part) == 3 and hasattr(part[1], "category"):
        return f"{part[1].name}{list(part[0])}"
    if isinstance(part, tuple):
        return "(" + ", ".join(_argument(p) for p in part) + ")"
    return "_"


def _program_lines(k, program):
    plan = program.meta["plan"]
    kernels = plan["kernels"]
    where = "from the disk cache" if program.meta["source"] == "disk" else "compiled"
    lines = [
        f"program {k} ({where}): {len(kernels)} kernel(s), arena {plan['arena_bytes']} bytes, {program.calls} run(s)"
    ]
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
