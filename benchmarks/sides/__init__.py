"""The libraries that are compared, a module each, so that a process imports one of them only.

Every module has forms(workload, compiled) -> {form: build}, where build() -> Program, and the functions wait(arrays),
to_numpy(array), parameters_to_numpy(arrays), use_threads(n) and versions(). A form is a way a careful user may write
the work; the fastest one stands for the side (child.py), so that no library is measured in a form that does not suit
it.
"""

from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class Side:
    """module: of this package. package: what has to be installed."""

    module: str
    package: str
    compiled: bool


SIDES = {
    "weft": Side("weft_side", "weft", True),
    "weft-eager": Side("weft_side", "weft", False),
    "torch": Side("torch_side", "torch", False),
    "torch-compile": Side("torch_side", "torch", True),
    "jax": Side("jax_side", "jax", True),
}


def installed():
    """Names of the sides this environment can run."""
    return [name for name, side in SIDES.items() if find_spec(side.package)]
