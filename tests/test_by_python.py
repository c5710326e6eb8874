"""Elements by functions of Python's, types for the same bytes, and how a tensor lies in memory: as in PyTorch."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

BOTH = pytest.mark.parametrize("module", [torch, weft], ids=["torch", "weft"])


@BOTH
def test_elements_are_replaced_by_what_a_function_makes_of_them(module):
    x = module.tensor([[1.0, 2.0], [3.0, 4.0]])
    part = x[0]
    assert x.apply_(lambda v: v * v + 1) is x and x.tolist() == [[2, 5], [10, 17]] and part.tolist() == [2, 5]
    assert x.map_(module.tensor([1.0, 2.0]), lambda a, b: a - b).tolist() == [[1, 3], [9, 15]]
    assert x.map2_(x.clone(), module.ones(2, 2), lambda a, b, c: a + b + c).tolist() == [[3, 7], [19, 31]]
    assert module.tensor([1, 2]).apply_(lambda v: v + 1).tolist() == [2, 3]
    for call in (
        lambda: x.clone().requires_grad_().apply_(abs),
        lambda: x.map_(module.ones(2, 2, requires_grad=True), max),
    ):
        with pytest.raises(RuntimeError, match="that requires grad"):
            call()
    with pytest.raises(TypeError):
        x.map_(module.ones(2, 2, dtype=module.int64), max)


def test_bytes_as_numbers_of_another_type():
    rng = np.random.default_rng(0)
    kinds = str.split("bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128")
    for own in ("float32", "int64", "uint8", "complex64"):
        array = (rng.standard_normal((3, 16)) * 50).astype("complex64" if own == "complex64" else "float64").astype(own)
        ours, theirs = weft.tensor(array), torch.tensor(array)
        for kind in kinds:
            a, b = ours.view(getattr(weft, kind)), theirs.view(getattr(torch, kind))
            assert a.shape == tuple(b.shape) and a.dtype.name == kind
            back = a.view(weft.uint8), b.view(torch.uint8)
            assert back[0].tolist() == back[1].tolist(), (own, kind)


@BOTH
def test_bytes_are_shared_and_have_no_gradients(module):
    x = module.zeros(2, 4)
    y = x.view(module.int32)
    y.fill_(1065353216)
    assert x.tolist() == [[1.0] * 4] * 2
    leaf = module.ones(4, requires_grad=True)
    for z in (leaf.view(module.int32), (leaf * 2).view(module.float64), leaf.view(dtype=module.float16)):
        assert not z.requires_grad and z.is_leaf
    assert x.t().view(module.int32).stride() == (1, 4)


@BOTH
def test_bytes_that_do_not_fit_are_refused(module):
    for call, words in (
        (lambda: module.ones(2, 3).view(module.float64), r"self.size\(-1\) must be divisible by 2"),
        (lambda: module.ones(2, 4).t().view(module.float64), r"self.stride\(-1\) must be 1"),
        (lambda: module.tensor(1.0).view(module.float64), r"self.dim\(\) cannot be 0"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


def test_bytes_in_a_compiled_call():
    """They run eagerly in it, and explain says so."""

    def bits(x):
        y = x * 2
        return (y.view(weft.int32) >> 23) & 255, y.sum()

    compiled = weft.compile(bits)
    for k in range(4):
        x = weft.randn(5) * 10**k
        for a, b in zip(bits(x), compiled(x)):
            assert a.equal(b)
    assert "the bytes of one type as another have no generated kernel" in str(compiled.explain())


@BOTH
def test_how_a_tensor_lies_in_memory(module):
    x = module.zeros(2, 3, 5, 7)
    assert x.dim_order() == (0, 1, 2, 3) and x.transpose(1, 2).dim_order() == (0, 2, 1, 3)
    assert x.permute(3, 0, 2, 1).dim_order() == (1, 3, 2, 0) and module.zeros(()).dim_order() == ()
    assert x.dim_order(ambiguity_check=True) == (0, 1, 2, 3)
    with pytest.raises(RuntimeError, match="does not have unique dim order"):
        module.zeros(1, 2, 3, 4).dim_order(ambiguity_check=True)
    with pytest.raises(TypeError, match="ambiguity_check"):
        x.dim_order(ambiguity_check="yes")


@BOTH
def test_what_else_a_tensor_says(module):
    x = module.ones(2, 3, requires_grad=True)
    assert x.name is None and x.grad_dtype is module.float32 and module.get_device(x) == -1
    assert not module.is_distributed(x) and x.const_data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="can only be accessed on leaf tensors"):
        (x * 2).grad_dtype  # noqa: B018
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert x.volatile is False
    with pytest.warns(UserWarning, match="non-inplace resize is deprecated"):
        assert x.resize(3, 2).shape == (3, 2)
    with pytest.warns(UserWarning, match="non-inplace resize_as is deprecated"):
        assert x.resize_as(module.ones(6)).shape == (6,)
    with pytest.raises(RuntimeError, match="reinforce.. was removed"):
        x.reinforce(1)
    y = module.zeros(2, 3)
    loaded = y.module_load(module.ones(2, 3))
    assert loaded.tolist() == y.tolist() == [[1] * 3] * 2 and y.module_load(x, assign=True).tolist() == x.tolist()


@BOTH
def test_vectors_of_files(module, tmp_path):
    path = str(tmp_path / "numbers")
    x = module.from_file(path, shared=True, size=3)
    x.copy_(module.tensor([1.0, 2.0, 3.0]))
    assert module.from_file(path, shared=True, size=2).tolist() == [1, 2]
    private = module.from_file(path, shared=False, size=3)
    private.add_(1)
    assert module.from_file(path, size=3, dtype=module.float32).tolist() == [1, 2, 3]
    with pytest.raises(RuntimeError):
        module.from_file(path, shared=False, size=30)


@BOTH
def test_names_that_say_where(module):
    assert module.get_device_module("cpu") is module.cpu and issubclass(module.OutOfMemoryError, RuntimeError)
    assert module.get_file_path("a", "b").endswith("a/b") and module.thread_safe_generator() is None
    assert module.legacy_contiguous_format == module.contiguous_format and module.jagged != module.strided
    before = module.is_anomaly_enabled()
    module.set_anomaly_enabled(True, False)
    assert module.is_anomaly_enabled() and not module.is_anomaly_check_nan_enabled()
    module.set_anomaly_enabled(before)
    with module.autograd.enforce_grad_layout_policy(False):
        leaf = module.ones(2, requires_grad=True)
        leaf.sum().backward()
    assert leaf.grad.tolist() == [1, 1]


# --- functions of functions -------------------------------------------------------------------------------------------
@BOTH
def test_functions_that_change_nothing_inside(module):
    def change(x):
        y = x.clone()
        y.mul_(2)
        x.add_(1)
        return x, y.view(-1)

    x = module.ones(2, 2)
    first, second = module.func.functionalize(change)(x)
    assert x.tolist() == first.tolist() == [[2, 2], [2, 2]] and second.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="received invalid argument for remove"):
        module.func.functionalize(change, remove="all")(x)
    assert module.func.debug_unwrap(x) is x


@pytest.mark.parametrize(
    "pattern, sizes",
    [
        ("b h w c -> b c h w", {}),
        ("b h w c -> (b h) w c", {}),
        ("b h w c -> b (c h w)", {}),
        ("b (h h2) (w w2) c -> (b h2 w2) h w c", {"h2": 2, "w2": 3}),
        ("b ... -> ... b", {}),
        ("b ... c -> b (...) c", {}),
        ("b h w c -> b 1 h w 1 c", {}),
        ("b h w c -> (b h w c)", {}),
        ("(a b) h w c -> a b h w c", {"a": 2}),
    ],
)
def test_dimensions_by_name(pattern, sizes):
    array = np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    ours = weft.func.rearrange(weft.tensor(array), pattern, **sizes)
    theirs = torch.func.rearrange(torch.tensor(array), pattern, **sizes)
    assert ours.shape == tuple(theirs.shape) and ours.tolist() == theirs.tolist()


def test_dimensions_that_do_not_fit_their_names():
    x = weft.zeros(2, 4)
    for pattern, sizes in (
        ("a b c -> a b c", {}), ("a b -> a", {}), ("a b -> a b b", {}), ("a (b c) -> a b c", {}), ("a b", {}),
        ("a (b c) -> a b c", {"b": 3}), ("a b -> b a", {"z": 1}), ("(a b -> a b", {}), ("a b -> a-b", {}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="rearrange"):
            weft.func.rearrange(x, pattern, **sizes)
    assert weft.func.rearrange([weft.zeros(3), weft.ones(3)], "n c -> c n").shape == (3, 2)


# --- data pipes -------------------------------------------------------------------------------------------------------
def pipes_of(module):
    if module is torch:
        import torch.utils.data.datapipes.iter as pipes
    else:
        import weft.utils.data.datapipes.iter as pipes
    return pipes


@BOTH
def test_pipes_are_chains_of_steps(module):
    wrap = pipes_of(module).IterableWrapper
    chain = wrap(range(10)).filter(lambda n: n % 2 == 1).map(lambda n: n * n).batch(2)
    assert [list(batch) for batch in chain] == [list(batch) for batch in chain] == [[1, 9], [25, 49], [81]]
    assert [list(b) for b in wrap(range(5)).batch(2, drop_last=True)] == [[0, 1], [2, 3]]
    assert len(wrap(range(5)).batch(2)) == 3 and len(wrap(range(5)).map(str)) == 5
    assert list(wrap([[1, 2], [3]]).unbatch()) == [1, 2, 3]
    assert list(wrap(range(3)).zip(wrap("abc"))) == [(0, "a"), (1, "b"), (2, "c")]
    assert list(wrap(range(2)).concat(wrap(range(2)))) == [0, 1, 0, 1]
    assert sorted(wrap(range(20)).shuffle(buffer_size=5)) == list(range(20))
    assert list(wrap([(1, 2), (3, 4)]).map(lambda v: -v, input_col=1)) == [(1, -2), (3, -4)]
    assert [batch.tolist() for batch in wrap(range(4)).batch(2).collate()] == [[0, 1], [2, 3]]
    part = wrap(range(7)).sharding_filter()
    part.apply_sharding(3, 1)
    assert list(part) == [1, 4] and len(part) == 2


@BOTH
def test_pipes_of_ones_own(module):
    data = module.utils.data

    @data.functional_datapipe(f"doubled_by_{module.__name__}")
    class Doubled(data.IterDataPipe):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            for x in self.source:
                yield 2 * x

    wrap = pipes_of(module).IterableWrapper
    assert list(getattr(wrap(range(3)), f"doubled_by_{module.__name__}")()) == [0, 2, 4]
    if module is weft:  # PyTorch's loader pickles what it is given
        assert [b.tolist() for b in data.DataLoader(Doubled(wrap(range(4))), batch_size=2)] == [[0, 2], [4, 6]]
    if module is weft:  # where PyTorch's lets a class of any kind by
        with pytest.raises(TypeError, match="can only decorate"):
            data.functional_datapipe("other")(int)
    with pytest.raises(Exception, match="already taken"):
        data.functional_datapipe("map")(Doubled)
    with pytest.raises(AttributeError):
        wrap(range(3)).nothing()
    chunk = data.DataChunk([1, 2])
    assert list(chunk) == list(chunk.raw_iterator()) == [1, 2] and chunk.as_str() == "[1, 2]"


@BOTH
def test_pipes_in_the_order_of_chance_can_be_refused(module):
    data = module.utils.data

    @data.non_deterministic
    class Drawn(data.IterDataPipe):
        def __iter__(self):
            yield 1

    assert list(Drawn()) == [1]
    with data.guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="non-deterministic"):
        Drawn()
    assert list(Drawn()) == [1]
