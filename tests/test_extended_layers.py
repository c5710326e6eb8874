"""Classes of users that call or replace the parts of PyTorch's layers: names with an underscore that programs know."""

import numpy as np
import pytest

import weft


def standardized(library):
    class Standardized(library.nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)

    return Standardized(2, 3, 3, padding=1, padding_mode="reflect")


def replaced(library):
    class Doubled(library.nn.Conv1d):
        def _conv_forward(self, input, weight, bias):
            return super()._conv_forward(input, weight * 2, bias)

    return Doubled(2, 3, 3)


def normed(library):
    class AnyRank(library.nn.BatchNorm1d):
        def _check_input_dim(self, input):
            if input.dim() < 2:
                raise ValueError("at least two dimensions")

    return AnyRank(2)


def evaluated(library):
    return normed(library).eval()


def gated(library):
    class Gated(library.nn.TransformerEncoderLayer):
        def __init__(self):
            super().__init__(8, 2, 16, dropout=0.0, batch_first=True)
            self.gate = library.nn.Parameter(library.ones(8) * 0.3)

        def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
            return self.gate * super()._sa_block(x, attn_mask, key_padding_mask, is_causal=is_causal)

        def _ff_block(self, x):
            return super()._ff_block(x) - x

    return Gated()


def decoder(library):
    class Decoder(library.nn.TransformerDecoderLayer):
        def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
            return super()._mha_block(x, mem * 2, attn_mask, key_padding_mask, is_causal)

        def forward(self, x):
            return super().forward(x, x + 1)

    return Decoder(8, 2, 16, dropout=0.0)


CASES = [
    (standardized, (2, 2, 5, 5)),
    (replaced, (2, 2, 5)),
    (normed, (3, 2, 4, 4)),
    (evaluated, (3, 2, 4, 4)),
    (gated, (2, 3, 8)),
    (decoder, (3, 2, 8)),
]


def trained(library, make, shape, weights=None, compile_it=False):
    """Results of three calls, and the gradients of all of them."""
    module = make(library)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(p.shape).astype(np.float32) for p in module.parameters()]
    with library.no_grad():
        for parameter, value in zip(module.parameters(), values):
            parameter.copy_(library.tensor(value))
    call = library.compile(module) if compile_it else module
    results = []
    for _ in range(3):
        result = call(library.tensor(rng.standard_normal(shape).astype(np.float32)))
        (result * result).sum().backward()
        results.append(result.detach().numpy())
    return results + [p.grad.numpy() for p in module.parameters()]


@pytest.mark.parametrize(("make", "shape"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_compiled_layers_do_what_the_users_parts_do(make, shape):
    eager, compiled = trained(weft, make, shape), trained(weft, make, shape, compile_it=True)
    assert [a.tobytes() for a in eager] == [b.tobytes() for b in compiled]


@pytest.mark.oracle
@pytest.mark.parametrize(("make", "shape"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_they_are_pytorchs(make, shape):
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(trained(weft, make, shape), trained(torch, make, shape), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


def test_a_part_that_is_not_pure_runs_in_every_call():
    class Counted(weft.nn.Conv1d):
        n_calls = 0

        def _conv_forward(self, input, weight, bias):
            self.n_calls += 1
            return super()._conv_forward(input, weight, bias)

    layer = Counted(1, 1, 1)
    call = weft.compile(layer)
    for _ in range(10):
        call(weft.ones(1, 1, 4))
    assert layer.n_calls == 10


def tables(library):
    class Table(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.table = library.nn.Linear(2, 2), library.ones(3)
            self.register_buffer("count", library.tensor(3))
            self.moves = 0

        def _apply(self, fn, *args, **kwargs):
            super()._apply(fn, *args, **kwargs)
            self.table, self.moves = fn(self.table), self.moves + 1
            return self

    module = library.nn.Sequential(Table(), library.nn.Tanh())
    weight = module[0].linear.weight
    module[0].linear(library.ones(1, 2)).sum().backward()
    module.to("cpu").cpu()
    module.double()
    found = [module[0].table.dtype, weight.dtype, weight.grad.dtype, module[0].count.dtype, module[0].moves]
    assert module[0].linear.weight is weight
    module._apply(lambda tensor: tensor * 2)
    return [*map(str, found), module[0].count.item(), module[0].table.tolist(), weight.grad.tolist()]


def test_what_a_module_keeps_in_attributes_is_converted_with_it():
    assert tables(weft) == ["weft.float64"] * 3 + ["weft.int64", "3", 6, [2.0] * 3, [[2.0, 2.0]] * 2]


@pytest.mark.oracle
def test_and_in_pytorch_too():
    torch = pytest.importorskip("torch")
    assert [str(x).replace("torch", "weft") for x in tables(torch)] == [*map(str, tables(weft))]


def test_whole_numbers_from_zero_up_to_one_bound():
    assert weft.randint(1, size=(2, 3)).tolist() == [[0] * 3] * 2
    assert weft.randint(1, size=(), dtype=weft.int32).dtype is weft.int32
