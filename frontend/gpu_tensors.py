"""Tensors on a GPU: what the class of tensors answers once there is one. Imported when the first is made."""

from .runtime.gpu.moves import moved
from .runtime.state.device import CPU
from .runtime.state.elsewhere import is_elsewhere
from .runtime.state.tensor import Tensor

__all__ = ["ANSWERS", "BEFORE", "answer", "moved"]


def _device(self):
    """Where the tensor's memory is."""
    return self._meta.device if is_elsewhere(self) else CPU


def _is_cuda(self):
    """Whether the tensor's memory is a GPU's."""
    return is_elsewhere(self)


def _is_cpu(self):
    """Whether the tensor's memory is the CPU's."""
    return not is_elsewhere(self)


def _get_device(self):
    """The number of the GPU; -1 for the CPU."""
    return self._meta.gpu.number if is_elsewhere(self) else -1


ANSWERS = {
    "device": property(_device), "is_cuda": property(_is_cuda), "is_cpu": property(_is_cpu), "get_device": _get_device,
}  # fmt: skip
BEFORE = {name: vars(Tensor)[name] for name in ANSWERS}
"""What the class says in a program that has no such tensor."""


def answer(answers):
    """Let the class of tensors answer by these."""
    for name, value in answers.items():
        setattr(Tensor, name, value)


answer(ANSWERS)
