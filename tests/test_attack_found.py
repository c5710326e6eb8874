"""What the attack (tests/attack) has found: each program as small as it got, and its relatives."""

import pytest
from compiled_twin import leaf, twin

import weft
from weft.autograd import grad

FORWARDS = {
    "float32": lambda w, y: (w * y).sin(),
    "converted": lambda w, y: (w.double() * y).sin(),
    "promoted": lambda w, y: (w * y.double()).sin(),
    "gradient": lambda w, y: grad((w.double() * y).sin().sum(), w, create_graph=True)[0],
    "several": lambda w, y: (w.double() * y).sin() + (w.double() + y).exp() * (w * y).cos(),
}


@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
def test_an_input_that_is_saved_and_then_changed_in_the_call(forward):
    """Where the cheapest thing to save was the input itself, the backward read its memory, not what was saved."""

    def scenario(compile):
        w = leaf(3, 4)

        @compile
        def step(y):
            result = forward(w, y)
            with weft.no_grad():
                w.add_(1.0)
            return result

        for _ in range(6):
            result = step(weft.randn(3, 4))
            result.backward(weft.ones_like(result))
            yield w.grad

    twin(scenario)()
