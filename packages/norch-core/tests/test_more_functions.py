"""Functions of PyTorch's that few programs call."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

import norch

X = norch.tensor([[3.0, -0.1, 0.0], [9.0, 1.0, -1e-30]])


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.float16])
def test_frexp(dtype):
    x = norch.tensor([9.0, 0.3, -0.3, 1.0, 0.5, 2.0**-20, 0.0, float("inf"), 65504.0]).to(dtype)
    mantissa, exponent = norch.frexp(x)
    expected = np.frexp(x.numpy())
    assert mantissa.dtype is dtype
    assert exponent.dtype is norch.int32
    np.testing.assert_array_equal(mantissa.numpy(), expected[0])
    np.testing.assert_array_equal(exponent.numpy()[:7], expected[1][:7])
    assert norch.frexp(norch.tensor([1e-40])).exponent.item() == -132
    with pytest.raises(norch.DTypeError, match="frexp"):
        norch.frexp(norch.tensor([1]))


def test_copies_of_views():
    assert norch.narrow_copy(X, 1, 1, 2).tolist() == X[:, 1:].tolist()
    found = norch.as_strided_scatter(norch.zeros(3, 3), norch.arange(4.0).reshape(2, 2) + 1, (2, 2), (1, 2))
    assert found.tolist() == [[1, 3, 2], [4, 0, 0], [0, 0, 0]]
    with pytest.raises(norch.ShapeError, match="src has shape"):
        norch.as_strided_scatter(X, X, (2, 2), (1, 2))
    assert norch.empty_permuted((2, 3, 5), (2, 0, 1)).stride() == (3, 1, 6)
    with pytest.raises(norch.ShapeError, match="no order of 2 dims"):
        norch.empty_permuted((2, 3), (0, 0))
    assert norch.nonzero_static(X, size=2).tolist() == [[0, 0], [0, 1]]
    assert norch.nonzero_static(norch.tensor([0, 3]), size=3, fill_value=9).tolist() == [[1], [9], [9]]


def test_channels_are_shuffled():
    x = norch.arange(8.0).reshape(1, 4, 2)
    assert norch.native_channel_shuffle(x, 2)[0, :, 0].tolist() == [0, 4, 2, 6]
    with pytest.raises(norch.ShapeError, match="are not 3 groups"):
        norch.native_channel_shuffle(x, 3)


def test_elements_of_files(tmp_path):
    (tmp_path / "x").write_bytes(np.arange(6.0, dtype="f4").tobytes())
    mapped = norch.from_file(str(tmp_path / "x"), shared=True, size=6)
    assert mapped.tolist() == [0, 1, 2, 3, 4, 5]
    mapped[2] = 7
    assert norch.from_file(str(tmp_path / "x"), size=3, dtype=norch.float32).tolist() == [0, 1, 7]


def test_einsum_of_lists():
    a, b = norch.arange(6.0).reshape(2, 3), norch.arange(12.0).reshape(3, 4)
    assert norch.einsum(a, [0, 1], b, [1, 2], [0, 2]).tolist() == (a @ b).tolist()
    assert norch.einsum(a, [0, 1], b, [1, 2]).tolist() == (a @ b).tolist()
    assert norch.einsum(a[None], [..., 0, 1], b[None], [..., 1, 2], [..., 0, 2]).tolist() == (a @ b)[None].tolist()
    with pytest.raises(norch.DTypeError, match="einsum"):
        norch.einsum(a, b)


def test_close_complex_numbers():
    z = norch.tensor([1 + 2j, 3j])
    norch.testing.assert_close(z, z + 1e-9)
    with pytest.raises(AssertionError, match="not close"):
        norch.testing.assert_close(z, z.conj())


def test_names_are_pytorchs_where_norch_is_torch():
    code = """
from norch.compat import standin
import norch
standin.install()
import torch
x = torch.ones(2)
assert (str(x.dtype), repr(torch.int64), str(x.shape)) == ("torch.float32", "torch.int64", "torch.Size([2])")
assert (x.type(), x.long().type(), torch.typename(x.bool())) == tuple(
    f"torch.{kind}Tensor" for kind in ("Float", "Long", "Bool")
)
assert repr(x.double()) == "tensor([1., 1.], dtype=torch.float64)"
assert getattr(torch, str(x.dtype).removeprefix("torch.")) is x.dtype
assert x.type("torch.DoubleTensor").dtype is x.to(torch.float64).dtype
assert str(x.layout) == "torch.strided" and str(torch.complex64) == "torch.complex64"
standin.uninstall()
assert (str(norch.float32), norch.ones(1).type()) == ("norch.float32", "norch.float32")
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.stdout, made.stderr) == ("", "")


def test_adjoint_and_pairwise_distance():
    assert norch.adjoint(X).tolist() == X.mT.tolist()
    z = norch.tensor([[1 + 2j, 3j]])
    assert norch.adjoint(z).tolist() == [[1 - 2j], [-3j]]
    found = norch.pairwise_distance(X, X[:1] + 3, p=1.0, eps=0.0)
    np.testing.assert_allclose(found.numpy(), np.abs(X.numpy() - X.numpy()[:1] - 3).sum(1), 1e-6)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [None, 0.5])
def test_segments(reduce, initial):
    array = np.random.default_rng(0).standard_normal((7, 2))
    x = norch.tensor(array, requires_grad=True)
    alone = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "max": -math.inf, "min": math.inf}[reduce]

    def reduced(rows):
        if not len(rows):
            return np.full(rows.shape[1:], alone if initial is None else initial)
        if reduce == "mean":
            return (rows.sum(0) + (initial or 0.0)) / len(rows)
        besides = [] if initial is None else [np.full(rows.shape[1:], initial)]
        return getattr(np, reduce)([*rows, *besides], 0)

    expected = np.stack([reduced(array[a:b]) for a, b in ((0, 2), (2, 2), (2, 7))])
    for given in ({"offsets": norch.tensor([0, 2, 2, 7])}, {"lengths": norch.tensor([2, 0, 5])}):
        found = norch.segment_reduce(x, reduce, initial=initial, **given)
        np.testing.assert_allclose(found.detach().numpy(), expected, 1e-12)
    found = norch.segment_reduce(x.t(), reduce, offsets=norch.tensor([[0, 3, 7], [1, 3, 6]]), axis=1, initial=initial)
    expected = [
        [reduced(array[a:b, [i]]).item(0) for a, b in itertools.pairwise(e)]
        for i, e in enumerate([(0, 3, 7), (1, 3, 6)])
    ]
    np.testing.assert_allclose(found.detach().numpy(), expected, 1e-12)
    norch.segment_reduce(x, reduce, lengths=norch.tensor([2, 5]), initial=initial).sum().backward()
    numeric = np.zeros_like(array)
    for i in np.ndindex(*array.shape):
        moved = array.copy()
        moved[i] += 1e-6
        numeric[i] = sum((reduced(moved[a:b]) - reduced(array[a:b])).sum() for a, b in ((0, 2), (2, 7))) / 1e-6
    np.testing.assert_allclose(x.grad.numpy(), numeric, 1e-3, 1e-4)


def test_segments_that_are_none():
    x = norch.ones(4)
    with pytest.raises(ValueError, match="'median'"):
        norch.segment_reduce(x, "median", lengths=norch.tensor([4]))
    with pytest.raises(ValueError, match="give lengths or offsets"):
        norch.segment_reduce(x, "sum")
    with pytest.raises(norch.ShapeError, match="add up to 4"):
        norch.segment_reduce(x, "sum", lengths=norch.tensor([5, -1]))
    with pytest.raises(norch.ShapeError, match="none of dim 0"):
        norch.segment_reduce(x, "sum", lengths=norch.tensor([[4]]))
    with pytest.raises(norch.DTypeError, match="integers"):
        norch.segment_reduce(x, "sum", lengths=norch.ones(1))


def test_functions_that_are_methods_too():
    x = norch.arange(6.0).reshape(2, 3)
    assert [p.tolist() for p in x.frexp()] == [p.tolist() for p in norch.frexp(x)]
    part = x.narrow_copy(1, 1, 2)
    assert (part.tolist(), part.data_ptr() != x.data_ptr()) == ([[1, 2], [4, 5]], True)
    assert x.as_strided_scatter(norch.zeros(2), (2,), (3,), 1).tolist() == [[0, 0, 2], [3, 0, 5]]
    assert x.nonzero_static(size=2).tolist() == [[0, 1], [0, 2]]
    a = norch.tensor([[2.0, 1.0], [1.0, 3.0]])
    for found, wanted in ((a.lu(), norch.lu(a)), (a.geqrf(), norch.geqrf(a))):
        assert all(norch.equal(f, w) for f, w in zip(found, wanted, strict=True))
    reflections, tau = a.geqrf()
    q = reflections.orgqr(tau)
    assert norch.allclose(q @ q.mT, norch.eye(2), atol=1e-6)
    assert norch.allclose(reflections.ormqr(tau, a), q @ a, atol=1e-6)
    assert [p.shape for p in x.unsafe_chunk(2, 1)] == [(2, 2), (2, 1)]
    assert [p.shape for p in x.unsafe_split(1)] == [(1, 3), (1, 3)]
    assert [p.shape for p in x.unsafe_split_with_sizes([1, 2], 1)] == [(2, 1), (2, 2)]
    assert norch.ones(2, 3, 4).permute(2, 0, 1).dim_order() == (1, 2, 0)
    assert (x.sparse_dim(), x.dense_dim(), x.is_distributed()) == (0, 2, False)
    assert x.to_sparse().sparse_dim() == 2


def test_a_convolution_along_the_first_dim():
    rng = np.random.default_rng(5)
    x, w, b = (norch.tensor(rng.standard_normal(shape)) for shape in ((7, 2, 3), (3, 3, 4), (4,)))
    found = norch.conv_tbc(x, w, b, 1)
    assert found.shape == (7, 2, 4)
    padded = np.pad(x.numpy(), ((1, 1), (0, 0), (0, 0)))
    expected = sum(padded[k : k + 7] @ w.numpy()[k] for k in range(3)) + b.numpy()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_gradients_by_results(name):
    x = norch.tensor([[0.5, -1.0, 2.0], [0.0, 1.0, 1.0]], dtype=norch.float64, requires_grad=True)
    given = norch.tensor([[1.0, 2.0, -1.0], [0.0, 3.0, 1.0]], dtype=norch.float64)
    out = getattr(norch, name)(x, dim=-1)
    (expected,) = norch.autograd.grad(out, x, given)
    found = getattr(norch, f"_{name}_backward_data")(given, out.detach(), -1, x.dtype)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-14)


def test_branches_and_loops():
    x = norch.tensor([1.0, 2.0])
    assert norch.cond(x.sum() > 2, lambda x: x * 2, lambda x: x, (x,)).tolist() == [2, 4]
    assert norch.cond(False, lambda: 1, lambda: 2) == 2
    count, total = norch.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (norch.tensor(0), x))
    assert (count.item(), total.tolist()) == (3, [8, 16])
    assert norch._shape_as_tensor(norch.ones(2, 3)).tolist() == [2, 3]


def test_old_storages_of_bytes():
    storage = norch.ByteStorage.from_buffer(b"abc")
    assert norch.ByteTensor(storage).tolist() == [97, 98, 99]
    assert norch.FloatStorage._from_buffer(np.float32([1, 2]).tobytes(), byte_order="native").tolist() == [1, 2]
    four = bytearray([1, 2, 3, 4])
    assert norch.ShortStorage.from_buffer(four, "big").tolist() == [258, 772]
    assert norch.IntStorage.from_buffer(four, "little").tolist() == [0x04030201]
    assert norch.ShortStorage.from_buffer(four, "little", 1, 1).tolist() == [0x0302]
    assert norch.BoolStorage.from_buffer(bytes([0, 1, 7]), "big").tolist() == [False, True, True]
    with pytest.raises(ValueError, match="byte_order must be"):
        norch.ShortStorage.from_buffer(four, "middle")
    assert (repr(norch.per_tensor_affine), norch.qscheme) == ("norch.per_tensor_affine", type(norch.per_tensor_affine))


def test_shapes_as_tensors_by_the_path_of_onnx():
    from norch.onnx.operators import reshape_from_tensor_shape, shape_as_tensor

    shape = shape_as_tensor(norch.ones(2, 3))
    assert reshape_from_tensor_shape(norch.arange(6), shape).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_split_knows_its_tensor_by_pytorchs_name() -> None:
    parts = norch.split(tensor=norch.arange(5), split_size_or_sections=2)
    assert [p.tolist() for p in parts] == [[0, 1], [2, 3], [4]]


def test_scatter_reduce_knows_extremes_by_two_names() -> None:
    values, index = norch.tensor([5.0, 1.0, 3.0, 0.5]), norch.tensor([0, 0, 1, 1])
    assert norch.zeros(2).scatter_reduce(0, index, values, "max").tolist() == [5, 3]
    assert norch.zeros(2).scatter_reduce_(0, index, values, "min", include_self=False).tolist() == [1, 0.5]
