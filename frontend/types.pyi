"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from typing import Any
from . import Tensor as Tensor
from . import Size as Size
from . import Tensor as Tensor
from . import TypedStorage as TypedStorage
from . import UntypedStorage as UntypedStorage
Device: Any
def FileLike(*args: Any, **kwargs: Any) -> Any: ...
def MAP_LOCATION(*args: Any, **kwargs: Any) -> Any: ...
Number: Any
Storage: Any
