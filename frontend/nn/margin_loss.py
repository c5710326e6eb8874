"""The losses of margin_losses.py as modules."""

from . import margin_losses as losses
from .loss_functions import reduction_of
from .module import Module


class _Loss(Module):
    """Options in the order PyTorch has them; every one is an attribute, and `reduction` as ever."""

    function, options, shown = None, {}, ()

    def __init__(self, *args, size_average=None, reduce=None, reduction="mean", **kwargs):
        super().__init__()
        names = list(self.options)
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__}() takes {len(names)} positional arguments, got {len(args)}")
        given = {**dict(zip(names, args)), **kwargs}
        unknown = [name for name in given if name not in self.options]
        if unknown:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument '{unknown[0]}'")
        for name, default in self.options.items():
            self._keep(name, given.get(name, default))
        self.reduction = reduction_of(type(self).__name__, reduction, size_average, reduce)

    def _keep(self, name, value):
        if name == "weight":
            self.register_buffer(name, value)
        else:
            setattr(self, name, value)

    def forward(self, *inputs):
        options = {name: getattr(self, name) for name in self.options}
        return type(self).function(*inputs, **options, reduction=self.reduction)


def _loss(name, function, **options):
    attributes = {"function": staticmethod(function), "options": options, "__doc__": function.__doc__}
    return type(name, (_Loss,), {**attributes, "__module__": __name__})


MarginRankingLoss = _loss("MarginRankingLoss", losses.margin_ranking_loss, margin=0.0)
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", losses.hinge_embedding_loss, margin=1.0)
SoftMarginLoss = _loss("SoftMarginLoss", losses.soft_margin_loss)
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", losses.cosine_embedding_loss, margin=0.0)
TripletMarginLoss = _loss("TripletMarginLoss", losses.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False)
TripletMarginWithDistanceLoss = _loss(
    "TripletMarginWithDistanceLoss",
    losses.triplet_margin_with_distance_loss,
    distance_function=None,
    margin=1.0,
    swap=False,
)
MultiMarginLoss = _loss("MultiMarginLoss", losses.multi_margin_loss, p=1, margin=1.0, weight=None)
MultiLabelMarginLoss = _loss("MultiLabelMarginLoss", losses.multilabel_margin_loss)
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", losses.multilabel_soft_margin_loss, weight=None)
PoissonNLLLoss = _loss("PoissonNLLLoss", losses.poisson_nll_loss, log_input=True, full=False, eps=1e-8)
GaussianNLLLoss = _loss("GaussianNLLLoss", losses.gaussian_nll_loss, full=False, eps=1e-6)
CTCLoss = _loss("CTCLoss", losses.ctc_loss, blank=0, zero_infinity=False)


def _ctc_loss_init(self, blank=0, reduction="mean", zero_infinity=False):
    _Loss.__init__(self, blank=blank, zero_infinity=zero_infinity, reduction=reduction)


# The reduction is in the middle here.
CTCLoss.__init__ = _ctc_loss_init
LAYERS = str.split("""
    MarginRankingLoss HingeEmbeddingLoss SoftMarginLoss CosineEmbeddingLoss TripletMarginLoss
    TripletMarginWithDistanceLoss MultiMarginLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss PoissonNLLLoss
    GaussianNLLLoss CTCLoss
""")
