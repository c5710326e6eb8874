"""Whether sides compute the same: libraries within a tolerance, weft's two modes bit for bit."""

from pathlib import Path

import numpy as np

from .workload import Training


def compare(workload, folders, chosen):
    """{side: verdict} for every side but the first, which is the reference.

    folders: {side: where its process left the results}; chosen: {side: form}. A verdict has the largest difference,
    relative to the largest element of the result it is in, which result that is, and whether it is within tolerance.
    """
    results = {side: load(Path(folder) / f"{chosen[side]}.npz") for side, folder in folders.items()}
    reference, *others = results
    verdicts = {}
    for side in others:
        difference, where = largest_difference(workload, results[reference], results[side])
        verdict = {
            "reference": reference,
            "difference": difference,
            "where": where,
            "tolerance": workload.tolerance,
            "agrees": difference <= workload.tolerance,
        }
        if {reference, side} == {"weft", "weft-eager"}:
            verdict["same_bits"] = same_bits(results[reference], results[side])
            verdict["agrees"] = verdict["same_bits"]
        verdicts[side] = verdict
    return verdicts


def load(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def same_bits(a, b):
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and a[name].tobytes() == b[name].tobytes()
        for name in a
    )


def largest_difference(workload, reference, other):
    """(difference, name of the result); infinity where a result is missing, of another shape, or not a number."""
    worst = (0.0, "")
    for name in reference.keys() | other.keys():
        if int(name.split(",")[0].removeprefix("step ")) >= workload.compared_steps:
            continue
        difference = relative_difference(reference.get(name), other.get(name))
        worst = max(worst, (difference, describe(workload, name)))
    return worst


def relative_difference(a, b):
    if a is None or b is None or a.shape != b.shape or not np.isfinite(a).all() or not np.isfinite(b).all():
        return float("inf")
    scale = np.abs(a).max(initial=0)
    difference = np.abs(a.astype(np.float64) - b).max(initial=0)
    return float(difference / scale if scale else difference)


def describe(workload, name):
    """`step 0, result 1` in words."""
    step, result = name.split(", result ")
    if isinstance(workload, Training):
        return f"{step}, " + ("loss" if result == "0" else f"parameter {int(result) - 1}")
    return f"{step}, {workload.results[int(result)]}"
