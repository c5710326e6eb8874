"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from ...fx import *
from . import proxy_tensor as proxy_tensor
