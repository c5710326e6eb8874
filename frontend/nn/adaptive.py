"""Softmax over many classes of unequal frequency (Grave et al., 1609.04309)."""

from collections import namedtuple

from ..creation import full_like
from ..functions import where
from ..shaping import cat
from . import functional as F
from .containers import ModuleList, Sequential
from .layers import Linear
from .module import Module

LAYERS = ("AdaptiveLogSoftmaxWithLoss",)

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of targets, and their loss: the head knows the classes before cutoffs[0], and a cluster for
    every further range, whose classes are told apart by two smaller products.

    in_features // div_value^k is the width of cluster k. forward(input, target) returns (output, loss): the
    log-probability of every target, and the mean of their negatives.
    """

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        rising = all(a < b for a, b in zip([0, *cutoffs], cutoffs))
        if not rising or cutoffs[-1] > n_classes - 1 or any(int(c) != c for c in cutoffs):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        kind = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **kind)
        self.tail = ModuleList()
        for k in range(self.n_clusters):
            width, size = int(in_features // div_value ** (k + 1)), self.cutoffs[k + 1] - self.cutoffs[k]
            self.tail.append(
                Sequential(Linear(in_features, width, bias=False, **kind), Linear(width, size, bias=False, **kind))
            )

    def reset_parameters(self):
        """Draw all parameters anew."""
        self.head.reset_parameters()
        for narrow, wide in self.tail:
            narrow.reset_parameters()
            wide.reset_parameters()

    def forward(self, input_, target_):
        _check(input_, target_)
        single = target_.ndim == 0
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        if not ((target >= 0) & (target < self.n_classes)).all().item():
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        in_head = target
        output = input.new_zeros(len(target))
        for k, cluster in enumerate(self.tail):
            begin, end = self.cutoffs[k], self.cutoffs[k + 1]
            inside = (target >= begin) & (target < end)
            # All rows go through every cluster: which are in it is decided by the targets' values.
            found = F.log_softmax(cluster(input), 1).gather(1, (target - begin).clamp(0, end - begin - 1)[:, None])
            output = where(inside, found.squeeze(1), output)
            in_head = where(inside, full_like(target, self.shortlist_size + k), in_head)
        output = output + F.log_softmax(self.head(input), 1).gather(1, in_head[:, None]).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def log_prob(self, input):
        """The log-probabilities of all classes: (N, in_features) -> (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for k, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(input), 1) + head[:, self.shortlist_size + k][:, None])
        return cat(parts, 1)

    def predict(self, input):
        """The class with the greatest probability, where the head does not say a cluster; there the greatest of all."""
        head = self.head(input).argmax(1)
        return where(head < self.shortlist_size, head, self.log_prob(input).argmax(1))


def _check(input, target):
    if target.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.ndim == 1 and input.ndim and input.shape[0] != target.shape[0]:
        raise RuntimeError("Input and target should have the same size in the batch dimension.")
    if input.ndim != target.ndim + 1:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with size "
            f"{input.shape}"
        )
