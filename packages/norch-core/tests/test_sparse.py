"""Sparse tensors: what they compute is what dense ones compute, and what they cannot says so."""

from __future__ import annotations

import copy
import pickle

import numpy
import pytest
from sparse_makers import INDICES, MAKERS, coo, csr, draw

import norch
from norch.testing.gradcheck import gradcheck, gradgradcheck


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
    for x in (norch.sparse_coo_tensor((2, 3)), norch.sparse_coo_tensor(size=(2, 3)),
              norch.sparse_coo_tensor(norch.empty(2, 0), [], (2, 3)),
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
        assert found.layout is x.layout or x.layout is norch.sparse_csc
        close(found, dense @ dense.t())
    batch = draw(2, 5, 3)
    close(batch @ x, batch @ dense)
    close(norch.linear(x, m.t(), draw(2)), norch.linear(dense, m.t(), draw(2)))
    b = draw(3, 2, seed=1)
    close(norch.addmm(b, x, m, beta=2, alpha=3), 2 * b + 3 * (dense @ m))
    close(norch.sparse.addmm(b, x, m), b + dense @ m)
    assert norch.sparse.mm(dense, m).tolist() == (dense @ m).tolist()


def test_a_vector_by_many_elements():
    rng = numpy.random.default_rng(0)
    rows, columns = rng.integers(0, 300, (2, 70_000))
    values, x = rng.normal(size=70_000), rng.normal(size=300)
    want = numpy.zeros(300)
    numpy.add.at(want, rows, values * x[columns])
    a = norch.sparse_coo_tensor(norch.from_numpy(numpy.stack([rows, columns])), norch.from_numpy(values), (300, 300))
    for matrix in (a, a.coalesce().to_sparse_csr()):
        numpy.testing.assert_allclose((matrix @ norch.from_numpy(x)).cpu().numpy(), want, rtol=1e-9, atol=1e-9)


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
    assert (x * 2).layout is (x + x).layout is (x * d).layout is x.layout
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


def test_transposes_of_more_dims():
    values = numpy.arange(24.0).reshape(2, 3, 4) % 5
    x = norch.tensor(values).to_sparse()
    assert x.mT.to_dense().tolist() == x.mH.to_dense().tolist() == values.swapaxes(-1, -2).tolist()
    assert x.T.to_dense().tolist() == values.T.tolist()
    for name in ("H", "t"):
        with pytest.raises(norch.ShapeError):
            getattr(x, name)()


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_unsqueeze(dim):
    x = coo()
    close(x.unsqueeze(dim), x.to_dense().unsqueeze(dim))
    assert x.unsqueeze(dim).sparse_dim() == 3
    mixed = norch.tensor([[[1.0, 2.0]], [[0.0, 0.0]]]).to_sparse(1)
    close(mixed.unsqueeze(dim), mixed.to_dense().unsqueeze(dim))
    with pytest.raises(norch.DTypeError, match="CSR"):
        x.to_sparse_csr().unsqueeze(dim)


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
    assert gradgradcheck(f, (v, d), fast_mode=True)


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


def test_the_product_of_a_sparse_and_a_dense_matrix_by_its_old_name():
    dense = norch.arange(6.0).reshape(3, 2)
    assert norch.dsmm(norch.eye(3).to_sparse(), dense).tolist() == dense.tolist()


def test_sparse_and_dense_gradients_are_gathered_in_either_order():
    class Fixed(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x, grad):
            ctx.grad = grad
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return ctx.grad, None

    sparse, dense = norch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,)), norch.ones(3)
    for first, second in ((sparse, dense), (dense, sparse), (sparse, sparse)):
        x = norch.zeros(3, requires_grad=True)
        for grad in (first, second):
            Fixed.apply(x, grad).sum().backward()
        assert x.grad.to_dense().tolist() == (first.to_dense() + second.to_dense()).tolist()
        assert x.grad.is_sparse == (first is second)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
@pytest.mark.parametrize("make", [norch.zeros, norch.empty])
def test_zeros_of_a_layout(make, layout):
    x = make(2, 3, layout=getattr(norch, layout), dtype=norch.float64)
    assert (x.layout, x.shape, x.dtype, x._nnz()) == (getattr(norch, layout), (2, 3), norch.float64, 0)
    assert make(10**6, 10**6, layout=norch.sparse_coo, requires_grad=True).requires_grad


def test_fewer_than_two_elements_are_coalesced():
    assert norch.sparse_coo_tensor([[1], [0]], [2.0], (2, 2)).indices().tolist() == [[1], [0]]
    assert norch.sparse_coo_tensor([[], []], [], (2, 2)).is_coalesced()
    assert not norch.sparse_coo_tensor([[1, 0], [0, 1]], [2.0, 1.0], (2, 2)).is_coalesced()
