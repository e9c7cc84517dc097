"""Sparse tensors: what they compute is what dense ones compute, and what they cannot says so."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import norch
from norch.testing.gradcheck import gradcheck, gradgradcheck

INDICES = [[0, 2, 1, 2, 0], [1, 0, 3, 0, 1]]  # two places come twice


def draw(*shape, seed=0):
    return norch.tensor(np.random.default_rng(seed).standard_normal(shape))


def coo(**options):
    return norch.sparse_coo_tensor(INDICES, draw(5), (3, 4), **options)


def csr(**options):
    return coo(**options).to_sparse_csr()


MAKERS = [coo, lambda: coo().coalesce(), csr]


def close(found, expected):
    found = found.to_dense() if found.layout is not norch.strided else found
    norch.testing.assert_close(found, expected)


# --- Making and taking apart ----------------------------------------------------------------------------------------


def test_a_place_that_comes_twice_holds_the_sum():
    x = norch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3))
    assert x.to_dense().tolist() == [[0, 0, 3], [9, 0, 0]]
    assert (x._nnz(), x.is_coalesced(), x.sparse_dim(), x.dense_dim()) == (3, False, 2, 0)
    y = x.coalesce()
    assert (y._nnz(), y.is_coalesced()) == (2, True)
    assert y.indices().tolist() == [[0, 1], [2, 0]]
    assert y.values().tolist() == [3, 9]
    assert y.coalesce() is y


def test_it_is_a_tensor_of_another_layout():
    x = coo()
    assert isinstance(x, norch.Tensor)
    assert norch.is_tensor(x)
    assert (x.layout, x.is_sparse, x.is_sparse_csr) == (norch.sparse_coo, True, False)
    assert (csr().layout, csr().is_sparse, csr().is_sparse_csr) == (norch.sparse_csr, False, True)
    assert (x.shape, x.size(1), x.dim(), x.numel(), len(x)) == ((3, 4), 4, 2, 12, 3)
    assert (x.dtype, x.device.type) == (norch.float64, "cpu")
    assert draw(2).layout is norch.strided
    assert not draw(2).is_sparse


def test_to_sparse_and_back():
    dense = norch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, -3.0]])
    for sparse in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_coo(), dense.to_sparse(1)):
        assert sparse.to_dense().tolist() == dense.tolist()
        assert sparse.to_sparse().is_coalesced()
    rows = dense.to_sparse_csr()
    assert rows.crow_indices().tolist() == [0, 1, 3]
    assert rows.col_indices().tolist() == [1, 0, 2]
    assert rows.values().tolist() == [1, 2, -3]
    assert dense.to_sparse(layout=norch.sparse_csr).is_sparse_csr
    assert dense.to_dense() is dense
    again = norch.sparse_csr_tensor(rows.crow_indices(), rows.col_indices(), rows.values(), (2, 3))
    assert again.to_dense().tolist() == dense.tolist()


def test_dense_dims_of_values():
    values = draw(3, 2)
    x = norch.sparse_coo_tensor([[2, 0, 2]], values)
    assert (tuple(x.shape), x.sparse_dim(), x.dense_dim()) == ((3, 2), 1, 1)
    expected = norch.zeros(3, 2, dtype=norch.float64)
    expected[0], expected[2] = values[1], values[0] + values[2]
    close(x, expected)
    close(x * 2, expected * 2)
    close(x + x, expected * 2)
    close(norch.sparse.sum(x, 0), expected.sum(0))
    close(norch.sparse.sum(x, 1), expected.sum(1))
    close(x.coalesce() * norch.full((3, 2), 3.0, dtype=norch.float64), expected * 3)
    with pytest.raises(norch.ShapeError, match=r"takes sparse matrices, of 2 sparse dims"):
        x @ norch.ones(2, 1, dtype=norch.float64)


def test_no_elements():
    for x in (norch.sparse_coo_tensor((2, 3)), norch.sparse_coo_tensor(norch.empty(2, 0), [], (2, 3)),
              norch.zeros(2, 3).to_sparse(), norch.zeros(2, 3).to_sparse_csr()):  # fmt: skip
        assert x._nnz() == 0
        assert not x.to_dense().any()
        assert (x @ norch.ones(3, 2)).tolist() == [[0, 0], [0, 0]]
        assert (norch.ones(2) @ x).tolist() == [0, 0, 0]
        assert (x @ x.t()).to_dense().tolist() == [[0, 0], [0, 0]]
        assert (x + x)._nnz() == (x * x)._nnz() == 0
        assert x.sum().item() == 0
        assert norch.sparse.sum(x, 1).to_dense().tolist() == [0, 0]
        assert norch.sparse.softmax(x, 1)._nnz() == 0
    assert (norch.zeros(0, 3).to_sparse() @ norch.ones(3, 2)).shape == (0, 2)
    assert (norch.eye(2).to_sparse() @ norch.ones(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16, norch.float32, norch.int64, norch.int32, norch.uint8])
def test_dtypes(dtype):
    x = norch.sparse_coo_tensor(INDICES, [1, 2, 3, 4, 5], (3, 4), dtype=dtype)
    dense = x.to_dense()
    assert x.dtype is dense.dtype is dtype
    assert dense.float().tolist() == [[0, 6, 0, 0], [0, 0, 0, 3], [6, 0, 0, 0]]
    assert (x @ dense.t()).float().tolist() == (dense.float() @ dense.t().float()).tolist()
    assert (x @ x.t()).dtype is dtype
    assert x.sum().item() == 15


def test_bools_are_joined_by_or():
    x = norch.sparse_coo_tensor([[0, 0], [1, 1]], [True, True], (2, 2))
    assert x.to_dense().tolist() == [[False, True], [False, False]]
    assert x.coalesce().values().tolist() == [True]
    cancelled = norch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, -1.0], (2, 2))
    assert cancelled.bool().to_dense().tolist() == [[False, False], [False, False]]


def test_sums_of_16_bits_are_made_in_32():
    x = norch.ones(1, 4096, dtype=norch.float16).to_sparse()
    assert (x @ norch.ones(4096, 1, dtype=norch.float16)).item() == 4096


def test_old_constructors():
    x = norch.sparse.FloatTensor(norch.LongTensor(INDICES), norch.ones(5), norch.Size([3, 4]))
    assert x.dtype is norch.float32
    assert isinstance(x, norch.sparse.FloatTensor)
    assert not isinstance(x, norch.sparse.DoubleTensor)
    assert not isinstance(norch.ones(2), norch.sparse.FloatTensor)
    assert x.type() == "torch.sparse.FloatTensor"
    assert norch.sparse.LongTensor(2, 3)._nnz() == 0


# --- Computing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_products(make):
    x, m, v = make(), draw(4, 2), draw(4)
    dense = x.to_dense()
    for found in (x @ m, norch.mm(x, m), norch.matmul(x, m), norch.spmm(x, m), norch.sparse.mm(x, m), x.mm(m)):
        close(found, dense @ m)
    for found in (x @ v, norch.mv(x, v), x.mv(v)):
        close(found, dense @ v)
    for found in (m.t() @ x.t(), norch.mm(m.t(), x.t())):
        close(found, m.t() @ dense.t())
    close(v @ x.t(), dense @ v)
    for found in (x @ x.t(), norch.sparse.mm(x, x.t())):
        assert found.layout is x.layout
        close(found, dense @ dense.t())
    batch = draw(2, 5, 3)
    close(batch @ x, batch @ dense)
    close(norch.linear(x, m.t(), draw(2)), norch.linear(dense, m.t(), draw(2)))
    b = draw(3, 2, seed=1)
    close(norch.addmm(b, x, m, beta=2, alpha=3), 2 * b + 3 * (dense @ m))
    close(norch.sparse.addmm(b, x, m), b + dense @ m)
    assert norch.sparse.mm(dense, m).tolist() == (dense @ m).tolist()


@pytest.mark.parametrize("make", MAKERS)
def test_elementwise(make):
    x, d = make(), draw(3, 4, seed=2)
    dense = x.to_dense()
    for found, expected in [
        (x * 2, dense * 2), (0.5 * x, dense * 0.5), (x / 4, dense / 4), (x * norch.tensor(2.0), dense * 2),
        (x + x, 2 * dense), (x - 2 * x, -dense), (-x, -dense), (d + x, d + dense), (d - x, d - dense),
        (x + d, d + dense), (x - d, dense - d), (x * d, dense * d), (d * x, dense * d), (x * d[:1], dense * d[:1]),
        (x * d[:, :1], dense * d[:, :1]), (x * d[0], dense * d[0]), (x * d[:1, :1], dense * d[:1, :1]),
        (x * x, dense * dense), (x**2, dense**2), (abs(x), abs(dense)), (norch.sin(x), dense.sin()),
        (x.abs().sqrt(), dense.abs().sqrt()), (norch.relu(x), dense.relu()), (norch.add(x, x, alpha=2), dense * 3),
        (norch.add(d, x, alpha=2), d + 2 * dense), (x * d.numpy(), dense * d), (x.float(), dense.float()),
        (norch.zeros_like(x), dense * 0), (x.clone(), dense), (x.to(norch.float32), dense.float()),
    ]:  # fmt: skip
        close(found, expected)
    assert (x * 2).layout is (x + x).layout is (x * d).layout is norch.zeros_like(
        x
    ).to_sparse().layout or x.is_sparse_csr
    assert d.add(x).layout is norch.strided


@pytest.mark.parametrize("make", MAKERS)
def test_sums_and_softmax(make):
    x = make()
    dense = x.to_dense()
    close(x.sum(), dense.sum())
    for dim in (0, 1, -1):
        close(norch.sum(x, dim), dense.sum(dim))
        close(norch.sparse.sum(x, dim), dense.sum(dim))
        close(x.sum(dim, keepdim=True), dense.sum(dim, keepdim=True))
        masked = norch.where(dense != 0, dense, -float("inf"))
        expected = norch.nan_to_num(masked.softmax(dim))
        close(norch.sparse.softmax(x, dim), expected)
        close(norch.exp(norch.sparse.log_softmax(x, dim).to_dense()) * (dense != 0), expected)
    close(norch.sparse.sum(x, (0, 1)), dense.sum())
    assert norch.sparse.sum(x, dtype=norch.float32).dtype is norch.float32
    norch.testing.assert_close(x.norm(), dense.norm())


@pytest.mark.parametrize("make", MAKERS)
def test_rearranged(make):
    x = make()
    dense = x.to_dense()
    for found, expected in [
        (x.t(), dense.t()), (x.T, dense.t()), (x.transpose(0, 1), dense.t()), (norch.transpose(x, 0, 1), dense.t()),
        (norch.t(x), dense.t()), (x.permute(1, 0), dense.t()), (norch.permute(x, (1, 0)), dense.t()),
        (norch.cat([x, x]), norch.cat([dense, dense])), (norch.cat([x, x * 2], 1), norch.cat([dense, dense * 2], 1)),
        (x.index_select(0, norch.tensor([2, 0, 2])), dense[[2, 0, 2]]), (x[1], dense[1]), (x[-1, 0], dense[-1, 0]),
        (norch.index_select(x, 1, norch.tensor([3, 1])), dense[:, [3, 1]]), (x.select(1, 3), dense[:, 3]),
    ]:  # fmt: skip
        close(found, expected)
    if x.is_sparse:
        close(norch.stack([x, x], 1), norch.stack([dense, dense], 1))
    assert [row.to_dense().tolist() for row in x] == dense.tolist()


def test_the_dense_at_sparse_places():
    x, d, a, b = coo().coalesce(), draw(3, 4), draw(3, 2), draw(2, 4)
    mask = (x.to_dense() != 0).double()
    close(d.sparse_mask(x), d * mask)
    close(norch.sparse.sampled_addmm(x, a, b, beta=2, alpha=3), (2 * x.to_dense() + 3 * a @ b) * mask)


def test_changed_in_place():
    x, dense = coo(), coo().to_dense()
    same = x
    x *= 2
    x.add_(x).div_(4.0).neg_()
    assert x is same
    close(x, -dense)
    y = norch.ones(3, 4, dtype=norch.float64)
    y += x
    close(y, 1 - dense)
    assert x.zero_()._nnz() == 0
    x.copy_(coo())
    close(x, dense)
    with pytest.raises(norch.DTypeError, match="out of place"):
        x += y


# --- Gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda v, d: norch.sparse_coo_tensor(INDICES, v, (3, 4)) @ d,
        lambda v, d: norch.sparse_coo_tensor(INDICES, v, (3, 4)).to_sparse_csr() @ d,
        lambda v, d: norch.sparse_coo_tensor(INDICES, v, (3, 4)) @ d[:, 0],
        lambda v, d: d.t() @ norch.sparse_coo_tensor(INDICES, v, (3, 4)).t(),
        lambda v, d: (norch.sparse_coo_tensor(INDICES, v, (3, 4)) @ d.to_sparse()).to_dense(),
        lambda v, d: norch.addmm(d[:3], norch.sparse_coo_tensor(INDICES, v, (3, 4)), d, beta=2, alpha=3),
        lambda v, d: norch.sparse_coo_tensor(INDICES, v, (3, 4)).coalesce().values() * d[0, 0],
        lambda v, d: (norch.sparse_coo_tensor(INDICES, v, (3, 4)) * d[:, 0]).to_dense(),
        lambda v, d: (norch.sparse_coo_tensor(INDICES, v, (3, 4)) ** 2).to_dense() * d[:, 0],
        lambda v, d: norch.sparse.softmax(norch.sparse_coo_tensor(INDICES, v, (3, 4)), 1) @ d,
        lambda v, d: norch.sparse.log_softmax(norch.sparse_coo_tensor(INDICES, v, (3, 4)), 0) @ d,
        lambda v, d: norch.sparse.sum(norch.sparse_coo_tensor(INDICES, v, (3, 4)), 1).to_dense() * d[:3, 0],
        lambda v, d: norch.sparse.sampled_addmm(
            norch.sparse_coo_tensor(INDICES, v, (3, 4)).coalesce(), d[:3], d.t()
        ).values(),
        lambda v, d: norch.sparse_coo_tensor(INDICES, v, (3, 4))[2].to_dense() * d[:, 0],
        lambda v, d: d.sparse_mask((d * 0 + 1).detach().to_sparse()).to_dense(),
    ],
)  # fmt: skip
def test_gradients_of_values_and_of_the_dense(f):
    v, d = draw(5).requires_grad_(), draw(4, 2, seed=1).requires_grad_()
    assert gradcheck(f, (v, d))
    assert gradgradcheck(f, (v, d))


def test_a_sparse_leaf_gets_a_sparse_gradient():
    x = coo(requires_grad=True)
    assert x.is_leaf
    assert x.requires_grad
    d = draw(4, 2)
    (x @ d).sum().backward()
    assert isinstance(x.grad, norch.sparse.SparseTensor)
    assert x.grad._indices().tolist() == INDICES
    norch.testing.assert_close(x.grad._values(), d.sum(1)[INDICES[1]])
    (x @ d).sum().backward()
    norch.testing.assert_close(x.grad._values(), 2 * d.sum(1)[INDICES[1]])
    x.grad = None
    assert x.grad is None
    assert not x.detach().requires_grad
    y = norch.sparse_coo_tensor(INDICES, draw(5).requires_grad_())
    assert not y.is_leaf
    assert y.grad is None


def test_a_function_may_save_one():
    """As pyGAT's special spmm does."""

    class Spmm(norch.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, b):
            a = norch.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(a, b)
            ctx.N = shape[0]
            return norch.matmul(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            edges = a._indices()[0, :] * b.shape[0] + a._indices()[1, :]
            return None, grad.matmul(b.t()).view(-1)[edges], None, a.t().matmul(grad)

    v, d = draw(5).requires_grad_(), draw(4, 2, seed=1).requires_grad_()
    assert gradcheck(lambda v, d: Spmm.apply(norch.tensor(INDICES), v, norch.Size([3, 4]), d), (v, d))


# --- Kept, moved, printed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_copies(make):
    x = make()
    for other in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone(), x.cpu(), x.to("cpu")):
        assert other.layout is x.layout
        assert other.to_dense().tolist() == x.to_dense().tolist()


def test_printed_as_pytorch_prints_it():
    x = norch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3, 4, 5], (2, 3))
    assert repr(x) == (
        "tensor(indices=tensor([[0, 1, 1],\n                       [2, 0, 2]]),\n       values=tensor([3, 4, 5]),\n"
        "       size=(2, 3), nnz=3, layout=norch.sparse_coo)"
    )
    assert repr(x.double().to_sparse_csr()) == (
        "tensor(crow_indices=tensor([0, 1, 3]),\n       col_indices=tensor([2, 0, 2]),\n"
        "       values=tensor([3., 4., 5.]), size=(2, 3), nnz=3, dtype=norch.float64,\n       layout=norch.sparse_csr)"
    )
    assert repr(norch.sparse_coo_tensor((2, 3))) == (
        "tensor(indices=tensor([], size=(2, 0)),\n       values=tensor([], size=(0,)),\n"
        "       size=(2, 3), nnz=0, layout=norch.sparse_coo)"
    )


# --- Errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: norch.sparse_coo_tensor([[0, 5], [1, 1]], [1.0, 2.0], (2, 3)), norch.IndexError, "hold 5 for dim 0"),
        (lambda: norch.sparse_coo_tensor([[0, -1], [1, 1]], [1.0, 2.0]), norch.IndexError, "hold -1"),
        (lambda: norch.sparse_coo_tensor([[0, 1], [1, 1]], [1.0], (2, 3)), norch.ShapeError, r"2 indices for values"),
        (lambda: norch.sparse_coo_tensor([0, 1], [1.0, 2.0], (2,)), norch.ShapeError, r"indices must have 2 dims"),
        (lambda: norch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2, 3)), norch.ShapeError, r"size \(2, 3\) for 1"),
        (lambda: norch.sparse_coo_tensor([[0.5]], [1.0]), norch.DTypeError, r"indices must be integers"),
        (lambda: norch.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0]), norch.ShapeError, r"crow_indices must begin"),
        (lambda: norch.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0]), norch.ShapeError, r"col_indices must rise"),
        (lambda: norch.sparse_csr_tensor([0, 2], [1, 3], [1.0, 2.0], (1, 3)), norch.IndexError, r"hold 3 for 3"),
        (lambda: norch.sparse_csr_tensor([[0, 1]], [[0]], [[1.0]]), norch.ShapeError, r"without batches"),
        (lambda: norch.ones(2, 2, 2).to_sparse_csr(), norch.ShapeError, r"without batches"),
        (lambda: norch.tensor(1.0).to_sparse(), norch.ShapeError, r"to_sparse\(\)"),
        (lambda: coo().indices(), norch.ShapeError, r"indices\(\): the tensor is not coalesced"),
        (lambda: csr().indices(), norch.DTypeError, r"norch.sparse_csr; use to_sparse\(\)"),
        (lambda: coo().crow_indices(), norch.DTypeError, r"use to_sparse_csr\(\)"),
        (lambda: coo() @ draw(3, 2), norch.ShapeError, r"matmul\(\): shapes \(3, 4\) and \(3, 2\)"),
        (lambda: coo() @ draw(4, 2).float(), norch.DTypeError, r"float64 and norch.float32"),
        (lambda: norch.sparse.mm(coo(), draw(4, 2), "prod"), ValueError, r"mm\(\): reduce must be sum"),
        (lambda: norch.sparse.mm(coo(), draw(4)), norch.ShapeError, r"mm\(\): expected tensors of 2 and 2 dims"),
        (lambda: coo() @ draw(3, 4, 2), norch.ShapeError, r"a sparse matrix and a dense vector or matrix"),
        (lambda: coo() + 1, norch.DTypeError, r"add\(\): a sparse tensor and a number"),
        (lambda: coo() + coo().t(), norch.ShapeError, r"add\(\): sparse tensors of shapes"),
        (lambda: coo() / draw(3, 4), norch.DTypeError, r"div\(\)"),
        (lambda: coo() * draw(2, 3, 4), norch.ShapeError, r"mul\(\): a sparse tensor of shape \(3, 4\) does not"),
        (lambda: coo().view(12), norch.DTypeError, r"view\(\): takes no sparse tensors; use to_dense\(\) first"),
        (lambda: coo().exp(), norch.DTypeError, r"exp\(\): takes no sparse tensors; use to_dense\(\) first"),
        (lambda: norch.exp(coo()), norch.DTypeError, r"exp\(\): takes no sparse tensors; use to_dense\(\) first"),
        (lambda: coo().numpy(), norch.DTypeError, r"numpy\(\): takes no sparse tensors"),
        (lambda: coo().tolist(), norch.DTypeError, r"tolist\(\): takes no sparse tensors"),
        (lambda: coo().data_ptr(), norch.DTypeError, r"data_ptr\(\): takes no sparse tensors"),
        (lambda: np.asarray(coo()), norch.DTypeError, r"takes no sparse tensors"),
        (lambda: norch.ones_like(coo()), norch.DTypeError, r"takes no sparse tensors"),
        (lambda: coo() > 0, norch.DTypeError, r"gt\(\): takes no sparse tensors"),
        (lambda: coo()[:1], norch.DTypeError, r"sparse tensors take ints only"),
        (lambda: coo()[5], norch.IndexError, r"index 5 is out of range"),
        (lambda: norch.cat([coo(), draw(3, 4)]), norch.DTypeError, r"cat\(\): takes sparse tensors or dense ones"),
        (lambda: norch.sparse.softmax(draw(3, 4), 1), norch.DTypeError, r"softmax\(\): expected a sparse tensor"),
        (lambda: norch.sparse.softmax(coo().long(), 1), norch.DTypeError, r"needs a floating dtype"),
        (lambda: norch.sparse.sum(coo(), 2), norch.IndexError, r"dim 2 is out of range"),
        (lambda: coo(requires_grad=True).mul_(2), norch.AutogradError, r"a leaf that requires grad"),
        (lambda: norch.sparse_coo_tensor([[0]], [1], (1,), requires_grad=True), norch.DTypeError, r"floating tensors"),
        (lambda: norch.sparse.SparseTensor(2), norch.DTypeError, "made by norch.sparse_coo_tensor"),
    ],
)  # fmt: skip
def test_errors_name_the_op_and_a_way_around(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_every_method_of_tensors_works_or_says_what_to_do():
    """Never an internal AttributeError, nor a result read from memory that holds the stored elements alone."""
    works, unclear = [], []
    for name in sorted(n for n in dir(norch.Tensor) if not n.startswith("_")):
        method = getattr(coo(), name)
        if not callable(method) or isinstance(method, norch.Tensor):
            continue
        try:
            found = method()
        except norch.DeviceError:
            continue
        except (norch.NorchError, TypeError) as error:
            unclear += [name] * (not any(part in str(error) for part in ("to_dense()", f"{name}()", "argument")))
            continue
        if isinstance(found, norch.Tensor) and found.is_contiguous() and found.dim():
            works.append(name)
    assert (works, unclear) == (["to_dense"], [])


def test_a_sparse_tensor_is_not_saved(tmp_path):
    for file in ("x.safetensors", "x.pth"):
        with pytest.raises(norch.DTypeError, match="x is a sparse tensor"):
            norch.save({"x": coo()}, tmp_path / file)
    with pytest.raises(norch.DTypeError, match="x is a sparse tensor"):
        norch.save_safetensors({"x": coo()}, tmp_path / "x.safetensors")


def test_import_norch_does_not_load_it():
    code = "import norch, sys; norch.ones(2).is_sparse; assert 'norch.sparse' not in sys.modules; norch.sparse.mm"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Beside PyTorch -------------------------------------------------------------------------------------------------

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
    torch.save([s, s.coalesce(), s.to_sparse_csr()], tmp_path / "x.pt")
    coo, coalesced, csr = norch.load(tmp_path / "x.pt")
    assert (coo.is_coalesced(), coalesced.is_coalesced(), csr.is_sparse_csr) == (False, True, True)
    for x in (coo, coalesced, csr):
        assert x.to_dense().tolist() == s.to_dense().tolist()
    torch.save(s, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(norch.CheckpointError, match="a sparse tensor, which is read from zip files only"):
        norch.load(tmp_path / "old.pt")
