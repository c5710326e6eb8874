"""The modules whose functions (`FUNCTIONS`) nn.functional has, and whose layers (`LAYERS`) nn has.

TAKING_OUT are the names of functions with a keyword `out`, INPLACE those that have a form that writes into its input.
(weft has some of these functions too, as PyTorch does at its top level: paths.py. Tensors have two: methods.py.)
"""

from . import (
    adaptive,
    attention,
    bags,
    convolution,
    fused_losses,
    grids,
    group_normalization,
    lazy,
    margin_loss,
    margin_losses,
    padding,
    parameter_containers,
    pooling,
    pooling_layers,
    recurrent,
    recurrent_cells,
    thresholds,
    transformer,
    windows,
)

FAMILIES = (padding, thresholds, margin_losses, margin_loss, group_normalization, windows, bags, grids)
FAMILIES += (parameter_containers, lazy, adaptive, convolution, pooling, pooling_layers)
FAMILIES += (recurrent, recurrent_cells, attention, transformer, fused_losses)
TAKING_OUT = str.split("avg_pool2d avg_pool3d gelu hardshrink logsigmoid normalize softplus softshrink")
INPLACE = str.split("relu elu celu selu hardtanh leaky_relu rrelu threshold")
