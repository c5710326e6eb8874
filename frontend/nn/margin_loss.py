"""The losses of margin_losses.py as modules."""

from inspect import Signature, signature, unwrap
from types import FunctionType

from . import margin_losses as losses
from .group_normalization import PairwiseDistance
from .loss_functions import reduction_of
from .module import Module


class _Loss(Module):
    """Options, every one of which is an attribute, and `reduction` as ever. `order`: PyTorch's, of those that may be
    given by position."""

    function, options, order = None, {}, ()

    def __init__(self, *args, **kwargs):
        super().__init__()
        if len(args) > len(self.order):
            raise TypeError(f"{type(self).__name__}() takes {len(self.order)} positional arguments, got {len(args)}")
        given = {**dict(zip(self.order, args)), **kwargs}
        reductions = [given.pop(name, default) for name, default in _REDUCTIONS.items()]
        unknown = [name for name in given if name not in self.options]
        if unknown:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument '{unknown[0]}'")
        for name, default in self.options.items():
            self._keep(name, given.get(name, default))
        self.reduction = reduction_of(type(self).__name__, *reductions)

    def _keep(self, name, value):
        if name == "weight":
            self.register_buffer(name, value)
        elif name == "distance_function" and value is None:
            self.distance_function = PairwiseDistance()
        else:
            setattr(self, name, value)

    def forward(self, *inputs, **by_name):
        options = {name: getattr(self, name) for name in self.options}
        return type(self).function(*inputs, **by_name, **options, reduction=self.reduction)


_REDUCTIONS = {"reduction": "mean", "size_average": None, "reduce": None}
_OLDER = ("size_average", "reduce", "reduction")


def _loss(name, function, order=None, **options):
    order = (*options, *_OLDER) if order is None else order
    attributes = {"function": staticmethod(function), "options": options, "order": order, "__doc__": function.__doc__}
    return type(name, (_Loss,), {**attributes, "forward": _forward_of(function), "__module__": __name__})


def _forward_of(function):
    """_Loss.forward, which says what the inputs are called."""
    inputs = [p for p in signature(unwrap(function)).parameters.values() if p.default is p.empty]
    forward = FunctionType(_Loss.forward.__code__, globals(), "forward")
    forward.__signature__ = Signature([*list(signature(_Loss.forward).parameters.values())[:1], *inputs])
    return forward


MarginRankingLoss = _loss("MarginRankingLoss", losses.margin_ranking_loss, margin=0.0)
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", losses.hinge_embedding_loss, margin=1.0)
SoftMarginLoss = _loss("SoftMarginLoss", losses.soft_margin_loss)
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", losses.cosine_embedding_loss, margin=0.0)
TripletMarginLoss = _loss("TripletMarginLoss", losses.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False)
TripletMarginWithDistanceLoss = _loss(
    "TripletMarginWithDistanceLoss",
    losses.triplet_margin_with_distance_loss,
    (),
    distance_function=None,
    margin=1.0,
    swap=False,
)
MultiMarginLoss = _loss("MultiMarginLoss", losses.multi_margin_loss, p=1, margin=1.0, weight=None)
MultiLabelMarginLoss = _loss("MultiLabelMarginLoss", losses.multilabel_margin_loss)
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", losses.multilabel_soft_margin_loss, weight=None)
PoissonNLLLoss = _loss(
    "PoissonNLLLoss",
    losses.poisson_nll_loss,
    ("log_input", "full", "size_average", "eps", "reduce", "reduction"),
    log_input=True,
    full=False,
    eps=1e-8,
)
GaussianNLLLoss = _loss("GaussianNLLLoss", losses.gaussian_nll_loss, (), full=False, eps=1e-6)
CTCLoss = _loss("CTCLoss", losses.ctc_loss, ("blank", "reduction", "zero_infinity"), blank=0, zero_infinity=False)


def _poisson_forward(self, log_input, target):
    return _Loss.forward(self, log_input, target)


PoissonNLLLoss.forward = _poisson_forward  # an input has the name of an option
LAYERS = str.split("""
    MarginRankingLoss HingeEmbeddingLoss SoftMarginLoss CosineEmbeddingLoss TripletMarginLoss
    TripletMarginWithDistanceLoss MultiMarginLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss PoissonNLLLoss
    GaussianNLLLoss CTCLoss
""")
