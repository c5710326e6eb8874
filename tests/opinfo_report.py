"""What share of PyTorch's OpInfo samples weft passes, per op.

    python tests/opinfo_report.py [--all] [--json FILE] [--show N] [op ...]

Counts are (passed, tried) for forward (each element type weft has), gradients, second derivatives, compiled bits, and
the types of errors.
"""

import argparse
import itertools
import json
import warnings

import opinfo_parts as parts
import torch

KINDS = ("forward", "backward", "second", "compiled", "errors")


class Tally:
    """Passed and tried per kind, and what failed."""

    def __init__(self):
        self.passed, self.tried = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
        self.failures = []

    def count(self, kind, where, check):
        """Run a check; what a sample asks for that weft has not is not counted."""
        try:
            check()
        except parts.Untranslatable:
            return
        except Exception as error:
            self.failures.append(f"{kind} {where}: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
        else:
            self.passed[kind] += 1
        self.tried[kind] += 1

    @property
    def share(self):
        tried = sum(self.tried.values())
        return 1.0 if not tried else sum(self.passed.values()) / tried


def samples_of(op, dtype, requires_grad, limit):
    """Spread over the list: the first are the plainest."""
    torch.manual_seed(0)
    found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), 300))
    if limit is None or len(found) <= limit:
        return found
    return [found[k * (len(found) - 1) // (limit - 1)] for k in range(limit)]


def tally(op, limit):
    found = Tally()
    for name in parts.FORWARD_DTYPES:
        dtype = getattr(torch, name)
        if dtype in op.supported_dtypes("cpu"):
            _forward(found, op, dtype, limit)
    if op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu"):
        _derivatives(found, op, limit)
    elif torch.float64 in op.supported_dtypes("cpu"):
        _compiled(found, op, limit)
    if op.error_inputs_func is not None:
        _errors(found, op)
    return found


# Their results are drawn: only their shapes and types can agree.
RANDOM = str.split("""
    multinomial randint randint_like randn randn_like rand_like rand uniform normal bernoulli exponential cauchy
    geometric log_normal nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu empty empty_like new_empty
    new_empty_strided empty_strided empty_permuted svd_lowrank pca_lowrank
""")


def _forward(found, op, dtype, limit):
    for k, sample in enumerate(samples_of(op, dtype, False, limit)):

        def check(sample=sample):
            call = parts.Call(op, sample)
            theirs = call.run_theirs()
            if op.name in RANDOM:
                theirs, mine = parts.flat(theirs), parts.flat(call.run_ours())
                assert [(tuple(x.shape), str(x.dtype)[6:]) for x in theirs] == [(x.shape, x.dtype.name) for x in mine]
            else:
                mine = call.process_ours(call.run_ours())
                parts.same(*_without_ties(op, sample, mine, call.process(theirs)), "result")

        found.count("forward", f"{dtype} {k} {summary(sample)}", check)


# Which of several equal elements is found is not defined, unless the sort is stable.
TIED = str.split("kthvalue topk mode sort argsort msort median nanmedian")


def _without_ties(op, sample, mine, theirs):
    if op.name not in TIED or sample.kwargs.get("stable"):
        return mine, theirs
    if op.name == "argsort":
        assert mine.shape == tuple(theirs.shape)
        return (), ()
    return (mine[0], theirs[0]) if isinstance(theirs, tuple) else (mine, theirs)


def _derivatives(found, op, limit):
    if op.name in RANDOM:
        return
    for k, sample in enumerate(samples_of(op, torch.float64, True, limit)):
        where = f"{k} {summary(sample)}"
        found.count("backward", where, lambda s=sample: parts.check_derivatives(parts.Call(op, s), 1))
        if op.supports_gradgrad:
            found.count("second", where, lambda s=sample: parts.check_derivatives(parts.Call(op, s), 2))
        found.count("compiled", where, lambda s=sample: parts.check_compiled(parts.Call(op, s)))


def _compiled(found, op, limit):
    if op.name in RANDOM:
        return
    for k, sample in enumerate(samples_of(op, torch.float64, False, limit)):
        found.count("compiled", f"{k} {summary(sample)}", lambda s=sample: parts.check_compiled(parts.Call(op, s)))


def _errors(found, op):
    for k, wrong in enumerate(op.error_inputs("cpu")):

        def check(wrong=wrong):
            call = parts.Call(op, wrong.sample_input)
            try:
                call.run_ours()
            except wrong.error_type:
                return
            except Exception as error:
                if isinstance(error, AttributeError):
                    raise
                raise AssertionError(f"{error!r}, PyTorch raises {wrong.error_type.__name__}") from None
            raise AssertionError(f"nothing was raised, PyTorch raises {wrong.error_type.__name__}: {wrong.error_regex}")

        found.count("errors", f"{k} {summary(wrong.sample_input)}", check)


def summary(sample):
    def show(x):
        if isinstance(x, torch.Tensor):
            return f"{str(x.dtype)[6:]}{list(x.shape)}"
        if isinstance(x, (list, tuple)):
            return f"({', '.join(map(show, x))})"
        return repr(x)[:40]

    words = [show(sample.input), *map(show, sample.args), *(f"{k}={show(v)}" for k, v in sample.kwargs.items())]
    return " ".join(words)


def main():
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("ops", nargs="*", help="names of ops; all by default")
    reader.add_argument("--all", action="store_true", help="every sample instead of five per op and type")
    reader.add_argument("--json", help="write the counts there")
    reader.add_argument("--show", type=int, default=0, help="failures to print per op")
    reader.add_argument("--part", default="0/1", help="k/n: every n-th op, from the k-th")
    given = reader.parse_args()
    warnings.simplefilter("ignore")
    database = parts.op_database()
    chosen = [n for n in database if not given.ops or n in given.ops or database[n].name in given.ops]
    first, step = map(int, given.part.split("/"))
    results = {}
    for name in chosen[first::step]:
        found = tally(database[name], None if given.all else 5)
        counts = {kind: [found.passed[kind], found.tried[kind]] for kind in KINDS}
        results[name] = {**counts, "share": round(found.share, 4), "failures": found.failures[:20]}
        print(f"{name:40} {found.share:7.1%}  " + "  ".join(f"{k} {a}/{b}" for k, (a, b) in counts.items()), flush=True)
        for failure in found.failures[: given.show]:
            print("      ", failure)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
