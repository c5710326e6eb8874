"""weft._foreach_*: functions of every tensor of a list, against PyTorch and against the loop written out."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.paths import FOREACH_OF_ONE

SHAPES = [(2,), (3, 2), ()]
UNARY = FOREACH_OF_ONE.split()


def made(module, shift=0.1):
    draw = np.random.default_rng(4)
    return [module.from_numpy(np.asarray(draw.random(shape) * 0.8 + shift, np.float32)) for shape in SHAPES]


CALLS = {
    **{stem: lambda m: (made(m),) for stem in [*UNARY, *(f"{n}_" for n in UNARY if n != "frac")]},
    **{
        f"{stem}{form} {kind}": call
        for stem in ["add", "sub", "mul", "div", "pow", "clamp_min", "clamp_max", "maximum", "minimum"]
        for form in ("", "_")
        for kind, call in {
            "number": lambda m: (made(m), 0.5),
            "lists": lambda m: (made(m), made(m, 0.3)),
            "numbers": lambda m: (tuple(made(m)), [0.5, 0.4, 0.3]),
        }.items()
    },
    "add tensor": lambda m: (made(m), m.tensor(2.0)),
    "pow base": lambda m: (2.0, made(m)),
    **{
        f"{stem} {kind}": call
        for stem in ("addcmul", "addcmul_", "addcdiv", "addcdiv_")
        for kind, call in {
            "plain": lambda m: (made(m), made(m, 0.3), made(m, 0.5)),
            "number": lambda m: (made(m), made(m, 0.3), made(m, 0.5), -0.5),
            "numbers": lambda m: (made(m), made(m, 0.3), made(m, 0.5), [1.0, 2.0, 3.0]),
            "tensor": lambda m: (made(m), made(m, 0.3), made(m, 0.5), m.tensor([1.0, 2.0, 3.0])),
        }.items()
    },
    "lerp number": lambda m: (made(m), made(m, 0.3), 0.25),
    "lerp_ number": lambda m: (made(m), made(m, 0.3), 0.25),
    "lerp lists": lambda m: (made(m), made(m, 0.3), made(m, 0.5)),
    "copy_": lambda m: (made(m), made(m, 0.3)),
    "zero_": lambda m: (made(m),),
    "clone": lambda m: (made(m),),
    "norm": lambda m: (made(m),),
    "norm order": lambda m: (made(m), float("inf")),
    "max": lambda m: (made(m),),
    "powsum": lambda m: (made(m), 3),
}


@pytest.mark.oracle
@pytest.mark.parametrize("call", CALLS)
def test_results_are_pytorchs(call):
    torch = pytest.importorskip("torch")
    name = f"_foreach_{call.split()[0]}"
    results = []
    for module in (torch, weft):
        arguments = CALLS[call](module)
        result = getattr(module, name)(*arguments)
        if name.endswith("_"):
            result = arguments[0]
        results.append([np.asarray(tensor) for tensor in result])
    for theirs, ours in zip(*results, strict=True):
        assert (theirs.shape, theirs.dtype) == (ours.shape, ours.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-7)


@pytest.mark.oracle
def test_every_name_is_there():
    torch = pytest.importorskip("torch")
    assert [name for name in dir(torch) if name.startswith("_foreach") and not hasattr(weft, name)] == []


def test_results_are_tuples_and_changes_return_nothing():
    tensors = made(weft)
    assert isinstance(weft._foreach_add(tensors, 1), tuple)
    before = [tensor.numpy().copy() for tensor in tensors]
    assert weft._foreach_add_(tensors, made(weft), alpha=2) is None
    assert all((now.numpy() == was + 2 * was).all() for now, was in zip(tensors, before, strict=True))


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (lambda: (weft.ones(2), 1), TypeError, "must be tuple of Tensors, not Tensor"),
        (lambda: ([], 1), RuntimeError, "at least one tensor"),
        (lambda: ([1, 2], 1), TypeError, "expected Tensor as element 0"),
        (lambda: (made(weft), made(weft)[:2]), RuntimeError, "same number of tensors, got 3 and 2"),
        (lambda: (made(weft), [1.0]), RuntimeError, "same number of elements as scalar list, got 3 and 1"),
        (lambda: (made(weft), weft.ones(2)), RuntimeError, "expected to be 0 dim but it has 1 dimensions and 2"),
        (lambda: (made(weft),), TypeError, "takes two operands"),
    ],
)
def test_errors(arguments, kind, message):
    with pytest.raises(kind, match=message):
        weft._foreach_add(*arguments())


def test_gradients_pass_through():
    tensors = [tensor.requires_grad_() for tensor in made(weft)]
    sum(tensor.sum() for tensor in weft._foreach_mul(tensors, [2.0, 3.0, 4.0])).backward()
    assert [tensor.grad.reshape(-1).tolist()[0] for tensor in tensors] == [2.0, 3.0, 4.0]


class Momentum(weft.optim.Optimizer):
    """An optimizer as strangers write them for speed."""

    def __init__(self, params, lr=0.1, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    @weft.no_grad()
    def step(self):
        for group in self.param_groups:
            changed = [p for p in group["params"] if p.grad is not None]
            gradients = [p.grad for p in changed]
            for p in changed:
                self.state[p].setdefault("momentum", weft.zeros_like(p))
            momenta = [self.state[p]["momentum"] for p in changed]
            weft._foreach_mul_(momenta, group["beta"])
            weft._foreach_add_(momenta, gradients, alpha=1 - group["beta"])
            scales = weft._foreach_sqrt(weft._foreach_add(weft._foreach_mul(momenta, momenta), 1e-3))
            weft._foreach_addcdiv_(changed, momenta, scales, value=-group["lr"])


def test_an_optimizer_of_lists_compiles_to_equal_bits():
    def trained(wrap):
        weft.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
        optimizer = Momentum(model.parameters())
        draw = np.random.default_rng(1)
        x, y = (weft.from_numpy(draw.random((8, n)).astype(np.float32)) for n in (3, 1))

        @wrap
        def step():
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step().item() for _ in range(5)]
        assert losses[-1] < losses[0]
        return losses, [p.detach().numpy().tobytes() for p in model.parameters()]

    assert trained(lambda f: f) == trained(weft.compile)


def test_tensors_grouped_by_type():
    from weft.utils._foreach_utils import _group_tensors_by_device_and_dtype

    tensors = [weft.ones(1), weft.ones(2, dtype=weft.float64), weft.ones(3)]
    groups = _group_tensors_by_device_and_dtype([tensors, tensors], with_indices=True)
    assert {dtype: positions for (_, dtype), (_, positions) in groups.items()} == {
        weft.float32: [0, 2],
        weft.float64: [1],
    }
    ((first, second), _) = groups[weft.device("cpu"), weft.float32]
    assert first[1] is second[1] is tensors[2]
