"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from ...nn.utils import clip_grad_norm as clip_grad_norm
from ...nn.utils import convert_conv2d_weight_memory_format as convert_conv2d_weight_memory_format
from ...nn.utils import convert_conv3d_weight_memory_format as convert_conv3d_weight_memory_format
from ...nn.utils import fuse_conv_bn_eval as fuse_conv_bn_eval
from ...nn.utils import fuse_conv_bn_weights as fuse_conv_bn_weights
from ...nn.utils import fuse_linear_bn_eval as fuse_linear_bn_eval
from ...nn.utils import fuse_linear_bn_weights as fuse_linear_bn_weights
