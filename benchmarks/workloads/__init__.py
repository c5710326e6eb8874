"""The workloads, in the order of the tables."""

from .gelu_chain import GELU_CHAIN
from .layernorm import LAYERNORM
from .logreg import LOGREG
from .mlp import DIGITS_MLP, MLP_TRAIN
from .seeds_net import SEEDS_NET
from .softmax_xent import SOFTMAX_XENT

WORKLOADS = {w.name: w for w in (SEEDS_NET, DIGITS_MLP, MLP_TRAIN, LOGREG, GELU_CHAIN, SOFTMAX_XENT, LAYERNORM)}
SMOKE = ("seeds_net", "digits_mlp")
