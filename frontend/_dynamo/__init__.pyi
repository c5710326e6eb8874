"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from typing import Any
from . import config as config
cache_size_limit: Any
capture_scalar_outputs: Any
def mark_dynamic(*args: Any, **kwargs: Any) -> Any: ...
def mark_static(*args: Any, **kwargs: Any) -> Any: ...
def maybe_mark_dynamic(*args: Any, **kwargs: Any) -> Any: ...
optimize_ddp: Any
recompile_limit: Any
def reset() -> Any: ...
suppress_errors: Any
verbose: Any
