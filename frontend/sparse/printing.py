"""Sparse tensors as text, as PyTorch prints them: their parts, then sizes and layout."""

from ..compiler import dtypes
from ..printing import contents, with_suffixes
from ..runtime.state.modes import state
from .compressed import ROWS, CompressedTensor
from .tensors import Sparse


def text(self):
    """The whole `tensor(indices=..., values=..., size=..., nnz=..., layout=...)`."""
    indent, values = len("tensor("), self._values_kept.detach().numpy()
    if isinstance(self, CompressedTensor):
        names = ("crow_indices", "col_indices") if self.layout in ROWS else ("ccol_indices", "row_indices")
        parts = [(names[0], self._starts), (names[1], self._others), ("values", values)]
    else:
        parts = [("indices", self._indices_kept), ("values", values)]
    lines = [_part(name, array, indent) for name, array in parts]
    suffixes = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
    default = state.default_dtype
    if self.dtype not in (default, default.to_complex(), dtypes.int64, dtypes.bool_):
        suffixes.append(f"dtype={self.dtype!r}")
    suffixes.append(f"layout={self.layout!r}")
    if self.requires_grad and not self.is_leaf:
        suffixes.append(f"grad_fn=<{self.grad_fn.name()}>")
    elif self.requires_grad:
        suffixes.append("requires_grad=True")
    body = (",\n" + " " * indent).join(lines)
    return with_suffixes("tensor(" + body, suffixes, indent, begins_line=self.is_sparse)


def _part(name, array, indent):
    prefix = f"{name}=tensor("
    size = "" if array.size else f", size={array.shape}"
    return f"{prefix}{contents(array, indent + len(prefix))}{size})"


def attach():
    """Give sparse tensors their text."""
    Sparse.__repr__ = Sparse.__str__ = text
