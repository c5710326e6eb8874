"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from typing import Any
from . import load as load
from . import save as save
def add_safe_globals(safe_globals: Any) -> Any: ...
