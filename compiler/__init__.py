"""weft.compiler: see docs/architecture.md for what lives here."""

if __name__ != "weft.compiler":
    # From the repository root `import compiler` would load a second copy of every module, with its own op table.
    raise ImportError(f"import weft.compiler, not {__name__}: this directory is installed as the package weft.compiler")
