"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
enabled: Any
def flags(**options: Any) -> Any: ...
def is_available(*arguments: Any, **options: Any) -> builtins.bool: ...
