"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ..nn import Buffer as Buffer
from ..nn import Parameter as Parameter
from ..nn import UninitializedBuffer as UninitializedBuffer
from ..nn import UninitializedParameter as UninitializedParameter
def is_lazy(x: Any) -> builtins.bool: ...
