"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from ..signal import *
