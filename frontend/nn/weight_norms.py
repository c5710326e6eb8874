"""Weight normalisation (Salimans and Kingma, 1602.07868) and spectral normalisation (Miyato et al., 1802.05957).

What both forms share, and the older one of `nn.utils`: a hook computes the weight before every forward and leaves it in
the module. The newer form is in parametrizations.py.
"""

import warnings

from ..runtime.state.modes import no_grad
from . import functional as F
from .parameter import Parameter


def norm_except_dim(v, pow=2, dim=0):
    """The norm over all dimensions but one, which are kept with size 1; over all for -1."""
    if dim == -1:
        return v.norm(pow)
    axes = [k for k in range(v.ndim) if k != dim % v.ndim]
    return v.norm(pow, axes, keepdim=True) if axes else v.abs()


def normed_weight(v, g, dim):
    return v * (g / norm_except_dim(v, 2, dim))


def as_matrix(weight, dim):
    """The weight with one dimension first and the others as one."""
    if dim != 0:
        weight = weight.permute(dim, *(k for k in range(weight.ndim) if k != dim))
    return weight.flatten(1)


def largest_singular(matrix, u, v):
    """The largest singular value, by its singular vectors."""
    return u.dot(matrix.mv(v))


def check_iterations(count):
    if count <= 0:
        raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={count}")


def channels_at(module, dim):
    """The dimension of output channels: transposed convolutions have it second."""
    return dim if dim is not None else int(type(module).__name__.startswith("ConvTranspose"))


class WeightNorm:
    """The hook of `nn.utils.weight_norm`."""

    def __init__(self, name, dim):
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module):
        return normed_weight(getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g"), self.dim)

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))

    def remove(self, module):
        weight = self.compute_weight(module).detach()
        for name in (self.name, f"{self.name}_g", f"{self.name}_v"):
            delattr(module, name)
        setattr(module, self.name, Parameter(weight))


class SpectralNorm:
    """The hook of `nn.utils.spectral_norm`."""

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        check_iterations(n_power_iterations)
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module, do_power_iteration):
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))
                # Copies, because a second forward changes the vectors before this one's backward.
                u, v = u.clone(), v.clone()
        return weight / largest_singular(matrix, u, v)

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module, module.training))

    def remove(self, module):
        with no_grad():
            weight = self.compute_weight(module, False)
        for name in (self.name, *(f"{self.name}_{part}" for part in ("u", "v", "orig"))):
            delattr(module, name)
        module.register_parameter(self.name, Parameter(weight.detach()))


def weight_norm(module, name="weight", dim=0):
    """`nn.utils.weight_norm`: parameters <name>_g and <name>_v; the weight is computed before every forward."""
    warnings.warn(
        "`weft.nn.utils.weight_norm` is deprecated in favor of `weft.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    _check_first(module, name, WeightNorm, "weight_norm")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(norm_except_dim(weight, 2, hook.dim).detach()))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook(module, ())
    module.register_forward_pre_hook(hook)
    return module


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """`nn.utils.spectral_norm`: parameter <name>_orig and buffers <name>_u and <name>_v; the weight is computed before
    every forward."""
    _check_first(module, name, SpectralNorm, "spectral_norm")
    hook = SpectralNorm(name, n_power_iterations, channels_at(module, dim), eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    sizes = as_matrix(weight.detach(), hook.dim).shape
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.data)
    for part, size in zip("uv", sizes):
        start = F.normalize(weight.data.new_empty(size).normal_(), dim=0, eps=eps)
        module.register_buffer(f"{name}_{part}", start)
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module, name="weight"):
    """Make the weight a parameter again."""
    return _remove(module, name, WeightNorm, "weight_norm")


def remove_spectral_norm(module, name="weight"):
    """Make the weight a parameter again."""
    return _remove(module, name, SpectralNorm, "spectral_norm")


def _hooks(module, name, kind):
    return [(k, h) for k, h in module._forward_pre_hooks.items() if isinstance(h, kind) and h.name == name]


def _check_first(module, name, kind, what):
    if _hooks(module, name, kind):
        raise RuntimeError(f"Cannot register two {what} hooks on the same parameter {name}")


def _remove(module, name, kind, what):
    for number, hook in _hooks(module, name, kind):
        hook.remove(module)
        del module._forward_pre_hooks[number]
        return module
    raise ValueError(f"{what} of '{name}' not found in {module}")
