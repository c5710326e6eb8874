"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from typing import Any
def get_proxy_mode() -> Any: ...
