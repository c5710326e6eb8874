"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from . import is_grad_enabled as is_grad_enabled
from . import is_inference_mode_enabled as is_inference_mode_enabled
