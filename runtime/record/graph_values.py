"""Values of a graph computed op by op, where no program computes them: in a call that somebody looks at (apart.py), and
while its program is made (interim.py)."""

from ...compiler.graph import INPUT, SCALAR
from ..programs.evaluate import evaluate


def leading_to(targets, known):
    """The values that are missing for some, in order; `known` has the inputs and run-time numbers among them."""
    missing, stack = set(), list(targets)
    while stack:
        value = stack.pop()
        if value not in known and value not in missing:
            assert value.op not in (INPUT, SCALAR), value
            missing.add(value)
            stack.extend(value.operands)
    return sorted(missing, key=lambda value: value.number)


def computed(value, known, default_float):
    """One of them, as eager mode computes it from its operands."""
    if value.op.name == "constant":
        return value.attributes["value"]
    types = value.op.compute_dtype and value.op.compute_dtype(value.operands, default_float)[0]
    return evaluate(value.op, [known[o] for o in value.operands], value.attributes, types, value)
