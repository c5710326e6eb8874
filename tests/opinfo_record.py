"""Write docs/coverage_samples.json: how many of PyTorch's OpInfo samples weft passes, op by op.

    python tests/opinfo_record.py [--part K/N] [op ...]      all ops (half an hour), every N-th of them, or those named

docs/coverage.py makes the page of coverage from it, without torch. Of each op, its variants added up: [passed, tried]
of results, derivatives, second derivatives, compiled bits, types of errors, in-place forms and `out=`; the same of
results by element type, with how many were refused; other names of the op; in how many of the compiled samples
something ran outside of the programs, and why, if any did; and why samples do not agree, where that is known.
"""

import argparse
import json
import re
import warnings
from pathlib import Path

import opinfo_parts as parts
import torch
from opinfo_known import ABSENT, KNOWN
from opinfo_report import tally

TARGET = Path(__file__).parent.parent / "docs" / "coverage_samples.json"
SAMPLES = 5
COUNTED = ("forward", "backward", "second", "compiled", "errors", "inplace", "out")
KINDS = ("forward", "types", *COUNTED[1:])


def variants_of(name):
    return [op for op in parts.op_database().values() if op.name == name]


def counted(name, samples=SAMPLES):
    """What the file says of an op."""
    ops = variants_of(name)
    found = [tally(op, samples, KINDS) for op in ops]
    made = {kind: _sums([t.passed[kind], t.tried[kind]] for t in found) for kind in COUNTED}
    made["forward"] = _sums([made["forward"], *([t.passed["types"], t.tried["types"]] for t in found)])
    made["types"] = {}
    for kind in parts.FORWARD_DTYPES + parts.OTHER_DTYPES:
        if any(getattr(torch, kind) in op.supported_dtypes("cpu") for op in ops):
            made["types"][kind] = _sums([[0, 0, 0], *(t.of_types[kind] for t in found if kind in t.of_types)])
    made["aliases"] = sorted({alias.name for op in ops for alias in op.aliases})
    reasons = [reason for t in found for reason in t.outside if reason]
    made["outside"] = [len(reasons), _plain(reasons[0][0])] if reasons else [0, ""]
    return made


def _sums(rows):
    return [sum(column) for column in zip(*rows)]


def _plain(reason):
    """Without the name of the op that ran outside: "linalg_svd: computed by NumPy"."""
    return re.sub(r"^\w+: ", "", reason)


def read():
    return json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {}


def write(ops):
    """One line per op."""
    ops = {name: {**op, "why": KNOWN.get(name, {})} for name, op in ops.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(ops[name])}" for name in sorted(ops)]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main():
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("ops", nargs="*", help="names of ops; all by default")
    reader.add_argument("--part", default="0/1", help="k/n: every n-th op, from the k-th")
    given = reader.parse_args()
    warnings.simplefilter("ignore")
    parts.compile_always()
    first, step = map(int, given.part.split("/"))
    names = [n for n in dict.fromkeys(op.name for op in parts.op_database().values()) if n not in ABSENT]
    for name in (given.ops or names)[first::step]:
        made = counted(name)
        write({**{k: v for k, v in read().items() if k in names}, name: made})
        print(name, made, flush=True)


if __name__ == "__main__":
    main()
