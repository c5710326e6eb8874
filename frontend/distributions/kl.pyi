"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from ..distributions import kl_divergence as kl_divergence
from ..distributions import register_kl as register_kl
