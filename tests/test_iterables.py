"""Whatever takes an iterable takes a generator, and sees all of it: with weft alone, compiled, and as PyTorch does."""

import pytest
from iterable_containers import SEQUENCES
from iterable_programs import COMPILED, PROGRAMS, WALKS, layer, outcome, plain

import weft

ONCE = ["generator", "iterator", "map"]


def names(programs):
    return pytest.mark.parametrize("name", list(programs))


@names(PROGRAMS)
@pytest.mark.parametrize("walk", [k for k in WALKS if k != "list"])
def test_as_with_a_list(name, walk):
    expected, seen = (outcome(PROGRAMS[name], weft, WALKS[k]) for k in ("list", walk))
    assert seen[0] == expected[0]
    # That nothing is clipped is told where a generator was given, which may have been walked before.
    is_told = walk == "generator" and name in ("clipping_nothing", "clipping_with_a_spent_generator")
    assert seen[1] == ["`parameters` is an empty generator, no gradient clipping will occur."] * is_told


@names(SEQUENCES)
@pytest.mark.parametrize("walk", [k for k in WALKS if k not in ("list", "array of objects")])
def test_other_iterables_where_pytorch_wants_lists(name, walk):
    expected, seen = (outcome(SEQUENCES[name], weft, WALKS[k]) for k in ("list", walk))
    assert seen == expected or seen[0][:2] == ["raised", "TypeError"]


@names(COMPILED)
@pytest.mark.parametrize("walk", ["tuple", *ONCE])
def test_compiled(name, walk):
    function, made = COMPILED[name], []

    @weft.compile
    def step():
        return function(weft, WALKS[walk])

    for _ in range(4):
        made.append(plain(step()))
    assert made == [plain(function(weft, list))] * 4


@pytest.mark.oracle
@names(PROGRAMS)
@pytest.mark.parametrize("walk", list(WALKS))
def test_as_in_pytorch(name, walk):
    torch = pytest.importorskip("torch")
    expected, seen = (outcome(PROGRAMS[name], library, WALKS[walk]) for library in (torch, weft))
    assert seen[1] == expected[1]
    if isinstance(expected[0], list) and expected[0][0] == "raised":
        # weft's error may be of a further kind.
        assert seen[0][0] == "raised" and set(expected[0]) <= set(seen[0])
    else:
        assert_close(seen[0], expected[0])


@pytest.mark.oracle
@names(SEQUENCES)
@pytest.mark.parametrize("walk", ["list", "tuple"])
def test_sequences_as_in_pytorch(name, walk):
    torch = pytest.importorskip("torch")
    assert_close(plain(SEQUENCES[name](weft, WALKS[walk])), plain(SEQUENCES[name](torch, WALKS[walk])))


def assert_close(seen, expected):
    if isinstance(expected, list):
        assert isinstance(seen, list) and len(seen) == len(expected), (seen, expected)
        for a, b in zip(seen, expected):
            assert_close(a, b)
    elif isinstance(expected, float):
        assert seen == pytest.approx(expected, rel=1e-5, abs=1e-7, nan_ok=True)
    else:
        assert seen == expected


# --- a tensor alone, and things that are no tensors -------------------------------------------------------------------
def test_a_tensor_alone():
    made = layer(weft)
    assert weft.nn.utils.get_total_norm(made.weight).item() == weft.nn.utils.get_total_norm([made.weight]).item()
    before = made.weight.grad.norm().item()
    assert weft.nn.utils.clip_grad_norm_(made.weight, 1.0).item() == before
    assert made.weight.grad.norm().item() == pytest.approx(1.0, rel=1e-5)
    weft.nn.utils.clip_grad_value_(made.bias, 0.5)
    assert made.bias.grad.max().item() == 0.5
    x = weft.ones(2, requires_grad=True)
    assert weft.autograd.grad(x * 2, x, weft.ones(2))[0].tolist() == [2, 2]


CLIPPING = {
    "clip_grad_norm_": (1.0,),
    "clip_grad_value_": (1.0,),
    "clip_grads_with_norm_": (1.0, 1.0),
    "parameters_to_vector": (),
}


@pytest.mark.parametrize("name", list(CLIPPING))
def test_things_that_are_no_tensors(name):
    function, made = getattr(weft.nn.utils, name), layer(weft)
    with pytest.raises(TypeError, match=rf"{name}: parameters is a Linear; .* pass parameters.parameters\(\)"):
        function(made, *CLIPPING[name])
    with pytest.raises(TypeError, match=f"{name}: parameters is a int; it must be a tensor or an iterable of tensors"):
        function(5, *CLIPPING[name])
    with pytest.raises(TypeError, match="number 0 is a tuple; pass model.parameters\\(\\), without the names"):
        function(made.named_parameters(), *CLIPPING[name])


def test_vectors_that_are_no_tensors():
    with pytest.raises(TypeError, match="vec is a list; it must be a Tensor"):
        weft.nn.utils.vector_to_parameters([1.0] * 9, layer(weft).parameters())
    with pytest.raises(RuntimeError, match=r"vec has shape \(8,\), the parameters need \(9,\)"):
        weft.nn.utils.vector_to_parameters(weft.zeros(8), layer(weft).parameters())


def test_a_list_extended_by_itself():
    modules = weft.nn.ModuleList([weft.nn.ReLU()])
    modules.extend(modules)
    assert len(modules) == 2
