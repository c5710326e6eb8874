"""The modules whose functions (`FUNCTIONS`) nn.functional has, and whose layers (`LAYERS`) nn has.

TOP_LEVEL are the names of functions of networks that weft has too, as PyTorch does at its top level; METHODS those that
tensors have, TAKING_OUT those with a keyword `out`, and INPLACE those that have a form that writes into its input.
"""

from . import (
    adaptive,
    attention,
    bags,
    convolution,
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
FAMILIES += (recurrent, recurrent_cells, attention, transformer)
TOP_LEVEL = str.split("""
    adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear
    binary_cross_entropy_with_logits celu channel_shuffle constant_pad_nd conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity ctc_loss dropout
    embedding embedding_bag feature_alpha_dropout group_norm hardshrink hinge_embedding_loss instance_norm kl_div
    layer_norm margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pairwise_distance pdist
    pixel_shuffle pixel_unshuffle poisson_nll_loss prelu rms_norm rrelu selu threshold triplet_margin_loss
""")
TAKING_OUT = str.split("avg_pool2d avg_pool3d gelu hardshrink logsigmoid normalize softplus softshrink")
METHODS = str.split("prelu hardshrink")
INPLACE = str.split("relu elu celu selu hardtanh leaky_relu rrelu threshold")
