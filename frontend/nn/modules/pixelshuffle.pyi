"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from typing import Any
from ...nn.modules.rnn import *
def _pair(x: Any) -> Any: ...
def _single(x: Any) -> Any: ...
_size_1_t: Any
_size_2_t: Any
_size_3_t: Any
def _triple(x: Any) -> Any: ...
