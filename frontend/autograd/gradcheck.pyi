"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ..testing import gradcheck as gradcheck
from ..testing import gradgradcheck as gradgradcheck

class GradcheckError(builtins.RuntimeError):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
