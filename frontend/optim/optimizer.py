"""What all optimizers share: parameter groups, state, and the shape of a step.

    step()                  under no_grad
      update_group(group)   one per group, by the subclass:
        rows                (parameter, gradient, state tensors...) of every parameter that has a gradient
        numbers             learning rate, bias corrections, ...: Python floats, run-time inputs of a compiled step
        update(rule, rows, numbers, **flags)

The rule of an optimizer is a module-level pure function written with table ops: new values from old ones. `update`
applies it to all rows and writes the results in place, so that a compiled step holds one fused update for all of them.
Formulas and their order of operations are those of PyTorch's single-tensor implementations.
"""

import copy
import warnings
from collections import defaultdict
from itertools import chain

from ..compiler import dtypes
from ..compiler.ops.arithmetic import mul
from ..compiler.ops.comparison import cast, lt, ne, where
from ..creation import full_like, tensor_of_others, zeros_like
from ..iterables import listed
from ..nn.parameter_containers import ParameterList
from ..placement import beside
from ..public import of_module
from ..runtime.eager.sparse_cotangents import given as sparse_given
from ..runtime.eager.update import drop_gradients, remember, zero_gradients
from ..runtime.state import modes
from ..runtime.state.marks import pure
from ..runtime.state.modes import enable_grad
from ..runtime.state.tensor import Tensor
from .grouping import group_by_device_and_dtype
from .hooks import Hooks, hooks_of
from .sparse_steps import has_sparse, step_with_sparse
from .steady import update_groups

__getattr__, __dir__ = of_module(__name__)

_UNCHANGING = {int, float, bool, str, type(None)}


class Optimizer(Hooks):
    """Base of all optimizers.

    params: an iterable of tensors, of (name, tensor) pairs, or of dicts with a key "params" and options of their own.
    defaults: the options of groups that do not give theirs. The dicts become the optimizer's groups themselves, with
    the defaults filled in, as in PyTorch: who keeps one may set its "lr".
    """

    # Names that annotations of programs use.
    OptimizerPreHook = OptimizerPostHook = "Callable"

    def __init__(self, params, defaults):
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor; "
                "pass a list: [tensor]"
            )
        if hasattr(params, "named_parameters") and not isinstance(params, ParameterList):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got a "
                f"{type(params).__name__}; pass its parameters: model.parameters()"
            )
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError(
                "optimizer got an empty parameter list: the module has no parameters, or the iterator that was given "
                "has been used up; model.parameters() makes a new one"
            )
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group):
        """Optimize more parameters, with the options in `param_group` and the defaults for the others.

        Its "params" may be a tensor or any iterable: it holds a list from then on.
        """
        self.param_groups.append(self._checked(param_group))

    def _checked(self, param_group):
        """The group with all its options, if it can be added."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        if "params" not in param_group:
            raise KeyError(f"a group of parameters needs the key 'params', and this one has {sorted(param_group)}")
        # A generator is spent now: the dict must not keep it, whatever is wrong with what came out of it.
        param_group["params"] = _ordered(param_group["params"])
        param_group.update(_named(param_group["params"]))
        self._check_new(param_group)
        for name, value in self.defaults.items():
            param_group.setdefault(name, value)
        return param_group

    def _check_new(self, group):
        for param in group["params"]:
            _check_leaf(param)
        if len(group["params"]) != len(set(group["params"])):
            warnings.warn("optimizer contains a parameter group with duplicate parameters", stacklevel=4)
        if any(("param_names" in other) != ("param_names" in group) for other in self.param_groups):
            kind = "with names" if "param_names" in group else "without names"
            raise ValueError(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {kind} to the optimizer"
            )
        taken = set(chain.from_iterable(g["params"] for g in self.param_groups))
        if not taken.isdisjoint(group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")

    def step(self, closure=None):
        """Update every parameter that has a gradient. `closure` recomputes the loss first; its result is returned."""
        frame, loss = modes.state.frame, None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if sparse_given and has_sparse(self):
            step_with_sparse(self)
            return loss
        if closure is None and frame is not None and frame.step_again(self):
            return None
        if modes.state.frame is None:
            update_groups(self)
        else:
            if modes.captures:
                modes.captures[-1].steps(self)
            self._update_groups()
        return loss

    @pure()
    def _update_groups(self):
        """One step for the parameters of all groups."""
        # no_grad() written out: a step is short enough for the context manager to show.
        before, modes.state.grad_enabled = modes.state.grad_enabled, False
        try:
            for group in self.param_groups:
                self.update_group(group)
        finally:
            modes.state.grad_enabled = before

    def update_group(self, group):
        """One step for the parameters of one group; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} must define update_group(group), or step() as a whole")

    @staticmethod
    def profile_hook_step(func):
        """The step itself: profiles name every step, whoever defines it."""
        return func

    @staticmethod
    def _formulas(group, step, number, param, kept):
        """The numbers that update_group hands to `update`; the group's "lr" and the count of steps may be Formulas.

        number: makes a float of an option, or leaves it. kept: the floats in the state of `param`, by name, Formulas
        perhaps; it then gets what the step makes of them. None if the numbers follow from something else too, or if not
        all of them are for the same rule and flags.
        """
        return None

    def zero_grad(self, set_to_none=True):
        """Drop all gradients, or fill them with 0."""
        frame = modes.state.frame
        if frame is not None and set_to_none and frame.drop_gradients(self.param_groups):
            return
        params = [param for g in self.param_groups for param in g["params"] if param._grad is not None]
        (drop_gradients if set_to_none else zero_gradients)(params)

    # What copies of PyTorch's optimizers call, and wrappers around one.
    def _patch_step_function(self):
        """Nothing: a step has its hooks from the optimizer that is asked to make it."""

    def _cuda_graph_capture_health_check(self):
        """Nothing: there are no graphs of another device."""

    _accelerator_graph_capture_health_check = _cuda_graph_capture_health_check

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
        return group_by_device_and_dtype(tensorlistlist, with_indices)

    def state_dict(self):
        """State and options, with parameters numbered in order: {"state": {number: {...}}, "param_groups": [...]}."""
        for hook in hooks_of(self, "state_pre"):
            hook(self)
        numbers = {}
        for param in chain.from_iterable(g["params"] for g in self.param_groups):
            numbers.setdefault(param, len(numbers))
        state = {numbers.get(param, param): value for param, value in self.state.items()}
        groups = [{**g, "params": [numbers[p] for p in g["params"]]} for g in self.param_groups]
        found = {"state": state, "param_groups": groups}
        for hook in hooks_of(self, "state_post"):
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def load_state_dict(self, state_dict):
        """Take over the result of `state_dict`. State tensors are copied and get their parameter's floating dtype."""
        for hook in hooks_of(self, "load_pre"):
            changed = hook(self, dict(state_dict))
            state_dict = state_dict if changed is None else changed
        saved = _copied(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        params = list(chain.from_iterable(g["params"] for g in self.param_groups))
        by_number = dict(zip(chain.from_iterable(g["params"] for g in saved), params))
        state = defaultdict(dict)
        for number, values in state_dict["state"].items():
            param = by_number[number]
            state[param] = {key: _own_copy(value, param) for key, value in values.items()}
        groups = [{**b, "params": a["params"]} for a, b in zip(self.param_groups, saved)]
        # All of it or nothing, whatever is wrong with the dict or comes in between.
        self.state, self.param_groups = state, groups
        for hook in hooks_of(self, "load_post"):
            hook(self)

    def __repr__(self):
        text = type(self).__name__ + " ("
        for k, group in enumerate(self.param_groups):
            text += f"\nParameter Group {k}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params")
        return text + ")"


def with_gradients(group):
    """(parameter, gradient) for the group's parameters that have one."""
    return [(param, grad) for param in group["params"] if (grad := param._grad) is not None]


def start_state(state, param, names):
    """No steps so far, and zeros of the parameter's shape under every name: all at once, since an exception may come at
    any time (from a signal handler), and what is there is taken for whole."""
    made = {"step": 0, **{name: at_once(zeros_like, param) for name in names}}
    remember(state)
    state.update(made)


def at_once(make, *args, **kwargs):
    """make(*args, **kwargs), outside of a compiled call in flight: what an optimizer starts from comes in as it will in
    all later calls, so the program of the first one serves them too."""
    with modes.frame_hidden():
        return make(*args, **kwargs)


def full_of(param, number):
    """A tensor like a parameter with the number everywhere; of a complex one, real and imaginary part have it each."""
    return full_like(param, complex(number, number) if param.dtype.is_complex else number)


def count_step(state):
    """Add one to the step count in a parameter's state; returns the new count."""
    remember(state)
    # A count loaded from a file may be a tensor with one element, as PyTorch keeps it.
    step = state["step"] = int(state["step"]) + 1
    return step


# --- for rules --------------------------------------------------------------------------------------------------------
# State keeps its type when parameters get another one (model.double() after some steps): it is then read and written in
# its own, as by PyTorch's in-place ops, which compute in the wider type and round at the end.
def stored(value, state):
    """What a state tensor holds after `value` was written to it, which is what the rest of the rule must read."""
    return value if value.dtype is state.dtype else cast(value, dtype=state.dtype)


def widened(x, other):
    """x in the wider of two types, before it meets a number there."""
    common = dtypes.promote(x.dtype, other.dtype)
    return x if x.dtype is common else cast(x, dtype=common)


# --- what is given ----------------------------------------------------------------------------------------------------
def _ordered(params):
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but "
            "the ordering of tensors in sets will change between runs. Please use a list instead."
        )
    return listed(params)


def _named(params):
    """{"params": tensors}, with "param_names" where (name, tensor) pairs are given."""
    pairs = [p for p in params if isinstance(p, tuple)]
    if not pairs:
        return {"params": params}
    if len(pairs) != len(params):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    return {"params": [tensor for _, tensor in pairs], "param_names": [name for name, _ in pairs]}


def _check_leaf(param):
    if not isinstance(param, Tensor):
        raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(param).__name__}")
    if not param.is_leaf:
        raise ValueError(
            f"can't optimize a non-leaf Tensor: {param.dtype}{tuple(param.shape)} was computed by "
            f"{param.grad_fn.name()}; give the tensors it is computed from, or a copy: tensor.detach().requires_grad_()"
        )


def _copied(groups):
    """The groups of a state, with options of their own. Of options that nobody can change a copy of the dict is one."""
    if all(g.__class__ is dict and _are_unchanging(g["params"]) and _is_unchanging(g) for g in groups):
        return [dict(g) for g in groups]
    return copy.deepcopy(groups)


def _is_unchanging(group):
    tuples = [option for option in group.values() if option.__class__ is tuple]
    others = {type(option) for name, option in group.items() if name != "params"} - {tuple}
    return others <= _UNCHANGING and all(map(_are_unchanging, tuples))


def _are_unchanging(values):
    return {*map(type, values)} <= _UNCHANGING


def _own_copy(value, param):
    """A copy of a value in a state; arrays of NumPy's and tensors of other libraries become weft's."""
    if value.__class__ in _UNCHANGING:
        return value
    value = tensor_of_others(value)
    if isinstance(value, list):
        return [_own_copy(x, param) for x in value]
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    if _is_converted(value, param):
        value = value.to(param.dtype)
    value = value.detach().clone()
    return beside(value, param) if value.shape == param.shape else value


def _is_converted(value, param):
    """Whether a state gets its parameter's type: both are of floats, and there is one for each of the parameter's."""
    mine, wanted = value.dtype, param.dtype
    return mine is not wanted and mine.is_floating_point and wanted.is_floating_point and value.shape == param.shape


def chosen_by(number, x, y):
    """x where a run-time number is 1, y where it is 0: what a rule does may be another thing after some steps, and the
    rule stays one. Rules combine numbers with tensors only, so it is compared with one, whatever that holds."""
    is_missing = cast(ne(x, x), dtype=x.dtype)  # 0 or 1
    return where(lt(mul(is_missing, 0.5), number), x, y)


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()  # PyTorch's mark for an option without a default, which optimizers of users' have


def implementation(**options):
    """The options by which PyTorch chooses among its implementations. They are kept in the groups, and change nothing:
    a compiled step is fused for all parameters. RuntimeError for what there is not."""
    if options.get("fused") and options["foreach"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if options["differentiable"]:
        raise NotImplementedError(
            "differentiable=True: a step is not recorded for backward; write the update with tensors instead"
        )
    return options


def require_rate(lr):
    """Options that come from a text file may be texts: YAML takes 1e-3 for one."""
    try:
        is_rate = lr >= 0
    except TypeError:
        raise TypeError(f"learning rate: it must be a number, got {type(lr).__name__} {lr!r}") from None
    require(is_rate, f"Invalid learning rate: {lr}")


def require(condition, message):
    """ValueError(message) unless the condition holds; NaN holds no condition."""
    if not condition:
        raise ValueError(message)
