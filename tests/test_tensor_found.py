"""What comparing with PyTorch has found wrong once, and keeps right: an expression or a few statements that set `r`.

Each runs in weft, eagerly and compiled, which must agree bit for bit; where PyTorch is installed, with it too.
"""

import io

import numpy as np
import pytest
from test_tensor_spellings import assert_same, compared

import weft

# A NumPy number is a number: np.sqrt(2.0) is a Python float as well, and is none to those who ask for the exact type.
NUMBERS = """
x * np.float64(2) ; np.sqrt(4.0) * x ; x / np.float32(3) ; x ** np.float64(2) ; np.float64(2) ** x ; 2 - x * np.int64(2)
x.clamp(np.float64(0.5)) ; x.clamp_(np.float64(0), np.float32(1)) ; x.fill_(np.float64(3)) ; x.add_(np.float32(3))
ns.where(x > 0.5, x, np.float64(1)) ; x.masked_fill(x > 0.5, np.float64(2)) ; ns.full((2,), np.float64(2))
ns.full_like(x, np.float64(2)) ; x.new_full((2,), np.float64(2)) ; x.sum(np.int64(0))
ns.full((2,), ns.tensor(3.0)) ; ns.full((2,), np.float32(3)) ; x.flip(np.int64(0)) ; x.roll(np.int64(1), np.int64(0))
x.chunk(np.int64(2)) ; x.movedim(np.int64(0), 1) ; ns.arange(np.float64(0), 1, np.float64(0.5))
ns.arange(np.int64(3)) ; ns.arange(ns.tensor(3)) ; ns.arange(end=3) ; ns.tril(x, np.int64(0))
"""
# Statements that change a tensor change it for everyone who holds it.
IN_PLACE = """
y = x ; x **= 2 ; r = x, y, x is y
y = x ; x %= 0.5 ; r = x, y, x is y
y = x ; x //= 0.5 ; r = x, y, x is y
y = i ; i //= 2 ; i %= 3 ; i **= 2 ; r = i, y, i is y
y = i ; i &= 6 ; i |= 1 ; i ^= 2 ; r = i, y, i is y
k &= ~k ; r = k
x.div_(0.3, rounding_mode="floor") ; r = x
x.div_(-0.3, rounding_mode="trunc") ; r = x
x.requires_grad_() ; y = x * 1 ; y **= 3 ; y.sum().backward() ; r = x.grad
x.requires_grad_() ; y = x * 3 ; y %= 2 ; y.sum().backward() ; r = x.grad
"""


def expressions(block):
    return [f"r = {e.strip()}" for e in block.replace("\n", ";").split(";") if e.strip()]


def statements(block):
    return ["\n".join(s.strip() for s in line.split(" ; ")) for line in block.strip().splitlines()]


# Types and shapes.
RESULTS = """
i.masked_fill(k, 2.5) ; k.masked_fill(k, 0) ; k.masked_fill_(k, 0.0) ; i.masked_fill(k, ns.tensor(2.5))
x.to(ns.float32, copy=True).data_ptr() == x.data_ptr() ; x.to(ns.float32).data_ptr() == x.data_ptr()
x.to(device="cpu", dtype=ns.float64) ; x.to("cpu", ns.float64, False, True)
e.flatten(1) ; e.flatten(0, 1) ; ns.zeros(2, 0, 3).flatten(1) ; ns.zeros(2, 0, 3).flatten(0, 1)
ns.var_mean(x, False) ; ns.std_mean(x, 1, False) ; ns.var_mean(x, 1, True, True) ; ns.std_mean(x, 0, correction=2)
ns.finfo(ns.float32).eps ; ns.finfo(ns.float64).max ; ns.finfo().tiny ; ns.iinfo(ns.int32).max
ns.cat([ns.tensor([]), ns.tensor([1, 2])]) ; ns.cat([ns.tensor([1, 2]), ns.tensor([])]) ; ns.nan_to_num(i)
ns.tensor([np.float64(1.5), 2]) ; ns.tensor([np.ones(2), np.ones(2)]) ; ns.tensor([np.float32(1.5), 2.5])
ns.tensor([ns.tensor(1.0), ns.tensor(2)]) ; ns.tensor([np.int32(1), 2]) ; ns.tensor([True, 2.5])
f"{s} {s:.2f}" ; f"{x}" ; f"{x[0, 0]}" ; "%.3f" % s ; str(s) ; f"{nn.Parameter(s)}"
"""
# Names of arguments.
ARGUMENTS = """
x.sum(axis=1) ; x.mean(axis=(0, 1), keepdims=True) ; x.max(axis=1) ; ns.min(x, axis=0, keepdims=True) ; x.std(axis=0)
x.argmax(axis=1) ; ns.cat([x, y], axis=1) ; ns.stack([x, y], axis=1) ; x.squeeze(axis=0) ; x.unsqueeze(axis=0)
ns.softmax(x, axis=1) ; x.log_softmax(axis=0) ; ns.max(x, other=y) ; ns.norm(x, dtype=ns.float64) ; x.norm(3, 1)
F.relu(input=x, inplace=False) ; F.leaky_relu(x, 0.2, True) ; F.cross_entropy(input=x, target=ns.tensor([0, 2]))
F.linear(input=x, weight=y) ; F.dropout(input=x, p=0.5, training=False) ; nn.ReLU()(input=x) ; F.one_hot(input=i)
F.mse_loss(input=x, target=y, reduction="sum") ; F.embedding(input=i, weight=ns.ones(8, 2)) ; x.min(1) ; str(x.min(1))
"""
# Products of integers.
PRODUCTS = """
i @ i.T ; i.T @ i[:, 0] ; i[0] @ i[1] ; ns.dot(i[0], i[1]) ; ns.mm(i.int(), i.T.int()) ; ns.addmm(i[0, :2], i, i.T)
i[None].expand(3, 2, 3) @ i.T ; ns.inner(i, i) ; ns.bmm(i[None], i.T[None])
ns.zeros(2, 0).long() @ ns.zeros(0, 3).long()
"""
# The diagonal is a view, of any two dimensions.
DIAGONALS = """
d = ns.ones(4, 3) ; d.diagonal().fill_(7) ; d.diagonal(-1).mul_(2) ; r = d
d = ns.ones(2, 3, 4) * 2 ; d.diagonal(1, -1, 0)[:] = 5 ; d.diagonal(0, 1, 2).add_(x[:, :1]) ; r = d, ns.diagonal(d, 1)
d = ns.ones(3, 3) ; r = d.fill_diagonal_(4), ns.trace(d), ns.diag(d, 1), ns.diag(d).data_ptr() == d.data_ptr()
d = ns.ones(3, 3) ; v = d.diagonal() ; d += 1 ; r = v, v.stride(), v.is_contiguous(), ns.ones(3, 3).bool().diagonal()
d = x.requires_grad_() * 2 ; v = d.diagonal(1) ; (v * v).sum().backward() ; r = x.grad
"""
# Options of modules, loaders and files.
OPTIONS = """
b = nn.BatchNorm1d(3, momentum=None) ; b(x) ; b(y * 2) ; r = list(b.state_dict().values())
b = nn.BatchNorm1d(3) ; b(x) ; b.reset_running_stats() ; r = list(b.state_dict().values())
b = nn.BatchNorm1d(3) ; r = b.get_buffer("running_var")
r = [b for b in ns.utils.data.DataLoader(ns.utils.data.TensorDataset(x, y), batch_sampler=[[1, 0], [1]])]
r = [b for b in ns.utils.data.DataLoader([1, 2, 3], 2, num_workers=0, pin_memory=False, drop_last=True)]
f = io.BytesIO() ; ns.save(x, f) ; f.seek(0) ; r = ns.load(f, map_location="cpu", weights_only=True)
"""
SPELLINGS = """
ns.inf ; ns.nan ; ns.pi ; ns.e ; x.new_zeros(2, requires_grad=True) ; x.new_ones(size=(2,)) ; x.new_full((2,), 3.5)
i.new_full((2,), 3.5) ; x.new_tensor([1], requires_grad=True) ; x.narrow(1, -2, 2) ; x.narrow(1, ns.tensor(1), 2)
x.view(size=(3, 2)) ; x.flip(0, 1) ; x.flip((0, 1)) ; ns.flip(x, dims=(1,)) ; x.flip([]) ; x.type()
ns.split(x, split_size_or_sections=2, dim=1) ; x.split(split_size=[1, 2], dim=1) ; x.square_() ; ns.zeros_like(input=x)
ns.randint(high=5, size=(2,)).shape ; ns.bernoulli(x, 1.0) ; ns.bernoulli(input=ns.zeros(2)) ; ns.diff(k)
ns.diff(x, 5) ; ns.diff(x, prepend=x[:, :1]) ; x.diff(dim=0, append=y) ; x.scatter(0, i[:1] % 2, value=7.0)
x.repeat_interleave(2) ; x.scatter_(0, i[:1] % 2, y, reduce="add") ; x.repeat_interleave(2, dim=0)
ns.repeat_interleave(x, ns.tensor([1, 0, 2]), 1)
"""
# A list that holds sequences stands for a tuple of keys; a single bool adds a dimension of one slice or none.
KEYS = """
x[[[0, 1], [1, 2]]] ; x[[i[0] % 2, i[1] % 3]] ; x[[[0, 1]]] ; x[[slice(0, 1), 2]] ; x[[0, 1]] ; x[[None, 0]]
x[True] ; x[False] ; x[True, 0] ; x[:, True] ; x[0, False] ; x[ns.tensor(True)] ; x[x[0, 0] > 0.5] ; s[s > 0.4]
s[True] ; s[False] ; ns.masked_select(s, s > 0.4)
"""
WRITES = """
x[[[0, 1], [1, 2]]] = 7 ; r = x
x[True] = 7 ; r = x
x[False] = 7 ; r = x
x[True, 0] = y[0] ; r = x
x[x[0, 0] > 0.5, 1] = 7 ; r = x
s[s > 0.4] = 3 ; r = s
"""
# Copies are copies; a view that repeats nothing may be written to.
MEMORY = """
v = x.repeat(1, 1) ; x.mul_(2) ; v.add_(1) ; r = v, x
v = x.tile(1) ; x.mul_(2) ; r = v, x
v = x[:1].repeat(3, 1) ; x.mul_(2) ; v[0] = 7 ; r = v, x
v = x[:, :1].tile(1, 4) ; x.mul_(2) ; r = v, x
x.expand_as(y).add_(1) ; x.expand(1, 2, 3)[0, 1] = 7 ; ns.broadcast_tensors(x, y)[0].mul_(2) ; r = x
"""
# Derivatives where the function has a corner, at infinities, and where a root or a quotient has none.
CORNERS = """
F.relu6 ; F.hardtanh ; F.hardsigmoid ; F.hardswish ; lambda c: F.hardtanh(c, -3, 2) ; lambda c: c[:2].std()
lambda c: c[:4].reshape(2, 2).std(1) ; lambda c: c[:1].std(correction=0) ; lambda c: c[:1].var()
lambda c: ns.norm(c[:2], 3) ; lambda c: ns.norm(c[:4], 0.5) ; lambda c: ns.norm(c[:2] * 0, 1.5)
lambda c: ns.norm(c[:6], 4) ; lambda c: ns.atan2(c[:6], c[:6].detach())
lambda c: ns.atan2(c[:6].detach() * 0, c[:6])
lambda c: ns.logaddexp(c[:6], c[:6].detach()) ; lambda c: ns.logaddexp(c, c.flip(0)).detach()
"""


def derivatives(block):
    make = "c = ns.tensor([0.0, 0.0, 3.0, -3.0, 1.0, 6.0, 2.0, inf, -0.5], requires_grad=True) ; y = ({})(c)"
    take = "g = ns.autograd.grad(y.sum(), c)[0] if y.requires_grad else None ; r = y.detach(), g"
    return ["\n".join(f"{make.format(f[4:])} ; {take}".split(" ; ")) for f in expressions(block)]


PROGRAMS = [
    *(e for block in (NUMBERS, RESULTS, ARGUMENTS, SPELLINGS, PRODUCTS, KEYS) for e in expressions(block)),
    *(s for block in (IN_PLACE, DIAGONALS, OPTIONS, WRITES, MEMORY) for s in statements(block)),
    *derivatives(CORNERS),
]


def operands(ns):
    numbers = np.random.default_rng(0)
    return {
        "x": ns.tensor(np.float32(numbers.uniform(0.1, 0.9, (2, 3)))),
        "y": ns.tensor(np.float32(numbers.uniform(0.1, 0.9, (2, 3)))),
        "i": ns.tensor([[1, 2, 3], [4, 5, 6]]),
        "k": ns.tensor([[True, False, True], [False, False, True]]),
        "s": ns.tensor(0.5),
        "e": ns.zeros(0, 3),
    }


def result(program, ns, tensors):
    known = {"ns": ns, "io": io, "F": ns.nn.functional, "nn": ns.nn, "np": np, "inf": np.inf, "nan": np.nan, **tensors}
    exec(program, known)
    return known["r"]


def bits(value):
    """A result with its bits, to be compared by ==."""
    if isinstance(value, weft.Tensor):
        return value.dtype, value.shape, value.requires_grad, value.detach().numpy().tobytes()
    return [bits(v) for v in value] if isinstance(value, (tuple, list)) else repr(value)


@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled_as_eager(program):
    eager = result(program, weft, operands(weft))
    compiled = weft.compile(lambda tensors: result(program, weft, tensors))(operands(weft))
    assert bits(compiled) == bits(eager)


@pytest.mark.parametrize("compiled", [False, True])
def test_repeated_elements_are_not_written_to(compiled):
    def change(x):
        x[:1].expand(2, 3).add_(1)

    x = weft.ones(2, 3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        (weft.compile(change) if compiled else change)(x)
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]


def read_only(tmp_path):
    """An array whose memory the system lets nobody write to."""
    np.save(tmp_path / "numbers.npy", np.ones(4096, np.float32))
    return np.load(tmp_path / "numbers.npy", mmap_mode="r")


def test_read_only_memory_is_not_written_to(tmp_path):
    """Neither by an argument nor by a parameter that takes the place of one a compiled call has changed before."""
    double = weft.compile(lambda x: x.mul_(2))
    weight = weft.ones(4096, requires_grad=True)
    optimizer = weft.optim.SGD([weight], lr=0.1)

    @weft.compile
    def step():
        (weight * 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(4):
        double(weft.ones(4096))
        step()
    array = read_only(tmp_path)
    shared = weight.data = weft.from_numpy(array)
    for change in (lambda: shared.mul_(2), lambda: double(shared), step, lambda: double(shared), step):
        with pytest.raises(RuntimeError, match="memory the tensor shares is read-only"):
            change()
    assert (array == 1).all()


def test_fields_of_records():
    """Their elements are no whole number of elements apart, which the strides of a program cannot say."""
    records = np.zeros(3, dtype=[("kind", "u1"), ("value", "f4")])
    records["value"] = [1, 2, 3]
    with pytest.raises(ValueError, match="strides .* not a multiple of the element byte size"):
        weft.from_numpy(records["value"])
    for made in (weft.tensor, weft.as_tensor):
        assert weft.compile(lambda x: x * 2)(made(records["value"])).tolist() == [2, 4, 6]
    assert (weft.ones(3) * records["value"]).tolist() == [1, 2, 3]


def test_functions_written_with_extremes_take_numbers_though_maximum_does_not():
    """maximum refuses numbers, as PyTorch's does; ranks, solutions and limits of bools were computed with it."""
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        weft.maximum(weft.ones(2), 0.5)
    assert weft.linalg.matrix_rank(weft.ones(2, 2)).item() == 1
    assert weft.linalg.lstsq(weft.ones(2, 1), weft.tensor([[1.0], [3.0]])).solution.allclose(weft.tensor([[2.0]]))
    assert weft.clamp(weft.tensor([True, False]), min=True).tolist() == [True, True]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_torch(program):
    torch = pytest.importorskip("torch")
    ours, theirs = result(program, weft, operands(weft)), result(program, torch, operands(torch))
    assert_same(compared(ours), compared(theirs))
