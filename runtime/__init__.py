"""weft.runtime: see docs/architecture.md for what lives here."""

if __name__ != "weft.runtime":
    # From the repository root `import runtime` would load a second copy of every module, with its own op table.
    raise ImportError(f"import weft.runtime, not {__name__}: this directory is installed as the package weft.runtime")
