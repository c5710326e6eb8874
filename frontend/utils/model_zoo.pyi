"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from typing import Any
from ..hub import *
def load_url(url: Any, model_dir: Any = ..., map_location: Any = ..., progress: builtins.bool = ..., check_hash: builtins.bool = ..., file_name: Any = ..., weights_only: builtins.bool = ...) -> Any: ...
