"""Methods of every tensor about layouts: conversions to sparse ones, and questions to which dense ones have no answer.

What they need (frontend/sparse/) is imported when a tensor is converted: few programs have sparse ones.
"""

from .compiler.later import later

PUBLIC = []
METHODS = str.split("""
    ccol_indices coalesce col_indices crow_indices dense_dim indices row_indices sparse_dim sparse_mask to_sparse
    to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values
""")
_conversion = {
    name: later(f"sparse.conversion:{name}")
    for name in str.split("to_sparse to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc sparse_mask")
}


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """The same elements without the zeros: by coordinates, or in the layout that is given.

    sparse_dim: how many of the first dimensions get indices, all if it is not given. blocksize: of layouts of blocks.
    """
    return _conversion["to_sparse"](self, sparse_dim, layout=layout, blocksize=blocksize)


def to_sparse_coo(self):
    """The same elements without the zeros, by coordinates."""
    return to_sparse(self)


def to_sparse_csr(self, dense_dim=None):
    """A matrix without its zeros, by compressed rows."""
    return _conversion["to_sparse_csr"](self)


def to_sparse_csc(self, dense_dim=None):
    """A matrix without its zeros, by compressed columns."""
    return _conversion["to_sparse_csc"](self)


def to_sparse_bsr(self, blocksize, dense_dim=None):
    """A matrix without its blocks of zeros, by compressed rows of blocks."""
    return _conversion["to_sparse_bsr"](self, blocksize)


def to_sparse_bsc(self, blocksize, dense_dim=None):
    """A matrix without its blocks of zeros, by compressed columns of blocks."""
    return _conversion["to_sparse_bsc"](self, blocksize)


def sparse_mask(self, mask):
    """The elements at the places that a sparse tensor of the same shape keeps."""
    return _conversion["sparse_mask"](self, mask)


def _refused(name, words):
    def method(self, *args):
        raise RuntimeError(f"{name} expected {words} but got {self.layout.word}; x.to_sparse() makes one")

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"RuntimeError: of a dense tensor. Of others see weft.sparse: {words}."
    return method


_COORDINATES = "sparse coordinate tensor layout"
coalesce, indices = (_refused(name, _COORDINATES) for name in ("coalesce", "indices"))
values = _refused("values", "sparse tensor layout")
crow_indices, col_indices = (
    _refused(name, "sparse row compressed tensor layout") for name in ("crow_indices", "col_indices")
)
ccol_indices, row_indices = (
    _refused(name, "sparse column compressed tensor layout") for name in ("ccol_indices", "row_indices")
)


def sparse_dim(self):
    """How many of the first dimensions have indices: none, of a dense tensor."""
    return 0


def dense_dim(self):
    """How many dimensions are whole: all, of a dense tensor."""
    return self.ndim
