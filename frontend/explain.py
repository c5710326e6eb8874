"""The text of f.explain(): what a compiled function became."""


def explain(name, recordings, recompiles, eager_calls):
    lines = [f"{name}: {len(recordings)} signature(s)"]
    for signature, recording in recordings.items():
        lines += _recording_lines(signature, recording)
    if recompiles:
        lines.append("recorded again because")
        lines += [f"  {r}" for r in recompiles]
    if eager_calls:
        lines.append(f"{eager_calls} call(s) ran eagerly: too many signatures")
    return "\n".join(lines)


def _recording_lines(signature, recording):
    arguments = ", ".join(_argument(a) for a in signature[0])
    lines = [f"signature ({arguments}): {recording.calls} call(s), {recording.n_branches} path(s)"]
    if recording.fallbacks:
        lines.append("  ran outside the program:")
        lines += [f"    {reason} [{count}x, {line}]" for (reason, line), count in recording.fallbacks.items()]
    else:
        lines.append("  nothing ran outside the programs")
    for k, program in enumerate(recording.programs):
        lines += [f"  {line}" for line in _program_lines(k, program)]
    return lines


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
