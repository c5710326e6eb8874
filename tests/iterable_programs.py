"""Calls of everything that takes an iterable, written for `T`, which is weft or torch. Not a test.

`walk` makes of a list what is handed over: a list, a tuple, a generator, ... A program returns nested lists of what it
saw; it must see the same whatever `walk` makes. Programs in COMPILED only compute and may run in a compiled call.
"""

import collections
import operator
import warnings

import numpy as np

WALKS = {
    "list": list,
    "tuple": tuple,
    "generator": lambda items: (x for x in items),
    "iterator": lambda items: iter(list(items)),
    "map": lambda items: map(operator.itemgetter(0), [(x,) for x in items]),
    "values of a dict": lambda items: dict(enumerate(items)).values(),
    "deque": collections.deque,
    "array of objects": lambda items: as_objects(list(items)),
}

PROGRAMS, COMPILED = {}, {}


def as_objects(items):
    array = np.empty(len(items), dtype=object)
    for k, x in enumerate(items):
        array[k] = x
    return array


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def compiled(function):
    COMPILED[function.__name__] = function
    return program(function)


def plain(x):
    """What a program returned, as nested lists of Python's numbers and words."""
    if hasattr(x, "tolist"):
        return [str(x.dtype).partition(".")[2], list(x.shape), x.detach().tolist()]
    if isinstance(x, (list, tuple)):
        return [type(x).__name__, *map(plain, x)]
    return x


def outcome(function, *args):
    """What a call returned, or the error it raised; and the warnings it gave."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            result = plain(function(*args))
        except Exception as error:
            result = ["raised", *(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")]
    return result, [str(w.message) for w in given]


def layer(T):
    """A layer with gradients; its weights are the same in both libraries."""
    made = T.nn.Linear(2, 3)
    with T.no_grad():
        made.weight.copy_(T.arange(6.0).reshape(3, 2) / 6)
        made.bias.copy_(T.tensor([0.1, 0.2, 0.3]))
    (made(T.ones(4, 2)) ** 2).sum().backward()
    return made


def gradients(made):
    return [p.grad for p in made.parameters()]


# --- gradient clipping ------------------------------------------------------------------------------------------------
@compiled
def clip_grad_norm(T, walk):
    made = layer(T)
    return [T.nn.utils.clip_grad_norm_(walk(made.parameters()), 1.0), *gradients(made)]


@compiled
def clip_grad_norm_of_other_orders(T, walk):
    seen = []
    for order in ("inf", -float("inf"), 0, 0.5, 1, 3.0):
        made = layer(T)
        seen += [T.nn.utils.clip_grad_norm_(walk(made.parameters()), 1.0, norm_type=order), *gradients(made)]
    return seen


@compiled
def clip_grad_norm_of_some_without_gradients(T, walk):
    made = layer(T)
    made.bias.grad = None
    return [T.nn.utils.clip_grad_norm_(walk(made.parameters()), 1.0, foreach=False), made.weight.grad]


@program
def clip_grad_norm_that_is_not_finite(T, walk):
    made = layer(T)
    made.bias.grad = T.tensor([1.0, float("nan"), 2.0])
    return T.nn.utils.clip_grad_norm_(walk(made.parameters()), 1.0, error_if_nonfinite=True)


@compiled
def clip_grad_value(T, walk):
    made = layer(T)
    return [T.nn.utils.clip_grad_value_(walk(made.parameters()), 3.0), *gradients(made)]


@compiled
def norm_and_clipping_apart(T, walk):
    made = layer(T)
    total = T.nn.utils.get_total_norm(walk(gradients(made)))
    return [total, T.nn.utils.clip_grads_with_norm_(walk(made.parameters()), 1.0, total), *gradients(made)]


@compiled
def total_norm_of_parameters(T, walk):
    total = T.nn.utils.get_total_norm(walk(layer(T).parameters()))
    return [total, total.requires_grad]


@compiled
def total_norm_of_two_types(T, walk):
    return T.nn.utils.get_total_norm(walk([T.ones(3), T.ones(2, dtype=T.float64) * 2]))


@program
def clipping_nothing(T, walk):
    return [T.nn.utils.clip_grad_norm_(walk([]), 1.0), T.nn.utils.get_total_norm(walk([]))]


@program
def clipping_with_a_spent_generator(T, walk):
    made = layer(T)
    params = walk(made.parameters())
    first = T.nn.utils.clip_grad_norm_(params, 5.0)
    is_spent = hasattr(params, "__next__")
    second = T.nn.utils.clip_grad_norm_(params, 1.0)
    return [first, (second == 0).item() if is_spent else True]


# --- one vector -------------------------------------------------------------------------------------------------------
@compiled
def parameters_as_a_vector(T, walk):
    made = layer(T)
    vector = T.nn.utils.parameters_to_vector(walk(made.parameters()))
    T.nn.utils.vector_to_parameters(vector.detach() * 2, walk(made.parameters()))
    return [vector, *made.parameters()]


@program
def a_vector_of_nothing(T, walk):
    return T.nn.utils.parameters_to_vector(walk([]))


# --- optimizers -------------------------------------------------------------------------------------------------------
def stepped(optimizer, made):
    optimizer.step()
    return [*made.parameters(), [len(group["params"]) for group in optimizer.param_groups]]


@program
def every_optimizer(T, walk):
    seen = []
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"):
        made = layer(T)
        seen += stepped(getattr(T.optim, name)(walk(made.parameters()), lr=0.1), made)
    return seen


@program
def optimizer_of_named_parameters(T, walk):
    made = layer(T)
    optimizer = T.optim.SGD(walk(made.named_parameters()), lr=0.1)
    return [stepped(optimizer, made), optimizer.param_groups[0]["param_names"]]


@program
def optimizer_of_groups(T, walk):
    made = layer(T)
    groups = walk([{"params": walk([made.weight])}, {"params": walk([made.bias]), "lr": 0.5}])
    return stepped(T.optim.SGD(groups, lr=0.1), made)


@program
def optimizer_of_groups_of_names(T, walk):
    made = layer(T)
    groups = [{"params": walk([("w", made.weight)])}, {"params": walk([("b", made.bias)]), "lr": 0.5}]
    optimizer = T.optim.SGD(walk(groups), lr=0.1)
    return [stepped(optimizer, made), [group["param_names"] for group in optimizer.param_groups]]


@program
def groups_are_the_dicts_that_were_given(T, walk):
    made = layer(T)
    groups = [{"params": walk(made.parameters())}]
    first = T.optim.SGD(groups, lr=0.1)
    groups[0]["lr"] = 0.5
    second = T.optim.SGD(groups, lr=9.0)
    return [stepped(first, made), stepped(second, made), first.param_groups[0] is groups[0]]


@program
def groups_added_later(T, walk):
    made, other = layer(T), layer(T)
    optimizer = T.optim.SGD(walk([made.weight]), lr=0.1)
    optimizer.add_param_group({"params": walk([made.bias]), "lr": 0.5})
    optimizer.add_param_group({"params": other.bias})
    return [stepped(optimizer, made), *other.parameters()]


@program
def optimizer_of_nothing(T, walk):
    return T.optim.SGD(walk([]), lr=0.1)


@program
def optimizer_with_an_empty_group(T, walk):
    made = layer(T)
    return stepped(T.optim.SGD([{"params": walk([])}, {"params": walk(made.parameters())}], lr=0.1), made)


@program
def optimizer_of_something_else(T, walk):
    return T.optim.SGD(walk([layer(T)]), lr=0.1)


@program
def groups_with_and_without_names(T, walk):
    made = layer(T)
    optimizer = T.optim.SGD(walk([made.weight]), lr=0.1)
    optimizer.add_param_group({"params": walk([("bias", made.bias)])})


@program
def pairs_among_tensors(T, walk):
    made = layer(T)
    return T.optim.SGD(walk([made.weight, ("bias", made.bias)]), lr=0.1)


@program
def a_parameter_in_two_groups(T, walk):
    made = layer(T)
    return T.optim.SGD([{"params": walk(made.parameters())}, {"params": walk([made.bias])}], lr=0.1)


@program
def milestones_of_a_schedule(T, walk):
    optimizer = T.optim.SGD(layer(T).parameters(), lr=1.0)
    schedule = T.optim.lr_scheduler.MultiStepLR(optimizer, walk([1, 3, 3]))
    seen = []
    for _ in range(5):
        optimizer.step()
        schedule.step()
        seen.append(round(schedule.get_last_lr()[0], 9))
    return seen


# --- autograd ---------------------------------------------------------------------------------------------------------
def leaves(T):
    return T.tensor([1.0, 2.0], requires_grad=True), T.tensor([3.0, 4.0], requires_grad=True)


@compiled
def grad_of_several_outputs(T, walk):
    x, y = leaves(T)
    return T.autograd.grad(walk([(x * y).sum(), (x * 3).sum()]), walk([x, y]))


@compiled
def grad_with_cotangents(T, walk):
    x, y = leaves(T)
    given = [T.tensor([1.0, 2.0]), T.tensor([0.5, 0.0])]
    return T.autograd.grad(walk([x * y, x * 3]), walk([x, y]), walk(given))


@compiled
def grad_with_a_cotangent_left_out(T, walk):
    x, _ = leaves(T)
    return T.autograd.grad(walk([x.sum(), x * 3]), x, walk([None, T.tensor([1.0, 2.0])]))


@compiled
def grad_of_what_is_not_used(T, walk):
    x, y = leaves(T)
    unused = T.autograd.grad(walk([x.sum()]), walk([x, y]), allow_unused=True)
    return [unused, T.autograd.grad(walk([x.sum()]), walk([x, y]), materialize_grads=True)]


@compiled
def second_grad(T, walk):
    x, y = leaves(T)
    first = T.autograd.grad(walk([(x**3 * y).sum()]), walk([x, y]), create_graph=True)
    return T.autograd.grad(walk([g.sum() for g in first]), walk([x, y]))


@compiled
def backward_of_several_tensors(T, walk):
    x, y = leaves(T)
    T.autograd.backward(walk([(x * y).sum(), x * 3]), walk([None, T.tensor([1.0, 2.0])]))
    return [x.grad, y.grad]


@compiled
def backward_to_some_inputs(T, walk):
    x, y = leaves(T)
    T.autograd.backward(walk([(x * y).sum()]), inputs=walk([x]))
    (x * y).sum().backward(inputs=walk([x]))
    return [x.grad, y.grad]


@program
def grad_of_nothing(T, walk):
    x, _ = leaves(T)
    return T.autograd.grad(walk([]), walk([x]), allow_unused=True)


@program
def grad_with_respect_to_nothing(T, walk):
    x, _ = leaves(T)
    return T.autograd.grad(walk([x.sum()]), walk([]))


@program
def grad_with_no_cotangents(T, walk):
    x, _ = leaves(T)
    return T.autograd.grad(walk([x.sum()]), walk([x]), walk([]))


@program
def grad_with_too_few_cotangents(T, walk):
    x, _ = leaves(T)
    return T.autograd.grad(walk([x.sum(), x.prod()]), walk([x]), walk([T.ones(())]))


@program
def backward_of_nothing(T, walk):
    return T.autograd.backward(walk([]))


@program
def backward_to_no_inputs(T, walk):
    x, _ = leaves(T)
    return x.sum().backward(inputs=walk([]))
