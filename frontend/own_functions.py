"""Which of a user's autograd.Functions do nothing but ops, forward and backward: proved from their code
(pure_code.py). Compiled calls have ops in their place (runtime/record/own_ops.py)."""

import types

from .compiler.ops.table import Op
from .paths import PathModule
from .pure_code import Impure, Reads
from .runtime.eager.function_node import rule_of
from .runtime.record.own_ops import Ways
from .runtime.replay import eager_native, native_layout
from .runtime.state.tensor import Tensor

# What backward may ask, and what forward says.
_OF_CONTEXTS = frozenset(str.split("""
    save_for_backward saved_tensors needs_input_grad mark_non_differentiable set_materialize_grads save_for_forward
    mark_dirty
"""))  # fmt: skip
# What tells a tensor of the pass from one that stands for it, or a pass whose gradients are differentiated from others.
_LOOKS = frozenset(str.split("""
    requires_grad is_leaf is_contiguous stride storage_offset view view_as data layout _version is_inference
    is_grad_enabled is_inference_mode_enabled get_default_dtype is_autocast_enabled retains_grad names is_pinned
    contiguous type item tolist numpy element_size nbytes itemsize
"""))  # fmt: skip
# What draws random numbers: a backward that did so when it is looked at would take them from what comes then.
_DRAWS = frozenset(str.split("""
    bernoulli bernoulli_ cauchy_ exponential_ geometric_ gumbel_softmax log_normal_ multinomial normal_ poisson random_
    rrelu rrelu_ uniform_ fractional_max_pool2d fractional_max_pool3d scaled_dot_product_attention
"""))  # fmt: skip
# What backward may name: it is asked later, so a value may be another one by then.
_LASTING = (types.ModuleType, PathModule, types.FunctionType, types.BuiltinFunctionType, type, Op)
_MOST_PROOFS, _MOST_OF_CODE, _MOST_CODES = 4, 8, 1024
_n_proved = {}  # code of forward -> of how many classes it was


def ways_of(function):
    """The Ways of a Function; False if it may do more than ops, or is one of many classes of the same code: proving it
    takes a millisecond, which pays for classes that last."""
    code = getattr(function.forward, "__code__", None)
    if len(_n_proved) >= _MOST_CODES:
        _n_proved.clear()
    _n_proved[code] = _n_proved.get(code, 0) + 1
    if _n_proved[code] > _MOST_OF_CODE:
        return False
    try:
        return Ways(function, function.__name__, Proof(function))
    except (Impure, RuntimeError):
        return False


class Proof:
    """That a Function does nothing but ops, as long as all that it reads is what it was."""

    def __init__(self, function):
        self._function, self._n_left = function, _MOST_PROOFS
        self._prove()

    def _prove(self):
        if not native_layout.type_version(self._function):
            raise Impure("the class may change unseen")
        eager_native.install()
        self._version = native_layout.type_version(self._function)
        setup = getattr(self._function, "setup_context", None)
        filling = self._function.forward if setup is None else setup
        forward = _reads_of({self._function.forward, filling}, [getattr(filling, "__code__", None)], _OF_CONTEXTS)
        backward = _reads_of([rule_of(self._function)], (), forward.allowed())
        _check_lasting(backward)
        for reads in (forward, backward):
            reads.seal()
        self._reads = forward, backward

    def reads(self):
        """(rows, tensors) of what forward and backward read, the class of it all among them."""
        forward, backward = ((reads.rows(), reads.tensors) for reads in self._reads)
        classes = [*forward[0]["classes"], (self._function, self._version)]
        return ({**forward[0], "classes": classes}, forward[1]), backward

    def holds(self):
        """Whether that is so of a call whose forward has just run. If not, it may be so again of the next one."""
        if self._version == native_layout.type_version(self._function) and all(r.hold() for r in self._reads):
            return True
        self._n_left -= 1
        if self._n_left > 0:
            try:
                self._prove()
            except Impure:
                self._n_left = 0
        return False


def _reads_of(functions, filling, allowed):
    """filling: code that may give its first parameter, which is a context, attributes."""
    reads = Reads(filling)
    reads.allow(allowed)
    for function in functions:
        if type(function) is not types.FunctionType:
            raise Impure("it is no plain function")
        reads.add_value(function, function.__name__, None, None)
    return reads


def _check_lasting(reads):
    """Whether what a backward reads is there for good: it runs later, when values may be others."""
    if reads.tensors or reads.lists or reads.dicts or reads.arrays or reads.classes.keys() != {Tensor}:
        raise Impure("backward reads what forward has not saved")
    named = [value for _, _, value in reads.items] + [value for _, value in reads.cells]
    named += [value for _, name, value in reads.attributes if name != "__code__" and value is not None]
    names = reads.names()
    if any("dropout" in name for name in names) or not _DRAWS.isdisjoint(names):
        raise Impure("backward draws random numbers")
    if not all(isinstance(value, _LASTING) for value in named) or not _LOOKS.isdisjoint(names):
        raise Impure("backward reads what may be something else when it runs")
