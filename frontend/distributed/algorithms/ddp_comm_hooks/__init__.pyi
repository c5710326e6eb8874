"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from ....distributed.algorithms import *
from . import default_hooks as default_hooks
