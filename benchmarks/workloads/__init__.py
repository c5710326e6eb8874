"""The workloads, in the order of the tables."""

from .black_scholes import BLACK_SCHOLES
from .gelu_chain import GELU_CHAIN
from .hessian import HESSIAN_VECTOR
from .images import LENET, RESNET18_1, RESNET18_16
from .layernorm import LAYERNORM
from .logreg import LOGREG
from .mlp import DIGITS_MLP, MLP_TRAIN
from .ordering import CUMSUM_ROWS, SORT_ROWS, TOP_ROWS
from .seeds_net import SEEDS_NET
from .sequences import ATTENTION_256, ATTENTION_1024, LSTM_32, LSTM_256, TRANSFORMER_BLOCK
from .softmax_xent import SOFTMAX_XENT

_ALL = (SEEDS_NET, DIGITS_MLP, MLP_TRAIN, LOGREG, GELU_CHAIN, SOFTMAX_XENT, LAYERNORM, LENET, RESNET18_1, RESNET18_16)
_ALL += (BLACK_SCHOLES, HESSIAN_VECTOR, SORT_ROWS, TOP_ROWS, CUMSUM_ROWS)
_ALL += (LSTM_32, LSTM_256, ATTENTION_256, ATTENTION_1024, TRANSFORMER_BLOCK)
WORKLOADS = {w.name: w for w in _ALL}
SMOKE = ("seeds_net", "digits_mlp")
