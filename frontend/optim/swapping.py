"""swap_in_optimizer_params_and_state: an optimizer that works on other tensors for the length of a block."""

from collections import defaultdict
from contextlib import contextmanager


@contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """In the block the optimizer has these parameters (a dict, in the order of its own) and this state (what its
    `state_dict` gives); after it its own again. What `step` changes in place are the tensors that were given."""
    groups, given = swapin_optim_state["param_groups"], list(swapin_parameters.values())
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if [len(group["params"]) for group in groups] != sizes or len(given) != sum(sizes):
        raise ValueError(
            f"swap_in_optimizer_params_and_state: the optimizer has groups of {sizes} parameters, the state of "
            f"{[len(group['params']) for group in groups]}, and {len(given)} tensors were given"
        )
    state, before = optimizer.state, [dict(group) for group in optimizer.param_groups]
    tensors, swapped = iter(given), defaultdict(dict)
    try:
        for own, other in zip(optimizer.param_groups, groups):
            own.update({name: value for name, value in other.items() if name != "params"})
            own["params"] = [next(tensors) for _ in other["params"]]
            for tensor, number in zip(own["params"], other["params"]):
                swapped[tensor] = dict(swapin_optim_state["state"].get(number, {}))
        optimizer.state = swapped
        yield
    finally:
        for own, kept in zip(optimizer.param_groups, before):
            own.clear()
            own.update(kept)
        optimizer.state = state
