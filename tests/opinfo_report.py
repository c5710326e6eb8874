"""What share of PyTorch's OpInfo samples weft passes, per op.

    python tests/opinfo_report.py [--all] [--kinds KIND ...] [--json FILE] [--show N] [op ...]

Counts are (passed, tried) for forward (each element type weft has), gradients, second derivatives, compiled bits, and
the types of errors; with `--kinds all` also for the element types of 8 and 16 bits and complex numbers, operands that
are not contiguous, the samples of PyTorch's reference tests (extremal values, mixed types), in-place forms and `out=`.
A refusal of a type by NotImplementedError, as differences.md announces, is counted apart and not as a failure.
"""

import argparse
import itertools
import json
import warnings

import opinfo_parts as parts
import torch

import weft

KINDS = ("forward", "backward", "second", "compiled", "errors")
FURTHER = ("types", "complex", "strided", "reference", "inplace", "out")


class Tally:
    """Passed and tried per kind, and what failed."""

    def __init__(self):
        self.passed, self.tried = dict.fromkeys(KINDS + FURTHER, 0), dict.fromkeys(KINDS + FURTHER, 0)
        self.refused = 0
        self.failures = []
        # {element type: [results that agree, tried, refused]}, and why samples ran outside compiled programs.
        self.of_types, self.outside = {}, []

    def count(self, kind, where, check, dtype=None):
        """Run a check; what a sample asks for that weft has not is not counted."""
        of_type = self.of_types.setdefault(dtype, [0, 0, 0])
        try:
            check()
        except parts.Untranslatable:
            return
        except NotImplementedError:
            self.refused += 1
            of_type[2] += 1
            return
        except Exception as error:
            self.failures.append(f"{kind} {where}: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
        else:
            self.passed[kind] += 1
            of_type[0] += 1
        self.tried[kind] += 1
        of_type[1] += 1

    @property
    def share(self):
        tried = sum(self.tried.values())
        return 1.0 if not tried else sum(self.passed.values()) / tried


def samples_of(op, dtype, requires_grad, limit, listing="sample_inputs"):
    """Spread over the list: the first are the plainest."""
    torch.manual_seed(0)
    found = list(itertools.islice(getattr(op, listing)("cpu", dtype, requires_grad=requires_grad), 300))
    if limit is None or len(found) <= limit:
        return found
    return [found[k * (len(found) - 1) // (limit - 1)] for k in range(limit)]


def tally(op, limit, kinds=KINDS):
    found = Tally()
    for kind in kinds:
        if kind in CHECKS:
            CHECKS[kind](found, op, limit)
    derived = op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")
    if derived and {"backward", "second"} & set(kinds):
        _derivatives(found, op, torch.float64, limit)
    elif torch.float64 in op.supported_dtypes("cpu") and "compiled" in kinds:
        _compiled(found, op, limit)
    if op.error_inputs_func is not None and "errors" in kinds:
        _errors(found, op)
    return found


def _main_types(found, op, limit):
    _forward(found, op, "forward", parts.FORWARD_DTYPES, limit)


def _other_types(found, op, limit):
    _forward(found, op, "types", parts.OTHER_DTYPES, limit)


def _complex(found, op, limit):
    if op.supports_autograd and torch.complex128 in op.supported_backward_dtypes("cpu"):
        _derivatives(found, op, torch.complex128, limit, kinds=("complex", "complex", "complex"))


def _strided(found, op, limit):
    if op.name not in RANDOM:
        _forward(found, op, "strided", ("float32", "int64"), limit, lambda sample: sample.noncontiguous())


def _reference(found, op, limit):
    if op.reference_inputs_func is not None:
        _forward(found, op, "reference", ("float32", "int64"), limit, listing="reference_inputs")


def _inplace(found, op, limit):
    """The form that changes its first operand: the result, or an error where PyTorch has one."""
    form = op.inplace_variant
    name = getattr(form, "__name__", "")
    if form is None or op.name in RANDOM or not hasattr(torch.Tensor, name):
        return
    for kind in ("float32", "int64"):
        for k, sample in enumerate(_samples(op, kind, limit)):

            def check(sample=sample):
                call = parts.Call(op, sample)
                x, args, kwargs = call.theirs
                theirs = _outcome(lambda: form(x.clone(), *args, **kwargs))
                mine = _outcome(lambda: _changed(name, *call.ours))
                assert isinstance(theirs, Exception) == isinstance(mine, Exception), f"{mine!r}, PyTorch: {theirs!r}"
                if isinstance(mine, Exception):
                    assert isinstance(mine, type(theirs)), f"{mine!r}, PyTorch raises {theirs!r}"
                else:
                    parts.same(mine, theirs, "result")

            found.count("inplace", f"{kind} {k} {summary(sample)}", check)


def _changed(name, x, args, kwargs):
    x = x.clone()
    result = getattr(x, name)(*args, **kwargs)
    assert result is x, "the result is another tensor"
    return result


def _outcome(call):
    try:
        return call()
    except NotImplementedError:
        raise
    except Exception as error:
        return error


def _out(found, op, limit):
    if not op.supports_out or op.name in RANDOM:
        return
    for k, sample in enumerate(_samples(op, "float32", limit)):

        def check(sample=sample):
            call = parts.Call(op, sample)
            _require_out_of_pytorch(call)
            expected = call.run_ours()
            if not all(isinstance(x, weft.Tensor) for x in parts.flat(expected)):
                raise parts.Untranslatable("numbers have no memory")
            made = [weft.empty_like(x) for x in parts.flat(expected)]
            x, args, kwargs = call.ours
            into = made[0] if isinstance(expected, weft.Tensor) else tuple(made)
            result = parts.function_of(op)(x, *args, **kwargs, out=into)
            for returned, given, value in zip(parts.flat(result), made, parts.flat(expected)):
                assert returned is given, "the result is another tensor"
                assert parts.as_array(given).tobytes() == parts.as_array(value).tobytes()

        found.count("out", f"{k} {summary(sample)}", check)


def _require_out_of_pytorch(call):
    """Of some functions the description alone says that they take it."""
    x, args, kwargs = call.theirs
    expected = call.run_theirs()
    made = [torch.empty_like(part) for part in parts.flat(expected) if isinstance(part, torch.Tensor)]
    try:
        call.op.op(x, *args, **kwargs, out=made[0] if isinstance(expected, torch.Tensor) else tuple(made))
    except Exception as error:
        raise parts.Untranslatable(f"PyTorch takes none: {error!r}") from None


CHECKS = {
    "forward": _main_types,
    "types": _other_types,
    "complex": _complex,
    "strided": _strided,
    "reference": _reference,
    "inplace": _inplace,
    "out": _out,
}


# Their results are drawn: only their shapes and types can agree.
RANDOM = str.split("""
    multinomial randint randint_like randn randn_like rand_like rand uniform normal bernoulli exponential cauchy
    geometric log_normal nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
    nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu empty empty_like new_empty
    new_empty_strided empty_strided empty_permuted svd_lowrank pca_lowrank
""")


def _samples(op, name, limit):
    dtype = getattr(torch, name)
    return samples_of(op, dtype, False, limit) if dtype in op.supported_dtypes("cpu") else []


def _forward(found, op, kind, names, limit, change=lambda sample: sample, listing="sample_inputs"):
    for name in names:
        if getattr(torch, name) not in op.supported_dtypes("cpu"):
            continue
        for k, sample in enumerate(samples_of(op, getattr(torch, name), False, limit, listing)):
            where = f"{name} {k} {summary(sample)}"
            of_type = name if kind in ("forward", "types") else None
            found.count(kind, where, lambda s=sample: _check_result(op, change(s)), of_type)


def _check_result(op, sample):
    call = parts.Call(op, sample)
    theirs = call.run_theirs()
    if op.name in RANDOM:
        theirs, mine = parts.flat(theirs), parts.flat(call.run_ours())
        assert [(tuple(x.shape), str(x.dtype)[6:]) for x in theirs] == [(x.shape, x.dtype.name) for x in mine]
    else:
        mine = call.process_ours(call.run_ours())
        parts.same(*_without_ties(op, sample, mine, call.process(theirs)), "result")


# Which of several equal elements is found is not defined, unless the sort is stable.
TIED = str.split("kthvalue topk mode sort argsort msort median nanmedian")


def _without_ties(op, sample, mine, theirs):
    if op.name not in TIED or sample.kwargs.get("stable"):
        return mine, theirs
    if op.name == "argsort":
        assert mine.shape == tuple(theirs.shape)
        return (), ()
    return (mine[0], theirs[0]) if isinstance(theirs, tuple) else (mine, theirs)


def _derivatives(found, op, dtype, limit, kinds=("backward", "second", "compiled")):
    if op.name in RANDOM:
        return
    first, second, compiled = kinds
    for k, sample in enumerate(samples_of(op, dtype, True, limit)):
        where = f"{k} {summary(sample)}"
        found.count(first, where, lambda s=sample: parts.check_derivatives(parts.Call(op, s), 1))
        if op.supports_gradgrad:
            found.count(second, where, lambda s=sample: parts.check_derivatives(parts.Call(op, s), 2))
        found.count(compiled, where, lambda s=sample: found.outside.append(parts.check_compiled(parts.Call(op, s))))


def _compiled(found, op, limit):
    if op.name in RANDOM:
        return
    for k, sample in enumerate(samples_of(op, torch.float64, False, limit)):
        where = f"{k} {summary(sample)}"
        found.count("compiled", where, lambda s=sample: found.outside.append(parts.check_compiled(parts.Call(op, s))))


def _errors(found, op):
    for k, wrong in enumerate(op.error_inputs("cpu")):

        def check(wrong=wrong):
            call = parts.Call(op, wrong.sample_input)
            _require_error_of_pytorch(call, wrong.error_type)
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


def _require_error_of_pytorch(call, kind):
    """Some descriptions of errors are of other functions than the one that is called."""
    try:
        call.run_theirs()
    except kind:
        return
    except Exception as error:
        raise parts.Untranslatable(f"PyTorch raises {error!r}") from None
    raise parts.Untranslatable("PyTorch raises nothing")


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
    reader.add_argument("--samples", type=int, default=5, help="samples per op and type")
    reader.add_argument("--kinds", nargs="*", default=list(KINDS), help=f"of {', '.join(KINDS + FURTHER)}; or all")
    reader.add_argument("--json", help="write the counts there")
    reader.add_argument("--show", type=int, default=0, help="failures to print per op")
    reader.add_argument("--part", default="0/1", help="k/n: every n-th op, from the k-th")
    given = reader.parse_args()
    warnings.simplefilter("ignore")
    parts.compile_always()
    database = parts.op_database()
    chosen = [n for n in database if not given.ops or n in given.ops or database[n].name in given.ops]
    first, step = map(int, given.part.split("/"))
    kinds = KINDS + FURTHER if given.kinds == ["all"] else tuple(given.kinds)
    results = {}
    for name in chosen[first::step]:
        found = tally(database[name], None if given.all else given.samples, kinds)
        counts = {kind: [found.passed[kind], found.tried[kind]] for kind in kinds}
        results[name] = {**counts, "share": round(found.share, 4), "refused": found.refused, "failures": found.failures}
        print(f"{name:40} {found.share:7.1%}  " + "  ".join(f"{k} {a}/{b}" for k, (a, b) in counts.items()), flush=True)
        for failure in found.failures[: given.show]:
            print("      ", failure)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
