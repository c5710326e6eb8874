"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
def unique_dim(self: Any, dim: Any, sorted: builtins.bool = ..., return_inverse: builtins.bool = ..., return_counts: builtins.bool = ...) -> Any: ...
