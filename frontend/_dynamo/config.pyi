"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from typing import Any
accumulated_cache_size_limit: Any
assume_static_by_default: Any
automatic_dynamic_shapes: Any
cache_size_limit: Any
capture_dynamic_output_shape_ops: Any
capture_scalar_outputs: Any
guard_nn_modules: Any
inline_inbuilt_nn_modules: Any
optimize_ddp: Any
recompile_limit: Any
suppress_errors: Any
verbose: Any
