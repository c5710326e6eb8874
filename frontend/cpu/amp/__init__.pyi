"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ... import dtype as _DType
from ... import GradScaler as _GradScaler
from ... import autocast as _autocast
from . import autocast_mode as autocast_mode
from ...amp import custom_bwd as custom_bwd
from ...amp import custom_fwd as custom_fwd
from . import grad_scaler as grad_scaler

class GradScaler(_GradScaler):
    def __init__(self, *options: Any, **more: Any) -> None: ...

class autocast(_autocast):
    def __init__(self, enabled: builtins.bool = ..., dtype: _DType | None = ..., cache_enabled: builtins.bool = ...) -> None: ...
