"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from typing_extensions import Self

from .. import Tensor as Tensor

class LRScheduler:
    def __init__(self, optimizer: Any, last_epoch: Any = ...) -> None: ...
    def __getattr__(self, name: builtins.str) -> Any: ...
    def get_last_lr(self) -> builtins.list[builtins.float]: ...
    def get_lr(self) -> Any: ...
    def load_state_dict(self, state_dict: Any) -> Any: ...
    def state_dict(self) -> builtins.dict[builtins.str, Any]: ...
    def step(self, epoch: Any = ...) -> None: ...

class ConstantLR(LRScheduler):
    def __init__(self, optimizer: Any, factor: Any = ..., total_iters: Any = ..., last_epoch: Any = ...) -> None: ...
    def get_lr(self) -> Any: ...

class CosineAnnealingLR(LRScheduler):
    def __init__(self, optimizer: Any, T_max: Any, eta_min: Any = ..., last_epoch: Any = ...) -> None: ...
    def get_lr(self) -> Any: ...

class CosineAnnealingWarmRestarts(LRScheduler):
    def __init__(
        self, optimizer: Any, T_0: Any, T_mult: Any = ..., eta_min: Any = ..., last_epoch: Any = ...
    ) -> None: ...
    def get_lr(self) -> Any: ...
    def step(self, epoch: Any = ...) -> None: ...

class ExponentialLR(LRScheduler):
    def __init__(self, optimizer: Any, gamma: Any, last_epoch: Any = ...) -> None: ...
    def get_lr(self) -> Any: ...

class LambdaLR(LRScheduler):
    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: Any = ...) -> None: ...
    def get_lr(self) -> Any: ...

class LinearLR(LRScheduler):
    def __init__(
        self,
        optimizer: Any,
        start_factor: Any = ...,
        end_factor: Any = ...,
        total_iters: Any = ...,
        last_epoch: Any = ...,
    ) -> None: ...
    def get_lr(self) -> Any: ...

class MultiStepLR(LRScheduler):
    def __init__(self, optimizer: Any, milestones: Any, gamma: Any = ..., last_epoch: Any = ...) -> None: ...
    def get_lr(self) -> Any: ...

class PolynomialLR(LRScheduler):
    def __init__(self, optimizer: Any, total_iters: Any = ..., power: Any = ..., last_epoch: Any = ...) -> None: ...
    def get_lr(self) -> Any: ...

class ReduceLROnPlateau(LRScheduler):
    def __init__(
        self,
        optimizer: Any,
        mode: builtins.str = ...,
        factor: Any = ...,
        patience: Any = ...,
        threshold: Any = ...,
        threshold_mode: builtins.str = ...,
        cooldown: Any = ...,
        min_lr: Any = ...,
        eps: Any = ...,
    ) -> None: ...
    @property
    def in_cooldown(self) -> Any: ...
    def step(self, metrics: Any, epoch: Any = ...) -> None: ...  # type: ignore[override]

class StepLR(LRScheduler):
    def __init__(self, optimizer: Any, step_size: Any, gamma: Any = ..., last_epoch: Any = ...) -> None: ...
    def get_lr(self) -> Any: ...

class ChainedScheduler(LRScheduler):
    def __init__(self, schedulers: Any, optimizer: Any = ...) -> None: ...
    def step(self) -> None: ...  # type: ignore[override]

class CyclicLR(LRScheduler):
    def __init__(
        self,
        optimizer: Any,
        base_lr: Any,
        max_lr: Any,
        step_size_up: Any = ...,
        step_size_down: Any = ...,
        mode: builtins.str = ...,
        gamma: Any = ...,
        scale_fn: Any = ...,
        scale_mode: builtins.str = ...,
        cycle_momentum: builtins.bool = ...,
        base_momentum: Any = ...,
        max_momentum: Any = ...,
        last_epoch: Any = ...,
    ) -> None: ...
    def get_lr(self) -> Any: ...
    def scale_fn(self, x: Any) -> Any: ...

class MultiplicativeLR(LambdaLR):
    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: Any = ...) -> None: ...
    def get_lr(self) -> Any: ...

class OneCycleLR(LRScheduler):
    def __init__(
        self,
        optimizer: Any,
        max_lr: Any,
        total_steps: Any = ...,
        epochs: Any = ...,
        steps_per_epoch: Any = ...,
        pct_start: Any = ...,
        anneal_strategy: builtins.str = ...,
        cycle_momentum: builtins.bool = ...,
        base_momentum: Any = ...,
        max_momentum: Any = ...,
        div_factor: Any = ...,
        final_div_factor: Any = ...,
        three_phase: builtins.bool = ...,
        last_epoch: Any = ...,
    ) -> None: ...
    def get_lr(self) -> Any: ...

class SequentialLR(LRScheduler):
    def __init__(self, optimizer: Any, schedulers: Any, milestones: Any, last_epoch: Any = ...) -> None: ...
    def step(self) -> None: ...  # type: ignore[override]
