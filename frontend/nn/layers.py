"""Layers with parameters, and the few that only rearrange or drop."""

import math

from ..compiler.ops import OpError
from ..creation import empty
from ..runtime.state.marks import pure
from ..runtime.state.modes import no_grad
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class Identity(Module):
    """Returns its input. Arguments of the constructor are ignored."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    @pure()
    def forward(self, input):
        return input


class Linear(Module):
    """x @ weight.T + bias: (..., in_features) -> (..., out_features).

    weight (out_features, in_features) and bias (out_features,) start uniform in +-1 / sqrt(in_features).
    """

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, dtype=dtype, device=device))
        if bias:
            self.bias = Parameter(empty(out_features, dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw both parameters anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    @pure()
    def forward(self, input):
        try:
            return F.linear(input, self.weight, self.bias)
        except OpError:
            # Checked only now, so that a call that fits costs nothing.
            if input.shape and input.shape[-1] == self.in_features:
                raise
            raise OpError(
                f"Linear(in_features={self.in_features}, out_features={self.out_features}): input has shape "
                f"{input.shape}; its last dimension must be {self.in_features}"
            ) from None

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of `weight` (num_embeddings, embedding_dim) at integer positions; rows start standard normal.

    The row `padding_idx` starts at 0 and gets no gradient. max_norm, norm_type, scale_grad_by_freq, sparse: see
    functional.embedding. _weight: rows to begin with, a tensor of that shape; _freeze: without gradients.
    """

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
        _weight=None,
        _freeze=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError(f"Embedding: padding_idx {padding_idx} must be within num_embeddings {num_embeddings}")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.sparse = sparse
        if _weight is not None:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    f"Embedding: shape {tuple(_weight.shape)} of _weight does not match num_embeddings "
                    f"{num_embeddings} and embedding_dim {embedding_dim}"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)
            return
        rows = empty(num_embeddings, embedding_dim, dtype=dtype, device=device)
        self.weight = Parameter(rows, requires_grad=not _freeze)
        self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls,
        embeddings,
        freeze=True,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
    ):
        """An Embedding around a (num_embeddings, embedding_dim) tensor; `freeze`: without gradients."""
        if len(embeddings.shape) != 2:
            raise AssertionError(
                f"Embedding: embeddings has shape {embeddings.shape}; it is expected to be 2-dimensional"
            )
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(*embeddings.shape, *options, _weight=embeddings, _freeze=freeze)

    def reset_parameters(self):
        """Draw the rows anew."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self):
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    @pure(lambda layer, *_: layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse)
    def forward(self, input):
        options = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return F.embedding(input, self.weight, *options)

    def extra_repr(self):
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "sparse": False}
        given = [f", {name}={vars(self)[name]}" for name, value in usual.items() if vars(self)[name] != value]
        return f"{self.num_embeddings}, {self.embedding_dim}{''.join(given)}"


class Dropout(Module):
    """In training: zero with probability p, times 1 / (1 - p) otherwise. In evaluation: nothing."""

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    @pure(lambda layer, *_: not layer.training or layer.p == 0)
    def forward(self, input):
        return F.dropout(input, self.p, self.training)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Flatten(Module):
    """Dimensions start_dim to end_dim as one."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    @pure()
    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Dimension `dim` as several, of the sizes `unflattened_size`."""

    def __init__(self, dim, unflattened_size):
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    @pure()
    def forward(self, input):
        axis = self.dim % len(input.shape)
        return input.reshape((*input.shape[:axis], *self.unflattened_size, *input.shape[axis + 1 :]))

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
