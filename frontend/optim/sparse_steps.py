"""Steps of parameters whose gradients are sparse: only the rows that were read change.

An optimizer that knows such a step defines update_sparse(group, param, grad). Its parameters with dense gradients are
updated as always.
"""

from ..runtime.state.modes import no_grad, step_out


def has_sparse(optimizer):
    """Whether a gradient of a parameter is sparse. (Most programs never have one, and need not look.)"""
    return any(_sparse_of(group) for group in optimizer.param_groups)


def _sparse_of(group):
    return [(p, p._grad) for p in group["params"] if p._grad is not None and not p._grad.has_array]


def step_with_sparse(optimizer):
    """One step for the parameters of all groups. RuntimeError of an optimizer that has none for sparse gradients."""
    if not hasattr(optimizer, "update_sparse"):
        name = getattr(optimizer, "_known_as", type(optimizer).__name__)
        instead = ", please consider SparseAdam instead" if name == "Adam" else ""
        raise RuntimeError(f"{name} does not support sparse gradients{instead}")
    back = step_out("a gradient is sparse")
    try:
        with no_grad():
            for group in optimizer.param_groups:
                _update(optimizer, group)
    finally:
        back.__exit__()


def _update(optimizer, group):
    sparse = _sparse_of(group)
    for param, _ in sparse:
        param._grad = None
    try:
        if any(param._grad is not None for param in group["params"]):
            optimizer.update_group(group)
    finally:
        for param, grad in sparse:
            param._grad = grad
    for param, grad in sparse:
        optimizer.update_sparse(group, param, grad.detach())
