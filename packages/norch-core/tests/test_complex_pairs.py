"""Complex numbers as pairs of real ones, against NumPy's."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

import norch
from norch import DTypeError
from norch.dispatch.arguments import describe
from norch.testing.gradcheck import gradcheck

RNG = np.random.default_rng(6)


def draw(*shape):
    z = RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)
    return norch.view_as_complex(norch.tensor(np.stack([z.real, z.imag], -1))), z


A, NA = draw(3, 4)
B, NB = draw(3, 4)
X, NX = norch.tensor(NB.real), NB.real

CALLS = {
    "add": lambda a, b, x: a + b + x + 2 + (1 - 2j),
    "add of a tensor": lambda a, b, x: x + a,
    "sub": lambda a, b, x: (a - b - x - 2) + (3 - a) + (x - b) + (1j - b),
    "mul": lambda a, b, x: a * b * x * 0.5 * (2 + 1j) + 2j * b + x * a + 3 * b,
    "div": lambda a, b, x: a / b + a / x + b / (1 - 2j) + 3 / a + x / b,
    "numbers and tensors": lambda a, b, x: x * 2j + 1j * x + (x + (1 - 2j)) - (x - 1j) + (1j - x) + x / 2j + 2j / x,
    "neg": lambda a, b, x: -a,
    "pow": lambda a, b, x: a**3,
    "matmul": lambda a, b, x: (
        a @ b.transpose(0, 1) if isinstance(a, norch.compat.complex_numbers.ComplexPair) else a @ b.T
    ),
    "index": lambda a, b, x: a[1:, ..., None] * b[0, 0],
    "broadcast": lambda a, b, x: a[:, None] * b + x[:, None, None],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arithmetic(call):
    np.testing.assert_allclose(call(A, B, X).numpy(), call(NA, NB, NX), 1e-12)


def test_functions():
    for found, expected in (
        (norch.abs(A), np.abs(NA)), (A.abs(), np.abs(NA)), (norch.angle(A), np.angle(NA)), (A.angle(), np.angle(NA)),
        (norch.conj(A), NA.conj()), (A.exp(), np.exp(NA)), (norch.exp(A), np.exp(NA)), (A.sum(), NA.sum()),
        (norch.sum(A, 1), NA.sum(1)), (A.mean(0, keepdim=True), NA.mean(0, keepdims=True)), (norch.mul(X, A), NX * NA),
        (norch.real(A), NA.real), (norch.imag(A), NA.imag), (norch.angle(X), np.angle(NX)), (norch.div(X, A), NX / NA),
        (norch.polar(X.abs(), X), np.abs(NX) * np.exp(1j * NX)), (norch.complex(X, X[0]), NX + 1j * NX[0]),
        (norch.cat([A, B], 1), np.concatenate([NA, NB], 1)), (norch.stack([A, B]), np.stack([NA, NB])),
        (norch.cat([A, X]), np.concatenate([NA, NX])), (norch.where(X > 0, A, B), np.where(NX > 0, NA, NB)),
        (norch.einsum("ij,kj->ik", A, B), NA @ NB.T), (norch.einsum("ij,kj->ik", A, X), NA @ NX.T),
        (norch.einsum("ij,kj->ik", X, B), NX @ NB.T), (norch.einsum("ij->j", A), NA.sum(0)),
        (norch.matmul(A, B.transpose(0, 1)), NA @ NB.T), (norch.arange(3) * 1j, np.arange(3) * 1j),
        (norch.pad(A, (1, 2)), np.pad(NA, ((0, 0), (1, 2)))),
        (norch.pad(A, (0, 0, 1, 0), value=2 + 1j), np.pad(NA, ((1, 0), (0, 0)), constant_values=2 + 1j)),
        (norch.pad(A, (2, 1), mode="reflect"), np.pad(NA, ((0, 0), (2, 1)), mode="reflect")),
    ):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected, 1e-12)


def test_elements():
    for found, expected in (
        (A.reshape(4, 3), NA.reshape(4, 3)), (A.view(2, -1), NA.reshape(2, -1)), (A.flatten(), NA.ravel()),
        (A.unsqueeze(0), NA[None]), (A.permute(1, 0), NA.T), (A.transpose(0, 1), NA.T), (A.flip(0), NA[::-1]),
        (A.roll(1, 0), np.roll(NA, 1, 0)), (A.expand(2, 3, 4), np.broadcast_to(NA, (2, 3, 4))), (A.clone(), NA),
        (norch.roll(A, 1, 0), np.roll(NA, 1, 0)), (norch.flip(A, 0), NA[::-1]),
    ):  # fmt: skip
        np.testing.assert_array_equal(found.numpy(), expected)
    assert (A.shape, A.ndim, A.dim(), A.size(0), A.numel(), len(A)) == ((3, 4), 2, 2, 3, 12, 3)
    assert norch.is_complex(A)
    assert not norch.is_complex(X)
    assert A[0, 0].item() == NA[0, 0]
    assert A.tolist() == NA.tolist()
    out = norch.view_as_complex(norch.zeros(3, 4, 2, dtype=norch.float64))
    out[1:, :2] = A[1:, :2]
    out[0] = 2 + 1j
    assert out[0].tolist() == [2 + 1j] * 4
    np.testing.assert_array_equal(out[1:, :2].numpy(), NA[1:, :2])


def test_views_share_memory():
    x = norch.ones(2, 3, 2)
    z = norch.view_as_complex(x)
    assert norch.view_as_real(z) is x
    x[..., 1] = 5
    assert z.imag.tolist() == [[5.0] * 3] * 2


def test_gradients():
    inputs = [norch.tensor(RNG.standard_normal((3, 2)), requires_grad=True) for _ in range(2)]

    def run(a, b):
        a, b = norch.view_as_complex(a), norch.view_as_complex(b)
        return norch.view_as_real(a * b / (b.conj() + 3) - a.exp()).sum() + (a + b).abs().sum() + b.angle().sum()

    assert gradcheck(run, inputs)
    zero = norch.zeros(1, 2, requires_grad=True)
    norch.view_as_complex(zero).abs().sum().backward()
    assert zero.grad.tolist() == [[0.0, 0.0]]
    large = norch.view_as_complex(norch.tensor([[3e30, 4e30], [norch.inf, 1.0], [norch.nan, 1.0]]))
    np.testing.assert_allclose(large.abs().numpy(), [5e30, np.inf, np.nan], 1e-6)


def test_rotary_embeddings():
    """As Llama's reference code writes them."""
    freqs = norch.outer(norch.arange(5.0), 1 / 10000 ** (norch.arange(0, 8, 2).float() / 8))
    cis = norch.polar(norch.ones_like(freqs), freqs)
    x = norch.randn(2, 5, 3, 8)
    turned = norch.view_as_real(norch.view_as_complex(x.reshape(2, 5, 3, 4, 2)) * cis.view(1, 5, 1, 4)).flatten(3)
    a, b, c, s = x[..., ::2], x[..., 1::2], freqs.cos()[:, None], freqs.sin()[:, None]
    norch.testing.assert_close(turned, norch.stack([a * c - b * s, a * s + b * c], -1).flatten(3))


@pytest.mark.parametrize(
    "call",
    [lambda: norch.softmax(A, 0), lambda: norch.maximum(X, A), lambda: norch.erf(A), lambda: A.clamp],
)
def test_what_it_lacks_says_the_way_around(call):
    with pytest.raises(
        (norch.DTypeError, AttributeError), match="no tensor of norch is complex: z.real, z.imag and view_as"
    ):
        call()


def test_a_complex_dtype_is_of_pairs_only():
    assert A.dtype is norch.complex128 is norch.cdouble
    assert A.to(norch.complex128).dtype == norch.complex128
    assert norch.complex64.is_complex
    assert norch.complex64.itemsize == 8
    assert copy.copy(norch.complex64) is pickle.loads(pickle.dumps(norch.complex64)) is norch.complex64
    with pytest.raises(norch.DTypeError, match=r"no tensor is complex; view_as_complex\(\) of"):
        norch.ones(2).sum(dtype=norch.complex64)


def test_a_real_tensor_becomes_complex():
    z = X.to(norch.complex128)
    assert z.dtype is norch.complex128
    assert z.real.tolist() == X.tolist()
    assert not z.imag.any()
    assert z.to(norch.complex64).dtype is z.to(norch.tensor(1j)).dtype is norch.complex64
    with pytest.warns(UserWarning, match="leaves the imaginary parts out"):
        assert (z * 1j + 1).to(dtype=norch.float32).tolist() == norch.ones(X.shape).tolist()
    assert norch.as_tensor(X, dtype=norch.complex64).dtype is norch.complex64
    assert z.to("cpu").device == X.device


def test_tensors_of_complex_data_are_pairs():
    assert norch.tensor(1 - 2j).item() == 1 - 2j
    z = norch.tensor([[1j, 2], [3, 4 - 1j]], requires_grad=True)
    assert (z.dtype, z.tolist()) == (norch.complex64, [[1j, 2], [3, 4 - 1j]])
    assert z.requires_grad
    assert norch.tensor([1, 2], dtype=norch.complex128).tolist() == [1, 2]
    assert norch.tensor(NA).tolist() == norch.tensor(NA.tolist(), dtype=norch.complex128).tolist() == NA.tolist()
    assert norch.tensor(NA.astype(np.complex64)).dtype is norch.complex64
    array = NA.copy()
    shared = norch.from_numpy(array)
    array[0, 0] = 5j
    assert shared[0, 0].item() == 5j
    with pytest.raises(norch.DTypeError, match="expected numbers"):
        norch.tensor(1j, dtype=norch.float32)


def test_wrong_parts_are_named():
    with pytest.raises(norch.ShapeError, match="last dim of size 2"):
        norch.view_as_complex(norch.ones(3))
    with pytest.raises(norch.DTypeError, match="expected a floating dtype"):
        norch.view_as_complex(norch.ones(2, dtype=norch.int64))
    with pytest.raises(norch.DTypeError, match="expected a ComplexPair"):
        norch.view_as_real(norch.ones(2))
    with pytest.raises(norch.DTypeError, match="expected a ComplexPair"):
        norch.imag(norch.ones(2))
    with pytest.raises(norch.DTypeError, match="one floating dtype"):
        norch.complex(norch.ones(2), norch.ones(2, dtype=norch.int64))


def test_functions_that_make_tensors_make_pairs():
    made = {"dtype": norch.complex64}
    x = norch.ones(3)
    for found, expected in (
        (norch.zeros(2, 3, **made), np.zeros((2, 3))), (norch.zeros(size=(2,), **made), np.zeros(2)),
        (norch.ones((2,), **made), np.ones(2)), (norch.full((2, 1), 3 - 1j, **made), np.full((2, 1), 3 - 1j)),
        (norch.full(size=(2,), fill_value=2, **made), [2, 2]), (norch.eye(2, **made), np.eye(2)),
        (norch.zeros_like(A), np.zeros((3, 4))), (norch.ones_like(x, **made), np.ones(3)),
        (x.new_zeros(2, **made), [0, 0]), (norch.full_like(A, 1j), np.full((3, 4), 1j)),
        (x.new_full((2,), 1j, **made), [1j, 1j]),
    ):  # fmt: skip
        assert found.is_complex()
        np.testing.assert_array_equal(found.numpy(), expected)
    assert norch.zeros(1, dtype=norch.complex128).real.dtype is norch.float64
    assert norch.zeros_like(A, dtype=norch.float32).dtype is norch.float32
    norch.manual_seed(0)
    for z, variance in ((norch.rand(40000, **made), 1 / 12), (norch.randn(40000, **made), 1 / 2)):
        assert norch.rand_like(z).shape == norch.empty(40000, **made).shape == (40000,)
        np.testing.assert_allclose([z.real.var().item(), z.imag.var().item()], variance, 0.03)
    with pytest.raises(DTypeError, match=r"arange\(\): no tensor is complex"):
        norch.arange(3, **made)
    with pytest.raises(DTypeError, match=r"gt\(\): does not take complex numbers"):
        x > 1j


def test_arithmetic_in_place():
    z = A.clone()
    alias = z.pair
    z.add_(B, alpha=2).mul_(1j).sub_(X).div_(B)
    np.testing.assert_allclose(z.numpy(), ((NA + 2 * NB) * 1j - NX) / NB, 1e-12)
    assert alias is z.pair


def test_gradients_of_arithmetic_in_place():
    """d sum(|z w|**2) is 2 |z|**2 w by w, and of z / w -2 |z|**2 w / |w|**4."""
    for name, expected in [("mul_", 2 * abs(NA) ** 2 * NB), ("div_", -2 * abs(NA) ** 2 * NB / abs(NB) ** 4)]:
        w = B.clone().requires_grad_()
        getattr(A.clone(), name)(w).abs().square().sum().backward()
        np.testing.assert_allclose(w.grad.numpy(), expected, 1e-12)


def test_lists_of_complex_numbers():
    for wide, expected in ((norch.complex64, norch.complex64), (norch.complex128, norch.complex128)):
        a, b = norch.tensor([1 + 2j, 3 - 1j], dtype=norch.complex64), norch.tensor([4j], dtype=wide)
        found = norch.tensor([[a[0], 1], [2.5, b[0]]])
        assert found.dtype is expected
        assert found.tolist() == [[1 + 2j, 1], [2.5, 4j]]
    assert norch.tensor([a[1]], dtype=norch.complex128).tolist() == [3 - 1j]


def test_numpy_takes_them():
    np.testing.assert_array_equal(np.asarray(A), NA)
    np.testing.assert_allclose(A, NA)
    assert np.asarray(A, np.complex64).dtype == np.complex64
    assert norch.complex(norch.tensor(1.0), norch.tensor(math.inf)).numpy() == complex(1, math.inf)
    assert (NA * A).numpy().tolist() == (A * A).numpy().tolist()


def test_parts_are_assigned():
    z = A.clone()
    z.real, z.imag = z.imag * 2, 3.0
    np.testing.assert_array_equal(z.numpy(), NA.imag * 2 + 3j)


def test_files_keep_pairs(tmp_path):
    state = {"a": A, "row": A[1:], "list": [B.to(norch.complex64)]}
    norch.save(state, tmp_path / "pairs")
    found = norch.load(tmp_path / "pairs")
    np.testing.assert_array_equal(found["a"].numpy(), NA)
    np.testing.assert_array_equal(found["row"].numpy(), NA[1:])
    assert found["list"][0].dtype is norch.complex64
    found["row"].zero_()
    assert not found["a"][1:].any()  # they share memory, as they did
    assert found["a"][0].any()


def test_pairs_are_data_for_tensors():
    z = norch.tensor([1 + 2j, 3j])
    assert norch.as_tensor(z) is norch.asarray(z) is z
    assert norch.as_tensor(z, device="cpu").dtype == norch.complex64
    copied = norch.tensor(z, dtype=norch.complex64)
    z[0] = 0
    assert norch.tensor(z).tolist() == [0, 3j]
    assert copied.tolist() == [1 + 2j, 3j]


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0), (3, 0, 2), (2, 3)])
def test_arrays_keep_their_shape(shape):
    values = np.full(shape, 1 - 2j, np.complex64)
    for made in (norch.tensor(values), norch.as_tensor(values, dtype=norch.complex128), norch.from_numpy(values)):
        assert tuple(made.shape) == shape
        np.testing.assert_array_equal(made.numpy(), values)


def test_tensors_to_complex_powers():
    x, n = norch.tensor([2.0, 3.0]), np.array([2.0, 3.0])
    for found, expected in [
        (x**1j, n**1j), ((1 + 1j) ** x, (1 + 1j) ** n), (norch.pow(x, 0.5j), n**0.5j),
        (norch.tensor([2, 3]) ** (1 + 1j), n ** (1 + 1j)),
    ]:  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_parts_of_new_numbers_lie_side_by_side_as_real_ones():
    a = norch.arange(6.0).reshape(2, 3).requires_grad_()
    for z in (norch.complex(a, a), norch.fft.fft(a), norch.complex(a, a) + 1, norch.complex(a, a).exp()):
        expected = z.detach().numpy()
        parts = norch.view_as_real(z)
        np.testing.assert_array_equal(parts.detach().view(2, 6).numpy(), expected.view(np.float32))
        assert parts.data_ptr() == z.real.data_ptr() == norch.view_as_real(z).data_ptr()
        (parts * 2).sum().backward()
    seen, z = norch.view_as_real, norch.complex(a.detach(), a.detach())
    row = z[0]
    seen(z)[0, 1, 0] = 7  # what others hold keeps its memory
    assert row.real.tolist() == [0, 7, 2]
    z = norch.complex(a, a) * 1
    with norch.no_grad():
        seen(z)
    assert z.requires_grad


def test_what_is_computed_of_pairs_on_a_device_is_not_read(monkeypatch):
    """An error that is not for the user, since another function takes the pair, had its values in the text."""
    from norch.testing.strict import strict_device

    strict_device()
    z = norch.view_as_complex(norch.ones(3, 4, 2, device="strict"))
    backend = type(norch.device("strict").backend)

    def copy_out(self, buffer, offset, data):
        raise AssertionError("values were read")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "copy_out", copy_out)
        made = [norch.zeros_like(z), norch.ones_like(z), z.abs(), norch.stack([z, z]), norch.einsum("ij,kj->ik", z, z)]
    assert [tuple(x.shape) for x in made] == [(3, 4), (3, 4), (3, 4), (2, 3, 4), (3, 3)]
    assert describe(z) == "a norch.complex64 ComplexPair of shape (3, 4)"
