"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from .. import Tensor as Tensor
from .. import Tensor as Tensor
FOREACH_APART: Any
FOREACH_OF_ONE: Any
FOREACH_OF_TWO: Any

class Number:
    def __init__(self) -> None: ...
    def __getattr__(self, name: builtins.str) -> Any: ...
