"""ZeroRedundancyOptimizer: every process keeps the optimizer's state of its share of the parameters, and updates those.

    rank 0    step of a, c    broadcast a, c ->   <- broadcast b, d
    rank 1    step of b, d                    ...

So the moments of Adam take 1 / p of the memory with p processes (Rajbhandari, Rasley, Ruwase, He, "ZeRO", SC 2020,
stage 1). The parameters have the bits that the plain optimizer gives, which updates every element by itself.
"""

import copy
from itertools import chain

from ..optim.optimizer import Optimizer
from ..runtime.state.modes import enable_grad, no_grad
from ..shaping import cat
from . import started
from .collectives import write
from .objects import gather_object

__all__ = ["ZeroRedundancyOptimizer"]
_NAME = "ZeroRedundancyOptimizer"


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer_class whose state is divided among all processes. `defaults` are its options.

    state_dict() is that of the plain optimizer, on the rank to which consolidate_state_dict has brought it, and
    load_state_dict takes such a one, from any number of processes.
    """

    def __init__(
        self,
        params,
        optimizer_class,
        process_group=None,
        parameters_as_bucket_view=False,
        overlap_with_ddp=False,
        **defaults,
    ):
        if overlap_with_ddp:
            raise NotImplementedError(
                f"{_NAME}: overlap_with_ddp=True is not there: it updates in a hook of DistributedDataParallel, skips "
                "the first updates and makes step() do nothing; leave it out, and call step() after backward()"
            )
        self.process_group = started.member(process_group)
        if self.process_group is None:
            raise ValueError(f"{_NAME}: this process is not in the process_group; make it on its ranks only")
        self.optim, self._owners, self._loads, self._whole = None, {}, [0] * self.process_group.n_ranks, None
        super().__init__(params, defaults)
        self.optim = optimizer_class([self._own(group) for group in self.param_groups], **defaults)
        for group, own in zip(self.param_groups, self.optim.param_groups):
            group.update({name: value for name, value in own.items() if name not in ("params", "param_names")})

    def add_param_group(self, param_group):
        """Optimize more parameters. All processes call it."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        # The largest first, each to whoever has least.
        for param in sorted(group["params"], key=lambda p: -p.numel()):
            owner = self._loads.index(min(self._loads))
            self._owners[param] = owner
            self._loads[owner] += param.numel()
        if self.optim is not None:
            self.optim.add_param_group(self._own(group))

    def _own(self, group):
        """A group with this process's parameters only."""
        mine = [p for p in group["params"] if self._owners[p] == self.process_group.place]
        return {**{name: value for name, value in group.items() if name != "param_names"}, "params": mine}

    def step(self, closure=None, **options):
        """Update this process's parameters, and get the others from those that have updated them."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group, own in zip(self.param_groups, self.optim.param_groups):
            own.update({name: group[name] for name in own if name in group and name not in ("params", "param_names")})
        self.optim.step(**options)
        self._share()
        return loss

    def _share(self):
        parts = {}
        for param in chain.from_iterable(group["params"] for group in self.param_groups):
            parts.setdefault((self._owners[param], param.dtype.name), []).append(param)
        works = [started.broadcast(_joined(part), owner, self.process_group) for (owner, _), part in parts.items()]
        for ((owner, _), part), work in zip(parts.items(), works):
            values = self.process_group.wait(work)
            if owner != self.process_group.place:
                _divide(values, part)

    # --- state --------------------------------------------------------------------------------------------------------
    def consolidate_state_dict(self, to=0):
        """Bring the state of all processes to rank `to`. All processes call it."""
        group = self.process_group
        numbers = self._numbers()
        found = [None] * group.n_ranks if group.place == group.rank_of(to, "to") else None
        mine = {numbers[param]: values for param, values in self.optim.state.items()}
        gather_object(mine, found, to, group)
        self._whole = None if found is None else {n: values for part in found for n, values in part.items()}

    def state_dict(self):
        """The state of all parameters, which consolidate_state_dict has brought here, as the plain optimizer has it."""
        if self._whole is None:
            rank = self.process_group.ranks[self.process_group.place]
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={rank})` on all ranks beforehand if you meant to save the global state."
            )
        numbers = self._numbers()
        groups = [{**group, "params": [numbers[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": dict(sorted(self._whole.items())), "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Take over this process's share of a state dict."""
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        numbers = [n for group in state_dict["param_groups"] for n in group["params"]]
        by_number = dict(zip(numbers, chain.from_iterable(group["params"] for group in self.param_groups)))
        own = self.optim.state_dict()
        places = {param: k for k, param in enumerate(chain(*[g["params"] for g in self.optim.param_groups]))}
        own["state"] = {
            places[by_number[n]]: copy.copy(values)
            for n, values in state_dict["state"].items()
            if by_number[n] in places
        }
        self.optim.load_state_dict(own)
        self._whole = None

    def _numbers(self):
        """{parameter: its number among all}."""
        return {p: n for n, p in enumerate(chain.from_iterable(group["params"] for group in self.param_groups))}


@no_grad()
def _joined(params):
    return cat([param.reshape(-1) for param in params])


def _divide(values, params):
    start = 0
    for param in params:
        write(param, values[start : start + param.numel()])
        start += param.numel()
