"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from . import vmap as vmap
