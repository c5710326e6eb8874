"""python -m benchmarks: run workloads on every side, print the tables, write the record."""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from . import first_call, machine, report, rounds
from .idioms import command
from .rounds import Effort
from .sides import SIDES, installed
from .workloads import SMOKE, WORKLOADS

RESULTS = Path(__file__).parent / "results"
SMOKE_EFFORT = Effort(rounds=3, turn_seconds=0.005, choose_seconds=0.005, first_calls=1)


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["idioms"]:
        return command.main(arguments[1:])
    return compare_workloads(parse(arguments))


def compare_workloads(options):
    effort = SMOKE_EFFORT if options.smoke else Effort()
    if options.rounds:
        effort = replace(effort, rounds=options.rounds)
    if options.first_calls is not None:
        effort = replace(effort, first_calls=options.first_calls)
    results = {
        "machine": machine.describe(),
        "versions": {},
        "options": {"threads": options.threads, "rounds": effort.rounds, "smoke": options.smoke},
        "workloads": {},
    }
    with tempfile.TemporaryDirectory() as cache:
        for name in options.workload:
            say(f"{name}: {WORKLOADS[name].what}")
            record = measure(WORKLOADS[name], options, effort, cache)
            results["workloads"][name] = record
            for side in record["sides"].values():
                results["versions"].update(side.pop("versions", {}))
    print("\n".join(report.lines(results)))
    if options.out != Path("-"):
        report.write(results, options.out, f"{results['machine']['date'][:10]}-{options.label}")
    problems = list(report.failures(results))
    for problem in problems:
        say(problem)
    return 1 if problems else 0


def measure(workload, options, effort, cache):
    record = {"what": workload.what, **rounds.measure(workload, options.sides, options.threads, effort, cache)}
    record["first_call"] = {}
    for side in rounds.running(record["sides"]):
        if not effort.first_calls or (options.smoke and SIDES[side].package != "weft"):
            continue
        say(f"  first calls of {side}")
        form = record["sides"][side]["form"]
        record["first_call"][side] = first_call.measure(workload, side, form, options.threads, effort.first_calls)
    return record


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--workload", type=names_among(WORKLOADS), help=f"default: all of {','.join(WORKLOADS)}")
    parser.add_argument("--sides", type=names_among(SIDES), help="default: what is installed of " + ",".join(SIDES))
    parser.add_argument("--rounds", type=int, help=f"default: {Effort().rounds}")
    parser.add_argument("--first-calls", type=int, help=f"repetitions; default: {Effort().first_calls}; 0 for none")
    parser.add_argument("--threads", type=int, default=1, help="CPUs of every side; default: 1")
    parser.add_argument("--smoke", action="store_true", help="a few steps of two small workloads, no torch.compile")
    parser.add_argument("--out", type=Path, help="folder of the record; default: benchmarks/results; - for none")
    parser.add_argument("--label", help="the record's name after its date; default: from threads and workloads")
    options = parser.parse_args(arguments)
    if options.sides is None:
        options.sides = [s for s in installed() if not (options.smoke and s == "torch-compile")]
    if options.label is None:
        options.label = "-".join([*(options.workload or ["all"]), f"{options.threads}-cpu"])
    options.workload = options.workload or list(SMOKE if options.smoke else WORKLOADS)
    options.out = options.out or (Path("-") if options.smoke else RESULTS)
    return options


def names_among(known):
    def parse_names(text):
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
        return names

    return parse_names


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
