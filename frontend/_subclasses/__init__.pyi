"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from . import fake_tensor as fake_tensor

class FakeTensor:
    def __init__(self) -> None: ...
    def __getattr__(self, name: builtins.str) -> Any: ...
def is_fake(x: Any) -> builtins.bool: ...
