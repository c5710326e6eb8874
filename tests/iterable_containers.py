"""Containers and datasets that take an iterable, as iterable_programs.py writes them down. Not a test.

SEQUENCES are calls for which PyTorch insists on lists or tuples.
"""

import collections

import numpy as np
from iterable_programs import layer, program


# --- modules ----------------------------------------------------------------------------------------------------------
def made_of(container):
    return [[name for name, _ in container.named_children()], [list(p.shape) for p in container.parameters()]]


@program
def lists_of_modules(T, walk):
    made = T.nn.ModuleList(walk([T.nn.Linear(1, 2), T.nn.ReLU()]))
    same = made.extend(walk([T.nn.Linear(2, 3)])) is made
    made += walk([T.nn.Linear(3, 4)])
    return [made_of(made), same, made_of(made + walk([T.nn.Linear(4, 5)])), len(T.nn.ModuleList(None))]


@program
def dicts_of_modules(T, walk):
    made = T.nn.ModuleDict(walk([("a", T.nn.Linear(1, 2)), ("b", T.nn.ReLU())]))
    made.update(walk([["c", T.nn.Linear(2, 3)], ("b", T.nn.Linear(3, 4))]))
    return [made_of(made), len(T.nn.ModuleDict(None))]


@program
def sequences_of_modules(T, walk):
    made = T.nn.Sequential(*walk([T.nn.Linear(1, 2), T.nn.ReLU()]))
    made.extend(walk([T.nn.Linear(2, 3)]))
    named = T.nn.Sequential(collections.OrderedDict(walk([("first", T.nn.Linear(1, 2)), ("second", T.nn.ReLU())])))
    return [made_of(made), made_of(named)]


@program
def shapes_of_layer_norm(T, walk):
    norm = T.nn.LayerNorm(walk([2, 3]))
    x = T.arange(12.0).reshape(2, 2, 3)
    return [norm(x).round(), norm(x).round()]


@program
def states_of_modules(T, walk):
    made, other = layer(T), T.nn.Linear(2, 3)
    other.load_state_dict(dict(walk(made.named_parameters())))
    last = T.nn.Linear(2, 3)
    last.load_state_dict(collections.OrderedDict(walk(made.state_dict().items())))
    return [*other.parameters(), *last.parameters()]


@program
def a_state_that_is_no_dict(T, walk):
    return layer(T).load_state_dict(walk(layer(T).state_dict().items()))


# --- data -------------------------------------------------------------------------------------------------------------
class Tens:
    """A dataset without tensors: sample k is 10 k."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index * 10


def both_kinds(T):
    """A dataset whose batches are collated, and one whose batches are read from tensors."""
    return [Tens(), T.utils.data.TensorDataset(T.arange(10) * 10, T.arange(10.0))]


def loaded(T, **options):
    return [list(T.utils.data.DataLoader(dataset, **options)) for dataset in both_kinds(T)]


def made_anew(T, make):
    """Batches of both datasets, each with options of its own: an iterator serves one loader."""
    return [list(T.utils.data.DataLoader(dataset, **make())) for dataset in both_kinds(T)]


@program
def a_sampler(T, walk):
    return [
        made_anew(T, lambda: {"sampler": walk([3, 1, 2]), "batch_size": 2}),
        made_anew(T, lambda: {"sampler": walk([3, 1, 2]), "batch_size": 2, "drop_last": True}),
        made_anew(T, lambda: {"sampler": walk([3, 1, 2]), "batch_size": None}),
        made_anew(T, lambda: {"sampler": walk([]), "batch_size": 2}),
    ]


@program
def a_sampler_of_other_numbers(T, walk):
    return [
        made_anew(T, lambda: {"sampler": walk([np.int64(3), np.int32(1)]), "batch_size": 2}),
        [list(T.utils.data.DataLoader(both_kinds(T)[1], sampler=walk(T.tensor([4, 0, 9])), batch_size=2))],
        made_anew(T, lambda: {"sampler": walk(range(7, 2, -1)), "batch_size": 3}),
    ]


@program
def a_batch_sampler(T, walk):
    return [
        made_anew(T, lambda: {"batch_sampler": walk([[3, 1], [2]])}),
        made_anew(T, lambda: {"batch_sampler": walk([(3, 1), np.array([2, 5]), range(2)])}),
        made_anew(T, lambda: {"batch_sampler": [walk([3, 1]), walk([2])]}),
        made_anew(T, lambda: {"batch_sampler": T.utils.data.BatchSampler(walk([5, 6, 7]), 2, False)}),
        made_anew(T, lambda: {"batch_sampler": T.utils.data.BatchSampler(walk([5, 6, 7]), 2, True)}),
    ]


@program
def datasets_one_after_the_other(T, walk):
    joined = T.utils.data.ConcatDataset(walk(both_kinds(T)[:1] * 2))
    return [len(joined), joined[11], joined[-1]]


@program
def no_datasets(T, walk):
    return T.utils.data.ConcatDataset(walk([]))


@program
def tensors_of_a_dataset(T, walk):
    return T.utils.data.TensorDataset(*walk([T.arange(3), T.zeros(3)]))[1]


# --- where PyTorch insists on lists or tuples -------------------------------------------------------------------------
SEQUENCES = {}


def of_sequences(function):
    SEQUENCES[function.__name__] = function
    return function


@of_sequences
def joined_tensors(T, walk):
    parts = [T.ones(2), T.arange(2.0)]
    return [getattr(T, name)(walk(parts)) for name in ("cat", "concat", "concatenate", "stack", "hstack", "vstack")]


@of_sequences
def parts_of_sizes(T, walk):
    x = T.arange(24.0).reshape(2, 3, 4)
    return [x.split(walk([1, 2]), 1), x.permute(walk([2, 0, 1])), x.flip(walk([0, 2])), x.roll([1, 2], [0, 2])]


@of_sequences
def shapes(T, walk):
    return [T.zeros(walk([2, 3])), T.arange(6).reshape(walk([3, 2])), T.ones(6).unflatten(0, walk([2, 3]))]


@of_sequences
def reduced_dimensions(T, walk):
    x = T.arange(24.0).reshape(2, 3, 4)
    return [x.sum(walk([0, 2])), x.mean(dim=walk([1])), x.amax(walk([0, 1])), x.norm(dim=walk([0, 1]))]


@of_sequences
def grids(T, walk):
    return T.meshgrid(walk([T.arange(2), T.arange(3)]), indexing="ij")


@of_sequences
def split_datasets(T, walk):
    return [[len(part) for part in T.utils.data.random_split(Tens(), walk(sizes))] for sizes in ([3, 7], [0.3, 0.7])]


@of_sequences
def parts_of_datasets(T, walk):
    part = T.utils.data.Subset(both_kinds(T)[1], walk([8, 3]))
    return [len(part), part[1], list(T.utils.data.DataLoader(part, batch_size=2))]


@of_sequences
def unflattened_by_a_module(T, walk):
    module = T.nn.Unflatten(1, walk([2, 3]))
    return [module(T.ones(1, 6)), module(T.zeros(1, 6))]
