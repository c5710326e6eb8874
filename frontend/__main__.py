"""python -m weft program.py ARGUMENTS...        runs a program that imports torch, with weft in torch's place
python -m weft -m package.module ARGUMENTS...     the same for a module
python -m weft info                               what weft runs on: versions, machine, threads, cache, extras
python -m weft cache                              the compiled programs on disk, those used last
python -m weft cache list                         all of them
python -m weft cache clear                        removes them
python -m weft cache fill                         compiles what all programs share, which takes some seconds, once

A program whose file is called info or cache is run as ./info."""

import os
import runpy
import sys

from . import as_torch
from .info import cached, clear, fill, info, recent

COMMANDS = {
    ("info",): info,
    ("cache",): recent,
    ("cache", "list"): cached,
    ("cache", "clear"): clear,
    ("cache", "fill"): fill,
}


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(__doc__)
        return 0 if arguments and arguments[0] != "-m" else 2
    if arguments[0] in ("info", "cache"):
        return _run_command(tuple(arguments))
    if arguments[0] != "-m" and not os.path.exists(arguments[0]):
        print(
            f"weft: no program {arguments[0]!r}; there are the commands info and cache, and -m for modules",
            file=sys.stderr,
        )
        return 2
    as_torch()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


def _run_command(words):
    if {"-h", "--help"} & {*words}:
        print(__doc__)
        return 0
    if words not in COMMANDS:
        print(f"weft: no command {' '.join(words)!r}; there are {', '.join(' '.join(known) for known in COMMANDS)}")
        return 2
    try:
        print(COMMANDS[words](), flush=True)
    except (
        BrokenPipeError
    ):  # whoever reads has seen enough, as in `... | head`; Python would say so once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
