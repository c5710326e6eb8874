"""mpi4py, imported when a group is made: `import weft` needs none of it."""

from importlib.util import find_spec

_MISSING = (
    "weft.distributed needs mpi4py and an MPI library ({error}): pip install 'weft[mpi]', and start the program with "
    "mpiexec -n 4 python program.py"
)


def is_installed():
    return find_spec("mpi4py") is not None


def load():
    """The module mpi4py.MPI. Importing it initialises MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(_MISSING.format(error=error)) from None
    return MPI
