"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from ...nn import *
from ...nn import Module as Module

class _Layer(Module):
    def __init__(self) -> None: ...
