"""Sparse tensors beside PyTorch: the same lines, and its files."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_makers import INDICES

import norch

LINES = [
    "s @ d", "d.t() @ s.t()", "s @ s.t()", "s @ v", "s * 2", "s + s", "d3 + s", "s * d3", "s.t()", "s.coalesce()",
    "torch.sum(s)", "torch.sum(s, 1)", "torch.sparse.sum(s, 0)", "torch.sparse.sum(s, (0, 1))",
    "torch.sparse.softmax(s, 1)", "torch.sparse.log_softmax(s, 0)", "s.to_sparse_csr()", "s.to_sparse_csr() @ d",
    "s.to_sparse_csr() * 2", "s[2]", "torch.cat([s, s], 1)", "torch.stack([s, s])",
    "torch.index_select(s, 0, torch.tensor([2, 0, 2]))", "s ** 2", "abs(s)", "s.sum(0, keepdim=True)",
    "d3.sparse_mask(s.coalesce())", "torch.addmm(b, s, d, beta=2, alpha=3)", "s.norm()", "-s / 3",
    "torch.sparse.sampled_addmm(s.to_sparse_csr(), b, d.t())", "h", "h * 2", "torch.sparse.sum(h, 0)",
    "torch.sparse.sum(h, 1)", "torch.sparse.softmax(h, 0)", "torch.zeros_like(s)", "s.float()", "s.long()",
    "torch.sin(s)", "torch.sparse.mm(s.to_sparse_csr(), d, 'mean')", "torch.sparse.mm(s.to_sparse_csr(), d, 'amax')",
    "d3.to_sparse(1)", "s.t().t()",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", LINES)
def test_the_same_lines_give_what_pytorch_gives(line):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (norch, torch):
        r = np.random.default_rng(0)
        values, hybrid = (lib.from_numpy(r.standard_normal(shape)).requires_grad_() for shape in (5, (3, 2)))
        d, d3, b, v = (lib.from_numpy(r.standard_normal(shape)) for shape in ((4, 2), (3, 4), (3, 2), 4))
        s = lib.sparse_coo_tensor(lib.tensor(INDICES), values, (3, 4))
        h = lib.sparse_coo_tensor(lib.tensor([[2, 0, 2]]), hybrid, (3, 2))
        out = eval(line, {"torch": lib, "s": s, "h": h, "d": d, "d3": d3, "b": b, "v": v})
        dense = out.to_dense()
        grads = []
        if dense.requires_grad:
            try:
                (dense * lib.arange(dense.numel()).reshape(dense.shape).to(dense.dtype).cos()).sum().backward()
                grads = [None if x.grad is None else x.grad.tolist() for x in (values, hybrid)]
            except RuntimeError:
                assert lib is torch  # it lacks this gradient
        text = repr(out).replace("torch.", "norch.").partition("grad_fn")[0].rstrip(" ,\n)")
        found.append((str(out.layout)[6:], str(out.dtype)[6:], tuple(out.shape), dense.tolist(), grads, text))
    ours, theirs = found
    assert ours[:3] == theirs[:3]
    np.testing.assert_allclose(ours[3], theirs[3], rtol=1e-10, atol=1e-12)
    for a, b in zip(ours[4], theirs[4]):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-6)
    if line not in ("s + s", "torch.sparse.sum(h, 1)"):  # these lie in another order
        assert ours[5] == theirs[5]


@pytest.mark.filterwarnings("ignore")
def test_pytorchs_files_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (2, 3))
    torch.save([s, s.coalesce(), s.to_sparse_csr(), s.to_sparse_csc()], tmp_path / "x.pt")
    coo, coalesced, csr, csc = norch.load(tmp_path / "x.pt")
    assert csc.layout is norch.sparse_csc
    assert csc.to_dense().tolist() == s.to_dense().tolist()
    assert (coo.is_coalesced(), coalesced.is_coalesced(), csr.is_sparse_csr) == (False, True, True)
    for x in (coo, coalesced, csr):
        assert x.to_dense().tolist() == s.to_dense().tolist()
    torch.save(s, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(norch.CheckpointError, match="a sparse tensor, which is read from zip files only"):
        norch.load(tmp_path / "old.pt")


def test_indices_may_be_floats_that_are_whole():
    for indices in (norch.tensor([[0.0, 2.0]]), np.array([[0.0, 2.0]])):
        x = norch.sparse_coo_tensor(indices, [1.0, 3.0])
        assert (x._indices().dtype, x.to_dense().tolist()) == (norch.int64, [1, 0, 3])
    for wrong in (0.5, float("nan")):
        with pytest.raises(norch.DTypeError, match="indices must be integers"):
            norch.sparse_coo_tensor([[wrong]], [1.0])
