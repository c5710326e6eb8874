"""What a workload is: numbers from a fixed seed, and the function every library has to compute with them.

weft's spelling is PyTorch's, so one function serves both: it takes the library as its first argument. JAX has another
spelling and a function of its own. Two kinds of work are measured:

    Gradient    a function and its derivatives:    value, gradients = ...
    Training    steps of stochastic gradient descent on batches that take turns

How each library runs them is the business of benchmarks/sides.
"""

from collections.abc import Callable
from dataclasses import dataclass

RECORDED_STEPS = 5


@dataclass(frozen=True, slots=True)
class Gradient:
    """A function's value and its derivatives for the arrays `leaves` names; the other arrays are constants.

    arrays() -> {name: array}; function(library, *arrays) and jax_function(jax, *arrays) -> value. If the value is no
    scalar, the array called "cotangent" is not handed to the function: it is what backward starts from.
    tolerance: how far libraries may differ, relative to the largest element of a result.
    """

    name: str
    what: str
    arrays: Callable
    leaves: tuple
    function: Callable
    jax_function: Callable
    tolerance: float = 1e-5

    def split(self, arrays):
        """(leaves, constants, cotangent or None) of what arrays() gave."""
        constants = [a for name, a in arrays.items() if name not in self.leaves and name != "cotangent"]
        return [arrays[name] for name in self.leaves], constants, arrays.get("cotangent")

    compared_steps = RECORDED_STEPS

    @property
    def results(self):
        return ("value", *[f"gradient of {name}" for name in self.leaves])


@dataclass(frozen=True, slots=True)
class Training:
    """Steps of SGD, with or without momentum, on a model made of linear layers.

    arrays() -> (parameters, batches): weights of shape (out, in) as in PyTorch, and a list of (inputs, targets).
    model(library) -> module; loss(library, model, x, y) and jax_loss(jax, parameters, x, y) -> scalar. JAX is given
    the weights as (in, out), the shape its users store. results: the loss, then the parameters after the step.
    compared_steps: of how many first steps libraries are compared; fewer than are recorded where rounding errors grow
    from step to step.
    """

    name: str
    what: str
    arrays: Callable
    model: Callable
    loss: Callable
    jax_loss: Callable
    lr: float
    momentum: float = 0.0
    tolerance: float = 1e-5
    compared_steps: int = RECORDED_STEPS


@dataclass(frozen=True, slots=True)
class Program:
    """A workload, ready to run in one library.

    step(): one step; returns its arrays, (value, *gradients) or (loss,). parameters(): what training changes.
    """

    step: Callable
    parameters: Callable = tuple
