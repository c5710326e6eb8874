"""The process of one side of one workload: python -m benchmarks.child WORKLOAD SIDE THREADS

It reads requests from standard input and answers on standard output, a line of JSON each:

    {"do": "choose", "seconds": s, "folder": f}    time every form, keep the fastest; first results into f
    {"do": "run", "steps": n}                      seconds for n steps, and a checksum of the last results
    {"do": "first", "form": f}                     seconds for the first call, and memory, of a process that did nothing

An answer {"error": text} is final: the process ends. What libraries print goes to standard error.
"""

import importlib
import json
import os
import sys
import time
import traceback

MEMORY_STEPS = 20


def main(workload_name, side_name, threads):
    answer_requests(lambda: Session(workload_name, side_name, int(threads)))


def answer_requests(begin):
    """begin() makes the object whose methods requests name."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        session = begin()
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(getattr(session, request.pop("do"))(**request)), file=answers)
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)


class Session:
    """A library on its CPUs, and the program that requests are about."""

    def __init__(self, workload_name, side_name, threads):
        restrict_to_cpus(threads)
        # Imported here, because libraries count CPUs and threads when they are loaded.
        side = importlib.import_module("benchmarks.sides").SIDES[side_name]
        self.workload = importlib.import_module("benchmarks.workloads").WORKLOADS[workload_name]
        began = time.perf_counter()
        self.library = importlib.import_module(f"benchmarks.sides.{side.module}")
        self.import_seconds = time.perf_counter() - began
        self.library.use_threads(threads)
        self.threads = threads
        self.forms = self.library.forms(self.workload, side.compiled)
        self.program = None

    def choose(self, seconds, folder):
        """Time the forms in turns of equal length; the fastest stays."""
        if hasattr(self.library, "fill_caches"):
            self.library.fill_caches()
        programs, errors = {}, {}
        for form, build in self.forms.items():
            try:
                programs[form] = build()
                self._record(programs[form], os.path.join(folder, f"{form}.npz"))
            except Exception as error:
                traceback.print_exc()
                errors[form] = f"{type(error).__name__}: {error}"
        if not programs:
            raise RuntimeError("; ".join(f"{form}: {error}" for form, error in errors.items()))
        if hasattr(self.library, "COMPILES_MEANWHILE") and self.threads == 1:
            for program in programs.values():
                settle(program)
        milliseconds = {form: 1e3 * s for form, s in least_seconds(programs, self.library.wait, seconds).items()}
        chosen = min(milliseconds, key=milliseconds.get)
        self.program = programs[chosen]
        return {
            "chosen": chosen,
            "milliseconds": milliseconds,
            "errors": errors,
            "import_seconds": self.import_seconds,
            "versions": self.library.versions(),
        }

    def run(self, steps):
        seconds, results = timed(self.program, self.library.wait, steps)
        return {"seconds": seconds, "checksum": float(self.library.to_numpy(results[0]).sum(dtype="float64"))}

    def first(self, form):
        """Setting up (arrays, model, decorator) and the first calls are told apart: compilers differ in which pays.

        Three calls are timed as well as one, because an optimizer that makes its buffers in the first step may be
        compiled a second time.
        """
        imported = peak_memory_bytes()
        began = time.perf_counter()
        program = self.forms[form]()
        built = time.perf_counter()
        self.library.wait(program.step())
        ended = time.perf_counter()
        further, _ = timed(program, self.library.wait, 2)
        timed(program, self.library.wait, MEMORY_STEPS - 3)
        peak = peak_memory_bytes()
        return {
            "import_seconds": self.import_seconds,
            "setup_seconds": built - began,
            "first_call_seconds": ended - built,
            "three_calls_seconds": ended - built + further,
            "imported_bytes": imported,
            "added_bytes": peak - imported,
            "peak_bytes": peak,
        }

    def _record(self, program, path):
        """What the first steps give, for the parent to compare: step and result number name an array."""
        numpy = importlib.import_module("numpy")
        steps = importlib.import_module("benchmarks.workload").RECORDED_STEPS
        arrays = {}
        for step in range(steps):
            results = [self.library.to_numpy(a) for a in program.step()]
            results += self.library.parameters_to_numpy(program.parameters())
            arrays.update({f"step {step}, result {k}": numpy.array(a) for k, a in enumerate(results)})
        numpy.savez(path, **arrays)


def restrict_to_cpus(n):
    """Leave the process the last n CPUs it may use, and say so to thread pools that do not look."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-n:])
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(n)


def timed(program, wait, steps):
    """Seconds for some steps, and the results of the last; those of the others are dropped before the next begins."""
    step = program.step
    began = time.perf_counter()
    for _ in range(steps - 1):
        step()
    results = step()
    wait(results)
    return time.perf_counter() - began, results


def settle(program, most_seconds=20):
    """Steps until no other thread of the process takes time, for 0.15 s: what it compiles takes turns with every side
    that has the same CPU. LeNet's step took three times as long so in a run of all workloads."""
    quiet, end = 0, time.perf_counter() + most_seconds
    while quiet < 3 and time.perf_counter() < end:
        others, began = time.process_time() - time.thread_time(), time.perf_counter()
        while time.perf_counter() < began + 0.05:
            program.step()
        others = time.process_time() - time.thread_time() - others
        quiet = quiet + 1 if others < 0.002 else 0


def least_seconds(programs, wait, seconds):
    """Seconds per step of each program: the least of turns of about 20 ms that alternate.

    The least, because other work on the machine only adds; medians once let it choose the slower form.
    """
    steps = {}
    for form, program in programs.items():
        timed(program, wait, 3)
        steps[form] = max(1, round(0.02 / max(timed(program, wait, 3)[0] / 3, 1e-6)))
    samples = {form: [] for form in programs}
    end = time.perf_counter() + seconds * len(programs)
    while time.perf_counter() < end or not all(samples.values()):
        for form, program in programs.items():
            samples[form].append(timed(program, wait, steps[form])[0] / steps[form])
    return {form: min(s) for form, s in samples.items()}


def peak_memory_bytes():
    """The most memory this process ever held. Linux's ru_maxrss also counts the parent before exec, VmHWM does not."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except OSError:
        resource = importlib.import_module("resource")  # not on Windows, and only needed elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10


if __name__ == "__main__":
    main(*sys.argv[1:])
