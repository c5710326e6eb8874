"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from typing import Any
aot_inductor: Any
coordinate_descent_tuning: Any
cpp: Any
cuda: Any
debug: Any
epilogue_fusion: Any
fallback_random: Any
freezing: Any
fx_graph_cache: Any
max_autotune: Any
trace: Any
triton: Any
