"""python -m benchmarks.many_processes: training steps of many processes, weft by MPI and PyTorch's DDP by gloo.

Weak scaling: every process has a batch of its own, of the same size whatever the number of processes. One thread each.

    alone      the processes train side by side and exchange nothing
    together   gradients are averaged
    network    the same over a simulated network: what a process sends arrives after a delay, and after a link of so
               many bytes per second has carried it and all that was sent before it

Of every column the fastest of several turns counts, because other work on the machine only ever adds time; the slowest
rank of a turn is its time. The sides take turns too, in as many rounds of new processes as --rounds says. The link
carries 2 (p - 1) / p of the gradients' bytes per step with p processes, for both sides; `hidden` is how much of that
time, with delays, does not show in the length of a step.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from . import machine

LAYERS, WIDTH, BATCH, BUCKET_MB = 6, 512, 64, 1
N_BYTES = LAYERS * (WIDTH * WIDTH + WIDTH) * 4
SIDES = ("weft", "weft compiled", "PyTorch, gloo")
KINDS = ("alone", "together", "network")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_processes", description=__doc__)
    parser.add_argument("--processes", default="1,2", help="numbers of processes, separated by commas")
    parser.add_argument("--delay-ms", type=float, default=0.2, help="of the simulated network")
    parser.add_argument("--megabytes-per-second", type=float, default=500.0, help="of the simulated network")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="in a turn")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work(options)
        return
    where, best = machine.describe(), {}
    for n_processes in map(int, options.processes.split(",")):
        for _ in range(options.rounds):
            for side in SIDES:
                fastest(best.setdefault((n_processes, side), {}), measured(side, n_processes, options))
    where["load_after"] = os.getloadavg()[0]
    text = table([(*key, seconds) for key, seconds in best.items()], options, where)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


# --- one side ---------------------------------------------------------------------------------------------------------
def measured(side, n_processes, options):
    """{kind: seconds per step} of a side."""
    command = [sys.executable, "-m", "benchmarks.many_processes", "--turns", str(options.turns)]
    command += ["--steps", str(options.steps), "--delay-ms", str(options.delay_ms)]
    command += ["--megabytes-per-second", str(options.megabytes_per_second), "--worker", side]
    environment = {**os.environ, "WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RANKS": str(n_processes)}
    if side.startswith("weft"):
        return read(subprocess.run([mpiexec(), "-n", str(n_processes), *command], env=environment, stdout=-1))
    with tempfile.TemporaryDirectory() as folder:
        environment["MEETING"] = f"{folder}/meeting"
        ranks = range(n_processes)
        started = [subprocess.Popen(command, env={**environment, "RANK": str(r)}, stdout=-1) for r in ranks]
        printed = [process.communicate()[0] for process in started]
    return json.loads(printed[0].decode().splitlines()[-1])


def mpiexec():
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else "mpiexec"


def read(ended):
    ended.check_returncode()
    return json.loads(ended.stdout.decode().splitlines()[-1])


def work(options):
    """In a process of a side: measure, and let rank 0 print."""
    make = torch_side if options.worker.startswith("PyTorch") else weft_side
    steps, slowest, rank = make(options)
    best = {}
    for _ in range(options.turns):
        for kind in KINDS:
            steps[kind]()
            slowest(0.0)  # all begin together
            start = time.perf_counter()
            for _ in range(options.steps):
                steps[kind]()
            seconds = slowest(time.perf_counter() - start) / options.steps
            fastest(best, {kind: seconds})
    if rank == 0:
        print(json.dumps(best), flush=True)


def fastest(best, seconds):
    """Keep what is less than before."""
    best.update({kind: min(found, best.get(kind, found)) for kind, found in seconds.items()})


def weft_side(options):
    import weft
    import weft.distributed as dist
    from weft.nn.parallel import DistributedDataParallel
    from weft.runtime.distributed.group import world
    from weft.runtime.distributed.work import Network

    dist.init_process_group("mpi")
    network = Network(options.delay_ms / 1e3, options.megabytes_per_second * 1e6)
    compiled = weft.compile if options.worker.endswith("compiled") else lambda function: function

    def over(network, step):
        def run():
            world.network = network
            step()
            world.network = None

        return run

    def slowest(seconds):
        found = weft.tensor([seconds], dtype=weft.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found.item()

    alone = compiled(training(weft, lambda module: module))
    together, remote = (
        compiled(training(weft, lambda module: DistributedDataParallel(module, bucket_cap_mb=BUCKET_MB)))
        for _ in range(2)
    )
    for step in (alone, together, remote):
        for _ in range(6):
            step()
    steps = {"alone": alone, "together": together, "network": over(network, remote)}
    return steps, slowest, dist.get_rank()


def torch_side(options):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["RANKS"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=size)
    link = {"free_at": 0.0}

    def slow_all_reduce(state, bucket):
        """What DDP does, not done before the simulated network has carried it."""
        buffer = bucket.buffer().div_(size)
        link["free_at"] = max(link["free_at"], time.monotonic())
        link["free_at"] += 2 * buffer.nbytes * (size - 1) / size / (options.megabytes_per_second * 1e6)
        arrival = link["free_at"] + 2 * options.delay_ms / 1e3 * (size > 1)

        def wait(future):
            time.sleep(max(0.0, arrival - time.monotonic()))
            return future.value()[0]

        return dist.all_reduce(buffer, async_op=True).get_future().then(wait)

    def slowest(seconds):
        found = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found.item()

    def wrapped(module, hook=None):
        model = DistributedDataParallel(module, bucket_cap_mb=BUCKET_MB)
        if hook is not None:
            model.register_comm_hook(None, hook)
        return model

    steps = {
        "alone": training(torch, lambda module: module),
        "together": training(torch, wrapped),
        "network": training(torch, lambda module: wrapped(module, slow_all_reduce)),
    }
    for step in steps.values():
        for _ in range(3):
            step()
    return steps, slowest, rank


def training(library, wrap):
    """A whole training step of a perceptron, on a batch that stays the same."""
    nn = library.nn
    library.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = wrap(nn.Sequential(*layers[:-1]))
    optimizer = library.optim.SGD(model.parameters(), lr=0.01)
    rng = np.random.default_rng(0)
    x, y = (library.tensor(rng.standard_normal((BATCH, WIDTH)).astype(np.float32)) for _ in range(2))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

    return step


# --- the table --------------------------------------------------------------------------------------------------------
def table(rows, options, where):
    lines = [
        f"# Many processes: {LAYERS} layers of {WIDTH}, {BATCH} samples for each process, {where['date']}",
        "",
        f"{where['cpu']}, {where['cores']} cores, Python {where['python']};",
        f"load {where['load_before']:.1f} before and {where['load_after']:.1f} after; {versions()}. One thread each.",
        "",
        f"Simulated network: {options.delay_ms:g} ms, {options.megabytes_per_second:g} MB/s. "
        f"Milliseconds per step; gradients of {N_BYTES / 1e6:.1f} MB in buckets of {BUCKET_MB} MiB.",
        "",
        "| processes | side | alone | together | network | link's time | hidden |",
        "|---|---|---|---|---|---|---|",
    ]
    for n_processes, side, seconds in rows:
        times = " | ".join(f"{seconds[kind] * 1e3:.1f}" for kind in KINDS)
        lines.append(f"| {n_processes} | {side} | {times} | {hidden(n_processes, seconds, options)} |")
    return "\n".join(lines)


def versions():
    installed = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    names = ("weft", "torch", "numpy", "mpi4py", "mpich")
    return ", ".join(f"{name} {installed[name]}" for name in names if name in installed)


def hidden(n_processes, seconds, options):
    link = 2 * N_BYTES * (n_processes - 1) / n_processes / (options.megabytes_per_second * 1e6)
    if not link:
        return "0 | "
    shown = max(0.0, seconds["network"] - seconds["together"])
    return f"{link * 1e3:.1f} | {max(0.0, 1 - shown / link):.0%}"


if __name__ == "__main__":
    main()
