"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from . import checkpoint as checkpoint
from . import data as data
from . import dlpack as dlpack
from . import hooks as hooks
from . import model_zoo as model_zoo
