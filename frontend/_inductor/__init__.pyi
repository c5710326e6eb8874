"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from .._dynamo import *
from . import config as config  # type: ignore[no-redef]
