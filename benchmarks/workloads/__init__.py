"""The workloads, in the order of the tables."""

from .gelu_chain import GELU_CHAIN
from .images import LENET, RESNET18_1, RESNET18_16
from .layernorm import LAYERNORM
from .logreg import LOGREG
from .mlp import DIGITS_MLP, MLP_TRAIN
from .seeds_net import SEEDS_NET
from .softmax_xent import SOFTMAX_XENT

_ALL = (SEEDS_NET, DIGITS_MLP, MLP_TRAIN, LOGREG, GELU_CHAIN, SOFTMAX_XENT, LAYERNORM, LENET, RESNET18_1, RESNET18_16)
WORKLOADS = {w.name: w for w in _ALL}
SMOKE = ("seeds_net", "digits_mlp")
