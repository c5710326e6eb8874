"""`weft.func` of modules: their parameters as arguments, and those of many models as one tensor each."""

from .nn.module import Module
from .shaping import stack

_ABSENT = object()


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """module(*args, **kwargs) with other tensors in the place of its parameters and buffers.

    parameter_and_buffer_dicts: {path: tensor}, or several of them. A tensor for one of two tied parameters stands for
    both, unless tie_weights is False. strict: RuntimeError unless all are given, and no others.
    """
    dicts = parameter_and_buffer_dicts
    values = _merged([dicts] if isinstance(dicts, dict) else list(dicts))
    members = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    if strict:
        _check_all(module, values, members)
    if tie_weights:
        values = _tied(values, members)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    places, before = [_place(module, path) for path in values], []
    try:
        for (owner, table, name), value in zip(places, values.values()):
            before.append((owner, table, name, table.get(name, _ABSENT)))
            table[name] = vars(owner)[name] = value
        return module(*args, **(kwargs or {}))
    finally:
        for owner, table, name, value in reversed(before):
            if value is _ABSENT:
                del table[name]
            else:
                table[name] = vars(owner)[name] = value


def _merged(dicts):
    keys = [key for one in dicts for key in one]
    repeated = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
    if repeated:
        raise ValueError(f"{repeated} appear in multiple dictionaries; behavior of functional call is ambiguous")
    return {key: value for one in dicts for key, value in one.items()}


def _check_all(module, values, members):
    missing, unexpected = [k for k in members if k not in values], [k for k in values if k not in members]
    if missing or unexpected:
        lines = [
            f"{what} key(s): {', '.join(map(repr, keys))}."
            for what, keys in (("Unexpected", unexpected), ("Missing", missing))
            if keys
        ]
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(lines))


def _tied(values, members):
    """The values, with those of tied parameters that are not given."""
    given = {}
    for path, value in values.items():
        tensor = members.get(path)
        if given.setdefault(tensor, (path, value))[1] is not value and tensor is not None:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted([given[tensor][0], path])}, which are tied. "
                "Consider using tie_weights=False"
            )
    return {**values, **{path: given[x][1] for path, x in members.items() if path not in values and x in given}}


def _place(module, path):
    """(the module that has it, the table it is in, its name there). What is neither a parameter nor a buffer is an
    attribute during the call."""
    prefix, _, name = path.rpartition(".")
    owner = module.get_submodule(prefix)
    for table in (owner._parameters, owner._buffers):
        if name in table:
            return owner, table, name
    return owner, vars(owner), name


def stack_module_state(models):
    """({path: parameters of all models, stacked}, {path: buffers}): for `vmap` over models of one class."""
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    return _stacked(m.named_parameters() for m in models), _stacked(m.named_buffers() for m in models)


def _stacked(members):
    rows = [dict(named) for named in members]
    return {path: _stack_of([row[path] for row in rows]) for path in rows[0]}


def _stack_of(tensors):
    made = stack([x.detach() for x in tensors])
    return made.requires_grad_(tensors[0].requires_grad)


def replace_all_batch_norm_modules_(root):
    """Let all batch normalisations below a module go without running statistics, which `vmap` could not change."""
    for module in root.modules():
        if isinstance(module, Module) and getattr(module, "track_running_stats", None) is not None:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
