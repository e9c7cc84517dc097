"""Functions of PyTorch's that few programs call."""

from __future__ import annotations

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
