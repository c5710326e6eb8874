"""GradScaler: losses are multiplied by a number before backward, so that small gradients of float16 do not become 0.

scaler.scale(loss).backward()     gradients times the scale
scaler.unscale_(optimizer)        gradients as they are, and whether one of them is infinite or NaN
scaler.step(optimizer)            a step, unless one is
scaler.update()                   a smaller scale if so; a greater one after `growth_interval` steps without
"""

import warnings

from .compiler.later import later
from .reference import document
from .runtime.state.device import device as device_of
from .runtime.state.modes import no_grad
from .runtime.state.tensor import Tensor

_gpu_count = later("runtime.gpu.memory:gpu_count")


class _Seen:
    """What has been done with an optimizer since the last update."""

    def __init__(self):
        self.are_finite, self.is_unscaled, self.has_stepped = True, False, False


def remains_enabled(function, device_type, enabled):
    """Whether it stays on. Where the device is not there it does not, and that is said."""
    kind = device_of(device_type).type
    if enabled and kind != "cpu" and not (kind == "cuda" and _gpu_count()):
        warnings.warn(
            f"{function}: User provided device_type of {kind!r}, but it is not available: weft computes on the CPU. "
            "Disabling",
            stacklevel=3,
        )
        return False
    return bool(enabled)


class GradScaler:
    """Scales losses, unscales gradients, and leaves out steps with infinite or NaN gradients.

    With enabled=False, and for a device that is not there, it scales nothing: `step(optimizer)` is optimizer.step().
    """

    def __init__(
        self,
        device="cuda",
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
    ):
        self._enabled = remains_enabled("GradScaler", device, enabled)
        self.init_scale, self.growth_factor, self.backoff_factor = init_scale, growth_factor, backoff_factor
        self.growth_interval = growth_interval
        self._scale, self._n_finite, self._seen = None, 0, {}
        if self._enabled and not growth_factor > 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if self._enabled and not backoff_factor < 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")

    def scale(self, outputs):
        """The outputs times the scale: a tensor, or any nesting of lists and tuples of such."""
        if not self._enabled:
            return outputs
        if self._scale is None:
            self._scale = float(self.init_scale)
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if not hasattr(outputs, "__iter__"):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled

    def unscale_(self, optimizer):
        """Divide the gradients of the optimizer's parameters by the scale: before they are clipped, for instance."""
        if not self._enabled:
            return
        self._require_scale("unscale_")
        seen = self._seen.setdefault(id(optimizer), _Seen())
        if seen.has_stepped:
            raise RuntimeError("unscale_() is being called after step().")
        if seen.is_unscaled:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        seen.are_finite, seen.is_unscaled = self._unscale(optimizer), True

    def _unscale(self, optimizer):
        """Whether all gradients, which are divided, are finite."""
        found, factor = True, 1.0 / self._scale
        with no_grad():
            for group in optimizer.param_groups:
                for gradient in [p.grad for p in group["params"] if p.grad is not None]:
                    found = found and bool(gradient.isfinite().all())
                    gradient.mul_(factor)
        return found

    def step(self, optimizer, *args, **kwargs):
        """optimizer.step(), if all gradients are finite. They are divided by the scale first if they have not been."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._require_scale("step")
        seen = self._seen.setdefault(id(optimizer), _Seen())
        if seen.has_stepped:
            raise RuntimeError("step() has already been called since the last update().")
        if not seen.is_unscaled:
            self.unscale_(optimizer)
        seen.has_stepped = True
        return optimizer.step(*args, **kwargs) if seen.are_finite else None

    def update(self, new_scale=None):
        """Another scale, as the steps since the last update were, or this one."""
        if not self._enabled:
            return
        self._require_scale("update")
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            self._adapt(all(seen.are_finite for seen in self._seen.values()))
        self._seen = {}

    def _adapt(self, are_finite):
        if not are_finite:
            self._scale, self._n_finite = self._scale * self.backoff_factor, 0
            return
        self._n_finite += 1
        if self._n_finite == self.growth_interval:
            self._scale, self._n_finite = self._scale * self.growth_factor, 0

    def _require_scale(self, name):
        if self._scale is None:
            raise AssertionError(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use scaler.scale(loss or "
                "outputs) earlier in the iteration."
            )

    def get_scale(self):
        """The scale: 1.0 where it is off."""
        return 1.0 if not self._enabled else float(self.init_scale if self._scale is None else self._scale)

    def get_growth_factor(self):
        return self.growth_factor

    def set_growth_factor(self, new_factor):
        self.growth_factor = new_factor

    def get_backoff_factor(self):
        return self.backoff_factor

    def set_backoff_factor(self, new_factor):
        self.backoff_factor = new_factor

    def get_growth_interval(self):
        return self.growth_interval

    def set_growth_interval(self, new_interval):
        self.growth_interval = new_interval

    def is_enabled(self):
        return self._enabled

    def state_dict(self):
        """The scale and how it changes; nothing of a scaler that is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self._n_finite,
        }

    def load_state_dict(self, state_dict):
        """Go on with a state that was kept. A scaler that is off has none."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self.init_scale = self._scale = state_dict["scale"]
        self.growth_factor, self.backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self.growth_interval, self._n_finite = state_dict["growth_interval"], state_dict["_growth_tracker"]


document("amp", __name__)
