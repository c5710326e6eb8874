"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from typing_extensions import Self

from .. import Tensor as Tensor
from . import adadelta as adadelta
from . import adagrad as adagrad
from . import adam as adam
from . import adamax as adamax
from . import asgd as asgd
from . import lbfgs as lbfgs
from . import lr_scheduler as lr_scheduler
from . import nadam as nadam
from . import optimizer as optimizer
from . import radam as radam
from . import rmsprop as rmsprop
from . import rprop as rprop
from . import sgd as sgd
from . import swa_utils as swa_utils

class Optimizer:
    def __init__(self, params: Any, defaults: Any) -> None: ...
    def __getattr__(self, name: builtins.str) -> Any: ...
    def add_param_group(self, param_group: Any) -> None: ...
    def load_state_dict(self, state_dict: Any) -> None: ...
    def register_load_state_dict_post_hook(self, hook: Any, prepend: builtins.bool = ...) -> Any: ...
    def register_load_state_dict_pre_hook(self, hook: Any, prepend: builtins.bool = ...) -> Any: ...
    def register_state_dict_post_hook(self, hook: Any, prepend: builtins.bool = ...) -> Any: ...
    def register_state_dict_pre_hook(self, hook: Any, prepend: builtins.bool = ...) -> Any: ...
    def register_step_post_hook(self, hook: Any) -> Any: ...
    def register_step_pre_hook(self, hook: Any) -> Any: ...
    def state_dict(self) -> builtins.dict[builtins.str, Any]: ...
    def step(self, closure: Any = ...) -> Any: ...
    def update_group(self, group: Any) -> Any: ...
    def zero_grad(self, set_to_none: builtins.bool = ...) -> None: ...

class ASGD(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        lambd: Any = ...,
        alpha: Any = ...,
        t0: Any = ...,
        weight_decay: Any = ...,
        foreach: Any = ...,
        maximize: builtins.bool = ...,
        differentiable: builtins.bool = ...,
        capturable: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class Adadelta(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        rho: Any = ...,
        eps: Any = ...,
        weight_decay: Any = ...,
        foreach: Any = ...,
        *,
        capturable: builtins.bool = ...,
        maximize: builtins.bool = ...,
        differentiable: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class Adafactor(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        beta2_decay: Any = ...,
        eps: Any = ...,
        d: Any = ...,
        weight_decay: Any = ...,
        *,
        foreach: Any = ...,
        maximize: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class Adagrad(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        lr_decay: Any = ...,
        weight_decay: Any = ...,
        initial_accumulator_value: Any = ...,
        eps: Any = ...,
        foreach: Any = ...,
        *,
        maximize: builtins.bool = ...,
        differentiable: builtins.bool = ...,
        fused: Any = ...,
    ) -> None: ...
    def add_param_group(self, param_group: Any) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class Adam(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        betas: Any = ...,
        eps: Any = ...,
        weight_decay: Any = ...,
        amsgrad: builtins.bool = ...,
        *,
        foreach: Any = ...,
        maximize: builtins.bool = ...,
        capturable: builtins.bool = ...,
        differentiable: builtins.bool = ...,
        fused: Any = ...,
        decoupled_weight_decay: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class Adamax(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        betas: Any = ...,
        eps: Any = ...,
        weight_decay: Any = ...,
        foreach: Any = ...,
        *,
        maximize: builtins.bool = ...,
        differentiable: builtins.bool = ...,
        capturable: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class LBFGS(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        max_iter: Any = ...,
        max_eval: Any = ...,
        tolerance_grad: Any = ...,
        tolerance_change: Any = ...,
        history_size: Any = ...,
        line_search_fn: Any = ...,
    ) -> None: ...
    def step(self, closure: Any) -> Any: ...  # type: ignore[override]

class Muon(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        weight_decay: Any = ...,
        momentum: Any = ...,
        nesterov: builtins.bool = ...,
        ns_coefficients: Any = ...,
        eps: Any = ...,
        ns_steps: Any = ...,
        adjust_lr_fn: Any = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class NAdam(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        betas: Any = ...,
        eps: Any = ...,
        weight_decay: Any = ...,
        momentum_decay: Any = ...,
        decoupled_weight_decay: builtins.bool = ...,
        *,
        foreach: Any = ...,
        maximize: builtins.bool = ...,
        capturable: builtins.bool = ...,
        differentiable: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class RAdam(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        betas: Any = ...,
        eps: Any = ...,
        weight_decay: Any = ...,
        decoupled_weight_decay: builtins.bool = ...,
        *,
        foreach: Any = ...,
        maximize: builtins.bool = ...,
        capturable: builtins.bool = ...,
        differentiable: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class RMSprop(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        alpha: Any = ...,
        eps: Any = ...,
        weight_decay: Any = ...,
        momentum: Any = ...,
        centered: builtins.bool = ...,
        capturable: builtins.bool = ...,
        foreach: Any = ...,
        maximize: builtins.bool = ...,
        differentiable: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class Rprop(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        etas: Any = ...,
        step_sizes: Any = ...,
        *,
        capturable: builtins.bool = ...,
        foreach: Any = ...,
        maximize: builtins.bool = ...,
        differentiable: builtins.bool = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class SGD(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        momentum: Any = ...,
        dampening: Any = ...,
        weight_decay: Any = ...,
        nesterov: builtins.bool = ...,
        *,
        maximize: builtins.bool = ...,
        foreach: Any = ...,
        differentiable: builtins.bool = ...,
        fused: Any = ...,
    ) -> None: ...
    def update_group(self, group: Any) -> Any: ...

class AdamW(Adam):
    def __init__(
        self,
        params: Any,
        lr: Any = ...,
        betas: Any = ...,
        eps: Any = ...,
        weight_decay: Any = ...,
        amsgrad: builtins.bool = ...,
        *,
        maximize: builtins.bool = ...,
        foreach: Any = ...,
        capturable: builtins.bool = ...,
        differentiable: builtins.bool = ...,
        fused: Any = ...,
    ) -> None: ...
