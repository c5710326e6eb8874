"""Sparse tensors: what they are, what functions make of them, and what PyTorch makes of the same."""

import copy
import io
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import weft

INDICES, VALUES = [[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0]
LAYOUTS = {
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((1, 3)),
    "bsc": lambda x: x.to_sparse_bsc((2, 1)),
}


def tensors(ns):
    """What the calls below are made of."""
    dense = ns.arange(6.0).reshape(2, 3)
    twice = ns.sparse_coo_tensor(ns.tensor(INDICES), ns.tensor(VALUES), (2, 3))
    hybrid = ns.tensor([[0.0, 1.0], [3.0, 0.0]]).to_sparse(1)
    made = {"s": twice, "c": twice.coalesce(), "d": dense, "h": hybrid, "ns": ns}
    return {**made, **{name: make(dense.to_sparse()) for name, make in LAYOUTS.items()}}


def result(ns, call):
    """The elements of what a call gives, and its layout; of an error the words "error" and its class."""
    try:
        made = eval(call, tensors(ns))
    except Exception as error:  # noqa: BLE001 - what PyTorch raises is what is asked
        return "error", type(error).__name__
    if isinstance(made, ns.Tensor):
        layout = str(made.layout).rpartition(".")[2]
        return layout, tuple(made.shape), str(made.dtype).rpartition(".")[2], made.to_dense().tolist()
    return made


ALIKE = str.split("""
    s+s s+c c+c c-s s*2 2*s s/2 s//2 -s s*d d*s s*s s*c s**2 d+s d-s abs(s) s@d.t() s@d[0] d@s.t() s@s.t() d[0]@s.t()
    s.t() s.T s.transpose(0,1) s.permute(1,0) s.unsqueeze(0) s.unsqueeze(2) s.sum() s.sum(0) s.sum(1) s.sum([0,1])
    s.sum(0,keepdim=True) s.sum(-1,dtype=ns.float64) ns.sparse.sum(s) ns.sparse.sum(s,0) ns.sparse.sum(h,1)
    ns.sparse.sum(h,0) s.sin() s.sqrt() s.relu() s.log1p() s.isnan() s.sign() s.double() s.int() s.bool() s.norm()
    s.to(ns.float64) s.type() ns.norm(s) ns.mm(s,d.t()) ns.mm(d,s.t()) ns.mv(s,d[0]) ns.spmm(s,d.t()) ns.dsmm(s,d.t())
    ns.sparse.mm(s,s.t()) ns.sparse.mm(c,d.t()) ns.addmm(d[:,:2],s,d.t())
    ns.sparse.addmm(d[:,:2],s,d.t(),beta=2,alpha=3)
    ns.add(d,s,alpha=2) d.clone().add_(s) s.clone().mul_(2) s.clone().add_(c) s.clone().zero_() s.clone().copy_(c)
    ns.zeros_like(s) ns.cat([s,c],0) ns.cat([s,c],1) ns.cat([h,h],1) ns.stack([s,c]) s[0] s[1,0] s[:,0] s[-1] s[:,1:]
    h[0] h[1,0] h.t() h+h h*h s.index_select(0,ns.tensor([1,0,1])) h.index_select(1,ns.tensor([1])) c.select(1,2)
    d.sparse_mask(s) d.sparse_mask(c) s.coalesce() s.is_coalesced() c.is_coalesced() s._nnz() c._nnz() s.sparse_dim()
    h.dense_dim() s.dim() s.numel() len(s) s.size() s.is_sparse d.is_sparse d.sparse_dim() d.dense_dim() s.any()
    s._indices() s._values() c.indices() c.values() s.indices() s.values() d.coalesce() d.indices() d.values()
    s.crow_indices() s+d s+1 s/s s/d s.numpy() s.item() s.reshape(3,2) s.mean() s.exp() s.contiguous() s.is_contiguous()
    d.to_sparse() d.to_sparse(1) d.to_sparse(0) d.to_sparse(3) s.to_sparse() d.to_sparse(layout=ns.sparse_csr)
    ns.sparse.softmax(s,1) ns.sparse.softmax(s,0) ns.sparse.log_softmax(c,1) ns.sparse.softmax(h,0)
    ns.sparse.softmax(h,1) ns.sparse.spdiags(d,ns.tensor([0,-1]),(3,3)) ns.sparse.FloatTensor(2,3)
    ns.sparse.FloatTensor(s._indices(),s._values(),ns.Size([4,5])) ns.sparse_coo_tensor((2,3))
    ns.sparse_coo_tensor(s._indices(),s._values()) ns.sparse_coo_tensor([[0,1]],[1,2]) s.new_zeros(2) s.detach()
    ns.sparse_coo_tensor(s._indices(),s._values(),(2,3,4)) ns.sparse_coo_tensor(s._indices(),s._values()[:2],(2,3))
    ns.bmm(ns.stack([s,c]),ns.stack([d.t(),d.t()])) csr@d.t() csr@d[0] csr*2 csr.sum() csr+csr csr.to_sparse_csc()
    csr.crow_indices() csr.col_indices() csr.values() csr.indices() csc.ccol_indices() csc.row_indices() csc.to_sparse()
    csc.crow_indices() bsr.values() bsr.crow_indices() bsc.values() bsc.row_indices() csr.to_dense() bsc.to_sparse_csr()
    csr.t() csr._nnz() csr.layout==ns.sparse_csr csr.is_sparse csr.is_sparse_csr csr.sin() csr.double()
    d.to_sparse_bsr(4)
    ns.sparse.sampled_addmm(csr,d,d.t()@d,beta=2.0,alpha=0.5) ns.sparse_csr_tensor([0,1,2],[0,1],[1.0,2.0])
    ns.sparse_csr_tensor([0,1,2],[0,1],[1.0,2.0],(2,4)) ns.sparse_csc_tensor([0,1,2],[0,1],[1.0,2.0])
    d.sparse_mask(csr) ns.is_tensor(s) isinstance(s,ns.Tensor)
    s.is_floating_point() isinstance(s,ns.sparse.FloatTensor) isinstance(d,ns.sparse.FloatTensor)
""")
# Here PyTorch raises, and weft does not.
MORE = str.split("s[:,1:] bsc.to_sparse_csr()")
ASKS = True


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", ALIKE)
def test_results_are_those_of_pytorch(call):
    torch = pytest.importorskip("torch")
    found, expected = result(weft, call), result(torch, call)
    if isinstance(expected, tuple) and expected[0] == "error":
        assert found[0] == "error" or call in MORE, found
        return
    if isinstance(expected, tuple) and len(expected) == 4:
        assert found[:3] == expected[:3]
        np.testing.assert_allclose(found[3], expected[3], rtol=1e-6)
    else:
        assert str(found).replace("weft.", "torch.") == str(expected).replace("torch.Size([2, 3])", "(2, 3)")


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", str.split("s c h d.to_sparse(1) csr csc bsr bsc ns.zeros(2,0).to_sparse() s.double()"))
def test_texts_are_those_of_pytorch(call):
    torch = pytest.importorskip("torch")
    ours, theirs = (repr(eval(call, tensors(ns))) for ns in (weft, torch))
    # The name of the library decides where a line ends.
    assert ours.replace("weft.", "torch.").split() == theirs.split()


def test_an_index_outside_is_refused():
    """PyTorch takes it, unless its checks are on."""
    indices, values = weft.tensor(INDICES), weft.tensor(VALUES)
    with pytest.raises(RuntimeError, match="for dim 0, size is 1 but found index 1"):
        weft.sparse_coo_tensor(indices, values, (1, 3))
    with pytest.raises(RuntimeError, match="found negative index -1 for dim 0"):
        weft.sparse_coo_tensor(-indices, values, (2, 3))
    with pytest.raises(RuntimeError, match="col_indices must be within 0 and 2"):
        weft.sparse_csr_tensor([0, 1], [2], [1.0], (1, 2))
    with pytest.raises(RuntimeError, match="col_indices must be sorted and distinct along each row"):
        weft.sparse_csr_tensor([0, 2], [1, 1], [1.0, 2.0], (1, 2))
    with pytest.raises(NotImplementedError, match="batches are not there; make one matrix at a time"):
        weft.sparse_csr_tensor([[0, 1]], [[0]], [[1.0]])


def test_what_is_not_there_says_what_to_write():
    s = weft.eye(2).to_sparse()
    for function in (weft.exp, weft.linalg.inv, weft.nn.functional.gelu, weft.cumsum):
        with pytest.raises(NotImplementedError, match=r"not there for tensors of layout .*x.to_dense\(\)"):
            function(s, 0) if function is weft.cumsum else function(s)
    with pytest.raises(NotImplementedError, match="0 \\*\\* 0 is not 0"):
        s**0
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        weft.ones(2, 2).data = s


def test_indices_are_its_own():
    """What the tensors that it was made of become later is nothing to it; values are shared, as in PyTorch."""
    indices, values = weft.tensor([[0, 1]]), weft.tensor([1.0, 2.0])
    s = weft.sparse_coo_tensor(indices, values, (3,))
    indices.fill_(2)
    s.requires_grad_()
    assert s.to_dense().tolist() == [1.0, 2.0, 0.0] and not values.requires_grad


def test_copies_and_pickles():
    for make in (lambda x: x.to_sparse(), *LAYOUTS.values()):
        s = make(weft.arange(6.0).reshape(2, 3)).requires_grad_()
        s.to_dense().sum().backward()
        for twin in (copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
            assert twin.layout is s.layout and twin.is_leaf and twin.requires_grad
            assert twin.to_dense().equal(s.to_dense())
        assert copy.deepcopy(s).grad.to_dense().equal(s.grad.to_dense())


def test_files():
    for make in (lambda x: x.to_sparse(), *LAYOUTS.values()):
        s, file = make(weft.arange(6.0).reshape(2, 3)).requires_grad_(), io.BytesIO()
        weft.save({"adjacency": s, "other": weft.ones(1)}, file)
        file.seek(0)
        twin = weft.load(file)["adjacency"]
        assert twin.layout is s.layout and twin.requires_grad and twin.to_dense().equal(s.to_dense())


def test_in_modules():
    module = weft.nn.Module()
    module.register_buffer("adjacency", weft.eye(2).to_sparse())
    assert module.state_dict()["adjacency"].is_sparse
    assert module.double().adjacency.dtype is weft.float64


def test_importing_weft_imports_nothing_of_it():
    code = """
        import sys, weft
        assert not any(name.startswith("weft.sparse") for name in sys.modules)
        assert weft.sparse.mm is sys.modules["weft.sparse"].mm
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_coordinates_have_a_method_of_their_own():
    x = weft.eye(3)
    for given in (x, x.to_sparse(), x.to_sparse_csr()):
        made = given.to_sparse_coo()
        assert made.layout is weft.sparse_coo and made.to_dense().equal(x)
