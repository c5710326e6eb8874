"""python -m benchmarks.roofs: how near the programs of the workloads come to what this machine can do.

Each kernel's time is measured inside the program (weft.visualize.kernel_times), and held against the roof: the
arithmetic of one thread at its peak, or the bytes at the rate that memory of that size gives, whichever takes longer
(weft.visualize.machine_roof). The share is that of all kernels together: what is left of 100 % is what better kernels
could still gain, for fused work as it is; fusing more could gain more, and no library that computes the same products
can be faster than the roof. An exp or a division counts as one operation, so what is full of them stands far below.
"""

import argparse
from pathlib import Path

import weft
from weft import visualize

from . import machine
from .sides import weft_side
from .workload import Gradient
from .workloads import WORKLOADS

SHOWN = 3
MANY_KERNELS = 100


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.roofs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", default=",".join(WORKLOADS), help="with commas between; all by default")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    weft.set_num_threads(1)
    where, roof = machine.describe(), visualize.machine_roof()
    memory = ", ".join(f"{rate:.0f} within {size / 2**20:.3g} MiB" for size, rate in roof.bytes_per_ns)
    lines = [
        f"# Kernels against the machine's roof, {where['date']}",
        "",
        f"{where['cpu']}, load {where['load_before']:.1f}, weft {weft.weft_version}, one thread. At most:",
        f"{roof.flops_per_ns['float32']:.0f} Gflop/s of float32, {roof.flops_per_ns['float64']:.0f} of float64;",
        f"GB/s: {memory}.",
        "",
        "| workload | kernels | ms | ms at the roof | share | most time (share of it, of the roof) |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.workload.split(","):
        lines.append(row(name, roof))
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def row(name, roof):
    program = program_of(WORKLOADS[name])
    kernels = program.meta["plan"]["kernels"]
    times = visualize.kernel_times(program, 40 if len(kernels) > MANY_KERNELS else 200)
    alike = {}
    for kernel, ns in zip(kernels, times):
        key = kernel["ops"][0] if len(kernel["ops"]) == 1 else f"{len(kernel['ops'])} ops", tuple(kernel["domain"])
        total, least = alike.get(key, (0, 0))
        # What reads a part of a large operand is charged with the whole of it.
        its = min(ns, roof.least_ns(kernel["n_flops"], kernel["n_bytes"], kernel["element"]))
        alike[key] = total + ns, least + its
    total, least = (sum(pair[k] for pair in alike.values()) for k in range(2))
    largest = sorted(alike.items(), key=lambda item: -item[1][0])[:SHOWN]
    said = "; ".join(
        f"{what} {'x'.join(map(str, domain)) or 'scalar'} ({100 * ns / total:.0f} %, {100 * its / ns:.0f} %)"
        for (what, domain), (ns, its) in largest
    )
    return f"| {name} | {len(kernels)} | {total / 1e6:.4g} | {least / 1e6:.4g} | {100 * least / total:.0f} % | {said} |"


def program_of(workload):
    """The program that a compiled step of the workload runs."""
    functions = []

    def compiled(function):
        functions.append(weft.compile(function))
        return functions[0]

    make = weft_side.gradient if isinstance(workload, Gradient) else weft_side.training
    step = make(workload, compiled).step
    n_calls = 0
    # What is made anew of the same code may run eagerly for the first 16 calls (frontend/made_anew.py).
    while n_calls < 6 or (not functions[0].recordings and n_calls < 24):
        step()
        n_calls += 1
    return visualize.busiest_program(functions[0])[1]


if __name__ == "__main__":
    main()
