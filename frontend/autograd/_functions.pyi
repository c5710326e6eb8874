"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from typing import Any
from ..autograd import Function as Function

class Resize(Function):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any: ...
