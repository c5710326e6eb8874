"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from ...distributed import *
from ...utils.data import DistributedSampler as DistributedSampler
