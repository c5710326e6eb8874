"""A product whose right matrix lies in panels, as access.py writes one that many products read.

    x (m, k),  panels (n / w, k, w)  ->  (m, n)        column j of the matrix is column j % w of panel j / w

A call for few rows takes hardly longer than copying panels, and where it reads a matrix as it is, its lines are
kilobytes apart. A panel is read front to back. Sums are the chains that they are in any layout.
"""

from ..extent import Fixed
from ..kernels.library import PanelProduct
from .table import Meta, Op


def _infer(operands, attributes, default_float):
    x, panels = operands
    return Meta((x.shape[0], panels.shape[0] * panels.shape[2]), x.dtype)


def _without_derivative(index):
    raise Fixed("a derivative goes through a product whose operand lies in panels")


# No entry of the table: nobody calls it, and it stands for a product that is there.
PRODUCT_OF_PANELS = Op("product_of_panels", "contraction", _infer, vjp=_without_derivative, kernel=PanelProduct())
