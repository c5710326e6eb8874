"""python -m benchmarks idioms: its options, and what is written."""

import argparse
import json
import sys
from pathlib import Path

from .. import machine
from ..sides import SIDES, installed
from . import IDIOMS, __doc__, report
from .measure import Effort, measure_all

RESULTS = Path(__file__).parents[1] / "results"
SMOKE = ("three_tensors", "step_sgd")
SMOKE_EFFORT = Effort(rounds=2, turn_seconds=0.001)
# Single precision and scripts of fifty steps: rounding grows where training is not contractive.
TOLERANCE = 1e-3


def main(arguments):
    options = parse(arguments)
    effort = SMOKE_EFFORT if options.smoke else Effort(options.rounds, options.turn_seconds)
    described = machine.describe()
    records, left_out = measure_all(
        options.names, options.sides, options.threads, effort, 60 * options.minutes, lambda text: say(f"  {text}")
    )
    results = {
        "machine": described,
        "versions": versions(options.sides),
        "options": {
            "threads": options.threads,
            "rounds": effort.rounds,
            "smoke": options.smoke,
            "tolerance": TOLERANCE,
        },
        "idioms": records,
        "left_out": left_out,
    }
    print("\n".join(report.lines(results)))
    if options.out != Path("-"):
        write(results, options.out, f"{described['date'][:10]}-{options.label}")
    return 1 if any(report.failures(results)) else 0


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks idioms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="parts of names, with commas between; default: all idioms")
    parser.add_argument("--sides", type=sides, help="default: what is installed of weft,weft-eager,torch")
    parser.add_argument("--rounds", type=int, default=Effort().rounds)
    parser.add_argument("--turn-seconds", type=float, default=Effort().turn_seconds, help="of each side in each round")
    parser.add_argument("--minutes", type=float, default=60, help="no further idiom is begun after that long")
    parser.add_argument("--threads", type=int, default=1, help="CPUs of every side; default: 1")
    parser.add_argument("--smoke", action="store_true", help="two idioms in weft alone")
    parser.add_argument("--out", type=Path, help="folder of the record; default: benchmarks/results; - for none")
    parser.add_argument("--label", help="the record's name after its date; default: from names and threads")
    options = parser.parse_args(arguments)
    options.names = named(options.only, parser) if options.only else list(SMOKE if options.smoke else IDIOMS)
    if options.sides is None:
        wanted = ("weft", "weft-eager") if options.smoke else ("weft", "weft-eager", "torch")
        options.sides = [side for side in wanted if side in installed()]
    if options.label is None:
        options.label = f"idioms{'-some' if options.only else ''}-{options.threads}-cpu"
    options.out = options.out or (Path("-") if options.smoke else RESULTS)
    return options


def named(only, parser):
    parts = only.split(",")
    if unknown := [part for part in parts if not any(part in name for name in IDIOMS)]:
        parser.error(f"--only: no idiom's name contains {', '.join(unknown)}; the names are {', '.join(IDIOMS)}")
    return [name for name in IDIOMS if any(part in name for part in parts)]


def sides(text):
    known = [side for side in SIDES if side != "jax"]
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
    return names


def versions(used):
    from importlib.metadata import version  # 15 ms, and only a record needs it

    return {package: version(package) for package in ("numpy", *dict.fromkeys(SIDES[side].package for side in used))}


def write(results, folder, name):
    """name.json, the whole record, and name.md, the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / f"{name}.md").write_text("\n".join(report.lines(results)) + "\n")


def say(text):
    print(text, file=sys.stderr, flush=True)
