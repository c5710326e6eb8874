"""Second derivatives through ops that are differentiated by what they are made of: nothing of that outlives the pass,
so that compiled calls have no results that nobody has asked for."""

import gc
import weakref

from compiled_twin import twin

import weft
from weft.autograd import grad
from weft.compiler.autodiff import vjp
from weft.compiler.ops import TABLE


def test_what_a_rule_has_traced_goes_at_once():
    x, seen = weft.randn(4), []

    class Value:
        """A tensor-like value that can be watched."""

        def __init__(self, tensor):
            self.tensor = tensor
            seen.append(weakref.ref(self))

        shape, dtype = property(lambda self: self.tensor.shape), property(lambda self: self.tensor.dtype)
        ndim, weak = property(lambda self: self.tensor.ndim), False

        def apply_op(self, op, operands, attributes):
            return Value(op(*[o.tensor if isinstance(o, Value) else o for o in operands], **attributes))

    op, operands = TABLE["addcmul"], [Value(x), Value(x + 1), Value(x + 2)]
    gc.disable()
    try:
        found = vjp(op, 1, Value(weft.ones(4)), Value(x), operands, {})
        alive = [value() for value in seen if value() is not None]
    finally:
        gc.enable()
    assert (found.tensor == x + 2).all()
    assert all(value is found or value in operands for value in alive) and len(seen) > len(alive)


def test_calls_of_changing_sizes():
    def body(x, w):
        h = weft.outer(x.reshape(-1), w)
        m = h
        h *= w
        h = weft.addcmul(h, h, h, value=0.5)
        return m, h.masked_fill(h > 1, 0.5)

    def scenario(compile):
        f, w, long, kept = compile(body), weft.randn(4, requires_grad=True), weft.linspace(-1, 1, 600), []
        for call in range(60):
            n = (1, 0, 4, 2 + call)[call % 4]
            x = long[: 4 * n].view(n, 4).clone().requires_grad_()
            m, h = f(x, w)
            kept.append((x, m, h))
            first = grad(h.square().sum(), [x, w], create_graph=True)
            yield grad(first[0].sum(), [x])

    twin(scenario)()
