"""What PyTorch's modules of layers happen to import: programs, and copies of these modules, import it from there.

from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.modules.activation import xavier_uniform_
"""

from ..runtime.state.tensor import Tensor
from ..type_names import _size_1_t, _size_2_t, _size_3_t
from . import functional as F
from . import init
from .init import constant_, xavier_normal_, xavier_uniform_
from .layers import Linear
from .sequences import PackedSequence
from .tuples import _pair, _single, _triple

__all__ = [
    "F", "NonDynamicallyQuantizableLinear", "PackedSequence", "Tensor", "_pair", "_single", "_size_1_t", "_size_2_t",
    "_size_3_t", "_triple", "constant_", "init", "xavier_normal_", "xavier_uniform_",
]  # fmt: skip


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear under another name: PyTorch's quantization passes over it."""


def _addindent(s_, numSpaces):
    """The text with so many spaces before every line but the first."""
    return s_.replace("\n", "\n" + " " * numSpaces)
