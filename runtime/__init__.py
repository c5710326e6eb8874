"""weft.runtime: see docs/architecture.md for what lives here."""

import sys

if __name__ != "weft.runtime":
    # From the repository root `import runtime` would load a second copy of every module, with its own op table.
    raise ImportError(f"import weft.runtime, not {__name__}: this directory is installed as the package weft.runtime")

if hasattr(sys, "_is_gil_enabled"):
    import sysconfig

    # The build decides, not whether its lock is on: objects begin with other words there, counts of references too.
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not sys._is_gil_enabled():
        raise ImportError(
            f"weft does not support free-threaded builds of CPython, and this is one (Python {sys.version}): which "
            "results somebody still holds is known from reference counts that the interpreter lock protects. Use a "
            "standard build, such as python3.13 instead of python3.13t; PYTHON_GIL=1 is not enough"
        )
