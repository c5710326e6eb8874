"""What weft and PyTorch say of arguments of a wrong kind: every argument of one sample call of every function and
method, replaced by values of each other kind, one at a time.

    python tests/wrong_kinds.py [--json FILE] [--show N] [op ...]

Counts calls that PyTorch refuses, those of them that weft accepts, and those where weft's error is of another type;
and calls that PyTorch accepts and weft refuses.
"""

import argparse
import json
import warnings

import opinfo_parts as parts
import torch
from opinfo_report import samples_of

WRONG = {
    "str": "a", "float": 1.5, "int": 2, "bool": True, "None": None, "complex": 1j, "dict": {}, "object": object(),
    "list of float": [1.5], "list of str": ["a"], "list of None": [None], "tensor": torch.full((2,), 0.5),
}  # fmt: skip
ACCEPTED, OTHER, REFUSED = "accepted", "other error", "refused"
_SLOW = {"linspace", "logspace"}


def calls_of(sample):
    """(name of a place, function that puts a value there) of every argument."""

    def put(position, value):
        x, args, kwargs = sample.input, sample.args, sample.kwargs
        if position == 0:
            return value, args, kwargs
        if isinstance(position, int):
            return x, (*args[: position - 1], value, *args[position:]), kwargs
        return x, args, {**kwargs, position: value}

    for position in (*range(len(sample.args) + 1), *sample.kwargs):
        yield position, lambda value, position=position: put(position, value)


def outcome(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def judged(theirs, mine):
    """How weft's outcome compares with PyTorch's; None if it agrees."""
    if theirs is None:
        return None if mine is None else REFUSED
    if mine is None:
        return ACCEPTED
    # What Python says of an accident inside PyTorch's own Python is nothing to follow.
    is_better = isinstance(mine, TypeError) and isinstance(theirs, AttributeError)
    return None if isinstance(mine, type(theirs)) or is_better else OTHER


def compared(op, forms):
    """{(form, place, kind): (judgement, PyTorch's outcome, weft's)} of all calls, agreeing ones included."""
    found = {}
    kinds = (torch.float32, torch.float64, torch.int64, torch.complex64)
    dtypes = [d for d in kinds if d in op.supported_dtypes("cpu")]
    samples = samples_of(op, dtypes[0], False, 12) if dtypes else []
    # Of those with the most arguments.
    samples = sorted(samples, key=lambda s: len(s.args) + len(s.kwargs))[-1:]
    for sample in samples:
        for form, theirs, mine in forms(op):
            for place, put in calls_of(sample):
                for kind, value in WRONG.items() if form == "function" or place != 0 else ():
                    outcomes = _outcomes(theirs, mine, *put(value))
                    if outcomes is not None:
                        found[form, str(place), kind] = (judged(*outcomes), *outcomes)
    return found


def _outcomes(theirs, mine, x, args, kwargs):
    """(PyTorch's, weft's) of one call; None if it is about something that weft has not."""
    try:
        our_x, our_args, our_kwargs = parts.translated((x, tuple(args), kwargs))
    except parts.Untranslatable:
        return None
    # What is changed in place is a copy.
    x = x.clone() if isinstance(x, torch.Tensor) else x
    expected = outcome(lambda: theirs(x, *args, **kwargs))
    got = outcome(lambda: mine(our_x, *our_args, **our_kwargs))
    return None if isinstance(got, NotImplementedError) else (expected, got)


def forms_of(op):
    """(name, PyTorch's, weft's) of the function, the method and the in-place form."""
    try:
        yield "function", op.op, parts.function_of(op)
    except AttributeError:
        return
    for form, theirs in (("method", op.method_variant), ("in-place", op.inplace_variant)):
        name = getattr(theirs, "__name__", "")
        mine = getattr(parts.weft.Tensor, name, None)
        if theirs is not None and mine is not None and hasattr(torch.Tensor, name):
            yield form, theirs, mine


def main():
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("ops", nargs="*", help="names of ops; all by default")
    reader.add_argument("--json", help="write what differs there")
    reader.add_argument("--show", type=int, default=0, help="differences to print per op")
    given = reader.parse_args()
    warnings.simplefilter("ignore")
    total, functions, results, n_refused = dict.fromkeys((ACCEPTED, OTHER, REFUSED), 0), {}, {}, 0
    for name, op in parts.op_database().items():
        if given.ops and op.name not in given.ops or op.variant_test_name or op.name in _SLOW:
            continue
        try:
            found = compared(op, forms_of)
        except Exception as error:
            print(f"{name}: {error!r}"[:200], flush=True)
            continue
        n_refused += sum(theirs is not None for _, theirs, _ in found.values())
        wrong = {key: value for key, value in found.items() if value[0]}
        for (form, place, kind), (judgement, theirs, mine) in wrong.items():
            total[judgement] += 1
            functions.setdefault(judgement, set()).add((name, form))
            results.setdefault(name, []).append([form, place, kind, judgement, repr(mine)[:200], repr(theirs)[:200]])
        if wrong:
            print(f"{name:40} {len(wrong)} of {len(found)}", flush=True)
        for line in results.get(name, [])[: given.show]:
            print("      ", *line)
    print(f"{n_refused} calls PyTorch refuses")
    for judgement, count in total.items():
        print(f"{judgement:12} {count} calls of {len(functions.get(judgement, ()))} functions and methods")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
