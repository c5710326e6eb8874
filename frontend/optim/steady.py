"""Steps of optimizers outside compiled calls: after a while they are compiled calls of their own, with the same bits.

A step is the same ops on the same tensors, again and again, and eager mode pays for each by itself. Compiling pays when
many more follow; how many that will be nobody knows, so it is begun after as many as have cost about what it costs.
Gradients from outside are new tensors in every call, each of which has to be looked at: for few elements that takes
longer than the ops do. Where native code updates all parameters, one kernel each, a compiled step does it faster only
by several threads.
"""

import weakref
from functools import partial

from ..compiler.later import later
from ..runtime.code.threads import get_num_threads
from ..runtime.eager.update import rows_in_python
from ..runtime.state.elsewhere import any_elsewhere, used
from ..runtime.state.modes import state, watching

STEPS_BEFORE = 50
FEWEST_ELEMENTS = 1 << 16
FEWEST_FOR_THREADS = 1 << 21
_compiled_function = later("compiled:CompiledFunction")
_steps = weakref.WeakKeyDictionary()  # optimizer -> how many steps it has made so far, or its compiled step


def update_groups(optimizer):
    """optimizer._update_groups(), outside any compiled call."""
    if watching and state.profile is not None:
        state.profile.part(f"Optimizer.step#{type(optimizer).__name__}.step", partial(_update_groups, optimizer))
    else:
        _update_groups(optimizer)


def _update_groups(optimizer):
    made = _steps.get(optimizer, 0)
    if not isinstance(made, int):
        made()
        return
    before = rows_in_python()
    optimizer._update_groups()
    if made < STEPS_BEFORE:
        _steps[optimizer] = made + 1
    elif _pays(optimizer, is_native=rows_in_python() == before):
        _steps[optimizer] = _compiled(weakref.ref(optimizer))
    else:
        _steps[optimizer] = 1  # to be asked again: groups can be added


def _pays(optimizer, *, is_native):
    if is_native and get_num_threads() == 1:
        return False
    if used and any_elsewhere([param for group in optimizer.param_groups for param in group["params"]]):
        return False
    fewest = FEWEST_FOR_THREADS if is_native else FEWEST_ELEMENTS
    return sum(param.numel() for group in optimizer.param_groups for param in group["params"]) >= fewest


def _compiled(reference):
    """Not of the bound method, which would keep the optimizer alive."""

    def optimizer_step():
        reference()._update_groups()

    return _compiled_function(optimizer_step)
