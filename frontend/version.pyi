"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
__version__: builtins.str
cuda: builtins.str | None
hip: builtins.str | None
xpu: builtins.str | None
rocm: builtins.str | None

class TorchVersion(builtins.str):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
